// What state_walk.comp does, for records that have a ring (core/ops/recurrent_ops.h): the state S is that behind the
// last multiple of kRingTokens, and no token changes it. With entries i (key_i, value_i) since, of which left_i is left, and
// `whole` of S:
//
//   d = value, or beta (value - whole S^T key - sum of left_i (key_i . key) value_i)
//   out = whole S^T query + sum of left_i (key_i . query) value_i, the token's own entry (key, d) included
//
// At a multiple of kRingTokens S becomes whole S + sum of left_i key_i value_i^T.
//
// A workgroup has kLanes vec4s of values of one head, x of the grid, and all their keys: lane `lane` of part `part` has
// keys part, part + kParts, ... in registers. S is read once, 16 bytes at a time and adjacent. Entries are in shared
// memory; their products with key and query are made by lanes (entry) and parts (keys), summed by one invocation each.
// y of the grid is the head, z the row. All in f32, in an order that positions alone decide.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "reduce.glsl"
#include "row_state.glsl"
#include "softplus.glsl"

layout(constant_id = 10) const bool kDelta = true;
layout(constant_id = 11) const uint kKeyDim = 4;
layout(constant_id = 12) const uint kValueDim = 4;
layout(constant_id = 13) const uint kLanes = 1;
layout(constant_id = 14) const uint kParts = 1;  // divides kKeyDim
layout(constant_id = 15) const uint kKeyHeads = 1;
layout(constant_id = 16) const uint kShared = 1;  // heads that share a key head
layout(constant_id = 17) const bool kModulo = false;  // head h has key head h % kKeyHeads, else h / kShared
layout(constant_id = 18) const bool kGatesInTurn = false;
layout(constant_id = 19) const bool kNormalise = false;
layout(constant_id = 20) const bool kHasD = false;
// Keys of a lane that are unrolled: all on a GPU, whose registers have no index. It divides them.
layout(constant_id = 21) const uint kUnrolled = 1;

layout(push_constant) uniform Push {
  Words inputs;
  Floats query, key, value;  // of the delta rule q, k, v; of the scan C, B, x
  Floats alpha;              // of the scan dt
  Floats beta;               // of the scan D of each head
  Floats a, dt_bias, records;  // records: from the state's first number on
  Words tables;
  Floats result;
  uint query_columns, key_columns, value_columns, alpha_columns, beta_columns;  // from a row to the next
  uint record_columns, blocks_row_max, kv_group;
  float low, high;  // of the delta rule scale, eps; of the scan dt_min, dt_max
};

const uint kRows = kKeyDim / kParts, kSize = kLanes * kParts, kKeyQuads = kKeyDim / 4, kValueQuads = kValueDim / 4;
const uint kLoads = (kKeyDim + kSize - 1) / kSize;
shared float keys[16][kKeyDim], queries[kKeyDim];
shared vec4 values[16][kLanes];
shared float decays[16];
shared vec4 known_parts[kSize], read_parts[kSize];
shared vec2 entry_parts[16 * kParts];  // key_i . key, key_i . query
shared float query_parts[kParts];      // query . query
shared vec2 products[16];
shared float left[17];  // of entries; of the state

// What an invocation has loaded of the next token.
float next_keys[kLoads], next_queries[kLoads];
vec4 next_value;
float next_alpha, next_beta;
vec4 state[kRows];

uint key_head_of(uint head) { return kModulo ? head % kKeyHeads : head / kShared; }
bool has_first_key(uint head) { return kModulo ? head < kKeyHeads : head % kShared == 0u; }

void load(uint t, uint head, uint quad) {
  [[unroll]] for (uint i = 0; i < kLoads; ++i) {
    uint k = key_head_of(head) * kKeyDim + min(i * kSize + gl_LocalInvocationID.x, kKeyDim - 1u);
    next_keys[i] = key.f[t * key_columns + k];
    next_queries[i] = query.f[t * query_columns + k];
  }
  uint at = t * value_columns + head * kValueDim + quad * 4u;
  next_value = vec4(value.f[at], value.f[at + 1u], value.f[at + 2u], value.f[at + 3u]);
  uint column = kGatesInTurn ? head + head / kShared * kShared : head;
  next_alpha = alpha.f[t * alpha_columns + column];
  next_beta = kDelta ? beta.f[t * beta_columns + column] : 0.0;
}

#define FOR_KEYS for (uint run = 0; run < kRows; run += kUnrolled) [[unroll]] for (uint j = 0; j < kUnrolled; ++j)

// The first vec4 of a record, of its ring, and in that of values and decays.
uint record_first(uint record) { return record * (record_columns / 4u); }
uint ring_first(uint record) { return record_first(record) + gl_NumWorkGroups.y * kKeyDim * kValueQuads; }
uint values_first() { return kKeyHeads * kRingKeys * kKeyQuads; }
uint decays_first() { return values_first() + gl_NumWorkGroups.y * (kRingTokens - 1u) * kValueQuads; }

// The first vec4 of an invocation's state, and how far the next key's is.
const uint kKeyStep = kParts * kValueQuads;
uint state_first(uint record, uint head, uint quad) {
  return record_first(record) + (head * kKeyDim + gl_LocalInvocationID.x / kLanes) * kValueQuads + quad;
}
void leave(uint record, uint head, uint quad) {
  const uint first = state_first(record, head, quad);
  FOR_KEYS Vec4s(records).v[first + (run + j) * kKeyStep] = state[run + j];
}

// Entries from `base` on, `count` of them.
void load_entries(uint record, uint head, uint quad, uint base, uint count) {
  const uint me = gl_LocalInvocationID.x, lane = me % kLanes, ring = ring_first(record);
  for (uint i = me; i < count * kKeyQuads; i += kSize) {
    const uint entry = i / kKeyQuads, k = i % kKeyQuads;
    const vec4 four = Vec4s(records).v[ring + ring_keys(key_head_of(head), base + entry, kKeyQuads) + k];
    [[unroll]] for (uint c = 0; c < 4u; ++c) keys[entry][k * 4u + c] = four[c];
  }
  for (uint i = me / kLanes; i < count; i += kParts)
    values[i][lane] = Vec4s(records).v[ring + ring_values(values_first(), head, base + i, kValueQuads) + quad];
  for (uint i = me; i < count; i += kSize) {
    const uint place = ring_decay(decays_first(), head, base + i);
    decays[i] = Vec4s(records).v[ring + place / 4u][place % 4u];
  }
}
void leave_value(uint record, uint head, uint quad, uint position) {
  Vec4s(records).v[ring_first(record) + ring_values(values_first(), head, position, kValueQuads) + quad] =
      values[position % kRingTokens][gl_LocalInvocationID.x % kLanes];
}
// What groups have in common, of which one writes it.
void leave_shared(uint record, uint head, uint position) {
  if (gl_WorkGroupID.x > 0u) return;
  const uint me = gl_LocalInvocationID.x, ring = ring_first(record), slot = position % kRingTokens;
  if (me == 0u) {
    const uint place = ring_decay(decays_first(), head, position);
    Vec4s(records).v[ring + place / 4u][place % 4u] = decays[slot];
  }
  if (!has_first_key(head)) return;
  const uint first = ring + ring_keys(key_head_of(head), position, kKeyQuads);
  for (uint k = me; k < kKeyQuads; k += kSize)
    Vec4s(records).v[first + k] =
        vec4(keys[slot][k * 4u], keys[slot][k * 4u + 1u], keys[slot][k * 4u + 2u], keys[slot][k * 4u + 3u]);
}

// This invocation's share of the products of entries up to `slot` with key and query.
void multiply_entries(uint slot) {
  const uint me = gl_LocalInvocationID.x, lane = me % kLanes, part = me / kLanes;
  [[dont_unroll]] for (uint s = lane; s <= slot; s += kLanes) {
    vec2 sums = vec2(0.0);
    FOR_KEYS {
      const uint k = (run + j) * kParts + part;
      sums += keys[s][k] * vec2(keys[slot][k], queries[k]);
    }
    entry_parts[s * kParts + part] = sums;
  }
  if (!kNormalise || lane > 0u) return;
  float square = 0.0;
  FOR_KEYS {
    const float q = queries[(run + j) * kParts + part];
    square += q * q;
  }
  query_parts[part] = square;
}
// Their sums, and what is left of entries and state.
void sum_entries(uint slot) {
  [[dont_unroll]] for (uint s = gl_LocalInvocationID.x; s <= kRingTokens; s += kSize) {
    if (s > slot && s < kRingTokens) continue;
    float product = 1.0;
    [[dont_unroll]] for (uint l = s < kRingTokens ? s + 1u : 0u; l <= slot; ++l) product *= decays[l];
    left[s] = product;
    if (s == kRingTokens) continue;
    vec2 sums = vec2(0.0);
    [[dont_unroll]] for (uint p = 0; p < kParts; ++p) sums += entry_parts[s * kParts + p];
    products[s] = sums;
  }
}

// What S and the entries before give for key and query.
struct Sums {
  vec4 known, read;
};
Sums sum_known(uint slot, vec4 known, vec4 read) {
  const uint lane = gl_LocalInvocationID.x % kLanes;
  if (kParts > 1u) {
    known = vec4(0.0);
    read = vec4(0.0);
    [[dont_unroll]] for (uint p = 0; p < kParts; ++p) {
      if (kDelta) known += known_parts[p * kLanes + lane];
      read += read_parts[p * kLanes + lane];
    }
  }
  const float whole = left[kRingTokens];
  known *= whole;
  read *= whole;
  [[dont_unroll]] for (uint s = 0; s < slot; ++s) {
    const vec4 entry = left[s] * values[s][lane];
    if (kDelta) known += products[s].x * entry;
    read += products[s].y * entry;
  }
  return Sums(known, read);
}

void main() {
  const uint me = gl_LocalInvocationID.x, lane = me % kLanes, part = me / kLanes;
  const uint head = gl_WorkGroupID.y, num_heads = gl_NumWorkGroups.y;
  if (gl_WorkGroupID.z >= inputs.w[kFwdNumRows]) return;
  const StateRow row = state_row(inputs, tables, blocks_row_max, gl_WorkGroupID.z);
  const uint first_quad = gl_WorkGroupID.x * kLanes, quad = min(first_quad + lane, kValueQuads - 1u);
  const bool is_live = first_quad + lane < kValueQuads, leaves_shared = row.num_tokens <= kRingRowTokens;
  const uint source = source_record(inputs, row, kv_group);
  const uint count = row.start % kRingTokens, begin = row.start - count;
  const uint end = row.start + row.num_tokens, end_base = end / kRingTokens * kRingTokens;
  const uint first = state_first(source, head, quad);
  FOR_KEYS state[run + j] = begin == 0u ? vec4(0.0) : Vec4s(records).v[first + (run + j) * kKeyStep];
  const float rate = a.f[head], bias = dt_bias.f[head], skip = kHasD ? beta.f[head] : 0.0;
  load_entries(source, head, quad, begin, count);
  load(row.token_first, head, quad);
  uint place = row.places;
  if (source != row.own && end_base == begin) {  // another record's state, to which this row adds entries alone
    group_barrier();
    if (is_live && begin > 0u) leave(row.own, head, quad);
    for (uint i = 0; i < count; ++i) {
      if (is_live && part == 0u) leave_value(row.own, head, quad, begin + i);
      if (leaves_shared) leave_shared(row.own, head, begin + i);
    }
  }
  for (uint n = 0; n < row.num_tokens; ++n) {
    const uint t = row.token_first + n, position = row.start + n, slot = position % kRingTokens;
    const vec4 own_value = next_value;
    const float own_beta = next_beta;
    float decay, strength = 0.0;
    if (kDelta) {
      decay = exp(rate * softplus(next_alpha + bias));
    } else {
      strength = clamp(softplus(next_alpha + bias), low, high);
      decay = exp(rate * strength);
    }
    [[unroll]] for (uint i = 0; i < kLoads; ++i) {
      const uint k = i * kSize + me;
      if (k < kKeyDim) {
        keys[slot][k] = next_keys[i];
        queries[k] = next_queries[i];
      }
    }
    if (me == 0u) decays[slot] = decay;
    group_barrier();
    if (n + 1u < row.num_tokens) load(t + 1u, head, quad);
    vec4 known = vec4(0.0), read = vec4(0.0);
    FOR_KEYS {
      const uint i = (run + j) * kParts + part;
      if (kDelta) known += state[run + j] * keys[slot][i];
      read += state[run + j] * queries[i];
    }
    if (kParts > 1u) {
      if (kDelta) known_parts[me] = known;
      read_parts[me] = read;
    }
    multiply_entries(slot);
    group_barrier();
    sum_entries(slot);
    group_barrier();
    if (part == 0u) {
      const Sums sums = sum_known(slot, known, read);
      float query_factor = 1.0;
      vec4 added;
      if (kDelta) {
        float key_factor = 1.0;
        query_factor = low;
        if (kNormalise) {
          float square = 0.0;
          [[dont_unroll]] for (uint p = 0; p < kParts; ++p) square += query_parts[p];
          query_factor = low / sqrt(square + high);
          key_factor = 1.0 / sqrt(products[slot].x + high);
        }
        added = (own_value - key_factor * sums.known) * (key_factor / (1.0 + exp(-own_beta)));
      } else {
        added = strength * own_value;
      }
      vec4 y = query_factor * (sums.read + products[slot].y * added);
      if (kHasD) y += skip * own_value;
      values[slot][lane] = added;
      if (is_live) {
        Vec4s(result).v[((t * num_heads + head) * kValueDim) / 4u + quad] = y;
        if (position >= end_base) leave_value(row.own, head, quad, position);
      }
    }
    if (position >= end_base && leaves_shared) leave_shared(row.own, head, position);
    if (slot < kRingTokens - 1u) continue;
    group_barrier();
    const float whole = left[kRingTokens];
    FOR_KEYS state[run + j] *= whole;
    [[dont_unroll]] for (uint s = 0; s < kRingTokens; ++s) {
      const vec4 entry = left[s] * values[s][lane];
      FOR_KEYS state[run + j] += keys[s][(run + j) * kParts + part] * entry;
    }
    for (; place < row.places_end && inputs.w[place + 2u] <= position + 1u; place += kPlaceWords)
      if (is_live && is_written(inputs, row, kv_group, place)) leave(inputs.w[place + 1u], head, quad);
    if (is_live && position + 1u == end_base) leave(row.own, head, quad);
    group_barrier();
  }
}
