// out = x * W^T + bias for up to kN rows of x on matrix units, whose factors never see shared memory: each lane makes its
// elements of the matrices from the units of weights and the numbers of x that it loads. That takes a known place of
// elements (kRowLanes): kRowLanes lanes share a row of W, a column of x and what a step takes of them; which columns a
// product multiplies is free as long as both factors agree. A group owns one matrix of weight rows, and its subgroups take
// turns at steps of kRowLanes units; their sums meet in shared memory and are added in order. Weights are rounded to
// f16, sums in f32. With kActivate half of a matrix are rows of gate, half the same rows of up, and out is
// activation(gate) * up in f16. With kRope the rows are heads of q, k and v, and a matrix holds both numbers of its
// pairs: q goes to out and k to the pool turned, v to the pool as it is. With kLeavesNorm what would be out is added to
// the residual, and the norm of that is left for the matmul behind it to end (kNormEps).
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
#include "activation.glsl"
#include "rope.glsl"

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

layout(push_constant) uniform Push {
  Words x, weight;  // x: f16
  Floats bias, result;
  Words count;
  uint columns, row_words, num_rows;
  uint result_first, result_columns, norm_slot;
  // With kRope. With kLeavesNorm kv_slots is the residual, freqs the norm's weight, data what the next matmul reads.
  Ints positions, kv_slots;
  Floats freqs;
  Words data;
  uint num_heads, num_kv_heads, head_dim, block_tokens;
  float magnitude;
  Floats norms;  // twin: backends/vulkan/recorder.h NormParts
};

const uint kRunRows = kSubgroup / kRowLanes;  // rows of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kK / kRowLanes;
const uint kMatrixQuads = kM * kN / 4, kGroupRows = kActivate || kRope != kNoRope ? kM / 2 : kM;
shared vec4 sums[kSubgroups * kMatrixQuads];

// The factor of a norm is known once all groups of the matmul that leaves it are done. Until then the factor of the norm
// before it, in slot norm_slot of two, stands in for it, and kHeadroom keeps f16 from overflow unless the root mean square
// grows 65,504-fold in between (4,096 columns, all of it in one).
const float kHeadroom = 1.0 / 64.0;
const uint kSquaresFirst = 2 * kN;
shared float factors[kN];                                 // kNormEps: what sums of a row of x are multiplied by
shared vec4 residuals[kN * kM / 4], gains[kN * kM / 4];  // kLeavesNorm

uint num_row_units;
uint rows[kLaneRows];  // of row_at
Unit next_units[kAhead][kLaneRows];
coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sum;

// Weight row of row `m` of the group's matrix.
uint weight_row(uint m) {
  if (kRope != kNoRope) {
    uint pairs = head_dim / 2u, first = gl_WorkGroupID.x * kGroupRows, pair = first % pairs;
    return first / pairs * head_dim +
           (kRope == kInterleaved ? 2u * pair + m : m / kGroupRows * pairs + pair + m % kGroupRows);
  }
  uint outputs = kActivate ? num_rows / 2u : num_rows;
  return m / kGroupRows * outputs + min(gl_WorkGroupID.x * kGroupRows + m % kGroupRows, outputs - 1u);
}

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

// Quad `quad` of the matrix over all subgroups.
vec4 total(uint quad) {
  vec4 all = vec4(0.0);
  [[unroll]] for (uint s = 0; s < kSubgroups; ++s) all += sums[s * kMatrixQuads + quad];
  return kNormEps > 0 ? all * factors[quad / (kM / 4)] : all;
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

// What leave_norm reads, so that it need not wait for it.
void load_residual(uint num_cols) {
  for (uint i = gl_SubgroupInvocationID; i < num_cols * (kM / 4); i += kSubgroup) {
    uint n = i / (kM / 4), quad = gl_WorkGroupID.x * (kM / 4) + i % (kM / 4);
    residuals[i] = Vec4s(kv_slots).v[n * result_columns / 4u + quad];
    gains[i] = Vec4s(freqs).v[quad] * (norms.f[norm_slot * kN + n] * kHeadroom);
  }
}

// Numbers m to m + 3 of the group's for row n of x.
void leave_norm(uint n, uint m) {
  uint i = n * (kM / 4) + m / 4u, quad = (n * result_columns + gl_WorkGroupID.x * kM + m) / 4u;
  vec4 sum = residuals[i] + total(i), y = sum * gains[i];
  Vec4s(kv_slots).v[quad] = sum;
  Pairs(data).p[quad] = uvec2(pack16(y.xy, kF16), pack16(y.zw, kF16));
  float squares = dot(sum, sum);
  [[unroll]] for (uint d = 1; d < kM / 4; d *= 2) squares += subgroupShuffleXor(squares, d);
  if (m == 0u) norms.f[kSquaresFirst + n * gl_NumWorkGroups.x + gl_WorkGroupID.x] = squares;
}

// Numbers m to m + 3 of the group's for row n of x.
void store(uint n, uint m) {
  uint row = gl_WorkGroupID.x * kGroupRows + m, quad = n * (kM / 4) + m / 4;
  vec4 all = total(quad);
  if (kActivate) {
    if (row >= num_rows / 2u) return;
    vec4 up = total(quad + kM / 8);
    [[unroll]] for (uint c = 0; c < 4; ++c) all[c] = activate(kActivation, all[c]) * up[c];
    Pairs(result).p[(n * result_columns + row) / 4u] = uvec2(pack16(all.xy, kF16), pack16(all.zw, kF16));
    return;
  }
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    if (row + c >= num_rows) return;
    result.f[n * result_columns + result_first + row + c] = all[c] + (kBias ? bias.f[result_first + row + c] : 0.0);
  }
}

// Pairs m to m + 3 of the group's for row n of x.
void store_turned(uint n, uint m) {
  uint pairs = head_dim / 2u, first = result_first / 2u + gl_WorkGroupID.x * kGroupRows + m;
  uint head = first / pairs, pair = first % pairs, quad = n * (kM / 4);
  bool halves = kRope == kHalves;
  uint low_at = halves ? pair : 2u * pair, high_at = halves ? pair + pairs : 2u * pair + 4u;  // in the head
  vec4 low = total(quad + (halves ? m / 4u : m / 2u)), high = total(quad + (halves ? m / 4u + kM / 8 : m / 2u + 1u));
  if (kBias) {
    low += Vec4s(bias).v[(head * head_dim + low_at) / 4u];
    high += Vec4s(bias).v[(head * head_dim + high_at) / 4u];
  }
  if (head < num_heads + num_kv_heads) {
    vec4 a = halves ? low : vec4(low.xz, high.xz), b = halves ? high : vec4(low.yw, high.yw);
    uint position = uint(positions.i[n]);
    vec4 turns = Vec4s(freqs).v[pair / 4u];
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      vec2 t = turn(position, turns[c]) * magnitude, x = vec2(a[c], b[c]);
      a[c] = x.x * t.x - x.y * t.y;
      b[c] = x.x * t.y + x.y * t.x;
    }
    low = halves ? a : vec4(a.x, b.x, a.y, b.y);
    high = halves ? b : vec4(a.z, b.z, a.w, b.w);
  }
  if (head < num_heads) {
    uint from = n * result_columns + head * head_dim;
    Vec4s(result).v[(from + low_at) / 4u] = low;
    Vec4s(result).v[(from + high_at) / 4u] = high;
    return;
  }
  if (kv_slots.i[n] < 0) return;
  uint kv_slot = uint(kv_slots.i[n]), kv_head = head - num_heads, which = kv_head / num_kv_heads;
  uint vector = ((kv_slot / block_tokens * 2u + which) * num_kv_heads + kv_head % num_kv_heads) * block_tokens +
                kv_slot % block_tokens;
  Pairs(data).p[(vector * head_dim + low_at) / 4u] = uvec2(pack16(low.xy, kPoolDType), pack16(low.zw, kPoolDType));
  Pairs(data).p[(vector * head_dim + high_at) / 4u] = uvec2(pack16(high.xy, kPoolDType), pack16(high.zw, kPoolDType));
}

void main() {
  num_row_units = num_units(columns);
  sum = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
    rows[r] = row_at(weight_row(r * kRunRows + gl_SubgroupInvocationID / kRowLanes), row_words);
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
  const uint quads = kGroupRows / 4;
  for (uint i = gl_LocalInvocationIndex; i < quads * num_cols; i += kSubgroups * kSubgroup) {
    if (kRope != kNoRope)
      store_turned(i / quads, i % quads * 4u);
    else if (kLeavesNorm)
      leave_norm(i / quads, i % quads * 4u);
    else
      store(i / quads, i % quads * 4u);
  }
}
