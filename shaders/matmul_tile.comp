// out = x * W^T + bias by tiles of weight rows (grid x) by rows of x (grid y), f32 arithmetic, no matrix units. 16 x
// kColLanes invocations; each sums kQuads x kQuads blocks of 4 x 4, as far apart as those of all reach. A step takes 8 vec4
// of every row: whole units, in the units' own order of numbers.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "types.glsl"
#include "dequant.glsl"

layout(constant_id = 11) const uint kXDType = kF32;
layout(constant_id = 12) const bool kBias = false;
layout(constant_id = 13) const uint kQuads = 1;
layout(constant_id = 14) const uint kColLanes = 16;

#include "tile_sums.glsl"

const uint kStep = 32;
const uint kUnitsStep = 8 / kUnitVecs;
// What small lanes would spill: the next step's numbers, and products of many vec4s of a step under way.
const bool kFetchesAhead = kQuads > 1;
const uint kBatch = kQuads > 1 ? kStep / 4 : 1;
// [number of a row][four rows], 16 or 24 KB in all.
shared vec4 w_tile[kStep * kTileRows / 4], x_tile[kStep * kTileCols / 4];
#include "tile_ends.glsl"

// Place of four rows' numbers e of vec4 `vec` of theirs, of so many. Each vec4 has them in another order, eight together,
// so that lanes that store different vec4s meet different banks.
uint tile_at(uint vec, uint e, uint quad, uint rows) { return (vec * 4u + e) * (rows / 4u) + (quad ^ vec % (rows / 4u)); }

// An invocation's share of a step, on its way from memory.
const uint kUnits = (kTileRows * kUnitsStep + kLanes - 1) / kLanes, kVecs = kTileCols * 8 / kLanes;
Unit next_w[kUnits];
uvec4 next_x[kVecs];  // as they lie in memory

void fetch_step(uint row_first, uint col_first, uint num_cols, uint step) {
  [[unroll]] for (uint j = 0; j < kUnits; ++j) {
    uint i = j * kLanes + gl_LocalInvocationID.x, row = min(row_first + i / kUnitsStep, num_rows - 1u);
    next_w[j] = fetch_unit(weight, row_at(row, row_words), columns, step * kUnitsStep + i % kUnitsStep);
  }
  [[unroll]] for (uint j = 0; j < kVecs; ++j) {
    uint i = j * kLanes + gl_LocalInvocationID.x, v = i % 8u, col = min(col_first + i / 8u, num_cols - 1u);
    uint at = col * (columns / 4u) + unit_x(step * kUnitsStep + v / kUnitVecs, v % kUnitVecs);
    next_x[j] = kXDType == kF32 ? floatBitsToUint(Vec4s(x).v[at]) : uvec4(Pairs(x).p[at], 0u, 0u);
  }
}

void store_step(uint step) {
  [[unroll]] for (uint j = 0; j < kUnits; ++j) {
    uint i = j * kLanes + gl_LocalInvocationID.x, row = i / kUnitsStep, u = i % kUnitsStep;
    if (kTileRows * kUnitsStep % kLanes != 0u && row >= kTileRows) continue;
    [[unroll]] for (uint v = 0; v < kUnitVecs; ++v) {
      vec4 w = unit_numbers(next_w[j], step * kUnitsStep + u, v);
      [[unroll]] for (uint e = 0; e < 4; ++e) w_tile[tile_at(u * kUnitVecs + v, e, row / 4u, kTileRows)][row % 4u] = w[e];
    }
  }
  [[unroll]] for (uint j = 0; j < kVecs; ++j) {
    uint i = j * kLanes + gl_LocalInvocationID.x, v = i % 8u, col = i / 8u;
    vec4 y = kXDType == kF32 ? uintBitsToFloat(next_x[j])
                             : vec4(unpack16(next_x[j].x, kXDType), unpack16(next_x[j].y, kXDType));
    [[unroll]] for (uint e = 0; e < 4; ++e) x_tile[tile_at(v, e, col / 4u, kTileCols)][col % 4u] = y[e];
  }
}

void main() {
  uint num_cols = count.w[0], row_first = gl_WorkGroupID.x * kTileRows, col_first = gl_WorkGroupID.y * kTileCols;
  if (col_first >= num_cols) return;
  uint row_quad = row_quad_of(gl_LocalInvocationID.x), col_quad = col_quad_of(gl_LocalInvocationID.x);
  clear_sums();
  uint num_steps = columns / kStep, end = split_first(num_steps, gl_WorkGroupID.z + 1u);
  uint step = split_first(num_steps, gl_WorkGroupID.z);
  if (kFetchesAhead) fetch_step(row_first, col_first, num_cols, step);
  for (; step < end; ++step) {
    if (!kFetchesAhead) fetch_step(row_first, col_first, num_cols, step);
    store_step(step);
    barrier();
    if (kFetchesAhead) fetch_step(row_first, col_first, num_cols, min(step + 1u, end - 1u));
    [[dont_unroll]] for (uint first = 0; first < kStep / 4u; first += kBatch)
      [[unroll]] for (uint e = 0; e < 4u * kBatch; ++e) {
        // NVIDIA's compiler would else have the numbers of all in registers.
        if (kBatch > 1 && e > 0u && e % 8u == 0u) subgroupMemoryBarrierShared();
        uint v = first + e / 4u;
        vec4 w[kQuads], y[kQuads];
        [[unroll]] for (uint i = 0; i < kQuads; ++i) {
          w[i] = w_tile[tile_at(v, e % 4u, row_quad + 16u * i, kTileRows)];
          y[i] = x_tile[tile_at(v, e % 4u, col_quad + kColLanes * i, kTileCols)];
        }
        [[unroll]] for (uint c = 0; c < kQuads * 4; ++c)
          [[unroll]] for (uint i = 0; i < kQuads; ++i) sums[c][i] += w[i] * y[c / 4][c % 4];
      }
    barrier();
  }
  if (join_splits(gl_LocalInvocationID.x)) write_sums(row_first, col_first, num_cols, row_quad, col_quad);
}
