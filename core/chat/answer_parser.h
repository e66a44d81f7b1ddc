// Reads an answer as it comes: thoughts, content, calls. One machine for streams and whole answers, fed with units one
// by one, so it does not matter where the answer is cut. Nothing is taken back. Model text is never an error: what is
// no call is content. It holds back no more than the answer itself.
//
// Rules: a token beats text that spells it. Blanks that touch a call or a thought's marks are markup. A call whose name
// is not complete is content, as it was written; one whose end marks are missing is complete; one whose arguments were
// cut keeps them as they are. Calls by undeclared names are delivered where a mark opened them. JSON arguments go out
// byte for byte, others as compact JSON. Every tolerance is counted.
//
// One thread. The format must outlive the parser.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/answer_counts.h"
#include "core/chat/call_body.h"
#include "core/chat/mark_scanner.h"
#include "core/chat/prompt_state.h"
#include "core/chat/resolved_format.h"
#include "core/chat/tool_types.h"

namespace llmrt {

struct AnswerEvent {
  enum class Kind : uint8_t { kText, kThought, kCallStart, kArgs, kCallEnd };
  Kind kind;
  std::string text = {};  // valid UTF-8; kArgs: a fragment of JSON
  uint32_t index = 0;     // of the call, from 0
  std::string id = {}, name = {};
  bool is_complete = true;  // kCallEnd: nothing of the arguments was cut
};

struct AnswerOptions {
  std::vector<ToolTypes> tools = {};
  AnswerStart start = AnswerStart::kText;
  bool reads_calls = true;          // false: marks of calls are hidden where they are tokens, and text otherwise
  uint32_t calls_max = UINT32_MAX;  // more are dropped and counted
  std::function<std::string(uint32_t index)> make_id = {};  // where the model writes none; null: "call_<index>"
};

class AnswerParser final : private CallSink {
 public:
  enum class End : uint8_t { kStop, kLimit };

  AnswerParser(const ResolvedFormat& format, AnswerOptions options);
  AnswerParser(const AnswerParser&) = delete;
  AnswerParser& operator=(const AnswerParser&) = delete;

  // `token`: -1 for text without a token. `bytes`: its text. is_special: no text of the answer, unless the format
  // names it.
  std::vector<AnswerEvent> feed(int32_t token, std::string_view bytes, bool is_special);
  // The answer's end: what is held back is data. Nothing may be fed afterwards.
  std::vector<AnswerEvent> finish(End end);

  // Tokens that were fed while the thought was open, its marks included.
  uint64_t num_thought_tokens() const { return num_thought_tokens_; }
  uint32_t num_calls() const { return num_calls_; }
  bool has_complete_call() const { return has_complete_call_; }
  const AnswerCounts& counts() const { return counts_; }
  // The thought is open: a grammar waits.
  bool in_thought() const;
  // The same, and no call is begun inside it.
  bool has_open_thought() const {
    return state_ == State::kThought || (state_ == State::kBroken && outer_ == State::kThought);
  }

 private:
  enum class State : uint8_t {
    kText,
    kThought,
    kHeader,
    kSection,
    kBodyStart,
    kBody,
    kAfterBody,
    kBroken,
    kSeparator,
    kDropped,
  };
  // Where the text so far stands, for marks that count only there.
  struct Place {
    bool segment_start = true;  // nothing but blanks since the answer, a thought's or a call's end
    bool line_start = true;
  };

  // CallSink
  bool begin_call(std::string_view name, std::string_view id) override;
  void args(std::string_view json) override;
  void end_call(bool is_complete) override;
  void count(Oddity oddity) override { counts_.add(oddity); }
  bool is_declared(std::string_view name) const override;
  ValueTypes types_of(std::string_view tool, std::string_view parameter) const override;

  void make_live_marks();  // answer_marks.cpp
  void make_call_marks(const LiveMarks& messages);
  void make_text_marks(const LiveMarks& openings, const LiveMarks& line_openings, const LiveMarks& messages);
  const LiveMarks& live() const;
  void run();
  void drain(bool is_cut);
  void handle(const MarkScanner::Found& found);
  void on_data(Unit unit);
  void on_mark(const MarkScanner::Found& found);
  void text_data(Unit unit);
  void text_mark(const MarkScanner::Found& found);
  void stop_unit(Unit unit);
  void dropped_data(Unit unit);
  void body_data(Unit unit);
  void body_step(CallBody::Step step, const Units& units);
  void section_data(Unit unit);
  void separator_data(Unit unit);
  void end_turn(bool is_cut);

  bool begins_bare_call(Unit unit) const;
  void open_call(const MarkScanner::Found& found);
  void start_body(bool is_bare, std::string known_name);
  void call_done();
  void calls_done();
  void fail_call();
  void open_thought();
  void close_thought();
  void plain_text(std::string_view text);  // of the current content or thought
  void flush_blanks();
  void drop_blanks() { blanks_.clear(); }

  // Headers (answer_headers.cpp)
  void begin_header(bool is_marked);
  void header_data(Unit unit);
  void header_mark(const MarkScanner::Found& found);
  void route_message();
  void end_header();
  void header_is_text();

  void emit(AnswerEvent::Kind kind, std::string_view bytes);
  void push_event(AnswerEvent event);
  void close_run();
  std::vector<AnswerEvent> take_events();

  const ResolvedFormat& resolved_;
  const ChatFormat& format_;
  AnswerOptions options_;
  AnswerCounts counts_;

  UnitSource source_;
  MarkScanner scanner_;
  State state_ = State::kText;
  State outer_ = State::kText;  // of a call: text or thought
  Place place_;
  LiveMarks text_live_[2][2];  // by segment_start, line_start
  LiveMarks thought_live_[2];  // by whether the thought is empty so far
  LiveMarks section_live_, broken_live_, header_live_, body_ends_, none_;
  std::unique_ptr<CallBody> body_;
  bool has_name_mark_ = false, only_declared_ = false, is_bare_ = false;
  bool in_section_ = false;
  uint32_t section_calls_ = 0;
  bool call_is_open_ = false, call_is_muted_ = false;
  std::string call_args_;  // of the open call, to see whether they are JSON

  std::string blanks_;  // held back: markup if a mark follows
  bool has_content_ = false, has_thought_ = false;
  bool thought_is_empty_ = true;  // this one
  bool answer_start_ = true;      // nothing but blanks so far
  bool after_call_ = false, after_thought_ = false;
  bool drops_echo_ = false;
  int echo_depth_ = 0;
  bool breaks_content_ = false;  // an empty line comes before what follows

  std::string header_;  // its text so far, channel and type marked by the bytes below
  static constexpr char kChannelByte = '\x01', kTypeByte = '\x02';
  bool header_is_marked_ = false;
  uint64_t num_header_tokens_ = 0;

  uint64_t num_thought_tokens_ = 0;
  uint32_t num_calls_ = 0;
  bool has_complete_call_ = false;
  std::vector<AnswerEvent> events_;
  std::string run_;  // bytes of the last event's kind that are not sent
  AnswerEvent::Kind run_kind_ = AnswerEvent::Kind::kText;
};

// A whole answer.
struct Answer {
  struct Call {
    std::string id, name, args;
    bool is_complete = false;
  };
  std::optional<std::string> content, thought;  // never empty
  std::vector<Call> calls;

  void add(const std::vector<AnswerEvent>& events);
};

}  // namespace llmrt
