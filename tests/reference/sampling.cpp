// apply_penalties, apply_bias, filter, sample, logprobs: one record, one row, in the fixed order. Logits are the f32
// numbers that a device has; everything after them is double, but the noise, which is gumbel.inc itself.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "core/sample/gumbel.h"
#include "tests/reference/machine.h"

namespace llmrt::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr uint32_t kKeptWords = sizeof(FilterResult) / 4;

const RowSampling& sampling_of(const Machine& m, uint32_t r) {
  return m.slots[m.sample.records[r].slot].sampling;
}

void put_kept(Tensor& kept, uint32_t r, const FilterResult& result) {
  int32_t words[kKeptWords];
  std::memcpy(words, &result, sizeof(result));
  std::copy(words, words + kKeptWords, kept.row(r));
}
FilterResult get_kept(const Tensor& kept, uint32_t r) {
  int32_t words[kKeptWords];
  std::transform(kept.row(r), kept.row(r) + kKeptWords, words, [](double w) { return static_cast<int32_t>(w); });
  return std::bit_cast<FilterResult>(words);
}

bool is_kept(const FilterResult& kept, float logit, int32_t token) {
  return logit > kept.cutoff || (logit == kept.cutoff && token <= kept.cutoff_id);
}

// log of the sum of exp((l - base) / temperature) over `ids`.
double log_sum(const std::vector<float>& logits, const std::vector<int32_t>& ids, double base, double temperature) {
  double best = -kInfinity, sum = 0;
  for (int32_t id : ids) best = std::max(best, (logits[static_cast<size_t>(id)] - base) / temperature);
  for (int32_t id : ids) sum += std::exp((logits[static_cast<size_t>(id)] - base) / temperature - best);
  return best + std::log(sum);
}

// Of a kept token.
double scaled_logprob(double logit, double temperature, const FilterResult& kept) {
  return (logit - kept.max_logit) / temperature - kept.log_sum;
}

bool no_number(float logit) {
  return std::isnan(logit) || logit == static_cast<float>(kInfinity);
}
bool broken(const std::vector<float>& raw) {
  return std::any_of(raw.begin(), raw.end(), no_number) ||
         std::none_of(raw.begin(), raw.end(), [](float l) { return std::isfinite(l); });
}

// The row's logits, those that its mask denies being -inf. A forced token is not drawn, so no mask denies it.
std::vector<float> masked(const Machine& m, uint32_t r, std::vector<float> logits) {
  const SampleRecord& record = m.sample.records[r];
  if (record.mask < 0 || record.flags & kSampleForced) return logits;
  const MaskRecord& mask = m.sample.mask_records[static_cast<size_t>(record.mask)];
  const auto words = std::span(m.sample.mask_words).subspan(mask.first, mask.count);
  for (uint32_t v = 0; v < logits.size(); ++v) {
    const bool allowed = mask.kind == MaskKind::kList ? std::binary_search(words.begin(), words.end(), v)
                                                      : v / 32 < words.size() && (words[v / 32] >> (v % 32) & 1u) != 0;
    if (!allowed) logits[v] = static_cast<float>(-kInfinity);
  }
  return logits;
}

std::vector<float> to_f32(const double* row, uint32_t count) {
  return {row, row + count};
}

// The least logit at most n standard deviations below the best; `ids` are all tokens that are not -inf.
double least_within_sigma(double n, const std::vector<float>& logits, const std::vector<int32_t>& ids) {
  double mean = 0, squares = 0;
  for (const int32_t id : ids) mean += logits[static_cast<size_t>(id)] / static_cast<double>(ids.size());
  for (const int32_t id : ids) squares += std::pow(logits[static_cast<size_t>(id)] - mean, 2);
  return logits[static_cast<size_t>(ids.front())] - n * std::sqrt(squares / static_cast<double>(ids.size()));
}

// What the parameters keep of the tokens, best first: `ids` is cut to the kept ones.
void keep(const RowSampling& s, const std::vector<float>& logits, std::vector<int32_t>* ids) {
  if (s.top_n_sigma > 0) {
    const double least = least_within_sigma(s.top_n_sigma, logits, *ids);
    while (ids->size() > 1 && logits[static_cast<size_t>(ids->back())] < least) ids->pop_back();
  }
  if (s.top_k > 0 && s.top_k < ids->size()) ids->resize(s.top_k);
  if (s.top_p < 1) {
    const double best = logits[static_cast<size_t>(ids->front())];
    const double total = log_sum(logits, *ids, best, s.temperature);
    double sum = 0;
    size_t count = 0;
    while (count < ids->size() && (count == 0 || sum < s.top_p))
      sum += std::exp((logits[static_cast<size_t>((*ids)[count++])] - best) / s.temperature - total);
    ids->resize(count);
  }
  if (s.min_p > 0) {
    const double best = logits[static_cast<size_t>(ids->front())];
    while ((logits[static_cast<size_t>(ids->back())] - best) / s.temperature < std::log(s.min_p)) ids->pop_back();
  }
}

// How often the token is a draft of the records that stand before this one in its run.
uint32_t drafts_before(const Machine& m, uint32_t r, uint32_t token) {
  const auto run = std::span(m.sample.records).first(r).last(m.sample.records[r].flags >> kSampleRunShift);
  return static_cast<uint32_t>(std::ranges::count(run, static_cast<int32_t>(token), &SampleRecord::forced_token));
}

}  // namespace

std::vector<float> logits_row(Machine& m, TensorId logits, TensorId processed, uint32_t r) {
  const Tensor& tensor = m.tensor(sampling_of(m, r).flags & kRowProcessed ? processed : logits);
  return masked(m, r, to_f32(tensor.row(r), tensor.columns));
}

Status run(Machine& m, const ApplyPenalties& op) {
  const Tensor& logits = m.tensor(op.logits);
  for (uint32_t r = 0; r < m.live(op.logits); ++r) {
    const RowSampling& s = sampling_of(m, r);
    if (!(s.flags & kRowProcessed)) continue;
    const bool penalties = s.flags & kRowPenalties;
    if (penalties && static_cast<size_t>(s.penalty_slot) >= m.penalty_counts.size())
      return make_error(ErrorCode::kInvalidArgument, "apply_penalties: penalty_slot {} of {}", s.penalty_slot,
                        m.penalty_counts.size());
    for (uint32_t v = 0; v < logits.columns; ++v) {
      double l = static_cast<float>(logits.row(r)[v]);
      if (penalties) {
        const PenaltyCounts& counts = m.penalty_counts[static_cast<size_t>(s.penalty_slot)];
        const uint32_t in_output = counts.output[v] + drafts_before(m, r, v);
        if (counts.prompt[v] + in_output > 0) l = l > 0 ? l / s.repetition_penalty : l * s.repetition_penalty;
        if (in_output > 0) l -= s.presence_penalty + static_cast<double>(s.frequency_penalty) * in_output;
      }
      m.tensor(op.processed).row(r)[v] = static_cast<float>(l);
    }
  }
  return {};
}

Status run(Machine& m, const ApplyBias& op) {
  Tensor& processed = m.tensor(op.processed);
  for (uint32_t r = 0; r < m.live(op.processed); ++r) {
    const SampleRecord& record = m.sample.records[r];
    if (!(sampling_of(m, r).flags & kRowBias)) continue;
    for (uint32_t i = record.bias_first; i < record.bias_first + record.num_bias; ++i) {
      const BiasEntry& entry = m.sample.bias_entries[i];
      if (static_cast<uint32_t>(entry.token) >= processed.columns)
        return make_error(ErrorCode::kInvalidArgument, "apply_bias: token {} of {}", entry.token, processed.columns);
      double& l = processed.row(r)[entry.token];
      l = static_cast<float>(l + entry.bias);
    }
  }
  return {};
}

Status run(Machine& m, const Filter& op) {
  Tensor& kept = m.tensor(op.kept);
  for (uint32_t r = 0; r < m.live(op.logits); ++r) {
    const RowSampling& s = sampling_of(m, r);
    const std::vector<float> raw = to_f32(m.tensor(op.logits).row(r), m.tensor(op.logits).columns);
    const std::vector<float> logits = logits_row(m, op.logits, op.processed, r);
    FilterResult result{};
    std::vector<int32_t> ids;
    for (size_t v = 0; v < logits.size(); ++v)
      if (logits[v] > -kInfinity) ids.push_back(static_cast<int32_t>(v));
    const std::vector<float> allowed = masked(m, r, raw);
    const bool any_finite = std::any_of(raw.begin(), raw.end(), [](float l) { return std::isfinite(l); });
    if (!any_finite || std::any_of(allowed.begin(), allowed.end(), no_number)) {
      result.flags = kResultNotFinite;
    } else if (ids.empty()) {
      result.flags = kResultEmptySupport;
    } else {
      std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
        const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
        return la > lb || (la == lb && a < b);
      });
      const bool greedy = s.temperature == 0;
      if (greedy)
        ids.resize(1);
      else
        keep(s, logits, &ids);
      result.max_logit = logits[static_cast<size_t>(ids.front())];
      result.cutoff = logits[static_cast<size_t>(ids.back())];
      result.cutoff_id = ids.back();
      result.support = static_cast<uint32_t>(ids.size());
      result.log_sum = greedy ? 0.0f : static_cast<float>(log_sum(logits, ids, result.max_logit, s.temperature));
    }
    put_kept(kept, r, result);
  }
  return {};
}

namespace {

struct Draw {
  int32_t token = -1;
  double best = -kInfinity, second = -kInfinity;
};

// Greedy: the best two of all logits. Else the best two scores of the kept set.
Draw draw(const RowSampling& s, const SampleRecord& record, const FilterResult& kept,
          const std::vector<float>& logits) {
  const uint32_t key0 = noise_key(s.seed_lo, s.seed_hi, s.branch, record.output_position, 0);
  const uint32_t key1 = noise_key(s.seed_lo, s.seed_hi, s.branch, record.output_position, 1);
  Draw result;
  for (size_t v = 0; v < logits.size(); ++v) {
    const int32_t token = static_cast<int32_t>(v);
    if (s.temperature > 0 && !is_kept(kept, logits[v], token)) continue;
    const double score = s.temperature == 0 ? static_cast<double>(logits[v])
                                            : logits[v] / static_cast<double>(s.temperature) +
                                                  gumbel(noise_hash(key0, key1, static_cast<uint32_t>(token)));
    if (score > result.best) {
      result.second = result.best;
      result.best = score;
      result.token = token;
    } else {
      result.second = std::max(result.second, score);
    }
  }
  return result;
}

}  // namespace

Status run(Machine& m, const Sample& op) {
  for (uint32_t r = 0; r < m.live(op.logits); ++r) {
    const SampleRecord& record = m.sample.records[r];
    Slot& slot = m.slots[record.slot];
    const RowSampling& s = slot.sampling;
    const FilterResult kept = get_kept(m.tensor(op.kept), r);
    SampleResult result{-1, kept.flags, 0, 0, kept.support, 0, {}};
    if (kept.flags == 0) {
      const std::vector<float> logits = logits_row(m, op.logits, op.processed, r);
      if (record.flags & kSampleForced) {
        result.token = record.forced_token;
      } else {
        const Draw drawn = draw(s, record, kept, logits);
        result.token = drawn.token;
        result.margin = static_cast<float>(drawn.best - drawn.second);
        const bool writes = !(record.flags & kSampleVerify);
        if (writes) slot.last_token = drawn.token;
        if (writes && s.flags & kRowPenalties)
          ++m.penalty_counts[static_cast<size_t>(s.penalty_slot)].output[static_cast<size_t>(drawn.token)];
      }
      const float logit = logits[static_cast<size_t>(result.token)];
      const bool in_support = is_kept(kept, logit, result.token);
      result.processed_logprob = static_cast<float>(!in_support          ? -kInfinity
                                                    : s.temperature == 0 ? 0
                                                                         : scaled_logprob(logit, s.temperature, kept));
    }
    m.output.results[r] = result;
  }
  return {};
}

namespace {

// The best `count` of `ids`, each with what `logprob` makes of its logit.
template <class Fn>
LogprobRow best_of(const std::vector<float>& logits, std::vector<int32_t> ids, size_t count, Fn logprob) {
  LogprobRow row;
  for (auto& entry : row.entries) entry = {-1, 0};
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<long>(count), ids.end(), [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la > lb || (la == lb && a < b);
  });
  for (size_t i = 0; i < count; ++i)
    row.entries[i] = {ids[i], static_cast<float>(logprob(logits[static_cast<size_t>(ids[i])]))};
  return row;
}

}  // namespace

Status run(Machine& m, const Logprobs& op) {
  const Tensor& tensor = m.tensor(op.logits);
  for (uint32_t r = 0; r < m.live(op.logits); ++r) {
    SampleResult& result = m.output.results[r];
    if (!(m.sample.records[r].flags & kSampleLogprobs)) continue;
    std::vector<int32_t> ids(tensor.columns);
    std::iota(ids.begin(), ids.end(), 0);
    const std::vector<float> logits = to_f32(tensor.row(r), tensor.columns);
    const bool good = !broken(logits);
    if (!good && result.flags == 0) {  // the mask denies what is broken
      result.flags = kResultNotFinite;
      result.token = -1;
    }
    const double total = good ? log_sum(logits, ids, 0, 1) : 0;
    const auto raw_logprob = [total](double logit) { return logit - total; };
    LogprobRow row = best_of(logits, {}, 0, raw_logprob);
    if (good && result.token >= 0)
      result.logprob = static_cast<float>(logits[static_cast<size_t>(result.token)] - total);
    const FilterResult kept = get_kept(m.tensor(op.kept), r);
    if (!(m.sample.records[r].flags & kSampleProcessed)) {
      if (good) row = best_of(logits, ids, kLogprobsMax, raw_logprob);
    } else if (good && kept.flags == 0) {
      const float temperature = sampling_of(m, r).temperature;
      const std::vector<float> read = logits_row(m, op.logits, op.processed, r);
      std::erase_if(ids, [&](int32_t id) { return !is_kept(kept, read[static_cast<size_t>(id)], id); });
      if (temperature == 0)
        row.entries[0] = {kept.cutoff_id, 0};
      else
        row = best_of(read, ids, kLogprobsMax, [&](double logit) { return scaled_logprob(logit, temperature, kept); });
    }
    if (r < m.output.logprobs.size()) m.output.logprobs[r] = row;
  }
  return {};
}

}  // namespace llmrt::reference
