// qk_norm, rope and kv_write, any run of them over one qkv tensor, in one kernel.
#include "backends/vulkan/kernels/qkv.h"

#include "backends/vulkan/emitter.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {
namespace {

// What all of them say of the heads.
struct Heads {
  TensorId qkv;
  uint32_t num_heads, num_kv_heads, head_dim;
};
template <class T>
Heads heads_of(const T& op) {
  return {op.qkv, op.num_heads, op.num_kv_heads, op.head_dim};
}

// Fills what the kernel reads of the ops that there are; the rest stays at the tensor itself, which it does not read.
Status fill(const Emitter& e, const QkNorm* norm, const Rope* rope, const KvWrite* write, QkvKernel::Push* push) {
  if (norm) {
    auto q = e.weights().vector(norm->q_weight), k = e.weights().vector(norm->k_weight);
    if (!q) return q.error();
    if (!k) return k.error();
    push->q_weight = *q;
    push->k_weight = *k;
    if (norm->v_weight >= 0) {
      auto v = e.weights().vector(norm->v_weight);
      if (!v) return v.error();
      push->v_weight = *v;
    }
    push->eps = norm->eps;
  }
  if (rope) {
    auto freqs = e.weights().vector(rope->freqs);
    if (!freqs) return freqs.error();
    push->freqs = *freqs;
    push->positions = e.tensor(rope->positions);
    push->rope_dim = rope->rope_dim;
    push->magnitude = rope->magnitude;
  }
  if (write) {
    const KvPool& pool = e.resources().pools[write->kv_group];
    push->kv_slots = e.tensor(write->kv_slots);
    push->data = pool.device.data[write->layer];
    if (kv_has_scales(pool.group.dtype)) push->scales = pool.device.scales[write->layer];
    push->block_tokens = pool.group.block_tokens;
    push->k_scale = write->scales.k;
    push->v_scale = write->scales.v;
  }
  return {};
}

}  // namespace

Status emit(Emitter& e, const QkvHeadsStep& step) {
  const QkNorm* norm = step.norm >= 0 ? &e.op<QkNorm>(step.norm) : nullptr;
  const Rope* rope = step.rope >= 0 ? &e.op<Rope>(step.rope) : nullptr;
  const KvWrite* write = step.kv_write >= 0 ? &e.op<KvWrite>(step.kv_write) : nullptr;
  const Heads heads = norm ? heads_of(*norm) : rope ? heads_of(*rope) : heads_of(*write);
  if (heads.head_dim > 256 || heads.head_dim % 8 != 0)
    return make_error(ErrorCode::kUnsupported, "vulkan: qkv: expected head_dim in multiples of 8 up to 256, found {}",
                      heads.head_dim);
  const View qkv = e.tensor(heads.qkv);
  QkvKernel::Push push{.qkv = qkv,
                       .q_weight = qkv,
                       .k_weight = qkv,
                       .v_weight = qkv,
                       .positions = qkv,
                       .freqs = qkv,
                       .kv_slots = qkv,
                       .data = qkv,
                       .scales = qkv,
                       .count = e.live_count(heads.qkv),
                       .num_heads = heads.num_heads,
                       .num_kv_heads = heads.num_kv_heads,
                       .head_dim = heads.head_dim,
                       .rope_dim = 0,
                       .block_tokens = 1,
                       .eps = 0,
                       .magnitude = 1,
                       .k_scale = 1,
                       .v_scale = 1};
  if (Status status = fill(e, norm, rope, write, &push); !status) return status;
  const KvPool* pool = write ? &e.resources().pools[write->kv_group] : nullptr;
  const bool has_16_bits = pool && kv_element_bytes(pool->group.dtype) == 2;
  const uint32_t num_all_heads = heads.num_heads + 2 * heads.num_kv_heads;
  const bool by_pairs = !norm && rope && has_16_bits && rope->rope_dim == heads.head_dim && !e.traits().cpu_kernels;
  const uint32_t group_size = e.traits().cpu_kernels ? 8 : by_pairs ? 128 : 32;
  // q heads alone need nothing when only k and v are stored, but the grid stays the same: they leave at once.
  const KernelChoice choice{
      make_kernel<QkvKernel>(group_size, {.norm = !norm                ? 0u
                                                  : norm->v_weight < 0 ? 1u
                                                                       : 2u,
                                          .rope = rope ? rope_constant(*rope) : 0,
                                          .write = pool ? kv_constant(pool->group.dtype) : 0,
                                          .by_pairs = by_pairs}),
      {by_pairs ? ceil_div(num_all_heads * heads.head_dim / 4, group_size) : num_all_heads, e.list().num_tokens}};
  const View positions = rope ? e.tensor(rope->positions) : View{}, slots = write ? e.tensor(write->kv_slots) : View{};
  const View data = pool ? pool->device.data[write->layer] : View{};
  const View scales = pool && kv_has_scales(pool->group.dtype) ? pool->device.scales[write->layer] : View{};
  const View reads[] = {qkv, positions, slots}, writes[] = {norm || rope ? qkv : View{}, data, scales};
  e.launch(choice, PushBytes(push), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
