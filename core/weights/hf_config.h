// config.json of a Hugging Face folder as metadata under GGUF's keys. A key that is not known here, or says what these
// architectures do not compute, is refused by name. Defaults of absent keys are those of the transformers library.
#pragma once

#include <string>

#include "core/base/status.h"
#include "core/weights/canonical_metadata.h"
#include "core/weights/json_tree.h"

namespace llmrt {

// What the folder's other parts need to know.
struct HfConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3"
  uint64_t num_layers = 0, vocab_size = 0;
  bool is_tied = false;  // the head is the embedding
};

// Errors: corrupt_file, unsupported.
Result<HfConfig> read_hf_config(const JsonTree& config, CanonicalMetadata& metadata);

}  // namespace llmrt
