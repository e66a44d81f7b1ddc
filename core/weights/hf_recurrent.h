// What config.json says of layers without attention, and of what families with such call otherwise, as metadata under
// GGUF's keys. `prefix`: "lfm2." and the like. To be read before the rest: a key that is there already stays.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/weights/canonical_metadata.h"
#include "core/weights/hf_families.h"
#include "core/weights/hf_reader.h"

namespace llmrt {

// As many layers as config.json says, in whichever way the family has.
uint64_t read_hf_num_layers(const HfFamily& family, HfReader& reader);
// Whether some layer has experts, where layers are one part alone.
bool has_hf_expert_layers(const HfFamily& family, HfReader& reader);
// Names that the families of this kind have beside those of all.
std::span<const std::string_view> hf_recurrent_keys(HfRecurrent kind);
void read_hf_recurrent(const HfFamily& family, const std::string& prefix, HfReader& reader,
                       CanonicalMetadata& metadata);

}  // namespace llmrt
