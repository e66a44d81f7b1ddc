// copy_blocks: the first num_tokens tokens of a KV block to another, in every layer, k and v, with their scales;
// store_blocks and load_blocks: whole blocks to and from the host's pool, which kernels reach over the bus. The tokens
// of one (layer, k or v, head) are one run of bytes, as is a part of a record in a group of states; a block takes runs
// from a persistent grid, its threads share 16-byte words. The moves of one op do not depend on each other.
#include "backends/cuda/choose.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/step_inputs.cuh"

namespace llmrt::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kPartBytes = 8 << 10;  // of a record, that a block moves at a time

// Where the moves of one kind stand in the inputs; those of other groups are passed over.
struct Moves {
  ForwardHeader count, array;
  uint32_t kv_group;
};

__global__ void __launch_bounds__(kThreads) move_blocks_kernel(const uint32_t* inputs, Moves moves, KvGroup group,
                                                               uint32_t scales_vector, KvMemory from, KvMemory to) {
  grid_dependency_wait_alone();
  const BlockCopy* copies = input_array<BlockCopy>(inputs, moves.array);
  // A record moves as one token, in parts of kPartBytes.
  const bool is_record = group.state_columns > 0;
  const uint32_t record_bytes = group.state_columns * 4;
  const uint32_t runs_layer = is_record ? (record_bytes + kPartBytes - 1) / kPartBytes : group.vectors_token();
  const uint32_t runs_copy = group.num_layers * runs_layer;
  const uint64_t num_runs = uint64_t{inputs[moves.count]} * runs_copy;
  const uint32_t head_bytes = group.head_dim * kv_element_bytes(group.dtype);
  for (uint64_t run = blockIdx.x; run < num_runs; run += gridDim.x) {
    const BlockCopy copy = copies[run / runs_copy];
    const uint32_t layer = static_cast<uint32_t>(run % runs_copy) / runs_layer;
    const uint32_t side = static_cast<uint32_t>(run % runs_layer);  // k or v, and head
    if (copy.kv_group != moves.kv_group) continue;
    if (copy.source >= from.num_blocks || copy.target >= to.num_blocks || copy.num_tokens > group.block_tokens)
      continue;  // the host never sends one
    const uint64_t source = (uint64_t{copy.source} * runs_layer + side) * group.block_tokens;
    const uint64_t target = (uint64_t{copy.target} * runs_layer + side) * group.block_tokens;
    const uint32_t part = side * kPartBytes;
    const uint64_t source_byte = is_record ? uint64_t{copy.source} * record_bytes + part : source * head_bytes;
    const uint64_t target_byte = is_record ? uint64_t{copy.target} * record_bytes + part : target * head_bytes;
    const uint32_t num_bytes = is_record ? min(kPartBytes, record_bytes - part) : copy.num_tokens * head_bytes;
    const uint4* read = reinterpret_cast<const uint4*>(from.data + layer * from.layer_bytes + source_byte);
    uint4* write = reinterpret_cast<uint4*>(to.data + layer * to.layer_bytes + target_byte);
    const uint32_t words = num_bytes / 16;
    for (uint32_t i = threadIdx.x; i < words; i += kThreads) write[i] = read[i];
    // Vectors that are no whole number of 16 bytes leave a tail.
    const uint8_t* read_bytes = reinterpret_cast<const uint8_t*>(read);
    uint8_t* write_bytes = reinterpret_cast<uint8_t*>(write);
    for (uint32_t i = words * 16 + threadIdx.x; i < num_bytes; i += kThreads) write_bytes[i] = read_bytes[i];
    if (scales_vector == 0) continue;
    const float* read_scales = from.scales + layer * from.layer_scales + source * scales_vector;
    float* write_scales = to.scales + layer * to.layer_scales + target * scales_vector;
    for (uint32_t i = threadIdx.x; i < copy.num_tokens * scales_vector; i += kThreads) write_scales[i] = read_scales[i];
  }
  __threadfence();
}

Status add_moves(const char* name, Moves moves, const CompileInputs& inputs, KvMemory KvPool::*from,
                 KvMemory KvPool::*to, Launches* out) {
  const uint32_t kv_group = moves.kv_group;
  if (kv_group >= inputs.pools.size())
    return make_error(ErrorCode::kInvalidArgument, "{}: kv_group: expected below {}, found {}", name,
                      inputs.pools.size(), kv_group);
  const KvGroup& group = inputs.pools[kv_group];
  const auto num_blocks = [&](KvMemory KvPool::*side) {
    return side == &KvPool::device ? group.num_blocks : group.num_host_blocks;
  };
  if (num_blocks(from) == 0 || num_blocks(to) == 0) return {};
  KernelChoice choice{.kernel = name, .grid = {inputs.device.num_sms * inputs.tuning.moves_blocks_sm}};
  choice.threads = kThreads;
  add_launch(out, choice, [=](const KernelChoice& c, const OpContext& at) {
    const KvPool& pool = at.pools[kv_group];
    return launch(at, c, move_blocks_kernel, at.forward_inputs, moves, pool.group, pool.group.scales_vector(),
                  pool.*from, pool.*to);
  });
  return {};
}

}  // namespace

Status choose(const CopyBlocks& op, const OpList&, const CompileInputs& inputs, Launches* out) {
  return add_moves("copy_blocks", {kFwdNumCopies, kFwdCopies, op.kv_group}, inputs, &KvPool::device, &KvPool::device,
                   out);
}
Status choose(const StoreBlocks& op, const OpList&, const CompileInputs& inputs, Launches* out) {
  return add_moves("store_blocks", {kFwdNumStores, kFwdStores, op.kv_group}, inputs, &KvPool::device, &KvPool::host,
                   out);
}
Status choose(const LoadBlocks& op, const OpList&, const CompileInputs& inputs, Launches* out) {
  return add_moves("load_blocks", {kFwdNumLoads, kFwdLoads, op.kv_group}, inputs, &KvPool::host, &KvPool::device, out);
}

}  // namespace llmrt::cuda
