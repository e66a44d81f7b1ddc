// Attention for prompt items on matrix units whose elements lie in lanes as fragment_probe has found: f16 factors, f32
// sums. Grid: x = KV head, y = tile of the item's rows, z walks the items. A subgroup owns kRowFrags * kM rows. Scores
// stay in registers: where a lane has them as sums is where it has weights as a factor (FlashAttention-2: Dao 2023,
// arXiv:2307.08691). Tiles of kTileKeys keys and values are shared by the group; the loads of the next one are under
// way meanwhile.
//
// Weights are exp2(score - limit). A row's limit is kHeadroom above its largest score when it was set, and is set anew,
// with what has been summed so far, when a weight reaches 2: rarely behind the first tiles. Whole tiles are added
// first, with weights up to what f16 holds, and mended then: a branch between scores and values costs a quarter of the
// speed.
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
#include "sync.glsl"

layout(constant_id = 15) const uint kSubgroups = 4;
layout(constant_id = 16) const uint kM = 16;  // the device's shape: rows of q, dimensions of a key
layout(constant_id = 17) const uint kN = 8;   // keys of a matrix of scores, dimensions of one of outputs
layout(constant_id = 18) const uint kRowLanes = 4;
layout(constant_id = 19) const uint kRowFrags = 2;
layout(constant_id = 20) const uint kTileKeys = 16;
layout(constant_id = 21) const uint kHeld = 8;  // matrices of a row of queries in registers; others: shared memory
layout(constant_id = 22) const uint kGroupHeads = 1;  // query heads of a KV head

const uint kRunRows = kSubgroup / kRowLanes;  // rows of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneNumbers = kM / kRowLanes;
const uint kSumRun = kN / kRowLanes;  // columns beside each other of a lane's row of sums
const uint kScores = kTileKeys / kN, kWeights = kTileKeys / kM;  // matrices of a tile
const uint kRows = kRowFrags * kM, kTileRows = kSubgroups * kRows, kLanes = kSubgroups * kSubgroup;
const uint kSteps = kHeadDim / kM, kLoose = kSteps - kHeld, kDimFrags = kHeadDim / kN;
const uint kOctets = kHeadDim / 8;
const uint kStride = kOctets + 1;  // of tiles, with 16 bytes of padding against bank conflicts
const uint kPieceKeys = kLanes / kOctets, kPieces = (kTileKeys + kPieceKeys - 1) / kPieceKeys;
// In powers of two. f16 then holds weights of 2^-16 of the largest as well as sums of thousands of them need.
const float kHeadroom = 6.0;
const float kWeightMost = 32768.0;  // of a whole tile's, until limits are set anew

// Keys, values and queries; at last outputs, kOutputDims at a time.
const uint kQueryFirst = 2 * kTileKeys * kStride;
const uint kOutputDims = 32, kOutputStride = kOutputDims / 4 + 1, kOutputQuads = kSubgroups * kM * kOutputStride;
const uint kTileQuads = kQueryFirst + kRowFrags * kLoose * kLanes;
shared uvec4 tiles[kTileQuads > kOutputQuads ? kTileQuads : kOutputQuads];
shared float row_factors[kTileRows];

#define MATRIX(TYPE, ROWS, COLUMNS, USE) coopmat<TYPE, gl_ScopeSubgroup, ROWS, COLUMNS, gl_MatrixUse##USE>

// Of which rows and keys a group makes what of an item.
struct Work {
  uint kv_head, slot, token_first, num_rows, row_first, position_first;  // row_first: of the subgroup
  uint key_begin, key_end;  // those that count
  uint begin;  // of the first tile
  uint whole_begin, whole_end;  // tiles of which every row sees every key; they come first
};

uint run, part;             // of the kRowLanes lanes that share a row, and that row
uint lane_key, lane_octet;  // of a piece of a tile that the lane carries
MATRIX(float16_t, kM, kM, A) q[kRowFrags][kSteps];
MATRIX(float, kM, kN, Accumulator) scores[kRowFrags][kScores];
MATRIX(float16_t, kM, kM, A) weights[kRowFrags][kWeights];
MATRIX(float, kM, kN, Accumulator) outputs[kRowFrags][kDimFrags];
float limit[kRowFrags][kLaneRows], sum[kRowFrags][kLaneRows];  // sum: of this lane's keys
// A lane's share of the next tile, on its way from memory.
uint next_block[kPieces];
uvec4 next_k[kPieces], next_v[kPieces];

uvec2 to_halves(vec4 v) { return uvec2(packFloat2x16(f16vec2(v.xy)), packFloat2x16(f16vec2(v.zw))); }
uvec4 to_halves(vec4 a, vec4 b) { return uvec4(to_halves(a), to_halves(b)); }
uvec4 octet_halves(uvec4 q) {
  if (kKvDType == kKvF16) return q;
  return to_halves(vec4(unpack16(q.x, kKvDType), unpack16(q.y, kKvDType)),
                   vec4(unpack16(q.z, kKvDType), unpack16(q.w, kKvDType)));
}

// Keys from key_end on are the last one again, so that every number is one that was written.
uint piece_key(Work work, uint j, uint key_first) {
  return min(key_first + j * kPieceKeys + lane_key, work.key_end - 1u);
}
void fetch_blocks(Work work, uint key_first) {
  uint block_shift = findMSB(block_tokens);  // of 16, 32 or 64
  [[unroll]] for (uint j = 0; j < kPieces; ++j)
    next_block[j] = tables.w[work.slot * blocks_row_max + (piece_key(work, j, key_first) >> block_shift)];
}
uint next_vector(Work work, uint j, uint which, uint key_first) {
  uint at = piece_key(work, j, key_first) & (block_tokens - 1u);
  return ((next_block[j] * 2u + which) * num_kv_heads + work.kv_head) * block_tokens + at;
}
void fetch_keys(Work work, uint key_first) {
  [[unroll]] for (uint j = 0; j < kPieces; ++j)
    next_k[j] = Quads(data).q[next_vector(work, j, 0u, key_first) * kOctets + lane_octet];
}
void fetch_values(Work work, uint key_first) {
  [[unroll]] for (uint j = 0; j < kPieces; ++j)
    next_v[j] = Quads(data).q[next_vector(work, j, 1u, key_first) * kOctets + lane_octet];
}
void store_tile() {
  barrier();  // the tile before has been read
  [[unroll]] for (uint j = 0; j < kPieces; ++j) {
    uint key = j * kPieceKeys + lane_key;
    if (kTileKeys % kPieceKeys != 0 && key >= kTileKeys) continue;
    tiles[key * kStride + lane_octet] = octet_halves(next_k[j]);
    tiles[(kTileKeys + key) * kStride + lane_octet] = octet_halves(next_v[j]);
  }
  barrier();
}

// Of a row of a factor a lane has those numbers that it has of a row of sums.
void load_queries(Work work) {
  float factor = kSoftCap ? scale : scale * kLog2e;
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
    uint from[kLaneRows];
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      uint row = min(work.row_first + f * kM + r * kRunRows + run, work.num_rows - 1u);
      uint head = work.kv_head * kGroupHeads + row % kGroupHeads;
      from[r] = q_first(work.token_first + row / kGroupHeads, head) + part * kSumRun;
    }
    [[unroll]] for (uint s = 0; s < kSteps; ++s) {
      float numbers[kLaneRows * kLaneNumbers];
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
        [[unroll]] for (uint j = 0; j < kLaneNumbers; j += kSumRun) {
          uint at = from[r] + s * kM + j / kSumRun * kN;
          uvec2 both = kSumRun == 2 ? Pairs(qkv).p[at / 2u] : uvec2(floatBitsToUint(qkv.f[at]), 0u);
          [[unroll]] for (uint i = 0; i < kSumRun; ++i)
            numbers[r * kLaneNumbers + j + i] = uintBitsToFloat(both[i]) * factor;
        }
      if (s < kHeld)
        [[unroll]] for (uint j = 0; j < kLaneRows * kLaneNumbers; ++j) q[f][s][j] = float16_t(numbers[j]);
      else
        tiles[kQueryFirst + (f * kLoose + s - kHeld) * kLanes + gl_LocalInvocationIndex] =
            to_halves(vec4(numbers[0], numbers[1], numbers[2], numbers[3]),
                      vec4(numbers[4], numbers[5], numbers[6], numbers[7]));
    }
  }
}

// Scores of the tile at work less their row's limit.
void score_tile() {
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f)
    [[unroll]] for (uint t = 0; t < kScores; ++t)
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
        [[unroll]] for (uint j = 0; j < kSumRun; ++j)
          scores[f][t][r * kSumRun + j] = kSoftCap ? 0.0 : -limit[f][r];
  [[unroll]] for (uint s = 0; s < kSteps; ++s) {
    MATRIX(float16_t, kM, kM, A) a[kRowFrags];
    [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
      if (s < kHeld) {
        a[f] = q[f][s];
      } else {
        uvec4 y = tiles[kQueryFirst + (f * kLoose + s - kHeld) * kLanes + gl_LocalInvocationIndex];
        [[unroll]] for (uint j = 0; j < kLaneRows * kLaneNumbers; ++j) a[f][j] = unpackFloat2x16(y[j / 2])[j % 2];
      }
    }
    [[unroll]] for (uint t = 0; t < kScores; ++t) {
      MATRIX(float16_t, kM, kN, B) b;
      coopMatLoad(b, tiles, t * kN * kStride + s * (kM / 8u), kStride, gl_CooperativeMatrixLayoutColumnMajor);
      [[unroll]] for (uint f = 0; f < kRowFrags; ++f) scores[f][t] = coopMatMulAdd(a[f], b, scores[f][t]);
    }
  }
  if (!kSoftCap) return;
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f)
    [[unroll]] for (uint t = 0; t < kScores; ++t)
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
        [[unroll]] for (uint j = 0; j < kSumRun; ++j)
          scores[f][t][r * kSumRun + j] = kLog2e * capped(scores[f][t][r * kSumRun + j]) - limit[f][r];
}

uint row_position(Work work, uint f, uint r) {
  return work.position_first + min(work.row_first + f * kM + r * kRunRows + run, work.num_rows - 1u) / kGroupHeads;
}
// The lane's key number j of matrix t of the tile from key_first on.
uint tile_key(uint key_first, uint t, uint j) { return key_first + t * kN + part * kSumRun + j; }
bool is_hidden(Work work, uint key, uint position) {
  return key > position || key >= work.key_end || key < work.key_begin || (window > 0u && key + window <= position);
}

// Sets limits of rows that have none or a weight of 2, and scales what they have summed and the scores of the tile.
void set_limits(uint f, out float factors[kLaneRows]) {
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
    float most = -kInfinity, total = sum[f][r];
    [[unroll]] for (uint t = 0; t < kScores; ++t)
      [[unroll]] for (uint j = 0; j < kSumRun; ++j) most = max(most, scores[f][t][r * kSumRun + j]);
    [[unroll]] for (uint mask = 1; mask < kRowLanes; mask *= 2u) {
      most = max(most, subgroupShuffleXor(most, mask));
      total += subgroupShuffleXor(total, mask);
    }
    float rise = most > -kInfinity && (total == 0.0 || most >= 1.0) ? most + kHeadroom : 0.0;
    factors[r] = total == 0.0 ? 1.0 : exp2(-rise);
    limit[f][r] += rise;
    sum[f][r] *= factors[r];
    [[unroll]] for (uint t = 0; t < kScores; ++t)
      [[unroll]] for (uint j = 0; j < kSumRun; ++j) scores[f][t][r * kSumRun + j] -= rise;
  }
  [[unroll]] for (uint d = 0; d < kDimFrags; ++d)
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
      [[unroll]] for (uint j = 0; j < kSumRun; ++j) outputs[f][d][r * kSumRun + j] *= factors[r];
}

// The matrix of weights and the place in it of the lane's number j of matrix t of scores.
#define WEIGHT(F, T, R, J) weights[F][(T) * kN / kM][(R) * kLaneNumbers + (T) % (kM / kN) * kSumRun + (J)]

// Weights of a tile of which rows may not see all keys, or the first.
void weigh_edge(Work work, uint key) {
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
    bool sets = false;
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      uint position = row_position(work, f, r);
      sets = sets || sum[f][r] == 0.0;
      [[unroll]] for (uint t = 0; t < kScores; ++t)
        [[unroll]] for (uint j = 0; j < kSumRun; ++j) {
          if (is_hidden(work, tile_key(key, t, j), position)) scores[f][t][r * kSumRun + j] = -kInfinity;
          sets = sets || scores[f][t][r * kSumRun + j] >= 1.0;
        }
    }
    float factors[kLaneRows];
    if (subgroupAny(sets)) set_limits(f, factors);
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
      [[unroll]] for (uint t = 0; t < kScores; ++t)
        [[unroll]] for (uint j = 0; j < kSumRun; ++j) {
          float weight = exp2(scores[f][t][r * kSumRun + j]);
          sum[f][r] += weight;
          WEIGHT(f, t, r, j) = float16_t(weight);
        }
  }
}

// Of a tile of which every row sees every key. Whether limits are to be set anew.
bool weigh_whole() {
  uint bits = 0u;
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f)
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
      [[unroll]] for (uint t = 0; t < kScores; ++t)
        [[unroll]] for (uint j = 0; j < kSumRun; ++j) {
          float weight = min(exp2(scores[f][t][r * kSumRun + j]), kWeightMost);
          sum[f][r] += weight;
          bits |= floatBitsToUint(weight);
          WEIGHT(f, t, r, j) = float16_t(weight);
        }
  return (bits & 0x40000000u) != 0u;  // what numbers from 2 on have
}
// What weigh_whole cut off a tile that has been added.
void weigh_rest() {
  score_tile();
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
    float factors[kLaneRows];
    set_limits(f, factors);
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
      [[unroll]] for (uint t = 0; t < kScores; ++t)
        [[unroll]] for (uint j = 0; j < kSumRun; ++j) {
          float weight = exp2(scores[f][t][r * kSumRun + j]) - kWeightMost * factors[r];
          weight = weight <= 0.0 ? 0.0 : weight;  // NaN stays
          sum[f][r] += weight;
          WEIGHT(f, t, r, j) = float16_t(weight);
        }
  }
}

void add_values() {
  [[unroll]] for (uint k = 0; k < kWeights; ++k)
    [[unroll]] for (uint d = 0; d < kDimFrags; ++d) {
      MATRIX(float16_t, kM, kN, B) b;
      coopMatLoad(b, tiles, (kTileKeys + k * kM) * kStride + d * (kN / 8u), kStride,
                  gl_CooperativeMatrixLayoutRowMajor);
      [[unroll]] for (uint f = 0; f < kRowFrags; ++f) outputs[f][d] = coopMatMulAdd(weights[f][k], b, outputs[f][d]);
    }
}

// The tile from `key` on, which has been fetched. Fetches the one behind it.
void attend_tile(Work work, uint key, bool is_edge) {
  store_tile();
  fetch_keys(work, key + kTileKeys);
  if (work.row_first >= work.num_rows) {  // the subgroup has no rows: it only carries
    fetch_values(work, key + kTileKeys);
    fetch_blocks(work, key + 2u * kTileKeys);
    return;
  }
  score_tile();
  bool sets = false;
  if (is_edge)
    weigh_edge(work, key);
  else
    sets = weigh_whole();
  fetch_values(work, key + kTileKeys);
  fetch_blocks(work, key + 2u * kTileKeys);
  add_values();
  if (!is_edge && subgroupAny(sets)) {
    weigh_rest();
    add_values();
  }
}
void fetch_tile(Work work, uint key) {
  fetch_blocks(work, key);
  fetch_keys(work, key);
  fetch_values(work, key);
}

// All tiles, the first of which has been fetched.
void add_tiles(Work work) {
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
    [[unroll]] for (uint d = 0; d < kDimFrags; ++d) outputs[f][d] = MATRIX(float, kM, kN, Accumulator)(0.0);
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) limit[f][r] = sum[f][r] = 0.0;
  }
  // The first whole tile and the other ones, those behind them, those before them.
  bool has_whole = work.whole_begin < work.whole_end;
  uint key = work.whole_begin, end = has_whole ? key + kTileKeys : key;
  for (uint side = 0; side < 3u; ++side) {
    for (; key < end; key += kTileKeys) attend_tile(work, key, true);
    if (side == 0u) {
      for (; key < work.whole_end; key += kTileKeys) attend_tile(work, key, false);
      end = work.key_end;
    } else {
      if (side == 2u || work.begin >= work.whole_begin) break;
      key = work.begin;
      end = work.whole_begin;
      fetch_tile(work, key);
      fetch_blocks(work, key + kTileKeys);
    }
  }
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f)
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
      [[unroll]] for (uint mask = 1; mask < kRowLanes; mask *= 2u) sum[f][r] += subgroupShuffleXor(sum[f][r], mask);
}

// Outputs of a matrix of rows after the other, kOutputDims at a time, through shared memory, so that lanes write what
// lies beside each other. Those of an item that is split are not divided by their sum.
void store_outputs(Item item, Work work) {
  bool is_split = item.partial >= 0;
  uint own_outputs = gl_SubgroupID * kM * kOutputStride, own_rows = gl_SubgroupID * kRows;
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      uint frag_row = f * kM + r * kRunRows + run, row = work.row_first + frag_row;
      if (part != 0u) continue;
      uint head = work.kv_head * kGroupHeads + row % kGroupHeads;
      row_factors[own_rows + frag_row] = is_split ? 1.0 : inverse_sum(sum[f][r], limit[f][r] / kLog2e, head);
      if (!is_split || row >= work.num_rows) continue;
      uint to = partial_first(item, row / kGroupHeads, head);
      partials.f[to] = (sum[f][r] > 0.0 ? limit[f][r] : kNoScore) / kLog2e;
      partials.f[to + 1u] = sum[f][r];
    }
  }
  [[unroll]] for (uint f = 0; f < kRowFrags; ++f) {
    [[unroll]] for (uint o = 0; o < kHeadDim / kOutputDims; ++o) {
      [[unroll]] for (uint d = 0; d < kOutputDims / kN; ++d)
        coopMatStore(outputs[f][o * (kOutputDims / kN) + d], tiles, own_outputs + d * (kN / 4u), kOutputStride,
                     gl_CooperativeMatrixLayoutRowMajor);
      sync_subgroup();
      [[dont_unroll]] for (uint j = 0; j < kM * kOutputDims / 4 / kSubgroup; ++j) {
        uint i = j * kSubgroup + gl_SubgroupInvocationID;
        uint frag_row = i / (kOutputDims / 4), quad = i % (kOutputDims / 4);
        uint row = work.row_first + f * kM + frag_row, token = row / kGroupHeads, dim = o * kOutputDims + 4u * quad;
        uint head = work.kv_head * kGroupHeads + row % kGroupHeads;
        vec4 value = uintBitsToFloat(tiles[own_outputs + frag_row * kOutputStride + quad]) *
                     row_factors[own_rows + f * kM + frag_row];
        if (row >= work.num_rows) continue;
        if (is_split) {
          uint to = partial_first(item, token, head) / 2u + 1u + dim / 2u;
          Pairs(partials).p[to] = floatBitsToUint(value.xy);
          Pairs(partials).p[to + 1u] = floatBitsToUint(value.zw);
        } else {
          uint to = (((item.token_first + token) * num_heads + head) * kHeadDim + dim) / 4u;
          if (kOutDType == kF32)
            Vec4s(result).v[to] = value;
          else
            Pairs(result).p[to] = uvec2(pack16(value.xy, kOutDType), pack16(value.zw, kOutDType));
        }
      }
      sync_subgroup();
    }
  }
}

void attend(Item item, uint kv_head) {
  uint num_rows = item.num_tokens * kGroupHeads, tile_first = gl_WorkGroupID.y * kTileRows;
  if (tile_first >= num_rows) return;
  uint low = item.position_first + tile_first / kGroupHeads;
  uint high = item.position_first + (min(tile_first + kTileRows, num_rows) - 1u) / kGroupHeads;
  Work work = Work(kv_head, item.slot, item.token_first, num_rows, tile_first + gl_SubgroupID * kRows,
                   item.position_first, item.key_begin, min(item.key_end, high + 1u), 0u, 0u, 0u);
  work.begin = work.key_begin / kTileKeys * kTileKeys;
  uint all_see = window > 0u && high + 1u > window ? high + 1u - window : 0u;
  work.whole_begin = (max(work.key_begin, all_see) + kTileKeys - 1u) / kTileKeys * kTileKeys;
  work.whole_end = min(work.key_end, low + 1u) / kTileKeys * kTileKeys;
  if (work.whole_begin >= work.whole_end) work.whole_begin = work.whole_end = work.begin;
  uint first = work.whole_begin < work.whole_end ? work.whole_begin : work.begin;

  fetch_blocks(work, first);
  barrier();  // what an earlier item left has been read
  load_queries(work);
  fetch_keys(work, first);
  fetch_values(work, first);
  fetch_blocks(work, first + kTileKeys);
  add_tiles(work);
  barrier();  // the last tile has been read
  store_outputs(item, work);
}

void main() {
  run = gl_SubgroupInvocationID / kRowLanes;
  part = gl_SubgroupInvocationID % kRowLanes;
  lane_key = gl_LocalInvocationIndex / kOctets;
  lane_octet = gl_LocalInvocationIndex % kOctets;
  uint count = num_items();
  // The last items have the most keys: whoever comes last should have little to do.
  for (uint i = gl_WorkGroupID.z; i < count; i += gl_NumWorkGroups.z)
    attend(load_item(count - 1u - i), gl_WorkGroupID.x);
}
