// A vocabulary that says nothing, for synthetic files: engines refuse a file without one.
#pragma once

#include <cstdint>

#include "core/weights/gguf_writer.h"

namespace llmrt {

// Byte-level BPE with pre-tokenizer gpt-2: the 256 bytes, one merge, fillers, and a control token at the end that is
// bos and eos. vocab_size is at least 258.
void add_placeholder_vocabulary(uint32_t vocab_size, GgufWriter* writer);

}  // namespace llmrt
