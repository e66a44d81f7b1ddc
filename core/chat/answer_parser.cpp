#include "core/chat/answer_parser.h"

#include "core/chat/json_text.h"

namespace llmrt {

using Found = MarkScanner::Found;
using EventKind = AnswerEvent::Kind;

AnswerParser::AnswerParser(const ResolvedFormat& format, AnswerOptions options)
    : resolved_(format), format_(*format.format), options_(std::move(options)) {
  make_live_marks();
  switch (options_.start) {
    case AnswerStart::kThought:
      state_ = State::kThought;
      break;
    case AnswerStart::kAfterThought:
      after_thought_ = true;
      break;
    case AnswerStart::kHeader:
      state_ = State::kHeader;
      break;
    case AnswerStart::kText:
      break;
  }
}

const LiveMarks& AnswerParser::live() const {
  switch (state_) {
    case State::kText:
      return text_live_[place_.segment_start][place_.line_start];
    case State::kThought:
      return thought_live_[thought_is_empty_];
    case State::kHeader:
      return header_live_;
    case State::kSection:
      return section_live_;
    case State::kBody:
      return body_->live();
    case State::kAfterBody:
      return body_ends_;
    case State::kBroken:
      return broken_live_;
    case State::kDropped:
      return format_.header.used() ? body_ends_ : text_live_[0][0];
    case State::kBodyStart:
    case State::kSeparator:
      break;
  }
  return none_;
}

bool AnswerParser::in_thought() const {
  if (state_ == State::kThought) return true;
  const bool is_undecided = state_ == State::kBodyStart || state_ == State::kBody || state_ == State::kSection;
  return is_undecided && outer_ == State::kThought && !call_is_open_ && num_calls_ == 0;
}

std::vector<AnswerEvent> AnswerParser::feed(int32_t token, std::string_view bytes, bool is_special) {
  const bool was_thought = in_thought();
  const auto it = resolved_.unit_of.find(token);
  if (it != resolved_.unit_of.end()) {
    source_.append(it->second);
    run();
  } else if (!is_special) {
    for (const char c : bytes) {
      source_.append(static_cast<uint8_t>(c));
      run();
    }
  }
  if (token >= 0) {
    const bool is_thought = was_thought || in_thought();
    if (is_thought)
      ++num_thought_tokens_;
    else if (state_ == State::kHeader)
      ++num_header_tokens_;
  }
  return take_events();
}

std::vector<AnswerEvent> AnswerParser::finish(End end) {
  drain(end == End::kLimit);
  end_turn(end == End::kLimit);
  close_run();
  return take_events();
}

void AnswerParser::run() {
  while (!source_.empty()) {
    const Unit unit = source_.next();
    if (resolved_.is_stop(unit)) {
      stop_unit(unit);
    } else {
      handle(scanner_.push(unit, live(), &source_));
    }
  }
}

// A token that ends the answer ends whatever is open; it may be the mark that closes it (Harmony's calls).
void AnswerParser::stop_unit(Unit unit) {
  drain(false);
  const Found found = scanner_.push(unit, live(), &source_);
  if (found.kind == Found::Kind::kMark) return handle(found);
  source_.put_back(Units(1, unit));  // out of the record
  source_.next_unrecorded();
  end_turn(false);
}

// Nothing follows what is held back: it is data. In the markup of a call that was begun it is the begin of a mark that
// is missing; so it is in an argument if the answer was cut: where that ends is not known.
void AnswerParser::drain(bool is_cut) {
  while (scanner_.holds()) {
    const bool is_body = state_ == State::kBody && call_is_open_ && (is_cut || !body_->in_text());
    const bool is_markup = is_body || state_ == State::kAfterBody || (state_ == State::kSection && section_calls_ > 0);
    if (is_markup) return scanner_.clear();
    handle(scanner_.release(&source_));
    run();
  }
}

void AnswerParser::handle(const Found& found) {
  if (found.kind == Found::Kind::kData) on_data(found.data);
  if (found.kind == Found::Kind::kMark) on_mark(found);
}

void AnswerParser::on_data(Unit unit) {
  switch (state_) {
    case State::kText:
      return text_data(unit);
    case State::kThought:
      if (is_byte(unit)) plain_text(std::string(1, static_cast<char>(unit)));
      return;
    case State::kHeader:
      return header_data(unit);
    case State::kSection:
      return section_data(unit);
    case State::kBodyStart:
    case State::kBody:
      return body_data(unit);
    case State::kAfterBody: {
      if (is_json_space(unit)) return;
      if (unit == '}' || unit == ']' || unit == ')') return count(Oddity::kExtraClose);
      if (!is_bare_) count(Oddity::kMissingClose);
      source_.put_back(Units(1, unit));
      return call_done();
    }
    case State::kBroken:
      if (is_byte(unit) || !resolved_.token(unit).is_thought) plain_text(resolved_.text(unit));
      return;
    case State::kSeparator:
      return separator_data(unit);
    case State::kDropped:
      return dropped_data(unit);
  }
}

void AnswerParser::on_mark(const Found& found) {
  if (found.mark == Mark::kStop) return end_turn(false);
  switch (state_) {
    case State::kText:
    case State::kThought:
    case State::kDropped:
      return text_mark(found);
    case State::kHeader:
      return header_mark(found);
    case State::kSection:
      if (found.mark == Mark::kCallOpen) return open_call(found);
      if (found.mark == Mark::kHidden) return count(Oddity::kExtraClose);
      if (section_calls_ == 0) {
        fail_call();
        state_ = outer_;  // its close was part of what was read
        return;
      }
      in_section_ = false;
      return calls_done();
    case State::kBody:
      return body_step(body_->mark(found), found.units);
    case State::kAfterBody:
      if (found.mark == Mark::kCallClose) return call_done();
      if (!is_bare_ && !format_.calls.close.empty()) count(Oddity::kMissingClose);
      source_.put_back(found.units);
      return call_done();
    case State::kBroken:
      if (found.mark == Mark::kCallClose) {
        plain_text(resolved_.text(found.units));
        state_ = outer_;
        return;
      }
      return text_mark(found);
    case State::kBodyStart:
    case State::kSeparator:
      return;
  }
}

void AnswerParser::text_data(Unit unit) {
  if (!is_byte(unit)) return;  // tokens of the format are no content
  if (begins_bare_call(unit)) {
    source_.start_record(resolved_.units(blanks_) + unit);
    drop_blanks();
    outer_ = State::kText;
    only_declared_ = true;
    state_ = State::kBodyStart;
    is_bare_ = true;
    return body_data(unit);
  }
  if (after_call_ && !format_.calls.between.empty() && format_.calls.bare &&
      unit == static_cast<Unit>(format_.calls.between[0])) {
    source_.start_record(resolved_.units(blanks_) + unit);
    drop_blanks();
    state_ = State::kSeparator;
    return;
  }
  if (drops_echo_ && place_.segment_start && unit == '[') {
    state_ = State::kDropped;
    count(Oddity::kDroppedText);
    echo_depth_ = 0;
    drop_blanks();
    return dropped_data(unit);
  }
  plain_text(std::string(1, static_cast<char>(unit)));
}

// The echo of a call ends with its bracket; a message without a known recipient ends with the message.
void AnswerParser::dropped_data(Unit unit) {
  if (!drops_echo_) return;
  if (unit == '[') ++echo_depth_;
  if (unit == ']' && --echo_depth_ == 0) state_ = State::kText;
}

void AnswerParser::text_mark(const Found& found) {
  switch (found.mark) {
    case Mark::kSectionOpen:
    case Mark::kCallOpen:
      return open_call(found);
    case Mark::kThoughtOpen:
      if (state_ == State::kText) open_thought();
      return;
    case Mark::kThoughtClose:
      if (state_ == State::kThought || outer_ == State::kThought) return close_thought();
      if (!resolved_.has_token(format_.thought.close)) plain_text(format_.thought.close);
      return;
    case Mark::kHidden:
      count(Oddity::kExtraClose);
      after_thought_ |= found.units == resolved_.units(format_.thought.close);
      if (place_.segment_start) drop_blanks();
      return;
    case Mark::kMessageEnd:
    case Mark::kCallClose:
    case Mark::kHeaderStart:
      flush_blanks();
      return begin_header(found.mark == Mark::kHeaderStart);
    case Mark::kChannel:
      flush_blanks();
      begin_header(true);
      header_ += kChannelByte;
      return;
    default:
      return;
  }
}

void AnswerParser::open_thought() {
  drop_blanks();
  state_ = State::kThought;
  thought_is_empty_ = true;
}

void AnswerParser::close_thought() {
  drop_blanks();
  state_ = outer_ = State::kText;
  place_ = {};
  thought_is_empty_ = true;
  after_thought_ = true;
  after_call_ = false;
}

void AnswerParser::plain_text(std::string_view text) {
  const bool is_thought = state_ == State::kThought || (state_ == State::kBroken && outer_ == State::kThought);
  const bool keeps_blanks = format_.header.used();
  for (const char c : text) {
    if (c == '\n')
      place_.line_start = true;
    else if (c != ' ' && c != '\t')
      place_.line_start = false;
    if (is_json_space(static_cast<uint8_t>(c)) && !keeps_blanks) {
      const bool is_markup = is_thought ? thought_is_empty_ : place_.segment_start && after_thought_ && !after_call_;
      if (!is_markup) blanks_ += c;
      continue;
    }
    if (is_thought) {
      if (thought_is_empty_ && has_thought_) emit(EventKind::kThought, "\n\n");
      thought_is_empty_ = false;
      has_thought_ = true;
    } else {
      if (place_.segment_start && after_call_ && !has_content_) drop_blanks();
    }
    if (!is_thought && breaks_content_) emit(EventKind::kText, "\n\n");
    if (!is_thought) breaks_content_ = false;
    flush_blanks();
    emit(is_thought ? EventKind::kThought : EventKind::kText, std::string_view(&c, 1));
    if (is_thought) continue;
    has_content_ = true;
    place_.segment_start = answer_start_ = after_call_ = after_thought_ = drops_echo_ = false;
  }
}

void AnswerParser::flush_blanks() {
  const bool is_thought = state_ == State::kThought || (state_ == State::kBroken && outer_ == State::kThought);
  if (!blanks_.empty()) emit(is_thought ? EventKind::kThought : EventKind::kText, blanks_);
  blanks_.clear();
}

void AnswerParser::end_turn(bool is_cut) {
  switch (state_) {
    case State::kText:
      if (place_.segment_start && (num_calls_ > 0 || after_thought_)) drop_blanks();
      break;
    case State::kBody: {
      const auto step = body_->end(is_cut);
      if (step == CallBody::Step::kFailed) fail_call();
      break;
    }
    case State::kBodyStart:
    case State::kSeparator:
      fail_call();
      break;
    case State::kAfterBody:
      if (!is_bare_ && !format_.header.used()) count(Oddity::kMissingClose);
      break;
    case State::kSection:
      if (section_calls_ == 0)
        fail_call();
      else
        count(Oddity::kMissingClose);
      break;
    case State::kHeader:
      end_header();
      break;
    case State::kThought:
    case State::kBroken:
    case State::kDropped:
      break;
  }
  flush_blanks();
  body_.reset();
  source_.end_record();
  in_section_ = false;
  if (format_.header.used()) return begin_header(false);
  state_ = outer_ = State::kText;
  place_ = {};
}

}  // namespace llmrt
