// What the scheduler decides. Method: text scripts (scheduler_script.h), command in, plan out; the vectors with many
// requests are driven in code.
#include "core/schedule/scheduler.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>

#include "scheduler_script.h"

using namespace llmrt;
using test::check_script;

TEST_CASE("a request goes from its prompt to its last token and is forgotten when drained") {
  check_script(R"(config pool=8 block=4
add 1 prompt=6 max=3
states
  1 QUEUED
plan
  1[0,6)*
updates
  set slot 0: flags 0
  patch slot 0 from entry 0: 0,1
states
  1 DECODING
commit
  1: 100
plan
  1[6,7)*
updates
commit
  1: 101
plan
  1[7,8)*
free
  6
commit
  1: 102 length
states
  1 STREAMING
free
  8
plan
  nothing
drained 1
states
  none
)");
}

TEST_CASE("one step ahead the token is still on the device, and one token of an ended row is wasted") {
  check_script(R"(config pool=8 block=4
add 1 prompt=4 max=8
plan
  1[0,4)*
plan
  1[4,5)?*
commit
  1: 100
plan
  1[5,6)?*
commit 1=eos
  1: 101 eos
plan
  nothing
commit
free
  8
)");
}

TEST_CASE("nothing is planned beyond max_tokens") {
  check_script(R"(config
add 1 prompt=4 max=2
plan
  1[0,4)*
plan
  1[4,5)?*
commit
  1: 100
plan
  nothing
commit
  1: 101 length
)");
}

TEST_CASE("a prompt in chunks runs beside rows that decode, which come first") {
  check_script(R"(config step=16 chunk=6
add 1 prompt=4 max=9
plan
  1[0,4)*
commit
  1: 100
add 2 prompt=14 max=9
plan
  1[4,5)* 2[0,6)
states
  1 DECODING, 2 PREFILLING
commit
  1: 101
plan
  1[5,6)* 2[6,12)
commit
  1: 102
plan
  1[6,7)* 2[12,14)*
states
  1 DECODING, 2 DECODING
commit
  1: 103
  2: 100
)");
}

TEST_CASE("the chunk limit is for all prompts of a step together, and falls when nothing decodes") {
  check_script(R"(config step=16 chunk=6
add 1 prompt=3 max=1
add 2 prompt=9 max=9
add 3 prompt=9 max=9
plan
  1[0,3)* 2[0,9)* 3[0,4)
commit
  1: 100 length
  2: 100
plan
  2[9,10)* 3[4,9)*
commit
  2: 101
  3: 100
)");
}

TEST_CASE("rows that a small step leaves out come first in the next one") {
  check_script(R"(config samples=2
add 1 prompt=1 max=9
add 2 prompt=1 max=9
add 3 prompt=1 max=9
plan
  1[0,1)* 2[0,1)*
commit
  1: 100
  2: 100
plan
  1[1,2)* 2[1,2)*
commit
  1: 101
  2: 101
)");
}

TEST_CASE("a prompt's last token waits when no sampled row is left for it, and takes its turn then") {
  check_script(R"(config samples=2
add 1 prompt=2 max=9
add 2 prompt=2 max=9
add 3 prompt=4 max=9
plan
  1[0,2)* 2[0,2)* 3[0,3)
commit
  1: 100
  2: 100
plan
  1[2,3)* 2[2,3)*
commit
  1: 101
  2: 101
plan
  1[3,4)* 3[3,4)*
commit
  1: 102
  3: 100
plan
  2[3,4)* 3[4,5)*
commit
  2: 102
  3: 101
)");
}

TEST_CASE("prompt log-probabilities: chunks are no larger than the sampled rows") {
  check_script(R"(config samples=3
add 1 prompt=5 max=2 scores
plan
  1[0,3)~3
commit
  1: prompt 10
  1: prompt 11 logprob
  1: prompt 12 logprob
  1: prompt 13 logprob
plan
  1[3,5)~1*
commit
  1: prompt 14 logprob
  1: 100 logprob
plan
  1[5,6)*
commit
  1: 101 logprob length
)");
}

TEST_CASE("a prompt of one token has its record where the prompt is scored") {
  check_script(R"(config
add 1 prompt=1 max=2 scores
plan
  1[0,1)*
commit
  1: prompt 10
  1: 100 logprob
plan
  1[1,2)*
commit
  1: 101 logprob length
)");
}

TEST_CASE("max_tokens 0 scores the prompt and draws nothing") {
  check_script(R"(config
add 1 prompt=4 max=0 scores
plan
  1[0,3)~3
states
  1 PREFILLING
commit
  1: prompt 10
  1: prompt 11 logprob
  1: prompt 12 logprob
  1: prompt 13 logprob length
states
  1 STREAMING
add 2 prompt=1 max=0 scores
  2: prompt 10 length
add 3 prompt=4 max=0
  3: length
plan
  nothing
)");
}

TEST_CASE("admission counts what running sequences may still take within their reservation") {
  // 1 may grow to 4 + 8 tokens: 3 blocks of 4. Of 7 blocks that leaves 4, and 2 wants 8 + 8 tokens: 4 blocks.
  check_script(R"(config pool=7 reserve=8
add 1 prompt=4 max=20
add 2 prompt=8 max=20
add 3 prompt=1 max=1
plan
  1[0,4)* 2[0,8)*
commit
  1: 100
  2: 100
states
  1 DECODING, 2 DECODING, 3 QUEUED
)");
  check_script(R"(config pool=6 reserve=8
add 1 prompt=4 max=20
add 2 prompt=8 max=20
plan
  1[0,4)*
)");
}

TEST_CASE("admission leaves the watermark free, but not for a sequence alone in the pool") {
  check_script(R"(config pool=8 watermark=50
add 1 prompt=24 max=1
add 2 prompt=12 max=5
add 3 prompt=8 max=5
plan
  1[0,24)*
plan
  nothing
commit
  1: 100 length
plan
  2[0,12)*
states
  1 STREAMING, 2 DECODING, 3 QUEUED
)");
}

TEST_CASE("what can never run is refused with both numbers") {
  check_script(R"(config pool=4 reserve=8 context=40 penalties=0
add 1 prompt=38 max=3
  context_length_exceeded: context length: expected at most 40 tokens, found 38 prompt + 3 new
add 2 prompt=12 max=8
  never_fits: never fits: 12 prompt tokens with an expected output of 8 need 5 KV blocks of 4, the pool has 4
add 3 prompt=12 max=5
add 4 prompt=1 max=1 penalty
  unsupported: penalties: this engine keeps no token counts (penalty rows: 0)
)");
}

TEST_CASE("the newest yields its blocks, waits at the front and computes all its tokens again") {
  check_script(R"(config pool=5 block=4
add 1 prompt=7 max=9
add 2 prompt=7 max=9
add 3 prompt=4 max=9
plan
  1[0,7)* 2[0,7)* 3[0,4)*
commit
  1: 100
  2: 100
  3: 100
plan
  1[7,8)* 2[7,8)*
states
  1 DECODING, 2 DECODING, 3 PREEMPTED
preemptions
  3 for 3: 4 tokens, 1 blocks, time 1
updates
  clear slot 2
commit
  1: 101
  2: 101
plan
  1[8,9)*
states
  1 DECODING, 2 PREEMPTED, 3 PREEMPTED
preemptions
  2 for 2: 8 tokens, 2 blocks, time 1
commit 1=eos
  1: 102 eos
plan
  2[0,9)* 3[0,5)*
updates
  clear slot 0
  set slot 0: flags 0
  patch slot 0 from entry 0: 0,1,4
  set slot 1: flags 0
  patch slot 1 from entry 0: 2,3
commit
  2: 102
  3: 101
)");
}

TEST_CASE("nothing is admitted in a step that preempted") {
  check_script(R"(config pool=4 block=4
add 1 prompt=8 max=9
add 2 prompt=8 max=9
plan
  1[0,8)* 2[0,8)*
commit
  1: 100
  2: 100
add 3 prompt=1 max=1
plan
  1[8,9)*
states
  1 DECODING, 2 PREEMPTED, 3 QUEUED
commit
  1: 101
plan
  1[9,10)*
)");
}

TEST_CASE("a preempted row's token in flight is taken, and may be its last") {
  check_script(R"(config pool=4 block=4
add 1 prompt=8 max=9
add 2 prompt=8 max=9
plan
  1[0,8)* 2[0,8)*
plan
  1[8,9)?*
states
  1 DECODING, 2 PREEMPTED
commit
  1: 100
  2: 100
queue
  8 tokens
commit 1=eos
  1: 101 eos
plan
  2[0,9)*
)");
  check_script(R"(config pool=4 block=4
add 1 prompt=8 max=9
add 2 prompt=8 max=9
plan
  1[0,8)* 2[0,8)*
plan
  1[8,9)?*
commit 2=eos
  1: 100
  2: 100 eos
states
  1 DECODING, 2 STREAMING
queue
  0 tokens
)");
}

TEST_CASE("a preempted sequence is not resumed before its token in flight is known") {
  check_script(R"(config pool=4 block=4
add 1 prompt=8 max=1
add 2 prompt=8 max=9
plan
  1[0,8)* 2[0,8)*
plan
  nothing
states
  1 DECODING, 2 PREEMPTED
plan
  nothing
commit
  1: 100 length
  2: 100
plan
  2[0,9)*
)");
}

TEST_CASE("a cancelled row's token in flight is dropped") {
  check_script(R"(config
add 1 prompt=8 max=9
plan
  1[0,8)*
cancel 1
  1: cancelled
commit
plan
  nothing
states
  none
)");
}

TEST_CASE("cancel ends a request in every state, once") {
  check_script(R"(config pool=4 step=4
add 1 prompt=8 max=1
cancel 1
  1: cancelled
add 2 prompt=8 max=1
plan
  2[0,4)
cancel 2
  2: cancelled
commit
add 3 prompt=1 max=1
plan
  3[0,1)*
commit
  3: 100 length
cancel 3
drained 3
cancel 3
cancel 99
states
  none
)");
}

TEST_CASE("a lone sequence that outgrows the pool ends with both numbers, after its token in flight") {
  check_script(R"(config pool=2 block=4
add 1 prompt=7 max=9
plan
  1[0,7)*
plan
  1[7,8)?*
commit
  1: 100
plan
  nothing
commit
  1: 101
plan
  nothing
  1: error (pool_exhausted: pool exhausted: request 1 alone: 9 tokens need 3 KV blocks of 4, the pool has 2)
states
  1 STREAMING
free
  2
)");
}

TEST_CASE("a deadline ends what waits and what runs") {
  check_script(R"(config rows=1
add 1 prompt=4 max=9 deadline=20
plan
  1[0,4)*
add 2 prompt=4 max=9 deadline=10
time 10
plan
  1[4,5)?*
  2: timeout (timeout: timeout: expected the whole answer within 10 ms (its deadline), found 0 of at most 9 tokens after 10 ms)
commit
  1: 100
time 20
plan
  nothing
  1: timeout (timeout: timeout: expected the whole answer within 20 ms (its deadline), found 1 of at most 9 tokens after 20 ms)
commit
states
  none
)");
}

TEST_CASE("a full queue rejects what comes on top") {
  check_script(R"(config queue=10 rows=1
add 1 prompt=12 max=1
queue
  12 tokens
add 2 prompt=1 max=1
  2: error (overloaded: queue full: expected at most 10 tokens of class interactive, found 12 and 1 more)
states
  1 QUEUED
plan
  1[0,12)*
queue
  0 tokens
)");
}

TEST_CASE("counts for penalties: a slot each, recounted from prompt and output on resume") {
  check_script(R"(config pool=3 penalties=1
add 1 prompt=4 max=9
add 2 prompt=2 max=9 penalty
add 3 prompt=1 max=9 penalty
plan
  1[0,4)* 2[0,2)*
updates
  set slot 0: flags 0
  patch slot 0 from entry 0: 0
  set slot 1: flags 1
  recount 0: 2 of the prompt in 10,11
  patch slot 1 from entry 0: 1
commit
  1: 100
  2: 100
plan
  1[4,5)* 2[2,3)*
commit
  1: 101
  2: 101
plan
  1[5,6)* 2[3,4)*
commit
  1: 102
  2: 102
plan
  1[6,7)*
states
  1 DECODING, 2 PREEMPTED, 3 QUEUED
commit 1=eos
  1: 103 eos
plan
  2[0,5)*
updates
  clear slot 0
  set slot 0: flags 1
  recount 0: 2 of the prompt in 10,11,100,101,102
  patch slot 0 from entry 0: 0,2
)");
}

TEST_CASE("min_tokens bans end-of-generation and stop tokens until then; bias stays") {
  check_script(R"(config
add 1 prompt=1 max=9 min=1 bias stop=5
add 2 prompt=1 max=9 min=1 ignore_eos stop=5
add 3 prompt=1 max=9
plan
  1[0,1)* 2[0,1)* 3[0,1)*
updates
  set slot 0: flags 2
  patch slot 0 from entry 0: 0
  set slot 1: flags 2
  patch slot 1 from entry 0: 1
  set slot 2: flags 0
  patch slot 2 from entry 0: 2
bias
  1: 2-inf 5-inf 7+0.5
  2: 5-inf
  3:
commit
  1: 100
  2: 100
  3: 100
plan
  1[1,2)* 2[1,2)* 3[1,2)*
bias
  1: 7+0.5
  2:
  3:
)");
}

TEST_CASE("a row whose bans depend on its last token draws in every step, when that token is known") {
  check_script(R"(config pool=64 block=4
add 1 prompt=6 max=9 ngram=2 bad=100,7
add 2 prompt=4 max=9
plan
  1[0,6)* 2[0,4)*
bias
  1:
  2:
plan
  1[6,7)?^ 2[4,5)?*
commit
  1: 100
  2: 100
tail
  1* 2*
bias
  1: 7-inf
  2:
plan
  1[7,8)?^ 2[5,6)?*
commit
  1: 101
  2: 101
tail
  1* 2*
bias
  1:
  2:
commit
  1: 102
  2: 102
)");
}

TEST_CASE("without another plan in flight every tail is complete at once") {
  check_script(R"(config pool=64 block=4
add 1 prompt=6 max=9 ngram=2 bad=100,7
plan
  1[0,6)*
commit
  1: 100
plan
  1[6,7)*
bias
  1: 7-inf
commit
  1: 101
)");
}

TEST_CASE("a row whose mask comes late is parked alone, and computes its position again when the mask is there") {
  check_script(R"(config pool=64 block=4
add 1 prompt=4 max=4 bans=1
add 2 prompt=4 max=9
plan
  1[0,4)* 2[0,4)*
plan
  1[4,5)?^ 2[4,5)?*
commit
  1: 100
  2: 100
masks late
tail
  1 parked 2*
plan
  2[5,6)?*
commit
  2: 101
masks ready
plan
  1[4,5)* 2[6,7)?*
bias
  1: 1000-inf
  2:
commit
  2: 102
commit
  1: 101
  2: 103
)");
}

TEST_CASE("a mask that is late in the first step of all leaves a prompt short of its last token") {
  check_script(R"(config pool=64 block=4
masks late
add 1 prompt=4 max=4 bans=1
plan
  1[0,3)
commit
plan
  nothing
masks ready
plan
  1[3,4)*
commit
  1: 100
)");
}

TEST_CASE("late rows that have more changes than the tail has room for are parked, and have room in the next step") {
  check_script(R"(config pool=64 block=4 samples=4
add 1 prompt=4 max=9 bans=4096
add 2 prompt=4 max=9 bans=4096
add 3 prompt=4 max=9 bans=4096
add 4 prompt=4 max=9
plan
  1[0,4)* 2[0,4)* 3[0,3) 4[0,4)*
plan
  1[4,5)?^ 2[4,5)?^ 3[3,4)* 4[4,5)?*
commit
  1: 100
  2: 100
  4: 100
tail
  1* 2 parked 3* 4*
plan
  1[5,6)?^ 2[4,5)* 3[4,5)?^ 4[5,6)?*
commit
  1: 101
  3: 100
  4: 101
tail
  1* 2* 3 parked 4*
commit
  1: 102
  2: 101
  4: 102
)");
}

TEST_CASE("a row that ends while its next token is late keeps its place in the tail, and all can be parked") {
  check_script(R"(config pool=64 block=4
add 1 prompt=4 max=9 bans=1
plan
  1[0,4)*
plan
  1[4,5)?^
commit
  1: 100
masks late
tail
  1 parked
commit
masks ready
plan
  1[4,5)*
plan
  1[5,6)?^
commit 1=eos
  1: 101 eos
tail
  1*
commit
)");
}

TEST_CASE("a parked row that yields begins again with the token that it knows") {
  check_script(R"(config pool=4 block=4
add 1 prompt=4 max=6
add 2 prompt=4 max=9 bans=1
plan
  1[0,4)* 2[0,4)*
plan
  1[4,5)?* 2[4,5)?^
commit
  1: 100
  2: 100
masks late
tail
  1* 2 parked
commit
  1: 101
plan
  1[5,6)*
commit
  1: 102
plan
  1[6,7)*
commit
  1: 103
plan
  1[7,8)*
commit
  1: 104
plan
  1[8,9)*
preemptions
  2 for 1: 4 tokens, 2 blocks, time 1
masks ready
commit
  1: 105 length
plan
  2[0,5)*
commit
  2: 101
plan
  2[5,6)*
bias
  2: 1000-inf
commit
  2: 102
)");
}

TEST_CASE("a row's error ends that request alone") {
  check_script(R"(config
add 1 prompt=4 max=9
add 2 prompt=4 max=9
plan
  1[0,4)* 2[0,4)*
plan
  1[4,5)?* 2[4,5)?*
commit 1=error
  1: error (not_finite_logits: logits hold nan)
  2: 100
commit
  2: 101
)");
}

TEST_CASE("a lost device ends everything, and the plans in flight with it") {
  check_script(R"(config rows=1
add 1 prompt=4 max=9
add 2 prompt=4 max=9
plan
  1[0,4)*
plan
  1[4,5)?*
fail
  1: error (device_lost: gone)
  2: error (device_lost: gone)
states
  1 STREAMING
drained 1
states
  none
)");
}

TEST_CASE("with broken books everything ends and nothing is given back") {
  SchedulerConfig config;
  config.context_max = 64;
  config.kv_pools = {{8, 16}};
  Scheduler scheduler(config);
  Request request;
  request.id = 1;
  request.prompt.assign(20, 1);
  scheduler.add(std::move(request), 0);
  REQUIRE(scheduler.plan(0) != nullptr);
  scheduler.fail_all(make_error(ErrorCode::kInternal, "books: for the test"), 0);
  std::vector<TokenEvent> events;
  scheduler.take_events(&events);
  REQUIRE(events.size() == 1);
  CHECK(events[0].finish == FinishReason::kError);
  CHECK(events[0].error->code == ErrorCode::kInternal);
  CHECK(scheduler.num_free_blocks(0) == 6);
  CHECK_FALSE(scheduler.has_work());
}

namespace {

SchedulerConfig vector_config() {
  SchedulerConfig config;
  config.context_max = 32768;
  config.kv_pools = {{2048, 16}};
  return config;
}

Request request_of(RequestId id, uint32_t num_prompt, uint32_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt.assign(num_prompt, 1);
  request.max_tokens = max_tokens;
  return request;
}

// Every row draws token 1; length ends it.
std::vector<Verdict> verdicts_of(const IterationPlan& plan, const std::map<RequestId, uint32_t>& max_tokens) {
  std::vector<Verdict> verdicts(plan.samples.size());
  for (const PlanRow& row : plan.rows) {
    for (uint32_t i = row.sample_first; i < row.sample_first + row.num_samples; ++i) {
      verdicts[i].token = 1;
      if (plan.samples[i].output_position + 1 == max_tokens.at(row.request_id)) {
        verdicts[i].finish = FinishReason::kLength;
      }
    }
  }
  return verdicts;
}

}  // namespace

TEST_CASE("12,000 tokens at 2,048 a step: 5 full chunks and 1,760") {
  Scheduler scheduler(vector_config());
  scheduler.add(request_of(1, 12000, 1), 0);
  std::vector<uint32_t> chunks;
  while (const IterationPlan* plan = scheduler.plan(0)) {
    REQUIRE(plan->rows.size() == 1);
    chunks.push_back(plan->rows[0].num_tokens);
    CHECK(plan->samples.size() == (chunks.size() == 6 ? 1 : 0));
    std::vector<Verdict> verdicts = verdicts_of(*plan, {{1, 1}});
    scheduler.commit(*plan, verdicts, 0);
  }
  CHECK(chunks == std::vector<uint32_t>{2048, 2048, 2048, 2048, 2048, 1760});
  CHECK(scheduler.num_free_blocks(0) == 2048);
}

// Reservation 0, 20 requests, 32 blocks, 4 at a time. Each grows from 2 to 10 blocks, so 4 of them need 40.
TEST_CASE("under preemption all finish, the newest yields first and returns to the front") {
  const int steps_ahead = GENERATE(1, 2);
  CAPTURE(steps_ahead);
  SchedulerConfig config = vector_config();
  config.kv_pools = {{32, 16}};
  config.sequences_max = 4;
  config.reserve_output_tokens = 0;
  config.watermark = 0;
  Scheduler scheduler(config);
  std::map<RequestId, uint32_t> max_tokens;
  for (RequestId id = 1; id <= 20; ++id) {
    max_tokens[id] = 128;
    scheduler.add(request_of(id, 32, 128), 0);
  }
  std::vector<const IterationPlan*> in_flight;
  std::vector<RequestId> finished;
  std::vector<TokenEvent> events;
  std::map<RequestId, RequestState> before;
  uint32_t num_preemptions = 0;
  while (scheduler.has_work()) {
    const IterationPlan* plan = scheduler.plan(0);
    if (plan) in_flight.push_back(plan);
    RequestId oldest_yielded = 0, newest_running = 0;
    for (RequestId id = 1; id <= 20; ++id) {
      const auto state = scheduler.state_of(id);
      if (!state) continue;
      const bool runs = *state == RequestState::kPrefilling || *state == RequestState::kDecoding;
      if (runs) newest_running = id;
      if (*state == RequestState::kPreempted) {
        if (before[id] != RequestState::kPreempted) ++num_preemptions;
        if (oldest_yielded == 0) oldest_yielded = id;
      }
      // It waits at the front: nothing that came later is admitted before it.
      if (*state == RequestState::kQueued) CHECK(id > newest_running);
      before[id] = *state;
    }
    if (oldest_yielded != 0) CHECK(oldest_yielded > newest_running);
    REQUIRE(scheduler.check_books().ok());
    if (in_flight.empty() || (plan && static_cast<int>(in_flight.size()) < steps_ahead)) continue;
    std::vector<Verdict> verdicts = verdicts_of(*in_flight.front(), max_tokens);
    scheduler.commit(*in_flight.front(), verdicts, 0);
    in_flight.erase(in_flight.begin());
    events.clear();
    scheduler.take_events(&events);
    for (const TokenEvent& event : events) {
      if (event.finish == FinishReason::kNone) continue;
      CHECK(event.finish == FinishReason::kLength);
      finished.push_back(event.request_id);
      scheduler.drained(event.request_id);
    }
    REQUIRE(scheduler.check_books().ok());
  }
  std::vector<RequestId> in_order(20);
  for (RequestId id = 1; id <= 20; ++id) in_order[id - 1] = id;
  CHECK(finished == in_order);
  CHECK(scheduler.num_free_blocks(0) == 32);
  CHECK(num_preemptions > 0);
  CHECK(scheduler.stats().num_preemptions == num_preemptions);
  std::vector<Preemption> preemptions;
  scheduler.take_preemptions(&preemptions);
  CHECK(preemptions.size() == num_preemptions);
  CHECK(scheduler.stats().generated_tokens == 20 * 128);
}

TEST_CASE("a plan keeps within the limits that sized its inputs") {
  const uint32_t num_prompt = GENERATE(8u, 40u);  // the longer ones are shared, and their equal blocks replaced
  SchedulerConfig config = vector_config();
  config.prefix_cache = num_prompt == 40 ? PrefixCacheKind::kRadix : PrefixCacheKind::kOff;
  config.context_max = 512;
  config.kv_pools = {{4096, 16}};
  config.step_tokens_max = 256;
  config.sequences_max = 64;
  const PlanLimits limits = plan_limits(config);
  Scheduler scheduler(config);
  for (RequestId id = 1; id <= 64; ++id) {
    Request request = request_of(id, num_prompt, 400);
    request.sampling.presence_penalty = id % 2 ? 1.0f : 0.0f;
    for (int32_t i = 0; i < 1024; ++i) request.sampling.logit_bias.push_back({i, 1});
    request.stop.token_ids.assign(kStopTokensMax, 3);
    request.min_tokens = 400;
    scheduler.add(std::move(request), 0);
  }
  for (int step = 0; step < 20; ++step) {
    const IterationPlan* plan = scheduler.plan(0);
    REQUIRE(plan != nullptr);
    CHECK(plan->rows.size() <= limits.rows_max);
    CHECK(plan->tokens.size() <= limits.tokens_max);
    CHECK(plan->samples.size() <= limits.samples_max);
    CHECK(plan->row_updates.size() <= limits.row_updates_max);
    CHECK(plan->row_payload.size() <= limits.payload_words_max);
    CHECK(plan->bias.size() <= limits.bias_entries_max);
    CHECK(plan->block_copies.size() <= limits.block_copies_max);
    std::vector<Verdict> verdicts(plan->samples.size());
    for (Verdict& verdict : verdicts) verdict.token = 1;
    scheduler.commit(*plan, verdicts, 0);
  }
}

TEST_CASE("rows whose logit changes do not fit into a step take turns") {
  SchedulerConfig config = vector_config();
  config.context_max = 512;
  config.kv_pools = {{4096, 16}};
  config.sample_rows_max = 8;
  config.sequences_max = 8;
  const uint64_t entries_max = plan_limits(config).bias_entries_max;
  Scheduler scheduler(config);
  constexpr uint32_t kRows = 8;
  for (RequestId id = 1; id <= kRows; ++id) {
    Request request = request_of(id, 8, 400);
    for (int32_t i = 0; i < 1024; ++i) {
      request.sampling.logit_bias.push_back({i, 1});
      request.sampling.bad_words.push_back({2000 + i});
    }
    scheduler.add(std::move(request), 0);
  }
  REQUIRE(kRows * 2048 > entries_max);
  std::map<RequestId, int> draws;
  for (int step = 0; step < 40; ++step) {
    const IterationPlan* plan = scheduler.plan(0);
    REQUIRE(plan != nullptr);
    CHECK(plan->bias.size() <= entries_max);
    std::vector<Verdict> verdicts(plan->samples.size());
    for (Verdict& verdict : verdicts) verdict.token = 1;
    for (const PlanRow& row : plan->rows) draws[row.request_id] += static_cast<int>(row.num_samples);
    scheduler.commit(*plan, verdicts, 0);
  }
  const auto [least, most] = std::ranges::minmax_element(draws, {}, [](const auto& row) { return row.second; });
  CHECK(draws.size() == kRows);
  CHECK(least->second >= 20);
  CHECK(most->second - least->second <= 2);
}
