// Copies of the model's own weights in an adapter's file: PEFT saves that of the head beside an adapter on it. They
// change nothing as long as they are what the model has.
#pragma once

#include <string>

#include "core/base/status.h"
#include "core/model/model.h"
#include "core/weights/weight_source.h"

namespace llmrt {

// `canonical`: GGUF's name. Errors: unsupported for any but the embedding and the head, and for numbers that are not
// the model's, up to the rounding of its encoding; invalid_argument ("adapter mismatch") for another shape.
Status check_base_copy(const SourceTensor& tensor, const std::string& canonical, const Model& model);

}  // namespace llmrt
