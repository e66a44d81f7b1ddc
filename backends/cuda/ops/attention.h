// The attention kernels and the merge; ops/paged_attention.cu prepares their arguments. Each walks its work list
// from the step's inputs on a grid that depends on the device alone; with an empty list it ends at once.
#pragma once

#include "backends/cuda/op_context.h"
#include "backends/cuda/ops/attention_choice.h"
#include "backends/cuda/paged.cuh"
#include "core/base/check.h"

namespace llmrt::cuda {

struct AttentionArgs {
  const uint32_t* inputs;
  const float* qkv;  // [T, (num_heads + 2 num_kv_heads) * head_dim]
  std::byte* out;    // [T, out_columns] out_dtype; kernels but prompt tiles and merge have heads of head_dim there
  DType out_dtype;
  uint32_t num_heads, head_dim, qkv_columns;
  uint32_t value_dim, out_columns;  // numbers of a head and of a token that are written to `out`
  KvLayer kv;
  float scale, soft_cap;
  uint32_t window;
  const float* sinks;     // [num_heads], or null
  float* partial_values;  // [partial, num_heads, head_dim], not divided by the sum
  float* partial_sums;    // [partial, num_heads, 2]: maximum (of scores times log2 e), sum
};

// What the head's sink adds to the sum of all weights of a token, which are relative to `most` (of scores times log2
// e). Kept to what has an inverse in f32 behind a factor of 2^8.
__device__ inline float sink_weight(const AttentionArgs& args, uint32_t head, float most) {
  return args.sinks == nullptr ? 0.0f : exp2f(fminf(args.sinks[head] * kLog2E - most, 100.0f));
}

Status attend_decode(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype, const OpContext& at);
// Merges its splits.
Status attend_decode_by_ring(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype,
                             const OpContext& at);
// The same where items may have several tokens.
Status attend_runs(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype, const OpContext& at);
Status attend_runs_by_ring(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype,
                           const OpContext& at);
Status attend_prompt(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype, const OpContext& at);
// Heads of at most 128 numbers.
Status attend_prompt_by_warpgroups(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype,
                                   const OpContext& at);
Status merge_partials(const AttentionChoice& choice, const AttentionArgs& args, KvDType dtype, const OpContext& at);

// fn.template operator()<D, kDims>(): D is kF8 for fp8-tensor, kDims = head_dim rounded up to what kernels are built
// for.
template <class Fn>
auto with_kv_type(KvDType dtype, uint32_t head_dim, Fn fn) {
  const auto with_dims = [&]<KvDType D>() {
    if (head_dim <= 64) return fn.template operator()<D, 64>();
    if (head_dim <= 128) return fn.template operator()<D, 128>();
    return fn.template operator()<D, 256>();
  };
  switch (dtype) {
    case KvDType::kF16:
      return with_dims.template operator()<KvDType::kF16>();
    case KvDType::kBF16:
      return with_dims.template operator()<KvDType::kBF16>();
    case KvDType::kI8:
      return with_dims.template operator()<KvDType::kI8>();
    case KvDType::kF8:
    case KvDType::kF8Tensor:
      return with_dims.template operator()<KvDType::kF8>();
    case KvDType::kI8Block:
      return with_dims.template operator()<KvDType::kI8Block>();
    default:
      LLMRT_CHECK(dtype == KvDType::kF8Block, "paged_attention: a KV dtype without kernels");
      return with_dims.template operator()<KvDType::kF8Block>();
  }
}

}  // namespace llmrt::cuda
