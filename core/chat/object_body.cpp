// {"name": N, "arguments": {...}}, or a list of such objects in brackets. Keys in any order: what comes before the name
// is kept until it is known.
#include <algorithm>

#include "core/chat/call_body.h"
#include "core/chat/json_text.h"

namespace llmrt {
namespace {

class ObjectBody final : public CallBody {
 public:
  explicit ObjectBody(BodyContext context)
      : context_(std::move(context)), format_(*context_.format->format), is_list_(format_.calls.list) {}

  const LiveMarks& live() const override { return in_string() ? none_ : context_.ends; }
  Step data(Unit unit) override;
  Step mark(const MarkScanner::Found& found) override;
  Step end(bool cut) override;

 private:
  enum class State : uint8_t { kStart, kKeyStart, kKey, kColon, kValueStart, kString, kArgs, kSkip, kAfter, kBetween };
  bool in_string() const {
    return state_ == State::kKey || state_ == State::kString || (state_ == State::kArgs && args_.in_string()) ||
           (state_ == State::kSkip && skip_.in_string());
  }
  Step byte(char c);
  Step start(char c);
  Step key_start(char c);
  Step value_start(char c);
  Step string_byte(char c);
  Step args_byte(char c);
  Step after(char c);
  Step string_ended();
  Step object_ended();
  // Begins the call once all that its head needs is known. False: it is none.
  bool try_begin(bool is_object_whole);
  bool is_args_key() const { return std::ranges::count(format_.args.keys, key_) > 0; }
  void send(std::string* text);
  void finish_call(bool is_complete);
  Step fail();

  BodyContext context_;
  const ChatFormat& format_;
  bool is_list_;
  LiveMarks none_;
  State state_ = State::kStart;
  uint32_t depth_ = 0;  // of wrappers
  std::string key_, text_, name_, id_;
  std::string held_args_;
  bool has_calls_ = false, has_id_ = false, has_begun_ = false, has_args_ = false, args_whole_ = false;
  Unescaper unescaper_;
  JsonArgs args_, skip_;
};

CallBody::Step ObjectBody::data(Unit unit) {
  const bool takes_text = in_string() && !is_byte(unit);
  if (!takes_text && !is_byte(unit)) return fail();
  if (is_byte(unit)) return byte(static_cast<char>(unit));
  for (const char c : context_.format->text(unit)) {
    if (const Step step = byte(c); step != Step::kMore) return step;
  }
  return Step::kMore;
}

// Before the head the text is no call; behind it the call ends as it is, and the rest is text.
CallBody::Step ObjectBody::fail() {
  if (!has_begun_) return Step::kFailed;
  context_.sink->count(Oddity::kBrokenArgs);
  finish_call(args_whole_);
  return Step::kDoneBefore;
}

CallBody::Step ObjectBody::byte(char c) {
  switch (state_) {
    case State::kStart:
      return start(c);
    case State::kKeyStart:
      return key_start(c);
    case State::kKey:
    case State::kString:
      return string_byte(c);
    case State::kColon:
      if (is_json_space(static_cast<uint8_t>(c))) return Step::kMore;
      if (c != ':') return fail();
      state_ = State::kValueStart;
      return Step::kMore;
    case State::kValueStart:
      return value_start(c);
    case State::kArgs:
      return args_byte(c);
    case State::kSkip: {
      std::string ignored;
      const auto step = skip_.push(c, &ignored);
      if (step == JsonArgs::Step::kMore) return Step::kMore;
      state_ = State::kAfter;
      return step == JsonArgs::Step::kDone ? Step::kMore : after(c);
    }
    case State::kAfter:
      return after(c);
    case State::kBetween:
      if (is_json_space(static_cast<uint8_t>(c))) return Step::kMore;
      if (c == ']') return Step::kDone;
      if (c != ',') return Step::kFailed;
      state_ = State::kStart;
      return Step::kMore;
  }
  return Step::kFailed;
}

CallBody::Step ObjectBody::start(char c) {
  if (is_json_space(static_cast<uint8_t>(c))) return Step::kMore;
  if (is_list_ && c == '[' && key_.empty() && name_.empty() && !has_begun_ && depth_ == 0) {
    depth_ = 1;  // of the list, until its first object
    return Step::kMore;
  }
  if (is_list_ && c == ']' && has_calls_) return Step::kDone;  // behind a trailing comma
  if (c != '{') return Step::kFailed;
  if (depth_ == 0) is_list_ = false;  // one call may stand without the list's brackets
  state_ = State::kKeyStart;
  key_.clear(), name_.clear(), id_.clear(), held_args_.clear();
  has_id_ = has_begun_ = has_args_ = args_whole_ = false;
  return Step::kMore;
}

CallBody::Step ObjectBody::key_start(char c) {
  if (is_json_space(static_cast<uint8_t>(c))) return Step::kMore;
  if (c == '}') return object_ended();
  if (c != '"') return fail();
  state_ = State::kKey;
  text_.clear();
  unescaper_ = Unescaper();
  return Step::kMore;
}

CallBody::Step ObjectBody::value_start(char c) {
  if (is_json_space(static_cast<uint8_t>(c))) return Step::kMore;
  const bool is_id = format_.call_id.from == CallIdMarks::From::kKey && key_ == format_.call_id.mark;
  const bool is_type = key_ == "type" && context_.is_bare;
  if (key_ == "name" || is_id || is_type) {
    if (c != '"') return fail();
    state_ = State::kString;
    text_.clear();
    unescaper_ = Unescaper();
    return Step::kMore;
  }
  if (key_ == "function" && c == '{' && format_.lenient.wrapper_object && name_.empty()) {
    context_.sink->count(Oddity::kWrapper);
    depth_ += 2;
    state_ = State::kKeyStart;
    return Step::kMore;
  }
  if (is_args_key() && !has_args_) {
    has_args_ = true;
    args_ = {};
    state_ = State::kArgs;
    return args_byte(c);
  }
  if (is_args_key()) context_.sink->count(Oddity::kRepeatedKey);
  state_ = State::kSkip;
  skip_ = {};
  std::string ignored;
  const auto step = skip_.push(c, &ignored);
  return step == JsonArgs::Step::kDoneBefore ? fail() : Step::kMore;
}

CallBody::Step ObjectBody::string_byte(char c) {
  if (c == '"' && !unescaper_.in_escape()) {
    unescaper_.end(&text_);
    return string_ended();
  }
  unescaper_.push(c, &text_);
  return Step::kMore;
}

CallBody::Step ObjectBody::string_ended() {
  if (state_ == State::kKey) {
    key_ = text_;
    state_ = State::kColon;
    // An object without an opening that is no call must not wait for its end.
    const bool is_known = key_ == "name" || key_ == "type" || key_ == "function" || is_args_key();
    return context_.is_bare && !has_begun_ && !is_known ? Step::kFailed : Step::kMore;
  }
  state_ = State::kAfter;
  if (key_ == "name") {
    if (text_.empty()) return fail();
    if (context_.is_bare && !context_.sink->is_declared(text_)) return fail();
    if (name_.empty()) name_ = text_;
  } else if (key_ == "type") {
    if (text_ != "function") return fail();
  } else if (!has_id_) {
    id_ = text_;
    has_id_ = true;
  }
  return try_begin(false) ? Step::kMore : Step::kFailed;
}

CallBody::Step ObjectBody::args_byte(char c) {
  std::string out;
  const bool had_begun = args_.has_begun();
  const auto step = args_.push(c, &out);
  if (!had_begun && args_.has_begun() && args_.was_quoted()) context_.sink->count(Oddity::kQuotedArgs);
  send(&out);
  if (!try_begin(false)) return Step::kFailed;
  if (step == JsonArgs::Step::kMore) return Step::kMore;
  args_whole_ = true;
  state_ = State::kAfter;
  return step == JsonArgs::Step::kDone ? Step::kMore : after(c);
}

CallBody::Step ObjectBody::after(char c) {
  if (is_json_space(static_cast<uint8_t>(c))) return Step::kMore;
  if (c == ',') {
    state_ = State::kKeyStart;
    return Step::kMore;
  }
  return c == '}' ? object_ended() : fail();
}

CallBody::Step ObjectBody::object_ended() {
  if (depth_ >= 2) {
    depth_ -= 2;
    state_ = State::kAfter;
    return Step::kMore;
  }
  if (name_.empty() || !try_begin(true)) return Step::kFailed;
  finish_call(true);
  state_ = State::kBetween;
  return is_list_ ? Step::kMore : Step::kDone;
}

bool ObjectBody::try_begin(bool is_object_whole) {
  if (has_begun_ || name_.empty()) return true;
  const bool waits_for_id = format_.call_id.from == CallIdMarks::From::kKey && !has_id_;
  const bool waits_for_args = context_.is_bare && !(has_args_ && args_.is_object());
  if (is_object_whole ? waits_for_args : (waits_for_id || waits_for_args)) return !is_object_whole;
  if (!context_.sink->begin_call(name_, id_)) return false;
  has_begun_ = true;
  send(&held_args_);
  return true;
}

void ObjectBody::send(std::string* text) {
  if (text->empty()) return;
  if (has_begun_) {
    context_.sink->args(*text);
    text->clear();
  } else if (text != &held_args_) {
    held_args_ += *text;
  }
}

void ObjectBody::finish_call(bool is_complete) {
  if (is_complete && !has_args_) context_.sink->args("{}");
  context_.sink->end_call(is_complete);
  has_begun_ = false;
  has_calls_ = true;
  name_.clear();
}

CallBody::Step ObjectBody::mark(const MarkScanner::Found& found) {
  if (state_ == State::kBetween && is_list_) {
    context_.sink->count(Oddity::kMissingClose);
    return step_at_end_mark(found.mark);
  }
  if (!has_begun_) return Step::kFailed;
  context_.sink->count(args_whole_ ? Oddity::kMissingClose : Oddity::kBrokenArgs);
  finish_call(args_whole_);
  return step_at_end_mark(found.mark);
}

CallBody::Step ObjectBody::end(bool cut) {
  if (state_ == State::kBetween) {
    context_.sink->count(Oddity::kMissingClose);
    return Step::kDone;
  }
  const bool is_whole = !cut && state_ == State::kAfter && (args_whole_ || !has_args_);
  if (is_whole && !try_begin(true)) return Step::kFailed;
  if (!has_begun_ && has_args_ && !name_.empty() && !context_.is_bare) {
    // Only the id was missing.
    if (!context_.sink->begin_call(name_, id_)) return Step::kFailed;
    has_begun_ = true;
    send(&held_args_);
  }
  if (!has_begun_) return Step::kFailed;
  if (is_whole) context_.sink->count(Oddity::kMissingClose);
  finish_call(is_whole || args_whole_);
  return Step::kDone;
}

}  // namespace

std::unique_ptr<CallBody> make_object_body(BodyContext context) {
  return std::make_unique<ObjectBody>(std::move(context));
}

}  // namespace llmrt
