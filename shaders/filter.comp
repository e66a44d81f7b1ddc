// kept[r] = what may be drawn of row r: temperature, then top-n-sigma, top-k, top-p over what those left, min-p; greedy
// rows keep their best token. One workgroup of up to 512 a row, or several for the first pass where neither top-k nor
// top-p is wanted; sums in f32. Passes over the row:
//   1  greedy, plain temperature;
//   2  min-p or top-n-sigma alone, and top-k <= 1024 or top-p where the kept set lies within the best 1024 (at times a
//      few more) tokens: those are collected, sorted and cut;
//   5  top-k > 1024 alone; 6 with top-p, and for top-p that keeps more: exact cuts by digits of the keys.
// Without top-p top-n-sigma is a min-p: both drop tokens too far below the best one. With top-p it is a top-k whose k is
// counted in one more pass (two where k > 1024).
#version 460
#pragma use_vulkan_memory_model
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#include "types.glsl"
#include "reduce.glsl"
#include "logits_row.glsl"
#include "row_best.glsl"
#include "row_select.glsl"
#include "row_slices.glsl"

shared uint num_kept, cutoff_id;

struct Result {
  uint key, id;  // of the last kept token: its place
  float sum;     // of the kept weights
  uint support;
};

// The first tokens of the sorted pool that top-p and min-p keep, of `count`; `total` is the mass top-p speaks of, or 0
// for that of the pool. `cut`: whether there is a token in the pool that they drop.
Result cut_pool(uint count, float total, float top_p, float log_min_p, out bool cut) {
  uint me = gl_LocalInvocationID.x, each = (count + gl_WorkGroupSize.x - 1u) / gl_WorkGroupSize.x;
  uint begin = min(me * each, count), end = min(begin + each, count), mine = 0u;
  if (me == 0u) num_kept = 1u;
  float own = 0.0, pool_sum;
  for (uint i = begin; i < end; ++i) own += weight(pool[i]);
  float sum = scan_before(own, pool_sum), target = top_p * (total > 0.0 ? total : pool_sum);
  for (uint i = begin; i < end; ++i) {
    bool by_min_p = (number_of(pool[i]) - row_best) * row_scale >= log_min_p;
    if (by_min_p && (top_p >= 1.0 || sum < target)) mine = i + 1u;
    sum += weight(pool[i]);
  }
  if (mine > 0u) atomicMax(num_kept, mine);
  group_barrier();
  uint support = num_kept;
  own = 0.0;
  for (uint i = begin; i < min(end, support); ++i) own += weight(pool[i]);
  cut = support < count || (top_p < 1.0 && pool_sum >= target);
  return Result(pool[support - 1u], pool[kPoolMax + support - 1u], group_sum(own), support);
}

// Ties are counted by stretch of the row: this many loads of the whole workgroup.
uint stretch_loads() {
  uint load_tokens = 4u * gl_WorkGroupSize.x;
  return (num_places / load_tokens / kDigits + 1u + kLoads - 1u) / kLoads * kLoads;
}

// The id of the n-th token with the key, from those counts.
uint nth_tie(uint key, uint n) {
  float before, in_quads;
  uint stretch = find_bin(kDigits, kOfCounts, 0u, float(n), before);
  [[dont_unroll]] for (uint j = 0; j < stretch_loads(); ++j) {
    uint quad = (stretch * stretch_loads() + j) * gl_WorkGroupSize.x + gl_LocalInvocationID.x, found = 0u;
    uvec4 keys = keys_of(load_quad(quad));
    for (uint c = 0; c < 4u; ++c) found += keys[c] == key ? 1u : 0u;
    uint rank = uint(before + scan_before(float(found), in_quads));
    for (uint c = 0; c < 4u; ++c)
      if (keys[c] == key && ++rank == n) cutoff_id = 4u * quad + c;
    before += in_quads;
  }
  group_barrier();
  return cutoff_id;
}

// One pass: what min-p leaves of a cut.
Result finish(Cut cut, float log_min_p) {
  bool some_ties = cut.ties < cut.num_ties;
  clear_pool(kCountsAt, kCountsAt + kDigits);
  Sum sum = Sum(0.0, 0.0);
  uint support = 0u, last = 0xffffffffu;
  for (uint quad = gl_LocalInvocationID.x; 4u * quad < num_places;) {
    Loads loads = load(quad);
    uint stretch = quad / gl_WorkGroupSize.x / stretch_loads();
    [[dont_unroll]] for (uint j = 0; j < kLoads; ++j, quad += gl_WorkGroupSize.x) {
      uvec4 keys = keys_of(loads.now);
      turn(loads);
      [[unroll]] for (uint c = 0; c < 4u; ++c) {
        uint key = keys[c];
        if (key == cut.key && some_ties) atomicAdd(pool[kCountsAt + stretch], 1u);
        if (key <= cut.key || (number_of(key) - row_best) * row_scale < log_min_p) continue;
        add(sum, weight(key));
        ++support;
        last = min(last, key);
      }
    }
  }
  Result result = Result(group_min_uint(last), kAllIds, group_sum(sum.value - sum.excess), group_sum_uint(support));
  if (cut.ties == 0u || (number_of(cut.key) - row_best) * row_scale < log_min_p) return result;
  result.key = cut.key;
  result.sum += float(cut.ties) * weight(cut.key);
  result.support += cut.ties;
  if (some_ties) result.id = nth_tie(cut.key, cut.ties);
  return result;
}

void put(uint row, Result result, float log_sum, uint flags, uint num_listed) {
  if (gl_LocalInvocationID.x != 0u) return;
  bool good = flags == 0u;
  uint first = row * kKeptWords;
  kept.w[first + kKeptCutoff] = good ? floatBitsToUint(number_of(result.key)) : 0u;
  kept.w[first + kKeptCutoffId] = good ? token_at(result.id) : 0u;
  kept.w[first + kKeptMax] = good ? floatBitsToUint(row_best) : 0u;
  kept.w[first + kKeptLogSum] = floatBitsToUint(good ? log_sum : 0.0);
  kept.w[first + kKeptSupport] = good ? result.support : 0u;
  kept.w[first + kKeptFlags] = flags;
  kept.w[first + kKeptListed] = num_listed;
  kept.w[first + kKeptSpare] = 0u;
}

void list(uint row, uint i, uint key, uint place) {
  candidates.w[2u * kListMax * row + i] = key;
  candidates.w[2u * kListMax * row + kListMax + i] = token_at(place);
}

bool any_finite() {
  uint finite = 0u;
  for (uint quad = gl_LocalInvocationID.x; 4u * quad < num_places; quad += gl_WorkGroupSize.x) {
    uvec4 keys = keys_of(load_quad(quad));
    [[unroll]] for (uint c = 0; c < 4u; ++c) finite |= keys[c] > kMasked && keys[c] < kInfinite ? 1u : 0u;
  }
  return group_or(finite) != 0u;
}

// How many tokens lie at most `reach` below the best one.
uint count_within(float reach) {
  uint count = 0u;
  for (uint quad = gl_LocalInvocationID.x; 4u * quad < num_places; quad += gl_WorkGroupSize.x) {
    uvec4 keys = keys_of(load_quad(quad));
    [[unroll]] for (uint c = 0; c < 4u; ++c)
      if (keys[c] > kMasked && row_best - number_of(keys[c]) <= reach) ++count;
  }
  return group_sum_uint(count);
}

// Whether this group is the last of the row's; then `own`, of its slice, becomes that of the row.
bool gather_slices(uint row, bool want_sum, bool want_spread, inout Overview own) {
  uint me = gl_LocalInvocationID.x, at = slice_word(row, gl_WorkGroupID.y);
  Slices slices = Slices(candidates);
  if (me == 0u) {
    slices.w[at] = own.key;
    slices.w[at + 1u] = own.id;
    slices.w[at + 2u] = own.second_key;
    slices.w[at + 3u] = own.num_alive;
    slices.w[at + 4u] = floatBitsToUint(own.sum);
    slices.w[at + 5u] = floatBitsToUint(own.mean);
    slices.w[at + 6u] = floatBitsToUint(own.squares);
  }
  if (!arrives_last(arrivals, row, gl_NumWorkGroups.y)) return false;
  own = kNoOverview;
  at = slice_word(row, me);
  if (me < gl_NumWorkGroups.y)
    own = Overview(slices.w[at], slices.w[at + 1u], slices.w[at + 2u], slices.w[at + 3u],
                   uintBitsToFloat(slices.w[at + 4u]), uintBitsToFloat(slices.w[at + 5u]),
                   uintBitsToFloat(slices.w[at + 6u]), uvec4(kNoToken));
  join(own, want_sum, want_spread);
  return true;
}

void main() {
  uint row = gl_WorkGroupID.x;
  if (row >= inputs.w[kSmpNumRecords]) return;
  uint record = inputs.w[kSmpRecords] + row * kSampleWords, state = inputs.w[record + kRecordSlot] * kRowWords;
  bool is_processed = (rows.w[state + kRowFlags] & kFlagProcessed) != 0u;
  float temperature = uintBitsToFloat(rows.w[state + kRowTemperature]);
  float top_p = uintBitsToFloat(rows.w[state + kRowTopP]), min_p = uintBitsToFloat(rows.w[state + kRowMinP]);
  float top_n_sigma = uintBitsToFloat(rows.w[state + kRowTopNSigma]);
  uint top_k = rows.w[state + kRowTopK];
  set_row(is_processed ? processed : logits, row);
  set_mask(record);
  row_scale = 1.0 / temperature;
  if (top_k >= vocab_size) top_k = 0u;

  const Result kNone = Result(0u, 0u, 0.0, 0u);
  bool greedy = temperature == 0.0, ranks = !greedy && top_k > kListMax, by_sigma = !greedy && top_n_sigma > 0.0;
  bool sliced = gl_NumWorkGroups.y > 1u && (greedy || (top_k == 0u && top_p >= 1.0));
  if (!sliced && gl_WorkGroupID.y > 0u) return;
  if (ranks) clear_pool(kCountsAt, kCountsAt + kDigits);
  uvec2 quads = sliced ? slice_quads() : uvec2(0u, num_quads());
  Overview all = overview(quads.x, quads.y, !greedy, by_sigma, ranks);
  if (sliced && !gather_slices(row, !greedy, by_sigma, all)) return;
  if (all.key <= kMasked && (is_processed || mask_kind != kNoMask)) {  // all is banned, or nothing was there before
    set_row(logits, row);
    put(row, kNone, 0.0, any_finite() ? kResultEmptySupport : kResultNotFinite, 0u);
    return;
  }
  if (all.key <= kMasked || all.key >= kInfinite) {
    put(row, kNone, 0.0, kResultNotFinite, 0u);
    return;
  }
  if (greedy) {
    if (gl_LocalInvocationID.x == 0u) {
      list(row, 0u, all.key, all.id);
      list(row, 1u, all.second_key, kAllIds);
    }
    put(row, Result(all.key, all.id, 0.0, 1u), 0.0, 0u, 2u);
    return;
  }

  if (top_k >= all.num_alive) top_k = 0u;
  float log_min_p = min_p > 0.0 ? min(log(min_p), 0.0) : -kInfinity;
  if (by_sigma) {
    float reach = top_n_sigma * sqrt(all.squares / float(all.num_alive));
    if (top_p >= 1.0) {
      log_min_p = max(log_min_p, -reach * row_scale);
    } else {
      uint within = count_within(reach);
      if (within < (top_k > 0u ? top_k : all.num_alive)) top_k = within;
      if (!ranks && top_k > kListMax) tally(0u, 0u, kMasked, kNoLevel, 0u, 0u);
    }
  }
  Result result = Result(kMasked + 1u, kAllIds, all.sum, all.num_alive);
  Cut cut = Cut(kMasked, 0u, 0u);  // everything
  bool done = top_k == 0u && top_p >= 1.0 && log_min_p == -kInfinity, by_min_p = top_k == 0u && top_p >= 1.0 && !done;
  uint num_listed = 0u;
  if (!done && !by_min_p && top_k <= kListMax) {
    uint count = collect_best(top_k > 0u ? top_k : kListMax, kMasked + 1u, all.stripes);
    bool has_all = top_k > 0u || count == all.num_alive;
    if (top_k > 0u) count = top_k;
    result = cut_pool(count, has_all ? 0.0 : all.sum, top_p, log_min_p, done);
    done = done || has_all;
    if (done && result.support <= kListMax) num_listed = result.support;
    for (uint i = gl_LocalInvocationID.x; i < num_listed; i += gl_WorkGroupSize.x)
      list(row, i, pool[i], pool[kPoolMax + i]);
  }
  if (!done) {
    if (!by_min_p) cut = select(top_k, top_p);
    result = finish(cut, log_min_p);
  }
  put(row, result, log(result.sum), 0u, num_listed);
}
