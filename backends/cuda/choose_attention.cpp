// Which kernels attend. Decode items, prompt items and the merge of their splits are three kernels. All are in every
// list that may have prompt items. There decode items come behind: their many short works fill what the prompts' long
// ones leave of the last round. A list without prompt items has the decode kernel alone where that merges its own
// splits.
#include <fmt/format.h>

#include "backends/cuda/choose.h"
#include "backends/cuda/ops/attention_choice.h"

namespace llmrt::cuda {
namespace {

Status check(const PagedAttention& op, const CompileInputs& inputs) {
  if (op.kv_group >= inputs.pools.size())
    return make_error(ErrorCode::kInvalidArgument, "paged_attention: kv_group: expected below {}, found {}",
                      inputs.pools.size(), op.kv_group);
  const KvGroup group = inputs.pools[op.kv_group].seen_by(op.num_kv_heads);
  const uint32_t multiple = 16 / kv_element_bytes(group.dtype);
  if (op.head_dim % multiple != 0 || op.head_dim > 256)
    return make_error(ErrorCode::kUnsupported,
                      "paged_attention: heads of {} numbers over {} keys: expected a multiple of {} up to 256",
                      op.head_dim, kv_dtype_name(group.dtype), multiple);
  if (op.num_kv_heads != group.num_kv_heads || op.head_dim != group.head_dim || op.layer >= group.num_layers ||
      op.num_heads % op.num_kv_heads != 0)
    return make_error(ErrorCode::kInvalidArgument,
                      "paged_attention: layer {}, {} heads over {} of {}: the pool has {} layers, {} heads of {}",
                      op.layer, op.num_heads, op.num_kv_heads, op.head_dim, group.num_layers, group.num_kv_heads,
                      group.head_dim);
  return {};
}

void add(AttentionChoice choice, const PagedAttention& op, const AttentionShape& shape, Launches* out) {
  choice.variant = fmt::format("{} heads of {}", kv_dtype_name(shape.pool.dtype), shape.head_dim);
  if (choice.tile_keys > 0) choice.variant += fmt::format(" keys={}", choice.tile_keys);
  if (choice.next_is_early) choice.variant += " next-is-early";
  if (choice.prompts_alone) choice.variant += " prompts-alone";
  if (choice.which == AttentionKernel::kDecodeRuns || choice.which == AttentionKernel::kDecodeRingRuns)
    choice.variant += " runs";
  add_launch(out, std::move(choice),
             [op](const AttentionChoice& c, const OpContext& at) { return launch_attention(op, c, at); });
}

Status add_prompt(const PagedAttention& op, const AttentionShape& shape, const DeviceFacts& device, Launches* out) {
  AttentionChoice choice;
  if (device.has_warpgroups && shape.head_dim <= 128 && op.value_dim == 0) {
    if (Status status = check_prompt_warpgroups(shape); !status) return status;
    choice.kernel = "attention_prompt_warpgroups";
    choice.which = AttentionKernel::kPromptWarpgroups;
    lay_out_prompt_warpgroups(shape, device, &choice);
  } else {
    if (Status status = check_prompt_tiles(shape, device); !status) return status;
    choice.kernel = "attention_prompt";
    choice.which = AttentionKernel::kPromptTiles;
    lay_out_prompt_tiles(shape, device, &choice);
  }
  add(std::move(choice), op, shape, out);
  return {};
}

void add_decode(const PagedAttention& op, const AttentionShape& shape, bool by_ring, const CompileInputs& inputs,
                Launches* out) {
  AttentionChoice choice;
  if (by_ring) {
    choice.kernel = "attention_decode_ring";
    choice.which = shape.has_runs ? AttentionKernel::kDecodeRingRuns : AttentionKernel::kDecodeRing;
    choice.is_behind_prompt = !shape.decode_only;
    // A matmul of few rows uses the time to read its weights. One of more rows is slower that way: its blocks take the
    // places of those of this kernel that end first.
    choice.next_is_early = choice.is_behind_prompt || shape.num_tokens <= inputs.tuning.decode_early_tokens_max;
    (shape.has_runs ? lay_out_decode_ring_runs : lay_out_decode_ring)(shape, inputs.device, &choice);
  } else {
    choice.kernel = "attention_decode";
    choice.which = shape.has_runs ? AttentionKernel::kDecodeRuns : AttentionKernel::kDecode;
    (shape.has_runs ? lay_out_decode_runs : lay_out_decode)(shape, inputs.device, &choice);
  }
  add(std::move(choice), op, shape, out);
}

}  // namespace

Status choose(const PagedAttention& op, const OpList& list, const CompileInputs& inputs, Launches* out) {
  if (Status status = check(op, inputs); !status) return status;
  const AttentionShape shape{inputs.pools[op.kv_group].seen_by(op.num_kv_heads),
                             op.num_heads,
                             op.head_dim,
                             list.num_tokens,
                             list.decode_only,
                             list.has_runs};
  const bool prompts_alone = op.value_dim > 0;
  const bool by_ring = !prompts_alone && can_attend_by_ring(shape, inputs.device);
  if (!list.decode_only)
    if (Status status = add_prompt(op, shape, inputs.device, out); !status) return status;
  if (!prompts_alone) add_decode(op, shape, by_ring, inputs, out);
  if (list.decode_only && by_ring) return {};
  AttentionChoice merge;
  merge.kernel = "attention_merge";
  merge.which = AttentionKernel::kMerge;
  merge.prompts_alone = by_ring;
  lay_out_merge(shape, inputs.device, &merge);
  add(std::move(merge), op, shape, out);
  return {};
}

}  // namespace llmrt::cuda
