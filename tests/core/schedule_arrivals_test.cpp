// How requests come in: what is refused for ever, what at once, and what becomes of a request's branches.
#include <catch2/catch_test_macros.hpp>

#include "schedule_room.h"

using namespace llmrt;
using test::request_of;
using test::room_config;
using test::ScheduleRoom;

TEST_CASE("what can never run is refused with both numbers") {
  SchedulerConfig config = room_config(/*num_blocks=*/4);
  config.penalty_rows_max = 0;
  const ScheduleRoom room(config);
  const Arrivals& arrivals = room.flows.arrivals;
  CHECK(arrivals.check(request_of(1, 12, 5)).ok());  // 16 positions
  CHECK(arrivals.check(request_of(1, 60, 5)).error().code == ErrorCode::kContextLength);
  const Status never = arrivals.check(request_of(1, 12, 8));
  REQUIRE(never.error().code == ErrorCode::kNeverFits);
  CHECK(never.error().message ==
        "never fits: 12 prompt tokens with an expected output of 8 need 5 KV blocks of 4, the pool has 4");
  CHECK(arrivals.check(request_of(1, 8, 40)).ok());  // more than the expected output is not counted
  Request penalty = request_of(1);
  penalty.sampling.presence_penalty = 1;
  CHECK(arrivals.check(penalty).error().code == ErrorCode::kUnsupported);
  Request beams = request_of(1);
  beams.beam = BeamParams{};
  beams.n = kBeamCandidatesMax + 1;
  CHECK(arrivals.check(beams).error().code == ErrorCode::kUnsupported);
}

TEST_CASE("a request waits as its branches, which share a prompt and differ in id and noise") {
  ScheduleRoom room;
  Request request = request_of(5, 12);
  request.n = 3;
  room.add(request, 7);
  REQUIRE(room.owners.waiting.size() == 3);
  const Sequence& first = *room.owners.branches.find(5);
  const Sequence& last = *room.owners.branches.find(7);
  CHECK(last.branch == 2);
  CHECK(last.request.sampling.branch == first.request.sampling.branch + 2);
  CHECK(last.shared_prompt == first.shared_prompt);
  CHECK(last.record.times.added_ns == 7);
  CHECK(room.owners.waiting.tokens() == 12 + 1 + 1);
  CHECK(room.owners.waiting.load().bytes == held_bytes(request));
}

TEST_CASE("a full queue ends each branch with an event, and counts one request") {
  SchedulerConfig config = room_config();
  config.queue_tokens_max = 10;
  ScheduleRoom room(config);
  room.add(request_of(1, 8));
  Request request = request_of(5, 8);
  request.n = 2;
  CHECK(room.add(request) == nullptr);
  const std::vector<TokenEvent> events = room.events();
  REQUIRE(events.size() == 2);
  CHECK(events[1].request_id == 6);
  CHECK(events[1].error->code == ErrorCode::kOverloaded);
  CHECK(room.stats().num_rejected == 1);
  CHECK(room.owners.waiting.size() == 1);
}

TEST_CASE("a request with nothing to compute ends at once and streams") {
  ScheduleRoom room;
  Request request = request_of(1, 1, 0);
  request.sampling.logprobs = 0;
  request.sampling.prompt_logprobs = true;
  const Sequence* sequence = room.add(request);
  REQUIRE(sequence != nullptr);
  CHECK(sequence->state() == RequestState::kStreaming);
  const std::vector<TokenEvent> events = room.events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].token == 1);
  CHECK(events[0].is_prompt);
  CHECK(events[0].finish == FinishReason::kLength);
  CHECK(room.owners.branches.num_streaming() == 1);
}
