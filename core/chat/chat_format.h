// How a family of models writes its answers: marks of thoughts and calls, as data. The parser of answers
// (answer_parser.h), their grammar (answer_grammar.h) and the state at the prompt's end (prompt_state.h) follow from
// it. A mark is text; where the vocabulary has special tokens that spell parts of it, only those tokens count
// (resolved_format.h).
//
// Immutable, static: pointers and references live as long as the program. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace llmrt {

class Tokenizer;

struct TurnMarks {
  std::vector<std::string> stop = {};      // tokens that end the answer
  std::vector<std::string> boundary = {};  // in a prompt: what stands before the last one says nothing of the answer
  std::vector<std::string> hide = {};      // texts that are left out of content wherever they stand
};

struct ThoughtMarks {
  // kProbe: the end of the prompt says whether the thought is open. kOpen: it is open unless the prompt closed it.
  enum class Starts : uint8_t { kProbe, kOpen };
  std::string open = {};  // empty: no thoughts (or a header says what is one)
  std::string close = {};
  Starts starts = Starts::kProbe;
  bool calls_end_it = false;         // a call inside an open thought ends the thought
  std::string switch_variable = {};  // the template's variable that turns thoughts on and off; empty: none
  bool switch_default = true;
};

struct CallOpening {
  std::string text;
  bool only_declared = false;  // counts only before the name of a declared tool
  bool at_line_start = false;  // counts only where a line begins
  bool has_name_mark = false;  // NameMarks::before is already part of `text`
};

struct CallMarks {
  enum class After : uint8_t {
    kContent,   // text behind a call is content
    kDropEcho,  // so it is, but not a list in brackets, which repeats the call
    kStop,      // nothing comes behind it
  };
  static constexpr uint32_t kUnbounded = UINT32_MAX;
  std::string section_open = {};  // around all calls; empty: none
  std::string section_close = {};
  bool section_optional = false;  // calls without the section are understood
  std::vector<CallOpening> open = {};
  std::string close = {};    // empty: the call's own end is enough
  std::string space = {};    // what the grammar writes behind `open` and before `close`
  std::string between = {};  // what it writes between two calls; a mark for the parser where calls have no opening
  bool bare = false;         // an answer may begin with a call that has no opening: its name must be declared
  bool list = false;         // calls are the elements of one list in brackets
  uint32_t max = kUnbounded;
  After after = After::kContent;
};

struct NameMarks {
  enum class From : uint8_t { kMarks, kKey, kRecipient };
  From from = From::kMarks;
  std::string before = {};
  std::string after = {};         // empty: the next mark ends it
  bool quoted = false;            // the grammar writes quotes around it; the parser takes ", ' or none
  std::string strip_prefix = {};  // part of how it is written, not of the name
};

struct CallIdMarks {
  enum class From : uint8_t { kMade, kKey, kMark, kName };  // kName: "functions.N:I" is the id, N the name
  From from = From::kMade;
  std::string mark = {};  // before the id; kKey: the key
  uint32_t length = 0;    // ids have exactly so many letters and digits; 0: any
};

struct ArgsMarks {
  enum class Kind : uint8_t {
    kNone,
    kJson,          // an object behind the name
    kJsonInObject,  // {"name": ..., "arguments": {...}}
    kTagged,        // marks around each key and value
    kPythonic,      // name(key=value, ...)
    kGemma,         // name{key:value, ...} with strings between marks of their own
  };
  Kind kind = Kind::kNone;
  std::string before = {};             // kJson: mark before the object
  bool fenced = false;                 // kJson: the object stands in ```json
  std::vector<std::string> keys = {};  // kJsonInObject: keys of the arguments; the grammar writes the first
  // kTagged
  std::string key_before = {}, key_after = {}, value_before = {}, value_after = {}, end = {};
  std::string space = {};             // what the grammar writes between marks
  bool newline_around_value = false;  // one newline on each side of a value is markup
  bool typed = false;                 // keys say string="true|false"
  std::string delimiter = {};         // kGemma: around strings
};

// Messages with headers (Harmony): start role channel constrain type message body end.
struct HeaderMarks {
  std::string start = {};  // empty: no headers
  std::string channel = {}, constrain = {}, message = {}, end = {}, call = {};
  bool used() const { return !start.empty(); }
};

// How results come back in a prompt; for checks of templates.
struct ToolResultMarks {
  std::string before = {}, after = {};
  bool same_turn = false;  // the model's turn goes on behind it
  bool needs_id = false;
};

// What the parser takes although the grammar would not write it; each use is counted (answer_counts.h). What is not
// listed is taken in every format.
struct Lenience {
  bool wrapper_object = false;  // {"type": "function", "function": {...}}
  bool pythonic = false;        // kJsonInObject: also [f(a=1)] and f.call(a=1)
};

struct ChatFormat {
  std::string name;
  std::string models;  // for people
  // The template's source has all strings of one of these lists, and this is the first such format of the table.
  std::vector<std::vector<std::string>> detect = {};
  // Texts that may be tokens of their own in the vocabulary.
  std::vector<std::string> tokens = {};
  TurnMarks turn = {};
  ThoughtMarks thought = {};
  CallMarks calls = {};
  NameMarks name_marks = {};
  CallIdMarks call_id = {};
  ArgsMarks args = {};
  HeaderMarks header = {};
  ToolResultMarks result = {};
  Lenience lenient = {};

  bool has_calls() const { return args.kind != ArgsMarks::Kind::kNone; }
  bool has_thoughts() const { return !thought.open.empty() || header.used(); }
};

std::span<const ChatFormat> chat_formats();
// kInvalidArgument names all formats; kUnsupported: known by name, but not there.
Result<const ChatFormat*> find_chat_format(std::string_view name);
// By the template; without one, by the tokens of the vocabulary. "plain" where nothing fits.
const ChatFormat& detect_chat_format(std::string_view template_source, const Tokenizer& tokenizer);
// The name of a format that a template uses and that is not there; empty: none.
std::string_view absent_chat_format(std::string_view template_source);

}  // namespace llmrt
