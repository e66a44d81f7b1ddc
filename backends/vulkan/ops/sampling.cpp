// apply_penalties, apply_bias, filter, sample, logprobs. The last three share one block of push constants
// (shaders/logits_row.glsl) and run one workgroup a row, as large as may be, or several while there are fewer rows than
// cores.
#include <algorithm>

#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

uint32_t row_group_size(const Traits& traits) {
  return traits.cpu_kernels ? 8 : traits.tier >= Tier::kSubgroup ? 512 : 256;  // at most kGroupMax of row_best.glsl
}

// Workgroups of a row: each invocation has at least four tokens (shaders/row_slices.glsl). They are an order of sums.
uint32_t row_slices(const Recorder& r, TensorId logits) {
  if (r.traits().cpu_kernels || r.list().batch_invariant) return 1;
  constexpr uint32_t kSlicesMax = 2 * kListMax / 8;  // of 8 words each among the row's candidates
  const uint32_t slices_max = std::min(ceil_div(r.desc(logits).columns, 4 * row_group_size(r.traits())), kSlicesMax);
  return std::clamp(r.traits().num_cores / r.list().num_sampled, 1u, slices_max);
}

Push logits_push(Recorder& r, TensorId logits, TensorId processed, const View& kept) {
  const Resources& res = r.resources();
  Push push;
  push.add(r.tensor(logits)).add(r.tensor(processed)).add(kept).add(res.sample_inputs).add(res.rows);
  push.add(res.candidates).add(res.counts).add(res.results).add(res.arrivals);
  push.add(r.desc(logits).columns).add(res.config.sample_rows_max);
  return push;
}

}  // namespace

Status record(Recorder& r, const ApplyPenalties& op) {
  const Resources& res = r.resources();
  const uint32_t vocab_size = r.desc(op.logits).columns, group_size = r.traits().cpu_kernels ? 8 : 256;
  const View reads[] = {r.tensor(op.logits), res.rows, res.counts}, writes[] = {r.tensor(op.processed)};
  Push push;
  push.add(reads[0]).add(writes[0]).add(res.sample_inputs).add(res.rows).add(res.counts).add(vocab_size);
  // Mostly no row asks for anything: no more groups than start at once.
  const uint32_t num_rows = r.list().num_sampled, groups_max = 8 * r.traits().num_cores;
  const uint32_t groups = std::clamp(groups_max / num_rows, 1u, ceil_div(vocab_size, 8 * group_size));
  r.dispatch({"apply_penalties", group_size, {}}, push, {groups, num_rows}, reads, writes);
  return {};
}

Status record(Recorder& r, const ApplyBias& op) {
  const Resources& res = r.resources();
  const uint32_t group_size = r.traits().cpu_kernels ? 8 : 64;
  const View processed = r.tensor(op.processed), reads[] = {processed, res.rows}, writes[] = {processed};
  Push push;
  push.add(processed).add(res.sample_inputs).add(res.rows).add(r.desc(op.processed).columns);
  r.dispatch({"apply_bias", group_size, {}}, push, {r.list().num_sampled}, reads, writes);
  return {};
}

Status record(Recorder& r, const Filter& op) {
  const Resources& res = r.resources();
  const View kept = r.tensor(op.kept);
  const View reads[] = {r.tensor(op.logits), r.tensor(op.processed), res.rows, kept};
  const View writes[] = {kept, res.candidates, res.arrivals};
  r.dispatch({"filter", row_group_size(r.traits()), {}}, logits_push(r, op.logits, op.processed, kept),
             {r.list().num_sampled, row_slices(r, op.logits)}, reads, writes);
  return {};
}

Status record(Recorder& r, const Sample& op) {
  const Resources& res = r.resources();
  const View kept = r.tensor(op.kept);
  const View reads[] = {r.tensor(op.logits), r.tensor(op.processed), kept, res.rows};
  const View writes[] = {res.results, res.rows, res.counts, res.candidates, res.arrivals};
  r.dispatch({"sample", row_group_size(r.traits()), {}}, logits_push(r, op.logits, op.processed, kept),
             {r.list().num_sampled, row_slices(r, op.logits)}, reads, writes);
  return {};
}

Status record(Recorder& r, const Logprobs& op) {
  const Resources& res = r.resources();
  const View kept = r.tensor(op.kept);
  const View reads[] = {r.tensor(op.logits), r.tensor(op.processed), kept, res.rows, res.results};
  const View writes[] = {res.results};
  r.dispatch({"logprobs", row_group_size(r.traits()), {}}, logits_push(r, op.logits, op.processed, kept),
             {r.list().num_sampled}, reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
