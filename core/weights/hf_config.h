// config.json of a Hugging Face folder as metadata under GGUF's keys. A key that is not known here, or says what these
// families do not compute, is refused by name. Defaults of absent keys are those of the transformers library.
#pragma once

#include <string>

#include "core/base/status.h"
#include "core/weights/canonical_metadata.h"
#include "core/weights/hf_families.h"
#include "core/weights/hf_quantization.h"
#include "core/weights/json_tree.h"

namespace llmrt {

// What the folder's other parts need to know.
struct HfConfig {
  const HfFamily* family = nullptr;
  uint64_t num_layers = 0, vocab_size = 0, width = 0;
  uint64_t num_later = 0;                      // layers behind those, which draft tokens
  uint64_t num_experts = 0, expert_width = 0;  // 0: none
  uint64_t scan_groups = 1;                    // that a scan's norm takes each alone
  bool is_tied = false;                        // the head is the embedding
  HfQuantization quantization;
};

// `quantization`: hf_quant_config.json, or null. Errors: corrupt_file, unsupported.
Result<HfConfig> read_hf_config(const JsonTree& config, const JsonTree* quantization, CanonicalMetadata& metadata);

}  // namespace llmrt
