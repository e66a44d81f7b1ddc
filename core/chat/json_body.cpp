// Name, perhaps an id, then a JSON object, between marks. The name ends at its mark, or where the object begins.
#include <algorithm>

#include "core/chat/call_body.h"
#include "core/chat/json_text.h"

namespace llmrt {
namespace {

class JsonBody final : public CallBody {
 public:
  JsonBody(BodyContext context, std::string known_name)
      : context_(std::move(context)), format_(*context_.format->format), name_(std::move(known_name)) {
    const ResolvedFormat& resolved = *context_.format;
    name_marks_.add(resolved.units(format_.name_marks.before), Mark::kName);
    name_marks_.add(resolved.units(format_.call_id.from == CallIdMarks::From::kMark ? format_.call_id.mark : ""),
                    Mark::kId);
    name_marks_.add(resolved.units(format_.args.before), Mark::kArgs);
    name_marks_.add(resolved.units(format_.name_marks.after), Mark::kNameEnd);
    for (const auto& entry : context_.ends.entries()) name_marks_.add(entry.units, entry.mark, entry.index);
    // A name that is known has no marks around it.
    if (!name_.empty() && begin()) state_ = State::kArgs;
  }

  const LiveMarks& live() const override {
    if (state_ == State::kName || state_ == State::kId) return name_marks_;
    return state_ == State::kArgs && args_.in_string() ? none_ : context_.ends;
  }
  Step data(Unit unit) override;
  Step mark(const MarkScanner::Found& found) override;
  Step end(bool cut) override;

 private:
  enum class State : uint8_t { kName, kId, kArgs, kTail };
  static constexpr std::string_view kFence = "```json";

  bool begin();
  void send(std::string_view json) {
    if (!json.empty()) has_sent_ = true;
    if (!json.empty()) context_.sink->args(json);
  }
  Step name_unit(Unit unit);
  Step args_byte(char c);
  void finish(bool is_complete);

  BodyContext context_;
  const ChatFormat& format_;
  LiveMarks none_, name_marks_;
  State state_ = State::kName;
  std::string name_, id_;
  std::string lead_;  // of a fence
  bool has_begun_ = false, has_sent_ = false, has_name_mark_ = false;
  JsonArgs args_;
};

// The name as it is written: "functions.w:3" is w with its id.
bool JsonBody::begin() {
  if (has_begun_) return true;
  while (!name_.empty() && is_json_space(static_cast<uint8_t>(name_.back()))) name_.pop_back();
  std::string name = name_;
  if (format_.call_id.from == CallIdMarks::From::kName) {
    const size_t colon = name.rfind(':');
    const bool has_index = colon != std::string::npos && colon + 1 < name.size() &&
                           std::all_of(name.begin() + static_cast<ptrdiff_t>(colon) + 1, name.end(),
                                       [](char c) { return c >= '0' && c <= '9'; });
    if (has_index) id_ = name;
    if (has_index) name.resize(colon);
  }
  if (name.starts_with(format_.name_marks.strip_prefix)) name.erase(0, format_.name_marks.strip_prefix.size());
  if (name.empty() || !context_.sink->begin_call(name, id_)) return false;
  return has_begun_ = true;
}

CallBody::Step JsonBody::name_unit(Unit unit) {
  if (is_json_space(unit)) {
    if (!name_.empty()) name_ += static_cast<char>(unit);
    return Step::kMore;
  }
  if (unit == '{') {
    if (!begin()) return Step::kFailed;
    if (!format_.args.before.empty() || format_.name_marks.after != "\n") context_.sink->count(Oddity::kMissingOpen);
    state_ = State::kArgs;
    return args_byte('{');
  }
  const bool has_blank = !name_.empty() && is_json_space(static_cast<uint8_t>(name_.back()));
  if (!is_name_byte(unit) || has_blank || name_.size() >= kNameBytesMax) return Step::kFailed;
  name_ += static_cast<char>(unit);
  return Step::kMore;
}

CallBody::Step JsonBody::data(Unit unit) {
  switch (state_) {
    case State::kName:
      return name_unit(unit);
    case State::kId:
      if (unit == '{') return name_unit(unit);
      if (is_json_space(unit)) return Step::kMore;
      if (!is_name_byte(unit) || id_.size() >= kNameBytesMax) return Step::kFailed;
      id_ += static_cast<char>(unit);
      return Step::kMore;
    case State::kArgs: {
      if (!is_byte(unit) && !args_.in_string()) return Step::kMore;
      for (const char c : context_.format->text(unit)) {
        if (const Step step = args_byte(c); step != Step::kMore) return step;
      }
      return Step::kMore;
    }
    case State::kTail:  // of a fence
      if (unit == '`' || is_json_space(unit)) return Step::kMore;
      return Step::kDoneBefore;
  }
  return Step::kFailed;
}

CallBody::Step JsonBody::args_byte(char c) {
  if (!args_.has_begun() && format_.args.fenced && lead_.size() < kFence.size() && c == kFence[lead_.size()]) {
    lead_ += c;
    return Step::kMore;
  }
  const bool had_begun = args_.has_begun();
  std::string out;
  const auto step = args_.push(c, &out);
  if (!had_begun && args_.has_begun() && args_.was_quoted()) context_.sink->count(Oddity::kQuotedArgs);
  send(out);
  if (step == JsonArgs::Step::kMore) return Step::kMore;
  if (step == JsonArgs::Step::kDoneBefore) {
    context_.sink->count(Oddity::kBrokenArgs);
    finish(false);
    return Step::kDoneBefore;
  }
  finish(true);
  if (format_.args.fenced) {
    state_ = State::kTail;
    return Step::kMore;
  }
  return Step::kDone;
}

void JsonBody::finish(bool is_complete) {
  if (!has_begun_) return;
  if (is_complete && !has_sent_) context_.sink->args("{}");
  context_.sink->end_call(is_complete);
  has_begun_ = false;
}

CallBody::Step JsonBody::mark(const MarkScanner::Found& found) {
  if (state_ == State::kName && found.mark == Mark::kName) {
    if (has_name_mark_) return Step::kFailed;
    has_name_mark_ = true;
    name_.clear();
    return Step::kMore;
  }
  if (state_ == State::kName && found.mark == Mark::kNameEnd && name_.empty() && found.units == Units(1, U'\n')) {
    return Step::kMore;
  }
  if (state_ == State::kName && found.mark == Mark::kId) {
    if (name_.empty()) return Step::kFailed;
    state_ = State::kId;
    return Step::kMore;
  }
  if (found.mark == Mark::kNameEnd || found.mark == Mark::kArgs) {
    if (!begin()) return Step::kFailed;
    state_ = State::kArgs;
    return Step::kMore;
  }
  if (!is_end_mark(found.mark)) return Step::kFailed;
  if (state_ == State::kTail) return step_at_end_mark(found.mark);
  if (state_ == State::kName || state_ == State::kId) {
    // The close right behind a name: no arguments.
    if (found.mark != Mark::kCallClose || !begin()) return Step::kFailed;
    context_.sink->count(Oddity::kMissingOpen);
  }
  std::string out;
  if (state_ == State::kArgs) args_.end(&out);
  send(out);
  const bool is_whole = !args_.is_object() && !args_.was_quoted();
  if (!is_whole) context_.sink->count(Oddity::kBrokenArgs);
  finish(is_whole);
  return step_at_end_mark(found.mark);
}

CallBody::Step JsonBody::end(bool cut) {
  if (state_ == State::kTail) {
    context_.sink->count(Oddity::kMissingClose);
    return Step::kDone;
  }
  if (!has_begun_) return Step::kFailed;
  std::string out;
  if (state_ == State::kArgs && !cut) args_.end(&out);
  send(out);
  // Nothing behind the name: whether arguments were meant is not known.
  finish(false);
  return Step::kDone;
}

}  // namespace

std::unique_ptr<CallBody> make_json_body(BodyContext context, std::string known_name) {
  return std::make_unique<JsonBody>(std::move(context), std::move(known_name));
}

}  // namespace llmrt
