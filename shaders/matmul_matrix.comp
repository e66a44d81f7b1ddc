// out = x * W^T + bias on matrix units (KHR cooperative matrix): f16 factors, f32 sums. A workgroup makes a tile of
// kTileRows weight rows (grid x) by kTileCols rows of x (grid y); a step takes kStep columns of both into shared memory
// as f16. A subgroup owns a part of the tile and, of each step, one of kSlices slices of columns: with few rows of x the
// slices keep enough loads in flight to stream the weights. Slices are summed in their order at the end.
// Numbers of bf16 and f32 weights are rounded to f16; beyond its range they become inf, which sampling reports.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "types.glsl"
#include "dequant.glsl"

layout(constant_id = 11) const uint kXDType = kF32;
layout(constant_id = 12) const bool kBias = false;
layout(constant_id = 13) const uint kTileRows = 32;
layout(constant_id = 14) const uint kTileCols = 32;
layout(constant_id = 15) const uint kPartRows = 16;  // of a subgroup
layout(constant_id = 16) const uint kPartCols = 32;
layout(constant_id = 17) const uint kSlices = 4;
layout(constant_id = 18) const uint kM = 16;  // the device's shape: rows of x
layout(constant_id = 19) const uint kN = 16;  // rows of the weight
layout(constant_id = 20) const uint kK = 16;  // columns

layout(push_constant) uniform Push {
  Words x, weight;
  Floats bias, result;
  Words count;
  uint columns, row_words, num_rows;
  uint result_first, result_columns;
};

const uint kSliceColumns = 64;
const uint kStep = kSliceColumns * kSlices;
const uint kStride = kStep / 4 + 2;  // in f16vec4: 16 bytes of padding against bank conflicts
const uint kUnitsStep = kStep / 4 / kUnitVecs;
const uint kPartsAlongRows = kTileRows / kPartRows;
const uint kParts = kPartsAlongRows * (kTileCols / kPartCols);
const uint kFragsCols = kPartCols / kM, kFragsRows = kPartRows / kN;
shared f16vec4 w_tile[kTileRows * kStride], x_tile[kTileCols * kStride];
shared float staging[kParts * kSlices * kM * kN];

f16vec4 halves(uvec2 words) { return f16vec4(unpackFloat2x16(words.x), unpackFloat2x16(words.y)); }

void load_weights(uint row_first, uint step) {
  for (uint i = gl_LocalInvocationIndex; i < kTileRows * kUnitsStep; i += gl_WorkGroupSize.x) {
    uint row = i / kUnitsStep, u = i % kUnitsStep;
    uint source = min(row_first + row, num_rows - 1u) * row_words, target = row * kStride + u * kUnitVecs;
    if (kEncoding == kEncF16) {
      uvec4 q = Quads(weight).q[(source >> 2) + step * kUnitsStep + u];
      w_tile[target] = halves(q.xy);
      w_tile[target + 1u] = halves(q.zw);
    } else {
      vec4 w[kUnitsMaxVecs];
      dequant_unit(weight, source, columns, step * kUnitsStep + u, w);
      [[unroll]] for (uint v = 0; v < kUnitVecs; ++v) w_tile[target + v] = f16vec4(w[v]);
    }
  }
}

// In pairs of vec4, which always follow each other (f32 weights have units of one: no pairs).
void load_x(uint col_first, uint num_cols, uint step) {
  const uint kVecs = kUnitVecs == 1 ? 1 : 2;
  for (uint i = gl_LocalInvocationIndex; i < kTileCols * (kStep / 4 / kVecs); i += gl_WorkGroupSize.x) {
    uint col = i / (kStep / 4 / kVecs), v = i % (kStep / 4 / kVecs) * kVecs;
    uint at = min(col_first + col, num_cols - 1u) * (columns / 4u) +
              unit_x(step * kUnitsStep + v / kUnitVecs, v % kUnitVecs);
    if (kXDType == kF16 && kVecs == 2) {
      uvec4 q = Quads(x).q[at >> 1];
      x_tile[col * kStride + v] = halves(q.xy);
      x_tile[col * kStride + v + 1u] = halves(q.zw);
    } else {
      [[unroll]] for (uint e = 0; e < kVecs; ++e) x_tile[col * kStride + v + e] = f16vec4(load4(x, at + e, kXDType));
    }
  }
}

void main() {
  uint num_cols = count.w[0], row_first = gl_WorkGroupID.x * kTileRows, col_first = gl_WorkGroupID.y * kTileCols;
  if (col_first >= num_cols) return;
  uint slice = gl_SubgroupID % kSlices, part = gl_SubgroupID / kSlices;
  uint part_row = part % kPartsAlongRows * kPartRows, part_col = part / kPartsAlongRows * kPartCols;
  coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kFragsCols * kFragsRows];
  [[unroll]] for (uint f = 0; f < kFragsCols * kFragsRows; ++f)
    sums[f] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
  for (uint step = 0; step < columns / kStep; ++step) {
    load_weights(row_first, step);
    load_x(col_first, num_cols, step);
    barrier();
    [[unroll]] for (uint k = 0; k < kSliceColumns; k += kK) {
      uint at = (slice * kSliceColumns + k) / 4u;
      coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a[kFragsCols];
      [[unroll]] for (uint c = 0; c < kFragsCols; ++c)
        coopMatLoad(a[c], x_tile, (part_col + c * kM) * kStride + at, kStride, gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint r = 0; r < kFragsRows; ++r) {
        coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
        coopMatLoad(b, w_tile, (part_row + r * kN) * kStride + at, kStride, gl_CooperativeMatrixLayoutColumnMajor);
        [[unroll]] for (uint c = 0; c < kFragsCols; ++c)
          sums[c * kFragsRows + r] = coopMatMulAdd(a[c], b, sums[c * kFragsRows + r]);
      }
    }
    barrier();
  }
  [[unroll]] for (uint f = 0; f < kFragsCols * kFragsRows; ++f) {
    coopMatStore(sums[f], staging, gl_SubgroupID * kM * kN, kN, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < kParts * kM * kN; i += gl_WorkGroupSize.x) {
      uint p = i / (kM * kN), e = i % (kM * kN);
      uint n = row_first + p % kPartsAlongRows * kPartRows + f % kFragsRows * kN + e % kN;
      uint t = col_first + p / kPartsAlongRows * kPartCols + f / kFragsRows * kM + e / kN;
      if (n >= num_rows || t >= num_cols) continue;
      float sum = kBias ? bias.f[result_first + n] : 0.0;
      for (uint s = 0; s < kSlices; ++s) sum += staging[(p * kSlices + s) * kM * kN + e];
      result.f[t * result_columns + result_first + n] = sum;
    }
    barrier();
  }
}
