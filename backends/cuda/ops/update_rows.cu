// update_rows: applies the step's RowUpdate commands in order.
//
// Blocks share the commands out by the slot they write (those of counts by their penalty slot), so commands of one slot
// stay in order and those of different slots run side by side. A kCopySlot reads another slot: a step that has one runs
// all its commands in one block. Inside a command the threads share the payload's words.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kBlocks = 32, kThreads = 256;

__device__ void clear_slot(const RowState& rows, uint32_t slot) {
  if (threadIdx.x == 0) {
    rows.sampling[slot] = RowSampling{};
    rows.last_token[slot] = -1;
  }
  for (uint32_t group = 0; group < rows.num_kv_groups; ++group) {
    int32_t* table = rows.tables_of(group) + uint64_t{slot} * rows.blocks_row_max;
    for (uint32_t i = threadIdx.x; i < rows.blocks_row_max; i += blockDim.x) table[i] = -1;
  }
}

__device__ void copy_slot(const RowState& rows, uint32_t slot, uint32_t source) {
  if (source >= rows.slots_max || source == slot) return;
  if (threadIdx.x == 0) {
    rows.sampling[slot] = rows.sampling[source];
    rows.last_token[slot] = rows.last_token[source];
  }
  for (uint32_t group = 0; group < rows.num_kv_groups; ++group) {
    int32_t* tables = rows.tables_of(group);
    for (uint32_t i = threadIdx.x; i < rows.blocks_row_max; i += blockDim.x)
      tables[uint64_t{slot} * rows.blocks_row_max + i] = tables[uint64_t{source} * rows.blocks_row_max + i];
  }
}

__device__ void recount(const RowState& rows, const RowUpdate& update, const uint32_t* payload) {
  if (update.arg0 >= rows.penalty_rows_max) return;
  uint32_t* counts = rows.counts + uint64_t{update.arg0} * rows.vocab_size;
  for (uint32_t v = threadIdx.x; v < rows.vocab_size; v += blockDim.x) counts[v] = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < update.payload_words; i += blockDim.x) {
    const uint32_t token = payload[i];
    if (token >= rows.vocab_size) continue;
    if (i < update.arg1)
      atomicOr(&counts[token], RowState::kInPrompt);
    else
      atomicAdd(&counts[token], 1u);
  }
}

__device__ void count(const RowState& rows, const RowUpdate& update, const uint32_t* payload) {
  if (update.arg0 >= rows.penalty_rows_max) return;
  uint32_t* counts = rows.counts + uint64_t{update.arg0} * rows.vocab_size;
  for (uint32_t i = threadIdx.x; i < update.payload_words; i += blockDim.x)
    if (payload[i] < rows.vocab_size) atomicAdd(&counts[payload[i]], 1u);
}

__device__ void apply(const RowState& rows, const RowUpdate& update, const uint32_t* payload) {
  if (update.kind == RowUpdateKind::kRecount) return recount(rows, update, payload);
  if (update.kind == RowUpdateKind::kCount) return count(rows, update, payload);
  const uint32_t slot = update.slot;
  if (slot >= rows.slots_max) return;  // the host never sends one; memory stays whole whatever comes
  switch (update.kind) {
    case RowUpdateKind::kSet:
      if (threadIdx.x < sizeof(RowSampling) / 4)
        reinterpret_cast<uint32_t*>(rows.sampling + slot)[threadIdx.x] = payload[threadIdx.x];
      if (threadIdx.x == 0) rows.last_token[slot] = -1;
      break;
    case RowUpdateKind::kPatchTable:
      if (update.arg1 >= rows.num_kv_groups) break;
      for (uint32_t i = threadIdx.x; i < update.payload_words; i += blockDim.x)
        if (update.arg0 + i < rows.blocks_row_max)
          rows.tables_of(update.arg1)[uint64_t{slot} * rows.blocks_row_max + update.arg0 + i] =
              static_cast<int32_t>(payload[i]);
      break;
    case RowUpdateKind::kCopySlot:
      copy_slot(rows, slot, update.arg0);
      break;
    case RowUpdateKind::kClear:
      clear_slot(rows, slot);
      break;
    case RowUpdateKind::kRecount:
    case RowUpdateKind::kCount:
      break;
  }
}

__global__ void __launch_bounds__(kThreads) update_rows_kernel(const uint32_t* inputs, RowState rows) {
  grid_dependency_wait_alone();
  const uint32_t num_updates = inputs[kFwdNumUpdates];
  const RowUpdate* updates = input_array<RowUpdate>(inputs, kFwdUpdates);
  const uint32_t* payload = input_array<uint32_t>(inputs, kFwdPayload);
  int copies = 0;
  for (uint32_t i = threadIdx.x; i < num_updates; i += blockDim.x)
    copies |= updates[i].kind == RowUpdateKind::kCopySlot;
  const uint32_t num_homes = __syncthreads_or(copies) ? 1 : gridDim.x;
  for (uint32_t i = 0; i < num_updates; ++i) {
    const RowUpdate update = updates[i];
    const bool is_of_counts = update.kind == RowUpdateKind::kRecount || update.kind == RowUpdateKind::kCount;
    const uint32_t home = is_of_counts ? update.arg0 : update.slot;
    if (home % num_homes != blockIdx.x) continue;
    apply(rows, update, payload + update.payload_first);
    __syncthreads();
  }
  __threadfence();
}

}  // namespace

Status choose(const UpdateRows&, const OpList&, const CompileInputs&, Launches* out) {
  KernelChoice choice{.kernel = "update_rows", .grid = {kBlocks}, .threads = kThreads};
  add_launch(out, choice, [](const KernelChoice& c, const OpContext& at) {
    return launch(at, c, update_rows_kernel, at.forward_inputs, at.rows);
  });
  return {};
}

}  // namespace llmrt::cuda
