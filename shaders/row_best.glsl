// The first pass over a row (its best token, the sum of its weights, the spread of its logits) and its best tokens in
// order. The weight of a token
// is exp((logit - best logit) * row_scale), 0 for a masked one. Sums have a fixed order, so they repeat bit for bit.
const uint kPoolMax = 2048;    // the pool below, as (key, id); at least 4 stripes an invocation
const uint kCountsAt = 4096;   // where counts by digit lie in the pool (row_select.glsl)
const uint kDigits = 2048;
const uint kGroupMax = 512;

shared uint pool[kCountsAt + kDigits];
shared uint num_pooled;
shared float scan_sums[kGroupMax];

float row_scale, row_best;  // 1 / temperature, the best logit

float weight(uint key) { return key > kMasked ? exp((number_of(key) - row_best) * row_scale) : 0.0; }

// A sum that keeps what its rounding drops (Kahan): beside a weight of 1 the tail's many small ones would vanish.
struct Sum {
  float value, excess;  // the sum is value - excess
};

void add(inout Sum sum, float x) {
  precise float y = x - sum.excess, value = sum.value + y, excess = (value - sum.value) - y;
  sum = Sum(value, excess);
}

// The sum of x over the invocations before this one, and over all.
float scan_before(float x, out float total) {
  uint me = gl_LocalInvocationID.x;
  group_barrier();
  scan_sums[me] = x;
  group_barrier();
  for (uint step = 1; step < gl_WorkGroupSize.x; step *= 2) {
    float before = me >= step ? scan_sums[me - step] : 0.0;
    group_barrier();
    scan_sums[me] += before;
    group_barrier();
  }
  total = scan_sums[gl_WorkGroupSize.x - 1];
  return me > 0 ? scan_sums[me - 1] : 0.0;
}

struct Overview {
  uint key, id;     // of the best token, ties by lower id; ids are places (logits_row.glsl), in the pool too
  uint second_key;  // of the next one
  uint num_alive;   // not masked
  float sum;        // of the weights
  float mean, squares;  // of the logits that are not masked; the sum of the squares of their distances from it
  uvec4 stripes;    // this invocation's own: the best keys of tokens 4 quad + c of its quads
};

// The overviews of all invocations as one, in each of them. Sets row_best.
void join(inout Overview o, bool want_sum, bool want_spread) {
  uint own_best = o.key, own_id = o.id;
  float own_alive = float(o.num_alive);
  o.key = group_max_uint(own_best);
  o.id = group_min_uint(own_best == o.key ? own_id : kAllIds);
  o.second_key = group_max_uint(own_id == o.id ? o.second_key : own_best);
  row_best = number_of(o.key);
  if (!want_sum) return;
  o.sum = group_sum(o.sum * weight(own_best));
  o.num_alive = group_sum_uint(o.num_alive);
  if (!want_spread) return;
  float own_mean = own_alive > 0.0 ? o.mean - row_best : 0.0;  // a slice may be masked as a whole
  float mean = group_sum(own_alive * own_mean) / max(float(o.num_alive), 1.0);
  o.squares = group_sum(o.squares + own_alive * (own_mean - mean) * (own_mean - mean));
  o.mean = row_best + mean;
}

const Overview kNoOverview = Overview(kNoToken, kAllIds, kNoToken, 0u, 0.0, 0.0, 0.0, uvec4(kNoToken));

// One pass over quads `begin` to `end`. `want_spread`: only together with want_sum. `count_digits`: also counts keys by
// their first digit, pool[kCountsAt ...] being zero. Squares are of distances from the first logits at hand, so that they
// lose no digits to a mean far from 0.
Overview overview(uint begin, uint end, bool want_sum, bool want_spread, bool count_digits) {
  Overview o = kNoOverview;
  Sum sum = Sum(0.0, 0.0), distances = Sum(0.0, 0.0), squares = Sum(0.0, 0.0);
  float first = 0.0;
  for (uint quad = begin + gl_LocalInvocationID.x; quad < end;) {
    Loads loads = load(quad);
    [[dont_unroll]] for (uint j = 0; j < kLoads && quad < end; ++j, quad += gl_WorkGroupSize.x) {
      uvec4 keys = keys_of(loads.now);
      turn(loads);
      uint before = o.key;
      o.stripes = max(o.stripes, keys);
      [[unroll]] for (uint c = 0; c < 4u; ++c) {
        uint key = keys[c];
        o.second_key = max(o.second_key, min(key, o.key));
        if (key > o.key) {
          o.key = key;
          o.id = 4u * quad + c;
        }
        if (key > kMasked) {
          ++o.num_alive;
          if (count_digits) atomicAdd(pool[kCountsAt + kDigits - 1u - (key >> 21)], 1u);
        }
      }
      if (!want_sum) continue;
      row_best = number_of(o.key);
      if (o.key != before) sum = Sum(sum.value * weight(before), sum.excess * weight(before));
      add(sum, weight(keys.x) + weight(keys.y) + (weight(keys.z) + weight(keys.w)));
      if (!want_spread) continue;
      if (before <= kMasked) first = row_best;
      [[dont_unroll]] for (uint c = 0; c < 4u; ++c, keys = keys.yzwx) {
        if (keys.x <= kMasked) continue;
        float distance = number_of(keys.x) - first;
        add(distances, distance);
        add(squares, distance * distance);
      }
    }
  }
  o.sum = sum.value - sum.excess;
  if (want_spread && o.num_alive > 0u) {
    float mean = (distances.value - distances.excess) / float(o.num_alive);
    o.mean = first + mean;
    o.squares = max(squares.value - squares.excess - mean * mean * float(o.num_alive), 0.0);
  }
  join(o, want_sum, want_spread);
  return o;
}

bool ranks_before(uint key_a, uint id_a, uint key_b, uint id_b) {
  return key_a > key_b || (key_a == key_b && id_a < id_b);
}

// Orders the first `count` of the pool, best first (bitonic).
void sort_pool(uint count) {
  uint me = gl_LocalInvocationID.x, size = 2u;
  while (size < count) size *= 2u;
  for (uint i = count + me; i < size; i += gl_WorkGroupSize.x) {
    pool[i] = kNoToken;
    pool[kPoolMax + i] = kAllIds;
  }
  group_barrier();
  for (uint run = 2; run <= size; run *= 2)
    for (uint step = run / 2; step > 0; step /= 2) {
      for (uint i = me; i < size / 2; i += gl_WorkGroupSize.x) {
        uint a = 2u * i - (i & (step - 1u)), b = a + step;
        uint key_a = pool[a], id_a = pool[kPoolMax + a], key_b = pool[b], id_b = pool[kPoolMax + b];
        if (ranks_before(key_b, id_b, key_a, id_a) == ((a & run) == 0u)) {
          pool[a] = key_b;
          pool[kPoolMax + a] = id_b;
          pool[b] = key_a;
          pool[kPoolMax + b] = id_a;
        }
      }
      group_barrier();
    }
}

// One pass: the best tokens with a key of at least `least`, sorted in the pool; returns how many: all there are, or at
// least `wanted` (<= kPoolMax / 2). The wanted-th best of the stripes is a bound for the wanted-th best token, and about
// that many lie above it. Where they are more than the pool holds, the bound rises to the wanted-th best so far.
uint collect_best(uint wanted, uint least, uvec4 stripes) {
  uint me = gl_LocalInvocationID.x, bound_key = least, bound_id = kAllIds;
  if (wanted <= 4u * gl_WorkGroupSize.x) {
    [[unroll]] for (uint c = 0; c < 4u; ++c) {
      pool[4u * me + c] = stripes[c];
      pool[kPoolMax + 4u * me + c] = 4u * me + c;
    }
    group_barrier();
    sort_pool(4u * gl_WorkGroupSize.x);
    bound_key = max(least, pool[wanted - 1u]);
  }
  group_barrier();
  if (me == 0u) num_pooled = 0u;
  group_barrier();
  for (uint first = 0; 4u * first < num_places; first += kLoads * gl_WorkGroupSize.x) {
    Loads loads = load(first + me);
    uint placed = 0u;  // a bit a token
    for (;;) {
      [[dont_unroll]] for (uint j = 0; j < kLoads; ++j) {
        uvec4 keys = keys_of(loads.now);
        turn(loads);
        [[unroll]] for (uint c = 0; c < 4u; ++c) {
          uint key = keys[c], id = 4u * (first + me + j * gl_WorkGroupSize.x) + c, bit = 1u << (4u * j + c);
          if (key < bound_key || (key == bound_key && id > bound_id) || (placed & bit) != 0u) continue;
          uint place = id < num_places ? atomicAdd(num_pooled, 1u) : kPoolMax;
          if (place >= kPoolMax) continue;
          pool[place] = key;
          pool[kPoolMax + place] = id;
          placed |= bit;
        }
      }
      group_barrier();
      if (num_pooled <= kPoolMax) break;
      group_barrier();
      sort_pool(kPoolMax);
      bound_key = pool[wanted - 1u];
      bound_id = pool[kPoolMax + wanted - 1u];
      group_barrier();
      if (me == 0u) num_pooled = wanted;
      group_barrier();
    }
    group_barrier();
  }
  uint count = num_pooled;
  sort_pool(count);
  return count;
}
