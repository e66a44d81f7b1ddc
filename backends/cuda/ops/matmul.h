// The ways to multiply one run of a weight group; ops/matmul.cu chooses. Each writes out[r][n] = x[r] * W[n] + bias[n]
// for the live rows r and the run's N rows n.
#pragma once

#include <algorithm>

#include "backends/cuda/op_context.h"
#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace llmrt::cuda {

// out = x / sqrt(mean(x^2) + eps) * weight, of one row.
struct RowNorm {
  const float* x = nullptr;  // [columns], or null: no norm
  const float* weight = nullptr;
  float eps = 0;
};

struct MatmulArgs {
  PackedMatrix weight;
  const void* x = nullptr;  // [num_rows, weight.columns] x_dtype
  DType x_dtype = DType::kF16;
  const float* bias = nullptr;  // of the run, or null
  float* out = nullptr;         // [num_rows, out_stride], at the run's first column
  uint32_t out_stride = 0;
  uint32_t num_rows = 0;                      // of the bucket
  const uint32_t* live = nullptr;             // device memory: how many of them are live
  Activation activation = Activation::kSilu;  // of MatmulResult::kGated
  RowNorm norm;                               // what makes x, which is then not there; see can_stream_normed
};

// Any encoding, any float x, any shape; products and sums in f32 from exactly dequantised numbers. Slow.
Status matmul_exact(const MatmulArgs& args, const OpContext& at);
// What the products become, beside f32 in their place.
enum class MatmulResult : uint8_t {
  kF32,
  kF16,    // `out` points to f16; no bias
  kAdded,  // to what `out` holds
  kGated   // activation(first half of the outputs) * second half, in f16, as many as one half: `out` points to that
};
// f16 x, columns a multiple of 8, weights in f16 or quantised, as the following. matmul_vector is made for 1..8 rows,
// where matmul_stream cannot, matmul_skinny for up to 64; both take more, at the price of reading the weights again.
Status matmul_vector(const MatmulArgs& args, const OpContext& at);
Status matmul_skinny(const MatmulArgs& args, const OpContext& at);
// f16 and quantised weights, up to 8 rows, the latter up to 16 where rows of W are short, where can_stream says so;
// the result is not kF16.
bool can_stream(const PackedMatrix& weight, uint32_t rows, const OpContext& at);
Status matmul_stream(const MatmulArgs& args, MatmulResult result, const OpContext& at);
// One row, which matmul_stream makes by MatmulArgs::norm, to the bits of rms_norm.
bool can_stream_normed(const PackedMatrix& weight, const OpContext& at);
// The part of both for quantised weights.
bool can_stream_packed(const PackedMatrix& weight, uint32_t rows, const OpContext& at);
bool can_stream_packed_normed(const PackedMatrix& weight, const OpContext& at);
Status matmul_stream_packed(const MatmulArgs& args, MatmulResult result, const OpContext& at);
// Quantised weights, made for 9 rows and more, up to 64 or 48 where can_batch says so; the result is not kF16.
bool can_batch(const PackedMatrix& weight, uint32_t rows, const OpContext& at);
Status matmul_batch(const MatmulArgs& args, MatmulResult result, const OpContext& at);
// The part of it for many rows, where the device has warpgroups.
Status matmul_batch_groups(const MatmulArgs& args, MatmulResult result, const OpContext& at);
// Quantised weights, where the device has warpgroups; made for 65 rows and more. The result is not kGated.
Status matmul_decoded(const MatmulArgs& args, MatmulResult result, const OpContext& at);
// f16 weights, gate and other half, no bias; made for the numbers of rows for which can_gate says so. The result is what
// kGated says.
bool can_gate(const PackedMatrix& weight, uint32_t rows, const OpContext& at);
Status matmul_gated(const MatmulArgs& args, const OpContext& at);
// Many rows through cuBLAS, which must be there; quantised weights are first written out in f16, a slice at a time.
Status matmul_wide(const MatmulArgs& args, MatmulResult result, const OpContext& at);
// Quantised weights to f16 [rows, columns], each number rounded once; columns are a multiple of 8.
Status write_f16(const PackedMatrix& weight, void* out, const OpContext& at);

inline constexpr uint32_t kSplitsMax = 8;  // what every device takes as a cluster
// How many blocks of a cluster share the steps of an output tile, so that `blocks` tiles make up to `wanted` blocks: at
// least 1, and 2 steps for each.
inline uint32_t num_splits(uint32_t columns, uint32_t blocks, uint32_t wanted) {
  constexpr uint32_t kStepsMin = 2;
  return std::max(1u, std::min({wanted / blocks, ceil_div(columns, kStep) / kStepsMin, kSplitsMax}));
}

// fn.template operator()<E>() for a quantised encoding.
template <class Fn>
auto with_quantized(Encoding encoding, Fn fn) {
  switch (encoding) {
    case Encoding::kQ4_0:
      return fn.template operator()<Encoding::kQ4_0>();
    case Encoding::kQ4_1:
      return fn.template operator()<Encoding::kQ4_1>();
    case Encoding::kQ5_0:
      return fn.template operator()<Encoding::kQ5_0>();
    case Encoding::kQ5_1:
      return fn.template operator()<Encoding::kQ5_1>();
    case Encoding::kQ8_0:
      return fn.template operator()<Encoding::kQ8_0>();
    case Encoding::kQ4_K:
      return fn.template operator()<Encoding::kQ4_K>();
    case Encoding::kQ5_K:
      return fn.template operator()<Encoding::kQ5_K>();
    default:
      LLMRT_CHECK(encoding == Encoding::kQ6_K, "matmul: weights of an encoding that is not quantised");
      return fn.template operator()<Encoding::kQ6_K>();
  }
}

// The same for an encoding that a Fragment exists for.
template <class Fn>
Status with_encoding(Encoding encoding, Fn fn) {
  if (encoding == Encoding::kF16) return fn.template operator()<Encoding::kF16>();
  if (is_quantized(encoding)) return with_quantized(encoding, fn);
  return make_error(ErrorCode::kUnsupported, "matmul: {} weights have no f16 form", encoding_name(encoding));
}

}  // namespace llmrt::cuda
