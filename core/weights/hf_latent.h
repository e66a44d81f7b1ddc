// What a family with latent attention says in config.json beyond the others: sizes of latents and heads, how experts
// are chosen, the part that predicts further tokens.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/weights/canonical_metadata.h"
#include "core/weights/hf_config.h"
#include "core/weights/hf_reader.h"

namespace llmrt {

std::span<const std::string_view> hf_latent_keys();
// Behind the sizes that all families have, and the experts.
void read_hf_latent(const HfFamily& family, const std::string& prefix, HfReader& reader, CanonicalMetadata& metadata,
                    HfConfig* out);

}  // namespace llmrt
