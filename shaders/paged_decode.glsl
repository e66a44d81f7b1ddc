// What kernels of decode items do with the results of an item's splits: the last group to arrive merges them, in their
// order. Needs paged.glsl, arrival.glsl, kRows, the rows of an item that a group computes at a time, kHasRuns, and
// kMergeBatch, the partial results that are on their way at a time.
//
// A row is a query head of the group; with runs a token of the item and a head, tokens first.

layout(buffer_reference, std430, buffer_reference_align = 8) buffer Partials { queuefamilycoherent vec2 v[]; };

const uint kHeadQuads = kHeadDim / 4;

struct Row {
  uint token, head;  // of the item; of all heads
};
// The rows of an item that a group has, for one KV head: [first, end) of them.
struct Rows {
  uint kv_head, group_heads, first, end;
};
Row row_of(Rows rows, uint row) {
  if (!kHasRuns) return Row(0u, rows.kv_head * rows.group_heads + row);
  return Row(row / rows.group_heads, rows.kv_head * rows.group_heads + row % rows.group_heads);
}
uint num_rows(Item item, uint group_heads) { return kHasRuns ? item.num_tokens * group_heads : group_heads; }

// Keys that a token of the item sees.
uvec2 seen_by(Item item, uint token) {
  uint position = item.position_first + token, begin = item.key_begin;
  if (window > 0u && position >= window) begin = max(begin, position + 1u - window);
  return uvec2(begin, min(item.key_end, position + 1u));
}
// That any of its tokens sees.
uvec2 seen_by_any(Item item) {
  return uvec2(seen_by(item, 0u).x, seen_by(item, kHasRuns ? item.num_tokens - 1u : 0u).y);
}

// Of the first token of an item; those of the others follow, with as many splits.
struct Merge {
  uint idx, token, first, count;
};

Merge load_merge(uint idx) {
  uint at = inputs.w[kFwdMerges] + idx * kMergeWords;
  return Merge(idx, inputs.w[at], inputs.w[at + 1u], inputs.w[at + 2u]);
}

// Numbers 4 * quad to 4 * quad + 3 of a head's output.
void store_quad(uint token, uint head, uint quad, vec4 value) {
  uint first = (token * num_heads + head) * kHeadDim;
  store_pair(result, first, kHeadDim, 2u * quad, value.xy, kOutDType);
  store_pair(result, first, kHeadDim, 2u * quad + 1u, value.zw, kOutDType);
}

// Of an item's row: its largest score (in powers of two), its sum of weights and numbers of its values, not yet divided.
void store_result(Item item, Merge merge, Row row, uint quad, float largest, float sum, vec4 value) {
  if (item.partial < 0) {
    store_quad(item.token_first + row.token, row.head, quad, value * inverse_sum(sum, largest / kLog2e, row.head));
    return;
  }
  uint partial = uint(item.partial) + (kHasRuns ? row.token * merge.count : 0u);
  uint to = partial_first(partial, row.head) / 2u;
  Partials(partials).v[to + 1u + 2u * quad] = value.xy;
  Partials(partials).v[to + 2u + 2u * quad] = value.zw;
  if (quad == 0u) Partials(partials).v[to] = vec2(largest / kLog2e, sum);
}

void merge_splits(Merge merge, Rows rows) {
  for (uint i = gl_LocalInvocationID.x; i < (rows.end - rows.first) * kHeadQuads; i += gl_WorkGroupSize.x) {
    Row row = row_of(rows, rows.first + i / kHeadQuads);
    uint quad = i % kHeadQuads, first = kHasRuns ? load_merge(merge.idx + row.token).first : merge.first;
    float largest = kNoScore, sum = 0.0;
    vec4 value = vec4(0.0);
    for (uint p = 0; p < merge.count; p += kMergeBatch) {
      vec2 heads[kMergeBatch], low[kMergeBatch], high[kMergeBatch];
      [[unroll]] for (uint b = 0; b < kMergeBatch; ++b) {
        uint from = partial_first(first + min(p + b, merge.count - 1u), row.head) / 2u;
        heads[b] = Partials(partials).v[from];
        low[b] = Partials(partials).v[from + 1u + 2u * quad];
        high[b] = Partials(partials).v[from + 2u + 2u * quad];
      }
      float before = largest;
      [[unroll]] for (uint b = 0; b < kMergeBatch; ++b) largest = max(largest, heads[b].x);
      sum *= exp(before - largest);
      value *= exp(before - largest);
      [[unroll]] for (uint b = 0; b < kMergeBatch; ++b) {
        float factor = p + b < merge.count ? exp(heads[b].x - largest) : 0.0;
        sum += heads[b].y * factor;
        value += vec4(low[b], high[b]) * factor;
      }
    }
    store_quad(merge.token + row.token, row.head, quad, value * inverse_sum(sum, largest, row.head));
  }
}

void merge_when_last(Merge merge, Rows rows) {
  Row first = row_of(rows, rows.first);
  if (arrives_last(arrivals, (merge.idx + first.token) * num_heads + first.head, merge.count)) merge_splits(merge, rows);
}
