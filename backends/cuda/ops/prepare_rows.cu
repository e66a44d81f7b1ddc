// prepare_rows: token id, position, row slot and the KV slots of each token of the step, one a group. One thread a
// token; padding tokens get token 0, position 0 and -1, which kernels of the step may read ahead of their waits. A
// "token sampled last" of a slot that sampled nothing becomes token 0.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 128;

struct Out {
  int32_t *tokens, *positions, *row_slots;
  int32_t* kv_slots[kKvGroupsMax];      // by group; null: not wanted
  uint32_t block_tokens[kKvGroupsMax];  // 0: there is no pool
  uint32_t num_groups;                  // the last that is wanted, and those before
};

__global__ void __launch_bounds__(kThreads)
    prepare_rows_kernel(const uint32_t* inputs, RowState rows, const Out out, uint32_t num_tokens) {
  grid_dependency_wait_alone();
  const uint32_t t = blockIdx.x * kThreads + threadIdx.x;
  if (t >= num_tokens) return;
  int32_t token = 0, position = 0, slot = -1;
  if (t < inputs[kFwdNumTokens]) {
    const RowRecord& record = input_array<RowRecord>(inputs, kFwdRows)[input_array<uint32_t>(inputs, kFwdTokenRows)[t]];
    position = static_cast<int32_t>(record.start + (t - record.token_first));
    token = input_array<int32_t>(inputs, kFwdTokens)[t];
    if (record.slot < rows.slots_max) {
      slot = static_cast<int32_t>(record.slot);
      if (token == kLastSampled) token = max(rows.last_token[slot], 0);
    }
  }
#pragma unroll
  for (uint32_t group = 0; group < kKvGroupsMax; ++group) {
    if (group >= out.num_groups) break;
    if (!out.kv_slots[group]) continue;
    const uint32_t block_tokens = out.block_tokens[group];
    const uint32_t entry = block_tokens ? static_cast<uint32_t>(position) / block_tokens : rows.blocks_row_max;
    int32_t kv_slot = -1;
    if (slot >= 0 && entry < rows.blocks_row_max) {
      const int32_t block = rows.tables_of(group)[static_cast<uint64_t>(slot) * rows.blocks_row_max + entry];
      if (block >= 0)
        kv_slot = block * static_cast<int32_t>(block_tokens) +
                  static_cast<int32_t>(static_cast<uint32_t>(position) % block_tokens);
    }
    out.kv_slots[group][t] = kv_slot;
  }
  out.tokens[t] = token;
  out.positions[t] = position;
  out.row_slots[t] = slot;
  __threadfence();
}

}  // namespace

Status run(const PrepareRows& op, const OpContext& at) {
  const uint32_t num_tokens = at.rows_of(op.tokens);
  Out out{at.tensor<int32_t>(op.tokens), at.tensor<int32_t>(op.positions), at.tensor<int32_t>(op.row_slots), {}, {}, 0};
  for (uint32_t group = 0; group < at.rows.num_kv_groups; ++group) {
    if (op.kv_slots[group] == kNoTensor) continue;
    out.kv_slots[group] = at.tensor<int32_t>(op.kv_slots[group]);
    out.block_tokens[group] = group < at.num_pools ? at.pools[group].group.block_tokens : 0;
    out.num_groups = group + 1;
  }
  return launch(at, "prepare_rows", prepare_rows_kernel, {ceil_div(num_tokens, kThreads), kThreads}, at.forward_inputs,
                at.rows, out, num_tokens);
}

}  // namespace llmrt::cuda
