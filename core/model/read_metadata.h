// A file's metadata as configuration and vocabulary: every value checked, nothing believed. What the decoder does not
// do is refused by name.
#pragma once

#include <optional>

#include "core/base/status.h"
#include "core/model/architectures.h"
#include "core/model/model_config.h"
#include "core/text/tokenizer.h"
#include "core/weights/metadata.h"

namespace llmrt {

// Unsupported for a part of a split model, an adapter, an importance matrix, a projector, a vocabulary alone.
Status expect_whole_model(const Metadata& metadata);

// The architecture that general.architecture names; unsupported if it has no row.
Result<const Architecture*> read_architecture(const Metadata& metadata);

// Everything but vocab_size and the RoPE frequencies (rope_frequencies.h).
Result<ModelConfig> read_config(const Architecture& architecture, const Metadata& metadata);

// The tokenizer.* keys; nothing when the file has no tokenizer (token ids only). As many tokens as vocab_size.
Result<std::optional<Vocabulary>> read_vocabulary(const Metadata& metadata, uint32_t vocab_size);

}  // namespace llmrt
