// The cost model beside made-up devices whose costs are known.
#include "core/schedule/cost_model.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "core/base/checked_math.h"
#include "core/schedule/step_sizes.h"

using namespace llmrt;
using Catch::Approx;

namespace {

struct Device {
  double fixed = 3, token = 0.02, decode_key = 1e-5, pair = 2e-7, move_fixed = 0.05, store = 0.04, load = 0.06;

  StepTimes times(const StepWork& work) const {
    StepTimes times;
    times.step_ms = fixed + token * static_cast<double>(work.tokens) +
                    decode_key * static_cast<double>(work.decode_keys) + pair * static_cast<double>(work.chunk_pairs);
    if (work.stores + work.loads > 0) times.memory_ms = move_fixed + store * work.stores + load * work.loads;
    return times;
  }
  double recompute_ms(double num_tokens) const { return num_tokens * token + num_tokens * (num_tokens + 1) / 2 * pair; }
  double swap_ms(double num_blocks) const { return move_fixed + num_blocks * (store + load); }
};

// A step of some decoding rows and now and then a chunk, with moves now and then.
StepWork random_step(std::mt19937_64& random) {
  StepWork work;
  const uint64_t rows = random() % 64, depth = 100 + random() % 4000;
  work.tokens = rows;
  work.decode_keys = rows * depth;
  if (random() % 3 == 0) {
    const uint64_t chunk = 64 + random() % 512, start = random() % 8000;
    work.tokens += chunk;
    work.chunk_pairs = chunk * (start + chunk / 2);
  }
  if (random() % 4 == 0) work.stores = static_cast<uint32_t>(random() % 100);
  if (random() % 4 == 0) work.loads = static_cast<uint32_t>(random() % 100);
  work.tokens = std::max<uint64_t>(work.tokens, 1);
  return work;
}

void serve(CostModel& model, const Device& device, int num_steps, std::mt19937_64& random, double noise = 0) {
  std::normal_distribution<double> factor(1, noise);
  for (int i = 0; i < num_steps; ++i) {
    const StepWork work = random_step(random);
    StepTimes times = device.times(work);
    if (noise > 0) times.step_ms *= factor(random), times.memory_ms *= factor(random);
    model.observe(work, times);
  }
}

void check_steps(const CostModel& model, const Device& device, std::mt19937_64& random, double epsilon) {
  for (int i = 0; i < 100; ++i) {
    const StepWork work = random_step(random);
    CHECK(model.step_ms(work) == Approx(device.times(work).step_ms).epsilon(epsilon));
  }
}

}  // namespace

TEST_CASE("the cost model finds what steps and moves take") {
  std::mt19937_64 random(1);
  const Device device;
  CostModel model(CostPrior{});
  serve(model, device, 400, random);
  check_steps(model, device, random, 0.01);
  CHECK(model.recompute_ms(2000) == Approx(device.recompute_ms(2000)).epsilon(0.02));
  CHECK(model.swap_ms(125) == Approx(device.swap_ms(125)).epsilon(0.02));
}

TEST_CASE("the cost model bears noise of a tenth") {
  std::mt19937_64 random(2);
  const Device device;
  CostModel model(CostPrior{});
  serve(model, device, 1000, random, 0.1);
  CHECK(model.recompute_ms(2000) == Approx(device.recompute_ms(2000)).epsilon(0.15));
  CHECK(model.swap_ms(125) == Approx(device.swap_ms(125)).epsilon(0.15));
}

TEST_CASE("the cost model follows a device that becomes slower") {
  std::mt19937_64 random(3);
  CostModel model(CostPrior{});
  serve(model, {}, 1000, random);
  Device slow;
  slow.token *= 3;
  slow.load *= 5;
  serve(model, slow, 1500, random);
  CHECK(model.recompute_ms(1000) == Approx(slow.recompute_ms(1000)).epsilon(0.05));
  CHECK(model.swap_ms(60) == Approx(slow.swap_ms(60)).epsilon(0.05));
}

TEST_CASE("the cost model outlives a time that cannot be") {
  std::mt19937_64 random(5);
  const Device device;
  CostModel model(CostPrior{});
  serve(model, device, 400, random);
  model.observe({.tokens = 100, .decode_keys = 10000, .stores = 5}, {.memory_ms = 1e15, .step_ms = 1e15});
  check_steps(model, device, random, 0.08);  // the most that a size's error moves
  CHECK(model.recompute_ms(2000) == Approx(device.recompute_ms(2000)).epsilon(0.02));
  CHECK(model.swap_ms(125) == Approx(device.swap_ms(125)).epsilon(0.02));
}

TEST_CASE("the cost model believes a device that is a hundred times slower all at once") {
  std::mt19937_64 random(6);
  CostModel model(CostPrior{});
  serve(model, {}, 400, random);
  const Device slow{300, 2, 1e-3, 2e-5, 5, 4, 6};
  serve(model, slow, 1500, random);
  CHECK(model.recompute_ms(2000) == Approx(slow.recompute_ms(2000)).epsilon(0.05));
  CHECK(model.swap_ms(60) == Approx(slow.swap_ms(60)).epsilon(0.05));
}

TEST_CASE("the cost model soon knows a prompt's chunks behind steps of little work") {
  CostModel model(CostPrior{});
  for (int i = 0; i < 50; ++i) model.observe({.tokens = 1, .decode_keys = 100}, {.step_ms = 5});
  const StepWork chunk{.tokens = 8192, .chunk_pairs = 8192 * 4096};
  for (int i = 0; i < 4; ++i) model.observe(chunk, {.step_ms = 900});
  CHECK(model.step_ms(chunk) == Approx(900).epsilon(0.1));
}

TEST_CASE("what no step shows stays as it was measured at the start, and what it showed once stays too") {
  CostModel model({.step_ms = 2, .token_ms = 0.5, .store_ms = 0.1, .load_ms = 0.2});
  CHECK(model.recompute_ms(10) == Approx(5));
  CHECK(model.swap_ms(10) == Approx(3));
  // Thousands of equal steps of one token.
  for (int i = 0; i < 5000; ++i) model.observe({.tokens = 1, .decode_keys = 100}, {.step_ms = 2.5});
  CHECK(model.recompute_ms(1000) == Approx(500).epsilon(0.05));
  CHECK(model.swap_ms(10) == Approx(3));
  CHECK(model.step_ms({.tokens = 1, .decode_keys = 100}) == Approx(2.5).epsilon(0.01));
}

TEST_CASE("coefficients are never negative") {
  std::mt19937_64 random(4);
  CostModel model(CostPrior{});
  // A step that costs less the more it does.
  for (int i = 0; i < 500; ++i) {
    const uint64_t tokens = 1 + random() % 500;
    model.observe({.tokens = tokens, .chunk_pairs = tokens * tokens, .stores = static_cast<uint32_t>(tokens)},
                  {.memory_ms = 1000.0 - static_cast<double>(tokens), .step_ms = 1000.0 - static_cast<double>(tokens)});
    REQUIRE(model.recompute_ms(1000) >= 0);
    REQUIRE(model.swap_ms(1000) >= 0);
    REQUIRE(model.step_ms({}) >= 0);
  }
  CHECK(model.step_ms({.tokens = 250}) == Approx(750).epsilon(0.1));
}

TEST_CASE("chunks keep to the limit on a device that likes some sizes and not others") {
  // A step takes as long as its whole size, and sizes of odd multiples of 64 take a sixth longer.
  const auto true_ms = [](uint32_t chunk, uint64_t depth) {
    const uint32_t size = step_size_from(32 + chunk);
    return (4.5 + 0.016 * size) * (size > 256 && size % 128 != 0 ? 1.17 : 1.0) + 1.6e-6 * chunk * depth;
  };
  CostModel model(CostPrior{});
  const StepWork rows{.tokens = 32, .decode_keys = 32 * 700};
  for (int i = 0; i < 50; ++i) model.observe(rows, {.step_ms = 5});
  const double limit_ms = 13;
  double worst_ms = 0, sum_ms = 0, best_ms = 0;
  for (int prompt = 0; prompt < 3; ++prompt) {
    worst_ms = sum_ms = best_ms = 0;
    for (uint64_t depth = 0; depth < 16000;) {
      const uint32_t chunk = model.chunk_within(limit_ms, rows, depth, 2048);
      REQUIRE(chunk > 64);
      const double ms = true_ms(chunk, depth);
      model.observe({.tokens = 32 + chunk, .decode_keys = 32 * 700, .chunk_pairs = chunk * (depth + chunk / 2)},
                    {.step_ms = ms});
      worst_ms = std::max(worst_ms, ms);
      sum_ms += ms;
      depth += chunk;
    }
    for (uint64_t depth = 0; depth < 16000;) {  // had it known
      uint32_t best = 0;
      for (uint32_t chunk = 1; chunk < 1000; ++chunk)
        if (true_ms(chunk, depth) <= limit_ms) best = chunk;
      best_ms += true_ms(best, depth);
      depth += best;
    }
  }
  CHECK(worst_ms <= limit_ms * 1.03);
  CHECK(sum_ms <= best_ms * 1.03);
}

TEST_CASE("chunks keep to the limit while a device's clock falls") {
  // A tenth faster at the beginning of a prompt than 80 ms later, and again after rows that decode alone.
  const StepWork rows{.tokens = 32, .decode_keys = 32 * 700};
  double worst = 0;
  for (double limit_ms = 15; limit_ms < 25; limit_ms += 0.25) {
    CostModel model(CostPrior{});
    for (int prompt = 0; prompt < 6; ++prompt) {
      for (int i = 0; i < 50; ++i) model.observe(rows, {.step_ms = 5});
      double busy_ms = 0;
      for (uint64_t depth = 0; depth < 16000;) {
        const uint32_t chunk = model.chunk_within(limit_ms, rows, depth, 2048);
        const double clock = 1 + 0.1 * std::max(0.0, 1 - busy_ms / 80);
        const double ms =
            (4.5 + 0.023 * step_size_from(32 + chunk) + 5e-7 * chunk * static_cast<double>(depth)) / clock;
        model.observe({.tokens = 32 + chunk, .decode_keys = 32 * 700, .chunk_pairs = chunk * (depth + chunk / 2)},
                      {.step_ms = ms});
        busy_ms += ms;
        if (prompt >= 2) worst = std::max(worst, ms / limit_ms);
        depth += chunk;
      }
    }
  }
  CAPTURE(worst);
  CHECK(worst <= 1.02);
}

TEST_CASE("a limit that not even a step of one token keeps to leaves no chunk") {
  CostModel model(CostPrior{});
  for (int i = 0; i < 20; ++i) model.observe({.tokens = 1, .chunk_pairs = 1}, {.step_ms = 300});
  CHECK(model.chunk_within(250, {}, 0, 1) == 0);
  CHECK(model.chunk_within(250, {}, 0, 2048) == 0);
  CHECK(model.chunk_within(250, {.tokens = 8, .decode_keys = 80}, 1000, 2048) == 0);
}

TEST_CASE("tokens of a row that share items read its keys once") {
  CHECK(decode_keys_of(100, 4, 1) == keys_of(100, 4));
  CHECK(decode_keys_of(100, 4, 4) == 104);
  CHECK(decode_keys_of(100, 5, 4) == 104 + 105);
  StepWork work;
  add_decoding(&work, 100, 3, 2);
  add_chunk(&work, 10, 2);
  CHECK(work.tokens == 5);
  CHECK(work.decode_keys == 102 + 103);
  CHECK(work.chunk_pairs == 11 + 12);
}
