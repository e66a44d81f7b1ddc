// Branches of one request: the prompt is computed once, blocks are shared until one is written to, each branch lives
// and ends by itself. Method: as in scheduler_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <map>
#include <random>

#include "core/base/checked_math.h"
#include "core/schedule/scheduler.h"
#include "scheduler_script.h"

using namespace llmrt;
using test::check_script;

TEST_CASE("branches share full blocks, and the filled slots of the next one are copied") {
  check_script(R"(config pool=16 block=4
add 1 prompt=6 max=3 n=3
states
  1 QUEUED, 2 QUEUED, 3 QUEUED
queue
  8 tokens
plan
  1[0,6)*
copies
plan
  1[6,7)?* 2[5,6)* 3[5,6)*
updates
  set slot 1: flags 0
  patch slot 1 from entry 0: 0,2
  set slot 2: flags 0
  patch slot 2 from entry 0: 0,3
copies
  1 tokens of block 1 to 2
  1 tokens of block 1 to 3
free
  12
commit
  1: 100
commit
  1: 101
  2: 100
  3: 100
plan
  1[7,8)* 2[6,7)* 3[6,7)*
copies
commit 3=eos
  1: 102 length
  2: 101
  3: 101 eos
plan
  2[7,8)*
commit
  2: 102 length
free
  16
)");
}

TEST_CASE("nothing is copied where a block ends before the prompt's last token") {
  check_script(R"(config pool=16 block=4
add 1 prompt=9 max=2 n=2
plan
  1[0,9)*
plan
  1[9,10)?* 2[8,9)*
updates
  set slot 1: flags 0
  patch slot 1 from entry 0: 0,1,3
copies
)");
}

TEST_CASE("while branches wait for their prompt others go, however long it takes") {
  check_script(R"(config pool=32 block=4 step=8
add 1 prompt=20 max=2 n=2
add 3 prompt=3 max=1
plan
  1[0,8)
commit
plan
  1[8,16)
commit
plan
  1[16,20)* 3[0,3)*
plan
  1[20,21)?* 2[19,20)*
copies
  3 tokens of block 4 to 7
)");
}

TEST_CASE("a branch that has waited for its prompt is overtaken 8 times at most, as anybody") {
  std::string script = "config rows=1 context=1000 step=64 chunk=64\nadd 1 n=2 prompt=100 max=1\nplan\ncommit\n";
  script += "plan\ncommit\n";
  for (int i = 3; i < 20; ++i) script += fmt::format("add {} prompt=4 max=1\n", i);
  for (int i = 3; i < 20; ++i) script += "plan\ncommit\n";
  const std::string transcript = test::run_script(script);
  INFO(transcript);
  CHECK(transcript.find("  10[0,4)*") < transcript.find("  2[0,"));
  CHECK(transcript.find("  2[0,") < transcript.find("  11[0,4)*"));
}

TEST_CASE("when the branch that computes the prompt ends, the next one takes its place") {
  check_script(R"(config pool=32 block=4 step=8
add 1 prompt=12 max=2 n=3
plan
  1[0,8)
cancel 1
  1: cancelled
plan
  2[0,8)
commit
commit
plan
  2[8,12)*
plan
  2[12,13)?* 3[11,12)*
free
  27
)");
}

TEST_CASE("a branch that yielded comes back to what the others hold") {
  // Both answers are 100, 101 ..., so the other one holds all that this one lost.
  check_script(R"(config pool=5 block=4
add 1 prompt=8 max=8 n=2
plan
  1[0,8)*
plan
  1[8,9)?* 2[7,8)*
commit
  1: 100
commit
  1: 101
  2: 100
plan
  1[9,10)* 2[8,9)*
free
  0
commit
  1: 102
  2: 101
plan
  1[10,11)* 2[9,10)*
commit
  1: 103
  2: 102
plan
  1[11,12)* 2[10,11)*
commit
  1: 104
  2: 103
plan
  1[12,13)*
preemptions
  2 for 1: 11 tokens, 3 blocks, time 1
commit
  1: 105
plan
  1[13,14)* 2[11,12)*
copies
  3 tokens of block 2 to 4
)");
}

TEST_CASE("every branch of a request that the queue cannot hold is told so") {
  check_script(R"(config pool=16 block=4 queue=10 rows=1
add 1 prompt=4 max=2
add 2 prompt=9 max=2 n=2
  2: error (overloaded: queue full: expected at most 10 tokens of class interactive, found 4 and 9 more)
  3: error (overloaded: queue full: expected at most 10 tokens of class interactive, found 4 and 9 more)
)");
}

TEST_CASE("four branches hold no more blocks than the prompt and what each of them wrote") {
  constexpr uint32_t kBlock = 16, kBranches = 4, kTokens = 40;
  const uint32_t num_prompt = GENERATE(1u, 16u, 17u, 37u, 48u, 1000u);
  const PrefixCacheKind cache = GENERATE(PrefixCacheKind::kOff, PrefixCacheKind::kHashed, PrefixCacheKind::kRadix);
  CAPTURE(num_prompt, static_cast<int>(cache));
  SchedulerConfig config;
  config.context_max = 2048;
  config.kv_pools = {{512, kBlock}};
  config.prefix_cache = cache;
  Scheduler scheduler(config);
  Request request;
  request.id = 1;
  for (uint32_t i = 0; i < num_prompt; ++i) request.prompt.push_back(static_cast<int32_t>(i));
  request.n = kBranches;
  request.max_tokens = kTokens;
  scheduler.add(std::move(request), 0);

  uint32_t num_computed = 0, blocks_peak = 0;
  std::vector<TokenEvent> events;
  while (scheduler.has_work()) {
    const IterationPlan* plan = scheduler.plan(0);
    REQUIRE(plan != nullptr);
    blocks_peak = std::max(blocks_peak, 512 - scheduler.num_free_blocks(0));
    num_computed += static_cast<uint32_t>(plan->tokens.size());
    std::vector<Verdict> verdicts(plan->samples.size());
    for (const PlanRow& row : plan->rows) {
      for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
        verdicts[i].token = static_cast<int32_t>(5000 + row.request_id);  // each goes its own way
        if (plan->samples[i].output_position + 1 == kTokens) verdicts[i].finish = FinishReason::kLength;
      }
    }
    scheduler.commit(*plan, verdicts, 0);
    REQUIRE(scheduler.check_books().ok());
  }
  scheduler.take_events(&events);
  std::map<uint32_t, uint32_t> num_tokens;
  for (const TokenEvent& event : events) {
    CHECK(event.request_id == 1 + event.branch);
    ++num_tokens[event.branch];
  }
  CHECK(num_tokens == std::map<uint32_t, uint32_t>{{0, kTokens}, {1, kTokens}, {2, kTokens}, {3, kTokens}});
  CHECK(blocks_peak <= ceil_div(num_prompt, kBlock) + kBranches * (ceil_div(kTokens, kBlock) + 1));
  // The prompt once, its last token for each branch, and every answer but its last token.
  CHECK(num_computed == num_prompt + kBranches - 1 + kBranches * (kTokens - 1));
  CHECK(scheduler.num_free_blocks(0) == 512);
  CHECK(scheduler.stats().prompt_tokens == num_prompt);
}

TEST_CASE("more beams than candidates can be told for are refused with both numbers") {
  SchedulerConfig config;
  config.context_max = 256;
  config.kv_pools = {{256, 16}};
  config.end_of_generation = {1, 2};
  const Scheduler scheduler(config);
  Request request;
  request.prompt = {5};
  request.n = 18;
  request.beam = BeamParams{};
  CHECK(scheduler.check(request).ok());
  request.n = 19;
  CHECK(scheduler.check(request).error().message == "use_beam_search: expected at most 18 beams, found 19");
  request.stop.ignore_eos = true;
  CHECK(scheduler.check(request).ok());
}

namespace {

Request beams_over(uint32_t num_prompt, uint32_t num_beams, uint32_t num_tokens) {
  Request request;
  request.id = 1;
  request.prompt.assign(num_prompt, 5);
  request.n = num_beams;
  request.max_tokens = num_tokens;
  request.beam = BeamParams{};
  return request;
}

// Of so many tokens each.
std::vector<Verdict> random_beams(const IterationPlan& plan, uint32_t num_tokens, std::mt19937& random) {
  std::vector<Verdict> verdicts(plan.samples.size());
  for (Verdict& verdict : verdicts) {
    for (uint32_t token = 0; token < num_tokens; ++token)
      verdict.top_logprobs.push_back({static_cast<int32_t>(token), -0.01f * static_cast<float>(random() % 100)});
    std::ranges::sort(verdict.top_logprobs, std::greater(), &TopLogprob::logprob);
  }
  return verdicts;
}

}  // namespace

TEST_CASE("beams that go on in several ways compute one token each, in no more blocks than they wrote") {
  constexpr uint32_t kBlock = 4, kBeams = 4, kTokens = 30, kPrompt = 18;
  const uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  SchedulerConfig config;
  config.context_max = 256;
  config.kv_pools = {{256, kBlock}};
  config.prefix_cache = GENERATE(PrefixCacheKind::kOff, PrefixCacheKind::kRadix);
  Scheduler scheduler(config);
  scheduler.add(beams_over(kPrompt, kBeams, kTokens), 0);

  uint32_t num_copies = 0;
  for (uint32_t step = 0; scheduler.has_work(); ++step) {
    const TimeNs now = step * TimeNs{1'000'000'000};
    const IterationPlan* plan = scheduler.plan(now);
    REQUIRE(plan != nullptr);
    // The prompt, the other beams' last token of it, then one token of each.
    REQUIRE(plan->tokens.size() == (step == 0 ? kPrompt : step == 1 ? kBeams - 1 : kBeams));
    const uint32_t num_blocks = 256 - scheduler.num_free_blocks(0);
    REQUIRE(num_blocks <= ceil_div(kPrompt, kBlock) + kBeams * (ceil_div(step, kBlock) + 1));
    for (const BlockCopy& copy : plan->block_copies) {
      REQUIRE(copy.num_tokens == (step == 1 ? kPrompt - 1 : kPrompt + step - 2) % kBlock);
      num_copies += step > 1;
    }
    if (step > 0) REQUIRE(scheduler.plan(now) == nullptr);  // what comes next depends on all of them
    std::vector<Verdict> verdicts = random_beams(*plan, kBeams, random);
    scheduler.commit(*plan, verdicts, now);
    REQUIRE(scheduler.check_books().ok());
  }
  CHECK(num_copies > 10);
  CHECK(scheduler.stats().ttft_s.count() == kBeams);
  CHECK(scheduler.stats().num_ttft_late == kBeams);  // told at the end, half a minute later
  std::vector<TokenEvent> events;
  scheduler.take_events(&events);
  CHECK(events.size() == kBeams * kTokens);
  CHECK(scheduler.num_free_blocks(0) == 256);
}

TEST_CASE("beams over a prompt as long as the context go on together, and it is charged once") {
  constexpr uint32_t kBlock = 4, kBeams = 16, kTokens = 12, kPrompt = 1000, kPromptBlocks = kPrompt / kBlock;
  SchedulerConfig config;
  config.context_max = kPrompt + kTokens;
  config.watermark = 0;
  // Room for the prompt and what each beam writes, but for no second prompt.
  config.kv_pools = {{kPromptBlocks + kBeams * (ceil_div(kTokens, kBlock) + 1), kBlock}};
  config.prefix_cache = GENERATE(PrefixCacheKind::kOff, PrefixCacheKind::kRadix);
  CAPTURE(static_cast<int>(config.prefix_cache));
  Scheduler scheduler(config);
  scheduler.add(beams_over(kPrompt, kBeams, kTokens), 0);
  const PlanLimits limits = plan_limits(config);
  uint32_t num_plans = 0;
  uint64_t queued_most = 0;
  std::mt19937 random(7);
  while (scheduler.has_work()) {
    queued_most = std::max(queued_most, scheduler.queue_tokens());
    const IterationPlan* plan = scheduler.plan(0);
    REQUIRE(plan != nullptr);
    ++num_plans;
    CHECK(plan->row_payload.size() <= limits.payload_words_max);
    std::vector<Verdict> verdicts = random_beams(*plan, kBeams, random);
    scheduler.commit(*plan, verdicts, 0);
    REQUIRE(scheduler.check_books().ok());
  }
  CHECK(num_plans == 1 + kTokens);  // the prompt, its last token for the other beams, then all beams together
  CHECK(scheduler.stats().num_preemptions == 0);
  CHECK(queued_most <= kPrompt + kTokens + kBeams);
}

TEST_CASE("who has outgrown the pool beside others that hold the same blocks ends, and holds up nobody") {
  const std::string said =
      test::run_script("config pool=3 block=4 context=64 cache=radix rows=8\nadd 10 prompt=4 max=30 class=batch\n" +
                       test::plans(4) + "add 1 prompt=4 max=1 n=2 beam\n" + test::plans(12) +
                       "add 22 prompt=2 max=4 class=batch\n" + test::plans(8));
  INFO(said);
  CHECK(said.find("10: error") != std::string::npos);
  CHECK(said.find("22: 103 length") != std::string::npos);
}
