// The push constants that filter, sample and logprobs share: shaders/logits_row.glsl. They run one workgroup a row, as
// large as may be, or several while there are fewer rows than cores.
#pragma once

#include "backends/vulkan/kernel.h"
#include "core/ops/tensor.h"

namespace llmrt::vulkan {

class Emitter;

struct LogitsRowPush {
  Address logits, processed, kept, inputs, rows, candidates, counts, results, arrivals;
  uint32_t vocab_size, sample_rows_max;
};
static_assert(sizeof(LogitsRowPush) == 80);

LogitsRowPush logits_row_push(const Emitter& e, TensorId logits, TensorId processed, TensorId kept);
// Invocations of a group.
uint32_t row_group_size(const Traits& traits);
// Groups of filter and sample: by row, and by slice of a row.
Groups logits_row_groups(const Emitter& e, TensorId logits);

}  // namespace llmrt::vulkan
