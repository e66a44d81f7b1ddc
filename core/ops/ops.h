// Every op, one struct each, at the height of a language model. An Op is a std::variant, so a missing kernel shows at
// build time. The field names are also the kernel parameters, the push constants and the tests' variables.
//
// T = tokens of the step, S = sequences (row records), R = sampled rows, V = vocabulary. Kernels read the live counts
// from the step's inputs (step_inputs.h) and skip padding rows; padding rows of outputs are unspecified. Where an
// input's dtype is not f32 its numbers were rounded by the op that wrote it; accumulation is f32 or better everywhere.
// The meaning of each op, in float64, is its run() in tests/reference. What a new op edits: tests/ops/README.md.
#pragma once

#include <cstdint>
#include <variant>

#include "core/ops/adapter_ops.h"
#include "core/ops/latent_ops.h"
#include "core/ops/recurrent_ops.h"
#include "core/ops/tensor.h"

namespace llmrt {

// ---- rows: state on the device, by slot (row_state.h) -------------------------------------------------------------

// Applies the step's RowUpdate commands in order. The only way the host changes row state.
struct UpdateRows {};

// From row records and row state: token ids, positions, the slot of each token's row and the place of each token in the
// pool of each KV group, for T tokens. Only reads row state. Padding tokens get token 0, position 0, row slot -1,
// kv_slots -1.
struct PrepareRows {
  TensorId tokens;        // out [T, 1] i32
  TensorId positions;     // out [T, 1] i32
  TensorId row_slots;     // out [T, 1] i32: slot of the token's row, -1 = padding
  GroupTensors kv_slots;  // out [T, 1] i32 each: block * block_tokens + offset in the pool, -1 = nothing to write
};

// ---- forward -------------------------------------------------------------------------------------------------------

// out[t] = weight[tokens[t]] (dequantised).
struct Embed {
  TensorId tokens;  // [T, 1] i32
  int32_t weight;   // WeightId [V, D]
  TensorId out;     // [T, D] f32
};

// x += delta (when there is one, in place); out = x / sqrt(mean(x^2) + eps) * weight.
struct RmsNorm {
  TensorId x;      // [T or R, D] f32, in/out when delta is given
  TensorId delta;  // [T or R, D] f32 or kNoTensor
  int32_t weight;  // WeightId [1, D] f32
  float eps;
  TensorId out;  // [T or R, D] f32, f16 or bf16
};

// out = x * W^T + bias, W the stacked segments of a weight group.
struct Matmul {
  TensorId x;     // [T or R, K]
  int32_t group;  // WeightGroupId [N, K], bias with the group
  TensorId out;   // [T or R, N] f32
};

// Ops that add what adapters change: adapter_ops.h.

// In place, per head of q and of k: RMS norm over head_dim (Qwen3); of v too where it has a weight (Gemma 4). In this
// op and the two below num_kv_heads may be 0: a layer that reads the keys and values of another one has q alone.
struct QkNorm {
  TensorId qkv;      // [T, (num_heads + 2 num_kv_heads) * head_dim] f32, in/out
  int32_t q_weight;  // WeightId [1, head_dim] f32
  int32_t k_weight;  // WeightId [1, head_dim] f32
  uint32_t num_heads, num_kv_heads, head_dim;
  float eps;
  int32_t v_weight = -1;  // WeightId [1, head_dim] f32; -1 = v stays
};

// In place: RMS norm of all numbers of q together, and of all those of k (OLMo 2).
struct JoinedQkNorm {
  TensorId qkv;      // as QkNorm, in/out
  int32_t q_weight;  // WeightId [1, num_heads * head_dim] f32
  int32_t k_weight;  // WeightId [1, num_kv_heads * head_dim] f32; not read where there are no keys
  uint32_t num_heads, num_kv_heads, head_dim;
  float eps;
};

// In place, q and k: pair i turned by positions[t] * freqs[i]; numbers beyond rope_dim stay. Scaling rules (llama3,
// YaRN, linear) are in freqs and magnitude.
struct Rope {
  TensorId qkv;        // as QkNorm, in/out
  TensorId positions;  // [T, 1] i32
  int32_t freqs;       // WeightId [1, rope_dim / 2] f32, radians per position
  uint32_t num_heads, num_kv_heads, head_dim, rope_dim;
  RopePairing pairing;
  float magnitude;  // factor on cos and sin (YaRN), else 1
};

// Stores k and v of each token at kv_slots[t] of the layer, quantised to the pool's dtype.
struct KvWrite {
  TensorId qkv;
  TensorId kv_slots;         // [T, 1] i32
  uint32_t kv_group, layer;  // layer counts inside the group
  uint32_t num_heads, num_kv_heads, head_dim;
  KvTensorScales scales = {};
};

// Causal attention of the step's query tokens over their rows' blocks of one KV group, driven by the group's work
// lists. out[t, h] = softmax over keys j <= positions[t] (and > positions[t] - window) of q.k * scale, times v. With
// soft_cap c > 0 scores become c * tanh(s / c). A sink is one more score of a head, not scaled and not capped: it takes
// part in the softmax and adds no value (gpt-oss). A token that sees no key has 0.
struct PagedAttention {
  TensorId qkv;
  TensorId out;  // [T, num_heads * head_dim] f32, f16 or bf16
  uint32_t kv_group, layer;
  uint32_t num_heads, num_kv_heads, head_dim;
  float scale;
  uint32_t window;  // 0 = all
  float soft_cap;   // 0 = none
  KvTensorScales scales = {};
  int32_t sinks = -1;         // WeightId [1, num_heads] f32; -1 = none
  bool queries_only = false;  // qkv is q alone, [T, num_heads * head_dim]: another layer has written the keys
  // Above 0: over the keys that ExpandLatent made for heads [head_first, + num_heads) of q, [T, all heads * head_dim].
  // There are prompt items alone; of `out`, [T, all heads * value_dim], the heads of their tokens are written.
  uint32_t value_dim = 0, head_first = 0;
};

// Ops of latent attention: latent_ops.h. Ops of recurrent layers: recurrent_ops.h.

// ---- feed-forward --------------------------------------------------------------------------------------------------

// What a gate g and the other half u become: silu(g) u, gelu(g) u in the tanh form, and gpt-oss's clamped form, with g
// = min(g, 7) and u = clamp(u, -7, 7): g sigmoid(1.702 g) (u + 1). The squared ReLU, max(g, 0)^2, has no other half.
enum class Activation : uint8_t { kSilu, kGelu, kClampedSilu, kSquaredRelu };
constexpr bool has_other_half(Activation activation) {
  return activation != Activation::kSquaredRelu;
}

// out = activation(x[:, :F], x[:, F:]), or activation(x).
struct GatedActivation {
  TensorId x;  // [T or R, 2F] f32; [T or R, F] without another half
  Activation activation;
  TensorId out;  // [T or R, F] f32, f16 or bf16
};

// How a row's scores of experts become probabilities. kSoftmaxOfChosen: the scores choose as they are, and a softmax
// over the chosen ones makes the weights.
enum class ExpertScoring : uint8_t { kSoftmax, kSigmoid, kSoftmaxOfChosen, kSqrtSoftplus };

// What devices' kernels take: experts of a layer, shared ones among them, and those that a row goes to.
inline constexpr uint32_t kExpertsMax = 1024;
inline constexpr uint32_t kExpertsUsedMax = 32;

// What RouteExperts does with scores beside ExpertScoring.
struct RoutingRule {
  ExpertScoring scoring = ExpertScoring::kSoftmax;
  bool renormalise = false;  // weights are divided by max(their sum, 2^-14)
  float scale = 1;           // factor on the weights, behind that
  // Experts in `groups` equal runs: the groups_used runs with the largest sums of their two best selection scores may
  // be chosen from. 1: all.
  uint32_t groups = 1, groups_used = 1;
  uint32_t num_shared = 0;  // experts beyond those that are chosen, which every row goes to
  bool operator==(const RoutingRule&) const = default;
};

// Which experts a row goes to, and with which weights, all in f32. scores = x W^T + bias; probabilities by the rule's
// scoring; selection score = probability + correction; the best of the rows that `groups` leave are chosen, ties by
// lower id; weights are the probabilities of the chosen, without correction. A row has k = OpList::routed_per_row
// routed rows: the k - num_shared chosen experts from the best selection score on, then the shared ones E, E + 1, ...,
// each of weight 1, or of sigmoid(x . shared_gate). A row with a score that is not a number has experts 0, 1, ... and
// weights that are not numbers. (Mixtral, Qwen3-MoE, gpt-oss, DeepSeek-V3; Hugging Face transformers.)
struct RouteExperts {
  TensorId x;           // [T or R, D] f32
  int32_t weight;       // WeightId [E, D] f32
  int32_t bias;         // WeightId [1, E] f32, or -1
  int32_t correction;   // WeightId [1, E] f32, or -1
  int32_t shared_gate;  // WeightId [1, D] f32, or -1
  RoutingRule rule;
  TensorId ids;      // out [K, 1] i32
  TensorId weights;  // out [K, 1] f32
};

// out[k] = activation(W_gate[e] x[k / routed_per_row], W_up[e] x[...]) with e = ids[k]; each product with its bias,
// and with its number of `term`.
struct ExpertGateUp {
  TensorId x;    // [T or R, D] f32
  TensorId ids;  // [K, 1] i32, each below num_experts
  // WeightGroupId [2 num_experts F, D]: the gate rows of all experts, then the up rows of all; by_expert: gate rows,
  // then up rows, of one expert after the other. Where the activation has no other half [num_experts F, D]: one
  // expert's rows after the other's.
  int32_t group;
  uint32_t num_experts;
  bool by_expert;
  Activation activation;
  TensorId out;               // [K, F] f32, f16 or bf16
  TensorId term = kNoTensor;  // [K, 2F] f32, of the gate products and then of the others; [K, F] without another half
};

// out[t] = sum over t's routed rows k, in their order, of weights[k] * (W_down[ids[k]] x[k] + bias).
struct ExpertDown {
  TensorId x;        // [K, F] f32, f16 or bf16
  TensorId ids;      // [K, 1] i32, each below num_experts
  TensorId weights;  // [K, 1] f32
  int32_t group;     // WeightGroupId [num_experts D, F]: the rows of one expert after the other
  uint32_t num_experts;
  TensorId out;  // [T or R, D] f32
};

// out = a + b.
struct Add {
  TensorId a, b, out;  // [T or R, D] f32
};

// out = x * factor.
struct Scale {
  TensorId x;  // [T or R, D] f32
  float factor;
  TensorId out;  // [T or R, D] f32, f16 or bf16
};

// out = cap * tanh(x / cap).
struct SoftCap {
  TensorId x;
  float cap;     // above 0
  TensorId out;  // [T or R, D] f32
};

// out = x * sigmoid(gate).
struct SigmoidGate {
  TensorId x, gate;  // [T or R, D] f32
  TensorId out;      // [T or R, D] f32, f16 or bf16
};

// out[r] = x[sample_records[r].token_idx].
struct GatherRows {
  TensorId x;    // [T, D] f32
  TensorId out;  // [R, D] f32
};

// ---- sample: R rows, each a SampleRecord; per-row parameters live in the row state --------------------------------
// A row whose flags ask for penalties or bias is copied from `logits` to `processed` by ApplyPenalties; every later op
// reads `processed` for such rows and `logits` for the others (RowFlags, row_state.h). `logits` is never changed.

// repetition (divides positive, multiplies negative logits of tokens in prompt or output), then presence and frequency
// (tokens in the output). Copies the row even when only bias is asked for.
struct ApplyPenalties {
  TensorId logits, processed;  // [R, V] f32
};

// Adds the step's BiasEntries (-inf bans a token).
struct ApplyBias {
  TensorId processed;  // [R, V] f32, in/out
};

// What may be drawn: temperature, then top-n-sigma (l >= max - n * the standard deviation of the logits that are not
// -inf), top-k (ties at rank k by lower id), top-p (of what those left; keeps the token that crosses p, never drops
// rank 1), min-p. Greedy rows (temperature 0) keep rank 1 alone. The kept set is {v : l > cutoff or (l == cutoff and id
// <= cutoff_id)}.
struct Filter {
  TensorId logits, processed;  // [R, V] f32
  TensorId kept;               // out [R, 8] i32 words: FilterResult of step_inputs.h
};

// Draws argmax over the kept set of l / temperature + Gumbel(seed, branch, output position, token) (greedy: argmax l,
// lowest id first); writes SampleResult and, for rows that sample, last token and output counts of the row state.
struct Sample {
  TensorId logits, processed;
  TensorId kept;  // [R, 8]
};

// For rows that ask for it: log-softmax of the raw logits of the chosen (or forced) token, and the best kLogprobsMax
// alternatives with theirs, into the step's result. With kSampleProcessed the alternatives are those of the
// distribution that was drawn from: the best of the kept set (greedy: the one token, 0).
struct Logprobs {
  TensorId logits, processed;
  TensorId kept;  // [R, 8]
};

// ---- memory --------------------------------------------------------------------------------------------------------

// Copies KV blocks, whole or the first tokens of one (all layers): the step's block_copies of the group. A group of
// states has records in place of blocks, which all three ops move whole.
struct CopyBlocks {
  uint32_t kv_group;
};

// Copies whole KV blocks (all layers) from the pool to the group's host pool, and back: the step's block_stores and
// block_loads of the group. Nothing is done where there is no host pool.
struct StoreBlocks {
  uint32_t kv_group;
};
struct LoadBlocks {
  uint32_t kv_group;
};

using Op =
    std::variant<UpdateRows, PrepareRows, Embed, RmsNorm, Matmul, AdapterShrink, AdapterExpand, ExpertShrink,
                 ExpertTerm, ExpertExpand, QkNorm, JoinedQkNorm, Rope, KvWrite, PagedAttention, LatentRows, HeadMatmul,
                 LatentAttention, ExpandLatent, RunningSum, CausalConv, GatedDelta, SelectiveScan, GatedNorm,
                 GatedActivation, RouteExperts, ExpertGateUp, ExpertDown, Add, Scale, SoftCap, SigmoidGate, GatherRows,
                 ApplyPenalties, ApplyBias, Filter, Sample, Logprobs, CopyBlocks, StoreBlocks, LoadBlocks>;
inline constexpr int kNumOps = std::variant_size_v<Op>;

const char* op_name(const Op& op);  // lower snake case, e.g. "rms_norm"
const char* op_name(int op_index);  // by index in the variant

}  // namespace llmrt
