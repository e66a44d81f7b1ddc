// copy_blocks: the first num_tokens tokens of a KV block to another, in every layer, k and v, with their scales. The
// tokens of one (layer, k or v, head) are one run of bytes; a block takes runs from a persistent grid, its threads
// share 16-byte words. The commands of a step do not depend on each other.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 128;

__global__ void __launch_bounds__(kThreads) copy_blocks_kernel(const uint32_t* inputs, KvPool pool) {
  grid_dependency_wait();
  const KvGroup& group = pool.group;
  const BlockCopy* copies = input_array<BlockCopy>(inputs, kFwdCopies);
  const uint32_t runs_layer = 2 * group.num_kv_heads, runs_copy = group.num_layers * runs_layer;
  const uint64_t num_runs = uint64_t{inputs[kFwdNumCopies]} * runs_copy;
  const uint32_t vector_bytes = group.head_dim * kv_element_bytes(group.dtype);
  for (uint64_t run = blockIdx.x; run < num_runs; run += gridDim.x) {
    const BlockCopy copy = copies[run / runs_copy];
    const uint32_t layer = static_cast<uint32_t>(run % runs_copy) / runs_layer;
    const uint32_t side = static_cast<uint32_t>(run % runs_layer);  // k or v, and head
    if (copy.source >= group.num_blocks || copy.target >= group.num_blocks || copy.num_tokens > group.block_tokens)
      continue;  // the host never sends one
    const uint64_t source = (uint64_t{copy.source} * runs_layer + side) * group.block_tokens;
    const uint64_t target = (uint64_t{copy.target} * runs_layer + side) * group.block_tokens;
    std::byte* layer_data = pool.data + layer * pool.layer_bytes;
    const uint4* from = reinterpret_cast<const uint4*>(layer_data + source * vector_bytes);
    uint4* to = reinterpret_cast<uint4*>(layer_data + target * vector_bytes);
    const uint32_t words = copy.num_tokens * vector_bytes / 16;
    for (uint32_t i = threadIdx.x; i < words; i += kThreads) to[i] = from[i];
    // Vectors that are no whole number of 16 bytes leave a tail.
    const uint8_t* from_bytes = reinterpret_cast<const uint8_t*>(from);
    uint8_t* to_bytes = reinterpret_cast<uint8_t*>(to);
    for (uint32_t i = words * 16 + threadIdx.x; i < copy.num_tokens * vector_bytes; i += kThreads)
      to_bytes[i] = from_bytes[i];
    if (!kv_has_scales(group.dtype)) continue;
    float* scales = pool.scales + layer * pool.layer_scales;
    for (uint32_t i = threadIdx.x; i < copy.num_tokens; i += kThreads) scales[target + i] = scales[source + i];
  }
}

}  // namespace

Status run(const CopyBlocks& op, const OpContext& at) {
  if (op.kv_group >= at.num_pools)
    return make_error(ErrorCode::kInvalidArgument, "copy_blocks: kv_group: expected below {}, found {}", at.num_pools,
                      op.kv_group);
  return launch(at, "copy_blocks", copy_blocks_kernel, {static_cast<uint32_t>(at.num_sms) * 2, kThreads},
                at.forward_inputs, at.pools[op.kv_group]);
}

}  // namespace llmrt::cuda
