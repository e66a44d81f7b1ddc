// Attention over paged keys and values: the push constants that its kernels share, the pool's layout (core/kv/kv_format.h)
// and what one item of work is (core/ops/step_inputs.h). Rows of an item are (token, query head of the group), tokens
// first, so that all of them share the keys of one KV head.
#include "step_inputs.glsl"
#include "kv_format.glsl"

layout(constant_id = 10) const uint kHeadDim = 64;
layout(constant_id = 11) const uint kKvDType = kKvF16;
layout(constant_id = 12) const uint kOutDType = kF32;
layout(constant_id = 13) const bool kSoftCap = false;
layout(constant_id = 14) const bool kSinks = false;

const bool kBytes = kKvDType >= kKvI8, kF8 = kBytes && kKvDType != kKvI8 && kKvDType != kKvI8Block;
const bool kVectorScales = kKvDType == kKvI8 || kKvDType == kKvF8;
const bool kBlockScales = kKvDType == kKvI8Block || kKvDType == kKvF8Block;

layout(push_constant) uniform Push {
  Floats qkv;
  Words result;
  Words inputs, tables, data;
  Floats scales, partials;
  Words arrivals;  // [merge item][num_heads] splits of decode items that are done; 0 before and after
  Floats sinks;    // [num_heads], read with kSinks alone
  uint num_heads, num_kv_heads, block_tokens, blocks_row_max;
  uvec2 count_words, items_words;  // header words of two lists of items: walked one after the other
  float scale;   // of products of q and keys, times that of an fp8-tensor pool's keys
  uint window;   // 0: none
  float soft_cap;
  float v_scale;   // of an fp8-tensor pool's values, else 1
  uint row_heads;  // of a row of qkv: q, and k and v where they are there
  uint out_shape;  // of a row of result: heads << 16 | numbers of each. Kernels of decode items have heads of kHeadDim
};

struct Item {
  uint slot, token_first, num_tokens, position_first, key_begin, key_end;
  int partial;
  uint partial_stride;  // of a prompt item; of a decode item its merge item
};

uint num_items() { return inputs.w[count_words.x] + inputs.w[count_words.y]; }

Item load_item(uint i) {
  uint first_count = inputs.w[count_words.x];
  uint at = i < first_count ? inputs.w[items_words.x] + i * kItemWords
                            : inputs.w[items_words.y] + (i - first_count) * kItemWords;
  return Item(inputs.w[at], inputs.w[at + 1u], inputs.w[at + 2u], inputs.w[at + 3u], inputs.w[at + 4u],
              inputs.w[at + 5u], int(inputs.w[at + 6u]), inputs.w[at + 7u]);
}

// For kernels that may walk decode items, and read of them what they read of prompt items: a decode item names the merge
// of its first token instead of the stride, which is how many partial results that merge has.
Item load_any_item(uint i) {
  Item item = load_item(i);
  uint num_merges = inputs.w[kFwdNumMerges];
  if (count_words.x != kFwdNumDecodeItems || i >= inputs.w[kFwdNumDecodeItems] || num_merges == 0u) return item;
  uint merge = min(item.partial_stride, num_merges - 1u);
  item.partial_stride = inputs.w[inputs.w[kFwdMerges] + merge * kMergeWords + 2u];
  return item;
}

// Index of the vector (k: which 0, v: 1) of a key of a slot.
uint kv_vector(uint slot, uint key, uint which, uint kv_head) {
  uint block = tables.w[slot * blocks_row_max + key / block_tokens];
  return ((block * 2u + which) * num_kv_heads + kv_head) * block_tokens + key % block_tokens;
}

vec4 byte_values(uint word) { return kF8 ? f8_values(word) : i8_values(word); }
// The scale of numbers 8 * octet to 8 * octet + 7 of a vector; `other`: where the pool has none.
float kv_scale(uint vector, uint octet, float other) {
  if (kVectorScales) return scales.f[vector];
  if (kBlockScales) return scales.f[vector * (kHeadDim / kKvScaleBlock) + octet / (kKvScaleBlock / 8u)];
  return other;
}

// Numbers 4i to 4i + 3 of a vector; `other`: see kv_scale.
vec4 kv_load4(uint vector, uint i, float other) {
  if (!kBytes) {
    uint word = vector * (kHeadDim / 2u) + 2u * i;
    return vec4(unpack16(data.w[word], kKvDType), unpack16(data.w[word + 1u], kKvDType));
  }
  return kv_scale(vector, i / 2u, other) * byte_values(data.w[vector * (kHeadDim / 4u) + i]);
}

uint out_dim() { return out_shape & 0xffffu; }
uint out_first(uint token, uint head) { return (token * (out_shape >> 16) + head) * out_dim(); }
uint q_first(uint token, uint head) { return (token * row_heads + head) * kHeadDim; }

// soft_cap * tanh(score / soft_cap), through exp of a negative number, so that nothing overflows.
float capped(float score) {
  float y = score / soft_cap, e = exp(-2.0 * abs(y));
  return soft_cap * sign(y) * (1.0 - e) / (1.0 + e);
}

// What a score becomes before the softmax; keys that the position may not see become -inf.
float finish_score(float score, uint key, uint position) {
  score *= scale;
  if (kSoftCap) score = capped(score);
  bool hidden = key > position || (window > 0u && key + window <= position);
  return hidden ? -kInfinity : score;
}

// For kernels whose scores are in powers of two.
const float kLog2e = 1.4426950408889634;
// Below every score, and finite, so that a difference of two maxima is a number.
const float kNoScore = -3.0e38;

// By what a token's values are multiplied in the end: the inverse of the sum of all its weights, which are relative to
// the score `largest`, and of its head's sink, whose weight is kept to what has an inverse. 0 where no key is seen.
float inverse_sum(float sum, float largest, uint head) {
  if (kSinks && sum > 0.0) sum += exp(min(sinks.f[min(head, num_heads - 1u)] - largest, 60.0));
  return sum > 0.0 ? 1.0 / sum : 0.0;
}

// A partial result: max, sum, then kHeadDim values not yet divided.
uint partial_first(uint partial, uint head) { return (partial * num_heads + head) * (kHeadDim + 2u); }
// Of the item's `token`th token.
uint partial_first(Item item, uint token, uint head) {
  return partial_first(uint(item.partial) + token * item.partial_stride, head);
}
