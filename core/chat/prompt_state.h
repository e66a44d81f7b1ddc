// Where an answer begins: the rendered prompt's end says whether a thought is open, not the model.
#pragma once

#include <string_view>

#include "core/chat/chat_format.h"

namespace llmrt {

enum class AnswerStart : uint8_t {
  kText,          // no thought was named since the last turn boundary: the model may open one
  kThought,       // the prompt opened it
  kAfterThought,  // the prompt opened and closed it
  kHeader,        // inside the header of a message (Harmony)
};

// `prompt_tail`: the rendered prompt's end, at least its last turn.
AnswerStart answer_start(const ChatFormat& format, std::string_view prompt_tail);
inline bool thought_is_open(const ChatFormat& format, std::string_view prompt_tail) {
  return answer_start(format, prompt_tail) == AnswerStart::kThought;
}

}  // namespace llmrt
