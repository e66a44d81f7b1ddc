// out = x * W^T + bias for kN * kMatrices rows of x on matrix units. As in matmul_fragment weights go from memory to the
// lanes whose elements they are, and are decoded once for all rows of x; x goes through shared memory, once for all
// subgroups of a group, in the order in which lanes want it. A group owns a tile of weight rows, kParts matrices a
// subgroup, and makes steps of kStepUnits units a lane and row. The steps of all tiles are dealt out evenly: a group has
// a run of them, which may begin and end within a tile. Of a tile with several groups each leaves its sums in `products`,
// and the last to arrive adds them up in their order. Weights are rounded to f16, sums in f32. With kActivate the first
// half of a tile are rows of gate, the second the same rows of up, and out is activation(gate) * up in f16.
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

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Products { queuefamilycoherent vec4 v[]; };

layout(push_constant) uniform Push {
  Words x, weight;  // x: f16
  Floats bias, result;
  Words count;
  Products products;  // [tile of x][group][begins or continues a tile][kTileCols * kTileRows]
  Words arrivals;     // [tile of x][group] steps of the tile that begins there which are done; 0 before and after
  uint columns, row_words, num_rows;
  uint result_first, result_columns, x_rows;
};

const uint kRunRows = kSubgroup / kRowLanes;  // rows of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kK / kRowLanes;
const uint kTileParts = kSubgroups * kParts, kTileRows = kTileParts * kM, kTileCols = kMatrices * kN;
const uint kTileOutputs = kActivate ? kTileRows / 2 : kTileRows;
const uint kPartQuads = kM * kN / 4, kMatrixQuads = kTileParts * kPartQuads, kTileQuads = kMatrices * kMatrixQuads;
const uint kLanes = kSubgroups * kSubgroup;
const uint kUnitOctets = kUnitVecs / 2;
const uint kStepRowUnits = kStepUnits * kRowLanes, kStepOctets = kStepRowUnits * kUnitOctets;
const uint kXOctets = kTileCols * kStepOctets, kLaneOctets = (kXOctets + kLanes - 1) / kLanes;
// Sums pass through the place of x that is free, as many matrices at a time as have room.
const uint kPlaceQuads = kXOctets > kMatrixQuads ? kXOctets : kMatrixQuads;
const uint kRoom = kPlaceQuads / kMatrixQuads, kBatch = kRoom < kMatrices ? kRoom : kMatrices;
shared uvec4 places[2 * kPlaceQuads];  // x of this step and of the next: [matrix][unit][octet][column of a lane][lane]

uint num_row_units, num_outputs, num_steps, num_all_steps;  // steps of a tile, of all tiles
uint col_first, num_cols;                                    // of the group's rows of x; live ones
uint rows[kParts][kLaneRows];                                // of row_at
Unit next_units[kStepUnits][kParts][kLaneRows];
uvec4 next_x[kLaneOctets];
uint x_from[kLaneOctets], x_to[kLaneOctets];  // octets of x and of a place
coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> sums[kParts][kMatrices];

void find_rows(uint tile) {
  [[unroll]] for (uint p = 0; p < kParts; ++p)
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      uint m = (gl_SubgroupID * kParts + p) * kM + r * kRunRows + gl_SubgroupInvocationID / kRowLanes;
      uint row = m / kTileOutputs * num_outputs + min(tile * kTileOutputs + m % kTileOutputs, num_outputs - 1u);
      rows[p][r] = row_at(row, row_words);
    }
}

uint unit_of(uint step, uint u) {
  uint unit = step * kStepRowUnits + u * kRowLanes + gl_SubgroupInvocationID % kRowLanes;
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

void multiply(Unit units[kStepUnits][kParts][kLaneRows], uint step, uint place) {
  [[unroll]] for (uint u = 0; u < kStepUnits; ++u) {
    f16vec2 w[kParts][kLaneRows][2 * kUnitsMaxVecs];
    [[unroll]] for (uint p = 0; p < kParts; ++p)
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r) expand_pairs(units[u][p][r], unit_of(step, u), w[p][r]);
    [[unroll]] for (uint octet = 0; octet < kUnitOctets; ++octet)
      [[unroll]] for (uint c = 0; c < kMatrices; ++c) {
        uvec4 y[kLaneCols];
        uint at = place + ((c * kStepUnits + u) * kUnitOctets + octet) * kLaneCols * kSubgroup;
        [[unroll]] for (uint l = 0; l < kLaneCols; ++l)
          y[l] = places[at + l * kSubgroup + swizzle(gl_SubgroupInvocationID, octet)];
        [[unroll]] for (uint first = 0; first < 8; first += kLaneNumbers) {
          coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
          [[unroll]] for (uint l = 0; l < kLaneCols; ++l)
            [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
              b[l * kLaneNumbers + j] = unpackFloat2x16(y[l][(first + j) / 2])[(first + j) % 2];
          [[unroll]] for (uint p = 0; p < kParts; ++p) {
            coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a;
            [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
              [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
                a[r * kLaneNumbers + j] = w[p][r][octet * 4 + (first + j) / 2][(first + j) % 2];
            sums[p][c] = coopMatMulAdd(a, b, sums[p][c]);
          }
        }
      }
  }
}

#include "step_runs.glsl"

// Numbers m to m + 3 of the tile's for column n.
void write(uint tile, uint n, uint m, vec4 sum, vec4 up) {
  uint row = tile * kTileOutputs + m, at = n * result_columns + result_first + row;
  if (kActivate) {
    if (row >= num_outputs) return;
    [[unroll]] for (uint c = 0; c < 4; ++c) sum[c] = activate(kActivation, sum[c]) * up[c];
    Pairs(result).p[at / 4u] = uvec2(pack16(sum.xy, kF16), pack16(sum.zw, kF16));
    return;
  }
  if (kBias) [[unroll]] for (uint c = 0; c < 4; ++c) sum[c] += bias.f[result_first + min(row + c, num_outputs - 1u)];
  if (at % 4u == 0u && row + 4u <= num_outputs) {
    Vec4s(result).v[at / 4u] = sum;
    return;
  }
  [[unroll]] for (uint c = 0; c < 4; ++c)
    if (row + c < num_outputs) result.f[at + c] = sum[c];
}

// Where quad `i` of a matrix's outputs, column by column, lies among its sums.
uint quad_of_output(uint i) {
  uint n = i / (kTileOutputs / 4), m = i % (kTileOutputs / 4);
  return m / (kM / 4) * kPartQuads + n * (kM / 4) + m % (kM / 4);
}

// Of a tile that this group alone made; `place` is free.
void write_sums(uint tile, uint place) {
  const uint kOutputs = kTileOutputs / 4 * kN, kUp = kTileParts / 2 * kPartQuads;
  [[unroll]] for (uint c = 0; c < kMatrices; c += kBatch) {
    [[unroll]] for (uint b = 0; b < kBatch && c + b < kMatrices; ++b)
      [[unroll]] for (uint p = 0; p < kParts; ++p)
        coopMatStore(sums[p][c + b], places, place + b * kMatrixQuads + (gl_SubgroupID * kParts + p) * kPartQuads, kM / 4,
                     gl_CooperativeMatrixLayoutColumnMajor);
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < kOutputs * kBatch; i += kLanes) {
      uint n = col_first + c * kN + i / (kTileOutputs / 4);
      if (n >= num_cols || c + i / kOutputs >= kMatrices) break;
      uint quad = place + i / kOutputs * kMatrixQuads + quad_of_output(i % kOutputs);
      vec4 up = kActivate ? uintBitsToFloat(places[quad + kUp]) : vec4(0.0);
      write(tile, n, i % (kTileOutputs / 4) * 4u, uintBitsToFloat(places[quad]), up);
    }
    barrier();
  }
}

// Of a tile with several groups: this one's `done` steps.
void share_sums(uint tile, uint done) {
  uint first_group = group_of(tile * num_steps), last_group = group_of((tile + 1u) * num_steps - 1u);
  uint at = products_of(gl_WorkGroupID.x, first_group == gl_WorkGroupID.x);
  [[unroll]] for (uint c = 0; c < kMatrices; ++c)
    if (col_first + c * kN < num_cols) [[unroll]] for (uint p = 0; p < kParts; ++p)
      coopMatStore(sums[p][c], products.v, at + c * kMatrixQuads + (gl_SubgroupID * kParts + p) * kPartQuads, kM / 4,
                   gl_CooperativeMatrixLayoutColumnMajor);
  group_and_memory_barrier();
  if (gl_LocalInvocationIndex == 0u) {
    uint arrival = gl_WorkGroupID.y * gl_NumWorkGroups.x + first_group;
    is_last = atomicAdd(arrivals.w[arrival], done, gl_ScopeQueueFamily, 0, 0) == num_steps - done;
    if (is_last) arrivals.w[arrival] = 0u;
  }
  barrier();
  if (!is_last) return;
  group_and_memory_barrier();
  const uint kMatrixOutputs = kTileOutputs / 4 * kN, kOutputs = kMatrixOutputs * kMatrices;
  const uint kLaneOutputs = (kOutputs + kLanes - 1) / kLanes, kUp = kTileParts / 2 * kPartQuads;
  vec4 totals[kLaneOutputs], ups[kLaneOutputs];
  uint quads[kLaneOutputs];
  [[unroll]] for (uint j = 0; j < kLaneOutputs; ++j) {
    uint i = min(j * kLanes + gl_LocalInvocationIndex, kOutputs - 1u);
    quads[j] = i / kMatrixOutputs * kMatrixQuads + quad_of_output(i % kMatrixOutputs);
    totals[j] = ups[j] = vec4(0.0);
  }
  for (uint g = first_group; g <= last_group; ++g) {
    uint from = products_of(g, g == first_group);
    [[unroll]] for (uint j = 0; j < kLaneOutputs; ++j) totals[j] += products.v[from + quads[j]];
    if (kActivate) [[unroll]] for (uint j = 0; j < kLaneOutputs; ++j) ups[j] += products.v[from + kUp + quads[j]];
  }
  [[unroll]] for (uint j = 0; j < kLaneOutputs; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex, n = col_first + i / (kTileOutputs / 4);
    if (i < kOutputs && n < num_cols) write(tile, n, i % (kTileOutputs / 4) * 4u, totals[j], ups[j]);
  }
}

void clear_sums() {
  [[unroll]] for (uint p = 0; p < kParts; ++p)
    [[unroll]] for (uint c = 0; c < kMatrices; ++c)
      sums[p][c] = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
}

void main() {
  num_row_units = num_units(columns);
  num_outputs = kActivate ? num_rows / 2u : num_rows;
  num_steps = (num_row_units + kStepRowUnits - 1u) / kStepRowUnits;
  num_all_steps = (num_outputs + kTileOutputs - 1u) / kTileOutputs * num_steps;
  uint left = first_step(gl_WorkGroupID.x + 1u) - first_step(gl_WorkGroupID.x);
  uint tile = first_step(gl_WorkGroupID.x) / num_steps, step = first_step(gl_WorkGroupID.x) % num_steps;
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
    place = kPlaceQuads - place;
    ++done;
    if (!ends && left > 1u) continue;
    if (done == num_steps)
      write_sums(tile, place);
    else
      share_sums(tile, done);
    clear_sums();
    done = 0u;
    ++tile;
  }
}
