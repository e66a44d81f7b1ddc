// Masks of tokens that may be drawn, as bits and as lists: every density over vocabularies with and without a tail,
// with every filter, penalties and bias, beside rows without a mask and rows that share one. Devices are compared with
// the reference, and no drawn token is one that is denied.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <limits>

#include "tests/ops/sampling_cases.h"
#include "tests/ops/test_devices.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr MaskKind kKinds[] = {MaskKind::kBits, MaskKind::kList};

RowSampling params(std::mt19937_64& rng, float temperature, uint32_t top_k = 0, float top_p = 1, float min_p = 0,
                   float top_n_sigma = 0) {
  RowSampling s;
  s.temperature = temperature;
  s.top_k = top_k;
  s.top_p = top_p;
  s.min_p = min_p;
  s.top_n_sigma = top_n_sigma;
  s.seed_lo = static_cast<uint32_t>(rng());
  s.seed_hi = static_cast<uint32_t>(rng());
  s.branch = static_cast<uint32_t>(rng() % 3);
  return s;
}

std::vector<RowSampling> all_params(std::mt19937_64& rng) {
  return {params(rng, 0),
          params(rng, 1),
          params(rng, 0.01f),
          params(rng, 0.8f, 1),
          params(rng, 0.8f, 40),
          params(rng, 2, 2000),
          params(rng, 1, 0, 0.9f),
          params(rng, 5, 0, 0.99f),
          params(rng, 2.5f, 2000, 0.95f),
          params(rng, 1, 0, 1, 0.05f),
          params(rng, 1, 0, 1, 0, 1.5f),
          params(rng, 3, 0, 0.9f, 0, 2),
          params(rng, 1.5f, 50, 0.9f, 0.01f, 2.5f)};
}

uint32_t random_flags(std::mt19937_64& rng) {
  constexpr uint32_t kChoices[] = {0, kSampleLogprobs, kSampleLogprobs | kSampleProcessed};
  return kChoices[rng() % 3];
}

std::string kind_name(MaskKind kind) {
  return kind == MaskKind::kBits ? "bits" : "list";
}

// One step with these rows, whose drawn tokens must be allowed ones.
Case mask_case(const std::string& name, const std::vector<SampleRow>& rows) {
  Case test_case = sampling_case(name, rows, {.bucket = static_cast<uint32_t>(rows.size()), .logprobs = true});
  test_case.check_results = [rows](const std::vector<StepOutput>&, const std::vector<StepOutput>& got) {
    std::vector<std::string> failures;
    for (size_t r = 0; r < rows.size(); ++r) {
      const SampleResult& result = got[0].results.at(r);
      if (result.flags == 0 && rows[r].mask && !rows[r].mask->allows(static_cast<uint32_t>(result.token)))
        failures.push_back(fmt::format("row {} ({}): drew token {}, which is denied", r, rows[r].name, result.token));
    }
    return failures;
  };
  return test_case;
}

void run_in_steps(const std::string& name, const std::vector<SampleRow>& rows, size_t rows_step) {
  Suite suite;
  for (size_t first = 0; first < rows.size(); first += rows_step) {
    const auto begin = rows.begin() + static_cast<long>(first);
    suite.cases.push_back(
        mask_case(name, {begin, begin + static_cast<long>(std::min(rows_step, rows.size() - first))}));
  }
  fit_suite(&suite);
  run(suite);
}

}  // namespace

TEST_CASE("what a mask denies is never drawn and counts in no filter", "[masks][filter][sample][logprobs]") {
  const uint32_t vocab = GENERATE(1u, 31u, 32u, 33u, 1000u, 49152u, 151936u);
  auto rng = test_rng(fmt::format("masks {}", vocab));
  const std::vector<std::string> shapes = logits_shapes();
  std::vector<SampleRow> rows;
  for (const uint32_t num_allowed : {0u, 1u, vocab / 100 + 1, vocab / 2, vocab - 1, vocab}) {
    for (const MaskKind kind : kKinds) {
      std::vector<RowSampling> all = all_params(rng);
      std::shuffle(all.begin() + 2, all.end(), rng);
      if (vocab > 1000) all.resize(num_allowed == 0 ? 2 : 6);  // greedy, plain temperature, and some filters
      RowMaskPtr mask;
      for (const RowSampling& s : all) {
        const std::string& shape = shapes[rng() % shapes.size()];
        SampleRow row{fmt::format("{} of {} T {} k {} p {} m {} n {} {}", kind_name(kind), num_allowed, s.temperature,
                                  s.top_k, s.top_p, s.min_p, s.top_n_sigma, shape),
                      s, random_logits(shape, vocab, rng), static_cast<uint32_t>(rng() % 1000), random_flags(rng)};
        if (!mask || rng() % 2 != 0) mask = random_mask(kind, vocab, num_allowed, rng);  // else shares the last one's
        if (rng() % 6 != 0) row.mask = mask;
        rows.push_back(std::move(row));
      }
    }
  }
  std::shuffle(rows.begin(), rows.end(), rng);
  run_in_steps(fmt::format("masks V {}", vocab), rows, vocab > 1000 ? 9 : 64);
}

// A row alone is read in parts where a device has cores for them.
TEST_CASE("a row alone has a mask in all its parts", "[masks][filter][sample][logprobs]") {
  const uint32_t vocab = GENERATE(49152u, 151937u);
  auto rng = test_rng(fmt::format("masks alone {}", vocab));
  std::vector<SampleRow> rows;
  for (const MaskKind kind : kKinds)
    for (const uint32_t num_allowed : {1u, 3u, vocab / 64, vocab / 3})
      for (const RowSampling& s : {params(rng, 0), params(rng, 1), params(rng, 1, 0, 1, 0, 2), params(rng, 1, 0, 0.9f)})
        rows.push_back({fmt::format("{} of {} T {}", kind_name(kind), num_allowed, s.temperature),
                        s,
                        random_logits("normal", vocab, rng),
                        7,
                        random_flags(rng),
                        -1,
                        {},
                        {},
                        {},
                        random_mask(kind, vocab, num_allowed, rng)});
  run_in_steps(fmt::format("masks alone V {}", vocab), rows, 1);
}

TEST_CASE("masks hold for logits with penalties and bias", "[masks][filter][sample][logprobs]") {
  const uint32_t vocab = GENERATE(33u, 1000u, 49152u);
  auto rng = test_rng(fmt::format("masks with changes {}", vocab));
  std::vector<SampleRow> rows;
  for (const MaskKind kind : kKinds) {
    for (const float temperature : {0.0f, 0.9f}) {
      const auto add = [&](const char* name, auto change) {
        SampleRow row{fmt::format("{} T {} {}", name, temperature, kind_name(kind)), params(rng, temperature),
                      random_logits("normal", vocab, rng), 5, kSampleLogprobs | kSampleProcessed};
        row.mask = random_mask(kind, vocab, vocab / 30 + 2, rng);
        change(row);
        rows.push_back(std::move(row));
      };
      const auto first_of = [&](const SampleRow& row, bool allowed) {
        uint32_t v = 0;
        while (row.mask->allows(v) != allowed) ++v;
        return static_cast<int32_t>(v);
      };
      add("penalties", [&](SampleRow& row) {
        row.sampling.flags = kRowPenalties;
        row.sampling.repetition_penalty = 1.3f;
        row.sampling.presence_penalty = 0.5f;
        row.sampling.top_p = 0.9f;
        for (int i = 0; i < 20; ++i) row.output_tokens.push_back(static_cast<uint32_t>(rng() % vocab));
      });
      add("bias for one that is denied", [&](SampleRow& row) {
        row.sampling.flags = kRowBias;
        row.bias = {{first_of(row, false), 100.0f}, {first_of(row, true), 2.0f}};
      });
      add("a ban among the allowed", [&](SampleRow& row) {
        row.sampling.flags = kRowBias;
        row.sampling.top_k = 5;
        row.bias = {{first_of(row, true), -kInf}};
      });
      add("bans on all that is allowed", [&](SampleRow& row) {
        row.sampling.flags = kRowBias;
        for (uint32_t v = 0; v < vocab; ++v)
          if (row.mask->allows(v)) row.bias.push_back({static_cast<int32_t>(v), -kInf});
      });
    }
  }
  run_in_steps(fmt::format("masks with changes V {}", vocab), rows, 4);  // penalty rows of a suite
}

TEST_CASE("logits that are broken count where a mask allows them", "[masks][filter][sample][logprobs]") {
  const uint32_t vocab = GENERATE(32u, 1001u, 49152u);
  auto rng = test_rng(fmt::format("broken masks {}", vocab));
  std::vector<SampleRow> rows;
  std::vector<uint32_t> flags;
  for (const MaskKind kind : kKinds) {
    for (const float temperature : {0.0f, 1.0f}) {
      for (const uint32_t row_flags : {0u, uint32_t{kSampleLogprobs}, uint32_t{kSampleLogprobs | kSampleProcessed}}) {
        const auto add = [&](const char* name, uint32_t want, auto value_of) {
          SampleRow row{fmt::format("{} T {} {} flags {}", name, temperature, kind_name(kind), row_flags),
                        params(rng, temperature), random_logits("normal", vocab, rng), 0, row_flags};
          row.mask = random_mask(kind, vocab, vocab / 4, rng);
          for (uint32_t v = 0; v < vocab; ++v) row.logits[v] = value_of(row.mask->allows(v), row.logits[v]);
          rows.push_back(std::move(row));
          flags.push_back(want);
        };
        add("whole", 0, [](bool, float l) { return l; });
        add("NaN allowed", kResultNotFinite, [](bool allowed, float l) { return allowed ? kNan : l; });
        add("+inf allowed", kResultNotFinite, [](bool allowed, float l) { return allowed ? kInf : l; });
        const uint32_t want = row_flags & kSampleLogprobs ? uint32_t{kResultNotFinite} : 0u;
        add("NaN denied", want, [](bool allowed, float l) { return allowed ? l : kNan; });
        add("+inf denied", want, [](bool allowed, float l) { return allowed ? l : kInf; });
        add("-inf allowed", kResultEmptySupport, [](bool allowed, float l) { return allowed ? -kInf : l; });
        add("-inf everywhere", kResultNotFinite, [](bool, float) { return -kInf; });
        add("-inf allowed, NaN denied", kResultNotFinite, [](bool allowed, float) { return allowed ? -kInf : kNan; });
      }
    }
  }
  Suite suite;
  suite.cases.push_back(mask_case(fmt::format("broken masks V {}", vocab), rows));
  suite.cases[0].check_results = [rows, flags](const std::vector<StepOutput>&, const std::vector<StepOutput>& got) {
    std::vector<std::string> failures;
    for (size_t r = 0; r < rows.size(); ++r)
      if (got[0].results.at(r).flags != flags[r])
        failures.push_back(
            fmt::format("{}: expected flags {}, found {}", rows[r].name, flags[r], got[0].results[r].flags));
    return failures;
  };
  fit_suite(&suite);
  run(suite);
}

// Straight to the devices: the validating wrapper refuses a mask for a sample that is forced.
TEST_CASE("a forced sample has no mask", "[masks][filter][sample][logprobs]") {
  auto rng = test_rng("forced masks");
  constexpr uint32_t kVocab = 1000;
  std::vector<SampleRow> rows;
  for (uint32_t r = 0; r < 12; ++r)
    rows.push_back({"forced", params(rng, r % 3 == 0 ? 0.0f : 0.8f, 0, r % 2 ? 0.9f : 1.0f),
                    random_logits("normal", kVocab, rng), r,
                    kSampleForced | kSampleLogprobs | (r % 4 == 0 ? uint32_t{kSampleProcessed} : 0u),
                    static_cast<int32_t>(rng() % kVocab)});
  Suite suite;
  suite.cases.push_back(sampling_case("without masks", rows, {.bucket = 12, .logprobs = true}));
  for (uint32_t r = 0; r < 12; ++r) rows[r].mask = random_mask(kKinds[r % 2], kVocab, r, rng);
  suite.cases.push_back(sampling_case("with masks", rows, {.bucket = 12, .logprobs = true}));
  fit_suite(&suite);
  std::vector<std::string> devices = test_devices();
  devices.push_back("reference");
  for (const std::string& device : devices) {
    INFO(device);
    auto opened = open_test_device(device);
    REQUIRE(opened.ok());
    REQUIRE((*opened)->load_weights(suite.weights, {}).ok());
    REQUIRE((*opened)->create_state(state_config(suite, **opened)).ok());
    const auto without = execute(**opened, suite.cases[0]), with = execute(**opened, suite.cases[1]);
    REQUIRE(without.ok());
    REQUIRE(with.ok());
    for (size_t r = 0; r < rows.size(); ++r) {
      CHECK(with->outputs[0].results[r].flags == 0);
      CHECK(std::memcmp(&with->outputs[0].results[r], &without->outputs[0].results[r], sizeof(SampleResult)) == 0);
      CHECK(std::memcmp(&with->outputs[0].logprobs[r], &without->outputs[0].logprobs[r], sizeof(LogprobRow)) == 0);
    }
  }
}

// The denied tokens are by far the best ones, so each that gets through shows.
TEST_CASE("none of two thousand draws is denied", "[masks][sample]") {
  auto rng = test_rng("mask draws");
  constexpr uint32_t kVocab = 999, kRows = 250;
  Suite suite;
  for (int step = 0; step < 8; ++step) {
    std::vector<SampleRow> rows;
    RowMaskPtr mask;
    for (uint32_t r = 0; r < kRows; ++r) {
      if (r % 10 == 0) mask = random_mask(kKinds[rng() % 2], kVocab, 1 + static_cast<uint32_t>(rng() % 40), rng);
      SampleRow row{"draw", params(rng, r % 7 == 0 ? 0.0f : 1.5f, r % 3 ? 0 : 20, r % 2 ? 1.0f : 0.95f),
                    random_logits("normal", kVocab, rng), static_cast<uint32_t>(rng() % 100)};
      row.mask = mask;
      for (uint32_t v = 0; v < kVocab; ++v)
        if (!mask->allows(v)) row.logits[v] += 40;
      rows.push_back(std::move(row));
    }
    suite.cases.push_back(mask_case("mask draws", rows));
  }
  fit_suite(&suite);
  run(suite);
}

}  // namespace llmrt::optest
