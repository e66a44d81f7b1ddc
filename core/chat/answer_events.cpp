// How an answer's events are put together: runs of bytes of one kind, whole characters only.
#include <algorithm>

#include "core/base/utf8.h"
#include "core/chat/answer_parser.h"

namespace llmrt {
namespace {

// How many bytes at the end of a text are a character that is not complete.
size_t incomplete_tail(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(text.size(), 3); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const auto step = decode_utf8(text, text.size() - back);
    return step.state == Utf8State::kIncomplete && step.num_bytes == back ? back : 0;
  }
  return 0;
}

}  // namespace

void AnswerParser::emit(AnswerEvent::Kind kind, std::string_view bytes) {
  if (kind != run_kind_) close_run();
  run_kind_ = kind;
  run_ += bytes;
}

void AnswerParser::push_event(AnswerEvent event) {
  close_run();
  events_.push_back(std::move(event));
}

void AnswerParser::close_run() {
  if (run_.empty()) return;
  events_.push_back({.kind = run_kind_, .text = replace_invalid_utf8(run_), .index = num_calls_});
  run_.clear();
}

std::vector<AnswerEvent> AnswerParser::take_events() {
  const size_t tail = incomplete_tail(run_);
  std::string held = run_.substr(run_.size() - tail);
  run_.erase(run_.size() - tail);
  close_run();
  run_ = std::move(held);
  return std::exchange(events_, {});
}

void Answer::add(const std::vector<AnswerEvent>& events) {
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        content = content.value_or("") + event.text;
        break;
      case AnswerEvent::Kind::kThought:
        thought = thought.value_or("") + event.text;
        break;
      case AnswerEvent::Kind::kCallStart:
        calls.push_back({event.id, event.name, {}, false});
        break;
      case AnswerEvent::Kind::kArgs:
        calls.back().args += event.text;
        break;
      case AnswerEvent::Kind::kCallEnd:
        calls.back().is_complete = event.is_complete;
        break;
    }
  }
}

std::string_view oddity_name(Oddity oddity) {
  constexpr std::string_view kNames[kNumOddities] = {
      "missing_close", "missing_open", "extra_close",     "quoted_args",  "wrapper",      "repeated_key", "wrong_type",
      "broken_args",   "broken_call",  "undeclared_name", "dropped_call", "dropped_text", "broken_header"};
  return kNames[static_cast<size_t>(oddity)];
}

}  // namespace llmrt
