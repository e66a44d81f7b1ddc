// The kernels that multiply by one run of a weight group: out[r][n] = x[r] * W[n] + bias[n] for the live rows r and the
// run's N rows n. choose_matmul.cpp says which; each kernel's file has what it takes (can_x), its geometry (lay_out_x)
// and its launch (matmul_x), which does what the choice says.
#pragma once

#include <algorithm>

#include "backends/cuda/compile_inputs.h"
#include "backends/cuda/kernel_choice.h"
#include "backends/cuda/op_context.h"
#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace llmrt::cuda {

enum class MatmulKernel : uint8_t { kExact, kVector, kSkinny, kStream, kBatch, kDecoded, kGated };

// What the products become, beside f32 in their place.
enum class MatmulResult : uint8_t {
  kF32,
  kF16,    // `out` points to f16; no bias
  kAdded,  // to what `out` holds
  kGated   // activation(first half of the outputs) * second half, in f16, as many as one half: `out` points to that
};

// Where a lane of matmul_stream has its x. The first three are of 16-bit weights, the others of quantised ones.
enum class StreamX : uint8_t {
  kKept,
  kAhead,
  kNormedKept,
  kOneKept,
  kOneShared,
  kMoreKept,
  kMoreAhead,
  kTwoTilesKept,
  kNormed
};

struct MatmulChoice : KernelChoice {
  MatmulKernel which = MatmulKernel::kExact;
  MatmulResult result = MatmulResult::kF32;
  bool by_warpgroups = false;             // kBatch: else by warps
  uint32_t tile_rows = 0, tile_outs = 0;  // of x and of the outputs, per block
  uint32_t splits = 1;                    // of the columns, among blocks
  StreamX stream_x = StreamX::kKept;
  uint32_t sums_blocks = 0;  // kStream: blocks of x whose sums have room in shared memory
};

// What a kernel is chosen for.
struct MatmulShape {
  PackedMatrix weight;
  uint32_t num_rows = 0;  // of the bucket
  DType x_dtype = DType::kF16;
  bool has_norm = false;  // x is made by a norm
  bool batch_invariant = false;
};

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
  RowNorm norm;                               // what makes x, which then does not exist; see can_stream_normed
};

// Any encoding, any float x, any shape; products and sums in f32 from exactly dequantised numbers. Slow.
void lay_out_exact(const MatmulShape& shape, MatmulChoice* choice);
Status matmul_exact(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);
// f16 x, columns a multiple of 8, weights in f16 or quantised, as for all that follow. matmul_vector is made for 1 to 8
// rows, where matmul_stream cannot, matmul_skinny for up to 64 (tile_rows: 16, 32 or 64); both take more, and then read
// the weights again. Their results are f32.
void lay_out_vector(const MatmulShape& shape, MatmulChoice* choice);
Status matmul_vector(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);
void lay_out_skinny(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice);
Status matmul_skinny(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);
// f16 and quantised weights, up to 8 rows, the latter up to 16 where rows of W are short, where can_stream says so; the
// result is not kF16.
bool can_stream(const PackedMatrix& weight, uint32_t rows, const CompileInputs& inputs);
// One row, which matmul_stream makes by MatmulArgs::norm, to the bits of rms_norm.
bool can_stream_normed(const PackedMatrix& weight, const CompileInputs& inputs);
void lay_out_stream(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice);
Status matmul_stream(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);
// The part of these for quantised weights.
bool can_stream_packed(const PackedMatrix& weight, uint32_t rows, const CompileInputs& inputs);
bool can_stream_packed_normed(const PackedMatrix& weight, const DeviceFacts& device);
void lay_out_stream_packed(const MatmulShape& shape, const DeviceFacts& device, MatmulChoice* choice);
Status matmul_stream_packed(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);
// Quantised weights, made for 9 rows and more, as many as can_batch says; tile_rows: a multiple of 8 from 16 on, to 48
// by warps, to 64 by warpgroups. The result is not kF16.
bool can_batch(const PackedMatrix& weight, uint32_t rows, const DeviceFacts& device);
void lay_out_batch(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice);
Status matmul_batch(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);
// The part of these by the products of warpgroups.
void lay_out_batch_groups(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice);
Status matmul_batch_groups(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);
// Quantised weights, where the device has warpgroups; made for 65 rows and more (tile_rows: 64, 128 or 256). The result
// is not kGated.
void lay_out_decoded(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice);
Status matmul_decoded(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);
// f16 weights, gate and other half, no bias; made for the numbers of rows for which can_gate says so. The result is
// what kGated says.
bool can_gate(const PackedMatrix& weight, uint32_t rows, const CompileInputs& inputs);
void lay_out_gated(const MatmulShape& shape, const CompileInputs& inputs, MatmulChoice* choice);
Status matmul_gated(const MatmulChoice& choice, const MatmulArgs& args, const OpContext& at);

// Many rows go through cuBLAS, which must be there: f16 weights, the bias in a pass of its own. Quantised weights are
// written out in f16 first, a slice of rows at a time: [rows, columns], each number rounded once; columns are a
// multiple of 8.
KernelChoice choose_dequantize(const PackedMatrix& weight);
Status dequantize(const KernelChoice& choice, const PackedMatrix& weight, void* out, const OpContext& at);
Status matmul_cublas(MatmulResult result, const MatmulArgs& args, const OpContext& at);
KernelChoice choose_bias(const MatmulShape& shape);
Status add_bias(const KernelChoice& choice, const MatmulArgs& args, const OpContext& at);

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
    case Encoding::kMXFP4:
      return fn.template operator()<Encoding::kMXFP4>();
    case Encoding::kFP8:
      return fn.template operator()<Encoding::kFP8>();
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
