// Ops of multi-head latent attention (DeepSeek-V2): the cache holds one row a token for all heads, c numbers of a
// normed latent and r numbers that turn with the position. With W_k and W_v, which make a head's keys and values from a
// latent,
//   score = (W_k l) . q_nope + k_rope . q_rope = l . (W_k^T q_nope) + k_rope . q_rope   and   out = W_v sum(weight *
//   l),
// so keys are never made: queries become as long as the cache's rows (HeadMatmul, LatentRows), all heads of a token
// read the same rows (LatentAttention), and what they sum up becomes values (HeadMatmul). Plain structs, as ops.h has
// them. Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1; Hugging Face transformers' deepseek_v2.
#pragma once

#include <cstdint>

#include "core/ops/tensor.h"

namespace llmrt {

// Which pairs of a head's numbers turn together: (2i, 2i+1) or (i, i + rope_dim / 2).
enum class RopePairing : uint8_t { kInterleaved, kHalves };

// The scales of one layer of an fp8-tensor pool: a stored number times its scale is the value. No other dtype reads
// them.
struct KvTensorScales {
  float k = 1, v = 1;
};

// What the device's kernels take of c and of c + r, each in multiples of 16.
inline constexpr uint32_t kLatentRankMax = 512, kLatentRowMax = 576;

// Stores each token's row of the cache at kv_slots[t] of the layer, quantised to the pool's dtype: the first `rank`
// numbers of kv normed by RMS, the rope_dim behind them turned. Turns the last rope_dim numbers of each head of q into
// the last ones of each head of `query`.
struct LatentRows {
  TensorId q;                // [T, num_heads * (nope + rope_dim)] f32
  TensorId kv;               // [T, rank + rope_dim] f32
  TensorId positions;        // [T, 1] i32
  TensorId kv_slots;         // [T, 1] i32
  int32_t norm;              // WeightId [1, rank] f32
  int32_t freqs;             // WeightId [1, rope_dim / 2] f32, radians per position
  uint32_t kv_group, layer;  // layer counts inside the group, whose heads have keys alone
  uint32_t num_heads, nope, rank, rope_dim;
  RopePairing pairing;
  float magnitude;  // factor on cos and sin
  float eps;
  KvTensorScales scales = {};
  TensorId query;  // out [T, num_heads * (rank + rope_dim)] f32: of each head the last rope_dim numbers
};

// Each head's first numbers times a matrix of its own: out[t, h, :N] = W_h x[t, h, :K], with heads of x and of out as
// long as their tensors have columns for. Numbers of `out` behind the first N of a head stay.
struct HeadMatmul {
  TensorId x;     // [T, num_heads * at least K] f32, f16 or bf16
  int32_t group;  // WeightGroupId [num_heads * N, K]: the rows of one head after the other, without a bias
  uint32_t num_heads;
  TensorId out;            // [T, num_heads * at least N] f32, f16 or bf16
  bool fills_out = false;  // heads of `out` have N numbers: it is written whole
};

// Causal attention of all heads over one row a key: scores = query . row * scale, values are the first `rank` numbers
// of the row. Driven by the group's work lists, as PagedAttention is.
struct LatentAttention {
  TensorId query;  // [T, num_heads * (rank + rope_dim)] f32
  TensorId out;    // [T, num_heads * rank] f32, f16 or bf16
  uint32_t kv_group, layer;
  uint32_t num_heads, rank, rope_dim;
  float scale;
  KvTensorScales scales = {};

  uint32_t row_dim() const { return rank + rope_dim; }
};

}  // namespace llmrt
