// out = x * W^T + bias for up to kN rows of x on matrix units, whose factors never see shared memory: each lane makes its
// elements of the matrices from the units of weights and the numbers of x that it loads. That takes a known place of
// elements (kRowLanes): kRowLanes lanes share a row of W, a column of x and what a step takes of them; which columns a
// product multiplies is free as long as both factors agree. A group owns one matrix of weight rows, and its subgroups take
// turns at steps of kRowLanes units; their sums meet in shared memory and are added in order. Weights are rounded to
// f16, sums in f32. matmul_ends.glsl says what becomes of them.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "types.glsl"
#include "dequant.glsl"
#include "halves.glsl"
#include "rope.glsl"
#include "activation.glsl"

layout(constant_id = 11) const bool kBias = false;
layout(constant_id = 12) const uint kAhead = 1;      // steps whose weights are under way
layout(constant_id = 13) const uint kSubgroups = 8;  // of a group
layout(constant_id = 14) const uint kM = 16;         // the device's shape: weight rows
layout(constant_id = 15) const uint kN = 8;          // rows of x
layout(constant_id = 16) const uint kK = 16;         // columns
layout(constant_id = 17) const uint kRowLanes = 4;
layout(constant_id = 18) const bool kTail = false;      // a row's units are no multiple of kRowLanes
layout(constant_id = 19) const bool kActivate = false;
layout(constant_id = 20) const uint kActivation = kSilu;
layout(constant_id = 21) const uint kRope = kNoRope;
layout(constant_id = 22) const uint kPoolDType = kF16;
layout(constant_id = 23) const bool kLeavesNorm = false;
layout(constant_id = 24) const uint kNormEps = 0;  // bits of a float; 0: x is whole

#include "matmul_ends.glsl"

const uint kRunRows = kSubgroup / kRowLanes;  // rows of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kK / kRowLanes;
const uint kMatrixQuads = kM * kN / 4;
shared vec4 sums[kSubgroups * kMatrixQuads];
shared float factors[kN];                                        // kNormEps
shared vec4 residuals[kN * kTileQuads], gains[kN * kTileQuads];  // kLeavesNorm

uint num_row_units;
uint rows[kLaneRows];  // of row_at
Unit next_units[kAhead][kLaneRows];
coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sum;

uint unit_of(uint step) { return step * kRowLanes + gl_SubgroupInvocationID % kRowLanes; }

void fetch(uint slot, uint step) {
  uint unit = min(unit_of(step), num_row_units - 1u);
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) next_units[slot][r] = fetch_unit(weight, rows[r], columns, unit);
}

void multiply(Unit units[kLaneRows], uint step, uint num_cols) {
  uint unit = min(unit_of(step), num_row_units - 1u);
  // Columns beyond num_cols are some other one's: nobody asks for their products.
  f16vec2 y[kLaneCols][2 * kUnitsMaxVecs], w[kLaneRows][2 * kUnitsMaxVecs];
  [[unroll]] for (uint c = 0; c < kLaneCols; ++c) {
    uint from = min(c * kRunRows + gl_SubgroupInvocationID / kRowLanes, num_cols - 1u) * (columns / 8u);
    uvec4 octets[kUnitsMaxVecs / 2];  // all asked for before one is waited for
    [[unroll]] for (uint i = 0; i < kUnitVecs / 2; ++i) octets[i] = Quads(x).q[from + unit_x(unit, 2 * i) / 2u];
    [[unroll]] for (uint i = 0; i < kUnitVecs / 2; ++i) {
      if (kTail && unit_of(step) >= num_row_units) octets[i] = uvec4(0u);
      pairs_of(octets[i].xy, y[c][4 * i], y[c][4 * i + 1]);
      pairs_of(octets[i].zw, y[c][4 * i + 2], y[c][4 * i + 3]);
    }
  }
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) expand_pairs(units[r], unit, w[r]);
  [[unroll]] for (uint first = 0; first < 4 * kUnitVecs; first += kLaneNumbers) {
    coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a;
    coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
    [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
      uint i = first + j;
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r) a[r * kLaneNumbers + j] = w[r][i / 2][i % 2];
      [[unroll]] for (uint c = 0; c < kLaneCols; ++c) b[c * kLaneNumbers + j] = y[c][i / 2][i % 2];
    }
    sum = coopMatMulAdd(a, b, sum);
  }
}

// The groups' sums of squares make the factor; the first group keeps it for the next norm.
void end_norm(uint num_cols) {
  const uint quads = columns / kM / 4u;
  for (uint n = gl_SubgroupID; n < num_cols; n += kSubgroups) {
    float squares = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < quads; i += kSubgroup)
      squares += dot(Vec4s(norms).v[kSquaresFirst / 4u + n * quads + i], vec4(1.0));
    squares = subgroupAdd(squares);
    if (gl_SubgroupInvocationID > 0u) continue;
    float factor = 1.0 / sqrt(squares / float(columns) + uintBitsToFloat(kNormEps));
    factors[n] = factor / (norms.f[norm_slot * kN + n] * kHeadroom);
    if (gl_WorkGroupID.x == 0u && result_first == 0u) norms.f[(1u - norm_slot) * kN + n] = factor;
  }
}

// By one subgroup, so that leave_norm need not wait for it.
void load_residual(uint num_cols) {
  for (uint i = gl_SubgroupInvocationID; i < num_cols * kTileQuads; i += kSubgroup) {
    uint n = i / kTileQuads, quad = gl_WorkGroupID.x * kTileQuads + i % kTileQuads;
    residuals[i] = Vec4s(kv_slots).v[n * result_columns / 4u + quad];
    gains[i] = Vec4s(freqs).v[quad] * (norms.f[norm_slot * kN + n] * kHeadroom);
  }
}

vec4 sum_of(uint in_group, uint n, uint quad) {
  vec4 all = vec4(0.0);
  [[unroll]] for (uint s = 0; s < kSubgroups; ++s) all += sums[s * kMatrixQuads + n * kTileQuads + quad];
  return all;
}
float factor_of(uint n) { return factors[n]; }
vec4 residual_of(uint in_group, uint n, uint quad) { return residuals[n * kTileQuads + quad]; }
vec4 gain_of(uint in_group, uint n, uint quad) { return gains[n * kTileQuads + quad]; }

void main() {
  num_row_units = num_units(columns);
  sum = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
    rows[r] = row_at(weight_row(gl_WorkGroupID.x, r * kRunRows + gl_SubgroupInvocationID / kRowLanes), row_words);
  uint steps = (num_row_units + kRowLanes - 1u) / kRowLanes, step = gl_SubgroupID;
  [[unroll]] for (uint slot = 0; slot < kAhead; ++slot)
    if (step + slot * kSubgroups < steps) fetch(slot, step + slot * kSubgroups);
  uint num_cols = count.w[0];  // not waited for before weights are asked for
  if (num_cols == 0u) return;
  if (kNormEps > 0) end_norm(num_cols);
  if (kLeavesNorm && gl_SubgroupID == kSubgroups - 1) load_residual(num_cols);
  f16_1024 = 0x64006400u | num_cols >> 31;  // hidden from the compiler
  for (; step < steps; step += kAhead * kSubgroups) {
    [[unroll]] for (uint slot = 0; slot < kAhead; ++slot) {
      uint now = step + slot * kSubgroups;
      if (now >= steps) break;
      Unit units[kLaneRows];
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r) units[r] = next_units[slot][r];
      bool more = now + kAhead * kSubgroups < steps;
      if (kAhead == 1 && more) fetch(slot, now + kSubgroups);
      multiply(units, now, num_cols);
      // Of two slots the one is under way beside the other's products. Asked for before them, NVIDIA's compiler would copy
      // it to other registers behind them, which waits for it.
      if (kAhead > 1 && more) fetch(slot, now + kAhead * kSubgroups);
    }
  }
  coopMatStore(sum, sums, gl_SubgroupID * kMatrixQuads, kM / 4, gl_CooperativeMatrixLayoutColumnMajor);
  barrier();
  finish(gl_WorkGroupID.x, 1u, gl_NumWorkGroups.x, num_cols);
}
