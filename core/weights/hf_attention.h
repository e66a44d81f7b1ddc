// What config.json says of RoPE and of windows, as metadata under GGUF's keys. `prefix`: "llama." and the like.
#pragma once

#include <string>

#include "core/weights/canonical_metadata.h"
#include "core/weights/hf_families.h"
#include "core/weights/hf_reader.h"

namespace llmrt {

void read_hf_rope(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata);
void read_hf_windows(const HfFamily& family, const std::string& prefix, uint64_t num_layers, HfReader& reader,
                     CanonicalMetadata& metadata);

}  // namespace llmrt
