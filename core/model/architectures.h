// What sets one architecture apart from another: flags, a pattern of layers and tensor names. An architecture made of
// known parts is a row of the table in architectures.cpp and nothing else.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/model/layer.h"

namespace llmrt {

enum class Presence : uint8_t { kNever, kOptional, kAlways };

// Experts that every token goes to. kGated: one more expert like the others, whose weight is a gate of its own. kPlain:
// a dense part of any width, added to the others' sum.
enum class SharedExperts : uint8_t { kNone, kGated, kPlain };

struct Architecture {
  const char* name;  // general.architecture, and the prefix of its metadata keys
  RopePairing rope_pairing;
  bool qk_norm = false;           // per-head norms of q and k
  bool sinks = false;             // of attention, in every layer
  bool joined_qk_norm = false;    // with qk_norm: over all heads together
  bool v_norm = false;            // with qk_norm: of v too, without a weight
  bool output_gate = false;       // of attention
  bool may_lack_values = false;   // a layer without rows for v takes k for it
  bool divides_logits = false;    // by logit_scale; elsewhere a file that has it is refused
  bool has_rope_factors = false;  // a rope_freqs.weight tensor may divide the frequencies (llama3 scaling)
  Presence qkv_bias = Presence::kNever, output_bias = Presence::kNever, ffn_bias = Presence::kNever;
  bool post_norms = false;  // of attention and of the feed-forward part
  // Which layers have the window of a file that names no pattern; where there is none here, such a file is refused.
  std::optional<WindowPattern> windows = {};
  // Which layers turn q and k, where not all do: those that would have a window by this pattern.
  std::optional<WindowPattern> turned = {};
  // RoPE base of layers with a window where the file has no rope.freq_base_swa. With it, long-context scaling is for
  // the other layers alone. 0: windows have a base of their own only where the file says so, without scaling.
  double window_rope_base = 0;
  Activation activation = Activation::kSilu;
  bool scales_embedding = false;  // by the square root of the width
  // A model of so many layers divides scores by the square root of width / heads instead of the head's. 0: none does.
  uint32_t layers_with_width_scale = 0;
  Presence experts = Presence::kNever;  // kOptional: where the file has an expert_count
  // These two count where a file says nothing of them.
  ExpertScoring expert_scoring = ExpertScoring::kSoftmax;
  bool renormalises_experts = false;
  bool has_expert_bias = false;
  bool ffn_norm_is_post_attention_norm = false;  // by that name stands the norm in front of the feed-forward part
  // What layers without KV heads compute; none: every layer has attention.
  std::optional<AttentionKind> recurrent = {};
  // A layer is a recurrent part, attention or a feed-forward part alone: that where feed_forward_length is not 0.
  bool has_lone_parts = false;
  KeyHeadOrder value_head_order = KeyHeadOrder::kDivided;  // of a gated delta rule
  bool finetuned_is_rope = false;                          // rope.scaling.finetuned false: no layer turns q and k
  SharedExperts shared_experts = SharedExperts::kNone;
  const char* final_norm = "output_norm.weight";
  bool is_latent = false;   // every layer has latent attention
  bool has_images = false;  // files may hold parts that read images too: llmrt leaves them out
};

std::span<const Architecture> architectures();
const Architecture* find_architecture(std::string_view name);  // null: not known

// Tensor names as GGUF has them. Those of a layer follow "blk.<layer>.".
namespace tensor_names {
inline constexpr const char* kEmbedding = "token_embd.weight";
inline constexpr const char* kHead = "output";  // .weight; absent: tied to the embedding
inline constexpr const char* kFinalNormOfEmbedding = "token_embd_norm.weight";  // what lfm2 calls it
inline constexpr const char* kRopeFactors = "rope_freqs.weight";
inline constexpr const char* kAttentionNorm = "attn_norm.weight";
inline constexpr const char* kQ = "attn_q";  // .weight and .bias
inline constexpr const char* kK = "attn_k";
inline constexpr const char* kV = "attn_v";
// Scales of an fp8 KV cache, [1] f32 each; GGUF knows no name for them: these are ours.
inline constexpr const char* kKCacheScale = "attn_k_cache.scale";
inline constexpr const char* kVCacheScale = "attn_v_cache.scale";
inline constexpr const char* kQNorm = "attn_q_norm.weight";
inline constexpr const char* kKNorm = "attn_k_norm.weight";
inline constexpr const char* kSinks = "attn_sinks.weight";
inline constexpr const char* kOutput = "attn_output";
// Names of latent attention. Files from before key_length_mla have the rows that make a head's keys and values from a
// latent in one tensor, as Hugging Face folders do; others have those of keys transposed.
inline constexpr const char* kQueryLatent = "attn_q_a";
inline constexpr const char* kQueryLatentNorm = "attn_q_a_norm.weight";
inline constexpr const char* kQueryOfLatent = "attn_q_b";
inline constexpr const char* kLatent = "attn_kv_a_mqa";
inline constexpr const char* kLatentNorm = "attn_kv_a_norm.weight";
inline constexpr const char* kLatentKeys = "attn_k_b.weight";
inline constexpr const char* kLatentValues = "attn_v_b.weight";
inline constexpr const char* kLatentKeysValues = "attn_kv_b.weight";
inline constexpr const char* kConvIn = "shortconv.in_proj";
inline constexpr const char* kShortConv = "shortconv.conv.weight";
inline constexpr const char* kConvOut = "shortconv.out_proj";
// Names of gated delta rules and scans. A delta rule's q, k, v, z are rows of two tensors, or by key head of kStateIn.
inline constexpr const char* kDeltaQkv = "attn_qkv";
inline constexpr const char* kDeltaGate = "attn_gate";
inline constexpr const char* kDeltaBeta = "ssm_beta";
inline constexpr const char* kDeltaAlpha = "ssm_alpha";
inline constexpr const char* kDeltaBetaAlpha = "ssm_ba";  // of a key head in turn
inline constexpr const char* kStateIn = "ssm_in";
inline constexpr const char* kStateConv = "ssm_conv1d";  // .weight, .bias
inline constexpr const char* kStateDecay = "ssm_a";
inline constexpr const char* kStateSkip = "ssm_d";
inline constexpr const char* kStateDtBias = "ssm_dt.bias";
inline constexpr const char* kStateNorm = "ssm_norm.weight";
inline constexpr const char* kStateOut = "ssm_out";
inline constexpr const char* kAttentionPostNorm = "post_attention_norm.weight";
inline constexpr const char* kFfnNorm = "ffn_norm.weight";
inline constexpr const char* kFfnPostNorm = "post_ffw_norm.weight";
inline constexpr const char* kGate = "ffn_gate";
inline constexpr const char* kUp = "ffn_up";
inline constexpr const char* kGateUp = "ffn_gate_up";  // both in one tensor, gate rows first: ours, of folders
inline constexpr const char* kDown = "ffn_down";
// Router and experts: .weight and .bias; an expert's rows are one slice of a stack.
inline constexpr const char* kRouter = "ffn_gate_inp";
inline constexpr const char* kExpertGate = "ffn_gate_exps";
inline constexpr const char* kExpertUp = "ffn_up_exps";
inline constexpr const char* kExpertGateUp = "ffn_gate_up_exps";
inline constexpr const char* kExpertDown = "ffn_down_exps";
inline constexpr const char* kSharedGate = "ffn_gate_shexp";
inline constexpr const char* kSharedUp = "ffn_up_shexp";
inline constexpr const char* kSharedDown = "ffn_down_shexp";
inline constexpr const char* kSharedRouter = "ffn_gate_inp_shexp.weight";
inline constexpr const char* kExpertCorrection = "exp_probs_b.bias";
inline constexpr const char* kLatentDown = "ffn_latent_down";  // around experts: ExpertSpec::latent_width
inline constexpr const char* kLatentUp = "ffn_latent_up";
std::string of_layer(uint32_t layer, std::string_view name);  // "blk.3.attn_q"
// The number of the layer that a tensor is of.
std::optional<uint32_t> layer_of(std::string_view name);
bool is_of_images(std::string_view name);  // "v." and "mm.": what turns images into embeddings
}  // namespace tensor_names

}  // namespace llmrt
