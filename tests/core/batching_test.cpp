// Static and dynamic batching beside continuous batching: who starts when, what padding is counted, and the picture of
// it. Method: the real scheduler in dry runs, requests by hand; what is drawn is compared letter by letter.
#include "core/schedule/batching.h"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <map>
#include <random>

#include "core/study/dry_run.h"
#include "scheduler_script.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

SchedulerConfig config_of(Batching batching, uint32_t num_rows, int64_t wait_ms = 0) {
  SchedulerConfig config;
  config.context_max = 4096;
  config.sequences_max = num_rows;
  config.watermark = 0;
  config.reserve_output_tokens = 0;
  config.kv_pools = {{512, 16}};
  config.batching = batching;
  config.batch_wait_ms = wait_ms;
  return config;
}

DryRun run(const SchedulerConfig& config, std::vector<DryRequest> requests) {
  auto run = dry_run(config, requests);
  REQUIRE(run.ok());
  return std::move(*run);
}

std::string picture(const DryRun& run) {
  return fmt::format("\n{}", timeline(run.requests, run.steps));
}

const std::vector<DryRequest> kLengths = {{1, 3}, {1, 8}, {1, 2}, {1, 5}};

}  // namespace

TEST_CASE("answers of 3, 8, 2 and 5 tokens use 18 of 32 positions of a static batch") {
  const DryRun fixed = run(config_of(Batching::kStatic, 4), kLengths);
  CHECK(fixed.useful_tokens == 18);
  CHECK(fixed.padded_tokens == 14);
  CHECK(fixed.utilisation() == 0.5625);
  CHECK(picture(fixed) == R"(
     1 P##-----
     2 P#######
     3 P#------
     4 P####---
)");
  const DryRun continuous = run(config_of(Batching::kContinuous, 4), kLengths);
  CHECK(continuous.useful_tokens == 18);
  CHECK(continuous.utilisation() == 1);
}

TEST_CASE("nobody joins a batch; with continuous batching the next one takes a free row at once") {
  CHECK(picture(run(config_of(Batching::kStatic, 2), kLengths)) == R"(
     1 P##-----
     2 P#######
     3 ........P#---
     4 ........P####
)");
  CHECK(picture(run(config_of(Batching::kContinuous, 2), kLengths)) == R"(
     1 P##
     2 P#######
     3 ...P#
     4 .....P####
)");
}

TEST_CASE("a static batch begins with whatever waits, a dynamic one when it is full or the first has waited") {
  const std::vector<DryRequest> requests = {{1, 4, 0}, {1, 2, 1}, {1, 2, 2}, {1, 2, 20}};
  CHECK(picture(run(config_of(Batching::kStatic, 3), requests)) == R"(
     1 P###
     2  ...P#
     3   ..P#
     4                     P#
)");
  CHECK(picture(run(config_of(Batching::kDynamic, 3, 5), requests)) == R"(
     1 ..P###
     2  .P#--
     3   P#--
     4                     .....P#
)");
  CHECK(picture(run(config_of(Batching::kDynamic, 8, 5), requests)) == R"(
     1 .....P###
     2  ....P#--
     3   ...P#--
     4                     .....P#
)");
}

TEST_CASE("prompts are padded to the longest of the batch") {
  const DryRun fixed = run(config_of(Batching::kStatic, 2), {{10, 1}, {4, 5}});
  CHECK(fixed.useful_tokens == 10 + 8);  // the last token of an answer is never computed
  CHECK(fixed.useful_tokens + fixed.padded_tokens == 2 * (10 + 4));
}

TEST_CASE("rows of a batch that find no room start when there is some, before the next batch") {
  SchedulerConfig config = config_of(Batching::kStatic, 3);
  config.kv_pools = {{2, 16}};
  config.on_exhaustion = OnExhaustion::kQueue;
  CHECK(picture(run(config, {{4, 4}, {4, 8}, {4, 4}, {4, 2}})) == R"(
     1 P###----
     2 P#######
     3 ....P###
     4 ........P#
)");
}

TEST_CASE("a row of a batch that yields comes back to it") {
  check_script(R"(config pool=4 block=4 rows=2 batching=static
add 1 prompt=7 max=6
add 2 prompt=7 max=6
add 3 prompt=2 max=2
plan
  1[0,7)* 2[0,7)*
commit
  1: 100
  2: 100
plan
  1[7,8)* 2[7,8)*
commit
  1: 101
  2: 101
plan
  1[8,9)*
preemptions
  2 for 1: 8 tokens, 2 blocks, time 1
commit
  1: 102
plan
  1[9,10)*
commit
  1: 103
plan
  1[10,11)*
commit
  1: 104
plan
  1[11,12)*
commit
  1: 105 length
plan
  2[0,9)*
commit
  2: 102
cancel 2
  2: cancelled
plan
  3[0,2)*
commit
  3: 100
)");
}

TEST_CASE("a batch whose rows are cancelled ends; branches of a request begin in one batch") {
  check_script(R"(config rows=2 batching=dynamic wait=10
add 1 prompt=5 max=4
plan
  nothing
time 9
plan
  nothing
add 2 prompt=5 max=4
plan
  1[0,5)* 2[0,5)*
add 3 prompt=5 max=4 n=2
commit
  1: 100
  2: 100
cancel 1
  1: cancelled
plan
  2[5,6)*
commit
  2: 101
cancel 2
  2: cancelled
plan
  3[0,5)*
commit
  3: 100
plan
  3[5,6)* 4[4,5)*
commit
  3: 101
  4: 100
)");
}

TEST_CASE("whatever the lengths, a baseline computes what continuous batching does, one batch after the other") {
  const auto seed = GENERATE(Catch::Generators::range(1u, 31u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::vector<DryRequest> requests(1 + random() % 40);
  uint32_t now_ms = 0;
  for (DryRequest& request : requests) {
    now_ms += random() % 4;
    request = {1 + static_cast<uint32_t>(random() % 60), 1 + static_cast<uint32_t>(random() % 30), now_ms};
  }
  SchedulerConfig config = config_of(Batching::kContinuous, 1 + static_cast<uint32_t>(random() % 8), 5);
  config.step_tokens_max = 1 + static_cast<uint32_t>(random() % 100);
  config.kv_pools = {{6 + static_cast<uint32_t>(random() % 40), 16}};
  const DryRun continuous = run(config, requests);
  CHECK(continuous.padded_tokens == 0);
  for (const Batching batching : {Batching::kStatic, Batching::kDynamic}) {
    config.batching = batching;
    const DryRun baseline = run(config, requests);
    CHECK(baseline.useful_tokens == continuous.useful_tokens);
    CHECK(baseline.steps.size() >= continuous.steps.size());
    std::map<RequestId, uint64_t> batch_of;
    uint64_t last = 0;
    for (const TimelineStep& step : baseline.steps) {
      for (const auto& row : step.rows) CHECK(batch_of.emplace(row.id, step.batch).first->second == step.batch);
      if (step.rows.empty()) continue;
      CHECK((step.batch == last || step.batch == last + 1));
      last = step.batch;
    }
    CHECK(batch_of.size() == requests.size());
  }
}

TEST_CASE("a long timeline has several steps in a column, by what most of them were") {
  const std::vector<TimelineRequest> requests = {{7, 0}, {8, 2}};
  std::vector<TimelineStep> steps(10);
  for (size_t i = 0; i < 5; ++i) steps[i] = {.batch = 1, .rows = {{7, i < 2}}};
  for (size_t i = 7; i < 10; ++i) steps[i] = {.batch = 2, .rows = {{8, i == 7}}};
  CHECK(fmt::format("\n{}", timeline(requests, steps)) == R"(
     7 PP###
     8   .....P##
)");
  CHECK(fmt::format("\n{}", timeline(requests, steps, 4)) == R"(
     7 P#
     8  ..#
       one column: 3 steps
)");
  CHECK(timeline({}, {}).empty());
}

TEST_CASE("a dry run says which request can never run") {
  const std::vector<DryRequest> requests = {{1, 1}, {5000, 1}};
  const auto run = dry_run(config_of(Batching::kStatic, 2), requests);
  REQUIRE_FALSE(run.ok());
  CHECK(run.error().message.starts_with("request 2: context length"));
}
