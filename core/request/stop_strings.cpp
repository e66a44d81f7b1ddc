#include "core/request/stop_strings.h"

namespace llmrt {

size_t StopStrings::held_bytes() const {
  if (!texts_) return 0;
  size_t num_bytes = 0;
  for (const std::string& string : texts_->strings) num_bytes += string.capacity();
  return sizeof(Texts) + texts_->strings.capacity() * sizeof(std::string) + num_bytes +
         StringAutomaton::held_bytes(num_bytes);
}

}  // namespace llmrt
