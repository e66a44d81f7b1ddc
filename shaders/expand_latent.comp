// Keys or values of some heads from rows of the cache: out[key, h] = W_h l, in f16, and behind a key's numbers those of
// the row that turn. A group has kKeys keys, whose latents lie in shared memory in f16; an invocation has two
// neighbouring rows of a head's matrix for all of them (grid: x pairs of rows, y head, z walks the expand items). Sums
// in f32, in the order of the columns.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "dequant.glsl"
#include "step_inputs.glsl"
#include "kv_format.glsl"

layout(constant_id = 11) const uint kKeys = 16;
layout(constant_id = 12) const uint kKvDType = kKvF16;  // of the cache
layout(constant_id = 13) const uint kColumns = 512;     // of a latent

layout(push_constant) uniform Push {
  Words data;  // of the cache: [block][token][row_dim]
  Floats scales;
  Words inputs, tables;  // inputs: the header of the group that is written
  Words weight, result;  // result: [block][keys, values][num_heads][kExpandItemKeys][head_dim]
  uint row_words, num_rows, head_first, num_heads;  // num_rows: of a head's matrix
  uint head_dim, which, copied;  // copied: numbers behind num_rows that are the row's last ones; then zeros
  uint row_dim, block_tokens, blocks_row_max;
  float k_scale;  // of an fp8-tensor pool
};

const uint kRows = 2, kColumnVecs = kColumns / 4, kParts = kExpandItemKeys / kKeys;
const bool kBytes = kKvDType >= kKvI8, kF8 = kBytes && kKvDType != kKvI8 && kKvDType != kKvI8Block;
const bool kBlockScales = kKvDType == kKvI8Block || kKvDType == kKvF8Block;

shared uint vectors[kKeys];
shared uvec2 latents[kKeys * kColumnVecs];

// Numbers 4v to 4v + 3 of a row of the cache.
vec4 row_vec4(uint vector, uint v) {
  if (!kBytes) {
    uint word = vector * (row_dim / 2u) + 2u * v;
    return vec4(unpack16(data.w[word], kKvDType), unpack16(data.w[word + 1u], kKvDType));
  }
  uint word = data.w[vector * (row_dim / 4u) + v];
  float scale = k_scale;
  if (kBlockScales)
    scale = scales.f[vector * (row_dim / kKvScaleBlock) + v / (kKvScaleBlock / 4u)];
  else if (kKvDType != kKvF8Tensor)
    scale = scales.f[vector];
  return scale * (kF8 ? f8_values(word) : i8_values(word));
}

uvec2 halves(vec4 x) { return uvec2(pack16(x.xy, kF16), pack16(x.zw, kF16)); }

// The pair of rows for `count` keys, the first of which is at number `to` of the result.
void multiply(uint pair, uint head, uint count, uint to) {
  uint rows[kRows];
  float sums[kRows][kKeys];
  [[unroll]] for (uint r = 0; r < kRows; ++r) {
    rows[r] = row_at((head_first + head) * num_rows + min(2u * pair + r, num_rows - 1u), row_words);
    [[unroll]] for (uint k = 0; k < kKeys; ++k) sums[r][k] = 0.0;
  }
  uint units = num_units(kColumns);
  for (uint unit = 0; unit < units; ++unit) {
    Unit weights[kRows];
    [[unroll]] for (uint r = 0; r < kRows; ++r) weights[r] = fetch_unit(weight, rows[r], kColumns, unit);
    [[unroll]] for (uint i = 0; i < kUnitVecs; ++i) {
      vec4 w[kRows];
      [[unroll]] for (uint r = 0; r < kRows; ++r) w[r] = unit_numbers(weights[r], unit, i);
      uint v = unit_x(unit, i);
      [[unroll]] for (uint k = 0; k < kKeys; ++k) {
        uvec2 bits = latents[k * kColumnVecs + v];
        vec4 x = vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y));
        [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][k] += dot(w[r], x);
      }
    }
  }
  [[unroll]] for (uint k = 0; k < kKeys; ++k)
    if (k < count) result.w[(to + k * head_dim) / 2u + pair] = pack16(vec2(sums[0][k], sums[1][k]), kF16);
}

void main() {
  uint pair = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y, local = gl_LocalInvocationID.x;
  uint num_works = inputs.w[kFwdNumExpands] * kParts;
  for (uint work = gl_WorkGroupID.z; work < num_works; work += gl_NumWorkGroups.z) {
    uint at = inputs.w[kFwdExpands] + work / kParts * kExpandWords, first = work % kParts * kKeys;
    uint slot = inputs.w[at], key_begin = inputs.w[at + 1u], num_keys = inputs.w[at + 2u], block = inputs.w[at + 3u];
    if (first >= num_keys) continue;
    uint count = min(num_keys - first, kKeys);
    uint to = (((block * 2u + which) * num_heads + head) * kExpandItemKeys + first) * head_dim;
    barrier();  // the latents before have been read
    for (uint i = local; i < kKeys; i += gl_WorkGroupSize.x) {
      uint key = key_begin + first + min(i, count - 1u);
      vectors[i] = tables.w[slot * blocks_row_max + key / block_tokens] * block_tokens + key % block_tokens;
    }
    barrier();
    for (uint i = local; i < kKeys * kColumnVecs; i += gl_WorkGroupSize.x)
      latents[i] = halves(row_vec4(vectors[i / kColumnVecs], i % kColumnVecs));
    if (gl_WorkGroupID.x == 0u) {
      uint ends = (head_dim - num_rows) / 4u;
      for (uint i = local; i < count * ends; i += gl_WorkGroupSize.x) {
        uint key = i / ends, v = i % ends, word = (to + key * head_dim + num_rows) / 2u + 2u * v;
        uvec2 bits = uvec2(0u);
        if (4u * v < copied) bits = halves(row_vec4(vectors[key], kColumnVecs + v));
        result.w[word] = bits.x;
        result.w[word + 1u] = bits.y;
      }
    }
    barrier();
    if (2u * pair < num_rows) multiply(pair, head, count, to);
  }
}
