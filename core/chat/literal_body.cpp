// Calls whose arguments are literals: Python's f(a=1, b='x'), alone or in a list, and Gemma's call:f{a:1}.
#include <algorithm>

#include "core/chat/call_body.h"
#include "core/chat/literal_reader.h"
#include "core/grammar/json_spelling.h"

namespace llmrt {
namespace {

using LiteralStep = LiteralReader::Step;

class PythonicBody final : public CallBody {
 public:
  explicit PythonicBody(BodyContext context) : context_(std::move(context)) {}

  const LiveMarks& live() const override {
    return state_ == State::kValue && value_.in_string() ? none_ : context_.ends;
  }
  Step data(Unit unit) override;
  Step mark(const MarkScanner::Found& found) override;
  Step end(bool cut) override;

 private:
  enum class State : uint8_t { kStart, kName, kKey, kEquals, kValue, kAfterValue, kAfterCall };
  Step byte(char c);
  Step value_byte(char c);
  Step name_byte(char c);
  Step key_byte(char c);
  bool begin();
  Step end_call(bool is_complete);
  // Behind the head what cannot be read ends the call as it is.
  Step fail();

  BodyContext context_;
  LiveMarks none_;
  State state_ = State::kStart;
  bool is_list_ = false, has_begun_ = false, has_keys_ = false, has_calls_ = false;
  std::string name_, key_;
  LiteralReader value_;
};

CallBody::Step PythonicBody::data(Unit unit) {
  if (is_byte(unit)) return byte(static_cast<char>(unit));
  if (!(state_ == State::kValue && value_.in_string())) return fail();
  for (const char c : context_.format->text(unit)) {
    if (const Step step = byte(c); step != Step::kMore) return step;
  }
  return Step::kMore;
}

CallBody::Step PythonicBody::fail() {
  if (has_begun_) {
    context_.sink->count(Oddity::kBrokenArgs);
    end_call(false);
  }
  return Step::kFailed;
}

CallBody::Step PythonicBody::end_call(bool is_complete) {
  if (is_complete) context_.sink->args(has_keys_ ? "}" : "{}");
  context_.sink->end_call(is_complete);
  has_begun_ = has_keys_ = false;
  has_calls_ = true;
  name_.clear();
  state_ = State::kAfterCall;
  return is_list_ ? Step::kMore : Step::kDone;
}

bool PythonicBody::begin() {
  if (has_begun_) return true;
  std::string name = name_;
  if (!is_list_ && name.ends_with(".call")) name.resize(name.size() - 5);
  return has_begun_ = context_.sink->begin_call(name, {});
}

CallBody::Step PythonicBody::byte(char c) {
  const bool is_space = is_json_space(static_cast<uint8_t>(c));
  switch (state_) {
    case State::kStart:
      if (is_space) return Step::kMore;
      if (c == '[' && !is_list_) {
        is_list_ = true;
        return Step::kMore;
      }
      if (c == ']' && is_list_ && has_calls_) return Step::kDone;  // a trailing comma
      state_ = State::kName;
      return name_byte(c);
    case State::kName:
      return name_byte(c);
    case State::kKey:
      return key_byte(c);
    case State::kEquals:
      if (is_space) return Step::kMore;
      if (c != '=') return fail();
      if (!begin()) return Step::kFailed;
      context_.sink->args((has_keys_ ? "," : "{") + json_string_text(key_) + ":");
      has_keys_ = true;
      value_ = LiteralReader();
      state_ = State::kValue;
      return Step::kMore;
    case State::kValue:
      return value_byte(c);
    case State::kAfterValue:
      if (is_space) return Step::kMore;
      if (c == ')') return end_call(true);
      if (c != ',') return fail();
      key_.clear();
      state_ = State::kKey;
      return Step::kMore;
    case State::kAfterCall:
      if (is_space) return Step::kMore;
      if (c == ']') return Step::kDone;
      if (c != ',') return Step::kFailed;
      state_ = State::kStart;
      return Step::kMore;
  }
  return Step::kFailed;
}

CallBody::Step PythonicBody::name_byte(char c) {
  if (c == '(' && !name_.empty()) {
    key_.clear();
    state_ = State::kKey;
    return Step::kMore;
  }
  if (!is_name_byte(static_cast<uint8_t>(c)) || name_.size() >= kNameBytesMax) return Step::kFailed;
  name_ += c;
  return Step::kMore;
}

CallBody::Step PythonicBody::key_byte(char c) {
  const bool is_space = is_json_space(static_cast<uint8_t>(c));
  if (c == ')' && key_.empty()) return begin() ? end_call(true) : Step::kFailed;
  if (is_space && key_.empty()) return Step::kMore;
  if (c == '=' || is_space) {
    state_ = State::kEquals;
    return c == '=' ? byte(c) : Step::kMore;
  }
  if (!is_name_byte(static_cast<uint8_t>(c)) || key_.size() >= kNameBytesMax) return fail();
  key_ += c;
  return Step::kMore;
}

CallBody::Step PythonicBody::value_byte(char c) {
  std::string out;
  const LiteralStep step = value_.push(c, &out);
  if (!out.empty()) context_.sink->args(out);
  if (step == LiteralStep::kMore) return Step::kMore;
  if (step == LiteralStep::kFailed) return fail();
  if (value_.is_odd()) context_.sink->count(Oddity::kWrongType);
  state_ = State::kAfterValue;
  return step == LiteralStep::kDone ? Step::kMore : byte(c);
}

CallBody::Step PythonicBody::mark(const MarkScanner::Found& found) {
  if (!has_begun_ && !has_calls_) return Step::kFailed;
  if (end(false) == Step::kFailed) return Step::kFailed;
  return step_at_end_mark(found.mark);
}

CallBody::Step PythonicBody::end(bool cut) {
  if (!has_begun_) {
    if (state_ != State::kAfterCall) return Step::kFailed;
    context_.sink->count(Oddity::kMissingClose);
    return Step::kDone;
  }
  std::string out;
  bool is_whole = state_ == State::kAfterValue;
  if (state_ == State::kValue && !cut) is_whole = value_.end(&out) == LiteralStep::kDone;
  if (!out.empty()) context_.sink->args(out);
  context_.sink->count(is_whole ? Oddity::kMissingClose : Oddity::kBrokenArgs);
  end_call(is_whole && !cut);
  return Step::kDone;
}

class GemmaBody final : public CallBody {
 public:
  explicit GemmaBody(BodyContext context) : context_(std::move(context)), format_(*context_.format->format) {
    const ResolvedFormat& resolved = *context_.format;
    name_marks_.add(resolved.units(format_.name_marks.before), Mark::kName);
    value_marks_.add(resolved.units(format_.args.delimiter), Mark::kDelimiter);
    delimiter_ = value_marks_;
    for (LiveMarks* marks : {&name_marks_, &value_marks_}) {
      for (const auto& entry : context_.ends.entries()) marks->add(entry.units, entry.mark, entry.index);
    }
  }

  const LiveMarks& live() const override {
    if (!has_begun_) return name_marks_;
    return value_.in_delimited() ? delimiter_ : value_.in_string() ? none_ : value_marks_;
  }
  bool in_text() const override { return value_.in_delimited(); }
  Step data(Unit unit) override;
  Step mark(const MarkScanner::Found& found) override;
  Step end(bool cut) override;

 private:
  Step take(LiteralStep step, std::string_view out);
  Step end_call(bool is_complete, Step step) {
    if (value_.is_odd()) context_.sink->count(Oddity::kWrongType);
    context_.sink->end_call(is_complete);
    return step;
  }

  BodyContext context_;
  const ChatFormat& format_;
  LiveMarks none_, name_marks_, value_marks_, delimiter_;
  std::string name_;
  bool has_begun_ = false, has_name_mark_ = false;
  LiteralReader value_{true};
};

CallBody::Step GemmaBody::take(LiteralStep step, std::string_view out) {
  if (!out.empty()) context_.sink->args(out);
  if (step == LiteralStep::kDone) return end_call(true, Step::kDone);
  if (step == LiteralStep::kMore) return Step::kMore;
  context_.sink->count(Oddity::kBrokenArgs);
  return end_call(false, Step::kDoneBefore);
}

CallBody::Step GemmaBody::data(Unit unit) {
  std::string out;
  if (has_begun_) {
    const bool takes_text = value_.in_delimited() || value_.in_string();
    if (!is_byte(unit) && !takes_text) return take(LiteralStep::kFailed, {});
    LiteralStep step = LiteralStep::kMore;
    for (const char c : context_.format->text(unit)) {
      if (step == LiteralStep::kMore) step = value_.push(c, &out);
    }
    return take(step, out);
  }
  if (is_json_space(unit) && name_.empty()) return Step::kMore;
  if (unit == '{' && !name_.empty()) {
    if (!context_.sink->begin_call(name_, {})) return Step::kFailed;
    if (!has_name_mark_) context_.sink->count(Oddity::kMissingOpen);
    has_begun_ = true;
    value_.begin_object(&out);
    return take(LiteralStep::kMore, out);
  }
  if (!is_name_byte(unit) || name_.size() >= kNameBytesMax) return Step::kFailed;
  name_ += static_cast<char>(unit);
  return Step::kMore;
}

CallBody::Step GemmaBody::mark(const MarkScanner::Found& found) {
  if (found.mark == Mark::kName) {
    if (!name_.empty()) return Step::kFailed;
    has_name_mark_ = true;
    return Step::kMore;
  }
  if (found.mark == Mark::kDelimiter) {
    std::string out;
    const LiteralStep step = value_.push_delimiter(&out);
    return take(step, out);
  }
  if (!has_begun_) {
    if (name_.empty() || found.mark != Mark::kCallClose || !context_.sink->begin_call(name_, {})) return Step::kFailed;
    context_.sink->count(Oddity::kMissingClose);
    context_.sink->args("{}");
    return end_call(true, Step::kClosed);
  }
  context_.sink->count(Oddity::kBrokenArgs);
  return end_call(false, step_at_end_mark(found.mark));
}

CallBody::Step GemmaBody::end(bool) {
  if (!has_begun_) return Step::kFailed;
  context_.sink->count(Oddity::kBrokenArgs);
  return end_call(false, Step::kDone);
}

}  // namespace

std::unique_ptr<CallBody> make_pythonic_body(BodyContext context) {
  return std::make_unique<PythonicBody>(std::move(context));
}

std::unique_ptr<CallBody> make_gemma_body(BodyContext context) {
  return std::make_unique<GemmaBody>(std::move(context));
}

}  // namespace llmrt
