// Classes of requests: who goes first, who gets which share, who gives lent room back, who is refused. Method: as in
// scheduler_test.cpp, and made-up loads for what takes many steps.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <random>

#include "core/schedule/fair_queue.h"
#include "core/schedule/output_lengths.h"
#include "core/schedule/scheduler.h"
#include "core/schedule/service_rate.h"
#include "scheduler_script.h"

using namespace llmrt;
using Catch::Approx;
using test::check_script;

namespace {
constexpr TimeNs kMs = 1'000'000;
}

TEST_CASE("in a class the earliest deadline goes first, and who has none is due after 30 seconds") {
  check_script(R"(config rows=1
add 1 prompt=4 max=1
add 2 prompt=4 max=1 deadline=40000
add 3 prompt=4 max=1 deadline=2000
add 4 prompt=4 max=1 deadline=1000
plan
  4[0,4)*
commit
  4: 100 length
plan
  3[0,4)*
commit
  3: 100 length
plan
  1[0,4)*
commit
  1: 100 length
plan
  2[0,4)*
)");
}

TEST_CASE("a request that is not started in time ends, one that is goes on until it expires") {
  check_script(R"(config rows=1
add 1 prompt=4 max=9 start_by=10 expiry=30
add 2 prompt=4 max=9 start_by=10 expiry=30
plan
  1[0,4)*
time 10
plan
  1[4,5)?*
  2: timeout (timeout: timeout: expected a start within 10 ms, found it waiting after 10 ms)
commit
  1: 100
time 33
plan
  nothing
  1: timeout (timeout: timeout: expected the whole answer within 30 ms (this engine's limit), found 1 of at most 9 tokens after 33 ms)
commit
)");
}

TEST_CASE("of prompts about equally well known a much shorter one goes first") {
  check_script(R"(config rows=1 context=1000
add 1 prompt=200 max=1 same=0
add 2 prompt=70 max=1 same=0
add 3 prompt=60 max=1 same=0
add 4 prompt=20 max=1 same=0
plan
  3[0,60)*
commit
  3: 100 length
plan
  4[0,20)*
commit
  4: 100 length
plan
  2[0,64)
)");
}

TEST_CASE("the lowest class yields first, and in it the newest") {
  check_script(R"(config pool=6 block=4 rows=4
add 1 prompt=6 max=9 class=batch
add 2 prompt=4 max=9 class=batch
add 3 prompt=4 max=9 class=interactive
plan
  3[0,4)* 1[0,6)* 2[0,4)*
commit
  3: 100
  1: 100
  2: 100
plan
  3[4,5)* 1[6,7)* 2[4,5)*
commit
  3: 101
  1: 101
  2: 101
plan
  3[5,6)* 1[7,8)* 2[5,6)*
commit
  3: 102
  1: 102
  2: 102
plan
  3[6,7)* 1[8,9)*
preemptions
  2 for 1: 6 tokens, 2 blocks, time 1
commit
  3: 103
  1: 103
plan
  3[7,8)* 1[9,10)*
commit
  3: 104
  1: 104
plan
  3[8,9)* 1[10,11)*
preemptions
commit
  3: 105
  1: 105
plan
  3[9,10)* 1[11,12)*
commit
  3: 106
  1: 106
plan
  3[10,11)*
preemptions
  1 for 1: 12 tokens, 3 blocks, time 1
)");
}

TEST_CASE("lent rows are given back to a class that has less than its share, and no more than those") {
  check_script(R"(config rows=4
add 1 prompt=4 max=9 class=batch
add 2 prompt=4 max=9 class=batch
add 3 prompt=4 max=9 class=batch
add 4 prompt=4 max=9 class=batch
add 5 prompt=4 max=9 class=batch
plan
  1[0,4)* 2[0,4)* 3[0,4)* 4[0,4)*
commit
  1: 100
  2: 100
  3: 100
  4: 100
add 6 prompt=4 max=9
add 7 prompt=4 max=9
add 8 prompt=4 max=9
plan
  1[4,5)* 2[4,5)* 6[0,4)* 7[0,4)*
preemptions
  4 for 6: 4 tokens, 2 blocks, time 1
  3 for 7: 4 tokens, 2 blocks, time 1
commit
  1: 101
  2: 101
  6: 100
  7: 100
plan
  1[5,6)* 2[5,6)* 6[4,5)* 7[4,5)*
preemptions
states
  1 DECODING, 2 DECODING, 3 PREEMPTED, 4 PREEMPTED, 5 QUEUED, 6 DECODING, 7 DECODING, 8 QUEUED
commit 6=eos
  1: 102
  2: 102
  6: 101 eos
  7: 101
plan
  1[6,7)* 2[6,7)* 7[5,6)* 8[0,4)*
)");
}

TEST_CASE("room that ends goes to the class with the fewest rows for its share") {
  check_script(R"(config rows=3
add 1 prompt=4 max=9
add 2 prompt=4 max=9
add 3 prompt=4 max=9
plan
  1[0,4)* 2[0,4)* 3[0,4)*
commit
  1: 100
  2: 100
  3: 100
add 4 prompt=4 max=9
add 5 prompt=4 max=9 class=batch
plan
  1[4,5)* 2[4,5)* 3[4,5)*
preemptions
commit 1=eos
  1: 101 eos
  2: 101
  3: 101
plan
  2[5,6)* 3[5,6)* 5[0,4)*
)");
}

// Each chunk is 15 tokens and the row that decodes, or 16 where that is left out; two and a half are 37 and 40.
TEST_CASE("beside batch the end of an interactive prompt comes with a chunk, up to two and a half of them together") {
  check_script(R"(config chunk=16
add 1 prompt=4 max=9 class=batch
plan
  1[0,4)*
commit
  1: 100
add 2 prompt=16 max=1
plan
  1[4,5)* 2[0,16)*
commit
  1: 101
  2: 100 length
add 3 prompt=41 max=1
plan
  1[5,6)* 3[0,15)
commit
  1: 102
plan
  3[15,41)*
commit
  3: 100 length
plan
  1[6,7)*
)");
  for (const std::string prompt_class : {"interactive", "batch"})  // not beside interactive rows, nor of batch
    check_script(R"(config chunk=16
add 1 prompt=4 max=9
plan
  1[0,4)*
commit
  1: 100
add 2 prompt=22 max=1 class=)" +
                 prompt_class +
                 R"(
plan
  1[4,5)* 2[0,15)
)");
}

// One that has just come, alone in its lane.
TEST_CASE("rows of batch are left out of a step that ends a long interactive prompt, but not twice in a row") {
  check_script(R"(config chunk=16
add 1 prompt=4 max=9 class=batch
add 2 prompt=4 max=9
plan
  2[0,4)* 1[0,4)*
commit
  2: 100
  1: 100
add 3 prompt=30 max=1
plan
  2[4,5)* 3[0,30)*
commit
  2: 101
  3: 100 length
add 4 prompt=30 max=1
plan
  2[5,6)* 1[4,5)* 4[0,30)*
commit
  2: 102
  1: 101
  4: 100 length
add 5 prompt=30 max=1
plan
  2[6,7)* 5[0,30)*
commit
  2: 103
  5: 100 length
plan
  2[7,8)* 1[5,6)*
commit
  2: 104
  1: 102
add 6 prompt=30 max=1
add 7 prompt=30 max=1
plan
  2[8,9)* 1[6,7)* 6[0,30)*
)");
}

// There is one place for penalties.
TEST_CASE("rows of batch that were to be left out run, and make room, when the long prompt finds no place") {
  check_script(R"(config chunk=16 pool=8
add 1 prompt=16 max=9 class=batch penalty
add 2 prompt=16 max=9 class=batch
plan
  1[0,16)* 2[0,16)*
commit
  1: 100
  2: 100
add 3 prompt=30 max=1 penalty
plan
  1[16,17)*
commit
  1: 101
)");
}

TEST_CASE("a step is planned late where batch runs and requests that somebody waits for have come within a minute") {
  SchedulerConfig config;
  config.context_max = 64;
  config.kv_pools = {{64, 4}};
  Scheduler scheduler(config);
  TimeNs now = 0;
  const auto add = [&](RequestId id, RequestClass request_class) {
    Request request;
    request.id = id;
    request.prompt.assign(4, 1);
    request.max_tokens = 60;
    request.request_class = request_class;
    scheduler.add(std::move(request), now);
  };
  const auto step = [&] {
    const IterationPlan* plan = scheduler.plan(now);
    REQUIRE(plan != nullptr);
    const double after_ms = scheduler.plan_after_ms(*plan, now);
    std::vector<Verdict> verdicts(plan->samples.size());
    for (Verdict& verdict : verdicts) verdict.token = 1;
    scheduler.commit(*plan, verdicts, now, {.step_ms = 10});
    return after_ms;
  };
  add(1, RequestClass::kInteractive);
  for (int i = 0; i < 20; ++i) CHECK(step() == 0);
  add(2, RequestClass::kBatch);
  step();
  CHECK(step() == Approx(9).epsilon(0.02));
  scheduler.cancel(1, now);
  CHECK(step() == Approx(9).epsilon(0.02));
  now += 61'000 * kMs;
  CHECK(step() == 0);
  add(3, RequestClass::kAgent);
  CHECK(step() > 8);
  scheduler.cancel(2, now);
  CHECK(step() == 0);
}

namespace {

// Plain loop at one time. Requests end with their first token, but for the first `num_that_go_on`.
struct Steps {
  Scheduler scheduler;
  RequestId num_that_go_on, last_id = 0;

  RequestId add(Request request, uint32_t num_prompt, uint32_t max_tokens) {
    request.id = ++last_id;
    request.prompt.assign(num_prompt, 1);
    request.max_tokens = max_tokens;
    REQUIRE(scheduler.check(request).ok());
    scheduler.add(std::move(request), 0);
    return last_id;
  }
  void step() {
    const IterationPlan* plan = scheduler.plan(0);
    REQUIRE(plan != nullptr);
    std::vector<Verdict> verdicts(plan->samples.size());
    for (const PlanRow& row : plan->rows)
      if (row.num_samples > 0) {
        verdicts[row.sample_first].token = 1;
        if (row.request_id > num_that_go_on) verdicts[row.sample_first].finish = FinishReason::kLength;
      }
    scheduler.commit(*plan, verdicts, 0);
    REQUIRE(scheduler.check_books().ok());
  }
};

}  // namespace

TEST_CASE("who does not fit is passed over 8 times, then nobody passes") {
  SchedulerConfig config;
  config.context_max = 64;
  config.kv_pools = {{8, 4}};
  config.sample_rows_max = config.sequences_max = 4;
  config.reserve_output_tokens = 0;
  config.watermark = 0;
  Request one_of_others;
  one_of_others.request_class = GENERATE(RequestClass::kInteractive, RequestClass::kBatch);
  Steps steps{.scheduler = Scheduler(config), .num_that_go_on = 1};
  Scheduler& scheduler = steps.scheduler;
  // 1 holds half the pool, 2 wants nearly all of it, and there are always more small ones.
  steps.add({}, 12, 40);
  steps.step();
  const RequestId large = steps.add({}, 28, 1);
  uint32_t num_passed = 0;
  for (int i = 0; i < 20; ++i) {
    const RequestId small = steps.add(one_of_others, 4, 1);
    steps.step();
    num_passed += !scheduler.state_of(small) || scheduler.state_of(small) == RequestState::kStreaming;
    CHECK(scheduler.state_of(large) == RequestState::kQueued);
  }
  CHECK(num_passed == 8);
  scheduler.cancel(1, 0);
  steps.step();
  CHECK(scheduler.state_of(large) == RequestState::kStreaming);
}

namespace {

Steps with_one_penalty_slot(uint32_t num_blocks, RequestId num_that_go_on) {
  SchedulerConfig config;
  config.context_max = 64;
  config.kv_pools = {{num_blocks, 4}};
  config.sample_rows_max = config.sequences_max = 8;
  config.penalty_rows_max = 1;
  config.queue_branches_max = config.queue_bytes_max = 1u << 30;
  return {.scheduler = Scheduler(config), .num_that_go_on = num_that_go_on};
}
Request request_with_penalty() {
  Request request;
  request.sampling.presence_penalty = 1;
  return request;
}

}  // namespace

TEST_CASE("where rows with token counts are scarce one request has half of them at most") {
  check_script(R"(config pool=64 rows=8 penalties=4 chunk=64
add 1 prompt=4 max=50 n=6 penalty
plan
  1[0,4)*
commit
  1: 100
plan
  1[4,5)* 2[3,4)*
commit
  1: 101
  2: 100
add 11 prompt=2 max=1 penalty
add 12 prompt=3 max=1
plan
  1[5,6)* 2[4,5)* 11[0,2)* 12[0,3)*
commit
  1: 102
  2: 101
  11: 100 length
  12: 100 length
cancel 1
  1: cancelled
plan
  2[5,6)* 3[3,4)*
)");
}

TEST_CASE("where every row may have token counts one request may have all of them") {
  const std::string said = test::run_script("config pool=64 rows=4 penalties=4\nadd 1 prompt=4 max=50 n=6 penalty\n" +
                                            test::plans(2) + "states\n");
  INFO(said);
  CHECK(said.find("1 DECODING, 2 DECODING, 3 DECODING, 4 DECODING, 5 QUEUED, 6 QUEUED") != std::string::npos);
}

TEST_CASE("who waits for a slot for penalties holds up nobody else") {
  Steps steps = with_one_penalty_slot(64, 3);
  const Request with_penalty = request_with_penalty();
  Scheduler& scheduler = steps.scheduler;
  steps.add(with_penalty, 4, 60);
  steps.step();
  steps.add(with_penalty, 4, 60);
  steps.add(with_penalty, 4, 60);
  for (int i = 0; i < 20; ++i) {
    const RequestId id = steps.add({}, 4, 1);
    steps.step();
    CHECK(scheduler.state_of(id) == RequestState::kStreaming);
    CHECK(scheduler.state_of(2) == RequestState::kQueued);
    scheduler.drained(id);
  }
  scheduler.cancel(1, 0);
  steps.step();
  CHECK(scheduler.state_of(2) == RequestState::kDecoding);
  CHECK(scheduler.state_of(3) == RequestState::kQueued);
}

TEST_CASE("nor do more of them than are looked through for one that may start") {
  Steps steps = with_one_penalty_slot(640, 100);
  Scheduler& scheduler = steps.scheduler;
  for (int i = 0; i < 20'000; ++i) steps.add(request_with_penalty(), 4, 60);
  steps.step();
  const RequestId id = steps.add({}, 4, 1);
  steps.step();
  CHECK(scheduler.state_of(id) == RequestState::kStreaming);
}

TEST_CASE("a background prompt that has begun has its share after a minute, too") {
  check_script(R"(config rows=8 step=8
add 1 prompt=20 max=1 class=background
plan
  1[0,8)
commit
add 2 prompt=40 max=1 class=batch
add 3 prompt=40 max=1 class=batch
plan
  2[0,8)
commit
time 60000
plan
  2[8,16)
commit
plan
  1[8,16)
)");
}

TEST_CASE("background takes what is left, and has a share of its own after a minute") {
  check_script(R"(config rows=8 step=8
add 1 prompt=4 max=1 class=background
add 2 prompt=12 max=1 class=batch
plan
  2[0,8)
commit
plan
  2[8,12)* 1[0,4)*
commit
  2: 100 length
  1: 100 length
add 3 prompt=4 max=1 class=background
add 4 prompt=24 max=1 class=batch
add 5 prompt=24 max=1 class=batch
plan
  4[0,8)
commit
time 60000
plan
  4[8,16)
commit
plan
  4[16,20) 3[0,4)*
)");
}

TEST_CASE(
    "lanes that want more than there is get their shares, what one leaves is the others', and a burst comes first") {
  FairQueue queue({0.5, 0.25, 0.25, 0.05}, {100, 0, 0, 0});
  std::array<double, kNumLanes> served = {};
  const auto serve = [&](std::array<bool, kNumLanes> active, int count) {
    served = {};
    for (int i = 0; i < count; ++i) {
      queue.set_active(active);
      const Lane lane = queue.order()[0];
      queue.charge(lane, 10);
      served[static_cast<size_t>(lane)] += 10;
    }
  };
  serve({true, true, true, false}, 400);
  CHECK(served == std::array<double, kNumLanes>{2000, 1000, 1000, 0});
  serve({true, false, true, false}, 300);
  CHECK(served[0] == Approx(2000).margin(10));
  serve({false, false, true, false}, 100);
  CHECK(served[2] == 1000);
  // Nothing is owed for the time of idleness but the credit.
  serve({true, false, true, false}, 11);
  CHECK(served[0] == Approx(100).margin(20));
  serve({true, false, true, false}, 300);
  CHECK(served[0] == Approx(2000).margin(20));
}

TEST_CASE("what 95 of 100 answers do not pass") {
  OutputLengths lengths;
  for (uint32_t i = 1; i < 100; ++i) lengths.add(i);
  CHECK(lengths.expected(256) == 256);
  lengths.add(100);
  CHECK(lengths.expected(256) == 96);
  for (int i = 0; i < 10'000; ++i) lengths.add(1000);
  CHECK(lengths.expected(256) == 1008);
  for (int i = 0; i < 100'000; ++i) lengths.add(1);
  CHECK(lengths.expected(256) == 16);
}

TEST_CASE("prompts are served at a rate that is known while some wait") {
  ServiceRate rate;
  TimeNs now = 0;
  for (int i = 0; i < 100; ++i) rate.observe(500, false, now += 10 * kMs);
  CHECK(rate.tokens_per_ms() == 0);
  for (int i = 0; i < 100; ++i) rate.observe(500, true, now += 10 * kMs);
  CHECK(rate.tokens_per_ms() == Approx(50));
  for (int i = 0; i < 1000; ++i) rate.observe(100, true, now += 10 * kMs);
  CHECK(rate.tokens_per_ms() == Approx(10).epsilon(0.01));
}
