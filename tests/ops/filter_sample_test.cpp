// filter and sample over vocabularies from one token to 151,936: greedy, temperature, every filter and their mixtures
// over logits of every shape; ties, masks, broken logits; the noise bit for bit.
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "core/sample/gumbel.h"
#include "tests/ops/sampling_cases.h"

namespace llmrt::optest {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

RowSampling params(float temperature, uint32_t top_k, float top_p, float min_p, std::mt19937_64& rng) {
  RowSampling s;
  s.temperature = temperature;
  s.top_k = top_k;
  s.top_p = top_p;
  s.min_p = min_p;
  s.seed_lo = static_cast<uint32_t>(rng());
  s.seed_hi = static_cast<uint32_t>(rng());
  s.branch = static_cast<uint32_t>(rng() % 3);
  return s;
}

RowSampling with_sigma(float n, RowSampling s) {
  s.top_n_sigma = n;
  return s;
}

// Every kind of filter, alone and together.
std::vector<RowSampling> all_params(uint32_t vocab, std::mt19937_64& rng) {
  std::vector<RowSampling> all;
  for (float temperature : {0.0f, 1.0f, 0.7f, 0.01f, 1e-4f, 1e-6f, 50.0f})
    all.push_back(params(temperature, 0, 1, 0, rng));
  for (uint32_t top_k : {1u, 2u, 5u, 50u, 1023u, 1024u, 5000u, vocab, vocab + 10})
    all.push_back(params(0.8f, top_k, 1, 0, rng));
  for (float top_p : {1e-6f, 0.3f, 0.9f, 0.9999f}) all.push_back(params(1.1f, 0, top_p, 0, rng));
  for (float min_p : {0.001f, 0.05f, 0.5f, 1.0f}) all.push_back(params(0.9f, 0, 1, min_p, rng));
  for (float n : {1e-6f, 0.5f, 1.0f, 2.0f, 3.5f, 1000.0f}) {
    all.push_back(with_sigma(n, params(0.9f, 0, 1, 0, rng)));
    all.push_back(with_sigma(n, params(3, 0, 0.9f, 0, rng)));
  }
  all.push_back(with_sigma(1, params(1, 30, 1, 0, rng)));
  all.push_back(with_sigma(2, params(1.5f, 2000, 0.95f, 0.001f, rng)));
  all.push_back(with_sigma(3, params(50, 2000, 0.5f, 0, rng)));
  all.push_back(with_sigma(2, params(0, 0, 1, 0, rng)));  // greedy ignores it
  all.push_back(params(1, 40, 0.95f, 0.02f, rng));
  all.push_back(params(2.5f, 2000, 0.98f, 0.0001f, rng));
  all.push_back(params(0, 40, 0.5f, 0.1f, rng));  // greedy ignores the rest
  return all;
}

}  // namespace

TEST_CASE("filter keeps and sample draws the same on every device", "[filter][sample]") {
  const uint32_t vocab = GENERATE(1u, 2u, 31u, 1000u, 49152u, 151936u);
  auto rng = test_rng(fmt::format("filter {}", vocab));
  Suite suite;
  for (const std::string& shape : logits_shapes()) {
    if (vocab > 100000 && shape != "normal" && shape != "ties" && shape != "masked") continue;  // enough at 49,152
    std::vector<SampleRow> rows;
    for (const RowSampling& s : all_params(vocab, rng)) {
      rows.push_back(
          {fmt::format("{} T {} n {} k {} p {} m {}", shape, s.temperature, s.top_n_sigma, s.top_k, s.top_p, s.min_p),
           s, random_logits(shape, vocab, rng), static_cast<uint32_t>(rng() % 1000)});
      if (vocab < 49152 || rows.size() % 9 != 0) continue;  // large vocabularies in several small steps
      suite.cases.push_back(sampling_case(fmt::format("V {} {}", vocab, shape), rows, {.bucket = 16}));
      rows.clear();
    }
    if (!rows.empty())
      suite.cases.push_back(
          sampling_case(fmt::format("V {} {}", vocab, shape), rows, {.bucket = vocab < 49152 ? 64u : 8u}));
  }
  fit_suite(&suite);
  run(suite);
}

TEST_CASE("sample flags broken logits and empty support and leaves the other rows alone", "[filter][sample]") {
  const uint32_t vocab = GENERATE(1u, 31u, 49152u);
  auto rng = test_rng(fmt::format("broken {}", vocab));
  Suite suite;
  std::vector<SampleRow> rows;
  for (float temperature : {0.0f, 1.0f}) {
    const auto add = [&](const char* name, uint32_t at, float value) {
      SampleRow row{name, params(temperature, 0, 1, 0, rng), random_logits("normal", vocab, rng)};
      row.logits[at] = value;
      rows.push_back(row);
    };
    add("whole", 0, 0);
    add("NaN first", 0, kNan);
    add("NaN last", vocab - 1, kNan);
    add("+inf", vocab / 2, kInf);
    rows.push_back({"all -inf", params(temperature, 0, 1, 0, rng), std::vector<float>(vocab, -kInf)});
    add("-inf is a mask", 0, vocab > 1 ? -kInf : 1);
    SampleRow banned{"bias bans all", params(temperature, 0, 1, 0, rng), random_logits("masked", vocab, rng)};
    banned.sampling.flags = kRowBias;
    for (uint32_t v = 0; v < vocab; ++v)
      if (banned.logits[v] > -kInf) banned.bias.push_back({static_cast<int32_t>(v), -kInf});
    rows.push_back(banned);
  }
  suite.cases.push_back(sampling_case(fmt::format("broken V {}", vocab), rows, {.bucket = 16}));
  fit_suite(&suite);
  run(suite);
}

TEST_CASE("top-k takes ties at rank k by the lower id and greedy the lowest", "[filter][sample]") {
  auto rng = test_rng("ties");
  constexpr uint32_t kVocab = 5000;
  Suite suite;
  std::vector<SampleRow> rows;
  for (uint32_t top_k : {1u, 3u, 10u, 64u, 1000u, 1024u, 1500u, 4999u}) {
    // Three values only: rank k lies inside a long run of equals.
    std::vector<float> logits(kVocab);
    for (float& l : logits) l = static_cast<float>(rng() % 3);
    rows.push_back({fmt::format("top-k {}", top_k), params(1, top_k, 1, 0, rng), logits});
    rows.push_back({fmt::format("greedy {}", top_k), params(0, 0, 1, 0, rng), logits});
  }
  suite.cases.push_back(sampling_case("ties", rows));
  fit_suite(&suite);
  run(suite);
}

// Bans do not count in the deviation: with them the rows keep what they keep of the other tokens alone.
TEST_CASE("top-n-sigma leaves banned tokens out of the deviation and keeps ties of the last", "[filter][sample]") {
  auto rng = test_rng("sigma");
  constexpr uint32_t kVocab = 5000;
  Suite suite;
  std::vector<SampleRow> rows;
  const auto add = [&](std::string name, RowSampling s, auto logit_of, uint32_t num_banned) {
    SampleRow row{std::move(name), s, std::vector<float>(kVocab)};
    for (uint32_t v = 0; v < kVocab; ++v) row.logits[v] = logit_of(v);
    row.sampling.flags = num_banned > 0 ? uint32_t{kRowBias} : 0u;
    for (uint32_t v = 0; v < num_banned; ++v) row.bias.push_back({static_cast<int32_t>(v), -kInf});
    rows.push_back(std::move(row));
  };
  for (float top_p : {1.0f, 0.9f}) {
    // Deviation 1 and mean 0 among those that are not banned, so n = 2 is just the distance of the two kinds.
    const auto two = [](uint32_t v) { return v < 4000 ? 100.0f : v % 2 ? 1.0f : -1.0f; };
    for (float n : {1.9375f, 2.0625f})
      add(fmt::format("two kinds, n {} p {}", n, top_p), with_sigma(n, params(1, 0, top_p, 0, rng)), two, 4000);
    // Logits 0 to 9, each of a tenth: deviation 2.872. n = 1 keeps 7, 8 and 9, whole runs of equals.
    const auto steps = [](uint32_t v) { return 64 + static_cast<float>(v % 10); };
    add(fmt::format("steps p {}", top_p), with_sigma(1, params(5, 0, top_p, 0, rng)), steps, 0);
    add(fmt::format("steps k 700 p {}", top_p), with_sigma(1, params(5, 700, top_p, 0, rng)), steps, 0);
    add(fmt::format("steps k 1400 p {}", top_p), with_sigma(1, params(5, 1400, top_p, 0, rng)), steps, 0);
    // A mean far from 0, where squares of logits would have no digits left in f32.
    add(
        fmt::format("far p {}", top_p), with_sigma(2, params(1, 0, top_p, 0, rng)),
        [&rng](uint32_t) { return 4000 + static_cast<float>(rng() % 4096) / 512; }, 0);
    // No deviation at all: all are the best.
    add(
        fmt::format("equal p {}", top_p), with_sigma(1, params(1, 0, top_p, 0, rng)), [](uint32_t) { return 3.0f; }, 9);
  }
  suite.cases.push_back(sampling_case("sigma", rows));
  // A row alone is read in parts, whose deviations are put together.
  for (const SampleRow& row : rows) suite.cases.push_back(sampling_case(row.name, {row}));
  fit_suite(&suite);
  run(suite);
}

// As many as a step may sample where an engine is told so: what is kept for each row adds up.
TEST_CASE("filter and sample take thousands of rows", "[filter][sample]") {
  auto rng = test_rng("many rows");
  constexpr uint32_t kVocab = 40, kRows = 2100;
  Suite suite;
  std::vector<SampleRow> rows;
  for (uint32_t r = 0; r < kRows; ++r)
    rows.push_back({fmt::format("row {}", r), params(1, 1 + r % 5, 1, 0, rng), random_logits("normal", kVocab, rng)});
  suite.cases.push_back(sampling_case("many rows", rows));
  fit_suite(&suite);
  run(suite);
}

TEST_CASE("the noise is the same bit for bit", "[sample][noise]") {
  auto rng = test_rng("noise");
  Suite suite;
  const auto exact = [&suite](std::vector<SampleRow> rows, const char* name) {
    Case test_case = sampling_case(name, rows);
    test_case.check_results = [rows](const std::vector<StepOutput>& want, const std::vector<StepOutput>& got) {
      std::vector<std::string> failures;
      for (size_t r = 0; r < rows.size(); ++r) {
        const SampleResult &a = want[0].results[r], &b = got[0].results[r];
        if (a.token != b.token || std::bit_cast<uint32_t>(a.margin) != std::bit_cast<uint32_t>(b.margin))
          failures.push_back(fmt::format("row {}: expected token {} margin {:a}, found {} {:a}", r, a.token, a.margin,
                                         b.token, b.margin));
      }
      return failures;
    };
    suite.cases.push_back(std::move(test_case));
  };
  // Zero logits at temperature 1: scores are the noise itself and the margin its exact difference. Two tokens left per
  // row show the noise of any token; all tokens left show the largest.
  for (int round = 0; round < 4; ++round) {
    std::vector<SampleRow> pairs, all;
    for (int r = 0; r < 64; ++r) {
      std::vector<float> logits(2000, -kInf);
      logits[rng() % 2000] = 0;
      logits[rng() % 2000] = 0;
      pairs.push_back({"pair", params(1, 0, 1, 0, rng), logits, static_cast<uint32_t>(rng())});
      all.push_back({"all", params(1, 0, 1, 0, rng), std::vector<float>(2000, 0), static_cast<uint32_t>(rng() % 64)});
    }
    exact(pairs, "noise of pairs");
    exact(all, "largest noise");
  }
  fit_suite(&suite);
  run(suite);
}

}  // namespace llmrt::optest
