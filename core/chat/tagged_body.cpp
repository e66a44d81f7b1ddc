// Marks around name, keys and values; values are bare text whose type the tool's schema fixes. Strings grow as they
// come, other values are sent when they are complete. Inside a value only its end mark counts.
#include <algorithm>

#include "core/chat/call_body.h"
#include "core/chat/json_text.h"
#include "core/grammar/json_spelling.h"

namespace llmrt {
namespace {

class TaggedBody final : public CallBody {
 public:
  explicit TaggedBody(BodyContext context) : context_(std::move(context)), format_(*context_.format->format) {
    const ResolvedFormat& resolved = *context_.format;
    const ArgsMarks& args = format_.args;
    if (!context_.has_name_mark) before_name_.add(resolved.units(format_.name_marks.before), Mark::kName);
    name_.add(resolved.units(format_.name_marks.after), Mark::kNameEnd);
    for (LiveMarks* marks : {&name_, &between_}) {
      marks->add(resolved.units(args.key_before), Mark::kKey);
      marks->add(resolved.units(args.end), Mark::kEnd);
    }
    key_.add(resolved.units(args.key_after), Mark::kKeyEnd);
    before_value_.add(resolved.units(args.value_before), Mark::kValue);
    for (LiveMarks* marks : {&before_name_, &name_, &between_, &key_, &before_value_}) {
      for (const auto& entry : context_.ends.entries()) marks->add(entry.units, entry.mark, entry.index);
    }
    value_.add(resolved.units(args.value_after), Mark::kValueEnd);
    if (args.newline_around_value) value_.add(U"\n" + resolved.units(args.value_after), Mark::kValueEnd);
    const bool expects_mark = !format_.name_marks.before.empty() && !context_.has_name_mark;
    state_ = expects_mark ? State::kBeforeName : State::kName;
  }

  const LiveMarks& live() const override {
    switch (state_) {
      case State::kBeforeName:
        return before_name_;
      case State::kName:
        return name_;
      case State::kKey:
        return key_;
      case State::kBeforeValue:
        return before_value_;
      case State::kValue:
        return value_;
      case State::kBetween:
        break;
    }
    return between_;
  }
  bool in_text() const override { return state_ == State::kValue; }
  Step data(Unit unit) override;
  Step mark(const MarkScanner::Found& found) override;
  Step end(bool cut) override;

 private:
  enum class State : uint8_t { kBeforeName, kName, kBetween, kKey, kBeforeValue, kValue };

  Step begin();
  void begin_value();
  void value_text(std::string_view text);
  void end_value();
  void finish(bool is_complete);
  std::string unquoted(std::string_view text) const;

  BodyContext context_;
  const ChatFormat& format_;
  LiveMarks before_name_, name_, between_, key_, before_value_, value_;
  State state_;
  std::string text_;  // of a name, a key with its attributes, or a value that is not sent yet
  std::string tool_, key_name_;
  std::vector<std::string> keys_;
  ValueTypes types_;
  bool has_begun_ = false, has_value_bytes_ = false, is_streamed_ = false, is_repeated_ = false;
};

// The text between quotes, or up to a blank.
std::string TaggedBody::unquoted(std::string_view text) const {
  while (!text.empty() && is_json_space(static_cast<uint8_t>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && is_json_space(static_cast<uint8_t>(text.back()))) text.remove_suffix(1);
  if (!text.empty() && (text[0] == '"' || text[0] == '\'')) {
    const size_t close = text.find(text[0], 1);
    return std::string(text.substr(1, close == text.npos ? text.npos : close - 1));
  }
  if (format_.args.typed) text = text.substr(0, text.find(' '));
  return std::string(text);
}

CallBody::Step TaggedBody::begin() {
  tool_ = unquoted(text_);
  text_.clear();
  const bool is_name =
      !tool_.empty() && std::ranges::all_of(tool_, [](char c) { return is_name_byte(static_cast<uint8_t>(c)); });
  if (!is_name || !context_.sink->begin_call(tool_, {})) return Step::kFailed;
  has_begun_ = true;
  state_ = State::kBetween;
  return Step::kMore;
}

void TaggedBody::begin_value() {
  state_ = State::kValue;
  text_.clear();
  is_repeated_ = std::ranges::count(keys_, key_name_) > 0;
  if (is_repeated_) context_.sink->count(Oddity::kRepeatedKey);
  has_value_bytes_ = false;
  is_streamed_ = types_.only_string() && !is_repeated_;
  if (!is_streamed_) return;
  context_.sink->args((keys_.empty() ? "{" : ",") + json_string_text(key_name_) + ":\"");
  keys_.push_back(key_name_);
}

void TaggedBody::value_text(std::string_view text) {
  if (!has_value_bytes_ && format_.args.newline_around_value && text == "\n") {
    has_value_bytes_ = true;
    return;
  }
  has_value_bytes_ = true;
  if (is_repeated_) return;
  if (!is_streamed_) {
    text_ += text;
    return;
  }
  std::string escaped;
  append_json_escaped(&escaped, text);
  context_.sink->args(escaped);
}

void TaggedBody::end_value() {
  state_ = State::kBetween;
  if (is_repeated_) return;
  if (is_streamed_) return context_.sink->args("\"");
  bool is_odd = false;
  const std::string value = json_value_of(text_, types_, &is_odd);
  if (is_odd) context_.sink->count(Oddity::kWrongType);
  context_.sink->args((keys_.empty() ? "{" : ",") + json_string_text(key_name_) + ":" + value);
  keys_.push_back(key_name_);
}

void TaggedBody::finish(bool is_complete) {
  if (is_complete) context_.sink->args(keys_.empty() ? "{}" : "}");
  context_.sink->end_call(is_complete);
  has_begun_ = false;
}

CallBody::Step TaggedBody::data(Unit unit) {
  switch (state_) {
    case State::kBeforeName:
      return is_json_space(unit) ? Step::kMore : Step::kFailed;
    case State::kName: {
      if (is_json_space(unit) && text_.empty()) return Step::kMore;
      const bool is_quote = format_.name_marks.quoted && (unit == '"' || unit == '\'');
      if (!is_name_byte(unit) && !is_quote && unit != ' ') return Step::kFailed;
      if (text_.size() >= kNameBytesMax) return Step::kFailed;
      text_ += static_cast<char>(unit);
      return Step::kMore;
    }
    case State::kBetween:
    case State::kBeforeValue:
      if (is_json_space(unit)) return Step::kMore;
      context_.sink->count(Oddity::kBrokenArgs);
      finish(false);
      return Step::kDoneBefore;
    case State::kKey:
      text_ += context_.format->text(unit);
      return Step::kMore;
    case State::kValue:
      value_text(context_.format->text(unit));
      return Step::kMore;
  }
  return Step::kFailed;
}

CallBody::Step TaggedBody::mark(const MarkScanner::Found& found) {
  if (found.mark == Mark::kName) {
    state_ = State::kName;
    return Step::kMore;
  }
  if (state_ == State::kBeforeName) return Step::kFailed;
  if (state_ == State::kName) {
    if (found.mark == Mark::kNameEnd && text_.empty() && found.units == Units(1, U'\n')) return Step::kMore;
    if (!is_end_mark(found.mark) || found.mark == Mark::kCallClose) {
      if (begin() == Step::kFailed) return Step::kFailed;
      if (found.mark == Mark::kNameEnd) return Step::kMore;
    } else {
      return Step::kFailed;
    }
  }
  switch (found.mark) {
    case Mark::kKey:
      state_ = State::kKey;
      text_.clear();
      return Step::kMore;
    case Mark::kKeyEnd:
      key_name_ = unquoted(text_);
      types_ = context_.sink->types_of(tool_, key_name_);
      if (format_.args.typed) {
        const bool is_string = text_.find("string=\"true\"") != std::string::npos;
        if (is_string) types_ = {ValueTypes::kString};
        if (!is_string && text_.find("string=\"false\"") != std::string::npos) types_ = {ValueTypes::kAll};
      }
      if (format_.args.value_before.empty())
        begin_value();
      else
        state_ = State::kBeforeValue;
      return Step::kMore;
    case Mark::kValue:
      begin_value();
      return Step::kMore;
    case Mark::kValueEnd:
      end_value();
      return Step::kMore;
    case Mark::kEnd:
      finish(true);
      return Step::kDone;
    default:
      break;
  }
  const bool is_whole = state_ == State::kBetween;
  if (!is_whole) context_.sink->count(Oddity::kBrokenArgs);
  if (is_whole && !format_.args.end.empty()) context_.sink->count(Oddity::kMissingClose);
  finish(is_whole);
  return step_at_end_mark(found.mark);
}

CallBody::Step TaggedBody::end(bool cut) {
  if (!has_begun_) return Step::kFailed;
  if (state_ == State::kValue && !cut) end_value();
  const bool is_whole = state_ == State::kBetween && !cut;
  if (is_whole) context_.sink->count(Oddity::kMissingClose);
  finish(is_whole);
  return Step::kDone;
}

}  // namespace

std::unique_ptr<CallBody> make_tagged_body(BodyContext context) {
  return std::make_unique<TaggedBody>(std::move(context));
}

}  // namespace llmrt
