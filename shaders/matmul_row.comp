// out = x * W^T + bias for one row of x, on matrix units whose factors lanes fill as in matmul_fragment. One row would use
// one of kN columns of x. With quantised weights the columns are the kN units of a turn, with zeros at the numbers of other
// units: quants are multiplied as they come, and scales are applied to the sums of units. With floats all columns are x.
//
// A group is alone on its core and has a run of tiles of kM weight rows, whose turns are dealt out evenly to its subgroups.
// So x is brought to shared memory once a core, few instructions stand between loads, and those of the next turn are under
// way beside the products. What a tile's subgroups have meets in shared memory. Of quants a subgroup has a run of turns,
// which may begin and end within a tile, and so few sums to leave; of floats every kSubgroups-th turn, for then a core reads
// long pieces of a row, and leaving sums costs little.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#define ROWS_BY_ADDRESS
#include "types.glsl"
#include "dequant.glsl"
#include "halves.glsl"
#include "rope.glsl"
#include "activation.glsl"

layout(constant_id = 11) const bool kBias = false;
layout(constant_id = 12) const uint kColumns = 4096;  // whole turns
layout(constant_id = 13) const uint kSubgroups = 16;  // of a group
layout(constant_id = 14) const uint kM = 16;          // the device's shape: weight rows
layout(constant_id = 15) const uint kN = 8;           // units
layout(constant_id = 16) const uint kK = 16;          // columns
layout(constant_id = 17) const uint kRowLanes = 4;    // these share a row of weights, and a row of sums
layout(constant_id = 18) const uint kAllTiles = 1;    // of the weight
layout(constant_id = 19) const bool kActivate = false;
layout(constant_id = 20) const uint kActivation = kSilu;
layout(constant_id = 21) const uint kRope = kNoRope;
layout(constant_id = 22) const uint kPoolDType = kF16;
layout(constant_id = 23) const uint kGroups = 1;
layout(constant_id = 24) const bool kLeavesNorm = false;
layout(constant_id = 25) const uint kNormEps = 0;  // bits of a float; 0: x is whole

#include "matmul_ends.glsl"

const uint kRunRows = kSubgroup / kRowLanes;  // rows of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kK / kRowLanes;
const uint kTurnUnits = kIsFloat ? 2 * kN : kN;
const uint kTurnSteps = kTurnUnits / kRowLanes, kSumRun = kN / kRowLanes;  // columns beside each other of a lane's sums
const uint kTurnColumns = kTurnUnits * kUnitVecs * 4, kTurns = kColumns / kTurnColumns;
const uint kUnitOctets = kUnitVecs / 2, kTurnOctets = kTurnColumns / 8;
// Bytes from a row's fields of a turn to those of the next.
const uint kRows = kWoven ? 8 : 1, kQuantsTurn = kTurnUnits * 16 * kRows;
const uint kUpperTurn = (kEncoding == kEncQ6_K ? kN * 8 : kN * 4) * kRows;
const uint kScalesTurn = (kIsK                                                ? kN * 2
                          : kHasMin                                           ? kN * 4
                          : kEncoding == kEncQ8_0 || kEncoding == kEncMXFP4   ? kN
                          : kEncoding == kEncFP8                              ? kN / 2
                                                                              : kN * 2) *
                         kRows;
const uint kWordUnits = kHasMin || kSumRun == 1 ? 1 : 2;  // neighbours whose scales are made from the same words

const uint kTilesMin = kAllTiles / kGroups, kTilesOver = kAllTiles % kGroups;  // so many groups have one more
const uint kTiles = kTilesMin + (kTilesOver > 0 ? 1 : 0);
const uint kOctets = kColumns / 8, kZeroOctets = 16, kLanes = kSubgroups * kSubgroup;
const uint kLaneOctets = (kOctets + kLanes - 1) / kLanes;
const bool kPairsScale = kIsK && kEncoding != kEncQ6_K || kIsBytes;  // such neighbours' scales are equal
shared uvec4 octets[kOctets + kZeroOctets];  // x in the pairs of raw_pairs, and zeros
shared float x_sums[kIsFloat ? 1 : kOctets / 2];  // of 16 numbers each
shared float sums[(kIsFloat ? kTiles * kSubgroups : kTiles + kSubgroups) * kM];
shared float squares[kSubgroups];

// A lane's weights of the turn under way, and of the one that is multiplied.
uvec4 next_quants[kTurnSteps][kLaneRows], quants[kTurnSteps][kLaneRows];
uvec4 next_uppers[kTurnSteps][kLaneRows], uppers[kTurnSteps][kLaneRows];
uvec4 next_scales[kLaneRows][kSumRun / kWordUnits], scales[kLaneRows][kSumRun / kWordUnits];
uint next_block_scales[kLaneRows], block_scales[kLaneRows];
uint first_tile, group_tiles, part, row_lane;  // part: of the kRowLanes lanes that share a row, row_lane: that row
uint tile_at;                                  // whose bases these are
uint64_t bases[kLaneRows], quants_bases[kLaneRows];  // of their rows, and of this lane's quants
uint in_eight[kLaneRows];
float row_sums[kLaneRows];
coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> float_sums;  // alike in all columns
// What only the end needs, asked for before the weights.
vec4 squares_part, residual, gain;
float former_factor, factor;

void go_to(uint tile) {
  tile_at = tile;
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
    uint row = weight_row(first_tile + tile, r * kRunRows + row_lane);
    in_eight[r] = row & 7u;
    bases[r] = uint64_t(weight) + uint64_t(kWoven ? row & ~7u : row) * (row_words * 4u);
    quants_bases[r] = bases[r] + (kWoven ? woven_at(in_eight[r], 0u, part, 4u) : part) * 16u;
  }
}

// Turn `turn` of the group's.
void fetch(uint turn) {
  uint tile = turn / kTurns, at = turn % kTurns;
  if (tile != tile_at) go_to(tile);
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
    uint64_t from = quants_bases[r] + uint64_t(at * kQuantsTurn);
    [[unroll]] for (uint p = 0; p < kTurnSteps; ++p) {
      next_quants[p][r] = RowQuad(from + p * kRowLanes * 16 * kRows).q;
      if (kHasUpper)
        next_uppers[p][r] = fetch_upper(bases[r] + uint64_t(at * kUpperTurn), in_eight[r], kColumns, p * kRowLanes + part);
    }
    [[unroll]] for (uint i = 0; i < kSumRun / kWordUnits; ++i)
      next_scales[r][i] =
          fetch_scales(bases[r] + uint64_t(at * kScalesTurn), in_eight[r], kColumns, part * kSumRun + i * kWordUnits);
    if (kEncoding == kEncQ6_K) next_block_scales[r] = fetch_block_scale(bases[r], in_eight[r], kColumns, at * kN);
  }
}

void take() {
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
    [[unroll]] for (uint p = 0; p < kTurnSteps; ++p) {
      quants[p][r] = next_quants[p][r];
      if (kHasUpper) uppers[p][r] = next_uppers[p][r];
    }
    [[unroll]] for (uint i = 0; i < kSumRun / kWordUnits; ++i) scales[r][i] = next_scales[r][i];
    block_scales[r] = next_block_scales[r];
  }
}

// x, and zeros behind it.
void store_x(uvec4 lane_octets[kLaneOctets]) {
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex;
    f16vec2 pairs[4];
    pairs_of(lane_octets[j].xy, pairs[0], pairs[1]);
    pairs_of(lane_octets[j].zw, pairs[2], pairs[3]);
    float sum = 0.0;
    [[unroll]] for (uint k = 0; k < 4; ++k) sum += float(pairs[k].x) + float(pairs[k].y);
    sum += subgroupShuffleXor(sum, 1u);
    if (i >= kOctets) continue;
    octets[i] = uvec4(packFloat2x16(pairs[0]), packFloat2x16(pairs[1]), packFloat2x16(pairs[2]), packFloat2x16(pairs[3]));
    if (!kIsFloat && i % 2u == 0u) x_sums[i / 2u] = sum;
  }
  if (gl_LocalInvocationIndex < kZeroOctets) octets[kOctets + gl_LocalInvocationIndex] = uvec4(0u);
}

void clear_sums() {
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) row_sums[r] = 0.0;
  float_sums = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
}

void multiply_floats(uint at) {
  [[unroll]] for (uint p = 0; p < kTurnSteps; ++p) {
    uvec4 y = octets[at * kTurnOctets + p * kRowLanes + part];
    f16vec2 w[kLaneRows][4];
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      Unit u;
      u.quants = quants[p][r];
      [[unroll]] for (uint i = 0; i < 2; ++i) {
        f16vec2 two[2];
        expand_vec4(u, 0u, i, 0u, scaling_of(u, 0u), two);
        w[r][2 * i] = two[0];
        w[r][2 * i + 1] = two[1];
      }
    }
    [[unroll]] for (uint first = 0; first < 8; first += kLaneNumbers) {
      coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a;
      coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
      [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
        uint i = first + j;
        [[unroll]] for (uint r = 0; r < kLaneRows; ++r) a[r * kLaneNumbers + j] = w[r][i / 2][i % 2];
        [[unroll]] for (uint c = 0; c < kLaneCols; ++c) b[c * kLaneNumbers + j] = unpackFloat2x16(y[i / 2])[i % 2];
      }
      float_sums = coopMatMulAdd(a, b, float_sums);
    }
  }
}

void multiply(uint at) {
  coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator> low, high;
  low = high = coopmat<float, gl_ScopeSubgroup, kM, kN, gl_MatrixUseAccumulator>(0.0);
  [[unroll]] for (uint p = 0; p < kTurnSteps; ++p) {
    uint unit = p * kRowLanes + part;
    uint from[kLaneCols];
    [[unroll]] for (uint c = 0; c < kLaneCols; ++c)
      from[c] = c * kRunRows + row_lane == unit ? at * kTurnOctets + unit_x(unit, 0u) / 2u : kOctets;
    [[unroll]] for (uint o = 0; o < kUnitOctets; ++o) {
      uvec4 y[kLaneCols];
      [[unroll]] for (uint c = 0; c < kLaneCols; ++c)
        y[c] = octets[from[c] + (unit_x(0u, 2u * o) - unit_x(0u, 0u)) / 2u];
      f16vec2 w[kLaneRows][4];
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
        Unit u;
        u.quants = quants[p][r];
        u.upper = uppers[p][r];
        [[unroll]] for (uint i = 0; i < 2; ++i) {
          f16vec2 two[2];
          raw_pairs(u, unit, 2 * o + i, two);
          w[r][2 * i] = two[0];
          w[r][2 * i + 1] = two[1];
        }
      }
      [[unroll]] for (uint first = 0; first < 8; first += kLaneNumbers) {
        coopmat<float16_t, gl_ScopeSubgroup, kM, kK, gl_MatrixUseA> a;
        coopmat<float16_t, gl_ScopeSubgroup, kK, kN, gl_MatrixUseB> b;
        [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
          uint i = first + j;
          [[unroll]] for (uint r = 0; r < kLaneRows; ++r) a[r * kLaneNumbers + j] = w[r][i / 2][i % 2];
          [[unroll]] for (uint c = 0; c < kLaneCols; ++c) b[c * kLaneNumbers + j] = unpackFloat2x16(y[c][i / 2])[i % 2];
        }
        if (o < 2)
          low = coopMatMulAdd(a, b, low);
        else
          high = coopMatMulAdd(a, b, high);
      }
    }
  }
  uint x_from = at * (kTurnOctets / 2);
  [[unroll]] for (uint c = 0; c < kSumRun; ++c) {
    uint unit = part * kSumRun + c, scale_unit = kPairsScale ? part * kSumRun : unit;
    float x_low = x_sums[x_from + unit_x(unit, 0u) / 4u], x_high = 0.0;
    if (kUnitVecs == 8) x_high = x_sums[x_from + unit_x(unit, 4u) / 4u];
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      Unit u;
      u.scales = scales[r][c / kWordUnits];
      u.scales.z = kEncoding == kEncQ6_K ? block_scales[r] >> (at & 1u) * 16u : u.scales.z;
      uint e = r * kSumRun + c;
      vec2 scale = unit_scale(u, scale_unit, 0u);
      float sum = low[e] - (1024.0 + kRawZero) * x_low, more = 0.0;
      if (kUnitVecs == 8) more = kIsNibbles ? 0.0625 * high[e] - 64.0 * x_high : high[e] - 1024.0 * x_high;
      if (kIsSmallFloat) {
        row_sums[r] += scale.x * (kSmallFactor * (low[e] + high[e]));
      } else if (kScaleRun == kUnitVecs) {
        row_sums[r] += scale.x * (sum + more);
        if (kHasOffset) row_sums[r] += scale.y * (x_low + x_high);
      } else {
        vec2 scale_high = unit_scale(u, scale_unit, 4u);
        row_sums[r] += scale.x * sum + scale.y * x_low + scale_high.x * more + scale_high.y * x_high;
      }
    }
  }
}

// The turns of the group's tiles are dealt out to its subgroups: where one's begin, and whose one is.
uint first_turn(uint team) { return group_tiles * kTurns * team / kSubgroups; }
uint owner(uint turn) {
  // Exact: neither is beyond 2^20, and half of a divisor is far from both whole numbers.
  return uint((float((turn + 1u) * kSubgroups) - 0.5) / float(group_tiles * kTurns));
}

// Of what a subgroup has of a tile: no other has this place.
uint sums_of(uint tile, uint subgroup) { return (kIsFloat ? tile * kSubgroups + subgroup : tile + subgroup) * kM; }
void leave_sums(uint tile) {
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
    float sum = kIsFloat ? float_sums[r * kSumRun] : row_sums[r];
    if (!kIsFloat) [[unroll]] for (uint d = 1; d < kRowLanes; d *= 2) sum += subgroupShuffleXor(sum, d);
    if (part == 0u) sums[sums_of(tile, gl_SubgroupID) + r * kRunRows + row_lane] = sum;
  }
  clear_sums();
}

vec4 sum_of(uint in_group, uint n, uint quad) {
  vec4 all = vec4(0.0);
  uint first = kIsFloat ? 0u : owner(in_group * kTurns);
  uint last = kIsFloat ? kSubgroups - 1u : owner((in_group + 1u) * kTurns - 1u);
  for (uint s = first; s <= last; ++s) {
    uint from = sums_of(in_group, s) + quad * 4u;
    all += vec4(sums[from], sums[from + 1u], sums[from + 2u], sums[from + 3u]);
  }
  return all;
}
float factor_of(uint n) { return factor; }
// finish() deals quads out as main() did.
vec4 residual_of(uint in_group, uint n, uint quad) { return residual; }
vec4 gain_of(uint in_group, uint n, uint quad) { return gain * (former_factor * kHeadroom); }

void main() {
  part = gl_SubgroupInvocationID % kRowLanes;
  row_lane = gl_SubgroupInvocationID / kRowLanes;
  first_tile = gl_WorkGroupID.x * kTilesMin + min(gl_WorkGroupID.x, kTilesOver);
  group_tiles = kTilesMin + (gl_WorkGroupID.x < kTilesOver ? 1u : 0u);
  uint turn = kIsFloat ? gl_SubgroupID : first_turn(gl_SubgroupID), lane = gl_LocalInvocationIndex;
  uint end = kIsFloat ? group_tiles * kTurns : first_turn(gl_SubgroupID + 1u);
  const uint kStep = kIsFloat ? kSubgroups : 1;
  uint num_cols = count.w[0];  // what is asked for here is waited for behind the weights
  uvec4 lane_octets[kLaneOctets];
  [[unroll]] for (uint j = 0; j < kLaneOctets; ++j) lane_octets[j] = Quads(x).q[min(j * kLanes + lane, kOctets - 1u)];
  go_to(turn / kTurns);
  if (turn < end) fetch(turn);
  const uint kSquaresQuads = kColumns / kM / 4;
  if (kNormEps > 0 || kLeavesNorm) former_factor = norms.f[norm_slot * kN];
  if (kNormEps > 0) squares_part = Vec4s(norms).v[kSquaresFirst / 4u + min(lane, kSquaresQuads - 1u)];
  if (kLeavesNorm) {
    uint quad = first_tile * kTileQuads + min(lane, group_tiles * kTileQuads - 1u);
    residual = Vec4s(kv_slots).v[quad];
    gain = Vec4s(freqs).v[quad];
  }
  store_x(lane_octets);
  clear_sums();
  if (num_cols == 0u) return;
  f16_1024 = 0x64006400u | num_cols >> 31;  // hidden from the compiler
  barrier();
  // More subgroups than turns: nothing, where others' sums are added.
  if (!kIsFloat && kTilesMin * kTurns < kSubgroups && turn == end) leave_sums(turn / kTurns);
  for (; turn < end; turn += kStep) {
    take();
    if (turn + kStep < end) fetch(turn + kStep);
    if (kIsFloat)
      multiply_floats(turn % kTurns);
    else
      multiply(turn % kTurns);
    if (turn % kTurns + kStep >= kTurns || turn + kStep >= end) leave_sums(turn / kTurns);
  }
  if (kNormEps > 0) {
    float sum = subgroupAdd(lane < kSquaresQuads ? dot(squares_part, vec4(1.0)) : 0.0);
    if (gl_SubgroupInvocationID == 0u) squares[gl_SubgroupID] = sum;
  }
  barrier();
  if (kNormEps > 0) {
    float sum = 0.0;
    [[unroll]] for (uint s = 0; s < (kSquaresQuads + kSubgroup - 1) / kSubgroup; ++s) sum += squares[s];
    factor = 1.0 / sqrt(sum / float(kColumns) + uintBitsToFloat(kNormEps));
    if (gl_WorkGroupID.x == 0u && lane == 0u && result_first == 0u) norms.f[(1u - norm_slot) * kN] = factor;
    factor /= former_factor * kHeadroom;
  }
  finish(first_tile, group_tiles, kAllTiles, 1u);
}
