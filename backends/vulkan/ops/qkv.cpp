// qk_norm, rope and kv_write, any run of them over one qkv tensor, in one kernel.
#include "backends/vulkan/recorder.h"
#include "core/base/checked_math.h"

namespace llmrt::vulkan {

Status record(Recorder& r, const QkNorm* norm, const Rope* rope, const KvWrite* write) {
  const auto shape = [&](auto get) { return norm ? get(*norm) : rope ? get(*rope) : get(*write); };
  const TensorId qkv_id = shape([](const auto& op) { return op.qkv; });
  const uint32_t num_heads = shape([](const auto& op) { return op.num_heads; });
  const uint32_t num_kv_heads = shape([](const auto& op) { return op.num_kv_heads; });
  const uint32_t head_dim = shape([](const auto& op) { return op.head_dim; });
  if (head_dim > 256 || head_dim % 8 != 0)
    return make_error(ErrorCode::kUnsupported, "vulkan: qkv: expected head_dim in multiples of 8 up to 256, found {}",
                      head_dim);

  const View qkv = r.tensor(qkv_id);
  View q_weight = qkv, k_weight = qkv, positions = qkv, freqs = qkv, kv_slots = qkv, data = qkv, scales = qkv;
  uint32_t write_dtype = 0, block_tokens = 1;
  if (norm) {
    auto q = r.weights().vector(norm->q_weight), k = r.weights().vector(norm->k_weight);
    if (!q) return q.error();
    if (!k) return k.error();
    q_weight = *q;
    k_weight = *k;
  }
  if (rope) {
    auto vector = r.weights().vector(rope->freqs);
    if (!vector) return vector.error();
    freqs = *vector;
    positions = r.tensor(rope->positions);
  }
  if (write) {
    const KvPool& pool = r.resources().pools[write->kv_group];
    kv_slots = r.tensor(write->kv_slots);
    data = pool.device.data[write->layer];
    if (kv_has_scales(pool.group.dtype)) scales = pool.device.scales[write->layer];
    write_dtype = kv_constant(pool.group.dtype);
    block_tokens = pool.group.block_tokens;
  }
  Push push;
  for (const View& view : {qkv, q_weight, k_weight, positions, freqs, kv_slots, data, scales}) push.add(view);
  push.add(r.live_count(qkv_id)).add(num_heads).add(num_kv_heads).add(head_dim);
  push.add(rope ? rope->rope_dim : 0u).add(block_tokens).add(norm ? norm->eps : 0.0f);
  push.add(rope ? rope->magnitude : 1.0f);
  const KvTensorScales tensor_scales = write ? write->scales : KvTensorScales{};
  push.add(tensor_scales.k).add(tensor_scales.v);

  const uint32_t pairing = rope ? rope_constant(*rope) : 0;
  const uint32_t num_all_heads = num_heads + 2 * num_kv_heads;
  const bool by_pairs = !norm && rope && write && rope->rope_dim == head_dim && !r.traits().cpu_kernels &&
                        (write_dtype == kv_constant(KvDType::kF16) || write_dtype == kv_constant(KvDType::kBF16));
  const uint32_t group_size = r.traits().cpu_kernels ? 8 : by_pairs ? 128 : 32;
  const View reads[] = {qkv, positions, kv_slots}, writes[] = {qkv, data, scales};
  // q heads alone need nothing when only k and v are stored, but the grid stays the same: they leave at once.
  r.dispatch({"qkv", group_size, {norm != nullptr, pairing, write_dtype, by_pairs}}, push,
             {by_pairs ? ceil_div(num_all_heads * head_dim / 4, group_size) : num_all_heads, r.list().num_tokens},
             reads, std::span(writes).subspan(norm || rope ? 0 : 1, norm || rope ? 3 : 2));
  return {};
}

}  // namespace llmrt::vulkan
