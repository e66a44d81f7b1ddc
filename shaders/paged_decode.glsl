// What kernels of decode items do with the results of an item's splits: the last group to arrive merges them, in their
// order. Needs paged.glsl, arrival.glsl, kHeads, the query heads of a group, and kMergeBatch, the partial results that are
// on their way at a time.

layout(buffer_reference, std430, buffer_reference_align = 8) buffer Partials { queuefamilycoherent vec2 v[]; };

const uint kHeadQuads = kHeadDim / 4;

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

// Of an item's head: its largest score (in powers of two), its sum of weights and numbers of its values, not yet divided.
void store_result(Item item, uint head, uint quad, float largest, float sum, vec4 value) {
  if (item.partial < 0) {
    store_quad(item.token_first, head, quad, value * inverse_sum(sum, largest / kLog2e, head));
    return;
  }
  uint to = partial_first(uint(item.partial), head) / 2u;
  Partials(partials).v[to + 1u + 2u * quad] = value.xy;
  Partials(partials).v[to + 2u + 2u * quad] = value.zw;
  if (quad == 0u) Partials(partials).v[to] = vec2(largest / kLog2e, sum);
}

void merge_splits(Merge merge, uint head_first, uint num_group_heads) {
  for (uint i = gl_LocalInvocationID.x; i < num_group_heads * kHeadQuads; i += gl_WorkGroupSize.x) {
    uint head = head_first + i / kHeadQuads, quad = i % kHeadQuads;
    float largest = kNoScore, sum = 0.0;
    vec4 value = vec4(0.0);
    for (uint p = 0; p < merge.count; p += kMergeBatch) {
      vec2 heads[kMergeBatch], low[kMergeBatch], high[kMergeBatch];
      [[unroll]] for (uint b = 0; b < kMergeBatch; ++b) {
        uint from = partial_first(merge.first + min(p + b, merge.count - 1u), head) / 2u;
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
    store_quad(merge.token, head, quad, value * inverse_sum(sum, largest, head));
  }
}

void merge_when_last(Merge merge, uint kv_head, uint heads_first, uint group_heads) {
  uint head_first = kv_head * group_heads + heads_first, arrival = merge.idx * num_heads + head_first;
  if (arrives_last(arrivals, arrival, merge.count))
    merge_splits(merge, head_first, min(kHeads, group_heads - heads_first));
}
