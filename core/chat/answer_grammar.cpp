#include "core/chat/answer_grammar.h"

#include <algorithm>

#include "core/chat/call_grammar.h"
#include "core/grammar/json_spelling.h"

namespace llmrt {
namespace {

using Choice = AnswerSpec::Choice;
constexpr auto kEmpty = GrammarBuilder::kEmpty;
constexpr auto kNothing = GrammarBuilder::kNothing;
constexpr auto kUnbounded = GrammarBuilder::kUnbounded;

class AnswerWriter {
 public:
  AnswerWriter(GrammarBuilder* builder, const ResolvedFormat& resolved, const AnswerSpec& spec)
      : b_(*builder), symbols_(builder, resolved), resolved_(resolved), format_(*resolved.format), spec_(spec) {}

  Result<SymbolId> write();

 private:
  Status make_bodies();
  SymbolId calls(SymbolId first_opening);
  SymbolId all_calls() { return calls(symbols_.mark(opening())); }
  SymbolId free_answer(bool is_start);
  SymbolId behind_thought(bool is_start);
  SymbolId with_thought();
  SymbolId thought_text_then_rest(SymbolId rest);
  SymbolId with_headers();
  RegexId bare_begin();
  std::string opening() const;
  std::vector<std::string> forbidden() const;
  uint32_t calls_max() const {
    const bool is_one = !spec_.parallel || spec_.choice == Choice::kNamed;
    return is_one ? 1 : format_.calls.max;
  }
  bool wants_calls() const { return spec_.choice != Choice::kNone && body_ != kNothing; }
  bool must_call() const { return spec_.choice == Choice::kRequired || spec_.choice == Choice::kNamed; }

  GrammarBuilder& b_;
  FormatSymbols symbols_;
  const ResolvedFormat& resolved_;
  const ChatFormat& format_;
  const AnswerSpec& spec_;
  std::vector<std::string> names_;  // of the tools that may be called
  SymbolId body_ = kNothing;        // of any of them
};

Status AnswerWriter::make_bodies() {
  if (spec_.choice == Choice::kNone) return {};
  std::vector<SymbolId> bodies;
  for (const ToolGrammar& tool : spec_.tools) {
    if (spec_.choice == Choice::kNamed && tool.name != spec_.named) continue;
    if (spec_.values.begin_tool) spec_.values.begin_tool(tool);
    const auto body = call_body(&symbols_, tool, spec_.values);
    if (!body) return body.error();
    bodies.push_back(*body);
    names_.push_back(tool.name);
  }
  if (must_call() && bodies.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "tool choice: expected a tool that the request declares, found none");
  }
  body_ = b_.choice(bodies);
  return {};
}

// The mark that begins calls; empty: they have none.
std::string AnswerWriter::opening() const {
  const CallMarks& calls = format_.calls;
  if (!calls.section_open.empty()) return calls.section_open;
  return calls.bare || calls.open.empty() ? "" : calls.open[0].text;
}

// What free text must not hold, since the parser would not take it for text.
std::vector<std::string> AnswerWriter::forbidden() const {
  std::vector<std::string> marks = format_.turn.hide;
  marks.insert(marks.end(), {format_.thought.open, format_.thought.close});
  const CallMarks& calls = format_.calls;
  if (spec_.choice != Choice::kNone && format_.has_calls()) {
    marks.insert(marks.end(), {calls.section_open, calls.section_close, calls.close});
    for (const CallOpening& opening : calls.open) {
      if (!opening.only_declared || !opening.has_name_mark) {
        if (calls.section_open.empty() || calls.section_optional) marks.push_back(opening.text);
        continue;
      }
      for (const ToolGrammar& tool : spec_.tools) marks.push_back(opening.text + tool.name + format_.name_marks.after);
    }
  }
  std::erase(marks, "");
  return marks;
}

// Calls behind the first opening, which may be a terminal that text before it is part of.
SymbolId AnswerWriter::calls(SymbolId first_opening) {
  const CallMarks& marks = format_.calls;
  const uint32_t max = calls_max();
  const uint32_t others_max = max == kUnbounded ? kUnbounded : max - 1;
  const SymbolId space = b_.literal(marks.space), close = symbols_.mark(marks.close);
  const SymbolId open = marks.bare || marks.open.empty() ? kEmpty : symbols_.mark(marks.open[0].text);
  if (marks.list) {
    const SymbolId others = b_.repeat(b_.sequence({b_.literal(", "), body_}), 0, others_max);
    return b_.sequence({first_opening, b_.literal("["), body_, others, b_.literal("]"), marks.bare ? kEmpty : close});
  }
  const bool has_section = !marks.section_open.empty();
  // A section's space stands around all calls, else around each.
  const SymbolId one = has_section ? b_.sequence({body_, close}) : b_.sequence({space, body_, space, close});
  const SymbolId others = b_.repeat(b_.sequence({b_.literal(marks.between), open, one}), 0, others_max);
  if (!has_section) return b_.sequence({first_opening, one, others});
  return b_.sequence({first_opening, space, open, one, others, space, symbols_.mark(marks.section_close)});
}

// Texts that the parser would hold for the begin of a call without an opening.
RegexId AnswerWriter::bare_begin() {
  RegexPool& pool = b_.regexes();
  ByteSet set;
  for (const char c : {' ', '\t', '\r', '\n'}) set.set(static_cast<size_t>(c));
  const RegexId blanks = pool.star(pool.bytes(set));
  std::vector<RegexId> begins;
  const auto text = [&](std::initializer_list<std::string_view> words) {
    std::vector<RegexId> parts = {blanks};
    for (const std::string_view word : words) parts.insert(parts.end(), {pool.literal(word), blanks});
    begins.push_back(pool.concat(std::vector<RegexId>{pool.concat(parts), RegexPool::kAnything}));
  };
  for (const ToolGrammar& tool : spec_.tools) {
    if (format_.args.kind == ArgsMarks::Kind::kJsonInObject) {
      text({"{", "\"name\"", ":", json_string_text(tool.name)});
    }
    if (format_.args.kind == ArgsMarks::Kind::kPythonic || format_.lenient.pythonic) text({"[", tool.name + "("});
  }
  if (format_.args.kind == ArgsMarks::Kind::kJsonInObject) {
    for (const std::string& key : format_.args.keys) text({"{", "\"" + key + "\""});
    text({"{", "\"function\""});
    text({"{", "\"type\"", ":", "\"function\""});
  }
  return pool.either(begins);
}

// Text, and calls where a mark opens them. `is_start`: nothing came before.
SymbolId AnswerWriter::free_answer(bool is_start) {
  RegexPool& pool = b_.regexes();
  const std::vector<std::string> marks = forbidden();
  if (!wants_calls()) return b_.terminal(symbols_.without(marks));
  if (format_.calls.bare) {
    const SymbolId text =
        b_.terminal(pool.except(symbols_.without(marks), is_start ? bare_begin() : RegexPool::kNothing));
    return is_start ? b_.choice({text, all_calls()}) : text;
  }
  const SymbolId call = calls(symbols_.text_then(RegexPool::kAnything, opening(), marks));
  const SymbolId end_text = b_.terminal(symbols_.without(marks));
  const bool goes_on = spec_.parallel && format_.calls.after == CallMarks::After::kContent;
  if (!goes_on) return b_.choice({call, end_text});
  return b_.sequence({b_.repeat(call, 0, kUnbounded), end_text});
}

SymbolId AnswerWriter::behind_thought(bool is_start) {
  if (must_call()) return all_calls();
  if (spec_.content) return wants_calls() ? b_.choice({*spec_.content, all_calls()}) : *spec_.content;
  return free_answer(is_start);
}

// An open thought: its text, its close, then the rest; or a call that ends it.
SymbolId AnswerWriter::thought_text_then_rest(SymbolId rest) {
  const bool calls_end_it = format_.thought.calls_end_it && wants_calls();
  std::vector<std::string> marks = calls_end_it ? forbidden() : std::vector<std::string>{format_.thought.open};
  std::erase(marks, format_.thought.close);
  const SymbolId closed = symbols_.text_then(RegexPool::kAnything, format_.thought.close, marks);
  const SymbolId answer = b_.sequence({closed, symbols_.blanks(4), rest});
  if (!calls_end_it || opening().empty()) return answer;
  marks.push_back(format_.thought.close);
  return b_.choice({answer, calls(symbols_.text_then(RegexPool::kAnything, opening(), marks))});
}

SymbolId AnswerWriter::with_thought() {
  const bool has_thought = !format_.thought.open.empty();
  if (!has_thought || spec_.start == AnswerStart::kAfterThought) return behind_thought(true);
  const SymbolId thought = thought_text_then_rest(behind_thought(false));
  if (spec_.start == AnswerStart::kThought) return thought;
  if (!spec_.may_think) return behind_thought(true);
  return b_.choice({behind_thought(true), b_.sequence({symbols_.mark(format_.thought.open), thought})});
}

SymbolId AnswerWriter::with_headers() {
  const HeaderMarks& h = format_.header;
  const std::vector<std::string> marks = {h.start, h.channel, h.constrain, h.message, h.end, h.call};
  std::vector<std::string> all = marks;
  all.insert(all.end(), format_.turn.stop.begin(), format_.turn.stop.end());
  const auto mark = [&](const std::string& text) { return symbols_.mark(text); };
  const auto head = [&](std::string_view channel) {
    return b_.sequence({mark(h.channel), b_.literal(channel), mark(h.message)});
  };
  const SymbolId text_end = symbols_.text_then(RegexPool::kAnything, h.end, all);
  const SymbolId next = b_.sequence({mark(h.start), b_.literal("assistant")});
  const SymbolId analysis = b_.sequence({head("analysis"), text_end, next});
  const SymbolId preamble = b_.sequence({head("commentary"), text_end, next});
  const SymbolId free = b_.terminal(symbols_.without(all));
  const SymbolId content = spec_.content.value_or(free);
  const SymbolId final = b_.sequence({head("final"), content});
  SymbolId call = kNothing;
  if (wants_calls()) {
    call = b_.sequence({mark(h.channel), b_.literal("commentary to="), body_, mark(h.call)});
  }
  const SymbolId last = must_call() ? call : b_.choice({final, call});
  const SymbolId before = spec_.content && !must_call() ? analysis : b_.choice({analysis, preamble});
  const SymbolId messages = b_.sequence({b_.repeat(before, 0, kUnbounded), last});
  if (spec_.start == AnswerStart::kThought) return b_.sequence({text_end, next, messages});
  if (spec_.start == AnswerStart::kHeader) return messages;
  return must_call() ? b_.sequence({text_end, next, messages}) : content;
}

Result<SymbolId> AnswerWriter::write() {
  if (must_call() && !format_.has_calls()) {
    return make_error(ErrorCode::kUnsupported, "tool choice: the chat format {} has no tool calls", format_.name);
  }
  for (const auto& token : resolved_.tokens) b_.exclude_token(token.id);
  if (const Status made = format_.has_calls() ? make_bodies() : Status(); !made) return made.error();
  const SymbolId answer = format_.header.used() ? with_headers() : with_thought();
  if (!b_.status()) return b_.status().error();
  return answer;
}

}  // namespace

Result<SymbolId> answer_grammar(GrammarBuilder* builder, const ResolvedFormat& format, const AnswerSpec& spec) {
  return AnswerWriter(builder, format, spec).write();
}

}  // namespace llmrt
