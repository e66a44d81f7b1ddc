#include "tests/ops/sampling_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace llmrt::optest {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

FilterResult kept_of(const std::vector<std::byte>& bytes, size_t r) {
  FilterResult result;
  std::memcpy(&result, bytes.data() + r * sizeof(result), sizeof(result));
  return result;
}
std::vector<float> row_of(const std::vector<std::byte>& bytes, size_t r, size_t columns) {
  std::vector<float> row(columns);
  std::memcpy(row.data(), bytes.data() + r * columns * 4, columns * 4);
  return row;
}

std::vector<bool> kept_set(const FilterResult& kept, const std::vector<float>& logits) {
  std::vector<bool> set(logits.size());
  for (size_t v = 0; v < logits.size(); ++v)
    set[v] = logits[v] > kept.cutoff || (logits[v] == kept.cutoff && static_cast<int32_t>(v) <= kept.cutoff_id);
  return set;
}

// How far below the best logit top-n-sigma keeps a token.
double reach_of(const RowSampling& s, const std::vector<float>& logits) {
  if (s.top_n_sigma <= 0) return std::numeric_limits<double>::infinity();
  double count = 0, mean = 0, squares = 0;
  for (const float l : logits) count += l > -kInf;
  for (const float l : logits) mean += l > -kInf ? l / count : 0;
  for (const float l : logits) squares += l > -kInf ? (l - mean) * (l - mean) : 0;
  return s.top_n_sigma * std::sqrt(squares / count);
}

// A token at the edge of a filter, where a rounding decides: `mass` is the probability before it, `reach` as above.
bool on_the_edge(const RowSampling& s, double logit, double max_logit, double mass, double reach) {
  if (std::isfinite(reach) && std::abs(max_logit - logit - reach) <= 1e-4 * reach) return true;
  const bool top_p = s.top_p < 1 && std::abs(mass - s.top_p) < 2e-5;
  const double distance = (logit - max_logit) / s.temperature - std::log(s.min_p);
  return top_p || (s.min_p > 0 && std::abs(distance) < 1e-4 * (1 + std::abs(std::log(s.min_p))));
}

// Probability of all tokens before each one (best first, ties by lower id), after top-n-sigma and top-k, as top-p sees
// it.
std::vector<double> mass_before(const RowSampling& s, const std::vector<float>& logits) {
  std::vector<size_t> ids(logits.size());
  for (size_t v = 0; v < ids.size(); ++v) ids[v] = v;
  std::stable_sort(ids.begin(), ids.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  size_t limit = s.top_k > 0 ? std::min<size_t>(s.top_k, ids.size()) : ids.size();
  const double best = logits[ids[0]], reach = reach_of(s, logits);
  while (limit > 1 && best - logits[ids[limit - 1]] > reach) --limit;
  double total = 0, sum = 0;
  for (size_t i = 0; i < limit; ++i) total += std::exp((logits[ids[i]] - best) / s.temperature);
  std::vector<double> before(logits.size(), 1);
  for (size_t i = 0; i < limit; ++i) {
    before[ids[i]] = sum / total;
    sum += std::exp((logits[ids[i]] - best) / s.temperature);
  }
  return before;
}

double log_sum_of(const RowSampling& s, const std::vector<float>& logits, const std::vector<bool>& set) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (size_t v = 0; v < logits.size(); ++v)
    if (set[v]) sum += std::exp((logits[v] - best) / s.temperature);
  return std::log(sum);
}

std::string judge_kept(const RowSampling& s, const std::vector<float>& logits, const FilterResult& want,
                       const FilterResult& got) {
  if (want.flags != got.flags) return fmt::format("flags: expected {}, found {}", want.flags, got.flags);
  if (want.flags != 0) return "";
  if (want.max_logit != got.max_logit)
    return fmt::format("max_logit: expected {}, found {}", want.max_logit, got.max_logit);
  const std::vector<bool> want_set = kept_set(want, logits), got_set = kept_set(got, logits);
  const auto count = static_cast<uint32_t>(std::count(got_set.begin(), got_set.end(), true));
  if (got.support != count)
    return fmt::format("support {}, but the cutoff {} id {} keeps {}", got.support, got.cutoff, got.cutoff_id, count);
  if (want_set != got_set) {
    if (s.temperature == 0) return fmt::format("greedy: expected id {}, found {}", want.cutoff_id, got.cutoff_id);
    const std::vector<double> before = mass_before(s, logits);
    const double reach = reach_of(s, logits);
    for (size_t v = 0; v < logits.size(); ++v)
      if (want_set[v] != got_set[v] && !on_the_edge(s, logits[v], want.max_logit, before[v], reach))
        return fmt::format("token {} (logit {}): expected {}, found {}; support expected {}, found {}", v, logits[v],
                           want_set[v] ? "kept" : "dropped", got_set[v] ? "kept" : "dropped", want.support,
                           got.support);
  }
  // Of the set that the device kept: one on the edge more or less is allowed.
  const double expected = want_set == got_set ? want.log_sum : log_sum_of(s, logits, got_set);
  if (!(std::abs(expected - got.log_sum) <= 2e-5 + 2e-6 * std::abs(expected)))
    return fmt::format("log_sum: expected {}, found {}", expected, got.log_sum);
  return "";
}

// Penalties and bias: a few roundings of the logit and of what was added to it, which may cancel.
std::string judge_processed(const SampleRow& row, const std::vector<float>& want, const std::vector<float>& got) {
  const std::vector<float>& raw = row.logits;
  for (size_t v = 0; v < want.size(); ++v) {
    if (std::isnan(want[v]) && std::isnan(got[v])) continue;
    if (want[v] == got[v]) continue;
    double magnitude = std::max({std::abs(raw[v]), std::abs(want[v]), std::abs(raw[v] - want[v])});
    for (const BiasEntry& entry : row.bias)
      if (entry.token == static_cast<int64_t>(v) && std::isfinite(entry.bias))
        magnitude = std::max<double>(magnitude, std::abs(entry.bias));
    if (!(std::abs(want[v] - got[v]) <= 5e-7 * magnitude))
      return fmt::format("processed[{}]: logit {}, expected {}, found {}", v, raw[v], want[v], got[v]);
  }
  return "";
}

bool near(double want, double got, double tolerance) {
  return want == got || std::abs(want - got) <= tolerance;
}

// A score is a sum of f32 numbers as large as the best logit over the temperature.
double score_ulp(const RowSampling& s, const std::vector<float>& logits) {
  const float best = *std::max_element(logits.begin(), logits.end());
  return 4e-7 * (8 + (s.temperature > 0 ? std::abs(best / s.temperature) : 0));
}

std::string judge_result(const RowSampling& s, const SampleRecord& record, const std::vector<float>& logits,
                         const FilterResult& want_kept, const FilterResult& got_kept, const SampleResult& want,
                         const SampleResult& got) {
  if (want.flags != got.flags) return fmt::format("result flags: expected {}, found {}", want.flags, got.flags);
  if (want.flags != 0) return got.token == -1 ? "" : fmt::format("an error with token {}", got.token);
  const bool forced = record.flags & kSampleForced;
  const double ulp = score_ulp(s, logits);
  // Where the kept sets differ (judge_kept has seen to it that only tokens on the edge do), so may what follows.
  const std::vector<bool> want_set = kept_set(want_kept, logits), got_set = kept_set(got_kept, logits);
  const auto on_one_side = [&](int32_t token) {
    return want_set[static_cast<size_t>(token)] != got_set[static_cast<size_t>(token)];
  };
  if (want.token != got.token) {
    if (!forced && s.temperature > 0 && want.margin < 2 * ulp) return "";  // two scores that f32 can not tell apart
    if (!forced && (on_one_side(want.token) || on_one_side(got.token))) return "";
    return fmt::format("token: expected {}, found {} (margin {})", want.token, got.token, want.margin);
  }
  if (want.support != got.support && s.top_p >= 1 && s.min_p <= 0 && s.top_n_sigma <= 0)
    return fmt::format("support: expected {}, found {}", want.support, got.support);
  // The runner-up may be far below the best.
  if (want_set == got_set && !near(want.margin, got.margin, 2 * ulp + 2e-7 * std::abs(want.margin)))
    return fmt::format("margin: expected {}, found {}", want.margin, got.margin);
  const double logprob = want.processed_logprob + want_kept.log_sum - got_kept.log_sum;
  if (!on_one_side(want.token) && !near(logprob, got.processed_logprob, 5e-5 + 2e-6 * std::abs(logprob)))
    return fmt::format("processed_logprob: expected {}, found {}", logprob, got.processed_logprob);
  if (!near(want.logprob, got.logprob, 5e-5 + 2e-6 * std::abs(want.logprob)))
    return fmt::format("logprob: expected {}, found {}", want.logprob, got.logprob);
  return "";
}

// `shift` is added to what is wanted.
std::string judge_logprobs(const LogprobRow& want, const LogprobRow& got, double shift) {
  for (uint32_t i = 0; i < kLogprobsMax; ++i) {
    const auto &a = want.entries[i], &b = got.entries[i];
    if (a.token != b.token) return fmt::format("logprobs[{}]: expected token {}, found {}", i, a.token, b.token);
    if (a.token >= 0 && !near(a.logprob + shift, b.logprob, 5e-5 + 2e-6 * std::abs(a.logprob)))
      return fmt::format("logprobs[{}]: token {}: expected {}, found {}", i, a.token, a.logprob + shift, b.logprob);
  }
  return "";
}

// The record of the mask, -1 for none. Around its words lie some that would allow more.
int32_t add_mask(const RowMaskPtr& mask, std::map<RowMaskPtr, int32_t>* known, SampleInputs* inputs) {
  if (!mask) return -1;
  const auto [at, is_new] = known->emplace(mask, static_cast<int32_t>(inputs->mask_records.size()));
  if (!is_new) return at->second;
  const uint32_t poison = mask->kind == MaskKind::kBits ? 0xffffffffu : 0u;
  std::vector<uint32_t>& words = inputs->mask_words;
  words.push_back(poison);
  inputs->mask_records.push_back(
      {mask->kind, static_cast<uint32_t>(words.size()), static_cast<uint32_t>(mask->words.size())});
  words.insert(words.end(), mask->words.begin(), mask->words.end());
  words.insert(words.end(), 5, poison);
  return at->second;
}

void set_rows(const std::vector<SampleRow>& rows, Step* step) {
  int32_t penalty_slot = 0;
  std::map<RowMaskPtr, int32_t> masks;
  for (uint32_t r = 0; r < rows.size(); ++r) {
    RowSampling sampling = rows[r].sampling;
    if (sampling.flags & kRowPenalties) {
      sampling.penalty_slot = penalty_slot++;
      std::vector<uint32_t> tokens = rows[r].prompt_tokens;
      tokens.insert(tokens.end(), rows[r].output_tokens.begin(), rows[r].output_tokens.end());
      step->add_update(RowUpdateKind::kRecount, r, static_cast<uint32_t>(sampling.penalty_slot),
                       static_cast<uint32_t>(rows[r].prompt_tokens.size()), tokens);
    }
    step->set_sampling(r, sampling);
    const uint32_t bias_first = static_cast<uint32_t>(step->sample_inputs.bias_entries.size());
    step->sample_inputs.records.push_back({r, 0, rows[r].output_position, rows[r].flags, rows[r].forced_token,
                                           bias_first, static_cast<uint32_t>(rows[r].bias.size()),
                                           add_mask(rows[r].mask, &masks, &step->sample_inputs)});
    step->sample_inputs.bias_entries.insert(step->sample_inputs.bias_entries.end(), rows[r].bias.begin(),
                                            rows[r].bias.end());
  }
}

}  // namespace

bool RowMask::allows(uint32_t token) const {
  if (kind == MaskKind::kList) return std::binary_search(words.begin(), words.end(), token);
  return token / 32 < words.size() && (words[token / 32] >> (token % 32) & 1u) != 0;
}

RowMaskPtr random_mask(MaskKind kind, uint32_t vocab, uint32_t num_allowed, std::mt19937_64& rng) {
  std::vector<uint32_t> tokens(vocab);
  for (uint32_t v = 0; v < vocab; ++v) tokens[v] = v;
  std::shuffle(tokens.begin(), tokens.end(), rng);
  tokens.resize(std::min(num_allowed, vocab));
  std::sort(tokens.begin(), tokens.end());
  if (kind == MaskKind::kList) return std::make_shared<RowMask>(RowMask{kind, std::move(tokens)});
  const bool is_short = rng() % 2 != 0;
  std::vector<uint32_t> words(!is_short ? (vocab + 31) / 32 : tokens.empty() ? 0 : tokens.back() / 32 + 1);
  for (const uint32_t v : tokens) words[v / 32] |= 1u << (v % 32);
  return std::make_shared<RowMask>(RowMask{kind, std::move(words)});
}

Case sampling_case(std::string name, const std::vector<SampleRow>& rows, SamplingCase options) {
  const uint32_t vocab = static_cast<uint32_t>(rows.at(0).logits.size());
  Case test_case;
  test_case.name = std::move(name);
  Step step;
  step.want_logprobs = options.logprobs;
  set_rows(rows, &step);
  step.forward.ops = {UpdateRows{}};
  step.set_bucket(1, std::max(options.bucket, 1u));
  std::vector<double> values;
  for (const SampleRow& row : rows) values.insert(values.end(), row.logits.begin(), row.logits.end());
  const TensorId logits = step.input(Rows::kSampled, "logits", vocab, DType::kF32, std::move(values));
  const TensorId processed = step.output(Rows::kSampled, "processed", vocab, DType::kF32, Tolerance::kElementwise);
  const TensorId kept = step.output(Rows::kSampled, "kept", sizeof(FilterResult) / 4, DType::kI32, Tolerance::kExact);
  step.sample.ops = {ApplyPenalties{logits, processed}, ApplyBias{processed}, Filter{logits, processed, kept},
                     Sample{logits, processed, kept}, Logprobs{logits, processed, kept}};
  const std::vector<SampleRecord> records = step.sample_inputs.records;
  test_case.steps = {std::move(step)};

  test_case.check_tensors = [rows, vocab, processed, kept, records, options](const Outcome& want, const Outcome& got) {
    std::vector<std::string> failures;
    for (size_t r = 0; r < rows.size(); ++r) {
      const RowSampling& s = rows[r].sampling;
      const auto note = [&](const std::string& failure) {
        if (!failure.empty()) failures.push_back(fmt::format("row {} ({}): {}", r, rows[r].name, failure));
      };
      // From here on each side is judged by the logits that it read: its own processed ones may be off by a rounding.
      std::vector<float> read = rows[r].logits;
      if (s.flags & kRowProcessed) {
        const std::vector<float> want_processed = row_of(want.tensors[0].at(processed), r, vocab);
        read = row_of(got.tensors[0].at(processed), r, vocab);
        note(judge_processed(rows[r], want_processed, read));
        if (read != want_processed) continue;  // later differences follow from that rounding
      }
      for (uint32_t v = 0; v < vocab; ++v)
        if (rows[r].mask && !rows[r].mask->allows(v)) read[v] = -kInf;
      const FilterResult want_kept = kept_of(want.tensors[0].at(kept), r),
                         got_kept = kept_of(got.tensors[0].at(kept), r);
      note(judge_kept(s, read, want_kept, got_kept));
      note(judge_result(s, records[r], read, want_kept, got_kept, want.outputs[0].results.at(r),
                        got.outputs[0].results.at(r)));
      if (!options.logprobs || !(records[r].flags & kSampleLogprobs) || want.outputs[0].results[r].flags != 0) continue;
      double shift = 0;
      if (records[r].flags & kSampleProcessed) {
        if (kept_set(want_kept, read) != kept_set(got_kept, read)) continue;  // judge_kept has said whether it may
        shift = static_cast<double>(want_kept.log_sum) - static_cast<double>(got_kept.log_sum);
      }
      note(judge_logprobs(want.outputs[0].logprobs.at(r), got.outputs[0].logprobs.at(r), shift));
    }
    return failures;
  };
  return test_case;
}

void fit_suite(Suite* suite) {
  for (const Case& test_case : suite->cases) {
    for (const Step& step : test_case.steps) {
      for (const RowUpdate& update : step.forward_inputs.row_updates) {
        suite->slots_max = std::max(suite->slots_max, update.slot + 1);
        if (update.kind == RowUpdateKind::kRecount)
          suite->penalty_rows_max = std::max(suite->penalty_rows_max, update.arg0 + 1);
      }
      for (const TensorDesc& tensor : step.sample.tensors)
        if (tensor.name == "logits") suite->vocab_size = std::max(suite->vocab_size, tensor.columns);
    }
  }
}

std::vector<std::string> logits_shapes() {
  return {"normal", "ties", "equal", "spike", "huge", "masked"};
}

std::vector<float> random_logits(const std::string& shape, uint32_t vocab, std::mt19937_64& rng) {
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(vocab);
  for (float& l : logits) {
    l = normal(rng);
    if (shape == "ties") l = std::round(l * 2) / 2;
    if (shape == "equal") l = -1.25f;
    if (shape == "huge") l *= 1e4f;
    if (shape == "masked" && rng() % 16 != 0) l = -kInf;
  }
  if (shape == "spike") logits[rng() % vocab] = 60;
  if (shape == "masked") logits[rng() % vocab] = 1;
  return logits;
}

}  // namespace llmrt::optest
