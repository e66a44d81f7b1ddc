// results[r] = the winner of row r: argmax over the kept tokens of logit / temperature + Gumbel noise (greedy rows: of
// all logits), ties by lower id; or the forced token, scored. The kept tokens come from `candidates` where Filter listed
// them, by one workgroup, else from one pass over the row, a slice a workgroup. Rows that draw get their last token and,
// with penalties, one more in its output count. Each operation of a score is `precise`: it rounds by itself.
// In a pass each invocation bounds the scores of its tokens, which takes a quarter of the instructions, and computes that
// of the most promising one. The second best of those is at most the second best of the slice: only tokens whose bound
// reaches it are scored as well, and there hardly ever is one.
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#include "types.glsl"
#include "reduce.glsl"
#include "logits_row.glsl"
#include "row_slices.glsl"
#include "noise.glsl"

uint cutoff_key, cutoff_id;  // of the row's FilterResult
bool is_kept(uint key, uint id) { return key > cutoff_key || (key == cutoff_key && id <= cutoff_id); }

float scaled(float logit, float temperature) {
  precise float quotient = logit / temperature;
  return quotient;
}

// Keys of scores; a greedy row's are those of its logits.
struct Draw {
  uint key, id, second_key;
};

void offer(inout Draw best, uint key, uint id, float temperature, uint key0, uint key1) {
  if (temperature > 0.0) {
    if (!is_kept(key, id)) return;
    float noise = gumbel(noise_hash(key0, key1, id));
    key = key_of(floatBitsToUint(noise_add(scaled(number_of(key), temperature), noise)));
  }
  if (key > best.key || (key == best.key && id < best.id)) {
    best.second_key = best.key;
    best.key = key;
    best.id = id;
  } else {
    best.second_key = max(best.second_key, key);
  }
}

// The draws of all invocations as one, in each of them.
Draw join(Draw own) {
  Draw all;
  all.key = group_max_uint(own.key);
  all.id = group_min_uint(own.key == all.key ? own.id : kAllIds);
  all.second_key = group_max_uint(own.id == all.id ? own.second_key : own.key);
  return all;
}

Draw draw_listed(uint row, uint num_listed, float temperature, uint key0, uint key1) {
  Draw own = Draw(kNoToken, kAllIds, kNoToken);
  for (uint i = gl_LocalInvocationID.x; i < num_listed; i += gl_WorkGroupSize.x)
    offer(own, candidates.w[2u * kListMax * row + i], candidates.w[2u * kListMax * row + kListMax + i], temperature,
          key0, key1);
  return join(own);
}

// At least the score of a token that may be drawn: the noise is -log(-log(1 - w)) <= -log(w), w > hash / 2^32. What is
// added is far more than rounding takes.
float bound(uint key, uint id, float inverse, uint key0, uint key1) {
  float quotient = number_of(key) * inverse, hash = max(float(noise_hash(key0, key1, id)), 0.5);
  if (!(abs(quotient) < 1e30)) return kInfinity;
  return quotient + abs(quotient) * 2e-6 + (log2(hash) * -0.693147 + 22.18081);
}

Draw draw_slice(float temperature, uint key0, uint key1) {
  uvec2 quads = slice_quads();
  float inverse = 1.0 / temperature, highest = -kInfinity, next = -kInfinity;  // the two largest bounds
  uint promising_key = kNoToken, promising = kAllIds;
  for (uint quad = quads.x + gl_LocalInvocationID.x; quad < quads.y;) {
    Loads loads = load(quad);
    [[dont_unroll]] for (uint j = 0; j < kLoads && quad < quads.y; ++j, quad += gl_WorkGroupSize.x) {
      uvec4 keys = keys_of(loads.now);
      turn(loads);
      [[unroll]] for (uint c = 0; c < 4u; ++c) {
        uint token = token_at(4u * quad + c);
        float most = bound(keys[c], token, inverse, key0, key1);
        if (keys[c] < cutoff_key) most = -kInfinity;
        next = max(next, min(most, highest));
        if (most > highest) {
          highest = most;
          promising_key = keys[c];
          promising = token;
        }
      }
    }
  }
  Draw own = Draw(kNoToken, kAllIds, kNoToken);
  if (promising != kAllIds) offer(own, promising_key, promising, temperature, key0, key1);
  Draw all = join(own);
  float least = all.second_key > kMasked ? number_of(all.second_key) : -kInfinity;
  bool has_more = next > -kInfinity && next >= least;
  if (group_or(has_more ? 1u : 0u) == 0u) return all;
  for (uint quad = has_more ? quads.x + gl_LocalInvocationID.x : quads.y; quad < quads.y;) {
    Loads loads = load(quad);
    [[dont_unroll]] for (uint j = 0; j < kLoads && quad < quads.y; ++j, quad += gl_WorkGroupSize.x) {
      uvec4 keys = keys_of(loads.now);
      turn(loads);
      [[dont_unroll]] for (uint c = 0; c < 4u; ++c, keys = keys.yzwx) {
        uint id = token_at(4u * quad + c);
        if (keys.x >= cutoff_key && id != promising && bound(keys.x, id, inverse, key0, key1) >= least)
          offer(own, keys.x, id, temperature, key0, key1);
      }
    }
  }
  return join(own);
}

// Whether this group is the last of the row's; then `own`, of its slice, becomes that of the row.
bool gather_slices(uint row, inout Draw own) {
  uint me = gl_LocalInvocationID.x, at = slice_word(row, gl_WorkGroupID.y);
  Slices slices = Slices(candidates);
  if (me == 0u) {
    slices.w[at] = own.key;
    slices.w[at + 1u] = own.id;
    slices.w[at + 2u] = own.second_key;
  }
  if (!arrives_last(arrivals, row, gl_NumWorkGroups.y)) return false;
  own = Draw(kNoToken, kAllIds, kNoToken);
  at = slice_word(row, me);
  if (me < gl_NumWorkGroups.y) own = Draw(slices.w[at], slices.w[at + 1u], slices.w[at + 2u]);
  own = join(own);
  return true;
}

void main() {
  uint row = gl_WorkGroupID.x;
  if (row >= inputs.w[kSmpNumRecords]) return;
  uint record = inputs.w[kSmpRecords] + row * kSampleWords, first = row * kKeptWords;
  uint state = inputs.w[record + kRecordSlot] * kRowWords, flags = rows.w[state + kRowFlags];
  float temperature = uintBitsToFloat(rows.w[state + kRowTemperature]);
  bool forced = (inputs.w[record + kRecordFlags] & kSampleForced) != 0u, good = kept.w[first + kKeptFlags] == 0u;
  set_row((flags & kFlagProcessed) != 0u ? processed : logits, row);
  set_mask(record);
  cutoff_key = key_of(kept.w[first + kKeptCutoff]);
  cutoff_id = kept.w[first + kKeptCutoffId];

  bool draws = good && !forced;
  uint num_listed = kept.w[first + kKeptListed];
  bool sliced = draws && num_listed == 0u;
  if (!sliced && gl_WorkGroupID.y > 0u) return;

  uint token = good ? inputs.w[record + kRecordForced] : 0xffffffffu;
  float margin = 0.0;
  if (draws) {
    uint seed_lo = rows.w[state + kRowSeedLo], seed_hi = rows.w[state + kRowSeedHi], branch = rows.w[state + kRowBranch];
    uint position = inputs.w[record + kRecordPosition];
    uint key0 = noise_key(seed_lo, seed_hi, branch, position, 0u), key1 = noise_key(seed_lo, seed_hi, branch, position, 1u);
    Draw drawn = sliced ? draw_slice(temperature, key0, key1) : draw_listed(row, num_listed, temperature, key0, key1);
    if (sliced && gl_NumWorkGroups.y > 1u && !gather_slices(row, drawn)) return;
    token = drawn.id;
    margin = drawn.second_key > kMasked ? number_of(drawn.key) - number_of(drawn.second_key) : kInfinity;
  }
  if (gl_LocalInvocationID.x != 0u) return;
  float logprob = 0.0;
  if (token < vocab_size) {
    uint key = key_of(row_words.w[row_first + token]);
    if (!is_kept(key, token))
      logprob = -kInfinity;
    else if (temperature > 0.0)
      logprob = (number_of(key) - uintBitsToFloat(kept.w[first + kKeptMax])) / temperature -
                uintBitsToFloat(kept.w[first + kKeptLogSum]);
    if (!forced && (inputs.w[record + kRecordFlags] & kSampleVerify) == 0u) {
      rows.w[state + kRowLastToken] = token;
      if ((flags & kFlagPenalties) != 0u)
        atomicAdd(counts.w[rows.w[state + kRowPenaltySlot] * vocab_size + token], 1u);
    }
  }
  first = row * kResultWords;
  results.w[first] = token;
  results.w[first + 1u] = kept.w[row * kKeptWords + kKeptFlags];
  results.w[first + 2u] = 0u;  // logprobs fills it
  results.w[first + 3u] = floatBitsToUint(logprob);
  results.w[first + 4u] = kept.w[row * kKeptWords + kKeptSupport];
  results.w[first + 5u] = floatBitsToUint(margin);
}
