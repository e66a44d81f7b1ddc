// c[t] = bias + sum over j of weight[:, j] * u[t - (kWidth - 1) + j], u = x or x * gate_in; out = c, silu(c) or c * gate_out.
// u in front of a row's first token comes from the row's state [kSlots, channels], by position modulo kSlots, which
// becomes that behind its last (core/ops/recurrent_ops.h). An invocation has four channels; x of the grid walks them, y
// tiles of kTile tokens. A row's first kWidth - 1 tokens belong to the tile of its first one, which alone reads and
// writes records: nothing waits for another group. Sums in f32.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "row_state.glsl"

layout(constant_id = 10) const uint kWidth = 4;
layout(constant_id = 11) const uint kOutDType = kF32;
layout(constant_id = 12) const uint kTile = 1;  // tokens
layout(constant_id = 13) const bool kAligned = false;  // every row of every tensor is whole vec4s
layout(constant_id = 14) const bool kBias = false;
layout(constant_id = 15) const bool kSilu = false;
layout(constant_id = 16) const bool kGateIn = false;
layout(constant_id = 17) const bool kGateOut = false;

const uint kWeightQuads = (kWidth + 3u) / 4u;  // rows of weights are padded to whole vec4s (weight_rows.cpp)
const uint kKept = kWidth - 1u, kSlots = kKept + kRingRowTokens - 1u;  // twin: conv_slots()

layout(push_constant) uniform Push {
  Words inputs;
  Floats x, gate_in, gate_out, weight, bias, records;  // records: from the state's first number on
  Words tables, result;
  uint channels, x_columns, gate_in_columns, gate_out_columns;  // columns: from a row to the next
  uint record_columns, blocks_row_max, kv_group;
};

vec4 load(Floats source, uint first, uint c) {
  if (kAligned) return Vec4s(source).v[(first + c) / 4u];
  vec4 numbers;
  for (uint i = 0; i < 4u; ++i) numbers[i] = source.f[first + min(c + i, channels - 1u)];
  return numbers;
}
vec4 load_u(uint token, uint c) {
  vec4 u = load(x, token * x_columns, c);
  return kGateIn ? u * load(gate_in, token * gate_in_columns, c) : u;
}
uint slot_of(uint record, uint position) {
  return record * record_columns + position % kSlots * channels;
}
void store_state(uint record, uint position, uint c, vec4 u) {
  uint first = slot_of(record, position);
  if (kAligned) {
    Vec4s(records).v[(first + c) / 4u] = u;
  } else {
    for (uint i = 0; i < 4u && c + i < channels; ++i) records.f[first + c + i] = u[i];
  }
}
vec4 old[kKept];  // u of the positions in front of the row
// u of positions from `first` on, up to `end`.
void leave(StateRow row, uint record, uint first, uint end, uint c) {
  [[unroll]] for (uint j = 0; j < kKept; ++j)
    if (row.start + j >= first + kKept) store_state(record, row.start + j - kKept, c, old[j]);
  for (uint position = max(first, row.start); position < end; ++position)
    store_state(record, position, c, load_u(row.token_first + (position - row.start), c));
}
uint before(uint position, uint count) {
  return position - min(position, count);
}
void store(uint token, uint c, vec4 y) {
  if (kOutDType == kF32 && kAligned) {
    Vec4s(result).v[(token * channels + c) / 4u] = y;
    return;
  }
  for (uint i = 0; i < 4u && c + i < channels; i += 2u)
    store_pair(result, token * channels, channels, (c + i) / 2u, i == 0u ? y.xy : y.zw, kOutDType);
}

void main() {
  const uint c = gl_GlobalInvocationID.x * 4u;
  if (c >= channels) return;
  const uint num_tokens = inputs.w[kFwdNumTokens], begin = gl_WorkGroupID.y * kTile, end = min(begin + kTile, num_tokens);
  vec4 factors[kWidth], shift = kBias ? load(bias, 0u, c) : vec4(0.0);
  for (uint i = 0; i < 4u; ++i) {
    vec4 low = Vec4s(weight).v[min(c + i, channels - 1u) * kWeightQuads], high = vec4(0.0);
    if (kWeightQuads > 1u) high = Vec4s(weight).v[min(c + i, channels - 1u) * kWeightQuads + 1u];
    [[unroll]] for (uint j = 0; j < kWidth; ++j) factors[j][i] = j < 4u ? low[j & 3u] : high[j & 3u];
  }
  uint t = begin;
  while (t < end) {
    const StateRow row = state_row(inputs, tables, blocks_row_max, inputs.w[inputs.w[kFwdTokenRows] + t]);
    const uint row_end = row.token_first + row.num_tokens;
    if (row.token_first < begin) t = max(t, min(row.token_first + kKept, row_end));  // the tile before has these
    if (t >= end) break;
    if (t >= row_end) continue;
    const bool is_first = t == row.token_first;
    vec4 u[kWidth];  // the last is the current token's
    if (is_first) {
      const uint source = source_record(inputs, row, kv_group);
      [[unroll]] for (uint j = 0; j < kKept; ++j) {
        old[j] = vec4(0.0);
        if (row.start + j >= kKept) old[j] = load(records, slot_of(source, row.start + j - kKept), c);
        u[j + 1u] = old[j];
      }
      for (uint place = row.places; place < row.places_end; place += kPlaceWords)
        if (is_written(inputs, row, kv_group, place))
          leave(row, inputs.w[place + 1u], before(inputs.w[place + 2u], kKept), inputs.w[place + 2u], c);
      const uint last = row.start + row.num_tokens, first = before(row.start, source == row.own ? 0u : kKept);
      leave(row, row.own, max(first, before(last, kSlots)), last, c);
    } else {
      [[unroll]] for (uint j = 0; j < kKept; ++j) u[j + 1u] = load_u(t + j - kKept, c);
    }
    const uint stop = min(row_end, is_first ? max(end, t + kKept) : end);
    for (; t < stop; ++t) {
      [[unroll]] for (uint j = 0; j < kKept; ++j) u[j] = u[j + 1u];
      u[kKept] = load_u(t, c);
      vec4 sum = shift;
      [[unroll]] for (uint j = 0; j < kWidth; ++j) sum += factors[j] * u[j];
      if (kSilu)
        for (uint i = 0; i < 4u; ++i) sum[i] = sum[i] / (1.0 + exp(-sum[i]));
      if (kGateOut) sum *= load(gate_out, t * gate_out_columns, c);
      store(t, c, sum);
    }
  }
}
