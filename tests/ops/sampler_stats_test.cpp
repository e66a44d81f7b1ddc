// The sampler by statistics: draws of each configuration on every device against the distribution worked out here,
// chi-square, p > 1e-4: 1e6 draws of the plain one, and 2.5e5 of each that changes which tokens may come or their
// logits, as the noise is the same. Seeds are fixed, so a pass stays a pass. Equal replay alone would pass a biased
// sampler.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string_view>

#include "core/backend/validating.h"
#include "tests/ops/sampling_cases.h"
#include "tests/ops/statistics.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {
namespace {

constexpr uint32_t kVocab = 24, kRows = 256, kDrawsPlain = 1000000, kDraws = 250000;

struct Config {
  const char* name;
  SampleRow row;
};

std::vector<float> fixed_logits() {
  std::vector<float> logits(kVocab);
  for (uint32_t v = 0; v < kVocab; ++v)
    logits[v] = 2.5f * std::sin(1.7f * static_cast<float>(v)) + (v % 5 == 0 ? 0.5f : 0.0f);
  return logits;
}

std::vector<Config> configs() {
  std::vector<Config> all;
  const auto add = [&](const char* name, auto change) {
    SampleRow row{name, {}, fixed_logits()};
    change(row);
    all.push_back({name, std::move(row)});
  };
  add("greedy", [](SampleRow& r) { r.sampling.temperature = 0; });
  add("plain", [](SampleRow&) {});
  add("temperature", [](SampleRow& r) { r.sampling.temperature = 1.7f; });
  add("top-k", [](SampleRow& r) { r.sampling.top_k = 6; });
  add("top-p", [](SampleRow& r) { r.sampling.top_p = 0.8f; });
  add("min-p", [](SampleRow& r) { r.sampling.min_p = 0.1f; });
  add("all filters", [](SampleRow& r) {
    r.sampling.temperature = 0.6f, r.sampling.top_k = 15, r.sampling.top_p = 0.95f, r.sampling.min_p = 0.01f;
  });
  add("branch", [](SampleRow& r) { r.sampling.branch = 3; });
  add("penalties", [](SampleRow& r) {
    r.sampling.flags = kRowPenalties;
    r.sampling.repetition_penalty = 1.4f;
    r.sampling.presence_penalty = 0.6f;
    r.sampling.frequency_penalty = 0.2f;
    r.prompt_tokens = {1, 4, 7};
    r.output_tokens = {4, 9, 9, 10};
  });
  add("bias", [](SampleRow& r) {
    r.sampling.flags = kRowBias;
    r.bias = {{3, 2.0f}, {8, -INFINITY}, {0, -1.0f}};
  });
  // Token 1 is the best one, and denied.
  add("mask of bits", [](SampleRow& r) {
    r.mask = std::make_shared<RowMask>(RowMask{MaskKind::kBits, {0x00b5e9d4u}});
    r.sampling.top_p = 0.9f;
  });
  add("mask as a list", [](SampleRow& r) {
    r.mask = std::make_shared<RowMask>(RowMask{MaskKind::kList, {0, 2, 3, 7, 12, 13, 21, 23}});
    r.sampling.temperature = 2;
  });
  return all;
}

// The distribution by the definition, not by the reference's code.
std::vector<double> expected_distribution(const SampleRow& row) {
  const RowSampling& s = row.sampling;
  std::vector<double> l(row.logits.begin(), row.logits.end());
  if (s.flags & kRowPenalties)
    for (uint32_t v = 0; v < kVocab; ++v) {
      const auto output = std::count(row.output_tokens.begin(), row.output_tokens.end(), v);
      const auto prompt = std::count(row.prompt_tokens.begin(), row.prompt_tokens.end(), v);
      if (output + prompt > 0) l[v] = l[v] > 0 ? l[v] / s.repetition_penalty : l[v] * s.repetition_penalty;
      if (output > 0) l[v] -= s.presence_penalty + s.frequency_penalty * static_cast<double>(output);
    }
  for (const BiasEntry& entry : row.bias) l[static_cast<size_t>(entry.token)] += entry.bias;
  for (uint32_t v = 0; v < kVocab; ++v)
    if (row.mask && !row.mask->allows(v)) l[v] = -INFINITY;
  std::vector<size_t> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return l[a] > l[b]; });
  if (s.temperature == 0) order.resize(1);
  if (s.top_k > 0) order.resize(std::min<size_t>(s.top_k, order.size()));
  std::vector<double> p(kVocab, 0);
  const auto normalise = [&] {
    double sum = 0;
    for (size_t v : order) sum += p[v] = s.temperature == 0 ? 1 : std::exp(l[v] / s.temperature);
    for (double& x : p) x /= sum;
  };
  normalise();
  double mass = 0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || mass < s.top_p)) mass += p[order[count++]];
  const double best = p[order[0]];
  while (count > 1 && p[order[count - 1]] < s.min_p * best) --count;
  order.resize(count);
  std::fill(p.begin(), p.end(), 0);
  normalise();
  return p;
}

// Draws token by token: [step][row]. Row r has seed r, step s output position s.
Result<std::vector<std::vector<int32_t>>> draw(Backend& backend, const SampleRow& row, uint32_t num_steps) {
  std::vector<SampleRow> rows(kRows, row);
  for (uint32_t r = 0; r < kRows; ++r) rows[r].sampling.seed_lo = r;
  Case test_case = sampling_case(row.name, rows);
  Step& step = test_case.steps[0];
  step.sample.ops.pop_back();  // logprobs
  std::vector<double> values = step.fills[0].values;
  std::vector<float> logits(values.begin(), values.end());
  const auto* bytes = reinterpret_cast<const std::byte*>(logits.data());
  const SealedList forward(step.forward), sample(step.sample);
  if (Status status = backend.write_tensor(sample, step.fills[0].tensor, {bytes, logits.size() * 4}); !status)
    return status.error();
  std::vector<std::vector<int32_t>> tokens(num_steps);
  std::vector<uint32_t> forward_words, sample_words;
  for (uint32_t s = 0; s < num_steps; ++s) {
    // Penalty counts are set anew each step: the draws of the step before would change the distribution.
    if (s == 0 || !(row.sampling.flags & kRowPenalties)) {
      if (s == 1) step.forward_inputs.clear();
      pack(step.forward_inputs, &forward_words);
    }
    for (SampleRecord& record : step.sample_inputs.records) record.output_position = s;
    pack(step.sample_inputs, &sample_words);
    auto ticket = backend.submit({nullptr, &forward, forward_words, &sample, sample_words, kRows, false});
    if (!ticket) return ticket.error();
    auto output = backend.wait(*ticket);
    if (!output) return output.error();
    for (const SampleResult& result : output->results) tokens[s].push_back(result.token);
  }
  return tokens;
}

constexpr uint32_t kRunRecords = 4, kRunSlots = kRows / kRunRecords;

// What is drawn behind no draft, behind one, and so on: a grammar has a mask for each place.
struct RunConfig {
  const char* name;
  std::array<SampleRow, kRunRecords> places;

  bool is_same_everywhere() const {
    return std::ranges::all_of(places, [this](const SampleRow& row) { return row.mask == places[0].mask; });
  }
};

std::vector<RunConfig> run_configs() {
  std::vector<RunConfig> all;
  for (const Config& config : configs())
    if (std::string_view(config.name) == "plain" || std::string_view(config.name) == "all filters")
      all.push_back({config.name, {config.row, config.row, config.row, config.row}});
  RunConfig masked{"masks by place", all[0].places};
  masked.places[0].mask = std::make_shared<RowMask>(RowMask{MaskKind::kBits, {0x00b5e9d4u}});
  masked.places[1].mask = std::make_shared<RowMask>(RowMask{MaskKind::kList, {0, 2, 3, 7, 12, 13, 21, 23}});
  masked.places[3].mask = std::make_shared<RowMask>(RowMask{MaskKind::kBits, {0x004a162bu}});
  all.push_back(masked);
  return all;
}

std::vector<SampleRow> rows_of(const RunConfig& config) {
  std::vector<SampleRow> rows;
  for (uint32_t r = 0; r < kRows; ++r) rows.push_back(config.places[r % kRunRecords]);
  return rows;
}

Result<std::unique_ptr<Backend>> open_for(const std::string& device) {
  Suite suite;
  suite.penalty_rows_max = kRows;
  for (const Config& config : configs()) {
    std::vector<SampleRow> rows(kRows, config.row);
    suite.cases.push_back(sampling_case(config.name, rows));
  }
  for (const RunConfig& config : run_configs()) suite.cases.push_back(sampling_case(config.name, rows_of(config)));
  fit_suite(&suite);
  auto opened = open_test_device(device);
  if (!opened) return opened.error();
  auto backend = std::move(*opened);
  if (Status status = backend->load_weights(suite.weights, {}); !status) return status.error();
  if (Status status = backend->create_state(state_config(suite, *backend)); !status) return status.error();
  return backend;
}

using Draws = std::vector<std::vector<int32_t>>;

void check_distribution(const Draws& draws, const std::vector<double>& probabilities) {
  std::vector<double> counts(kVocab, 0);
  for (const auto& step : draws)
    for (int32_t token : step) {
      if (token < 0 || token >= static_cast<int32_t>(kVocab)) FAIL("token " << token);
      ++counts[static_cast<size_t>(token)];
    }
  CHECK(chi_square_p(counts, probabilities) > 1e-4);
}

constexpr size_t kClasses = 6;  // of tokens: every cell of a table of pairs then has its share of the draws

// Pairs of draws that are neighbours in seed (rows) and in position (steps) say nothing about each other.
void check_independence(const Draws& draws) {
  const auto table_of = [&](uint32_t row_step, uint32_t step_step) {
    std::vector<std::vector<double>> table(kClasses, std::vector<double>(kClasses, 0));
    for (size_t s = 0; s + step_step < draws.size(); ++s)
      for (size_t r = 0; r + row_step < kRows; r += 1 + row_step)
        ++table[static_cast<size_t>(draws[s][r]) % kClasses]
               [static_cast<size_t>(draws[s + step_step][r + row_step]) % kClasses];
    return table;
  };
  CHECK(independence_p(table_of(1, 0)) > 1e-4);
  CHECK(independence_p(table_of(0, 1)) > 1e-4);
  CHECK(independence_p(table_of(1, 1)) > 1e-4);
}

// The tokens of kRunSlots answers, drawn in runs: `num_steps` steps, each with three drafts for each slot, drawn here
// from another distribution; those behind a wrong one are dropped. by_place: the same by how many drafts stood before.
struct RunDraws {
  Draws answers, by_place;
};
Result<RunDraws> draw_in_runs(Backend& backend, const RunConfig& config, uint32_t num_steps, std::mt19937_64& rng) {
  Case test_case = sampling_case(config.name, rows_of(config));
  Step& step = test_case.steps[0];
  step.sample.ops.pop_back();  // logprobs
  for (uint32_t slot = 0; slot < kRunSlots; ++slot) {
    RowSampling sampling = config.places[0].sampling;
    sampling.seed_lo = 77 + slot;
    step.set_sampling(slot, sampling);
  }
  const std::vector<float> logits(step.fills[0].values.begin(), step.fills[0].values.end());
  const SealedList forward(step.forward), sample(step.sample);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(logits.data()), logits.size() * 4);
  if (Status status = backend.write_tensor(sample, step.fills[0].tensor, bytes); !status) return status.error();
  std::vector<std::discrete_distribution<int32_t>> drafters;
  for (const SampleRow& place : config.places) {
    std::vector<double> guess = expected_distribution(place);
    for (double& x : guess) x = std::sqrt(x);
    drafters.emplace_back(guess.begin(), guess.end());
  }
  RunDraws draws{Draws(kRunSlots), Draws(kRunRecords)};
  std::vector<uint32_t> forward_words, sample_words;
  for (uint32_t s = 0; s < num_steps; ++s) {
    if (s == 1) step.forward_inputs.clear();
    pack(step.forward_inputs, &forward_words);
    for (uint32_t r = 0; r < kRows; ++r) {
      SampleRecord& record = step.sample_inputs.records[r];
      const uint32_t place = r % kRunRecords;
      record.slot = r / kRunRecords;
      record.output_position = static_cast<uint32_t>(draws.answers[record.slot].size()) + place;
      record.flags = kSampleVerify | place << kSampleRunShift;
      record.forced_token = place + 1 < kRunRecords ? drafters[place](rng) : -1;
    }
    pack(step.sample_inputs, &sample_words);
    auto ticket = backend.submit({nullptr, &forward, forward_words, &sample, sample_words, kRows, false});
    if (!ticket) return ticket.error();
    auto output = backend.wait(*ticket);
    if (!output) return output.error();
    for (uint32_t slot = 0; slot < kRunSlots; ++slot) {
      for (uint32_t place = 0; place < kRunRecords; ++place) {
        const uint32_t r = slot * kRunRecords + place;
        draws.answers[slot].push_back(output->results[r].token);
        draws.by_place[place].push_back(output->results[r].token);
        if (output->results[r].token != step.sample_inputs.records[r].forced_token) break;
      }
    }
  }
  return draws;
}

}  // namespace

TEST_CASE("chi-square itself tells right from wrong", "[statistics]") {
  CHECK(std::abs(chi_square_tail(3.841, 1) - 0.05) < 1e-3);
  CHECK(std::abs(chi_square_tail(18.307, 10) - 0.05) < 1e-3);
  CHECK(std::abs(chi_square_tail(124.342, 100) - 0.05) < 1e-3);
  CHECK(chi_square_p({500, 500}, {0.5, 0.5}) == 1);
  CHECK(chi_square_p({5300, 4700}, {0.5, 0.5}) < 1e-4);
  CHECK(chi_square_p({1, 999}, {0, 1}) == 0);
  CHECK(independence_p({{500, 100}, {100, 500}}) < 1e-4);
  CHECK(independence_p({{250, 250}, {250, 250}}) > 0.99);
}

// A wrong filter, penalty or mask is told by far fewer draws than a million.
TEST_CASE("draws of distributions that differ by little are told", "[statistics]") {
  const auto all = configs();
  for (const Config& config : all) {
    if (config.row.sampling.temperature == 0) continue;
    INFO(config.name);
    const std::vector<double> right = expected_distribution(config.row);
    const auto p_of = [&](const std::vector<double>& drawn) {
      std::vector<double> counts;
      for (const double p : drawn) counts.push_back(std::round(p * kDraws));
      return chi_square_p(counts, right);
    };
    CHECK(p_of(right) > 0.99);
    SampleRow warmer = config.row;
    warmer.sampling.temperature *= 1.1f;
    CHECK(p_of(expected_distribution(warmer)) < 1e-4);
    std::vector<double> without_last = right;  // the least likely of the tokens that may come
    double* last = nullptr;
    for (double& p : without_last)
      if (p > 0 && (!last || p < *last)) last = &p;
    const double rest = 1 - *last;
    *last = 0;
    for (double& p : without_last) p /= rest;
    CHECK(p_of(without_last) < 1e-4);
  }
}

TEST_CASE("draws follow the distribution", "[sampler_stats]") {
  const auto devices = test_devices();
  if (devices.empty()) SKIP("no device");
  std::string skipped;
  for (const std::string& device : devices) {
    auto backend = open_for(device);
    INFO(device << ": " << (backend ? "" : backend.error().message));
    REQUIRE(backend.ok());
    for (const Config& config : configs()) {
      const bool is_plain = std::string_view(config.name) == "plain";
      // One token decides greedy: a few draws show it.
      const uint32_t num_draws = config.row.sampling.temperature == 0 ? kRows * 16 : is_plain ? kDrawsPlain : kDraws;
      const auto draws = draw(**backend, config.row, (num_draws + kRows - 1) / kRows);
      if (!draws && draws.error().code == ErrorCode::kUnsupported) {
        skipped += device + ": " + draws.error().message + "\n";
        break;
      }
      INFO(device << ": " << config.name << (draws ? "" : ": " + draws.error().message));
      REQUIRE(draws.ok());
      check_distribution(*draws, expected_distribution(config.row));
      if (is_plain) check_independence(*draws);
    }
  }
  if (!skipped.empty()) SKIP(skipped);
}

// LLMRT_TEST_DRAWS=1000000 for more of them.
TEST_CASE("draws that are verified in runs follow the distribution, whatever was drafted", "[sampler_stats][drafts]") {
  const auto devices = test_devices();
  if (devices.empty()) SKIP("no device");
  const char* asked = std::getenv("LLMRT_TEST_DRAWS");
  const auto num_draws = static_cast<uint32_t>(asked ? std::atoi(asked) : 60000);
  std::mt19937_64 rng(99);
  for (const std::string& device : devices) {
    auto backend = open_for(device);
    INFO(device << ": " << (backend ? "" : backend.error().message));
    REQUIRE(backend.ok());
    for (const RunConfig& config : run_configs()) {
      const auto draws = draw_in_runs(**backend, config, num_draws / kRunSlots, rng);
      INFO(device << ": " << config.name << (draws ? "" : ": " + draws.error().message));
      REQUIRE(draws.ok());
      if (config.is_same_everywhere()) check_distribution(draws->answers, expected_distribution(config.places[0]));
      std::vector<std::vector<double>> pairs(kClasses, std::vector<double>(kClasses, 0));
      for (const auto& answer : draws->answers)
        for (size_t i = 0; i + 1 < answer.size(); ++i)
          ++pairs[static_cast<size_t>(answer[i]) % kClasses][static_cast<size_t>(answer[i + 1]) % kClasses];
      if (std::string_view(config.name) == "plain") CHECK(independence_p(pairs) > 1e-4);
      for (uint32_t place = 0; place < kRunRecords; ++place) {
        INFO("behind " << place << " drafts: " << draws->by_place[place].size());
        check_distribution({draws->by_place[place]}, expected_distribution(config.places[place]));
      }
      CHECK(draws->by_place[2].size() > num_draws / 500);
    }
  }
}

}  // namespace llmrt::optest
