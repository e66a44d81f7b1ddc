// out = x * W^T + bias for kN * kMatrices rows of x on matrix units. As in matmul_fragment weights go from memory to the
// lanes whose elements they are, and are decoded once for all rows of x; x goes through shared memory, once for all
// subgroups of a group, in the order in which lanes want it. A group owns a tile of weight rows, kParts matrices a
// subgroup, and makes steps of kStepUnits units a lane and row. The steps of all tiles are dealt out evenly: a group has a
// run of them, which may begin and end within a tile. Of a tile with several groups each subgroup leaves its sums in
// `products`, and the last to arrive adds them up in their order. Weights are rounded to f16, sums in f32. With kActivate a
// matrix has half its rows of gate, half the same rows of up, and out is activation(gate) * up in f16. With kLeavesParts
// each group has an equal part of one tile, and result is [part][row of x][weight row], for its reader to add up.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "types.glsl"
#include "arrival.glsl"
#include "dequant.glsl"
#include "halves.glsl"
#include "activation.glsl"

layout(constant_id = 11) const bool kBias = false;
layout(constant_id = 12) const uint kSubgroups = 8;  // of a group
layout(constant_id = 13) const uint kM = 16;         // the device's shape: weight rows
layout(constant_id = 14) const uint kN = 8;          // rows of x
layout(constant_id = 15) const uint kK = 16;         // columns
layout(constant_id = 16) const uint kRowLanes = 4;
layout(constant_id = 17) const bool kTail = false;  // a row's units are no multiple of a step's
layout(constant_id = 18) const bool kActivate = false;
layout(constant_id = 19) const uint kActivation = kSilu;
layout(constant_id = 20) const uint kParts = 1;
layout(constant_id = 21) const uint kMatrices = 4;
layout(constant_id = 22) const uint kStepUnits = 1;
layout(constant_id = 23) const bool kLeavesParts = false;

layout(buffer_reference, std430, buffer_reference_align = 2) buffer Halves { float16_t h[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Products { queuefamilycoherent vec4 v[]; };

layout(push_constant) uniform Push {
  Words x, weight;  // x: f16
  Floats bias, result;
  Words count;
  Products products;  // [tile of x][group][begins or continues a tile][kTileQuads]
  Words arrivals;     // [tile of x][group][subgroup] steps of the tile that begins there which are done; 0 before and after
  uint columns, row_words, num_rows;
  uint result_first, result_columns, x_rows;
};

const uint kRunRows = kSubgroup / kRowLanes;  // rows of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kK / kRowLanes;
const uint kSumRun = kN / kRowLanes;  // columns beside each other of a lane's row of sums
const uint kLaneQuads = kM * kN / kSubgroup / 4;
const uint kOutputRows = kActivate ? kLaneRows / 2 : kLaneRows, kMatrixOutputs = kOutputRows * kRunRows;
const uint kTileOutputs = kSubgroups * kParts * kMatrixOutputs, kTileCols = kMatrices * kN;
const uint kTileQuads = kSubgroups * kParts * kMatrices * kLaneQuads * kSubgroup;
const uint kLanes = kSubgroups * kSubgroup;
const uint kUnitOctets = kUnitVecs / 2;
const uint kStepRowUnits = kStepUnits * kRowLanes, kStepOctets = kStepRowUnits * kUnitOctets;
const uint kXOctets = kTileCols * kStepOctets, kLaneOctets = (kXOctets + kLanes - 1) / kLanes;
shared uvec4 places[2 * kXOctets];  // x of this step and of the next: [matrix][unit][octet][column of a lane][lane]

uint num_row_units, num_outputs, num_steps, num_all_steps;  // steps of a tile, of all tiles
uint col_first, num_cols;                                   // of the group's rows of x; live ones
uint part, row_lane;                                        // of the kRowLanes lanes that share a row, and that row
uint rows[kParts][kLaneRows];                               // of row_at
Unit next_units[kStepUnits][kParts][kLaneRows];
uvec4 next_x[kLaneOctets];
uint x_from[kLaneOctets], x_to[kLaneOctets];  // octets of x and of a place
coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kParts][kMatrices];

// Output of a lane's row r of matrix p of a tile.
uint output_of(uint tile, uint p, uint r) {
  return tile * kTileOutputs + (gl_SubgroupID * kParts + p) * kMatrixOutputs + r % kOutputRows * kRunRows + row_lane;
}

void find_rows(uint tile) {
  [[unroll]] for (uint p = 0; p < kParts; ++p)
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
      rows[p][r] = row_at(r / kOutputRows * num_outputs + min(output_of(tile, p, r), num_outputs - 1u), row_words);
}

uint unit_of(uint step, uint u) {
  uint unit = step * kStepRowUnits + u * kRowLanes + part;
  return kTail ? min(unit, num_row_units - 1u) : unit;
}

void fetch_weights(uint step) {
  [[unroll]] for (uint u = 0; u < kStepUnits; ++u)
    [[unroll]] for (uint p = 0; p < kParts; ++p)
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
        next_units[u][p][r] = fetch_unit(weight, rows[p][r], columns, unit_of(step, u));
}

// Lanes that store neighbours of a column, and those that load theirs of a unit, meet in no bank of shared memory.
uint swizzle(uint lane, uint octet) { return lane ^ octet * (8 / kUnitOctets); }

uint octet_of(uint j) { return min(j * kLanes + gl_LocalInvocationIndex, kXOctets - 1u); }

// Dead columns are read too, so that no load waits for how many there are; nobody asks for their products.
void find_x() {
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uint i = octet_of(j), col = i / kStepOctets;
    uint unit = i % kStepOctets / kUnitOctets, octet = i % kUnitOctets;
    x_from[j] = min(col_first + col, x_rows - 1u) * (columns / 8u) + unit_x(unit, octet * 2u) / 2u;
    uint at = (col / kN * kStepUnits + unit / kRowLanes) * kUnitOctets + octet;
    x_to[j] = (at * kLaneCols + col % kN / kRunRows) * kSubgroup +
              swizzle(col % kRunRows * kRowLanes + unit % kRowLanes, octet);
    // Said so that the compiler keeps one place alone.
    const uint kLaneMatrices = kLanes / (kStepOctets * kN);
    if (kLanes == kLaneMatrices * kStepOctets * kN && kXOctets % kLanes == 0)
      x_to[j] = x_to[0] + j * kLaneMatrices * kStepUnits * kUnitOctets * kLaneCols * kSubgroup;
  }
}

bool in_row(uint step, uint j) {
  return !kTail || step * kStepRowUnits + octet_of(j) % kStepOctets / kUnitOctets < num_row_units;
}

// A step is a multiple of 4 units, so steps are equally far apart whatever the encoding. No load is under a condition:
// where ways meet it would be waited for.
void fetch_x(uint step) {
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j)
    next_x[j] = Quads(x).q[in_row(step, j) ? x_from[j] + step * kStepOctets : 0u];
}

void store_x(uint step, uint place) {
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uvec4 octet = in_row(step, j) ? next_x[j] : uvec4(0u);
    f16vec2 pairs[4];
    pairs_of(octet.xy, pairs[0], pairs[1]);
    pairs_of(octet.zw, pairs[2], pairs[3]);
    if (kXOctets % kLanes == 0 || j * kLanes + gl_LocalInvocationIndex < kXOctets)
      places[place + x_to[j]] =
          uvec4(packFloat2x16(pairs[0]), packFloat2x16(pairs[1]), packFloat2x16(pairs[2]), packFloat2x16(pairs[3]));
  }
}

void multiply_octet(f16vec2 w[kParts][kLaneRows][2 * kUnitsMaxVecs], uint place, uint u, uint octet) {
  uvec4 y[kMatrices][kLaneCols];
  [[unroll]] for (uint c = 0; c < kMatrices; ++c)
    [[unroll]] for (uint l = 0; l < kLaneCols; ++l)
      y[c][l] = places[place + (((c * kStepUnits + u) * kUnitOctets + octet) * kLaneCols + l) * kSubgroup +
                       swizzle(gl_SubgroupInvocationID, octet)];
  [[unroll]] for (uint first = 0; first < 8; first += kLaneNumbers)
    [[unroll]] for (uint c = 0; c < kMatrices; ++c) {
      coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
      [[unroll]] for (uint l = 0; l < kLaneCols; ++l)
        [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
          b[l * kLaneNumbers + j] = unpackFloat2x16(y[c][l][(first + j) / 2])[(first + j) % 2];
      [[unroll]] for (uint p = 0; p < kParts; ++p) {
        coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a;
        [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
          [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
            a[r * kLaneNumbers + j] = w[p][r][octet * 4 + (first + j) / 2][(first + j) % 2];
        sums[p][c] = coopMatMulAdd(a, b, sums[p][c]);
      }
    }
}

// Units are expanded octet by octet: all their numbers take as many registers as the sums. Those of K blocks are expanded
// row by row, since scales and minimums of all rows take more.
void multiply(Unit units[kStepUnits][kParts][kLaneRows], uint step, uint place) {
  [[unroll]] for (uint u = 0; u < kStepUnits; ++u) {
    uint unit = unit_of(step, u);
    f16vec2 w[kParts][kLaneRows][2 * kUnitsMaxVecs];
    Scaling s[kParts][kLaneRows];
    [[unroll]] for (uint p = 0; p < kParts; ++p)
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
        if (kIsK)
          expand_pairs(units[u][p][r], unit, w[p][r]);
        else
          s[p][r] = scaling_of(units[u][p][r], unit);
    [[unroll]] for (uint octet = 0; octet < kUnitOctets; ++octet) {
      if (!kIsK) [[unroll]] for (uint p = 0; p < kParts; ++p)
        [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
          [[unroll]] for (uint i = 2 * octet; i < 2 * octet + 2; ++i) {
            f16vec2 two[2];
            expand_vec4(units[u][p][r], unit, i, i >> 2, s[p][r], two);
            w[p][r][2 * i] = two[0];
            w[p][r][2 * i + 1] = two[1];
          }
      multiply_octet(w, place, u, octet);
    }
  }
}

#include "step_runs.glsl"

void clear_sums() {
  [[unroll]] for (uint p = 0; p < kParts; ++p)
    [[unroll]] for (uint c = 0; c < kMatrices; ++c)
      sums[p][c] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
}

void leave_sums(uint first_group) {
  uint at = products_of(gl_WorkGroupID.x, first_group == gl_WorkGroupID.x);
  [[unroll]] for (uint p = 0; p < kParts; ++p)
    [[unroll]] for (uint c = 0; c < kMatrices; ++c)
      if (col_first + c * kN < num_cols) [[unroll]] for (uint q = 0; q < kLaneQuads; ++q)
        products.v[at + quad_of(p, c, q)] =
            vec4(sums[p][c][4 * q], sums[p][c][4 * q + 1], sums[p][c][4 * q + 2], sums[p][c][4 * q + 3]);
  release_subgroup();
}

// Of a tile with several groups: whether the same subgroups of all others have left their sums; then this one, which made
// `done` steps, has all sums. Else it leaves its own. They are added up in the order of the groups, whoever comes last.
bool share_sums(uint tile, uint done) {
  uint first_group = group_of(tile * num_steps), last_group = group_of((tile + 1u) * num_steps - 1u);
  uint arrival = (gl_WorkGroupID.y * gl_NumWorkGroups.x + first_group) * kSubgroups + gl_SubgroupID, others = 0u;
  if (subgroupElect()) others = atomicLoad(arrivals.w[arrival], gl_ScopeQueueFamily, 0, 0);
  bool has_all = subgroupBroadcastFirst(others) + done == num_steps;
  if (!has_all) {
    leave_sums(first_group);
    if (subgroupElect()) others = atomicAdd(arrivals.w[arrival], done, gl_ScopeQueueFamily, 0, 0);
    has_all = subgroupBroadcastFirst(others) + done == num_steps;
  }
  if (!has_all) return false;
  acquire_subgroup();
  if (subgroupElect()) arrivals.w[arrival] = 0u;
  vec4 all[kParts][kMatrices][kLaneQuads];
  [[unroll]] for (uint p = 0; p < kParts; ++p)
    [[unroll]] for (uint c = 0; c < kMatrices; ++c)
      [[unroll]] for (uint q = 0; q < kLaneQuads; ++q) all[p][c][q] = vec4(0.0);
  [[dont_unroll]] for (uint g = first_group; g <= last_group; ++g) {
    uint from = products_of(g, g == first_group);
    if (g == gl_WorkGroupID.x) {
      [[unroll]] for (uint p = 0; p < kParts; ++p)
        [[unroll]] for (uint c = 0; c < kMatrices; ++c)
          [[unroll]] for (uint i = 0; i < kLaneQuads * 4; ++i) all[p][c][i / 4][i % 4] += sums[p][c][i];
    } else {
      [[unroll]] for (uint p = 0; p < kParts; ++p)
        [[unroll]] for (uint c = 0; c < kMatrices; ++c)
          [[unroll]] for (uint q = 0; q < kLaneQuads; ++q) all[p][c][q] += products.v[from + quad_of(p, c, q)];
    }
  }
  [[unroll]] for (uint p = 0; p < kParts; ++p)
    [[unroll]] for (uint c = 0; c < kMatrices; ++c)
      [[unroll]] for (uint i = 0; i < kLaneQuads * 4; ++i) sums[p][c][i] = all[p][c][i / 4][i % 4];
  return true;
}

// The same where sums are few: the last to arrive has left its own too, and reads those of two groups at a time, which
// takes less time than a look at who has arrived.
bool share_few_sums(uint tile, uint done) {
  uint first_group = group_of(tile * num_steps), last_group = group_of((tile + 1u) * num_steps - 1u);
  leave_sums(first_group);
  uint arrival = (gl_WorkGroupID.y * gl_NumWorkGroups.x + first_group) * kSubgroups + gl_SubgroupID, others = 0u;
  if (subgroupElect()) {
    others = num_steps - done - atomicAdd(arrivals.w[arrival], done, gl_ScopeQueueFamily, 0, 0);
    if (others == 0u) arrivals.w[arrival] = 0u;
  }
  if (subgroupBroadcastFirst(others) > 0u) return false;
  acquire_subgroup();
  clear_sums();
  const uint kAtOnce = 2;
  for (uint g = first_group; g <= last_group; g += kAtOnce) {
    vec4 more[kAtOnce][kParts][kMatrices][kLaneQuads];
    [[unroll]] for (uint k = 0; k < kAtOnce; ++k) {
      uint group = min(g + k, last_group), from = products_of(group, group == first_group);
      [[unroll]] for (uint p = 0; p < kParts; ++p)
        [[unroll]] for (uint c = 0; c < kMatrices; ++c)
          [[unroll]] for (uint q = 0; q < kLaneQuads; ++q)
            more[k][p][c][q] = products.v[from + quad_of(p, c, q)];
    }
    [[unroll]] for (uint k = 0; k < kAtOnce; ++k) {
      bool counts = g + k <= last_group;
      [[unroll]] for (uint p = 0; p < kParts; ++p)
        [[unroll]] for (uint c = 0; c < kMatrices; ++c)
          [[unroll]] for (uint i = 0; i < kLaneQuads * 4; ++i)
            sums[p][c][i] += counts ? more[k][p][c][i / 4][i % 4] : 0.0;
    }
  }
  return true;
}

void write_sums(uint tile, uint first) {
  [[unroll]] for (uint p = 0; p < kParts; ++p)
    [[unroll]] for (uint r = 0; r < kOutputRows; ++r) {
      uint row = output_of(tile, p, r);
      bool is_row = row < num_outputs;
      float more = kBias ? bias.f[result_first + min(row, num_outputs - 1u)] : 0.0;
      [[unroll]] for (uint c = 0; c < kMatrices; ++c)
        [[unroll]] for (uint k = 0; k < kSumRun; ++k) {
          uint n = col_first + c * kN + part * kSumRun + k, at = first + n * result_columns + result_first + row;
          float sum = sums[p][c][r * kSumRun + k];
          if (is_row && n < num_cols) {
            if (kActivate)
              Halves(result).h[at] = float16_t(activate(kActivation, sum) * sums[p][c][(r + kOutputRows) * kSumRun + k]);
            else
              result.f[at] = sum + more;
          }
        }
    }
}

void main() {
  part = gl_SubgroupInvocationID % kRowLanes;
  row_lane = gl_SubgroupInvocationID / kRowLanes;
  num_row_units = num_units(columns);
  num_outputs = kActivate ? num_rows / 2u : num_rows;
  num_steps = (num_row_units + kStepRowUnits - 1u) / kStepRowUnits;
  num_all_steps = (num_outputs + kTileOutputs - 1u) / kTileOutputs * num_steps;
  uint left = first_step(gl_WorkGroupID.x + 1u) - first_step(gl_WorkGroupID.x);
  uint tile = first_step(gl_WorkGroupID.x) / num_steps, step = first_step(gl_WorkGroupID.x) % num_steps;
  uint first_result = kLeavesParts ? step / left * x_rows * result_columns : 0u;
  col_first = gl_WorkGroupID.y * kTileCols;
  find_rows(tile);
  find_x();
  fetch_weights(step);
  fetch_x(step);
  num_cols = count.w[0];
  if (col_first >= num_cols) return;
  f16_1024 = 0x64006400u | num_cols + gl_LocalInvocationIndex >> 31;  // hidden from the compiler
  clear_sums();
  uint place = 0, done = 0;
  for (; left > 0u; --left) {
    Unit units[kStepUnits][kParts][kLaneRows];
    [[unroll]] for (uint u = 0; u < kStepUnits; ++u)
      [[unroll]] for (uint p = 0; p < kParts; ++p)
        [[unroll]] for (uint r = 0; r < kLaneRows; ++r) units[u][p][r] = next_units[u][p][r];
    uint now = step;
    bool ends = step + 1u == num_steps;
    step = ends ? 0u : step + 1u;
    store_x(now, place);
    if (left > 1u) {
      if (ends) find_rows(tile + 1u);
      fetch_weights(step);
      fetch_x(step);
    }
    barrier();
    multiply(units, now, place);
    place = kXOctets - place;
    ++done;
    if (!ends && left > 1u) continue;
    bool writes = kLeavesParts || done == num_steps;
    if (!writes) writes = kMatrices > 2 ? share_sums(tile, done) : share_few_sums(tile, done);
    if (writes) write_sums(tile, first_result);
    clear_sums();
    done = 0u;
    ++tile;
  }
}
