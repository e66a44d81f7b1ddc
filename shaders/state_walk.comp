// The tokens of a row one after the other over a state S [key, value] of each head: the gated delta rule (kDelta) and
// Mamba-2's scan, whose B, C and dt x are key, query and value (core/ops/recurrent_ops.h).
//
//   S = decay S + key d^T, out = S^T query; d = value, or beta (value - decay S^T key)
//
// A workgroup has kLanes vec4s of values of one head, x of the grid, and all their keys: lane `lane` of part `part` has
// keys part, part + kParts, ... in registers. S is read and written once, whatever the number of tokens, 16 bytes at a
// time and adjacent. Both sums over keys (S^T key, S^T query, of the old S) go through shared memory at once: out =
// decay S^T query + (key . query) d. So are lengths of q and k, which are factors of sums. y of the grid is the head, z
// the row. All in f32.
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

const uint kRows = kKeyDim / kParts, kSize = kLanes * kParts;
const uint kLoads = (kKeyDim + kSize - 1) / kSize;
shared float keys[2][kKeyDim], queries[2][kKeyDim];
shared vec4 known_parts[kSize], read_parts[kSize];
shared vec4 product_parts[kParts];  // key . key, query . query, key . query

// What an invocation has loaded of the next token.
float next_keys[kLoads], next_queries[kLoads];
vec4 next_value;
float next_alpha, next_beta;

uint key_head_of(uint head) { return kModulo ? head % kKeyHeads : head / kShared; }

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

vec4 state[kRows];
// Four at a time: all at once would take more registers than some devices have.
const uint kPartsAtOnce = kParts < 4u ? kParts : 4u;
#define FOR_PARTS [[dont_unroll]] for (uint p = 0; p < kParts; p += kPartsAtOnce) \
                    [[unroll]] for (uint j = 0; j < kPartsAtOnce; ++j)
#define FOR_KEYS for (uint run = 0; run < kRows; run += kUnrolled) [[unroll]] for (uint j = 0; j < kUnrolled; ++j)

// The first vec4 of an invocation's state, and how far the next key's is.
const uint kKeyStep = kParts * (kValueDim / 4);
uint state_first(uint record, uint head, uint quad) {
  return record * (record_columns / 4u) + (head * kKeyDim + gl_LocalInvocationID.x / kLanes) * (kValueDim / 4u) + quad;
}
void leave(uint record, uint head, uint quad) {
  const uint first = state_first(record, head, quad);
  FOR_KEYS Vec4s(records).v[first + (run + j) * kKeyStep] = state[run + j];
}

void main() {
  const uint me = gl_LocalInvocationID.x, lane = me % kLanes, part = me / kLanes;
  const uint head = gl_WorkGroupID.y, num_heads = gl_NumWorkGroups.y;
  if (gl_WorkGroupID.z >= inputs.w[kFwdNumRows]) return;
  const StateRow row = state_row(inputs, tables, blocks_row_max, gl_WorkGroupID.z);
  const uint first_quad = gl_WorkGroupID.x * kLanes, quad = min(first_quad + lane, kValueDim / 4u - 1u);
  const bool is_live = first_quad + lane < kValueDim / 4u;
  const uint source = source_record(inputs, row, kv_group);
  const uint first = state_first(source, head, quad);
  FOR_KEYS state[run + j] = row.start == 0u ? vec4(0.0) : Vec4s(records).v[first + (run + j) * kKeyStep];
  const float rate = a.f[head], bias = dt_bias.f[head], skip = kHasD ? beta.f[head] : 0.0;
  uint place = row.places;
  load(row.token_first, head, quad);
  for (uint n = 0; n < row.num_tokens; ++n) {
    const uint t = row.token_first + n, turn = n & 1u;
    const vec4 own_value = next_value;
    const float own_alpha = next_alpha, own_beta = next_beta;
    [[unroll]] for (uint i = 0; i < kLoads; ++i) {
      uint k = i * kSize + me;
      if (k < kKeyDim) {
        keys[turn][k] = next_keys[i];
        queries[turn][k] = next_queries[i];
      }
    }
    group_barrier();
    if (n + 1u < row.num_tokens) load(t + 1u, head, quad);
    vec4 known = vec4(0.0), read = vec4(0.0);
    vec3 products = vec3(0.0);
    FOR_KEYS {
      const uint i = run + j;
      float k = keys[turn][i * kParts + part], q = queries[turn][i * kParts + part];
      if (kDelta) known += state[i] * k;
      read += state[i] * q;
      products += vec3(k * k, q * q, k * q);
    }
    if (kParts > 1u) {
      if (kDelta) known_parts[me] = known;
      read_parts[me] = read;
      if (lane == 0u) product_parts[part] = vec4(products, 0.0);
      group_barrier();
      known = vec4(0.0);
      products = vec3(0.0);
      FOR_PARTS {
        if (kDelta) known += known_parts[(p + j) * kLanes + lane];
        products += product_parts[p + j].xyz;
      }
    }
    float decay, key_factor = 1.0, query_factor = 1.0;
    vec4 added;
    if (kDelta) {
      decay = exp(rate * softplus(own_alpha + bias));
      if (kNormalise) {
        key_factor = 1.0 / sqrt(products.x + high);
        query_factor = 1.0 / sqrt(products.y + high);
      }
      query_factor *= low;
      added = (own_value - decay * key_factor * known) / (1.0 + exp(-own_beta));
    } else {
      float dt = clamp(softplus(own_alpha + bias), low, high);
      decay = exp(rate * dt);
      added = dt * own_value;
    }
    added *= key_factor;
    if (part == 0u && is_live) {
      if (kParts > 1u) {
        read = vec4(0.0);
        FOR_PARTS read += read_parts[(p + j) * kLanes + lane];
      }
      vec4 y = query_factor * (decay * read + products.z * added);
      if (kHasD) y += skip * own_value;
      Vec4s(result).v[((t * num_heads + head) * kValueDim) / 4u + quad] = y;
    }
    FOR_KEYS state[run + j] = decay * state[run + j] + keys[turn][(run + j) * kParts + part] * added;
    for (; place < row.places_end && inputs.w[place + 2u] <= row.start + n + 1u; place += kPlaceWords)
      if (is_live && is_written(inputs, row, kv_group, place)) leave(inputs.w[place + 1u], head, quad);
  }
  if (is_live) leave(row.own, head, quad);
}
