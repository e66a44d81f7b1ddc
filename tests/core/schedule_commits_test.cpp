// What becomes of verdicts.
#include <catch2/catch_test_macros.hpp>

#include "schedule_room.h"

using namespace llmrt;
using test::request_of;
using test::room_config;
using test::ScheduleRoom;

namespace {

void commit(ScheduleRoom& room, const IterationPlan& plan, std::vector<Verdict> verdicts) {
  room.owners.plans.note_commit(plan);
  room.flows.commits.take(plan, verdicts, 0);
}

Verdict drawn(int32_t token, FinishReason finish = FinishReason::kNone) {
  Verdict verdict;
  verdict.token = token;
  verdict.finish = finish;
  return verdict;
}

Verdict failed(ErrorCode code) {
  Verdict verdict;
  verdict.error = make_error(code, "failed");
  return verdict;
}

}  // namespace

TEST_CASE("a drawn token is appended and told, and a finish ends its branch") {
  ScheduleRoom room;
  Sequence& row = *room.add(request_of(1, 4, 8));
  commit(room, *room.plan(), {drawn(7)});
  CHECK(row.tokens == std::vector<int32_t>{1, 1, 1, 1, 7});
  CHECK(row.progress.pending == 0);
  commit(room, *room.plan(), {drawn(8, FinishReason::kStopToken)});
  CHECK(row.state() == RequestState::kStreaming);
  const std::vector<TokenEvent> events = room.events();
  REQUIRE(events.size() == 2);
  CHECK(events[0].token == 7);
  CHECK(events[1].token == 8);
  CHECK(events[1].finish == FinishReason::kStopToken);
}

TEST_CASE("a preempted branch takes its token, a cancelled one drops it") {
  ScheduleRoom room;
  Sequence& yields = *room.add(request_of(1, 4, 8));
  Sequence& cancelled = *room.add(request_of(2, 4, 8));
  const IterationPlan& plan = *room.plan();
  room.flows.yields.preempt(yields, 2);
  room.flows.exits.end(cancelled, RequestState::kCancelled, {}, FinishReason::kCancelled, 0);
  room.events();
  commit(room, plan, {drawn(7), drawn(8)});
  CHECK(yields.tokens.back() == 7);
  CHECK(yields.progress.pending == 0);
  const std::vector<TokenEvent> events = room.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].request_id == 1);
}

TEST_CASE("scored prompt tokens are told behind the first, and end a request for scores alone") {
  ScheduleRoom room;
  Request request = request_of(1, 3, 0);
  request.prompt = {10, 11, 12};
  request.sampling.logprobs = 0;
  request.sampling.prompt_logprobs = true;
  const Sequence& row = *room.add(request);
  Verdict score;
  score.has_logprob = true;
  score.logprob = -1.5f;
  commit(room, *room.plan(), {score, score});
  const std::vector<TokenEvent> events = room.events();
  REQUIRE(events.size() == 3);
  CHECK(events[0].token == 10);
  CHECK_FALSE(events[0].has_logprob);
  CHECK(events[1].token == 11);
  CHECK(events[1].is_prompt);
  CHECK(events[1].logprob == -1.5f);
  CHECK(events[2].finish == FinishReason::kLength);
  CHECK(row.state() == RequestState::kStreaming);
}

TEST_CASE("an error ends its branch alone, and a spoilt row is kept for no other") {
  SchedulerConfig config = room_config();
  config.prefix_cache = PrefixCacheKind::kRadix;
  for (const ErrorCode code : {ErrorCode::kEmptySupport, ErrorCode::kNotFinite}) {
    ScheduleRoom room(config);
    const Sequence& bad = *room.add(request_of(1, 8, 8));
    const Sequence& good = *room.add(request_of(2, 8, 8));
    commit(room, *room.plan(), {failed(code), drawn(7)});
    CHECK(bad.state() == RequestState::kStreaming);
    CHECK(good.runs());
    CHECK(room.owners.kv.num_cached(0) == (code == ErrorCode::kNotFinite ? 0u : 2u));
    CHECK(room.audit().ok());
  }
}

TEST_CASE("beams wait for each other, then go on, and are told their answers at the end") {
  ScheduleRoom room;
  Request request = request_of(1, 4, 2);
  request.n = 2;
  request.beam = BeamParams{};
  room.add(request);
  Sequence& first = *room.owners.branches.find(1);
  Sequence& second = *room.owners.branches.find(2);
  const auto may_follow = [](int32_t a, int32_t b) {
    Verdict verdict;
    verdict.top_logprobs = {{a, -0.1f}, {b, -0.2f}, {90, -9.0f}};
    return verdict;
  };
  const IterationPlan& prompt = *room.plan();  // the first computes it, the second begins with all but one token
  REQUIRE(prompt.rows.size() == 1);
  commit(room, prompt, {may_follow(20, 21)});
  CHECK(first.tokens.size() == 4);
  commit(room, *room.plan(), {may_follow(20, 21)});
  CHECK(first.tokens.back() == 20);
  CHECK(second.tokens.back() == 21);
  CHECK(second.state() == RequestState::kPreempted);  // it begins again behind the first one's prompt
  CHECK(room.events().empty());
  const IterationPlan& last = *room.plan();
  REQUIRE(last.samples.size() == 2);
  commit(room, last, {may_follow(30, 31), may_follow(40, 41)});
  const std::vector<TokenEvent> events = room.events();
  REQUIRE(events.size() == 4);
  CHECK(events[0].token == 20);
  CHECK(events[1].token == 30);
  CHECK(events[1].finish == FinishReason::kLength);
  CHECK(events[2].request_id == 2);
  CHECK(room.owners.branches.num_streaming() == 2);
}
