#include "backends/vulkan/kernels/joined_qk_norm.h"

#include "backends/vulkan/emitter.h"
#include "backends/vulkan/kernels/rms_norm.h"

namespace llmrt::vulkan {

Status emit(Emitter& e, const JoinedQkNorm& op) {
  auto q_weight = e.weights().vector(op.q_weight);
  if (!q_weight) return q_weight.error();
  View k_weight = *q_weight;
  if (op.num_kv_heads > 0) {
    auto weight = e.weights().vector(op.k_weight);
    if (!weight) return weight.error();
    k_weight = *weight;
  }
  const View qkv = e.tensor(op.qkv);
  const uint32_t q_columns = op.num_heads * op.head_dim;
  const JoinedQkNormKernel::Push push{.qkv = qkv,
                                      .q_weight = *q_weight,
                                      .k_weight = k_weight,
                                      .count = e.live_count(op.qkv),
                                      .q_columns = q_columns,
                                      .k_columns = op.num_kv_heads * op.head_dim,
                                      .columns = e.desc(op.qkv).columns,
                                      .eps = op.eps};
  const KernelChoice choice{make_kernel<JoinedQkNormKernel>(norm_group_size(e.traits(), q_columns), {}),
                            {op.num_kv_heads > 0 ? 2u : 1u, e.list().rows_of(op.qkv)}};
  const View reads[] = {qkv, *q_weight, k_weight}, writes[] = {qkv};
  e.launch(choice, PushBytes(push), reads, writes);
  return {};
}

}  // namespace llmrt::vulkan
