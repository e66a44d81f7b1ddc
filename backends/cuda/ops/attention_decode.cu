// paged_attention of decode items (attention_decode.cuh), where each has one token, and the merge of splits.
#include "backends/cuda/ops/attention_decode.cuh"
#include "backends/cuda/ops/attention_merge.cuh"

namespace llmrt::cuda {
namespace {

// The merge: one warp a (query token, head); splits in their order.
constexpr uint32_t kMergeWarps = 4, kMergedAtOnce = 4;

__global__ void __launch_bounds__(kMergeWarps* kWarp) merge_partials_kernel(AttentionArgs args, bool prompts_alone) {
  const MergeItem* items = input_array<MergeItem>(args.inputs, kFwdMerges);
  const uint32_t num_works = args.inputs[kFwdNumMerges] * args.num_heads;
  const uint32_t warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  uint32_t work = blockIdx.x * kMergeWarps + warp;
  MergeItem item{};
  if (work < num_works) item = items[work / args.num_heads];
  grid_dependency_wait();
  while (work < num_works) {
    const MergeItem now = item;
    const uint32_t head = work % args.num_heads;
    work += gridDim.x * kMergeWarps;
    if (work < num_works) item = items[work / args.num_heads];
    if (prompts_alone && !now.is_prompt) continue;
    for (uint32_t dim = lane * 4; dim < args.value_dim; dim += kWarp * 4)
      merge_splits<kMergedAtOnce>(args, now, head, dim);
  }
}

}  // namespace

void lay_out_decode(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice) {
  decode_tiles::lay_out<false>(shape, device, choice);
}

Status attend_decode(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype, const OpContext& at) {
  return decode_tiles::attend<false>(choice, args, dtype, at);
}

void lay_out_merge(const AttentionShape& shape, const DeviceFacts& device, AttentionChoice* choice) {
  const uint32_t works = shape.num_tokens * shape.num_heads, blocks_sm = 2048 / (kMergeWarps * kWarp);
  choice->grid = {std::min(ceil_div(works, kMergeWarps), device.num_sms * blocks_sm)};
  choice->threads = kMergeWarps * kWarp;
}

Status merge_partials(const AttentionChoice& choice, const AttentionArgs& args, KvDType, const OpContext& at) {
  return launch(at, choice, merge_partials_kernel, args, choice.prompts_alone);
}

}  // namespace llmrt::cuda
