// Calls inside an answer: where they begin, which body reads them, and what becomes of them when they end or fail.
#include <boost/json.hpp>

#include <algorithm>

#include "core/chat/answer_parser.h"
#include "core/chat/json_text.h"

namespace llmrt {

using Found = MarkScanner::Found;
using EventKind = AnswerEvent::Kind;

bool AnswerParser::begins_bare_call(Unit unit) const {
  if (!format_.calls.bare || !options_.reads_calls || !answer_start_ || num_calls_ > 0) return false;
  const bool takes_objects = format_.args.kind == ArgsMarks::Kind::kJsonInObject;
  return (unit == '{' && takes_objects) || (unit == '[' && (!takes_objects || format_.lenient.pythonic));
}

void AnswerParser::open_call(const Found& found) {
  if (state_ != State::kSection) {
    outer_ = state_ == State::kThought || (state_ == State::kBroken && outer_ == State::kThought) ? State::kThought
                                                                                                  : State::kText;
    source_.start_record(resolved_.units(blanks_) + found.units);
    drop_blanks();
    in_section_ = found.mark == Mark::kSectionOpen;
    section_calls_ = 0;
    if (in_section_) {
      state_ = State::kSection;
      return;
    }
    if (!format_.calls.section_open.empty()) count(Oddity::kMissingOpen);
  }
  const CallOpening& opening = format_.calls.open[found.index];
  if (opening.has_name_mark) count(Oddity::kMissingOpen);
  has_name_mark_ = opening.has_name_mark;
  only_declared_ = opening.only_declared;
  is_bare_ = false;
  state_ = State::kBodyStart;
  if (format_.args.kind != ArgsMarks::Kind::kJsonInObject) start_body(false, {});
}

void AnswerParser::start_body(bool is_bare, std::string known_name) {
  BodyContext context{
      .format = &resolved_, .sink = this, .ends = body_ends_, .is_bare = is_bare, .has_name_mark = has_name_mark_};
  switch (format_.args.kind) {
    case ArgsMarks::Kind::kJsonInObject:
      body_ = make_object_body(std::move(context));
      break;
    case ArgsMarks::Kind::kTagged:
      body_ = make_tagged_body(std::move(context));
      break;
    case ArgsMarks::Kind::kPythonic:
      body_ = make_pythonic_body(std::move(context));
      break;
    case ArgsMarks::Kind::kGemma:
      body_ = make_gemma_body(std::move(context));
      break;
    case ArgsMarks::Kind::kJson:
    case ArgsMarks::Kind::kNone:
      body_ = make_json_body(std::move(context), std::move(known_name));
      break;
  }
  state_ = State::kBody;
}

void AnswerParser::body_data(Unit unit) {
  if (state_ == State::kBodyStart) {
    if (is_json_space(unit)) return;
    const bool is_object = unit == '{' || (unit == '[' && format_.calls.list);
    if (!is_object && format_.lenient.pythonic) {
      body_ = make_pythonic_body({.format = &resolved_, .sink = this, .ends = body_ends_, .is_bare = is_bare_});
      state_ = State::kBody;
    } else {
      start_body(is_bare_, {});
    }
  }
  if (state_ == State::kBody) body_step(body_->data(unit), Units(1, unit));
}

void AnswerParser::body_step(CallBody::Step step, const Units& units) {
  switch (step) {
    case CallBody::Step::kMore:
      return;
    case CallBody::Step::kDone:
      state_ = State::kAfterBody;
      if (format_.calls.close.empty() && !format_.header.used()) call_done();
      return;
    case CallBody::Step::kDoneBefore:
      source_.put_back(units);
      state_ = State::kAfterBody;
      if (format_.calls.close.empty() && !format_.header.used()) call_done();
      return;
    case CallBody::Step::kClosed:
      return call_done();
    case CallBody::Step::kFailed:
      source_.put_back(units);
      return fail_call();
  }
}

void AnswerParser::section_data(Unit unit) {
  if (is_json_space(unit)) return;
  source_.put_back(Units(1, unit));
  if (section_calls_ == 0) return fail_call();
  count(Oddity::kMissingClose);
  in_section_ = false;
  calls_done();
}

void AnswerParser::separator_data(Unit unit) {
  if (is_json_space(unit)) return;
  if (unit == '{') {
    only_declared_ = is_bare_ = true;
    state_ = State::kBodyStart;
    return body_data(unit);
  }
  source_.put_back(Units(1, unit));
  fail_call();
}

// The call's end marks were read, or are missing.
void AnswerParser::call_done() {
  body_.reset();
  outer_ = State::kText;
  if (in_section_) {
    source_.start_record({});
    state_ = State::kSection;
    return;
  }
  calls_done();
}

void AnswerParser::calls_done() {
  source_.end_record();
  outer_ = State::kText;
  if (format_.header.used()) return begin_header(false);
  state_ = State::kText;
  place_ = {};
  after_call_ = true;
  answer_start_ = false;
  drops_echo_ = format_.calls.after == CallMarks::After::kDropEcho;
}

// What was read since the mark is no call: it goes where the mark stood.
void AnswerParser::fail_call() {
  const bool is_marked = !is_bare_ && state_ != State::kSeparator;
  if (is_marked) count(Oddity::kBrokenCall);  // without a mark it was text from the first
  body_.reset();
  const std::string text = resolved_.text(source_.end_record());
  state_ = outer_;
  in_section_ = false;
  plain_text(text);
  if (is_marked && !format_.calls.close.empty()) state_ = State::kBroken;
}

bool AnswerParser::begin_call(std::string_view name, std::string_view id) {
  const bool is_known = is_declared(name);
  if (!is_known && only_declared_) return false;
  if (!is_known) count(Oddity::kUndeclaredName);
  source_.end_record();
  answer_start_ = breaks_content_ = false;
  ++section_calls_;
  call_is_open_ = true;
  call_is_muted_ = num_calls_ >= options_.calls_max;
  call_args_.clear();
  if (call_is_muted_) {
    count(Oddity::kDroppedCall);
    return true;
  }
  AnswerEvent event{
      .kind = EventKind::kCallStart, .index = num_calls_, .id = std::string(id), .name = std::string(name)};
  if (event.id.empty()) {
    event.id = options_.make_id ? options_.make_id(num_calls_) : "call_" + std::to_string(num_calls_);
  }
  push_event(std::move(event));
  return true;
}

void AnswerParser::args(std::string_view json) {
  if (call_is_muted_) return;
  call_args_ += json;
  emit(EventKind::kArgs, json);
}

void AnswerParser::end_call(bool is_complete) {
  source_.start_record({});
  call_is_open_ = false;
  if (call_is_muted_) return;
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(call_args_, error, {}, {.max_depth = 256});
  const bool is_json = !error && value.is_object();
  if (is_complete && !is_json) count(Oddity::kBrokenArgs);
  push_event({.kind = EventKind::kCallEnd, .index = num_calls_, .is_complete = is_complete});
  has_complete_call_ |= is_complete && is_json;
  ++num_calls_;
}

bool AnswerParser::is_declared(std::string_view name) const {
  return std::ranges::any_of(options_.tools, [&](const ToolTypes& tool) { return tool.name == name; });
}

ValueTypes AnswerParser::types_of(std::string_view tool, std::string_view parameter) const {
  const auto it = std::ranges::find_if(options_.tools, [&](const ToolTypes& types) { return types.name == tool; });
  return it == options_.tools.end() ? ValueTypes{ValueTypes::kAll} : it->of(parameter);
}

}  // namespace llmrt
