// The exact cutoff of a row whose kept set is larger than what filter sorts: a descent over the 32 bits of the ordered
// logits in digits of 11, 11 and 10 bits, by count (top-k, min-p) or by mass (top-p). Masses are exp((logit - max) /
// temperature) in units of 2^-40, summed as integers.
//
// Passes over the row: one for the first digit, which all descents share and which counts what min-p keeps; two for
// each descent; one more only if equal logits straddle the cut. A whole block calls it, with its dynamic shared memory.
#pragma once

#include "backends/cuda/intrinsics.cuh"
#include "backends/cuda/rank.cuh"
#include "backends/cuda/sampling.cuh"

namespace llmrt::cuda {

using Mass = unsigned long long;
inline constexpr double kMassUnit = 1099511627776.0;  // 2^40: the mass of the best token

inline constexpr uint32_t kDigits = 2048;
struct DigitTable {
  Mass mass[kDigits];
  uint32_t count[kDigits];
  uint32_t place[kDigits];  // of one of them, where the digit is the last: exact where count is 1
};
inline constexpr uint32_t kRadixSharedBytes = 2 * sizeof(DigitTable);

// What is sought: the first value, from the best down, at which `target` tokens or this much mass is reached.
struct Target {
  bool by_mass;
  Mass amount;
};
// All tokens with a larger logit, and those with this one.
struct Cut {
  uint32_t key;
  uint32_t above, equal;  // counts
  Mass mass_above;
  uint32_t place;  // when equal is 1
};

class RadixSelect {
 public:
  __device__ RadixSelect(const SampledRow& row, float max_logit, DigitTable* tables)
      : row_(row), soften_(max_logit, row.sampling.temperature), first_(tables[0]), later_(tables[1]) {}

  __device__ Mass mass_of(float logit) const {
    return static_cast<Mass>(static_cast<double>(soften_(logit)) * kMassUnit);
  }

  // Counts the digits of the logits (not -inf) whose bits above `shift + bits` are `prefix`; visit(logit) for each.
  template <class Visit>
  __device__ void fill(DigitTable& table, int shift, int bits, uint32_t prefix, Visit visit) {
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < kDigits; i += kRankThreads) {
      table.mass[i] = 0;
      table.count[i] = 0;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < row_.places.count(); i += kRankThreads) {
      const float l = row_.places.logit_at(i);
      const uint32_t key = ordered(l);
      const bool matches = shift + bits == 32 || key >> (shift + bits) == prefix;
      if (!(l > -INFINITY) || !matches) continue;
      visit(l);
      const uint32_t digit = key >> shift & ((1u << bits) - 1);
      atomicAdd(&table.mass[digit], mass_of(l));
      atomicAdd(&table.count[digit], 1u);
      if (shift == 0) atomicExch(&table.place[digit], i);
    }
    __syncthreads();
  }

  // Returns how many tokens have exp((logit - max) / temperature) of at least min_p.
  __device__ uint32_t fill_first() {
    __shared__ uint32_t scratch[kRankThreads / kWarp];
    const double min_log = row_.sampling.min_p > 0 ? log(static_cast<double>(row_.sampling.min_p)) : -INFINITY;
    uint32_t count = 0;
    fill(first_, 21, 11, 0, [&](float l) {
      const double below = static_cast<double>(l) - static_cast<double>(soften_.max);
      count += below / static_cast<double>(row_.sampling.temperature) >= min_log;
    });
    return max(block_reduce(count, SumOf(), scratch), 1u);
  }

  // The digit in which the target is reached; adds what is above it to *cut.
  __device__ uint32_t find(const DigitTable& table, const Target& target, Cut* cut) {
    __shared__ Mass mass_scratch[kRankThreads / kWarp];
    __shared__ uint32_t count_scratch[kRankThreads / kWarp];
    __shared__ uint32_t found;
    __shared__ Mass found_mass;
    __shared__ uint32_t found_count;
    __syncthreads();
    if (threadIdx.x == 0) found = kDigits;
    // Thread i has the digits 2047 - 2i and 2046 - 2i.
    const uint32_t high = kDigits - 1 - 2 * threadIdx.x;
    const Mass mass = table.mass[high] + table.mass[high - 1];
    const uint32_t count = table.count[high] + table.count[high - 1];
    const Mass mass_above = cut->mass_above + block_prefix_sum(mass, mass_scratch) - mass;
    const uint32_t above = cut->above + block_prefix_sum(count, count_scratch) - count;
    const auto reached = [&](Mass m, uint32_t c) { return (target.by_mass ? m : Mass{c}) >= target.amount; };
    Mass m = mass_above;
    uint32_t c = above;
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t digit = high - i;
      const bool here =
          table.count[digit] > 0 && !reached(m, c) && reached(m + table.mass[digit], c + table.count[digit]);
      if (here) {
        found = digit;
        found_mass = m;
        found_count = c;
      }
      m += table.mass[digit];
      c += table.count[digit];
    }
    __syncthreads();
    if (found < kDigits) {
      cut->mass_above = found_mass;
      cut->above = found_count;
    }
    return found;
  }

  __device__ Cut descend(const Target& target) {
    Cut cut{};
    const uint32_t a = find(first_, target, &cut);
    const auto ignore = [](float) {};
    fill(later_, 10, 11, a, ignore);
    const uint32_t b = find(later_, target, &cut);
    fill(later_, 0, 10, a << 11 | b, ignore);
    const uint32_t c = find(later_, target, &cut);
    cut.key = a << 21 | b << 10 | c;
    cut.equal = later_.count[c];
    cut.place = later_.place[c];
    return cut;
  }

  // The place of the nth token (from 1) with this logit.
  __device__ uint32_t nth_equal(uint32_t key, uint32_t n) {
    __shared__ uint32_t scratch[kRankThreads / kWarp];
    __shared__ uint32_t found;
    uint32_t before = 0;
    for (uint32_t base = 0; base < row_.places.count(); base += kRankThreads) {
      const uint32_t place = base + threadIdx.x;
      const bool equal = place < row_.places.count() && ordered(row_.places.logit_at(place)) == key;
      const uint32_t rank = before + block_prefix_sum(equal ? 1u : 0u, scratch);
      if (equal && rank == n) found = place;
      before += static_cast<uint32_t>(__syncthreads_count(equal));
      if (before >= n) break;
    }
    return found;
  }

  __device__ const DigitTable& first() const { return first_; }

 private:
  const SampledRow& row_;
  Softener soften_;
  DigitTable& first_;
  DigitTable& later_;
};

// How many tokens are kept; the last of them and the sum of exp((logit - max) / temperature) over all of them.
// `num_finite` tokens are not -inf.
__device__ inline uint32_t radix_select(const SampledRow& row, float max_logit, uint32_t num_finite, Rank* last,
                                        double* sum) {
  __shared__ Mass scratch[kRankThreads / kWarp];
  const RowSampling& s = row.sampling;
  RadixSelect select(row, max_logit, reinterpret_cast<DigitTable*>(dynamic_shared()));
  const uint32_t min_p_count = select.fill_first();
  const uint32_t limit = s.top_k > 0 && s.top_k < num_finite ? s.top_k : num_finite;

  Cut cut{};
  uint32_t kept = min(limit, min_p_count);
  bool done = false;
  if (s.top_p < 1) {
    Mass total;
    if (limit < num_finite) {
      const Cut at_k = select.descend({false, limit});
      total = at_k.mass_above + (limit - at_k.above) * select.mass_of(from_ordered(at_k.key));
    } else {
      const DigitTable& first = select.first();
      total = block_reduce(first.mass[2 * threadIdx.x] + first.mass[2 * threadIdx.x + 1], SumOf(), scratch);
    }
    const Mass wanted = static_cast<Mass>(ceil(static_cast<double>(s.top_p) * static_cast<double>(total)));
    const Mass target = max(min(wanted, total), Mass{1});
    cut = select.descend({true, target});
    const Mass unit = max(select.mass_of(from_ordered(cut.key)), Mass{1});
    const Mass needed = (target - cut.mass_above + unit - 1) / unit;  // of the equal ones; at least 1
    const uint32_t top_p_count = cut.above + static_cast<uint32_t>(min(needed, Mass{cut.equal}));
    done = top_p_count <= kept;
    kept = min(kept, top_p_count);
  }
  if (!done) cut = select.descend({false, kept});
  const uint32_t nth = kept - cut.above;
  const uint32_t place = cut.equal == 1 ? cut.place : select.nth_equal(cut.key, nth);
  const float cutoff = from_ordered(cut.key);
  *last = rank_of(cutoff, row.places.token_at(place));
  *sum = static_cast<double>(cut.mass_above + nth * select.mass_of(cutoff)) / kMassUnit;
  return kept;
}

}  // namespace llmrt::cuda
