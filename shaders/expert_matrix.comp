// The matrices of experts by many rows, on matrix units (KHR cooperative matrix): f16 factors, f32 sums. A workgroup makes an
// item of up to kTileCols rows of x (grid y) by kTileRows weight rows (grid x), with kGated by half as many of gate and those
// of up. A step takes 64 columns of both into shared memory as f16, while the loads of the next step are under way; rows of x
// are found by the item's routed rows. Sums are added step by step whatever the item has, so that no number of a row depends
// on the others.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "types.glsl"
#include "dequant.glsl"
#include "halves.glsl"
#include "activation.glsl"
#include "gated.glsl"
#include "expert_items.glsl"
#include "expert_ends.glsl"

layout(constant_id = 19) const uint kTileRows = 64;
layout(constant_id = 20) const uint kTileCols = 32;
layout(constant_id = 21) const uint kPartRows = 16;  // of a subgroup
layout(constant_id = 22) const uint kPartCols = 32;
layout(constant_id = 23) const uint kM = 16;  // the device's shape: rows of x
layout(constant_id = 24) const uint kN = 16;  // weight rows
layout(constant_id = 25) const uint kK = 16;  // columns

// Eight f16 a uvec4, also because matrices are loaded from multiples of 16 bytes: the type aligns the array.
const uint kStepOctets = 8, kStride = kStepOctets + 1;  // 16 bytes of padding against bank conflicts
const uint kUnitOctets = kUnitVecs / 2, kStepUnits = kStepOctets / kUnitOctets;
const uint kPartsAlongRows = kTileRows / kPartRows, kParts = kPartsAlongRows * (kTileCols / kPartCols);
const uint kFragsCols = kPartCols / kM, kFragsRows = kPartRows / kN, kFrags = kFragsCols * kFragsRows;
const uint kLanes = kParts * kSubgroup;
const uint kTileOutputs = kGated ? kTileRows / 2 : kTileRows;
// At last sums, row by row of x, as many rows at a time as there is room for.
const uint kSumsStride = kTileRows / 4 + 1;
const uint kTilesOctets = (kTileRows + kTileCols) * kStride;
const uint kSumsCols = kM * (kTileCols / kPartCols);  // a matrix of rows of x of each part
shared uvec4 tiles[kTilesOctets > kSumsCols * kSumsStride ? kTilesOctets : kSumsCols * kSumsStride];
const uint kXTile = kTileRows * kStride;

const uint kLaneUnits = (kTileRows * kStepUnits + kLanes - 1) / kLanes;
const uint kLaneOctets = (kTileCols * kStepOctets + kLanes - 1) / kLanes;
Unit next_units[kLaneUnits];
uvec4 next_octets[kLaneOctets][kXDType == kF32 ? 2 : 1];  // as they lie in memory
Words unit_sources[kLaneUnits];
uint unit_rows[kLaneUnits], octet_rows[kLaneOctets];  // of row_at; octets before the row

void find_rows(Item item) {
  [[unroll]] for (uint j = 0; j < kLaneUnits; ++j) {
    uint m = min((j * kLanes + gl_LocalInvocationIndex) / kStepUnits, kTileRows - 1u);
    uint row = gate_row(item, gl_WorkGroupID.x * kTileOutputs + m % kTileOutputs);
    bool is_up = kGated && m >= kTileOutputs;
    unit_sources[j] = weight;
    if (is_up) unit_sources[j] = up;
    unit_rows[j] = row_at(is_up ? row + up_first : row, row_words);
  }
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uint n = min((j * kLanes + gl_LocalInvocationIndex) / kStepOctets, item.num_rows - 1u);
    octet_rows[j] = row_of(item, n) / x_per_row * (columns / 8u);
  }
}

void fetch(uint step) {
  [[unroll]] for (uint j = 0; j < kLaneUnits; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex;
    if (kTileRows * kStepUnits % kLanes == 0 || i < kTileRows * kStepUnits)
      next_units[j] = fetch_unit(unit_sources[j], unit_rows[j], columns, step * kStepUnits + i % kStepUnits);
  }
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex;
    uint octet = i % kStepOctets, unit = step * kStepUnits + octet / kUnitOctets;
    uint at = octet_rows[j] + unit_x(unit, octet % kUnitOctets * 2u) / 2u;
    if (kTileCols * kStepOctets % kLanes != 0 && i >= kTileCols * kStepOctets) continue;
    if (kXDType == kF32) {
      next_octets[j][0] = Quads(x).q[2u * at];
      next_octets[j][kXDType == kF32 ? 1 : 0] = Quads(x).q[2u * at + 1u];
    } else {
      next_octets[j][0] = Quads(x).q[at];
    }
  }
}

uvec2 halves_of(uvec4 quad) {
  vec4 y = uintBitsToFloat(quad);
  return uvec2(packFloat2x16(f16vec2(y.xy)), packFloat2x16(f16vec2(y.zw)));
}

void store(uint step) {
  [[unroll]] for (uint j = 0; j < kLaneUnits; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex, unit = i % kStepUnits;
    uint target = i / kStepUnits * kStride + unit * kUnitOctets;
    if (kTileRows * kStepUnits % kLanes != 0 && i >= kTileRows * kStepUnits) continue;
    f16vec2 pairs[2 * kUnitsMaxVecs];
    expand_pairs(next_units[j], step * kStepUnits + unit, pairs);
    [[unroll]] for (uint o = 0; o < kUnitOctets; ++o)
      tiles[target + o] = uvec4(quad_of(pairs[4 * o], pairs[4 * o + 1]), quad_of(pairs[4 * o + 2], pairs[4 * o + 3]));
  }
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex;
    if (kTileCols * kStepOctets % kLanes != 0 && i >= kTileCols * kStepOctets) continue;
    uvec4 octet = next_octets[j][0];
    if (kXDType == kF32) octet = uvec4(halves_of(octet), halves_of(next_octets[j][kXDType == kF32 ? 1 : 0]));
    tiles[kXTile + i / kStepOctets * kStride + i % kStepOctets] = octet;
  }
}

// Matrix `f` of rows of x of all parts, in tiles: four outputs at a time, of which there are whole fours.
void finish(Item item, uint f) {
  const uint kQuads = kTileOutputs / 4;
  for (uint i = gl_LocalInvocationIndex; i < kSumsCols * kQuads; i += kLanes) {
    uint quad = i % kQuads, at = i / kQuads, n = at / kM * kPartCols + f * kM + at % kM;
    uint first = gl_WorkGroupID.x * kTileOutputs + quad * 4u;
    if (n >= item.num_rows || first >= num_outputs) continue;
    vec4 gate = uintBitsToFloat(tiles[at * kSumsStride + quad]), up_sum = gate, y;
    if (kGated) up_sum = uintBitsToFloat(tiles[at * kSumsStride + quad + kQuads]);
    uint row = row_of(item, n), to = (row * result_columns + first) / 4u;
    [[unroll]] for (uint e = 0; e < 4; ++e) y[e] = output_of(item, row, first + e, gate[e], up_sum[e]);
    if (kOutDType == kF32)
      Vec4s(result).v[to] = y;
    else
      Pairs(result).p[to] = uvec2(pack16(y.xy, kOutDType), pack16(y.zw, kOutDType));
  }
}

void main() {
  Item item = take_item(gl_WorkGroupID.y, kTileCols);
  if (item.num_rows == 0u) return;
  find_rows(item);
  uint part = gl_SubgroupID, part_row = part % kPartsAlongRows, part_col = part / kPartsAlongRows;
  uint w_at = part_row * kPartRows * kStride, x_at = kXTile + part_col * kPartCols * kStride;
  coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kFrags];
  [[unroll]] for (uint f = 0; f < kFrags; ++f)
    sums[f] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
  uint steps = columns / (8u * kStepOctets);
  bool is_live = part_col * kPartCols < item.num_rows;
  fetch(0u);
  for (uint step = 0; step < steps; ++step) {
    store(step);
    barrier();
    if (step + 1u < steps) fetch(step + 1u);
    if (is_live) [[unroll]] for (uint k = 0; k < kStepOctets; k += kK / 8) {
      coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a[kFragsCols];
      [[unroll]] for (uint c = 0; c < kFragsCols; ++c)
        coopMatLoad(a[c], tiles, x_at + c * kM * kStride + k, kStride, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint r = 0; r < kFragsRows; ++r) {
        coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
        coopMatLoad(b, tiles, w_at + r * kN * kStride + k, kStride, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint c = 0; c < kFragsCols; ++c)
          sums[c * kFragsRows + r] = coopMatMulAdd(a[c], b, sums[c * kFragsRows + r]);
      }
    }
    barrier();
  }
  [[unroll]] for (uint c = 0; c < kFragsCols; ++c) {
    [[unroll]] for (uint r = 0; r < kFragsRows; ++r)
      coopMatStore(sums[c * kFragsRows + r], tiles, part_col * kM * kSumsStride + (part_row * kPartRows + r * kN) / 4u,
                   kSumsStride, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    finish(item, c);
    barrier();
  }
}
