// out = x * W^T + bias where subgroups are vectors of a CPU (8 lanes): a lane owns kRows weight rows, and kCols rows of x
// are shared by all lanes. A load costs such a device much the same whether lanes agree or not, a shuffle with a
// constant lane is one instruction; so 8 numbers of x are loaded at once and then broadcast one by one. Quants are
// unsigned integers q, value = d * q + m; a quant is masked where it stands in its word, and the power of two
// that this leaves is divided out of x beforehand: no shift a weight. Sums in f32. With kActivate the first half of a lane's
// rows are of gate, the second the same rows of up, and out is activation(gate) * up.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "types.glsl"
#include "dequant.glsl"
#include "activation.glsl"

layout(constant_id = 11) const uint kRows = 4;
layout(constant_id = 12) const uint kCols = 1;
layout(constant_id = 13) const uint kXDType = kF32;
layout(constant_id = 14) const bool kBias = false;
layout(constant_id = 15) const bool kActivate = false;
layout(constant_id = 16) const uint kActivation = kSilu;

layout(push_constant) uniform Push {
  Words x, weight;
  Floats bias, result;
  Words count;
  uint columns, row_words, num_rows;
  uint result_first, result_columns;
};

const uint kLanes = 8, kLaneOutputs = kActivate ? kRows / 2 : kRows;
const bool kIs4 = kEncoding == kEncQ4_0 || kEncoding == kEncQ4_1;
const bool kIsNibbles = kIs45 || kEncoding == kEncMXFP4;
// A block of 32 numbers is four vectors of 8; a scale holds for kScaleVecs of them.
const uint kScaleVecs = kEncoding == kEncQ6_K ? 2 : 4;
const uint kVecWords = kEncoding == kEncF32 ? 8 : kIsFloat ? 4 : kIsNibbles ? 1 : 2;
const uint kVecWordsMax = 8;

// Number of the block that lane n of vector v meets.
uint element(uint v, uint n) { return kIsNibbles ? v * 4u + (n >> 1) + 16u * (n & 1u) : v * 8u + n; }

float load1(uint idx) {
  if (kXDType == kF32) return uintBitsToFloat(x.w[idx]);
  vec2 pair = unpack16(x.w[idx >> 1], kXDType);
  return (idx & 1u) == 0u ? pair.x : pair.y;
}

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Longs { uint64_t l[]; };
// Words idx and idx + 1, idx even: a load of 64 bits costs as one of 32.
uvec2 two_words(Words from, uint idx) { return unpackUint2x32(Longs(from).l[idx >> 1]); }

// The words that hold vector v of block b, quants put where quant() looks for them. Of 4 and 5 bits an even vector brings
// the odd one behind it.
void load_vector(uint row, uint b, uint v, inout uint q[kVecWordsMax]) {
  if (kIsFloat) {
    [[unroll]] for (uint i = 0; i < kVecWords; i += 2) {
      uvec2 words = two_words(weight, row + (b * 4u + v) * kVecWords + i);
      q[i] = words.x;
      q[i + 1] = words.y;
    }
    return;
  }
  uvec2 words;
  uint block = b >> 3, high_plane = row + columns / 256u * 32u;
  if (kIsBytes) {
    words = two_words(weight, row + (b * 4u + v) * 2u);
    if (kEncoding == kEncQ8_0) words ^= 0x80808080u;  // signed bytes as unsigned ones, 128 too large
  } else if (kIsNibbles) {
    words = (v & 1u) == 0u ? two_words(weight, row + b * 4u + v) : uvec2(q[1], 0u);
  } else if (kEncoding == kEncQ6_K) {
    uint half_idx = b >> 2 & 1u, run = b & 3u;
    uvec2 low = two_words(weight, row + block * 32u + half_idx * 16u + (run & 1u) * 8u + v * 2u);
    uvec2 high = two_words(weight, high_plane + block * 16u + half_idx * 8u + v * 2u);
    words = (low >> (run >> 1) * 4u & 0x0f0f0f0fu) | (high >> run * 2u & 0x03030303u) << 4;
  } else {
    uint sub = b & 7u;
    words = two_words(weight, row + block * 32u + (sub >> 1) * 8u + v * 2u) >> (sub & 1u) * 4u & 0x0f0f0f0fu;
    if (kEncoding == kEncQ5_K)
      words |= (two_words(weight, high_plane + block * 8u + v * 2u) >> sub & 0x01010101u) << 4;
  }
  q[0] = words.x;
  q[1] = words.y;
}

// Number n of a vector, 2^place(n) times too large; small floats, kSmallFactor times too small.
float quant(uint q[kVecWordsMax], uint fifth, uint v, uint n) {
  if (kEncoding == kEncF32) return uintBitsToFloat(q[n]);
  if (kEncoding == kEncF16) return unpackHalf2x16(q[n >> 1])[n & 1u];
  if (kEncoding == kEncBF16) return uintBitsToFloat((n & 1u) == 0u ? q[n >> 1] << 16 : q[n >> 1] & 0xffff0000u);
  if (kIs4) return float(n == 7u ? int(q[0] >> 28) : int(q[0] & 15u << 4u * n));
  if (kIs5) return float(int((q[0] >> 4u * n & 15u) | (fifth >> element(v, n) & 1u) << 4));
  if (kEncoding == kEncMXFP4) return unpackHalf2x16(small_pair(q[0] >> 4u * (n & 3u)))[n >> 2];
  uint word = q[n >> 2], at = n & 3u;
  if (kEncoding == kEncFP8) {
    uint nans = (word & 0x7f7f7f7fu) + 0x01010101u >> 8u * (at & 1u) & 0x00800080u;
    return unpackHalf2x16(small_pair(word >> 8u * (at & 1u)) | nans * 0xf8u)[at >> 1];
  }
  return float(at == 3u ? int(word >> 24) : int(word & 255u << 8u * at));
}
uint place(uint n) {
  if (kIs4) return n == 7u ? 0u : 4u * n;
  if (kIsFloat || kIs5 || kIsSmallFloat) return 0u;
  return (n & 3u) == 3u ? 0u : 8u * (n & 3u);
}

// d and m of the vectors from v on.
vec2 scale_of(uint row, uint b, uint v) {
  uint blocks = columns / 32u, blocks_k = columns / 256u;
  if (kEncoding == kEncMXFP4)
    return vec2(power_of_two(weight.w[row + blocks * 4u + (b >> 2)] >> (b & 3u) * 8u & 255u), 0.0);
  if (kEncoding == kEncFP8) return vec2(uintBitsToFloat(weight.w[row + blocks * 8u + (b >> 2)]), 0.0);
  if (kEncoding == kEncQ4_1) return unpackHalf2x16(weight.w[row + blocks * 4u + b]);
  if (kEncoding == kEncQ5_1) return unpackHalf2x16(weight.w[row + blocks * 5u + b]);
  if (kEncoding == kEncQ4_0) return half_at(weight, row + blocks * 4u, b) * vec2(1.0, -8.0);
  if (kEncoding == kEncQ5_0) return half_at(weight, row + blocks * 5u, b) * vec2(1.0, -16.0);
  if (kEncoding == kEncQ8_0) return half_at(weight, row + blocks * 8u, b) * vec2(1.0, -128.0);
  if (kEncoding == kEncQ6_K) {
    uint s = (b & 7u) * 2u + (v >> 1);
    int scale = bitfieldExtract(int(weight.w[row + blocks_k * 48u + (b >> 3) * 4u + (s >> 2)]), int(s & 3u) * 8, 8);
    return float(scale) * half_at(weight, row + blocks_k * 52u, b >> 3) * vec2(1.0, -32.0);
  }
  uint header = row + blocks_k * (kEncoding == kEncQ5_K ? 40u : 32u) + (b >> 3) * 4u;
  uvec4 words = uvec4(weight.w[header], weight.w[header + 1u], weight.w[header + 2u], weight.w[header + 3u]);
  vec4 all = k_scales_mins(words, b >> 1 & 3u);
  return ((b & 1u) == 0u ? all.xz : all.yw) * unpackHalf2x16(words.x) * vec2(1.0, -1.0);
}

void main() {
  uint lane = gl_SubgroupInvocationID, num_cols = count.w[0], col_first = gl_WorkGroupID.y * kCols;
  if (col_first >= num_cols) return;
  uint outputs = kActivate ? num_rows / 2u : num_rows, row_first = gl_WorkGroupID.x * (kLanes * kLaneOutputs) + lane;
  uint rows[kRows], cols[kCols];
  float sums[kRows][kCols];
  [[unroll]] for (uint r = 0; r < kRows; ++r)
    rows[r] = (r / kLaneOutputs * outputs + min(row_first + r % kLaneOutputs * kLanes, outputs - 1u)) * row_words;
  [[unroll]] for (uint c = 0; c < kCols; ++c) {
    cols[c] = min(col_first + c, num_cols - 1u) * columns;
    [[unroll]] for (uint r = 0; r < kRows; ++r) sums[r][c] = 0.0;
  }
  float unplace = kIsSmallFloat ? kSmallFactor : uintBitsToFloat((127u - place(lane)) << 23);
  for (uint b = 0; b < columns / 32u; ++b) {
    uint fifth[kRows];
    if (kIs5)
      [[unroll]] for (uint r = 0; r < kRows; ++r) fifth[r] = weight.w[rows[r] + columns / 32u * 4u + b];
    [[unroll]] for (uint first = 0; first < 4; first += kScaleVecs) {
      float parts[kRows][kCols], x_sums[kCols];
      [[unroll]] for (uint c = 0; c < kCols; ++c) {
        x_sums[c] = 0.0;
        [[unroll]] for (uint r = 0; r < kRows; ++r) parts[r][c] = 0.0;
      }
      uint q[kRows][kVecWordsMax];
      [[unroll]] for (uint v = first; v < first + kScaleVecs; ++v) {
        [[unroll]] for (uint r = 0; r < kRows; ++r) load_vector(rows[r], b, v, q[r]);
        float y[kCols];
        [[unroll]] for (uint c = 0; c < kCols; ++c) {
          y[c] = load1(cols[c] + b * 32u + element(v, lane));
          x_sums[c] += y[c];
          if (!kIsFloat && !kIs5) y[c] *= unplace;
        }
        [[unroll]] for (uint n = 0; n < kLanes; ++n) {
          float w[kRows];
          [[unroll]] for (uint r = 0; r < kRows; ++r) w[r] = quant(q[r], fifth[r], v, n);
          [[unroll]] for (uint c = 0; c < kCols; ++c) {
            float factor = subgroupBroadcast(y[c], n);
            [[unroll]] for (uint r = 0; r < kRows; ++r) parts[r][c] += w[r] * factor;
          }
        }
      }
      if (kIsFloat) {
        [[unroll]] for (uint r = 0; r < kRows; ++r) [[unroll]] for (uint c = 0; c < kCols; ++c) sums[r][c] += parts[r][c];
        continue;
      }
      float totals[kCols];
      [[unroll]] for (uint c = 0; c < kCols; ++c) {
        totals[c] = subgroupBroadcast(x_sums[c], 0);
        [[unroll]] for (uint n = 1; n < kLanes; ++n) totals[c] += subgroupBroadcast(x_sums[c], n);
      }
      [[unroll]] for (uint r = 0; r < kRows; ++r) {
        vec2 dm = scale_of(rows[r], b, first);
        [[unroll]] for (uint c = 0; c < kCols; ++c)
          sums[r][c] += kIsSmallFloat ? dm.x * parts[r][c] : dm.x * parts[r][c] + dm.y * totals[c];
      }
    }
  }
  [[unroll]] for (uint r = 0; r < kLaneOutputs; ++r) {
    uint row = row_first + r * kLanes;
    [[unroll]] for (uint c = 0; c < kCols; ++c) {
      if (row >= outputs || col_first + c >= num_cols) continue;
      float sum = kActivate ? activate(kActivation, sums[r][c]) * sums[r + kRows - kLaneOutputs][c] : sums[r][c];
      if (kBias) sum += bias.f[result_first + row];
      result.f[(col_first + c) * result_columns + result_first + row] = sum;
    }
  }
}
