// What one rendering of a chat template may cost. Template and context are hostile input alike: each kind of work has
// its own end, and the error names it.
#pragma once

#include <chrono>
#include <cstddef>

namespace llmrt {

struct RenderLimits {
  size_t steps = 1'000'000;             // operations; those on long operands count as several
  size_t text_bytes = 16 << 20;         // of the output, and of any string on the way
  size_t held_bytes = 64 << 20;         // of all values at one time
  size_t entries = 250'000;             // of one list or dict, and of the whole context
  size_t client_entries = 10'000;       // of the context but for messages, tools and documents: chat_template_kwargs
  int client_nesting = 16;              // of lists and dicts in the same
  std::chrono::milliseconds cpu{2000};  // of the rendering thread
};

}  // namespace llmrt
