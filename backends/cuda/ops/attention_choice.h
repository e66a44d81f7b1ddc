// Which kernels attend, as values: choose_attention.cpp decides, the kernels' files lay out and launch.
#pragma once

#include "backends/cuda/compile_inputs.h"
#include "backends/cuda/kernel_choice.h"
#include "core/base/status.h"
#include "core/ops/ops.h"

namespace llmrt::cuda {

enum class AttentionKernel : uint8_t {
  kPromptTiles,
  kPromptWarpgroups,
  kDecode,
  kDecodeRing,
  kDecodeRuns,
  kDecodeRingRuns,
  kMerge,
};

struct AttentionShape {
  KvGroup pool;
  uint32_t num_heads = 0, head_dim = 0;
  uint32_t num_tokens = 0;  // of the list
  bool decode_only = false, has_runs = false;

  // Keys and values of a layer.
  uint64_t num_vectors() const { return uint64_t{pool.num_blocks} * 2 * pool.num_kv_heads * pool.block_tokens; }
};

struct AttentionChoice : KernelChoice {
  AttentionKernel which = AttentionKernel::kDecode;
  uint32_t tile_keys = 0;         // kPromptTiles: 64, or as many as there is room for
  bool is_behind_prompt = false;  // kDecodeRing, with runs too: a kernel for prompts runs before it
  bool next_is_early = false;     // the same: the next kernel may start while this one runs
  bool prompts_alone = false;     // kMerge: the decode kernel has merged its own splits
};

// What each kernel takes, beside heads of up to 256 numbers.
Status check_prompt_tiles(const AttentionShape& shape, const DeviceFacts& device);
Status check_prompt_warpgroups(const AttentionShape& shape);
bool can_attend_by_ring(const AttentionShape& shape, const DeviceFacts& device);
// Each fills in the geometry of choice->which.
void lay_out_prompt_tiles(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice);
void lay_out_prompt_warpgroups(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice);
void lay_out_decode(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice);
void lay_out_decode_ring(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice);
void lay_out_decode_runs(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice);
void lay_out_decode_ring_runs(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice);
void lay_out_merge(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice);

struct OpContext;
// Launches choice.which.
Status launch_attention(const PagedAttention& op, const AttentionChoice& choice, const OpContext& at);

}  // namespace llmrt::cuda
