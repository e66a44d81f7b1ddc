// out = x * W^T + bias for many rows of x on matrix units, whose lanes fill their own elements (as in matmul_fragment). A
// group makes a tile of kSubgroups * kParts matrices of weight rows by kMatrices matrices of rows of x, a subgroup kParts
// by all of them, so that what is loaded is multiplied often. Weights go from memory to the lanes that multiply them, rows
// a constant number of bytes apart; x goes through shared memory in the order in which lanes want it. A turn multiplies
// one octet of each lane's units, while x of the next turn is stored and that of the one behind asked for. Groups are small
// enough that two share a multiprocessor, and one multiplies while the other waits. The steps of all tiles are dealt out
// evenly: a group has a run of them, which may begin and end within a tile. Of a tile with several groups each subgroup
// leaves its sums in `products`, and the last to arrive adds them up in their order. Weights are rounded to f16, sums in
// f32. With kActivate the first half of a subgroup's matrices are rows of gate, the second the same rows of up, and out is
// activation(gate) * up in f16. With kLeavesParts each group has a part of one tile, and result is [part][row of x][weight
// row], for its reader to add up. A last tile that is not whole lies so that it ends where rows do; what another tile
// makes too it does not write.
//
// Written for a compiler that moves loads up as far as it can (docs/kernels/matmul_many_vulkan.md): with more than one
// turn in a loop, or a return in a function that is called in one, sums leave the registers.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_ballot : require
#define ROWS_BY_ADDRESS
#include "types.glsl"
#include "arrival.glsl"
#include "dequant.glsl"
#include "halves.glsl"
#include "activation.glsl"
#include "sync.glsl"

layout(constant_id = 11) const bool kBias = false;
layout(constant_id = 12) const uint kSubgroups = 4;  // of a group
layout(constant_id = 13) const uint kM = 16;         // the device's shape: weight rows
layout(constant_id = 14) const uint kN = 8;          // rows of x
layout(constant_id = 15) const uint kK = 16;         // columns
layout(constant_id = 16) const uint kRowLanes = 4;
layout(constant_id = 17) const bool kActivate = false;
layout(constant_id = 18) const uint kActivation = kSilu;
layout(constant_id = 19) const uint kParts = 4;
layout(constant_id = 20) const uint kMatrices = 8;
layout(constant_id = 21) const uint kColumns = 4096;
layout(constant_id = 22) const uint kRowBytes = 8192;  // of a weight row
layout(constant_id = 23) const bool kShares = true;  // tiles have several groups
layout(constant_id = 24) const bool kLeavesParts = false;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Products { queuefamilycoherent vec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Octet { uvec4 q; };

layout(push_constant) uniform Push {
  uint64_t x, weight;  // x: f16
  Floats bias, result;
  Words count;
  Products products;  // [tile of x][group][begins or continues a tile][kTileQuads]
  Words arrivals;     // [tile of x][group][subgroup] steps of the tile that begins there which are done; 0 before and after
  uint columns, row_words, num_rows;
  uint result_first, result_columns, x_rows;
};

const uint kRunRows = kSubgroup / kRowLanes;  // rows of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kK / kRowLanes;
const uint kTileCols = kMatrices * kN;
const uint kOutputParts = kActivate ? kParts / 2 : kParts, kTileOutputs = kSubgroups * kOutputParts * kM;
const uint kPartQuads = kM * kN / 4, kTileQuads = kSubgroups * kParts * kMatrices * kPartQuads;
const uint kLaneQuads = kPartQuads / kSubgroup;
const uint kLanes = kSubgroups * kSubgroup;
const uint kUnitOctets = kUnitVecs / 2;
const uint kStepColumns = kRowLanes * kUnitOctets * 8;  // a step: a unit of each lane and row
const uint kPlace = kTileCols * kRowLanes, kPassRows = kLanes / kRowLanes, kPasses = kTileCols / kPassRows;
// Of outputs on their way: quads of a row of x that a subgroup has, and how far apart, so that banks are apart too.
const uint kQuadNumbers = kActivate ? 8 : 4, kOutputQuads = kOutputParts * kM / kQuadNumbers;
const uint kOutputStride = kOutputQuads + 1, kOutputPlace = kSubgroups * kN * kOutputStride;
// x of this turn and of the next: [matrix][column of a lane][lane]
shared uvec4 places[2 * kPlace > kOutputPlace ? 2 * kPlace : kOutputPlace];

uint num_outputs, num_steps, num_all_steps;  // steps of a tile, of all tiles
uint col_first, row_first;                   // of the tile as it lies
uint result_at;                              // of this group's part of the results
uint64_t x_from, weights_from;               // this lane's, of the tile's first column
Unit units[kParts][kLaneRows];
uvec4 next_x[kPasses];
coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kParts][kMatrices];

void fetch_x(uint step, uint octet) {
  uint ahead = step * kStepColumns / 8u + (unit_x(0u, octet * 2u) - unit_x(0u, 0u)) / 2u;
  uint64_t from = x_from + uint64_t(ahead) * 16u;
  [[unroll]] for (uint j = 0; j < kPasses; ++j) next_x[j] = Octet(from + uint64_t(j * kPassRows * (kColumns * 2u))).q;
}

void store_x(uint place) {
  [[unroll]] for (uint j = 0; j < kPasses; ++j) {
    uint col = j * kPassRows + gl_LocalInvocationIndex / kRowLanes;
    f16vec2 pairs[4];
    pairs_of(next_x[j].xy, pairs[0], pairs[1]);
    pairs_of(next_x[j].zw, pairs[2], pairs[3]);
    places[place + (col / kN * kLaneCols + col % kN / kRunRows) * kSubgroup + col % kRunRows * kRowLanes +
           gl_LocalInvocationIndex % kRowLanes] =
        uvec4(packFloat2x16(pairs[0]), packFloat2x16(pairs[1]), packFloat2x16(pairs[2]), packFloat2x16(pairs[3]));
  }
}

// Of kRowLanes neighbouring units a lane's own.
uint unit_of(uint step) { return step * kRowLanes + gl_SubgroupInvocationID % kRowLanes; }

void fetch_weights(uint p, uint step) {
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
    uint row = p % kOutputParts * kM + r * kRunRows, lane_row = gl_SubgroupInvocationID / kRowLanes;
    uint64_t from = weights_from + uint64_t((kWoven ? row / 8 * 8 : row) * kRowBytes);
    if (p >= kOutputParts) from += uint64_t(num_outputs) * kRowBytes;
    units[p][r] = fetch_unit(from, (row % 8 + lane_row) % 8u, kColumns, unit_of(step));
  }
}

// One octet of the units of `step`, `octet` of which are done, times x at `place`. Behind the last the next units come.
void multiply(uint place, uint step, uint octet, bool is_last, uint next_step) {
  uvec4 y[kMatrices][kLaneCols];
  [[unroll]] for (uint c = 0; c < kMatrices; ++c)
    [[unroll]] for (uint l = 0; l < kLaneCols; ++l)
      y[c][l] = places[place + (c * kLaneCols + l) * kSubgroup + gl_SubgroupInvocationID];
  [[unroll]] for (uint p = 0; p < kParts; ++p) {
    f16vec2 w[kLaneRows][4];
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      first_octet(units[p][r], unit_of(step), octet, w[r]);
      if (!is_last) next_octet(units[p][r]);
    }
    [[unroll]] for (uint first = 0; first < 8; first += kLaneNumbers) {
      coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a;
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
        [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
          a[r * kLaneNumbers + j] = w[r][(first + j) / 2][(first + j) % 2];
      [[unroll]] for (uint c = 0; c < kMatrices; ++c) {
        coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
        [[unroll]] for (uint l = 0; l < kLaneCols; ++l)
          [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
            b[l * kLaneNumbers + j] = unpackFloat2x16(y[c][l][(first + j) / 2])[(first + j) % 2];
        sums[p][c] = coopMatMulAdd(a, b, sums[p][c]);
      }
    }
    if (is_last) fetch_weights(p, next_step);
  }
}

// The products of steps first to end - 1 of a tile. `octets`: of a unit, hidden from the compiler.
void make(uint tile, uint first, uint end, uint octets) {
  row_first = min(tile * kTileOutputs, num_outputs - kTileOutputs);
  uint row = row_first + gl_SubgroupID * kOutputParts * kM, lane_row = gl_SubgroupInvocationID / kRowLanes;
  weights_from = weight + uint64_t(row + (kWoven ? lane_row / 8u * 8u : lane_row)) * kRowBytes;
  [[unroll]] for (uint p = 0; p < kParts; ++p) {
    fetch_weights(p, first);
    [[unroll]] for (uint c = 0; c < kMatrices; ++c)
      sums[p][c] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
  }
  uint place = 0u, last = end - 1u;
  fetch_x(first, 0u);
  store_x(place);
  fetch_x(kUnitOctets > 1 ? first : min(first + 1u, last), 1u % kUnitOctets);
  for (uint step = first; step < end; ++step) {
    uint next_step = min(step + 1u, last);
    if (kUnitOctets > 1) [[dont_unroll]] for (uint octet = 0; octet + 1u < octets; ++octet) {
      barrier();
      store_x(kPlace - place);
      fetch_x(octet + 2u < kUnitOctets ? step : next_step, octet + 2u < kUnitOctets ? octet + 2u : 0u);
      multiply(place, step, octet, false, 0u);
      place = kPlace - place;
    }
    barrier();
    store_x(kPlace - place);
    fetch_x(kUnitOctets > 1 ? next_step : min(step + 2u, last), 1u % kUnitOctets);
    multiply(place, step, kUnitOctets - 1, true, next_step);
    place = kPlace - place;
  }
}

#include "step_runs.glsl"

// Of a tile with several groups: whether the same subgroups of all others have left their sums; then this one, which made
// `done` steps, has all sums. Else it leaves its own.
bool share_sums(uint tile, uint done) {
  uint first_group = group_of(tile * num_steps), last_group = group_of((tile + 1u) * num_steps - 1u);
  uint arrival = (gl_WorkGroupID.y * gl_NumWorkGroups.x + first_group) * kSubgroups + gl_SubgroupID, others = 0u;
  if (subgroupElect()) others = atomicLoad(arrivals.w[arrival], gl_ScopeQueueFamily, 0, 0);
  bool has_all = subgroupBroadcastFirst(others) + done == num_steps;
  if (!has_all) {
    uint at = products_of(gl_WorkGroupID.x, first_group == gl_WorkGroupID.x);
    [[unroll]] for (uint p = 0; p < kParts; ++p)
      [[unroll]] for (uint c = 0; c < kMatrices; ++c)
        [[unroll]] for (uint q = 0; q < kLaneQuads; ++q)
          products.v[at + quad_of(p, c, q)] =
              vec4(sums[p][c][4 * q], sums[p][c][4 * q + 1], sums[p][c][4 * q + 2], sums[p][c][4 * q + 3]);
    release_subgroup();
    if (subgroupElect()) others = atomicAdd(arrivals.w[arrival], done, gl_ScopeQueueFamily, 0, 0);
    has_all = subgroupBroadcastFirst(others) + done == num_steps;
  }
  if (has_all) {
    acquire_subgroup();
    if (subgroupElect()) arrivals.w[arrival] = 0u;
    // In the order of the groups, whoever comes last.
    [[unroll]] for (uint p = 0; p < kParts; ++p) {
      vec4 all[kMatrices][kLaneQuads];
      [[unroll]] for (uint c = 0; c < kMatrices; ++c)
        [[unroll]] for (uint q = 0; q < kLaneQuads; ++q) all[c][q] = vec4(0.0);
      for (uint g = first_group; g <= last_group; ++g) {
        uint from = products_of(g, g == first_group);
        if (g == gl_WorkGroupID.x) {
          [[unroll]] for (uint c = 0; c < kMatrices; ++c)
            [[unroll]] for (uint i = 0; i < 4 * kLaneQuads; ++i) all[c][i / 4][i % 4] += sums[p][c][i];
        } else {
          [[unroll]] for (uint c = 0; c < kMatrices; ++c)
            [[unroll]] for (uint q = 0; q < kLaneQuads; ++q) all[c][q] += products.v[from + quad_of(p, c, q)];
        }
      }
      [[unroll]] for (uint c = 0; c < kMatrices; ++c)
        [[unroll]] for (uint i = 0; i < 4 * kLaneQuads; ++i) sums[p][c][i] = all[c][i / 4][i % 4];
    }
  }
  return has_all;
}

// A matrix of rows of x after the other goes through shared memory, so that lanes write 16 bytes beside each other.
void write_sums(uint tile, uint num_cols) {
  uint row_begin = row_first + gl_SubgroupID * kOutputParts * kM, place = gl_SubgroupID * kN * kOutputStride;
  [[unroll]] for (uint c = 0; c < kMatrices; ++c) {
    [[unroll]] for (uint p = 0; p < kOutputParts; ++p) {
      if (kActivate) {
        coopmat<float16_t, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> gated;
        [[unroll]] for (uint i = 0; i < kM * kN / kSubgroup; ++i)
          gated[i] = float16_t(activate(kActivation, sums[p][c][i]) * sums[p + kParts - kOutputParts][c][i]);
        coopMatStore(gated, places, place + p * (kM / 8), kOutputStride, gl_CooperativeMatrixLayoutColumnMajor);
      } else {
        coopMatStore(sums[p][c], places, place + p * (kM / 4), kOutputStride, gl_CooperativeMatrixLayoutColumnMajor);
      }
    }
    sync_subgroup();
    [[unroll]] for (uint j = 0; j < (kN * kOutputQuads + kSubgroup - 1) / kSubgroup; ++j) {
      uint i = j * kSubgroup + gl_SubgroupInvocationID, col = col_first + c * kN + i / kOutputQuads;
      uint row = row_begin + i % kOutputQuads * kQuadNumbers;
      uvec4 quad = places[place + min(i / kOutputQuads, kN - 1u) * kOutputStride + i % kOutputQuads];
      if (kBias)
        quad = floatBitsToUint(uintBitsToFloat(quad) + Vec4s(bias).v[(result_first + row) / 4u]);
      if (row >= tile * kTileOutputs && col >= gl_WorkGroupID.y * kTileCols && col < num_cols && i < kN * kOutputQuads)
        Quads(result).q[(result_at + col * result_columns + result_first + row) / kQuadNumbers] = quad;
    }
    sync_subgroup();
  }
}

void main() {
  uint num_cols = count.w[0];
  if (gl_WorkGroupID.y * kTileCols >= num_cols) return;
  uint hidden = num_cols + gl_LocalInvocationIndex >> 31;  // 0, which the compiler does not know
  f16_1024 = 0x64006400u | hidden;
  num_outputs = kActivate ? num_rows / 2u : num_rows;
  num_steps = kColumns / kStepColumns;
  num_all_steps = (num_outputs + kTileOutputs - 1u) / kTileOutputs * num_steps;
  col_first = min(gl_WorkGroupID.y * kTileCols, x_rows - kTileCols);
  uint row = col_first + gl_LocalInvocationIndex / kRowLanes;
  x_from = x + (uint64_t(row) * (kColumns / 8u) + unit_x(gl_LocalInvocationIndex % kRowLanes, 0u) / 2u) * 16u;
  uint parts = gl_NumWorkGroups.x / (num_all_steps / num_steps);  // of a tile, where it has equal ones
  result_at = kLeavesParts ? gl_WorkGroupID.x % parts * x_rows * result_columns : 0u;
  uint step = first_step(gl_WorkGroupID.x), end = first_step(gl_WorkGroupID.x + 1u);
  while (step < end) {
    uint tile = step / num_steps, first = step % num_steps, steps = min(num_steps - first, end - step);
    make(tile, first, first + steps, kUnitOctets + hidden);
    barrier();  // what is written passes through the places of x
    bool has_all = kLeavesParts || !kShares || steps == num_steps;
    if (!has_all) has_all = share_sums(tile, steps);
    if (has_all) write_sums(tile, num_cols);
    barrier();
    step += steps;
  }
}
