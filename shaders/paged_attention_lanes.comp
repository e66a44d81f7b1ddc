// Attention for prompt and decode items where subgroups are vectors of a CPU (8 lanes): a lane owns kRowVecs rows, so
// nothing is exchanged between lanes but the keys, of which 8 words are loaded at once and broadcast one by one (see
// matmul_lanes). Online softmax, f32. Grid: x walks the items, y = KV head, z = tile of the item's rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "types.glsl"
#include "paged.glsl"

layout(constant_id = 15) const uint kRowVecs = 1;

const uint kLanes = 8;
const uint kWordNumbers = kBytes ? 4 : 2;
const uint kVectorWords = kHeadDim / kWordNumbers;

// The numbers of this lane's word of a vector. Scales of whole vectors are applied afterwards.
vec4 load_numbers(uint vector, uint first) {
  uint i = min(first + gl_SubgroupInvocationID, kVectorWords - 1u), word = data.w[vector * kVectorWords + i];
  if (!kBytes) return vec4(unpack16(word, kKvDType), 0.0, 0.0);
  return kBlockScales ? byte_values(word) * kv_scale(vector, i / 2u, 1.0) : byte_values(word);
}

void run(Item item, uint kv_head) {
  uint group_heads = num_heads / num_kv_heads, num_rows = item.num_tokens * group_heads;
  uint row_first = gl_WorkGroupID.z * (kLanes * kRowVecs);
  if (row_first >= num_rows) return;
  uint rows[kRowVecs];
  float q[kRowVecs][kHeadDim], sums[kRowVecs][kHeadDim], largest[kRowVecs], total[kRowVecs];
  [[unroll]] for (uint r = 0; r < kRowVecs; ++r) {
    rows[r] = min(row_first + r * kLanes + gl_SubgroupInvocationID, num_rows - 1u);
    uint from = q_first(item.token_first + rows[r] / group_heads, kv_head * group_heads + rows[r] % group_heads);
    [[unroll]] for (uint d = 0; d < kHeadDim; ++d) {
      q[r][d] = qkv.f[from + d];
      sums[r][d] = 0.0;
    }
    largest[r] = kNoScore;
    total[r] = 0.0;
  }
  uint last_row = min(row_first + kLanes * kRowVecs, num_rows) - 1u;
  uint key_end = min(item.key_end, item.position_first + last_row / group_heads + 1u);
  for (uint key = item.key_begin; key < key_end; ++key) {
    uint k_vector = kv_vector(item.slot, key, 0u, kv_head);
    uint v_vector = k_vector + num_kv_heads * block_tokens;
    float score[kRowVecs], weight[kRowVecs], factor[kRowVecs];
    [[unroll]] for (uint r = 0; r < kRowVecs; ++r) score[r] = 0.0;
    [[unroll]] for (uint first = 0; first < kVectorWords; first += kLanes) {
      vec4 numbers = load_numbers(k_vector, first);
      [[unroll]] for (uint lane = 0; lane < kLanes; ++lane) {
        if (first + lane >= kVectorWords) continue;
        [[unroll]] for (uint n = 0; n < kWordNumbers; ++n) {
          float k = subgroupBroadcast(numbers[n], lane);
          [[unroll]] for (uint r = 0; r < kRowVecs; ++r) score[r] += q[r][(first + lane) * kWordNumbers + n] * k;
        }
      }
    }
    float k_factor = kVectorScales ? scales.f[k_vector] : 1.0, v_factor = kVectorScales ? scales.f[v_vector] : v_scale;
    [[unroll]] for (uint r = 0; r < kRowVecs; ++r) {
      float s = finish_score(score[r] * k_factor, key, item.position_first + rows[r] / group_heads);
      float now = max(largest[r], s);
      factor[r] = exp(largest[r] - now);
      weight[r] = exp(s - now);
      largest[r] = now;
      total[r] = total[r] * factor[r] + weight[r];
      weight[r] *= v_factor;
    }
    [[unroll]] for (uint first = 0; first < kVectorWords; first += kLanes) {
      vec4 numbers = load_numbers(v_vector, first);
      [[unroll]] for (uint lane = 0; lane < kLanes; ++lane) {
        if (first + lane >= kVectorWords) continue;
        [[unroll]] for (uint n = 0; n < kWordNumbers; ++n) {
          uint d = (first + lane) * kWordNumbers + n;
          float v = subgroupBroadcast(numbers[n], lane);
          [[unroll]] for (uint r = 0; r < kRowVecs; ++r) sums[r][d] = sums[r][d] * factor[r] + weight[r] * v;
        }
      }
    }
  }
  [[unroll]] for (uint r = 0; r < kRowVecs; ++r) {
    if (row_first + r * kLanes + gl_SubgroupInvocationID >= num_rows) continue;
    uint token = rows[r] / group_heads, head = kv_head * group_heads + rows[r] % group_heads;
    if (item.partial >= 0) {
      uint to = partial_first(item, token, head);
      partials.f[to] = largest[r];
      partials.f[to + 1u] = total[r];
      [[unroll]] for (uint d = 0; d < kHeadDim; ++d) partials.f[to + 2u + d] = sums[r][d];
    } else {
      float inverse = inverse_sum(total[r], largest[r], head);
      uint to = out_first(item.token_first + token, head);
      [[unroll]] for (uint p = 0; p < kHeadDim / 2; ++p)
        if (2u * p < out_dim())
          store_pair(result, to, kHeadDim, p, vec2(sums[r][2u * p], sums[r][2u * p + 1u]) * inverse, kOutDType);
    }
  }
}

void main() {
  uint count = num_items();
  for (uint i = gl_WorkGroupID.x; i < count; i += gl_NumWorkGroups.x) run(load_any_item(i), gl_WorkGroupID.y);
}
