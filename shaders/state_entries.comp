// Keys and decays of the entries that rows leave in their rings (core/ops/recurrent_ops.h), for rows whose groups may
// not write them while others yet read (more than kRingRowTokens tokens): behind state_ring.comp. x of the grid is the
// entry, y the row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "row_state.glsl"
#include "softplus.glsl"

layout(constant_id = 10) const bool kDelta = true;
layout(constant_id = 11) const uint kKeyDim = 4;
layout(constant_id = 12) const uint kValueDim = 4;
layout(constant_id = 13) const uint kKeyHeads = 1;
layout(constant_id = 14) const uint kShared = 1;  // heads that share a key head
layout(constant_id = 15) const bool kGatesInTurn = false;

layout(push_constant) uniform Push {
  Words inputs;
  Floats key;    // of the scan B
  Floats alpha;  // of the scan dt
  Floats a, dt_bias, records;  // records: from the state's first number on
  Words tables;
  uint key_columns, alpha_columns;  // from a row to the next
  uint record_columns, blocks_row_max, kv_group;
  float low, high;  // of the scan dt_min, dt_max
};

const uint kHeads = kKeyHeads * kShared, kKeyQuads = kKeyDim / 4, kValueQuads = kValueDim / 4;
const uint kValuesFirst = kKeyHeads * 20 * kKeyQuads, kDecaysFirst = kValuesFirst + kHeads * 15 * kValueQuads;

uint ring_first(uint record) { return record * (record_columns / 4u) + kHeads * kKeyDim * kValueQuads; }

void main() {
  if (gl_WorkGroupID.y >= inputs.w[kFwdNumRows]) return;
  const StateRow row = state_row(inputs, tables, blocks_row_max, gl_WorkGroupID.y);
  const uint end = row.start + row.num_tokens, position = end / kRingTokens * kRingTokens + gl_WorkGroupID.x;
  if (row.num_tokens <= kRingRowTokens || position >= end) return;
  const uint source = source_record(inputs, row, kv_group);
  const bool is_new = position >= row.start;
  if (!is_new && source == row.own) return;
  const uint t = row.token_first + position - row.start, from = ring_first(source), to = ring_first(row.own);
  for (uint i = gl_LocalInvocationID.x; i < kKeyHeads * kKeyQuads; i += gl_WorkGroupSize.x) {
    const uint place = ring_keys(i / kKeyQuads, position, kKeyQuads) + i % kKeyQuads;
    const uint k = t * key_columns + i * 4u;
    if (is_new)
      Vec4s(records).v[to + place] = vec4(key.f[k], key.f[k + 1u], key.f[k + 2u], key.f[k + 3u]);
    else
      Vec4s(records).v[to + place] = Vec4s(records).v[from + place];
  }
  for (uint head = gl_LocalInvocationID.x; head < kHeads; head += gl_WorkGroupSize.x) {
    const uint place = ring_decay(kDecaysFirst, head, position);
    float decay;
    if (is_new) {
      const uint column = kGatesInTurn ? head + head / kShared * kShared : head;
      float dt = softplus(alpha.f[t * alpha_columns + column] + dt_bias.f[head]);
      if (!kDelta) dt = clamp(dt, low, high);
      decay = exp(a.f[head] * dt);
    } else {
      decay = Vec4s(records).v[from + place / 4u][place % 4u];
    }
    Vec4s(records).v[to + place / 4u][place % 4u] = decay;
  }
}
