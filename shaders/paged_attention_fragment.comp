// Attention for decode items on matrix units, which leave lanes little but to turn 8-bit numbers into f16: one workgroup an
// item and a KV head (x walks the items, y = KV head, z = kRows of the item's rows), whose subgroups take tiles of kM keys
// in turn. Scores are keys * queries^T and outputs are values^T * weights^T, so rows are columns of both. Factors never see shared memory: lanes load the elements that are theirs (as in matmul_fragment, whose
// constants these are), a tile ahead. Which numbers of a head a product multiplies is free, so a lane takes whole words.
// Scores go through shared memory to the lanes that weigh them, and what subgroups have is merged there at the end.
// Queries and weights are rounded to f16; sums and softmax in f32.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "types.glsl"
#include "arrival.glsl"
#include "paged.glsl"

layout(constant_id = 15) const uint kRows = 4;       // at most kN
layout(constant_id = 16) const uint kSubgroups = 4;  // of the workgroup
layout(constant_id = 17) const uint kM = 16;         // the device's shape: keys of a tile, numbers of a value
layout(constant_id = 18) const uint kN = 8;          // rows of an item
layout(constant_id = 19) const uint kRowLanes = 4;   // its third side is kM too
layout(constant_id = 20) const bool kHasRuns = false;  // items may have several tokens
const uint kMergeBatch = 8;

#include "paged_decode.glsl"
#include "sync.glsl"

const uint kRunRows = kSubgroup / kRowLanes;  // lines of a matrix before a lane has its next
const uint kLaneRows = kM / kRunRows, kLaneCols = kN / kRunRows, kLaneNumbers = kM / kRowLanes;
const uint kWordNumbers = kBytes ? 4 : 2, kVectorWords = kHeadDim / kWordNumbers;
// A lane's words of a key and of a value come in pieces of 2 or 4; lanes beside each other have pieces beside each other.
const uint kKeyWords = kVectorWords / kRowLanes, kValueWords = kVectorWords / kRunRows;
const uint kKeyPiece = kKeyWords < 4 ? kKeyWords : 4, kValuePiece = kValueWords < 4 ? kValueWords : 4;
const uint kProducts = kHeadDim / kM;  // of a tile: for scores, for outputs
const uint kStride = kSubgroups * kM;  // keys of a turn of the whole group
const uint kColumnQuads = kM / 4 + 1;  // of scores in shared memory: columns meet in few banks
const uint kSubgroupQuads = kHeadDim * kN / 4;
const float kUnit = kF8 ? 256.0 : 1.0;  // of numbers as `bytes` gives them
// Weights carry the values' scales and this, so that f16 holds them as well as it would hold the values.
const float kGain = kF8 ? 256.0 : kBytes ? 128.0 : 1.0;
// Sums are scaled anew only when a maximum has risen by more than this (in powers of two).
const float kRise = 4.0;
shared float shared_max[kSubgroups * kN], shared_sum[kSubgroups * kN];
shared vec4 shared_quads[kSubgroups * kSubgroupQuads];  // of a subgroup: a tile's scores, in the end its values

// Of a tile at work and of one on its way from memory, in turn (a copy from one place would be waited for at once): a
// lane's words, and the scales of the keys and values that it weighs.
uint k_words[2][kLaneRows * kKeyWords], v_words[2][kLaneNumbers * kValueWords];
float k_scales[2][kLaneNumbers], v_scales[2][kLaneNumbers];
uint next_block;        // of the tile behind them
uint hidden_zero = 0u;  // from the compiler

struct Keys {
  uint begin, end;  // that any token sees
  uint table, block_shift, kv_head, run, part;
};

void fetch_block(Keys keys, uint base) {
  next_block = tables.w[keys.table + (min(base, keys.end - 1u) >> keys.block_shift)];
}
// Of the first key of the tile from `base` on.
uint tile_vector(Keys keys, uint base, uint which) {
  return ((next_block * 2u + which) * num_kv_heads + keys.kv_head) * block_tokens + (base & (block_tokens - 1u));
}
uvec4 load_piece(uint vector, uint piece, uint piece_words) {
  uint at = vector * (kVectorWords / piece_words) + piece;
  if (piece_words == 4) return Quads(data).q[at];
  return uvec4(Pairs(data).p[at], 0u, 0u);
}
// Keys that are not seen get no weight, so they may be any numbers; floats need not be numbers, so there another key takes
// their place.
uint seen_key(Keys keys, uint base, uint i) { return kBytes ? i : clamp(base + i, keys.begin, keys.end - 1u) - base; }
void fetch_tile(Keys keys, uint base, uint slot) {
  uint k_vector = tile_vector(keys, base, 0u), v_vector = tile_vector(keys, base, 1u);
  uint first = keys.part * kLaneNumbers;
  [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
    [[unroll]] for (uint w = 0; w < kKeyWords; w += kKeyPiece) {
      uvec4 piece = load_piece(k_vector + seen_key(keys, base, r * kRunRows + keys.run), w / kKeyPiece * kRowLanes + keys.part, kKeyPiece);
      [[unroll]] for (uint i = 0; i < kKeyPiece; ++i) k_words[slot][r * kKeyWords + w + i] = piece[i];
    }
  [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j)
    [[unroll]] for (uint w = 0; w < kValueWords; w += kValuePiece) {
      uvec4 piece = load_piece(v_vector + seen_key(keys, base, first + j), w / kValuePiece * kRunRows + keys.run, kValuePiece);
      [[unroll]] for (uint i = 0; i < kValuePiece; ++i) v_words[slot][j * kValueWords + w + i] = piece[i];
    }
  if (!kVectorScales) return;
  vec4 k_quad, v_quad;
  if (kLaneNumbers == 4) {
    k_quad = Vec4s(scales).v[(k_vector + first) / 4u];
    v_quad = Vec4s(scales).v[(v_vector + first) / 4u];
  }
  [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
    k_scales[slot][j] = kLaneNumbers == 4 ? k_quad[j] : scales.f[k_vector + first + j];
    v_scales[slot][j] = kLaneNumbers == 4 ? v_quad[j] : scales.f[v_vector + first + j];
  }
}

// Bytes 1 and 3 of a word; e4m3 in units of 256, see f8_units. An and with one constant and an xor with another are one
// instruction only where one of them is in a register.
f16vec2 odd_bytes(uint word) {
  if (kF8) return unpackFloat2x16(word & 0x80008000u | word >> 1 & 0x3f803f80u);
  return unpackFloat2x16(word >> 8 & 0x00ff00ffu ^ (0x64806480u | hidden_zero)) - float16_t(1152.0);
}
f16vec2 even_bytes(uint word) {
  if (kF8) return odd_bytes(word << 8);
  return unpackFloat2x16(word & 0x00ff00ffu ^ (0x64806480u | hidden_zero)) - float16_t(1152.0);
}
f16vec2 bytes(uint word, uint odd) { return odd == 0 ? even_bytes(word) : odd_bytes(word); }
// Numbers i and i + 1 of a key's, in the order of load_queries.
f16vec2 key_pair(uint slot, uint first_word, uint i) {
  if (!kBytes) return unpackFloat2x16(k_words[slot][first_word + i / 2]);
  return bytes(k_words[slot][first_word + i / 4], i / 2 % 2);
}
// Number i of two values' words.
f16vec2 value_pair(uint a, uint b, uint i) {
  uint both = i < kWordNumbers / 2 ? a & 0xffffu | b << 16 : a >> 16 | b & 0xffff0000u;
  return kBytes ? bytes(both, i % 2) : unpackFloat2x16(both);
}

// Of each column the numbers that meet a key's, in the order of `bytes`. As words: the compiler would keep them in f32.
uint q[kLaneCols][kKeyWords * kWordNumbers / 2];

uvec2 seen_by_column[kLaneCols];  // keys

void load_queries(Keys keys, Item item, Rows rows) {
  const uint kPieceNumbers = kKeyPiece * kWordNumbers;
  float factor = kSoftCap ? scale : scale * kLog2e;
  [[unroll]] for (uint c = 0; c < kLaneCols; ++c) {
    Row row = row_of(rows, min(rows.first + c * kRunRows + keys.run, rows.end - 1u));
    uint from = q_first(item.token_first + row.token, row.head);
    seen_by_column[c] = kHasRuns ? seen_by(item, row.token) : uvec2(keys.begin, keys.end);
    [[unroll]] for (uint i = 0; i < kKeyWords * kWordNumbers; i += 4) {
      uint at = (i / kPieceNumbers * kRowLanes + keys.part) * kPieceNumbers + i % kPieceNumbers;
      vec4 x = Vec4s(qkv).v[(from + at) / 4u] * factor;
      q[c][i / 2] = packFloat2x16(f16vec2(kBytes ? x.xz : x.xy)) | hidden_zero;
      q[c][i / 2 + 1] = packFloat2x16(f16vec2(kBytes ? x.yw : x.zw)) | hidden_zero;
    }
  }
}

#define MATRIX(TYPE, ROWS, COLUMNS, USE) coopmat<TYPE, gl_ScopeSubgroup, ROWS, COLUMNS, gl_MatrixUse##USE>

MATRIX(float, kM, kN, Accumulator) outputs[kProducts];
float scores[kLaneCols * kLaneNumbers];
float largest[kLaneCols], sum[kLaneCols];  // sum: of this lane's keys

// Number m of column n of a matrix of this subgroup's.
uint shared_place(uint n, uint m) { return gl_SubgroupID * kSubgroupQuads * 4u + n * (kColumnQuads * 4) + m; }

bool is_seen(uint c, uint key) { return key >= seen_by_column[c].x && key < seen_by_column[c].y; }

// A maximum has risen: what is summed so far is scaled to the new one. With runs only columns whose own maximum has:
// theirs must not depend on which others there are.
void raise(Keys keys) {
  sync_subgroup();
  [[unroll]] for (uint c = 0; c < kLaneCols; ++c) {
    float now = largest[c];
    [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) now = max(now, scores[c * kLaneNumbers + j]);
    [[unroll]] for (uint mask = 1; mask < kRowLanes; mask *= 2u) now = max(now, subgroupShuffleXor(now, mask));
    if (kHasRuns && now <= largest[c] + kRise) now = largest[c];
    float factor = exp2(largest[c] - now);
    largest[c] = now;
    sum[c] *= factor;
    [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
      uint to = shared_place(c * kRunRows + keys.run, keys.part * kLaneNumbers + j);
      shared_quads[to / 4u][to % 4u] = factor;
    }
  }
  sync_subgroup();
  MATRIX(float, kM, kN, Accumulator) factors;
  coopMatLoad(factors, shared_quads, gl_SubgroupID * kSubgroupQuads, kColumnQuads,
              gl_CooperativeMatrixLayoutColumnMajor);
  [[unroll]] for (uint p = 0; p < kProducts; ++p)
    [[unroll]] for (uint i = 0; i < factors.length(); ++i) outputs[p][i] *= factors[i];
}

// The tile in `slot`; `next`: the one to ask for, once this one has been waited for.
void attend_tile(Keys keys, uint base, uint next, uint slot) {
  MATRIX(float, kM, kN, Accumulator) products[2];  // each waits for the one before
  products[0] = products[1] = MATRIX(float, kM, kN, Accumulator)(0.0);
  [[unroll]] for (uint p = 0; p < kProducts; ++p) {
    MATRIX(float16_t, kM, kM, A) a;
    MATRIX(float16_t, kM, kN, B) b;
    [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
      uint i = p * kLaneNumbers + j;
      [[unroll]] for (uint r = 0; r < kLaneRows; ++r)
        a[r * kLaneNumbers + j] = key_pair(slot, r * kKeyWords, i)[i % 2];
      [[unroll]] for (uint c = 0; c < kLaneCols; ++c)
        b[c * kLaneNumbers + j] = unpackFloat2x16(q[c][i / 2])[i % 2];
    }
    products[p % 2] = coopMatMulAdd(a, b, products[p % 2]);
    if (p > 0) continue;
    fetch_tile(keys, next, 1u - slot);
    fetch_block(keys, next + kStride);
  }
  sync_subgroup();  // what was there has been read
  coopMatStore(products[0] + products[1], shared_quads, gl_SubgroupID * kSubgroupQuads, kColumnQuads,
               gl_CooperativeMatrixLayoutColumnMajor);
  sync_subgroup();

  bool rises = false;
  [[unroll]] for (uint c = 0; c < kLaneCols; ++c) {
    uint from = shared_place(c * kRunRows + keys.run, keys.part * kLaneNumbers);
    vec4 quad = shared_quads[from / 4u];
    [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
      uint key = base + keys.part * kLaneNumbers + j, i = c * kLaneNumbers + j;
      float score = (kLaneNumbers == 4 ? quad[j] : quad[from % 4u + j]) * kUnit;
      if (kVectorScales) score *= k_scales[slot][j];
      if (kSoftCap) score = kLog2e * capped(score);
      scores[i] = is_seen(c, key) ? score : -kInfinity;
      rises = rises || scores[i] > largest[c] + kRise;
    }
  }
  if (subgroupAny(rises)) raise(keys);
  MATRIX(float16_t, kM, kN, B) weights;
  [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
    uint key = base + keys.part * kLaneNumbers + j;
    float scaled = kGain * (kVectorScales ? v_scales[slot][j] : 1.0);
    [[unroll]] for (uint c = 0; c < kLaneCols; ++c) {
      float factor = kVectorScales && !is_seen(c, key) ? 0.0 : scaled;
      float weight = exp2(scores[c * kLaneNumbers + j] - largest[c]);
      sum[c] += weight;
      weights[c * kLaneNumbers + j] = float16_t(weight * factor);
    }
  }
  [[unroll]] for (uint p = 0; p < kProducts; ++p) {
    MATRIX(float16_t, kM, kM, A) a;
    [[unroll]] for (uint r = 0; r < kLaneRows; ++r) {
      uint i = p * kLaneRows + r, w = i / kWordNumbers;
      [[unroll]] for (uint j = 0; j < kLaneNumbers; ++j) {
        uint even = (j - j % 2) * kValueWords + w, odd = even + (kLaneNumbers > 1 ? kValueWords : 0u);
        a[r * kLaneNumbers + j] = value_pair(v_words[slot][even], v_words[slot][odd], i % kWordNumbers)[j % 2];
      }
    }
    outputs[p] = coopMatMulAdd(a, weights, outputs[p]);
  }
}

void attend(Item item, Rows rows) {
  uint lane = gl_SubgroupInvocationID;
  uvec2 seen = seen_by_any(item);
  Keys keys = Keys(seen.x, seen.y, item.slot * blocks_row_max, findLSB(block_tokens), rows.kv_head, lane / kRowLanes,
                   lane % kRowLanes);
  // With runs from where it begins for a token by itself, too.
  const uint kMultiple = kHasRuns && kM < 16u ? 16u : kM;
  uint base = keys.begin / kMultiple * kMultiple + gl_SubgroupID * kM;
  [[unroll]] for (uint p = 0; p < kProducts; ++p) outputs[p] = MATRIX(float, kM, kN, Accumulator)(0.0);
  [[unroll]] for (uint c = 0; c < kLaneCols; ++c) {
    largest[c] = kNoScore;
    sum[c] = 0.0;
  }
  if (keys.begin < keys.end && base < keys.end) {
    fetch_block(keys, base);
    load_queries(keys, item, rows);
    fetch_tile(keys, base, 0u);
    fetch_block(keys, base + kStride);
    // Beyond the last tile there is none to load: that one again.
    uint last = (keys.end - 1u) / kM * kM;
    for (; base < keys.end; base += 2u * kStride) {
      attend_tile(keys, base, min(base + kStride, last), 0u);
      if (base + kStride >= keys.end) break;
      attend_tile(keys, base + kStride, min(base + 2u * kStride, last), 1u);
    }
  }
  [[unroll]] for (uint c = 0; c < kLaneCols; ++c) {
    [[unroll]] for (uint mask = 1; mask < kRowLanes; mask *= 2u) sum[c] += subgroupShuffleXor(sum[c], mask);
    uint to = gl_SubgroupID * kN + c * kRunRows + keys.run;
    if (keys.part == 0u) {
      shared_max[to] = largest[c];
      shared_sum[to] = sum[c];
    }
  }
  sync_subgroup();
  [[unroll]] for (uint p = 0; p < kProducts; ++p)
    coopMatStore(outputs[p], shared_quads, gl_SubgroupID * kSubgroupQuads + p * (kM * kN / 4), kM / 4,
                 gl_CooperativeMatrixLayoutColumnMajor);
}

// Where a subgroup's number `dim` of a head lies among its values.
uint place_of(uint h, uint dim) {
  const uint kPieceNumbers = kValuePiece * kWordNumbers;
  uint piece = dim / kPieceNumbers, i = piece / kRunRows * kPieceNumbers + dim % kPieceNumbers;
  return (i / kLaneRows * kN + h) * kM + i % kLaneRows * kRunRows + piece % kRunRows;
}

void finish(Item item, Merge merge, Rows rows) {
  for (uint i = gl_LocalInvocationID.x; i < kRows * kHeadQuads; i += gl_WorkGroupSize.x) {
    uint h = i / kHeadQuads, quad = i % kHeadQuads;
    if (rows.first + h >= rows.end) continue;
    float most = kNoScore, all = 0.0;
    vec4 value = vec4(0.0);
    [[unroll]] for (uint g = 0; g < kSubgroups; ++g) most = max(most, shared_max[g * kN + h]);
    [[unroll]] for (uint g = 0; g < kSubgroups; ++g) {
      float factor = exp2(shared_max[g * kN + h] - most);
      all += shared_sum[g * kN + h] * factor;
      [[unroll]] for (uint c = 0; c < 4; ++c) {
        uint from = place_of(h, quad * 4u + c);
        value[c] += shared_quads[g * kSubgroupQuads + from / 4u][from % 4u] * factor;
      }
    }
    value *= kUnit / kGain * (kVectorScales ? 1.0 : v_scale);
    store_result(item, merge, row_of(rows, rows.first + h), quad, most, all, value);
  }
}

void run(Item item, Merge merge, Rows rows) {
  attend(item, rows);
  barrier();
  finish(item, merge, rows);
  if (item.partial >= 0) merge_when_last(merge, rows);
}

void main() {
  uint group_heads = num_heads / num_kv_heads, kv_head = gl_WorkGroupID.y, first = gl_WorkGroupID.z * kRows;
  uint count = num_items();
  hidden_zero = count >> 31;
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) {
    Item item = load_item(i);
    Merge merge;
    if (item.partial >= 0) merge = load_merge(item.partial_stride);  // long before it is needed
    uint end = num_rows(item, group_heads);
    if (i != gl_WorkGroupID.x) barrier();  // the item before has been read
    if (!kHasRuns) {
      run(item, merge, Rows(kv_head, group_heads, first, min(first + kRows, end)));
      continue;
    }
    for (uint row = first; row < end; row += gl_NumWorkGroups.z * kRows) {
      if (row != first) barrier();  // so have the rows before
      run(item, merge, Rows(kv_head, group_heads, row, min(row + kRows, end)));
    }
  }
}
