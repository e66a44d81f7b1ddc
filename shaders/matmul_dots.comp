// out = x * W^T + bias of quantised weights by tiles of weight rows (grid x) by rows of x (grid y), by dot products of bytes,
// no matrix units: of x, 32 numbers (with K blocks 16) are rounded to a byte each, by a scale of their own. Numbers that
// are not finite leave sums that are not. x: f16; columns: a multiple of 64, which a step takes.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_integer_dot_product : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "types.glsl"
#include "dequant.glsl"

layout(constant_id = 11) const bool kBias = false;
layout(constant_id = 12) const uint kQuads = 1;
layout(constant_id = 13) const uint kColLanes = 16;
#include "tile_sums.glsl"

const uint kStepVecs = 16;                // vec4s of a row in a step: a word of bytes each
const uint kRunVecs = kIsK ? 4 : 8;       // that share a scale
const uint kRuns = kStepVecs / kRunVecs;  // of a step
const uint kUnitsStep = kStepVecs / kUnitVecs;
const bool kHasMinimum = kHasMin || kEncoding == kEncQ4_K || kEncoding == kEncQ5_K;
// What bytes are above the quants, where there is no minimum.
const uint kZero = kEncoding == kEncQ4_0 ? 8 : kEncoding == kEncQ5_0 ? 16 : kEncoding == kEncQ6_K ? 32 : 0;

shared uvec4 w_tile[kStepVecs * kTileRows / 4], x_tile[kStepVecs * kTileCols / 4];  // [vec4][four rows]
shared vec4 w_scales[kRuns * kTileRows / 4], x_scales[kRuns * kTileCols / 4];       // [run][four rows]
shared vec4 w_minima[kHasMinimum ? kRuns * kTileRows / 4 : 1], x_sums[kHasMinimum ? kRuns * kTileCols / 4 : 1];
#include "tile_ends.glsl"

// Place of four rows' vec4. Lanes that store different fours of vec4s of a row meet different banks.
uint tile_at(uint vec, uint quad, uint rows) { return vec * (rows / 4u) + (quad ^ vec / 4u * 2u % (rows / 4u)); }

// An invocation's share of a step, on its way from memory. Of x: four vec4s of a row.
const uint kUnits = (kTileRows * kUnitsStep + kLanes - 1) / kLanes, kParts = (kTileCols * 4 + kLanes - 1) / kLanes;
Unit next_w[kUnits];
uvec4 next_x[kParts][2];
uint lane;

// The four bytes of vec4 `i` of a unit, of q8_0 signed. Twin: unit_quants, which other kernels compile with (through a
// function more NVIDIA's compiler makes of matmul_wide a program ten times as slow).
uint unit_bytes(Unit u, uint unit, uint i) {
  if (kEncoding == kEncQ8_0) return u.quants[i];
  uint w = i & 3u, part = i >> 2, chunk = unit >> 1 & 3u;
  uint bytes = u.quants[w] >> 4u * part & 0x0f0f0f0fu;
  if (kIs5) bytes |= fifth_bits(u.upper.x >> 4u * i);
  if (kEncoding == kEncQ5_K) bytes |= (u.upper[w] >> (2u * chunk + part) & 0x01010101u) << 4;
  if (kEncoding == kEncQ6_K) bytes |= (u.upper[w] >> (2u * (chunk & 1u) + 4u * part) & 0x03030303u) << 4;
  return bytes;
}

void fetch_step(uint row_first, uint col_first, uint num_cols, uint step) {
  [[unroll]] for (uint j = 0; j < kUnits; ++j) {
    uint i = j * kLanes + lane, row = min(row_first + i / kUnitsStep, num_rows - 1u);
    next_w[j] = fetch_unit(weight, row_at(row, row_words), columns, step * kUnitsStep + i % kUnitsStep);
  }
  [[unroll]] for (uint j = 0; j < kParts; ++j) {
    uint i = j * kLanes + lane, vec = i % 4u * 4u, col = min(col_first + i / 4u, num_cols - 1u);
    uint at = col * (columns / 8u) + unit_x(step * kUnitsStep + vec / kUnitVecs, vec % kUnitVecs) / 2u;
    next_x[j] = uvec4[2](Quads(x).q[at], Quads(x).q[at + 1u]);
  }
}

void store_w(uint step) {
  [[unroll]] for (uint j = 0; j < kUnits; ++j) {
    uint i = j * kLanes + lane, row = i / kUnitsStep, u = i % kUnitsStep, unit = step * kUnitsStep + u;
    if (kTileRows * kUnitsStep % kLanes != 0u && row >= kTileRows) continue;
    [[unroll]] for (uint v = 0; v < kUnitVecs; ++v) {
      uint bytes = unit_bytes(next_w[j], unit, v), vec = u * kUnitVecs + v;
      if (kZero > 0) bytes = (bytes | 0x80808080u) - kZero * 0x01010101u ^ 0x80808080u;
      w_tile[tile_at(vec, row / 4u, kTileRows)][row % 4u] = bytes;
      if (v % min(kRunVecs, kUnitVecs) != 0u || vec % kRunVecs != 0u) continue;
      vec2 scale = unit_scale(next_w[j], unit, v);
      uint at = vec / kRunVecs * (kTileRows / 4u) + row / 4u;
      w_scales[at][row % 4u] = scale.x;
      if (kHasMinimum) w_minima[at][row % 4u] = scale.y;
    }
  }
}

// Four lanes beside each other have a row's step.
void store_x() {
  const float kRound = 12582912.0;  // 1.5 * 2^23: what is added to it is rounded to the integer of its lowest bits
  [[unroll]] for (uint j = 0; j < kParts; ++j) {
    uint i = j * kLanes + lane, part = i % 4u, col = i / 4u;
    vec4 y[4];
    float largest = 0.0;
    uint exponents = 0u;
    [[unroll]] for (uint v = 0; v < 4; ++v) {
      uvec4 octet = next_x[j][v / 2];
      y[v] = v % 2 == 0 ? vec4(unpackHalf2x16(octet.x), unpackHalf2x16(octet.y))
                        : vec4(unpackHalf2x16(octet.z), unpackHalf2x16(octet.w));
      vec4 a = abs(y[v]);
      largest = max(largest, max(max(a.x, a.y), max(a.z, a.w)));
      uvec2 pairs = v % 2 == 0 ? octet.xy : octet.zw;
      exponents |= (pairs.x & 0x7c007c00u) + 0x04000400u | (pairs.y & 0x7c007c00u) + 0x04000400u;
    }
    if ((exponents & 0x80008000u) != 0u) largest = kInfinity;  // or one of them is not a number
    if (kRunVecs == 8) largest = max(largest, subgroupShuffleXor(largest, 1u));
    float inverse = largest > 0.0 ? 127.0 / largest : 0.0;
    int bytes_sum = 0;
    uint words[4];
    [[unroll]] for (uint v = 0; v < 4; ++v) {
      uvec4 rounded = floatBitsToUint(y[v] * inverse + kRound);
      words[v] = rounded.x & 255u | (rounded.y & 255u) << 8 | (rounded.z & 255u) << 16 | rounded.w << 24;
      if (kHasMinimum) bytes_sum += dotPacked4x8EXT(int(words[v]), 0x01010101);
    }
    if (kHasMinimum && kRunVecs == 8) bytes_sum += subgroupShuffleXor(bytes_sum, 1u);
    if (kTileCols * 4 % kLanes != 0u && col >= kTileCols) continue;
    [[unroll]] for (uint v = 0; v < 4; ++v) x_tile[tile_at(part * 4u + v, col / 4u, kTileCols)][col % 4u] = words[v];
    if (kRunVecs == 8 && part % 2u != 0u) continue;
    uint at = part * 4u / kRunVecs * (kTileCols / 4u) + col / 4u;
    float scale = largest / 127.0;
    x_scales[at][col % 4u] = scale;
    if (kHasMinimum) x_sums[at][col % 4u] = scale * float(bytes_sum);
  }
}

void main() {
  uint num_cols = count.w[0], row_first = gl_WorkGroupID.x * kTileRows, col_first = gl_WorkGroupID.y * kTileCols;
  if (col_first >= num_cols) return;
  lane = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  uint row_quad = row_quad_of(lane), col_quad = col_quad_of(lane);
  clear_sums();
  uint num_steps = columns / (4u * kStepVecs), end = split_first(num_steps, gl_WorkGroupID.z + 1u);
  uint step = split_first(num_steps, gl_WorkGroupID.z);
  fetch_step(row_first, col_first, num_cols, step);
  for (; step < end; ++step) {
    store_w(step);
    store_x();
    barrier();
    fetch_step(row_first, col_first, num_cols, min(step + 1u, end - 1u));
    [[dont_unroll]] for (uint run = 0; run < kRuns; ++run) {
      int dots[kQuads * 4][kQuads * 4];
      [[unroll]] for (uint v = 0; v < kRunVecs; ++v) {
        uvec4 w[kQuads], y[kQuads];
        [[unroll]] for (uint i = 0; i < kQuads; ++i) {
          w[i] = w_tile[tile_at(run * kRunVecs + v, row_quad + 16u * i, kTileRows)];
          y[i] = x_tile[tile_at(run * kRunVecs + v, col_quad + kColLanes * i, kTileCols)];
        }
        [[unroll]] for (uint c = 0; c < kQuads * 4; ++c)
          [[unroll]] for (uint r = 0; r < kQuads * 4; ++r) {
            int product = dotPacked4x8EXT(int(w[r / 4][r % 4]), int(y[c / 4][c % 4]));
            dots[c][r] = v == 0 ? product : dots[c][r] + product;
          }
      }
      [[unroll]] for (uint i = 0; i < kQuads; ++i) {
        uint w_at = run * (kTileRows / 4u) + row_quad + 16u * i;
        vec4 scale = w_scales[w_at], minimum = vec4(0.0);
        if (kHasMinimum) minimum = w_minima[w_at];
        [[unroll]] for (uint q = 0; q < kQuads; ++q) {
          uint x_at = run * (kTileCols / 4u) + col_quad + kColLanes * q;
          vec4 x_scale = x_scales[x_at];
          [[unroll]] for (uint c = 0; c < 4; ++c) {
            ivec4 four = ivec4(dots[4 * q + c][4 * i], dots[4 * q + c][4 * i + 1], dots[4 * q + c][4 * i + 2],
                               dots[4 * q + c][4 * i + 3]);
            sums[4 * q + c][i] += vec4(four) * scale * x_scale[c];
            if (kHasMinimum) sums[4 * q + c][i] += minimum * x_sums[x_at][c];
          }
        }
      }
    }
    barrier();
  }
  if (join_splits(lane)) write_sums(row_first, col_first, num_cols, row_quad, col_quad);
}
