// What a launch of a product knows beside its choice: names of tensors and weights, which OpContext turns into places.
#pragma once

#include <optional>

#include "backends/cuda/ops/matmul.h"

namespace llmrt::cuda {

struct MatmulSource {
  Matmul matmul;
  std::optional<RmsNorm> made;  // the norm that makes x, which then does not exist
  TensorId out = kNoTensor;
  Activation activation = Activation::kSilu;  // of MatmulResult::kGated
  size_t run = 0;                             // of the weight group
  bool from_f16 = false;                      // by the run's copy in f16
};

MatmulArgs args_of(const MatmulSource& source, MatmulResult result, const OpContext& at);
// The launch that choice.which names.
Status launch_matmul(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);

}  // namespace llmrt::cuda
