// out = x * W^T + bias on matrix units (KHR cooperative matrix): f16 factors, f32 sums. A workgroup makes a tile of
// kTileRows weight rows (grid y) by kTileCols rows of x (grid x: groups that need the same weights run at the same
// time, and memory gives them once); a step takes 64 * kSlices columns of both into shared memory as f16, while the loads of the next kAhead steps are under way. A subgroup owns a part of the tile
// and, of each step, one of kSlices slices of columns. With few tiles the columns are also split among workgroups
// (grid z): each leaves its sums in `products`, and the last to arrive adds them up. Slices and splits are summed in
// their order, whoever is last; with kSerial a workgroup makes the splits itself, and the sums are the same. Numbers of
// bf16 weights are rounded to f16; beyond its range they become inf, which sampling reports.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "types.glsl"
#include "arrival.glsl"
#include "dequant.glsl"
#include "halves.glsl"

layout(constant_id = 11) const bool kBias = false;
layout(constant_id = 12) const uint kTileRows = 32;
layout(constant_id = 13) const uint kTileCols = 32;
layout(constant_id = 14) const uint kPartRows = 16;  // of a subgroup
layout(constant_id = 15) const uint kPartCols = 32;
layout(constant_id = 16) const uint kSlices = 4;
layout(constant_id = 17) const uint kM = 16;  // the device's shape: rows of x
layout(constant_id = 18) const uint kN = 16;  // rows of the weight
layout(constant_id = 19) const uint kK = 16;  // columns
layout(constant_id = 20) const uint kAhead = 1;  // steps whose loads are under way
layout(constant_id = 21) const uint kSerial = 1;  // splits that one workgroup makes one after the other

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Products { queuefamilycoherent vec4 v[]; };

layout(push_constant) uniform Push {
  Words x, weight;  // x: f16
  Floats bias, result;
  Words count;
  Products products;  // [tile][split][fragment of a part][kPartQuads]
  Words arrivals;     // [tile] splits that are done; 0 before and after
  uint columns, row_words, num_rows;
  uint result_first, result_columns;
};

// Eight f16 a uvec4, also because matrices are loaded from multiples of 16 bytes: the type aligns the array.
const uint kSliceColumns = 64;
const uint kStepOctets = kSliceColumns * kSlices / 8;
const uint kStride = kStepOctets + 1;  // 16 bytes of padding against bank conflicts
const uint kUnitOctets = kUnitVecs / 2;
const uint kStepUnits = kStepOctets / kUnitOctets;
const uint kPartsAlongRows = kTileRows / kPartRows;
const uint kParts = kPartsAlongRows * (kTileCols / kPartCols);
const uint kFragsCols = kPartCols / kM, kFragsRows = kPartRows / kN, kFrags = kFragsCols * kFragsRows;
const uint kFragQuads = kM * kN / 4, kPartQuads = kParts * kFragQuads;
const uint kLanes = kParts * kSlices * kSubgroup;
const uint kTilesOctets = (kTileRows + kTileCols) * kStride, kStagingQuads = kPartQuads * kSlices;
shared uvec4 tiles[kTilesOctets > kStagingQuads ? kTilesOctets : kStagingQuads];  // weights, x; at last sums
const uint kXTile = kTileRows * kStride;

// A lane's share of the next kAhead steps, on its way from memory.
const uint kLaneUnits = (kTileRows * kStepUnits + kLanes - 1) / kLanes;
const uint kLaneOctets = (kTileCols * kStepOctets + kLanes - 1) / kLanes;
Unit next_units[kAhead][kLaneUnits];
uvec4 next_octets[kAhead][kLaneOctets];
uint unit_rows[kLaneUnits], octet_rows[kLaneOctets];  // where their rows are: of row_at, in octets

void find_rows(uint row_first, uint col_first, uint num_cols) {
  [[unroll]] for (uint j = 0; j < kLaneUnits; ++j)
    unit_rows[j] = row_at(min(row_first + (j * kLanes + gl_LocalInvocationIndex) / kStepUnits, num_rows - 1u), row_words);
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j)
    octet_rows[j] = min(col_first + (j * kLanes + gl_LocalInvocationIndex) / kStepOctets, num_cols - 1u) * (columns / 8u);
}

void fetch(uint slot, uint step) {
  [[unroll]] for (uint j = 0; j < kLaneUnits; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex;
    if (kTileRows * kStepUnits % kLanes == 0 || i < kTileRows * kStepUnits)
      next_units[slot][j] = fetch_unit(weight, unit_rows[j], columns, step * kStepUnits + i % kStepUnits);
  }
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex;
    uint octet = i % kStepOctets, unit = step * kStepUnits + octet / kUnitOctets;
    if (kTileCols * kStepOctets % kLanes == 0 || i < kTileCols * kStepOctets)
      next_octets[slot][j] = Quads(x).q[octet_rows[j] + unit_x(unit, octet % kUnitOctets * 2u) / 2u];
  }
}

void store(uint slot, uint step) {
  [[unroll]] for (uint j = 0; j < kLaneUnits; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex, unit = i % kStepUnits;
    uint target = i / kStepUnits * kStride + unit * kUnitOctets;
    if (kTileRows * kStepUnits % kLanes != 0 && i >= kTileRows * kStepUnits) continue;
    f16vec2 pairs[2 * kUnitsMaxVecs];
    expand_pairs(next_units[slot][j], step * kStepUnits + unit, pairs);
    [[unroll]] for (uint o = 0; o < kUnitOctets; ++o)
      tiles[target + o] = uvec4(quad_of(pairs[4 * o], pairs[4 * o + 1]), quad_of(pairs[4 * o + 2], pairs[4 * o + 3]));
  }
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex;
    if (kTileCols * kStepOctets % kLanes == 0 || i < kTileCols * kStepOctets)
      tiles[kXTile + i / kStepOctets * kStride + i % kStepOctets] = next_octets[slot][j];
  }
}

// Quad `i` of the parts' fragments `f`: four neighbours along the weight rows.
void finish(uint row_first, uint col_first, uint num_cols, uint f, uint i, vec4 sum) {
  uint part = i / kFragQuads, e = i % kFragQuads * 4u;
  uint n = row_first + part % kPartsAlongRows * kPartRows + f % kFragsRows * kN + e % kN;
  uint t = col_first + part / kPartsAlongRows * kPartCols + f / kFragsRows * kM + e / kN;
  if (t >= num_cols) return;
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    if (n + c >= num_rows) return;
    result.f[t * result_columns + result_first + n + c] = sum[c] + (kBias ? bias.f[result_first + n + c] : 0.0);
  }
}

void main() {
  uint num_cols = count.w[0], col_first = gl_WorkGroupID.x * kTileCols, row_first = gl_WorkGroupID.y * kTileRows;
  if (col_first >= num_cols) return;
  find_rows(row_first, col_first, num_cols);
  uint slice = gl_SubgroupID % kSlices, part = gl_SubgroupID / kSlices;
  uint w_at = part % kPartsAlongRows * kPartRows * kStride + slice * kSliceColumns / 8u;
  uint x_at = kXTile + part / kPartsAlongRows * kPartCols * kStride + slice * kSliceColumns / 8u;
  coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kFrags], totals[kFrags];
  [[unroll]] for (uint f = 0; f < kFrags; ++f)
    totals[f] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
  uint steps = columns / (8u * kStepOctets), splits = gl_NumWorkGroups.z, split = gl_WorkGroupID.z;
  for (uint serial = 0; serial < kSerial; ++serial) {
    uint part_idx = split * kSerial + serial, num_parts = splits * kSerial;
    uint step = steps * part_idx / num_parts, end = steps * (part_idx + 1u) / num_parts;
    [[unroll]] for (uint f = 0; f < kFrags; ++f)
      sums[f] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
    [[unroll]] for (uint slot = 0; slot < kAhead; ++slot)
      if (step + slot < end) fetch(slot, step + slot);
    for (; step < end; step += kAhead) {
      [[unroll]] for (uint slot = 0; slot < kAhead; ++slot) {
        uint now = step + slot;
        if (now >= end) break;
        store(slot, now);
        barrier();
        if (now + kAhead < end) fetch(slot, now + kAhead);
        [[unroll]] for (uint k = 0; k < kSliceColumns / 8; k += kK / 8) {
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
    }
    if (kSerial > 1u) [[unroll]] for (uint f = 0; f < kFrags; ++f) totals[f] += sums[f];
  }
  if (kSerial > 1u) [[unroll]] for (uint f = 0; f < kFrags; ++f) sums[f] = totals[f];
  // A whole tile goes to memory as it is; others by way of shared memory, number by number.
  if (!kBias && kSlices == 1u && splits == 1u && col_first + kTileCols <= num_cols && row_first + kTileRows <= num_rows &&
      (result_first | result_columns) % 4u == 0u) {
    uint n = row_first + part % kPartsAlongRows * kPartRows, t = col_first + part / kPartsAlongRows * kPartCols;
    [[unroll]] for (uint f = 0; f < kFrags; ++f)
      coopMatStore(sums[f], result.f, (t + f / kFragsRows * kM) * result_columns + result_first + n + f % kFragsRows * kN,
                   result_columns, gl_CooperativeMatrixLayoutRowMajor);
    return;
  }
  uint tile = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  uint place = (tile * splits + split) * kFrags * kPartQuads;
  [[unroll]] for (uint f = 0; f < kFrags; ++f) {
    coopMatStore(sums[f], tiles, gl_SubgroupID * kFragQuads, kN / 4, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < kPartQuads; i += kLanes) {
      vec4 sum = vec4(0.0);
      uint first = i / kFragQuads * kSlices * kFragQuads + i % kFragQuads;
      [[unroll]] for (uint s = 0; s < kSlices; ++s) sum += uintBitsToFloat(tiles[first + s * kFragQuads]);
      if (splits == 1u)
        finish(row_first, col_first, num_cols, f, i, sum);
      else
        products.v[place + f * kPartQuads + i] = sum;
    }
    barrier();
  }
  if (splits == 1u) return;
  if (!arrives_last(arrivals, tile, splits)) return;
  place = tile * splits * kFrags * kPartQuads;
  for (uint i = gl_LocalInvocationIndex; i < kFrags * kPartQuads; i += kLanes) {
    vec4 sum = vec4(0.0);
    for (uint s = 0; s < splits; ++s) sum += products.v[place + s * kFrags * kPartQuads + i];
    finish(row_first, col_first, num_cols, i / kPartQuads, i % kPartQuads, sum);
  }
}
