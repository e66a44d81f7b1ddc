// Ops of multi-head latent attention (DeepSeek-V2): the cache holds one row a token for all heads, c numbers of a
// normed latent and r numbers that turn with the position. With W_k and W_v, which make a head's keys and values from a
// latent,
//   score = (W_k l) . q_nope + k_rope . q_rope = l . (W_k^T q_nope) + k_rope . q_rope   and   out = W_v sum(weight *
//   l),
// so keys are never made: queries become as long as the cache's rows (HeadMatmul, LatentRows), all heads of a token
// read the same rows (LatentAttention), and what they sum up becomes values (HeadMatmul). That is the absorbed form.
// Rows of many tokens may make keys and values for all heads instead, which costs less for so many queries
// (ExpandLatent, core/attention/expanded_rows.h). Plain structs, as ops.h has them. Source: DeepSeek-V2 (arXiv
// 2405.04434), section 2.1; Hugging Face transformers' deepseek_v2.
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
  TensorId query;        // out [T, num_heads * (rank + rope_dim)] f32: of each head the last rope_dim numbers
  bool turns_q = false;  // the last numbers of q's heads are turned in q, too: for expanded keys
};

// Each head's first numbers times a matrix of its own: out[t, h, :N] = W_h x[t, h, :K], with heads of x and of out as
// long as their tensors have columns for. Numbers of `out` behind the first N of a head stay.
struct HeadMatmul {
  TensorId x;     // [T, num_heads * at least K] f32, f16 or bf16
  int32_t group;  // WeightGroupId [num_heads * N, K]: the rows of one head after the other, without a bias
  uint32_t num_heads;
  TensorId out;                // [T, num_heads * at least N] f32, f16 or bf16
  bool fills_out = false;      // heads of `out` have N numbers: it is written whole
  bool absorbed_only = false;  // of the first ForwardInputs::num_absorbed tokens; others may be written or not
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

// The expanded form, for rows of many tokens: keys and values of heads [head_first, + num_heads) are made from the
// latents of the step's expand items, in f16, [W_k l ; k_rope] and W_v l, into a pool whose blocks hold keys of those
// heads until the next ExpandLatent. PagedAttention with a value_dim reads them.
struct ExpandLatent {
  int32_t key_group;         // WeightGroupId [heads * nope, rank]: the rows of one head after the other
  int32_t value_group;       // WeightGroupId [heads * value_dim, rank]
  uint32_t kv_group, layer;  // of the latents
  uint32_t expanded_group;   // of the pool that is written (KvGroup::is_expanded), which has one layer
  uint32_t head_first, num_heads;
  uint32_t nope, rank, rope_dim, value_dim;
  KvTensorScales scales = {};

  uint32_t row_dim() const { return rank + rope_dim; }
  uint32_t key_dim() const { return nope + rope_dim; }  // of the pool; values are as long, their ends unspecified
};

}  // namespace llmrt
