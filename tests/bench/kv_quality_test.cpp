// Aim: the cells of `llmrt-bench kv` compare what they should. Method: a real model (LLMRT_TEST_MODEL) on the first
// device: a cell beside itself, a coarser cache beside it, and one text cut into steps in two ways.
#include "tools/llmrt_bench/kv/kv_quality.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "backends/backends.h"
#include "tests/models/model_harness.h"
#include "tools/llmrt_bench/kv/kv_run.h"
#include "tools/llmrt_bench/kv/recoded_model.h"

using namespace llmrt;
using namespace llmrt::bench;

namespace {

constexpr uint32_t kTokens = 150;

struct Setup {
  std::string device;
  std::shared_ptr<const Model> model;
  std::vector<int32_t> tokens;  // one more than kTokens
};

Setup set_up() {
  const std::string path = test::model_path("LLMRT_TEST_MODEL");
  if (path.empty()) SKIP("expected LLMRT_TEST_MODEL");
  const std::vector<std::string> devices = test::test_devices();
  if (devices.empty()) SKIP("expected a usable device");
  auto model = load_model(path);
  REQUIRE(model.ok());
  auto tokenizer = Tokenizer::create(*(*model)->vocabulary);
  REQUIRE(tokenizer.ok());
  std::string text;
  for (int i = 1; text.size() < 8 * kTokens; ++i)
    text += "Chapter " + std::to_string(i) + ". A river of " + std::to_string(i * i) + " miles runs to the sea. ";
  Setup setup{devices.front(), as_floats(*model), (*tokenizer)->encode(text)};
  setup.tokens.resize(kTokens + 1);
  return setup;
}

}  // namespace

TEST_CASE("a cell is equal to itself, and int8 keys differ a little") {
  const Setup setup = set_up();
  KvQualityPlan plan;
  plan.device = setup.device;
  plan.weights = {{"float", setup.model}};
  plan.kv_dtypes = {KvDType::kF16, KvDType::kI8};
  plan.contexts = {64, kTokens};
  plan.tokens = setup.tokens;
  plan.scored_max = 70;
  auto quality = measure_kv_quality(plan);
  if (!quality) FAIL(quality.error().message);
  REQUIRE(quality->contexts.size() == 2);
  CHECK(quality->contexts[0].num_scored == 64);
  CHECK(quality->contexts[1].num_scored == 70);
  for (const KvContext& context : quality->contexts) {
    INFO(context.num_tokens << " tokens");
    const KvCell &same = context.cells[0][0], &coarse = context.cells[0][1];
    CHECK(same.kl == 0);
    CHECK(same.same_best == 1);
    CHECK(same.mean_overlap() == 1);
    CHECK(coarse.kl > 1e-6);
    CHECK(coarse.kl < 0.05);
    CHECK(std::fabs(coarse.nll - same.nll) < 0.05);
    CHECK(coarse.overlap[coarse.lowest_layer()] < 1);
    CHECK(coarse.mean_overlap() > 0.95);
  }
  // The text repeats itself: what comes later is easier to tell.
  CHECK(quality->contexts[1].cells[0][0].nll < quality->contexts[0].cells[0][0].nll);
}

TEST_CASE("a text has the same logits and ranks however it is cut into steps") {
  const Setup setup = set_up();
  const auto tokens = std::span<const int32_t>(setup.tokens).first(kTokens);
  const uint32_t vocab_size = setup.model->config.vocab_size;
  auto backend = open_device(setup.device);
  REQUIRE(backend.ok());
  auto run = KvRun::create(std::move(*backend), setup.model, kTokens);
  if (!run) FAIL(run.error().message);
  REQUIRE((*run)->set_cache(KvDType::kF16, kTokens).ok());
  const auto logits_of_last = [&](uint32_t num_scored, AttendedPositions* attended) {
    std::vector<float> logits;
    uint32_t next = 0;
    const auto sink = [&](uint32_t first, std::span<const float> rows) {
      CHECK(first == next);
      next += static_cast<uint32_t>(rows.size() / vocab_size);
      logits.insert(logits.end(), rows.begin(), rows.end());
    };
    const Status status = (*run)->run(tokens, num_scored, sink, [](uint32_t) {});
    if (!status) FAIL(status.error().message);
    CHECK(next == num_scored);
    auto positions = (*run)->attended(16);
    if (!positions) FAIL(positions.error().message);
    *attended = *positions;
    return std::vector<float>(logits.end() - kAttentionQueries * vocab_size, logits.end());
  };
  AttendedPositions all_attended, few_attended;
  const std::vector<float> all = logits_of_last(kTokens, &all_attended);
  const std::vector<float> few = logits_of_last(kAttentionQueries, &few_attended);
  float worst = 0;
  for (size_t i = 0; i < all.size(); ++i) worst = std::max(worst, std::fabs(all[i] - few[i]));
  CHECK(worst < 0.1f);
  size_t different = 0, sets = 0;
  for (size_t layer = 0; layer < all_attended.size(); ++layer)
    for (size_t i = 0; i < all_attended[layer].size(); ++i, ++sets)
      different += all_attended[layer][i] != few_attended[layer][i];
  CHECK(different * 20 < sets);  // near ties alone
}
