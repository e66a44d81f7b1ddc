// Attention for prompt items on matrix units whose elements lie in lanes as fragment_probe has found: f16 factors, f32 sums,
// online softmax in f32. Grid: x walks the items, y = KV head, z = tile of the item's rows. A subgroup owns kRowFrags * kM
// rows, whose queries and outputs stay in registers, and so do scores: where a lane has them as sums is where it has weights
// as a factor, if the keys of a tile are counted in that order (as FlashAttention-2 does: Dao 2023, arXiv:2307.08691). Which
// numbers of a head a product multiplies is free, so lanes take octets of keys and of values. Tiles of kM keys are shared by
// the group, in two places in turn; the loads of the next one are under way meanwhile.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "types.glsl"
#include "paged.glsl"

layout(constant_id = 14) const uint kSubgroups = 4;
layout(constant_id = 15) const uint kM = 16;  // the device's shape: rows of q, dimensions of a key; keys of a tile
layout(constant_id = 16) const uint kN = 8;   // keys of a matrix of scores; dimensions of one of outputs
layout(constant_id = 17) const uint kRowLanes = 4;
layout(constant_id = 18) const uint kRowFrags = 2;
layout(constant_id = 19) const bool kWindow = false;

const uint kRunRows = kSubgroup / kRowLanes;  // rows of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kM / kRowLanes;
const uint kSumRun = kN / kRowLanes;   // columns beside each other of a lane's row of sums
const uint kScores = kM / kN;          // matrices of scores of a tile; kScores * kSumRun = kLaneNumbers
const uint kTileKeys = kM, kLanes = kSubgroups * kSubgroup;
const uint kRows = kRowFrags * kM;  // of a subgroup
const uint kTileRows = kSubgroups * kRows;
#include "kv_tile_loads.glsl"
const uint kKeyOctets = kOctets / kRowLanes;  // of a lane, of each key that it has
const uint kValueOctets = kOctets / kN;       // of a lane, of each value and column of outputs that it has
const uint kPlaceOctets = 2 * kTileKeys * kOctets;
// Sums are scaled anew only when a maximum has risen by more than this (in powers of two): f16 holds weights of up to 16 as
// well as those of up to 1, but their products with scales need its range.
const float kRise = kScaled ? 0.0 : 4.0;
shared uvec4 places[2 * kPlaceOctets];                      // [place][keys, values][key][octet], f16
shared float place_scales[kScaled ? 2 * 2 * kTileKeys : 1];  // [place][of keys, of values][key]

#define MATRIX(TYPE, ROWS, COLUMNS, USE) coopmat<TYPE, gl_ScopeSubgroup, ROWS, COLUMNS, gl_MatrixUse##USE>

uint run, part;  // of the kRowLanes lanes that share a row, and that row
uint place;      // of the tile at work
uint hidden_zero = 0u;  // from the compiler
uint q[kRowFrags][kLaneRows][kKeyOctets * 4];  // pairs of f16: the compiler would keep numbers in f32
MATRIX(float, kM, kN, Accumulator) outputs[kRowFrags][kValueOctets * 8];
float largest[kRowFrags][kLaneRows], sum[kRowFrags][kLaneRows];  // sum: of this lane's keys
uint tokens[(kRowFrags * kLaneRows + 3) / 4];  // of this lane's rows, a byte each: an item has at most 64

// Where octets of keys and values lie: eight lanes that ask for theirs meet in no bank of shared memory.
uint key_place(uint key, uint octet) { return key * kOctets + (octet ^ (key & 1u) * 4u); }
uint value_place(uint key, uint octet) { return (kTileKeys + key) * kOctets + (octet ^ (key >> 1 & 3u) * 2u); }
// Key of a tile that a lane has as number j of a row of scores, and so of weights.
uint lane_key(uint j) { return j / kSumRun * kN + part * kSumRun + j % kSumRun; }

// A lane's share of the next keys or values (`which`: 0, 1), in turn, as registers have room for one of them.
uvec4 next[kPieces];
float next_factor[kPieces];
void fetch_next(uint which, uint kv_head, uint key_first, uint key_end) {
  [[unroll]] for (uint j = 0; j < kPieces; ++j) {
    uint octet = (j * kLanes + gl_LocalInvocationIndex) % kOctets;
    uint at = piece_key(j, key_first, key_end) & (block_tokens - 1u);
    uint vector = ((next_block[j] * 2u + which) * num_kv_heads + kv_head) * block_tokens + at;
    if (!has_piece(j)) continue;
    next[j] = fetch_octet(vector, octet);
    if (kBytes) next_factor[j] = kv_scale(vector, octet, which == 0u ? 1.0 : v_scale);
  }
}
void store_next(uint which, uint place) {
  [[unroll]] for (uint j = 0; j < kPieces; ++j) {
    uint i = j * kLanes + gl_LocalInvocationIndex, key = i / kOctets, octet = i % kOctets;
    if (!has_piece(j)) continue;
    places[place * kPlaceOctets + (which == 0u ? key_place(key, octet) : value_place(key, octet))] =
        octet_halves(next[j], next_factor[j]);
    if (kScaled && octet == 0u)
      place_scales[(place * 2u + which) * kTileKeys + key] = next_factor[j] * kUnit * (which == 0u ? 1.0 : kValueGain);
  }
}

void load_queries(Item item, uint kv_head, uint group_heads, uint row_first, uint num_rows) {
  float factor = kSoftCap ? scale : scale * kLog2e;
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f)
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      uint row = min(row_first + f * kM + r * kRunRows + run, num_rows - 1u);
      uint first = q_first(item.token_first + row / group_heads, kv_head * group_heads + row % group_heads);
      uint i = f * kLaneRows + r;
      tokens[i / 4] = (i % 4 == 0 ? 0u : tokens[i / 4]) | row / group_heads << 8 * (i % 4);
      [[unroll]] for (uint o = 0; o < kKeyOctets; ++o) {
        uint from = first / 4u + 2u * (o * kRowLanes + part);
        uvec4 octet = to_halves(Vec4s(qkv).v[from] * factor, Vec4s(qkv).v[from + 1u] * factor);
        [[unroll]] for (uint i = 0; i < 4; ++i) q[f][r][4 * o + i] = octet[i] | hidden_zero;
      }
    }
}

// Maxima have risen: what their rows have summed so far is scaled to the new ones.
void raise(uint f, float scores[kLaneRows][kLaneNumbers]) {
  MATRIX(float, kM, kN, Accumulator) factors;
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
    float now = largest[f][r];
    [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) now = max(now, scores[r][j]);
    [[unroll]] for (uint mask = 1; mask < kRowLanes; mask *= 2u) now = max(now, subgroupShuffleXor(now, mask));
    now = now > largest[f][r] + kRise ? now : largest[f][r];  // whatever other rows do
    float factor = exp2(largest[f][r] - now);
    largest[f][r] = now;
    sum[f][r] *= factor;
    [[unroll]] for (uint j = 0; j < kSumRun; ++j) factors[r * kSumRun + j] = factor;
  }
  [[unroll]] for (uint d = 0; d < kValueOctets * 8; ++d) outputs[f][d] *= factors;
}

MATRIX(float16_t, kM, kM, A) weights[kRowFrags];  // of the keys of a tile

// Weights of the tile from key_first on, whose keys are at `place`.
void weigh_tile(Item item, uint key_first, uint key_end) {
  MATRIX(float, kM, kN, Accumulator) products[kRowFrags][kScores];
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f)
    [[unroll]] for (uint t = 0; t < kScores; ++t) products[f][t] = MATRIX(float, kM, kN, Accumulator)(0.0);
  [[unroll]] for (uint o = 0; o < kKeyOctets; ++o) {
    uvec4 y[kScores][kLaneCols];
    [[unroll]] for (uint t = 0; t < kScores; ++t)
      [[unroll]] for (uint c = 0; c < kLaneCols; ++c)
        y[t][c] = places[place * kPlaceOctets + key_place(t * kN + c * kRunRows + run, o * kRowLanes + part)];
    [[unroll]] for (uint first = 0; first < 8; first += kLaneNumbers)
      [[unroll]] for (uint t = 0; t < kScores; ++t) {
        MATRIX(float16_t, kM, kN, B) b;
        [[unroll]] for (uint c = 0; c < kLaneCols; ++c)
          [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
            b[c * kLaneNumbers + j] = unpackFloat2x16(y[t][c][(first + j) / 2])[(first + j) % 2];
        [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
          MATRIX(float16_t, kM, kM, A) a;
          [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
            [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
              a[r * kLaneNumbers + j] = unpackFloat2x16(q[f][r][4 * o + (first + j) / 2])[(first + j) % 2];
          products[f][t] = coopMatMulAdd(a, b, products[f][t]);
        }
      }
  }

  [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
    float scores[kLaneRows][kLaneNumbers];
    bool rises = false;
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      uint i = f * kLaneRows + r, position = item.position_first + (tokens[i / 4] >> 8 * (i % 4) & 255u);
      // Of the tile's keys the row sees those from `low` on up to `high`.
      int high = int(min(position, key_end - 1u)) - int(key_first), low = int(position + 1u - window) - int(key_first);
      float most = -kInfinity;
      [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
        float score = products[f][j / kSumRun][r * kSumRun + j % kSumRun];
        if (kScaled) score *= place_scales[place * 2u * kTileKeys + lane_key(j)];
        if (kSoftCap) score = kLog2e * capped(score);
        bool hidden = int(lane_key(j)) > high || (kWindow && int(lane_key(j)) < low);
        scores[r][j] = hidden ? -kInfinity : score;
        most = max(most, scores[r][j]);
      }
      rises = rises || most > largest[f][r] + kRise;
    }
    if (subgroupAny(rises)) raise(f, scores);
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
      [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
        float weight = exp2(scores[r][j] - largest[f][r]);
        sum[f][r] += weight;
        if (kScaled) weight *= place_scales[(place * 2u + 1u) * kTileKeys + lane_key(j)];
        weights[f][r * kLaneNumbers + j] = float16_t(weight);
      }
  }
}

// Adds the values at `place`.
void add_tile() {
  [[unroll]] for (uint h = 0; h < kValueOctets; ++h) {
    uvec4 y[kLaneNumbers][kLaneCols];
    [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
      [[unroll]] for (uint c = 0; c < kLaneCols; ++c)
        y[j][c] = places[place * kPlaceOctets + value_place(lane_key(j), h * kN + c * kRunRows + run)];
    [[unroll]] for (uint i = 0; i < 8; ++i) {
      MATRIX(float16_t, kM, kN, B) b;
      [[unroll]] for (uint c = 0; c < kLaneCols; ++c)
        [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
          uint even = y[j - j % 2][c][i / 2], odd = y[min(j - j % 2 + 1, kLaneNumbers - 1)][c][i / 2];
          uint both = i % 2 == 0 ? even & 0xffffu | odd << 16 : even >> 16 | odd & 0xffff0000u;
          b[c * kLaneNumbers + j] = unpackFloat2x16(both)[j % 2];
        }
      [[unroll]] for (uint f = 0; f < kRowFrags; ++f)
        outputs[f][h * 8 + i] = coopMatMulAdd(weights[f], b, outputs[f][h * 8 + i]);
    }
  }
}

void store_octet(uint first, bool is_split, uint octet, vec4 low, vec4 high) {
  if (is_split) {
    Pairs(partials).p[first / 2u + 1u + octet * 4u] = floatBitsToUint(low.xy);
    Pairs(partials).p[first / 2u + 2u + octet * 4u] = floatBitsToUint(low.zw);
    Pairs(partials).p[first / 2u + 3u + octet * 4u] = floatBitsToUint(high.xy);
    Pairs(partials).p[first / 2u + 4u + octet * 4u] = floatBitsToUint(high.zw);
  } else if (kOutDType == kF32) {
    Vec4s(result).v[first / 4u + octet * 2u] = low;
    Vec4s(result).v[first / 4u + octet * 2u + 1u] = high;
  } else {
    Quads(result).q[first / 8u + octet] =
        kOutDType == kF16 ? to_halves(low, high)
                          : uvec4(pack16(low.xy, kOutDType), pack16(low.zw, kOutDType), pack16(high.xy, kOutDType),
                                  pack16(high.zw, kOutDType));
  }
}

// Elements of matrices are read under no condition: the driver would keep the matrices in memory.
void store_outputs(Item item, uint kv_head, uint group_heads, uint row_first, uint num_rows) {
  bool is_split = item.partial >= 0;  // whose values are not divided by its sum
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f)
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      [[unroll]] for (uint mask = 1; mask < kRowLanes; mask *= 2u) sum[f][r] += subgroupShuffleXor(sum[f][r], mask);
      float inverse = is_split ? 1.0 / kValueGain : sum[f][r] > 0.0 ? 1.0 / (sum[f][r] * kValueGain) : 0.0;
      uint row = row_first + f * kM + r * kRunRows + run, token = row / group_heads;
      uint head = kv_head * group_heads + row % group_heads, to = partial_first(item, token, head);
      uint first = ((item.token_first + token) * num_heads + head) * kHeadDim;
      if (row < num_rows && is_split && part == 0u) {
        partials.f[to] = largest[f][r] / kLog2e;
        partials.f[to + 1u] = sum[f][r];
      }
      [[unroll]] for (uint h = 0; h < kValueOctets; ++h)
        [[unroll]] for (uint j = 0; j < kSumRun; ++j) {
          uint octet = h * kN + part * kSumRun + j, at = r * kSumRun + j;
          float x[8];
          [[unroll]] for (uint i = 0; i < 8; ++i) x[i] = outputs[f][h * 8 + i][at] * inverse;
          vec4 low = vec4(x[0], x[1], x[2], x[3]), high = vec4(x[4], x[5], x[6], x[7]);
          if (row < num_rows) store_octet(is_split ? to : first, is_split, octet, low, high);
        }
    }
}

// The tile from key_first on. Beyond the last tile the last key again: loads under a condition would be waited for where
// ways meet.
void attend_tile(Item item, uint kv_head, uint key_first, uint key_end) {
  barrier();  // this tile is there, and the one before has been read
  store_next(0u, 1u - place);
  fetch_next(1u, kv_head, key_first + kTileKeys, key_end);
  fetch_blocks(item, findMSB(block_tokens), key_first + 2u * kTileKeys, key_end);
  weigh_tile(item, key_first, key_end);
  store_next(1u, 1u - place);
  fetch_next(0u, kv_head, key_first + 2u * kTileKeys, key_end);
  add_tile();
  place = 1u - place;
}

void attend(Item item, uint kv_head) {
  uint group_heads = num_heads / num_kv_heads, num_rows = item.num_tokens * group_heads;
  uint tile_first = gl_WorkGroupID.z * kTileRows, row_first = tile_first + gl_SubgroupID * kRows;
  // Keys beyond the last row's position count for nobody.
  uint position_high = item.position_first + (min(tile_first + kTileRows, num_rows) - 1u) / group_heads;
  uint key_end = tile_first < num_rows ? min(item.key_end, position_high + 1u) : 0u;
  load_queries(item, kv_head, group_heads, row_first, num_rows);
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
    [[unroll]] for (uint d = 0; d < kValueOctets * 8; ++d) outputs[f][d] = MATRIX(float, kM, kN, Accumulator)(0.0);
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      largest[f][r] = kNoScore;
      sum[f][r] = 0.0;
    }
  }
  uint key = item.key_begin;
  barrier();  // an earlier item's last tile has been read
  if (key < key_end) {
    uint block_shift = findMSB(block_tokens);
    fetch_blocks(item, block_shift, key, key_end);
    fetch_next(0u, kv_head, key, key_end);
    store_next(0u, place);
    fetch_next(1u, kv_head, key, key_end);
    store_next(1u, place);
    fetch_blocks(item, block_shift, key + kTileKeys, key_end);
    fetch_next(0u, kv_head, key + kTileKeys, key_end);
  }
  for (; key < key_end; key += kTileKeys) attend_tile(item, kv_head, key, key_end);
  store_outputs(item, kv_head, group_heads, row_first, num_rows);
}

void main() {
  run = gl_SubgroupInvocationID / kRowLanes;
  part = gl_SubgroupInvocationID % kRowLanes;
  place = 0u;
  uint count = num_items();
  hidden_zero = count >> 31;
  // The last items have the most keys: whoever comes last should have little to do.
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) attend(load_item(count - 1u - i), gl_WorkGroupID.y);
}
