#include "tools/llmrt_bench/ops/bounds.h"

#include "tests/reference/tolerance.h"

namespace llmrt::bench {
namespace {

double bound_of(const Op& op, const OpList& list, DType math, uint32_t position_max) {
  using enum reference::Tolerance;
  const auto of = [](reference::Tolerance tolerance, DType dtype) {
    return reference::bound_of(tolerance, DType::kF32, dtype).norm;
  };
  if (const auto* matmul = std::get_if<Matmul>(&op)) return of(kMatmul, list.tensors[matmul->x].dtype);
  if (const auto* shrink = std::get_if<AdapterShrink>(&op)) return of(kMatmul, list.tensors[shrink->x].dtype);
  if (std::holds_alternative<AdapterExpand>(op)) return of(kMatmul, math);
  if (const auto* product = std::get_if<ExpertGateUp>(&op)) return of(kMatmul, list.tensors[product->out].dtype);
  if (const auto* sum = std::get_if<ExpertDown>(&op)) return of(kMatmul, list.tensors[sum->x].dtype);
  if (std::holds_alternative<RouteExperts>(op)) return of(kRotation, DType::kF32);
  if (std::holds_alternative<ExpandLatent>(op)) return of(kMatmul, DType::kF16) + rounding_of(DType::kF16);
  if (const auto* heads = std::get_if<HeadMatmul>(&op))
    return of(kMatmul, math) + rounding_of(list.tensors[heads->out].dtype);
  if (std::holds_alternative<PagedAttention>(op) || std::holds_alternative<LatentAttention>(op))
    return of(kAttention, math);
  // An angle is a position times a frequency, in f32.
  if (std::holds_alternative<Rope>(op) || std::holds_alternative<LatentRows>(op))
    return of(kRotation, DType::kF32) + position_max * 1.2e-7;
  if (std::holds_alternative<PrepareRows>(op) || std::holds_alternative<GatherRows>(op)) return 0;
  return of(kElementwise, DType::kF32);
}

}  // namespace

double bound_of(std::span<const Op> ops, const Excerpt& excerpt, DType math, uint32_t position_max) {
  double sum = 0;
  for (const Op& op : ops) sum += bound_of(op, excerpt.list, math, position_max);
  return sum + static_cast<double>(excerpt.handed_on.size()) * rounding_of(math);
}

double rounding_of(DType dtype) {
  return reference::rounding_of(dtype);
}

// Of 8-bit numbers the few at a tie go the other way.
double rounding_of(KvDType dtype) {
  if (dtype == KvDType::kF16) return rounding_of(DType::kF16);
  if (dtype == KvDType::kBF16) return rounding_of(DType::kBF16);
  return kv_is_i8(dtype) ? 2e-3 : 2e-2;
}

}  // namespace llmrt::bench
