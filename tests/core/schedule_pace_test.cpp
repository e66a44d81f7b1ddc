// How much of prompts a step holds. The cost model is taught a device that takes 1 ms a step and 10 us a token.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/pace.h"

using namespace llmrt;
using Catch::Approx;

namespace {

constexpr TimeNs kMs = 1'000'000;

SchedulerConfig config_with(double tpot_ms, double idle_ms) {
  SchedulerConfig config;
  config.step_tokens_max = 2048;
  config.chunk_tokens = 512;
  config.tpot_target_ms = tpot_ms;
  config.idle_step_ms = idle_ms;
  return config;
}

void teach(Pace& pace) {
  for (uint64_t i = 0; i < 300; ++i) {
    const uint64_t tokens = 1 + 97 * i % 1500;
    pace.observe({.tokens = tokens}, {.step_ms = 1 + 0.01 * static_cast<double>(tokens)}, false, 0);
  }
}

StepSoFar beside(uint64_t rows) {
  return {.work = {.tokens = rows, .decode_keys = 0}, .others_decode = true};
}

}  // namespace

TEST_CASE("without targets a chunk is chunk_tokens beside rows that decode, else all that is left") {
  const SchedulerConfig config = config_with(0, 0);
  const Pace pace(config);
  CHECK(pace.chunk_tokens({}, 2048, 0) == 2048);
  CHECK(pace.chunk_tokens(beside(0), 2048, 0) == 512);
  CHECK(pace.chunk_tokens(beside(0), 100, 0) == 100);
  CHECK(pace.chunk_tokens(beside(32), 2000, 0) == 480);  // with them a whole size of 512
}

TEST_CASE("with targets a chunk is as large as the predicted time allows, and never below 32 or beyond the step") {
  const SchedulerConfig config = config_with(4, 11);
  Pace pace(config);
  CHECK(pace.chunk_tokens(beside(16), 2048, 0) == 496);  // it knows nothing yet
  teach(pace);
  CHECK(pace.chunk_tokens(beside(16), 2048, 0) == 240);  // with them 256, the largest size within 300 tokens
  CHECK(pace.chunk_tokens({}, 2048, 0) == 896);          // within 1,000
  CHECK(pace.chunk_tokens(beside(1500), 548, 0) == 32);
  CHECK(pace.chunk_tokens(beside(2040), 8, 0) == 8);
}

TEST_CASE("chunks by need are chunk_tokens while these serve the prompts that come, and grow with what they lack") {
  SchedulerConfig config = config_with(0, 0);
  config.chunks_by_need = true;
  Pace pace(config);
  CHECK(pace.chunk_tokens(beside(32), 2016, 0) == 480);  // it knows nothing yet
  teach(pace);
  CHECK(pace.chunk_tokens(beside(32), 2016, 0) == 480);
  // A chunk of 480 beside 32 rows takes 6.12 ms: it serves 78 tokens a millisecond.
  TimeNs now = 0;
  const auto compute_for_a_minute = [&](uint64_t tokens_ms) {
    for (const TimeNs end = now + 60'000 * kMs; now < end; now += 10 * kMs) {
      pace.note_computed(10 * tokens_ms);
      pace.observe({}, {}, false, now);
    }
  };
  compute_for_a_minute(50);
  CHECK(pace.chunk_tokens(beside(32), 2016, now) == 480);
  compute_for_a_minute(58);  // more than 0.7 of what chunks of 480 serve, and of 608; less of 736
  CHECK(pace.chunk_tokens(beside(32), 2016, now) == 736);
  CHECK(pace.chunk_tokens(beside(32), 2016, now + 10'000 * kMs) == 480);  // none come any more
  compute_for_a_minute(90);                                               // more than any chunk serves
  CHECK(pace.chunk_tokens(beside(32), 2016, now) == 2016);
  CHECK(pace.chunk_tokens(beside(32), 0, now) == 0);
}

TEST_CASE("chunks by need grow where prompts would be late, and not beyond the objective of the rows that decode") {
  SchedulerConfig config = config_with(0, 0);
  config.chunks_by_need = true;
  config.slo = {.ttft_ms = 1000, .tpot_ms = 100};
  Pace pace(config);
  teach(pace);
  const TimeNs now = 10'000 * kMs;
  StepSoFar step = beside(32);
  step.waiting_tokens = 70'000;  // 78 a millisecond are served
  step.waits_since_ns = now;
  CHECK(pace.chunk_tokens(step, 2016, now) == 480);
  CHECK(pace.chunk_tokens(step, 2016, now + 200 * kMs) == 992);  // 87.5 a millisecond are wanted
  CHECK(pace.chunk_tokens(step, 2016, now + 990 * kMs) == 2016);
  config.slo.tpot_ms = 10;  // a step of 900 tokens
  CHECK(pace.chunk_tokens(step, 2016, now + 990 * kMs) == 864);
  config.slo.tpot_ms = 2;
  CHECK(pace.chunk_tokens(step, 2016, now + 990 * kMs) == 480);
}

TEST_CASE("the end of a prompt that somebody waits for passes the chunk where patient rows make steps long") {
  const SchedulerConfig plain = config_with(0, 0), with_target = config_with(10, 0);
  const Pace pace(plain);
  CHECK(pace.ends_prompt(Lane::kInteractive, 1280, 512, 2048, true));
  CHECK_FALSE(pace.ends_prompt(Lane::kInteractive, 1281, 512, 2048, true));
  CHECK_FALSE(pace.ends_prompt(Lane::kInteractive, 1280, 512, 1000, true));
  CHECK_FALSE(pace.ends_prompt(Lane::kInteractive, 100, 512, 2048, false));
  CHECK_FALSE(pace.ends_prompt(Lane::kBatch, 100, 512, 2048, true));
  CHECK_FALSE(Pace(with_target).ends_prompt(Lane::kAgent, 100, 512, 2048, true));
  CHECK(pace.is_long_end(513, true));
  CHECK_FALSE(pace.is_long_end(512, true));  // fits a chunk
  CHECK_FALSE(pace.is_long_end(1281, true));
}

TEST_CASE("the next step is planned late only while somebody asks and patient rows run") {
  const SchedulerConfig config = config_with(0, 0);
  Pace pace(config);
  teach(pace);
  const StepWork work = {.tokens = 900};
  CHECK(pace.plan_after_ms(work, true, 0) == 0);
  pace.note_asked(Lane::kBatch, 0);
  CHECK(pace.plan_after_ms(work, true, 0) == 0);
  pace.note_asked(Lane::kAgent, 0);
  CHECK(pace.plan_after_ms(work, true, 59'999 * kMs) == Approx(9).margin(0.5));
  CHECK(pace.plan_after_ms(work, false, 0) == 0);
  CHECK(pace.plan_after_ms(work, true, 60'000 * kMs) == 0);
}

TEST_CASE("the rate of prompts is what was served while some waited, once that is known") {
  const SchedulerConfig config = config_with(0, 0);
  Pace pace(config);
  CHECK(pace.prompt_rate() == 0);
  for (int step = 0; step < 40; ++step) {
    pace.note_computed(100);
    pace.observe({}, {}, /*some_wait=*/true, step * 4 * kMs);
  }
  CHECK(pace.prompt_rate() == Approx(25));
}
