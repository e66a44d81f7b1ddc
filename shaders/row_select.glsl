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
  group_barrier();
  if (mine > 0u && mine == found_bin) found_before = mine_before;
  group_barrier();
  before = found_before;
  uint bin = max(found_bin, 1u) - 1u;
  group_barrier();
  return bin;
}

void clear_pool(uint begin, uint end) {
  group_barrier();
  for (uint i = begin + gl_LocalInvocationID.x; i < end; i += gl_WorkGroupSize.x) pool[i] = 0u;
  group_barrier();
}

// One pass: counts the keys above `count_above` that begin with count_prefix by the digit of count_level, and sums the
// weights of keys likewise. kNoLevel leaves one out.
void tally(uint count_level, uint count_prefix, uint count_above, uint mass_level, uint mass_prefix, uint mass_above) {
  clear_pool(0u, kCountsAt + kDigits);
  for (uint quad = gl_LocalInvocationID.x; 4u * quad < num_places;) {
    Loads loads = load(quad);
    [[dont_unroll]] for (uint j = 0; j < kLoads; ++j, quad += gl_WorkGroupSize.x) {
      uvec4 keys = keys_of(loads.now);
      turn(loads);
      [[dont_unroll]] for (uint c = 0; c < 4u; ++c, keys = keys.yzwx) {
        uint key = keys.x;
        if (count_level != kNoLevel && key > count_above && prefix_of(key, count_level) == count_prefix)
          atomicAdd(pool[kCountsAt + bin_of(key, count_level)], 1u);
        if (mass_level != kNoLevel && key > mass_above && prefix_of(key, mass_level) == mass_prefix)
          add_mass(bin_of(key, mass_level), weight(key));
      }
    }
  }
  group_barrier();
}

float total_mass() {
  float sum = 0.0;
  for (uint bin = gl_LocalInvocationID.x; bin < kDigits; bin += gl_WorkGroupSize.x) sum += mass_of(bin);
  return group_sum(sum);
}

// The set of the best tokens down to a key: those above it, and `ties` of the `num_ties` equal to it, by lower id.
struct Cut {
  uint key, ties, num_ties;
};

// The k best (0: all), then of those the best that reach the fraction p of their mass (1: all). By rank two passes, with
// counts of the first digit in the pool; the second also sums masses of the set by first digit. By mass two more, or
// three when there was no cut by rank.
Cut select(uint k, float p) {
  uint me = gl_LocalInvocationID.x;
  Cut set = Cut(kMasked, 0u, 0u);
  [[dont_unroll]] for (uint phase = k > 0u ? 0u : 1u; phase < (p < 1.0 ? 2u : 1u); ++phase) {
    bool by_mass = phase == 1u;
    uint prefix = 0u, bin = 0u;
    float need = float(k), before = 0.0;
    [[dont_unroll]] for (uint level = 0; level < 3u; ++level) {
      bool counts = !by_mass || level == 2u;
      if (level > 0u || (by_mass && k == 0u))
        tally(counts ? level : kNoLevel, prefix, set.key,
              by_mass ? counts ? kNoLevel : level : level == 2u && p < 1.0 ? 0u : kNoLevel, by_mass ? prefix : 0u,
              by_mass ? set.key : prefix << 10 | 0x3ffu);
      // The ties of a cut by rank are not above its key.
      if (me == 0u && level > 0u && set.ties > 0u && prefix_of(set.key, level) == prefix) {
        if (counts)
          pool[kCountsAt + bin_of(set.key, level)] = set.ties;
        else
          add_mass(bin_of(set.key, level), float(set.ties) * weight(set.key));
      }
      group_barrier();
      if (by_mass && level == 0u) need = p * total_mass();
      bin = find_bin(level == 2u ? 1024u : kDigits, !by_mass ? kOfCounts : counts ? kOfKeys : kOfMasses, prefix, need,
                     before);
      prefix = extend(prefix, bin, level);
      need -= before;
    }
    Cut cut = Cut(prefix, 0u, pool[kCountsAt + bin]);
    float ties = by_mass ? ceil(need / weight(cut.key)) : need;
    cut.ties = ties < float(cut.num_ties) ? max(uint(ties), 1u) : cut.num_ties;
    if (by_mass && cut.key == set.key) cut.num_ties = set.num_ties;
    set = cut;
    if (by_mass || p >= 1.0) continue;
    for (uint i = me; i <= bin; i += gl_WorkGroupSize.x) {
      uint key = extend(prefix >> 10, i, 2u), count = i == bin ? set.ties : pool[kCountsAt + i];
      if (count > 0u) add_mass(bin_of(key, 0u), float(count) * weight(key));
    }
  }
  return set;
}
