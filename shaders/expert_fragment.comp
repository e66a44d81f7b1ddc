// The matrices of experts by the rows that go to each, on matrix units whose factors lanes fill as in matmul_fragment: nothing
// of weights or x meets shared memory. A workgroup has an item of up to kMatrices * kN rows (grid y) and one matrix of kM
// weight rows (grid x), half of them of gate and half of up with kGated. Its subgroups take turns at steps of kRowLanes units;
// a step's weights are expanded once for all matrices of rows. Their sums meet in shared memory and are added in order.
// Factors are f16, sums f32; no number depends on the other rows of an item. With one row alone kStagedOctets brings its f32
// numbers to shared memory as f16; and with kJoins a workgroup has all of the row's experts, each for kSubgroups / kSlots of its
// subgroups, and adds up what they make by the experts' weights, in their order.
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

layout(constant_id = 19) const uint kAhead = 1;      // steps whose weights are under way
layout(constant_id = 20) const uint kSubgroups = 8;  // of a group
layout(constant_id = 21) const uint kM = 16;         // the device's shape: weight rows
layout(constant_id = 22) const uint kN = 8;          // rows of x
layout(constant_id = 23) const uint kK = 16;         // columns
layout(constant_id = 24) const uint kRowLanes = 4;
layout(constant_id = 25) const bool kTail = false;   // a row's units are no multiple of kRowLanes
layout(constant_id = 26) const uint kMatrices = 1;   // of rows of x
layout(constant_id = 27) const uint kStagedOctets = 0;
layout(constant_id = 28) const uint kSlots = 0;  // experts of the row that a workgroup joins; 0: it has one item
const bool kJoins = kSlots > 0;
const uint kTeam = kJoins ? kSubgroups / kSlots : kSubgroups;  // subgroups that share an item's steps

const uint kRunRows = kSubgroup / kRowLanes;  // rows of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kK / kRowLanes;
const uint kTileOutputs = kGated ? kM / 2 : kM, kTileQuads = kM / 4, kMatrixQuads = kM * kN / 4;
shared vec4 all_sums[kSubgroups * kMatrices * kMatrixQuads];
shared uvec4 staged[kStagedOctets > 0 ? kStagedOctets : 1];

uint num_row_units;
Words sources[kLaneRows];
uint rows[kLaneRows];  // of row_at
uint x_firsts[kMatrices][kLaneCols];  // octets before a row of x
Unit next_units[kAhead][kLaneRows];
coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kMatrices];

uint unit_of(uint step) { return step * kRowLanes + gl_SubgroupInvocationID % kRowLanes; }

void fetch(uint slot, uint step) {
  uint unit = min(unit_of(step), num_row_units - 1u);
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) next_units[slot][r] = fetch_unit(sources[r], rows[r], columns, unit);
}

// Eight numbers of x as f16.
uvec4 octet_of(uint at) {
  if (kXDType != kF32) return Quads(x).q[at];
  vec4 a = Vec4s(x).v[2u * at], b = Vec4s(x).v[2u * at + 1u];
  return uvec4(packFloat2x16(f16vec2(a.xy)), packFloat2x16(f16vec2(a.zw)), packFloat2x16(f16vec2(b.xy)),
               packFloat2x16(f16vec2(b.zw)));
}

uvec4 octet_at(uint at) {
  if (kStagedOctets > 0) return staged[at];
  return octet_of(at);
}

void multiply(Unit units[kLaneRows], uint step, uint num_matrices) {
  uint unit = min(unit_of(step), num_row_units - 1u);
  f16vec2 w[kLaneRows][2 * kUnitsMaxVecs];
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) expand_pairs(units[r], unit, w[r]);
  [[unroll]] for (uint m = 0; m < kMatrices; ++m) {
    if (m > 0u && m >= num_matrices) break;
    f16vec2 y[kLaneCols][2 * kUnitsMaxVecs];
    [[unroll]] for (uint c = 0; c < kLaneCols; ++c) {
      uvec4 octets[kUnitsMaxVecs / 2];  // all asked for before one is waited for
      [[unroll]] for (uint i = 0; i < kUnitVecs / 2; ++i) octets[i] = octet_at(x_firsts[m][c] + unit_x(unit, 2 * i) / 2u);
      [[unroll]] for (uint i = 0; i < kUnitVecs / 2; ++i) {
        if (kTail && unit_of(step) >= num_row_units) octets[i] = uvec4(0u);
        pairs_of(octets[i].xy, y[c][4 * i], y[c][4 * i + 1]);
        pairs_of(octets[i].zw, y[c][4 * i + 2], y[c][4 * i + 3]);
      }
    }
    [[unroll]] for (uint first = 0; first < 4 * kUnitVecs; first += kLaneNumbers) {
      coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a;
      coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
      [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
        uint i = first + j;
        [[unroll]] for (uint r = 0; r < kLaneRows; ++r) a[r * kLaneNumbers + j] = w[r][i / 2][i % 2];
        [[unroll]] for (uint c = 0; c < kLaneCols; ++c) b[c * kLaneNumbers + j] = y[c][i / 2][i % 2];
      }
      sums[m] = coopMatMulAdd(a, b, sums[m]);
    }
  }
}

vec4 sum_of(uint n, uint quad) {
  vec4 all = vec4(0.0);
  [[unroll]] for (uint s = 0; s < kTeam; ++s)
    all += all_sums[(s * kMatrices + n / kN) * kMatrixQuads + n % kN * kTileQuads + quad];
  return all;
}

// Behind a barrier: four outputs at a time, of which there are whole fours.
void finish(Item item) {
  const uint kQuads = kTileOutputs / 4;
  for (uint i = gl_LocalInvocationIndex; i < item.num_rows * kQuads; i += kSubgroups * kSubgroup) {
    uint n = i / kQuads, quad = i % kQuads, first = gl_WorkGroupID.x * kTileOutputs + quad * 4u;
    if (first >= num_outputs) continue;
    vec4 gate = sum_of(n, quad), up_sum = kGated ? sum_of(n, quad + kQuads) : gate, y;
    uint row = row_of(item, n), to = (row * result_columns + first) / 4u;
    [[unroll]] for (uint e = 0; e < 4; ++e) y[e] = output_of(item, row, first + e, gate[e], up_sum[e]);
    if (kOutDType == kF32)
      Vec4s(result).v[to] = y;
    else
      Pairs(result).p[to] = uvec2(pack16(y.xy, kOutDType), pack16(y.zw, kOutDType));
  }
}

// The row's outputs, of all its experts.
void join() {
  const uint kQuads = kTileOutputs / 4;
  uint first = gl_WorkGroupID.x * kTileOutputs + gl_LocalInvocationIndex * 4u;
  if (gl_LocalInvocationIndex >= kQuads || first >= num_outputs) return;
  vec4 total = vec4(0.0);
  for (uint slot = 0; slot < kSlots; ++slot) {
    vec4 all = vec4(0.0);
    for (uint s = 0; s < kTeam; ++s) all += all_sums[(slot * kTeam + s) * kMatrixQuads + gl_LocalInvocationIndex];
    if (kBias) [[unroll]] for (uint e = 0; e < 4; ++e) all[e] += bias.f[items.w[slot] * expert_rows + output_first + first + e];
    total += weights.f[slot] * all;
  }
  Vec4s(result).v[first / 4u] = total;
}

void main() {
  Item item = take_item(kJoins ? gl_SubgroupID / kTeam : gl_WorkGroupID.y, kMatrices * kN);
  if (item.num_rows == 0u) return;
  num_row_units = num_units(columns);
  uint row_lane = gl_SubgroupInvocationID / kRowLanes;
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
    uint m = r * kRunRows + row_lane, row = gate_row(item, gl_WorkGroupID.x * kTileOutputs + m % kTileOutputs);
    bool is_up = kGated && m >= kTileOutputs;
    sources[r] = weight;
    if (is_up) sources[r] = up;
    rows[r] = row_at(is_up ? row + up_first : row, row_words);
  }
  uint steps = (num_row_units + kRowLanes - 1u) / kRowLanes, step = gl_SubgroupID % kTeam;
  [[unroll]] for (uint slot = 0; slot < kAhead; ++slot)
    if (step + slot * kTeam < steps) fetch(slot, step + slot * kTeam);
  if (kStagedOctets > 0) {
    for (uint i = gl_LocalInvocationIndex; i < kStagedOctets; i += kSubgroups * kSubgroup) staged[i] = octet_of(i);
    barrier();
  }
  uint num_matrices = (item.num_rows + kN - 1u) / kN;
  [[unroll]] for (uint m = 0; m < kMatrices; ++m) {
    sums[m] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
    // Columns beyond the item's are some other one's: nobody asks for their products.
    [[unroll]] for (uint c = 0; c < kLaneCols; ++c) {
      uint n = min(m * kN + c * kRunRows + row_lane, item.num_rows - 1u);
      x_firsts[m][c] = row_of(item, n) / x_per_row * (columns / 8u);
    }
  }
  f16_1024 = 0x64006400u | item.num_rows >> 31;  // hidden from the compiler
  for (; step < steps; step += kAhead * kTeam) {
    [[unroll]] for (uint slot = 0; slot < kAhead; ++slot) {
      uint now = step + slot * kTeam;
      if (now >= steps) break;
      Unit units[kLaneRows];
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r) units[r] = next_units[slot][r];
      bool more = now + kAhead * kTeam < steps;
      if (kAhead == 1 && more) fetch(slot, now + kTeam);
      multiply(units, now, num_matrices);
      if (kAhead > 1 && more) fetch(slot, now + kAhead * kTeam);
    }
  }
  [[unroll]] for (uint m = 0; m < kMatrices; ++m)
    coopMatStore(sums[m], all_sums, (gl_SubgroupID * kMatrices + m) * kMatrixQuads, kM / 4,
                 gl_CooperativeMatrixLayoutColumnMajor);
  barrier();
  if (kJoins)
    join();
  else
    finish(item);
}
