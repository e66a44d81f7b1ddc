// out = x * W^T + bias by tiles of weight rows (grid x) by rows of x (grid y), in packed f16, no matrix units. A step takes
// 32 columns, whose products are added in f16, sixteen on each side of a pair, and those sums in f32: that rounds three
// times as much as a factor rounded to f16. A row's 32 numbers of x are first brought to below 2 (4 where they reach
// 32,768) by a power of two, so products neither vanish nor, with weights below 1,000, overflow to inf, which sampling
// reports, as it does where weights are beyond f16's range. x: f16.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "types.glsl"
#include "dequant.glsl"
#include "halves.glsl"

layout(constant_id = 11) const bool kBias = false;
layout(constant_id = 12) const uint kQuads = 1;
layout(constant_id = 13) const uint kColLanes = 16;
#include "tile_sums.glsl"

const uint kStepPairs = 16;
const uint kUnitPairs = 2 * kUnitVecs, kUnitsStep = kStepPairs / kUnitPairs;
shared uvec4 w_tile[kStepPairs * kTileRows / 4], x_tile[kStepPairs * kTileCols / 4];  // [pair of columns][four rows]
shared vec4 x_scales[kTileCols / 4];                                                  // [four rows of x]
#include "tile_ends.glsl"

// Place of four rows' pair. Lanes that store different fours of pairs of a row meet different banks.
uint tile_at(uint pair, uint quad, uint rows) { return pair * (rows / 4u) + (quad ^ pair / 4u * 2u % (rows / 4u)); }

// An invocation's share of a step, on its way from memory. Of x: half of a row's numbers.
const uint kUnits = (kTileRows * kUnitsStep + kLanes - 1) / kLanes, kHalves = (kTileCols * 2 + kLanes - 1) / kLanes;
Unit next_w[kUnits];
uvec4 next_x[kHalves][2];
uint lane;

void fetch_step(uint row_first, uint col_first, uint num_cols, uint step) {
  [[unroll]] for (uint j = 0; j < kUnits; ++j) {
    uint i = j * kLanes + lane, row = min(row_first + i / kUnitsStep, num_rows - 1u);
    next_w[j] = fetch_unit(weight, row_at(row, row_words), columns, step * kUnitsStep + i % kUnitsStep);
  }
  [[unroll]] for (uint j = 0; j < kHalves; ++j) {
    uint i = j * kLanes + lane, vec = i % 2u * 4u, col = min(col_first + i / 2u, num_cols - 1u);
    uint at = col * (columns / 8u) + unit_x(step * kUnitsStep + vec / kUnitVecs, vec % kUnitVecs) / 2u;
    next_x[j] = uvec4[2](Quads(x).q[at], Quads(x).q[at + 1u]);
  }
}

void store_w(uint step) {
  [[unroll]] for (uint j = 0; j < kUnits; ++j) {
    uint i = j * kLanes + lane, row = i / kUnitsStep, u = i % kUnitsStep;
    f16vec2 pairs[2 * kUnitsMaxVecs];
    expand_pairs(next_w[j], step * kUnitsStep + u, pairs);
    if (kTileRows * kUnitsStep % kLanes != 0u && row >= kTileRows) continue;
    [[unroll]] for (uint p = 0; p < kUnitPairs; ++p)
      w_tile[tile_at(u * kUnitPairs + p, row / 4u, kTileRows)][row % 4u] = packFloat2x16(pairs[p]);
  }
}

// The biased exponent of the largest of a row's numbers, half of which the neighbour has.
uint row_exponent(uvec4 x[2]) {
  f16vec2 largest = f16vec2(0.0);
  [[unroll]] for (uint i = 0; i < 8; ++i) largest = max(largest, abs(unpackFloat2x16(x[i / 4][i % 4])));
  uint bits = packFloat2x16(f16vec2(max(largest.x, largest.y), 0.0));
  return clamp(max(bits, subgroupShuffleXor(bits, 1u)) >> 10, 1u, 29u);
}

void store_x() {
  [[unroll]] for (uint j = 0; j < kHalves; ++j) {
    uint i = j * kLanes + lane, half_first = i % 2u * 8u, col = i / 2u, exponent = row_exponent(next_x[j]);
    if (kTileCols * 2 % kLanes != 0u && col >= kTileCols) continue;
    f16vec2 factor = unpackFloat2x16((30u - exponent) * 0x04000400u);
    [[unroll]] for (uint p = 0; p < 8; p += 2) {
      f16vec2 pairs[2];
      pairs_of(uvec2(next_x[j][p / 4][p % 4], next_x[j][p / 4][p % 4 + 1]), pairs[0], pairs[1]);
      [[unroll]] for (uint k = 0; k < 2; ++k)
        x_tile[tile_at(half_first + p + k, col / 4u, kTileCols)][col % 4u] = packFloat2x16(pairs[k] * factor);
    }
    if (half_first == 0u) x_scales[col / 4u][col % 4u] = uintBitsToFloat((exponent + 112u) << 23);
  }
}

void main() {
  uint num_cols = count.w[0], row_first = gl_WorkGroupID.x * kTileRows, col_first = gl_WorkGroupID.y * kTileCols;
  if (col_first >= num_cols) return;
  lane = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  uint row_quad = row_quad_of(lane), col_quad = col_quad_of(lane);
  clear_sums();
  uint num_steps = columns / (2u * kStepPairs), end = split_first(num_steps, gl_WorkGroupID.z + 1u);
  uint step = split_first(num_steps, gl_WorkGroupID.z);
  fetch_step(row_first, col_first, num_cols, step);
  for (; step < end; ++step) {
    store_w(step);
    store_x();
    barrier();
    fetch_step(row_first, col_first, num_cols, min(step + 1u, end - 1u));
    f16vec2 chains[4 * kQuads][kQuads * 4];
    [[unroll]] for (uint p = 0; p < kStepPairs; ++p) {
      // NVIDIA's compiler would else have the numbers of all pairs in registers.
      if (p > 0 && p % 2 == 0) subgroupMemoryBarrierShared();
      uvec4 w[kQuads], y[kQuads];
      [[unroll]] for (uint k = 0; k < kQuads; ++k) y[k] = x_tile[tile_at(p, col_quad + kColLanes * k, kTileCols)];
      [[unroll]] for (uint k = 0; k < kQuads; ++k) w[k] = w_tile[tile_at(p, row_quad + 16u * k, kTileRows)];
      [[unroll]] for (uint c = 0; c < 4 * kQuads; ++c)
        [[unroll]] for (uint r = 0; r < kQuads * 4; ++r) {
          f16vec2 a = unpackFloat2x16(w[r / 4][r % 4]), b = unpackFloat2x16(y[c / 4][c % 4]);
          chains[c][r] = p == 0 ? a * b : fma(a, b, chains[c][r]);
        }
    }
    [[unroll]] for (uint c = 0; c < 4 * kQuads; ++c)
      [[unroll]] for (uint r = 0; r < kQuads * 4; ++r) {
        float scale = x_scales[col_quad + kColLanes * (c / 4)][c % 4];
        sums[c][r / 4][r % 4] += float(chains[c][r].x) * scale;
        sums[c][r / 4][r % 4] += float(chains[c][r].y) * scale;
      }
    barrier();
  }
  if (join_splits(lane)) write_sums(row_first, col_first, num_cols, row_quad, col_quad);
}
