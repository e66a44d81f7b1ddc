// A model out of an opened file. Apart from load_model so that tests and the fuzzer can give bytes instead of a path.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "core/model/model.h"
#include "core/weights/weight_source.h"

namespace llmrt {

// `source.owner` is kept by the model; when it is null, the caller keeps the parsed bytes alive as long as the model.
Result<std::shared_ptr<const Model>> load_from_source(const WeightSource& source, std::string path);

}  // namespace llmrt
