// What one layer of a decoder computes. Layers of a model may differ in every field; what all of them share is in
// ModelConfig. Plain data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/model/latent.h"
#include "core/model/recurrent.h"
#include "core/ops/ops.h"

namespace llmrt {

// What a layer has in front of its feed-forward part. A window layer sees the last `window` positions; recurrent kinds
// keep a state (RecurrentSpec); latent attention keeps one row a token for all heads (LatentSpec).
enum class AttentionKind : uint8_t { kFull, kWindow, kLatent, kShortConv, kGatedDelta, kSelectiveScan, kNone };
const char* attention_name(AttentionKind kind);
constexpr bool is_recurrent(AttentionKind kind) {
  return kind == AttentionKind::kShortConv || kind == AttentionKind::kGatedDelta ||
         kind == AttentionKind::kSelectiveScan;
}

// Experts beside a dense part have no decoder yet: check_layers refuses them by name.
enum class FeedForwardKind : uint8_t { kDense, kExperts, kBoth, kNone };
const char* feed_forward_name(FeedForwardKind kind);

struct RopeSpec {
  uint32_t freqs_idx = 0;  // of ModelConfig::rope_freqs
  uint32_t dim = 0;        // numbers of a head that turn, twice the frequencies; 0: the layer has no RoPE
  RopePairing pairing = RopePairing::kInterleaved;
  float magnitude = 1.0f;  // factor on cos and sin
  bool operator==(const RopeSpec&) const = default;
};

// The experts of a layer (FeedForwardKind::kExperts).
struct ExpertSpec {
  uint32_t count = 0;      // E, without shared ones
  uint32_t used = 0;       // that a token goes to, without shared ones
  bool by_expert = false;  // the file has gate and up rows of one expert behind each other
  bool has_bias = false;   // of the router, gate, up and down
  bool has_correction = false;
  RoutingRule rule;
  uint32_t latent_width = 0;  // of what experts read and make, between two matrices around them; 0: the stream's
  uint32_t shared_width = 0;  // of a dense part beside them that every token passes, added to their sum; 0: none
  bool has_scoring = true;    // the file says how scores become probabilities
  uint32_t routed_per_row() const { return used + rule.num_shared; }
  bool operator==(const ExpertSpec&) const = default;
};

struct LayerSpec {
  AttentionKind attention = AttentionKind::kFull;
  uint32_t window = 0;  // positions that a query sees, its own among them; 0 = all
  uint32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  float attention_scale = 0;  // of scores: 1 / sqrt(head_dim) unless the file says otherwise
  float soft_cap = 0;         // of scores; 0 = none
  bool sinks = false;         // a weight of each head in the softmax that no key has
  bool qk_norm = false;
  bool joined_qk_norm = false;   // qk_norm over all heads together
  bool v_norm = false;           // with qk_norm: of each head of v, without a weight
  bool output_gate = false;      // outputs are multiplied by sigmoid(gate), whose rows stand behind each head's of q
  bool values_are_keys = false;  // v is k as projected: the layer has no rows of its own for it
  int32_t cache_of = -1;         // an earlier layer, whose keys and values this one reads instead of its own; -1: none
  RopeSpec rope;
  LatentSpec latent;        // of latent attention: head_dim is its row in the cache, rope.dim is latent.rope_dim
  RecurrentSpec recurrent;  // of recurrent kinds, which have nothing of the above

  FeedForwardKind feed_forward = FeedForwardKind::kDense;
  uint32_t ffn_width = 0;  // F, of one expert where there are experts
  ExpertSpec experts;
  Activation activation = Activation::kSilu;

  // Both parts begin with a norm. With a post norm, what the part computes is normed before it is added to x.
  bool attention_post_norm = false, ffn_post_norm = false;

  // Which tables and pool hold the layer's keys and values, and its place there: assign_cache_groups.
  uint32_t cache_group = 0, cache_layer = 0;

  // Numbers that attention adds up for a head, before its own values are made of them in latent attention.
  uint32_t output_dim() const { return attention == AttentionKind::kLatent ? latent.rank : head_dim; }

  bool operator==(const LayerSpec&) const = default;
};

// Layers that share a pool and a table: equal in all fields that decide what a block holds and when it may be freed.
struct CacheGroup {
  AttentionKind attention = AttentionKind::kFull;
  uint32_t window = 0, num_kv_heads = 0, head_dim = 0;
  uint32_t state_columns = 0;  // of recurrent kinds: numbers of a record in a layer
  uint32_t num_layers = 0;
  bool keys_only() const { return attention == AttentionKind::kLatent; }
};

// Sets cache_group and cache_layer of every layer. The group of the first layer that sees all positions comes first (of
// the first with keys and values where none does): the prefix cache goes by its blocks. The others come in the order of
// their first layers.
void assign_cache_groups(std::span<LayerSpec> layers);
// The groups that the layers name, by number.
std::vector<CacheGroup> cache_groups(std::span<const LayerSpec> layers);

// Unsupported, with the layer and what it asks for, when no op computes it.
Status check_layers(std::span<const LayerSpec> layers);

// Which layers have a window, counted as GGUF does: layer i has one if i % period < period - 1. A period of 1: none, of
// 0: all.
struct WindowPattern {
  uint32_t period = 1;
  bool has_window(uint32_t layer) const { return period == 0 || layer % period < period - 1; }
};
constexpr WindowPattern every_nth_full(uint32_t n) {
  return {n};
}

}  // namespace llmrt
