// Exact cuts of a row too wide for the pool, by digits of the keys: 11, 11 and 10 bits, level 0 to 2, one pass a digit.
// Bins lie best first. Masses (sums of weights) are fixed-point numbers of 64 bits, unit 2^-40, so that the order of
// addition does not matter: low words at pool[0 ..], high ones at pool[kDigits ..], counts at pool[kCountsAt ..].
const uint kNoLevel = 3;
const uint kOfCounts = 0, kOfMasses = 1, kOfKeys = 2;  // what a bin weighs: count, mass, or count * weight of its key

shared uint found_bin;
shared float found_before;

uint bin_of(uint key, uint level) {
  if (level == 0u) return kDigits - 1u - (key >> 21);
  return level == 1u ? kDigits - 1u - (key >> 10 & 0x7ffu) : 1023u - (key & 0x3ffu);
}
// The digits before `level`.
uint prefix_of(uint key, uint level) { return level == 0u ? 0u : level == 1u ? key >> 21 : key >> 10; }
uint extend(uint prefix, uint bin, uint level) {
  return level == 2u ? prefix << 10 | (1023u - bin) : prefix << 11 | (kDigits - 1u - bin);
}

void add_mass(uint bin, float mass) {
  float high = floor(mass * 256.0);
  uint low = uint((mass * 256.0 - high) * 4294967296.0);
  uint carry = atomicAdd(pool[bin], low) > ~low ? 1u : 0u;
  atomicAdd(pool[kDigits + bin], uint(high) + carry);
}
float mass_of(uint bin) { return float(pool[kDigits + bin]) * 0.00390625 + float(pool[bin]) * 9.094947e-13; }

float bin_weight(uint bin, uint kind, uint prefix) {
  if (kind == kOfMasses) return mass_of(bin);
  uint count = pool[kCountsAt + bin];
  if (kind == kOfCounts || count == 0u) return float(count);
  return float(count) * weight(extend(prefix, bin, 2u));
}

// The last bin with something in it whose predecessors weigh less than `target` (> 0), and what they weigh.
uint find_bin(uint num_bins, uint kind, uint prefix, float target, out float before) {
  uint me = gl_LocalInvocationID.x, each = (num_bins + gl_WorkGroupSize.x - 1u) / gl_WorkGroupSize.x;
  uint begin = min(me * each, num_bins), end = min(begin + each, num_bins);
  if (me == 0u) {
    found_bin = 0u;
    found_before = 0.0;
  }
  float own = 0.0, total;
  for (uint bin = begin; bin < end; ++bin) own += bin_weight(bin, kind, prefix);
  float sum = scan_before(own, total), mine_before = 0.0;
  uint mine = 0u;
  for (uint bin = begin; bin < end; ++bin) {
    float x = bin_weight(bin, kind, prefix);
    if (x > 0.0 && sum < target) {
      mine = bin + 1u;
      mine_before = sum;
    }
    sum += x;
  }
  if (mine > 0u) atomicMax(found_bin, mine);
  barrier();
  if (mine > 0u && mine == found_bin) found_before = mine_before;
  barrier();
  before = found_before;
  uint bin = max(found_bin, 1u) - 1u;
  barrier();
  return bin;
}

void clear_pool(uint begin, uint end) {
  barrier();
  for (uint i = begin + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) pool[i] = 0u;
  barrier();
}

// One pass over the keys above `above`: counts by the digit of `count_level` those that begin with count_prefix, and
// sums the weights of those that begin with mass_prefix likewise. kNoLevel leaves one out.
void tally(uint count_level, uint count_prefix, uint mass_level, uint mass_prefix, uint above, uint mass_above) {
  clear_pool(0u, kCountsAt + kDigits);
  for (uint base = gl_LocalInvocationID.x; 4u * base < vocab_size; base += kLoads * gl_WorkGroupSize.x) {
    uvec4 keys[kLoads];
    [[unroll]] for (uint j = 0; j < kLoads; ++j) keys[j] = load_keys(base + j * gl_WorkGroupSize.x);
    for (uint i = 0; i < 4u * kLoads; ++i) {
      uint key = keys[i / 4u][i % 4u];
      if (count_level != kNoLevel && key > above && prefix_of(key, count_level) == count_prefix)
        atomicAdd(pool[kCountsAt + bin_of(key, count_level)], 1u);
      if (mass_level != kNoLevel && key > mass_above && prefix_of(key, mass_level) == mass_prefix)
        add_mass(bin_of(key, mass_level), weight(key));
    }
  }
  barrier();
}

// The set of the best tokens down to a key: those above it, and `ties` of the `num_ties` equal to it, by lower id.
struct Cut {
  uint key, ties, num_ties;
};

// The k best, from counts of the first digit; two passes. With `want_masses` the second leaves the masses of the set by
// first digit in the pool.
Cut cut_at_rank(uint k, bool want_masses) {
  float need = float(k), before;
  uint bin = find_bin(kDigits, kOfCounts, 0u, need, before);
  uint prefix = extend(0u, bin, 0u);
  need -= before;
  tally(1u, prefix, kNoLevel, 0u, kMasked, 0u);
  bin = find_bin(kDigits, kOfCounts, 0u, need, before);
  prefix = extend(prefix, bin, 1u);
  need -= before;
  tally(2u, prefix, want_masses ? 0u : kNoLevel, 0u, kMasked, prefix << 10 | 0x3ffu);
  bin = find_bin(1024u, kOfCounts, 0u, need, before);
  Cut cut = Cut(extend(prefix, bin, 2u), uint(need - before), pool[kCountsAt + bin]);
  if (want_masses)
    for (uint i = gl_LocalInvocationID.x; i <= bin; i += gl_WorkGroupSize.x) {
      uint key = extend(prefix, i, 2u), count = i == bin ? cut.ties : pool[kCountsAt + i];
      if (count > 0u) add_mass(bin_of(key, 0u), float(count) * weight(key));
    }
  barrier();
  return cut;
}

// The best of `set` that reach the fraction p of its mass, from its masses by first digit; two passes.
Cut cut_at_mass(float p, Cut set) {
  float total = 0.0, before;
  for (uint bin = gl_LocalInvocationID.x; bin < kDigits; bin += gl_WorkGroupSize.x) total += mass_of(bin);
  float need = p * group_sum(total);
  uint bin = find_bin(kDigits, kOfMasses, 0u, need, before);
  uint prefix = extend(0u, bin, 0u);
  need -= before;
  tally(kNoLevel, 0u, 1u, prefix, 0u, set.key);
  if (gl_LocalInvocationID.x == 0u && set.ties > 0u && prefix_of(set.key, 1u) == prefix)
    add_mass(bin_of(set.key, 1u), float(set.ties) * weight(set.key));
  barrier();
  bin = find_bin(kDigits, kOfMasses, 0u, need, before);
  prefix = extend(prefix, bin, 1u);
  need -= before;
  tally(2u, prefix, kNoLevel, 0u, set.key, 0u);
  if (gl_LocalInvocationID.x == 0u && set.ties > 0u && prefix_of(set.key, 2u) == prefix)
    pool[kCountsAt + bin_of(set.key, 2u)] = set.ties;
  barrier();
  bin = find_bin(1024u, kOfKeys, prefix, need, before);
  Cut cut = Cut(extend(prefix, bin, 2u), 0u, pool[kCountsAt + bin]);
  float ties = ceil((need - before) / weight(cut.key));
  cut.ties = ties < float(cut.num_ties) ? max(uint(ties), 1u) : cut.num_ties;
  if (cut.key == set.key) cut.num_ties = set.num_ties;
  return cut;
}
