// latent_attention: all heads of a token against one row of the cache a key, whose first kHeadDim numbers are the
// values too. An item's query rows are its tokens times the heads, as they lie in memory. Grid: x walks the items, y = tile of
// the item's rows.
//
// A team of kSlices invocations has kRowsEach query rows; each of them has every kSlices-th vec4 of the rows and of the
// outputs in registers. kTileKeys rows of the cache at a time lie in shared memory as the pool has them, read once for
// all query rows of the group, as keys and as values; those of the next tile are on their way to registers meanwhile, and
// where those of the tile behind it lie is looked up. Parts of a product are added through shared memory, in their order.
// Arithmetic in f32, online softmax.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "paged.glsl"
#include "paged_outputs.glsl"

layout(constant_id = 15) const uint kRowDim = 576;
layout(constant_id = 16) const uint kSlices = 16;
layout(constant_id = 17) const uint kTeams = 8;
layout(constant_id = 18) const uint kRowsEach = 1;
layout(constant_id = 19) const uint kTileKeys = 8;

const uint kThreads = kTeams * kSlices, kTileRows = kTeams * kRowsEach;
const uint kVecWords = kBytes ? 1 : 2;  // of 4 numbers
const uint kRowVecs = kRowDim / 4, kValueVecs = kHeadDim / 4, kKeyWords = kRowVecs * kVecWords;
const uint kQueryEach = (kRowVecs + kSlices - 1) / kSlices, kValueEach = (kValueVecs + kSlices - 1) / kSlices;
const uint kKeyScales = kBlockScales ? kRowDim / kKvScaleBlock : 1;
const uint kKeyQuads = kKeyWords / 4;  // rows are multiples of 16 numbers
const uint kQuadsEach = (kTileKeys * kKeyQuads + kThreads - 1) / kThreads;
const uint kScalesEach = (kTileKeys * kKeyScales + kThreads - 1) / kThreads;
const uint kPartStride = kSlices + 1;  // so that lanes which each add a product's parts do not meet in one bank
shared uint key_words[kTileKeys * kKeyWords];
shared float key_scales[kTileKeys * kKeyScales];
shared float parts[kTileRows * kTileKeys * kPartStride], scores[kTileRows * kTileKeys];
shared uint vectors[kTileKeys];  // where the rows of the next tile lie

// Keys behind the last one are that one again: their scores do not count.
void find_keys(uint slot, uint key_first, uint key_end) {
  for (uint i = gl_LocalInvocationID.x; i < kTileKeys; i += kThreads) {
    uint key = min(key_first + i, key_end - 1u);
    vectors[i] = tables.w[slot * blocks_row_max + key / block_tokens] * block_tokens + key % block_tokens;
  }
}

uvec4 quads_ahead[kQuadsEach];
float scales_ahead[kScalesEach];

void load_keys() {
  [[unroll]] for (uint j = 0; j < kQuadsEach; ++j) {
    uint i = min(gl_LocalInvocationID.x + j * kThreads, kTileKeys * kKeyQuads - 1u);
    quads_ahead[j] = Quads(data).q[vectors[i / kKeyQuads] * kKeyQuads + i % kKeyQuads];
  }
  if (!kVectorScales && !kBlockScales) return;
  [[unroll]] for (uint j = 0; j < kScalesEach; ++j) {
    uint i = min(gl_LocalInvocationID.x + j * kThreads, kTileKeys * kKeyScales - 1u);
    scales_ahead[j] = scales.f[vectors[i / kKeyScales] * kKeyScales + i % kKeyScales];
  }
}

void store_keys() {
  [[unroll]] for (uint j = 0; j < kQuadsEach; ++j) {
    uint i = gl_LocalInvocationID.x + j * kThreads;
    if (i >= kTileKeys * kKeyQuads) break;
    [[unroll]] for (uint w = 0; w < 4; ++w) key_words[4u * i + w] = quads_ahead[j][w];
  }
  if (!kVectorScales && !kBlockScales) return;
  [[unroll]] for (uint j = 0; j < kScalesEach; ++j) {
    uint i = gl_LocalInvocationID.x + j * kThreads;
    if (i < kTileKeys * kKeyScales) key_scales[i] = scales_ahead[j];
  }
}

// Numbers 4v to 4v + 3 of a key, but for the scale of a vector.
vec4 key_vec4(uint key, uint v) {
  uint at = key * kKeyWords + v * kVecWords;
  if (!kBytes) return vec4(unpack16(key_words[at], kKvDType), unpack16(key_words[at + 1u], kKvDType));
  vec4 numbers = byte_values(key_words[at]);
  return kBlockScales ? numbers * key_scales[key * kKeyScales + v / (kKvScaleBlock / 4u)] : numbers;
}
float key_scale(uint key) { return kVectorScales ? key_scales[key] : kBytes && !kBlockScales ? v_scale : 1.0; }

void run(Item item) {
  uint num_rows = item.num_tokens * num_heads, row_first = gl_WorkGroupID.y * kTileRows;
  if (row_first >= num_rows) return;
  uint team = gl_LocalInvocationID.x / kSlices, slice = gl_LocalInvocationID.x % kSlices;
  vec4 query[kRowsEach][kQueryEach], sums[kRowsEach][kValueEach];
  float largest[kRowsEach], total[kRowsEach];
  [[unroll]] for (uint r = 0; r < kRowsEach; ++r) {
    uint row = min(row_first + r * kTeams + team, num_rows - 1u);
    uint from = (item.token_first * num_heads + row) * kRowVecs;
    [[unroll]] for (uint j = 0; j < kQueryEach; ++j) {
      uint v = slice + j * kSlices;
      query[r][j] = v < kRowVecs ? Vec4s(qkv).v[from + min(v, kRowVecs - 1u)] : vec4(0.0);
    }
    [[unroll]] for (uint j = 0; j < kValueEach; ++j) sums[r][j] = vec4(0.0);
    largest[r] = kNoScore;
    total[r] = 0.0;
  }
  // Keys beyond the last row's position count for nobody.
  uint last_position = item.position_first + (min(row_first + kTileRows, num_rows) - 1u) / num_heads;
  uint key_end = min(item.key_end, last_position + 1u);
  barrier();  // the item before may still be read
  find_keys(item.slot, item.key_begin, key_end);
  barrier();
  load_keys();
  barrier();
  find_keys(item.slot, item.key_begin + kTileKeys, key_end);
  for (uint key = item.key_begin; key < key_end; key += kTileKeys) {
    store_keys();
    barrier();
    load_keys();
    for (uint k = 0; k < kTileKeys; ++k) {
      float part[kRowsEach];
      [[unroll]] for (uint r = 0; r < kRowsEach; ++r) part[r] = 0.0;
      [[unroll]] for (uint j = 0; j < kQueryEach; ++j) {
        vec4 numbers = key_vec4(k, min(slice + j * kSlices, kRowVecs - 1u));
        [[unroll]] for (uint r = 0; r < kRowsEach; ++r) part[r] += dot(query[r][j], numbers);
      }
      [[unroll]] for (uint r = 0; r < kRowsEach; ++r)
        parts[((r * kTeams + team) * kTileKeys + k) * kPartStride + slice] = part[r];
    }
    barrier();
    find_keys(item.slot, key + 2u * kTileKeys, key_end);
    for (uint i = gl_LocalInvocationID.x; i < kTileRows * kTileKeys; i += kThreads) {
      uint row = min(row_first + i / kTileKeys, num_rows - 1u), k = i % kTileKeys;
      float sum = 0.0;
      for (uint s = 0; s < kSlices; ++s) sum += parts[i * kPartStride + s];
      scores[i] = key + k < key_end ? finish_score(sum * key_scale(k), key + k, item.position_first + row / num_heads)
                                    : -kInfinity;
    }
    barrier();
    [[unroll]] for (uint r = 0; r < kRowsEach; ++r) {
      uint at = (r * kTeams + team) * kTileKeys;
      float most = largest[r];
      [[unroll]] for (uint k = 0; k < kTileKeys; ++k) most = max(most, scores[at + k]);
      float factor = exp(largest[r] - most);
      largest[r] = most;
      total[r] *= factor;
      [[unroll]] for (uint j = 0; j < kValueEach; ++j) sums[r][j] *= factor;
    }
    for (uint k = 0; k < kTileKeys; ++k) {
      float weight[kRowsEach];
      [[unroll]] for (uint r = 0; r < kRowsEach; ++r) {
        weight[r] = exp(scores[(r * kTeams + team) * kTileKeys + k] - largest[r]);
        total[r] += weight[r];
        weight[r] *= key_scale(k);
      }
      [[unroll]] for (uint j = 0; j < kValueEach; ++j) {
        vec4 numbers = key_vec4(k, min(slice + j * kSlices, kValueVecs - 1u));
        [[unroll]] for (uint r = 0; r < kRowsEach; ++r) sums[r][j] += weight[r] * numbers;
      }
    }
    barrier();
  }
  [[unroll]] for (uint r = 0; r < kRowsEach; ++r) {
    uint row = row_first + r * kTeams + team, token = row / num_heads, head = row % num_heads;
    if (row >= num_rows) break;
    if (item.partial >= 0 && slice == 0u) {
      uint to = partial_first(item, token, head);
      partials.f[to] = largest[r];
      partials.f[to + 1u] = total[r];
    }
    float inverse = total[r] > 0.0 ? 1.0 / total[r] : 0.0;
    [[unroll]] for (uint j = 0; j < kValueEach; ++j) {
      uint v = slice + j * kSlices;
      if (v >= kValueVecs) continue;
      store_outputs(item, token, head, 2u * v, sums[r][j].xy, inverse);
      store_outputs(item, token, head, 2u * v + 1u, sums[r][j].zw, inverse);
    }
  }
}

void main() {
  uint count = num_items();
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) run(load_item(i));
}
