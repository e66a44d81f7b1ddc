// The same model in other encodings: what is read from the file is decoded and encoded again while a backend loads it,
// row by row, so no second copy of the weights is ever in memory.
#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/model/model.h"

namespace llmrt::bench {

// Matrices that hold floats stay as they are, others become f16. Vectors are f32 anyway.
std::shared_ptr<const Model> as_floats(std::shared_ptr<const Model> model);

// Every matrix rounded to the nearest of `encoding`, but token embedding and head to q8_0: the finer, as quantised
// files keep them. Errors: unsupported, when there is no encoder or a row is no multiple of its block.
Result<std::shared_ptr<const Model>> quantise(std::shared_ptr<const Model> model, Encoding encoding);

}  // namespace llmrt::bench
