// copy_blocks: the first num_tokens tokens of a KV block to another, in every layer, k and v, with their scales;
// store_blocks and load_blocks: whole blocks to and from the host's pool, which kernels reach over the bus. The tokens
// of one (layer, k or v, head) are one run of bytes; a block takes runs from a persistent grid, its threads share
// 16-byte words. The moves of one op do not depend on each other.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 128;

// Where the moves of one kind stand in the inputs; those of other groups are passed over.
struct Moves {
  ForwardHeader count, array;
  uint32_t kv_group;
};

__global__ void __launch_bounds__(kThreads) move_blocks_kernel(const uint32_t* inputs, Moves moves, KvGroup group,
                                                               uint32_t scales_vector, KvMemory from, KvMemory to) {
  grid_dependency_wait_alone();
  const BlockCopy* copies = input_array<BlockCopy>(inputs, moves.array);
  const uint32_t runs_layer = 2 * group.num_kv_heads, runs_copy = group.num_layers * runs_layer;
  const uint64_t num_runs = uint64_t{inputs[moves.count]} * runs_copy;
  const uint32_t vector_bytes = group.head_dim * kv_element_bytes(group.dtype);
  for (uint64_t run = blockIdx.x; run < num_runs; run += gridDim.x) {
    const BlockCopy copy = copies[run / runs_copy];
    const uint32_t layer = static_cast<uint32_t>(run % runs_copy) / runs_layer;
    const uint32_t side = static_cast<uint32_t>(run % runs_layer);  // k or v, and head
    if (copy.kv_group != moves.kv_group) continue;
    if (copy.source >= from.num_blocks || copy.target >= to.num_blocks || copy.num_tokens > group.block_tokens)
      continue;  // the host never sends one
    const uint64_t source = (uint64_t{copy.source} * runs_layer + side) * group.block_tokens;
    const uint64_t target = (uint64_t{copy.target} * runs_layer + side) * group.block_tokens;
    const uint4* read = reinterpret_cast<const uint4*>(from.data + layer * from.layer_bytes + source * vector_bytes);
    uint4* write = reinterpret_cast<uint4*>(to.data + layer * to.layer_bytes + target * vector_bytes);
    const uint32_t words = copy.num_tokens * vector_bytes / 16;
    for (uint32_t i = threadIdx.x; i < words; i += kThreads) write[i] = read[i];
    // Vectors that are no whole number of 16 bytes leave a tail.
    const uint8_t* read_bytes = reinterpret_cast<const uint8_t*>(read);
    uint8_t* write_bytes = reinterpret_cast<uint8_t*>(write);
    for (uint32_t i = words * 16 + threadIdx.x; i < copy.num_tokens * vector_bytes; i += kThreads)
      write_bytes[i] = read_bytes[i];
    if (scales_vector == 0) continue;
    const float* read_scales = from.scales + layer * from.layer_scales + source * scales_vector;
    float* write_scales = to.scales + layer * to.layer_scales + target * scales_vector;
    for (uint32_t i = threadIdx.x; i < copy.num_tokens * scales_vector; i += kThreads) write_scales[i] = read_scales[i];
  }
  __threadfence();
}

Status move(const char* name, const OpContext& at, Moves moves, KvMemory KvPool::*from, KvMemory KvPool::*to) {
  if (moves.kv_group >= at.num_pools)
    return make_error(ErrorCode::kInvalidArgument, "{}: kv_group: expected below {}, found {}", name, at.num_pools,
                      moves.kv_group);
  const KvPool& pool = at.pools[moves.kv_group];
  if ((pool.*from).num_blocks == 0 || (pool.*to).num_blocks == 0) return {};
  return launch(at, name, move_blocks_kernel, {static_cast<uint32_t>(at.num_sms) * 2, kThreads}, at.forward_inputs,
                moves, pool.group, pool.group.scales_vector(), pool.*from, pool.*to);
}

}  // namespace

Status run(const CopyBlocks& op, const OpContext& at) {
  return move("copy_blocks", at, {kFwdNumCopies, kFwdCopies, op.kv_group}, &KvPool::device, &KvPool::device);
}
Status run(const StoreBlocks& op, const OpContext& at) {
  return move("store_blocks", at, {kFwdNumStores, kFwdStores, op.kv_group}, &KvPool::device, &KvPool::host);
}
Status run(const LoadBlocks& op, const OpContext& at) {
  return move("load_blocks", at, {kFwdNumLoads, kFwdLoads, op.kv_group}, &KvPool::host, &KvPool::device);
}

}  // namespace llmrt::cuda
