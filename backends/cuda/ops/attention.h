// The attention kernels and the merge; ops/paged_attention.cu prepares their arguments. Each walks its work list
// from the step's inputs on a grid that depends on the device alone; an empty list leaves at once.
#pragma once

#include "backends/cuda/op_context.h"
#include "backends/cuda/paged.cuh"

namespace llmrt::cuda {

struct AttentionArgs {
  const uint32_t* inputs;
  const float* qkv;  // [T, (num_heads + 2 num_kv_heads) * head_dim]
  std::byte* out;    // [T, num_heads * head_dim] out_dtype
  DType out_dtype;
  uint32_t num_heads, head_dim, qkv_columns;
  KvLayer kv;
  float scale, soft_cap;
  uint32_t window;
  float* partial_values;  // [partial, num_heads, head_dim], not divided by the sum
  float* partial_sums;    // [partial, num_heads, 2]: maximum (of scores times log2 e), sum
};

Status attend_decode(const AttentionArgs& args, KvDType dtype, const OpContext& at);
// Merges its splits.
Status attend_decode_by_ring(const AttentionArgs& args, KvDType dtype, const OpContext& at);
bool can_attend_by_ring(const AttentionArgs& args, const OpContext& at);
Status attend_prompt(const AttentionArgs& args, KvDType dtype, const OpContext& at);
Status attend_prompt_by_warpgroups(const AttentionArgs& args, KvDType dtype,
                                   const OpContext& at);  // head_dim at most 128
Status merge_partials(const AttentionArgs& args, bool prompts_alone, const OpContext& at);

// fn.template operator()<D, kDims>(): D is kF8 for fp8-tensor, kDims = head_dim rounded up to what kernels are built
// for.
template <class Fn>
Status with_kv_type(KvDType dtype, uint32_t head_dim, Fn fn) {
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
    case KvDType::kF8Block:
      return with_dims.template operator()<KvDType::kF8Block>();
  }
  return make_error(ErrorCode::kUnsupported, "paged_attention: KV dtype {}", static_cast<int>(dtype));
}

}  // namespace llmrt::cuda
