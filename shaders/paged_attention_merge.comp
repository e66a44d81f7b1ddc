// Splits of one query token put together by log-sum-exp, in the order of the splits. Grid: x walks the merges, y = head;
// invocations walk pairs of dimensions. kPromptOnly: the kernel for decode items has merged its own.
//
// Places are kept to what there is also where no lane is active: lavapipe (Mesa 26) runs a loop's body once more with all
// lanes off, and there loads from where all lanes would.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "types.glsl"
#include "paged.glsl"

layout(constant_id = 15) const bool kPromptOnly = false;

const uint kBatch = 4;  // splits whose results are under way

void main() {
  uint num_merges = inputs.w[count_words.x], head = gl_WorkGroupID.y;
  for (uint i = gl_WorkGroupID.x; i < num_merges; i += gl_NumWorkGroups.x) {
    uint at = inputs.w[items_words.x] + min(i, max(num_merges, 1u) - 1u) * kMergeWords;
    if (kPromptOnly && inputs.w[at + 3u] == 0u) continue;
    uint token = inputs.w[at], first = num_merges > 0u ? inputs.w[at + 1u] : 0u;
    uint count = num_merges > 0u ? inputs.w[at + 2u] : 0u, last = max(count, 1u) - 1u;
    for (uint pair = gl_LocalInvocationID.x; pair < out_dim() / 2u; pair += gl_WorkGroupSize.x) {
      float largest = kNoScore, total = 0.0;
      vec2 sum = vec2(0.0);
      for (uint p = 0; p < count; p += kBatch) {
        vec2 heads[kBatch], values[kBatch];
        [[unroll]] for (uint b = 0; b < kBatch; ++b) {
          uint from = partial_first(first + min(p + b, last), head);
          heads[b] = vec2(partials.f[from], partials.f[from + 1u]);
          values[b] = vec2(partials.f[from + 2u + 2u * pair], partials.f[from + 3u + 2u * pair]);
        }
        float now = largest;
        [[unroll]] for (uint b = 0; b < kBatch; ++b) now = max(now, heads[b].x);
        float factor = exp(largest - now);
        largest = now;
        total *= factor;
        sum *= factor;
        [[unroll]] for (uint b = 0; b < kBatch; ++b) {
          float weight = p + b < count ? exp(heads[b].x - largest) : 0.0;
          total += weight * heads[b].y;
          sum += weight * values[b];
        }
      }
      store_pair(result, out_first(token, head), kHeadDim, pair, sum * inverse_sum(total, largest, head), kOutDType);
    }
  }
}
