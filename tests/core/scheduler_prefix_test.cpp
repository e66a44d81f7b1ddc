// How the scheduler uses known prefixes: what is taken over, who goes first, who waits. Method: as in
// scheduler_test.cpp; the prompts of a script all begin alike.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/scheduler.h"
#include "scheduler_script.h"

using namespace llmrt;
using test::check_script;

namespace {

SchedulerConfig prefix_config() {
  SchedulerConfig config;
  config.context_max = 4096;
  config.kv_pools = {{2048, 16}};
  config.prefix_cache = PrefixCacheKind::kRadix;
  return config;
}

Request request_of(RequestId id, uint32_t num_prompt, uint32_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt.assign(num_prompt, 1);
  request.max_tokens = max_tokens;
  return request;
}

}  // namespace

TEST_CASE("a prompt that is known is taken over but for its last token; an equal block takes the place of the copy") {
  check_script(R"(config pool=8 block=4 cache=radix
add 1 prompt=8 max=2 salt=a
plan
  1[0,8)*
commit
  1: 100
plan
  1[8,9)*
commit
  1: 101 length
cached
  0 of 8 prompt tokens, 2 of 8 free blocks
add 2 prompt=8 max=3 salt=a
plan
  2[7,8)*
updates
  clear slot 0
  set slot 0: flags 0
  patch slot 0 from entry 0: 0,2
copies
  3 tokens of block 1 to 2
commit
  2: 100
plan
  2[8,9)*
updates
  patch slot 0 from entry 1: 1,2
copies
commit
  2: 101
plan
  2[9,10)*
updates
commit
  2: 102 length, 7 cached
cached
  7 of 16 prompt tokens, 2 of 8 free blocks
)");
}

TEST_CASE("without a salt whole blocks are taken over, and nothing of the one behind them") {
  check_script(R"(config pool=8 block=4 cache=radix
add 1 prompt=8 max=1
plan
  1[0,8)*
commit
  1: 100 length
add 2 prompt=8 max=1
add 3 prompt=12 max=1 same=7
plan
  2[4,8)* 3[4,12)*
copies
commit
  2: 100 length, 4 cached
  3: 100 length, 4 cached
)");
}

TEST_CASE("the flat cache knows whole blocks only") {
  check_script(R"(config pool=8 block=4 cache=hashed
add 1 prompt=8 max=1
plan
  1[0,8)*
commit
  1: 100 length
add 2 prompt=8 max=1
plan
  2[4,8)*
copies
commit
  2: 100 length, 4 cached
)");
}

TEST_CASE("a chat finds its own answer again") {
  // Token k of an answer is 100 + k, so the second prompt is the first one, its answer and two tokens more.
  check_script(R"(config pool=64 block=4 step=128 cache=radix
add 1 prompt=90 max=8
plan
  1[0,90)*
commit
  1: 100
plan
  1[90,91)*
plan
  1[91,92)?*
commit
  1: 101
plan
  1[92,93)?*
commit
  1: 102
plan
  1[93,94)?*
commit
  1: 103
plan
  1[94,95)?*
commit
  1: 104
plan
  1[95,96)?*
commit
  1: 105
plan
  1[96,97)?*
commit
  1: 106
plan
  nothing
commit
  1: 107 length
add 2 prompt=100 max=1
plan
  2[96,100)*
commit
  2: 100 length, 96 cached
)");
}

TEST_CASE("prompt tokens that are to be scored are computed") {
  check_script(R"(config pool=8 cache=radix
add 1 prompt=5 max=1
plan
  1[0,5)*
commit
  1: 100 length
add 2 prompt=5 max=1 scores
plan
  2[0,5)~4*
commit
  2: prompt 10
  2: prompt 11 logprob
  2: prompt 12 logprob
  2: prompt 13 logprob
  2: prompt 14 logprob
  2: 100 logprob length
)");
}

TEST_CASE("other salts share nothing") {
  check_script(R"(config cache=radix
add 1 prompt=9 max=1 salt=a
plan
  1[0,9)*
commit
  1: 100 length
add 2 prompt=9 max=1 salt=b
add 3 prompt=9 max=1 salt=a
plan
  3[8,9)* 2[0,9)*
commit
  3: 100 length, 8 cached
  2: 100 length
)");
}

TEST_CASE("of 500, 0 and 300 cached tokens, 500 goes first and 0 last") {
  check_script(R"(config pool=600 block=4 context=1024 step=1024 rows=1 queue=10000 cache=radix
add 9 prompt=500 max=1
plan
  9[0,500)*
commit
  9: 100 length
add 1 prompt=520 same=500 max=1
add 2 prompt=520 same=0 max=1
add 3 prompt=520 same=300 max=1
plan
  1[500,520)*
commit
  1: 100 length, 500 cached
plan
  3[300,520)*
commit
  3: 100 length, 300 cached
plan
  2[0,520)*
)");
}

TEST_CASE("a request waits for the prefix that an earlier one is about to compute, and for nobody else's") {
  check_script(R"(config step=20 cache=radix
add 1 prompt=12 max=2
add 2 prompt=14 same=12 max=2
add 3 prompt=14 same=12 max=2 salt=other
add 4 prompt=4 same=0 max=2
plan
  1[0,12)* 3[0,8)
states
  1 DECODING, 2 QUEUED, 3 PREFILLING, 4 QUEUED
plan
  1[12,13)?* 3[8,14)* 2[12,14)* 4[0,4)*
commit
  1: 100
commit
  1: 101 length
  3: 100
  2: 100
  4: 100
)");
  check_script(R"(config cache=radix
add 1 prompt=12 max=2
add 2 prompt=14 same=12 max=2
add 3 prompt=4 same=0 max=2
add 4 prompt=4 same=0 max=2
plan
  1[0,12)* 3[0,4)* 4[0,4)*
)");
}

TEST_CASE("what a cancelled or failed request leaves: known blocks, or nothing when they cannot be trusted") {
  check_script(R"(config pool=8 cache=radix
add 1 prompt=9 max=9
plan
  1[0,9)*
cancel 1
  1: cancelled
cached
  0 of 9 prompt tokens, 2 of 8 free blocks
commit
add 2 prompt=9 max=9
plan
  2[8,9)*
commit 2=error
  2: error, 8 cached (not_finite_logits: logits hold nan)
cached
  8 of 18 prompt tokens, 0 of 8 free blocks
)");
}

TEST_CASE("what spoiled an answer is found by nobody any more, though others hold it and have gone on behind it") {
  for (const char* cache : {"radix", "hashed"}) {
    const std::string script = fmt::format("config pool=32 cache={}\n", cache) + R"(add 1 prompt=12 same=8 max=1
plan
  1[0,12)*
commit
  1: 100 length
add 2 prompt=12 same=8 max=9
plan
  2[8,12)*
commit
  2: 100
add 3 prompt=12 same=8 max=9
plan
  2[12,13)* 3[8,12)*
commit 3=error
  2: 101
  3: error, 8 cached (not_finite_logits: logits hold nan)
cached
  16 of 36 prompt tokens, 0 of 28 free blocks
add 4 prompt=12 same=8 max=9
plan
  2[13,14)* 4[0,12)*
commit
  2: 102
  4: 100
cancel 2
  2: cancelled, 8 cached
cancel 4
  4: cancelled
cached
  16 of 48 prompt tokens, 3 of 32 free blocks
)";
    check_script(script);
  }
}

TEST_CASE("keys and values are forgotten also when nobody waits for their sample any more") {
  // The first block is full with a token that was in flight when its keys were asked for.
  check_script(R"(config pool=32 cache=radix
add 1 prompt=3 max=9
plan
  1[0,3)*
plan
  1[3,4)?*
commit
  1: 100
cancel 1
  1: cancelled
commit 1=error
cached
  0 of 3 prompt tokens, 0 of 32 free blocks
)");
  // Cancelled, and preempted by an older one, each with the sample in flight.
  check_script(R"(config pool=32 cache=radix
add 1 prompt=12 max=9
plan
  1[0,12)*
cancel 1
  1: cancelled
add 2 prompt=14 max=9
plan
  2[12,14)*
commit 1=error
cached
  12 of 26 prompt tokens, 0 of 28 free blocks
commit
  2: 100
add 3 prompt=14 max=9
plan
  2[14,15)* 3[0,14)*
)");
  check_script(R"(config pool=5 cache=radix
add 1 prompt=7 same=0 max=9
add 2 prompt=11 same=0 max=9
plan
  1[0,7)* 2[0,11)*
commit
  1: 100
  2: 100
plan
  1[7,8)* 2[11,12)*
plan
  1[8,9)?*
preemptions
  2 for 1: 12 tokens, 3 blocks, time 1
commit 2=error
  1: 101
  2: error (not_finite_logits: logits hold nan)
cached
  0 of 18 prompt tokens, 0 of 2 free blocks
)");
}

TEST_CASE("nobody waits for a prefix that was spoilt") {
  check_script(R"(config pool=64 step=20 cache=radix
add 1 prompt=8 same=8 max=1
plan
  1[0,8)*
commit
  1: 100 length
add 3 prompt=9 same=8 max=9
plan
  3[8,9)*
add 2 prompt=60 same=60 max=9
plan
  3[9,10)?* 2[8,27)
commit
  3: 100
commit 3=error
  3: error, 8 cached (not_finite_logits: logits hold nan)
add 4 prompt=60 same=60 max=9
plan
  2[27,47)
plan
  2[47,60)* 4[0,7)
)");
}

// 2 has found no room for 9 blocks; then 3 takes over 5 of these.
TEST_CASE("who found no room is looked up again when one was admitted that may hold what he shares") {
  check_script(R"(config pool=16 cache=radix
add 1 prompt=19 same=0 max=9
add 4 prompt=11 same=0 max=9
plan
  1[0,19)* 4[0,11)*
commit
  1: 100
  4: 100
add 2 prompt=35 same=20 max=1
add 3 prompt=22 same=20 max=9
plan
  1[19,20)* 4[11,12)* 3[0,22)*
commit
  1: 101
  4: 101
  3: 100
cancel 4
  4: cancelled
plan
  1[20,21)* 3[22,23)* 2[20,35)*
)");
}

TEST_CASE("a block that a running sequence holds may be copied from, whatever is free") {
  check_script(R"(config pool=5 cache=radix
add 1 prompt=12 max=9 salt=a
add 2 prompt=12 max=2 salt=a
plan
  1[0,12)*
commit
  1: 100
plan
  1[12,13)* 2[11,12)*
copies
  3 tokens of block 2 to 4
free
  1
)");
}

TEST_CASE("the last free block is not held for a copy") {
  check_script(R"(config pool=3 cache=radix
add 1 prompt=12 max=1 salt=a
plan
  1[0,12)*
commit
  1: 100 length
add 2 prompt=12 max=1 salt=a
plan
  2[8,12)*
copies
free
  0
)");
}

TEST_CASE("a preempted sequence computes again only what was lost meanwhile") {
  check_script(R"(config pool=5 block=4 cache=radix
add 1 prompt=7 max=9 same=0
add 2 prompt=7 max=9 same=0
add 3 prompt=4 max=9 same=0
plan
  1[0,7)* 2[0,7)* 3[0,4)*
commit
  1: 100
  2: 100
  3: 100
plan
  1[7,8)* 2[7,8)*
preemptions
  3 for 3: 4 tokens, 1 blocks, time 1
commit
  1: 101
  2: 101
plan
  1[8,9)*
preemptions
  2 for 2: 8 tokens, 2 blocks, time 1
commit 1=eos
  1: 102 eos
plan
  2[8,9)* 3[0,5)*
updates
  clear slot 0
  set slot 0: flags 0
  patch slot 0 from entry 0: 2,3,4
  set slot 1: flags 0
  patch slot 1 from entry 0: 1,0
)");
}

TEST_CASE("nobody is overtaken more than 8 times for the sake of cached prefixes") {
  SchedulerConfig config = prefix_config();
  config.sequences_max = 1;
  Scheduler scheduler(config);
  std::vector<RequestId> order;
  const auto run_one = [&] {
    const IterationPlan* plan = scheduler.plan(0);
    REQUIRE(plan != nullptr);
    order.push_back(plan->rows[0].request_id);
    std::vector<Verdict> verdicts(1);
    verdicts[0].token = 1;
    verdicts[0].finish = FinishReason::kLength;
    scheduler.commit(*plan, verdicts, 0);
    scheduler.drained(order.back());
  };
  scheduler.add(request_of(1, 64, 1), 0);
  run_one();
  Request unknown = request_of(2, 64, 1);
  unknown.prompt[0] = 7;
  scheduler.add(std::move(unknown), 0);
  for (RequestId id = 3; id <= 22; ++id) scheduler.add(request_of(id, 64, 1), 0);
  for (int i = 0; i < 10; ++i) run_one();
  CHECK(order == std::vector<RequestId>{1, 3, 4, 5, 6, 7, 8, 9, 10, 2, 11});
}

// The earlier one scores its prompt with one sampled row, so it computes one token a step.
TEST_CASE("a request waits for another's prefix for 16 plans at most") {
  SchedulerConfig config = prefix_config();
  config.sample_rows_max = 1;
  Scheduler scheduler(config);
  Request slow = request_of(1, 600, 1);
  slow.sampling.prompt_logprobs = true;
  scheduler.add(std::move(slow), 0);
  scheduler.add(request_of(2, 600, 1), 0);
  uint64_t num_plans = 0;
  for (bool waits = true; waits; ++num_plans) {
    const IterationPlan* plan = scheduler.plan(0);
    REQUIRE(plan != nullptr);
    waits = plan->rows.size() == 1;
    if (!waits) CHECK(plan->rows[1].start == 16);
    std::vector<Verdict> verdicts(plan->samples.size());
    scheduler.commit(*plan, verdicts, 0);
  }
  CHECK(num_plans == 17);
}

TEST_CASE("who found no room is looked up again when what it shares has grown") {
  const std::string said = test::run_script(
      "config pool=30 block=4 context=256 rows=8 step=64 chunk=64 samples=4 cache=radix\n"
      "add 1 prompt=100 max=20 scores\nadd 2 prompt=100 max=4\n" +
      test::plans(32));
  INFO(said);
  CHECK(said.find("2: 100") != std::string::npos);  // beside 1, which runs for 45 plans
}
