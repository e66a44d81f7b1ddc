#include "core/chat/prompt_state.h"

#include <algorithm>

namespace llmrt {
namespace {

// The part of a prompt behind the last mark of a list.
std::string_view behind_last(std::string_view prompt, const std::vector<std::string>& marks) {
  size_t from = 0;
  for (const std::string& mark : marks) {
    const size_t at = prompt.rfind(mark);
    if (at != prompt.npos) from = std::max(from, at + mark.size());
  }
  return prompt.substr(from);
}

AnswerStart header_start(const HeaderMarks& header, std::string_view tail) {
  const size_t start = tail.rfind(header.start), message = tail.rfind(header.message);
  if (message == tail.npos || (start != tail.npos && start > message)) return AnswerStart::kHeader;
  const std::string_view channel = tail.substr(0, message);
  const size_t named = channel.rfind(header.channel);
  const bool is_thought =
      named != channel.npos && channel.substr(named + header.channel.size()).starts_with("analysis");
  return is_thought ? AnswerStart::kThought : AnswerStart::kText;
}

}  // namespace

AnswerStart answer_start(const ChatFormat& format, std::string_view prompt_tail) {
  const std::string_view tail = behind_last(prompt_tail, format.turn.boundary);
  if (format.header.used()) return header_start(format.header, tail);
  if (format.thought.open.empty()) return AnswerStart::kText;
  const size_t open = tail.rfind(format.thought.open), close = tail.rfind(format.thought.close);
  if (open == tail.npos && close == tail.npos) {
    return format.thought.starts == ThoughtMarks::Starts::kOpen ? AnswerStart::kThought : AnswerStart::kText;
  }
  const bool is_open = close == tail.npos || (open != tail.npos && open > close);
  return is_open ? AnswerStart::kThought : AnswerStart::kAfterThought;
}

}  // namespace llmrt
