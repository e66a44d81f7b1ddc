#include "backends/vulkan/kernels/logits_row.h"

#include <algorithm>

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// Groups of a row: each invocation has at least four tokens (shaders/row_slices.glsl). They are an order of sums.
uint32_t row_slices(const Traits& traits, uint32_t vocab_size, uint32_t num_rows, bool batch_invariant) {
  if (traits.cpu_kernels || batch_invariant) return 1;
  constexpr uint32_t kSlicesMax = 2 * kListMax / 8;  // of 8 words each among the row's candidates
  const uint32_t slices_max = std::min(ceil_div(vocab_size, 4 * row_group_size(traits)), kSlicesMax);
  return std::clamp(traits.num_cores / num_rows, 1u, slices_max);
}

}  // namespace

LogitsRowPush logits_row_push(const Emitter& e, TensorId logits, TensorId processed, TensorId kept) {
  const Resources& res = e.resources();
  return {.logits = e.tensor(logits),
          .processed = e.tensor(processed),
          .kept = e.tensor(kept),
          .inputs = res.sample_inputs,
          .rows = res.rows,
          .candidates = res.candidates,
          .counts = res.counts,
          .results = res.results,
          .arrivals = res.arrivals,
          .vocab_size = e.desc(logits).columns,
          .sample_rows_max = res.config.sample_rows_max};
}

uint32_t row_group_size(const Traits& traits) {
  return traits.cpu_kernels ? 8 : traits.tier >= Tier::kSubgroup ? 512 : 256;  // at most kGroupMax of row_best.glsl
}

Groups logits_row_groups(const Emitter& e, TensorId logits) {
  const uint32_t num_rows = e.list().num_sampled;
  return {num_rows, row_slices(e.traits(), e.desc(logits).columns, num_rows, e.list().batch_invariant)};
}

}  // namespace llmrt::vulkan
