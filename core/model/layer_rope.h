// RoPE frequencies of the layers of a model.
#pragma once

#include "core/base/status.h"
#include "core/model/architectures.h"
#include "core/model/assemble.h"
#include "core/model/model_config.h"
#include "core/weights/metadata.h"

namespace llmrt {

// Sets config->rope_freqs, a table for each pair of a base and a number of dimensions that layers have, and what layers
// say of them. Takes the tensor of divisors from `tensors` where the architecture has one.
Status set_rope(const Architecture& architecture, const Metadata& metadata, TensorSource& tensors, ModelConfig* config);

}  // namespace llmrt
