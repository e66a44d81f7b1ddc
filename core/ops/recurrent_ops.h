// Ops of recurrent layers: short convolutions, the gated delta rule, Mamba-2's scan, and the norm behind these. Plain
// structs, as ops.h has them.
//
// Ops with a state read the tokens of each row in their order. The state before a row's first token is 0 at position 0,
// and elsewhere what a record of a group of states holds: the row's own (entry 0 of its table), or the one that a
// StatePlace of the row at its start names. The state behind the row's last token becomes its own record; other places
// of the row get the state at theirs (step_inputs.h). Records that are not named keep their bits. How rows are cut into
// steps changes no number by more than its rounding.
#pragma once

#include <cstdint>

#include "core/ops/tensor.h"

namespace llmrt {

// A running sum over the tokens of each row, the least that needs a state: state += x[t] in the order of the tokens,
// out[t] = state. Tests run it; no device has a kernel for it.
struct RunningSum {
  TensorId x;                // [T, D] f32
  uint32_t kv_group, layer;  // layer counts inside the group
  TensorId out;              // [T, D] f32
};

// The columns from `first` on of a tensor, as many as the op reads: one matmul may make all that a layer projects.
struct Columns {
  TensorId tensor = kNoTensor;
  uint32_t first = 0;
};

// The numbers of a record that are an op's state in a layer: those from `first` on, a multiple of 4, as is the number
// of a record. So ops of one layer share a record.
struct StatePart {
  uint32_t kv_group, layer;  // layer counts inside the group
  uint32_t first = 0;
  uint32_t ring_tokens = 0;  // of gated_delta and selective_scan: 0, or kRingTokens
};

// Matrices with a ring are written at multiples of kRingTokens alone: a step that decodes reads them, and writes what
// its token adds. In the record of a row that has computed positions [0, end), with base = end rounded down to a
// multiple of kRingTokens,
//   - the matrices are those behind [0, base); at base 0 they are zeros that nobody reads or writes;
//   - behind them lie the entries of positions base <= p < end: a key k of each key head, a value d and a decay g of
//     each head. From base on, the matrix behind a position p is S_p = g_p S_(p-1) + k_p d_p^T.
// Which entries count depends on `end` alone: a record is one wherever it lies, and a row may go back to an earlier end
// with the same base without a copy. All other numbers of a ring are any, and keep their bits. A StatePlace behind a
// row's start is at a multiple of kRingTokens: its matrices alone are written.
//
// keys [key_heads][kRingKeys][key_dim], values [heads][kRingTokens - 1][value_dim], decays [heads][kRingKeys], one
// behind the other: keys and decays of position p at p % kRingKeys, values at p % kRingTokens.
inline constexpr uint32_t kRingTokens = 16;
// Threads of several columns or heads read keys and decays. In rows of so many tokens no entry that is written lies
// where another thread may yet read; longer ones write theirs when all have read.
inline constexpr uint32_t kRingRowTokens = 4;
inline constexpr uint32_t kRingKeys = kRingTokens + kRingRowTokens;

// So many of a row's last tokens can be taken back: the row's next step goes on from the earlier end. The host sees to
// it that none of them lies at the last position of a run of kRingTokens, where matrices are written.
inline constexpr uint32_t kStateBackTokens = kRingRowTokens - 1;

struct StateRing {
  uint32_t heads, key_heads, key_dim, value_dim;

  // All from the first number behind the matrices on.
  constexpr uint64_t keys(uint32_t key_head, uint32_t position) const {
    return (uint64_t{key_head} * kRingKeys + position % kRingKeys) * key_dim;
  }
  constexpr uint64_t values(uint32_t head, uint32_t position) const {
    return keys(key_heads, 0) + (uint64_t{head} * (kRingTokens - 1) + position % kRingTokens) * value_dim;
  }
  constexpr uint64_t decay(uint32_t head, uint32_t position) const {
    return values(heads, 0) + uint64_t{head} * kRingKeys + position % kRingKeys;
  }
  constexpr uint64_t numbers() const { return decay(heads, 0); }
  constexpr uint64_t matrix_numbers() const { return uint64_t{heads} * key_dim * value_dim; }
  constexpr uint64_t entry_numbers() const { return uint64_t{key_heads} * key_dim + uint64_t{heads} * (value_dim + 1); }
};

inline constexpr uint32_t kConvWidthMax = 8;

// Numbers of a channel in the state of a convolution: with as many tokens taken back as can be, it yet has the last
// width - 1 inputs in front of the end.
constexpr uint32_t conv_slots(uint32_t width) {
  return width - 1 + kStateBackTokens;
}

// Depthwise causal convolution: with u = x, or x * gate_in elementwise, c[t] = bias + sum over j < width of weight[:,
// j] * u[t - (width - 1) + j], u of earlier positions from the state and 0 before position 0; out[t] = c, silu(c) or
// c * gate_out[t] (Mamba, Gated DeltaNet: silu; LFM2: both gates).
//
// State [conv_slots(width), C]: u of position p in row p % conv_slots(width). Behind a row's `end` those of the width
// - 1 positions in front of it count, and no others. A row leaves in its own record what its last conv_slots tokens
// give, and where it began from another record what counted there; at other places it leaves what counts there. All
// other numbers keep their bits.
struct CausalConv {
  Columns x;         // [T, C] f32
  Columns gate_in;   // [T, C] f32, or kNoTensor
  Columns gate_out;  // [T, C] f32, or kNoTensor
  int32_t weight;    // WeightId [C, width] f32; the last is the current token's
  int32_t bias;      // WeightId [1, C] f32, or -1
  uint32_t width;    // 2 to kConvWidthMax
  bool silu;
  StatePart state;
  TensorId out;  // [T, C] f32, f16 or bf16
};

// Which key head a value head h of a gated delta rule reads, with r value heads a key head: h / r (Qwen3-Next), or h
// modulo the number of key heads (Qwen3.5 as GGUF files order it).
enum class KeyHeadOrder : uint8_t { kDivided, kModulo };

// What devices' kernels take of key_dim, value_dim, state_dim and head_dim below.
inline constexpr uint32_t kStateDimMax = 256;

// The gated delta rule (Yang, Kautz, Hatamizadeh: Gated Delta Networks, 2024), per value head with state S [key_dim,
// value_dim]: decay g = exp(a * softplus(alpha + dt_bias)), beta = sigmoid(beta); S = g S; d = beta (v - S^T k); S = S
// + k d^T; out = S^T q * scale. With normalise, q and k are divided by sqrt(sum of squares + eps) before. State
// [value_heads, key_dim, value_dim]. A ring keeps k as it is in qkv, and d divided by what k is divided by.
struct GatedDelta {
  Columns qkv;          // [T, 2 key_heads key_dim + value_heads value_dim] f32: q | k | v, heads one behind the other
  Columns alpha, beta;  // [T, value_heads] f32
  int32_t a;            // WeightId [1, value_heads] f32: -exp(A_log), not above 0
  int32_t dt_bias;      // WeightId [1, value_heads] f32
  uint32_t key_heads, value_heads, key_dim, value_dim;  // dims: multiples of 4
  KeyHeadOrder order;
  // Alphas and betas of the value heads of a key head lie together, those of the next key head as many columns again
  // further on: a projection of runs of betas and of alphas in turn (Qwen3-Next). Needs kDivided.
  bool gates_in_turn;
  bool normalise;
  float eps;
  float scale;
  StatePart state;
  TensorId out;  // [T, value_heads value_dim] f32
};

// Mamba-2's scan (Dao, Gu: Transformers are SSMs, 2024), per head with state S [state_dim, head_dim]: dt =
// clamp(softplus(dt + dt_bias), dt_min, dt_max); S = exp(a dt) S + B (dt x)^T; out = S^T C + d x. Heads h of a group, h
// / (num_heads / num_groups), share B and C. State [num_heads, state_dim, head_dim]: in that order, which is the delta
// rule's, B and C are its k and q, dt x its d.
struct SelectiveScan {
  Columns x;                                            // [T, num_heads head_dim] f32
  Columns b, c;                                         // [T, num_groups state_dim] f32
  Columns dt;                                           // [T, num_heads] f32
  int32_t dt_bias;                                      // WeightId [1, num_heads] f32
  int32_t a;                                            // WeightId [1, num_heads] f32: -exp(A_log), not above 0
  int32_t d;                                            // WeightId [1, num_heads] f32, or -1
  uint32_t num_heads, head_dim, num_groups, state_dim;  // dims: multiples of 4
  float dt_min, dt_max;                                 // finite, not below 0
  StatePart state;
  TensorId out;  // [T, num_heads head_dim] f32
};

constexpr StateRing ring_of(const GatedDelta& op) {
  return {op.value_heads, op.key_heads, op.key_dim, op.value_dim};
}
constexpr StateRing ring_of(const SelectiveScan& op) {
  return {op.num_heads, op.num_groups, op.state_dim, op.head_dim};
}

// Numbers of a record that the states of these ops take.
constexpr uint64_t state_numbers(uint32_t columns, const CausalConv& op) {
  return uint64_t{conv_slots(op.width)} * columns;
}
template <class Op>
constexpr uint64_t state_numbers(const Op& op) {
  return ring_of(op).matrix_numbers() + (op.state.ring_tokens > 0 ? ring_of(op).numbers() : 0);
}

// RMS norm of each run of group_columns numbers of a row, and a gate: with gate_first out = norm(x * silu(gate)) *
// weight (Mamba-2), else out = norm(x) * weight * silu(gate) (Gated DeltaNet).
struct GatedNorm {
  TensorId x;              // [T, C] f32
  Columns gate;            // [T, C] f32
  int32_t weight;          // WeightId [1, C] f32, or [1, group_columns], which all groups share
  uint32_t group_columns;  // divides C
  float eps;
  bool gate_first;
  TensorId out;  // [T, C] f32, f16 or bf16
};

}  // namespace llmrt
