// The part of a step that a prompt takes.
#include <catch2/catch_test_macros.hpp>

#include "schedule_room.h"

using namespace llmrt;
using test::request_of;
using test::room_config;
using test::ScheduleRoom;

TEST_CASE("a row takes a chunk, and the next one what is left of it") {
  ScheduleRoom room;
  Sequence& first = room.run(request_of(1, 20, 8), 0);
  Sequence& second = room.run(request_of(2, 20, 8), 0);
  room.owners.draft.begin();
  room.owners.draft.set_chunk_tokens(24);
  room.flows.chunks.take(first);
  room.flows.chunks.take(second);
  CHECK(first.take.tokens == 20);
  CHECK(second.take.tokens == 4);
  CHECK(second.residency.tables[0].blocks.size() == 1);
  CHECK(room.owners.draft.chunk_tokens() == 0);
  room.flows.chunks.take(second);
  CHECK(second.take.tokens == 4);
}

TEST_CASE("a row takes no more than there are free blocks for") {
  ScheduleRoom room(room_config(/*num_blocks=*/5));
  room.run(request_of(1, 12, 8), 12);
  Sequence& row = room.run(request_of(2, 20, 8), 0);
  room.owners.draft.begin();
  room.owners.draft.set_chunk_tokens(32);
  room.flows.chunks.take(row);
  CHECK(row.take.tokens == 8);
  room.flows.chunks.take(row);
  CHECK(row.take.tokens == 8);
}

TEST_CASE("a prompt that somebody waits for is computed to its end beside rows that nobody waits for") {
  for (const bool beside_batch : {false, true}) {
    ScheduleRoom room;
    Sequence& row = room.run(request_of(1, 20, 8), 0);
    room.run(request_of(2, 4, 8, beside_batch ? RequestClass::kBatch : RequestClass::kAgent), 4);
    room.owners.draft.begin();
    room.owners.draft.set_chunk_tokens(8);
    room.flows.chunks.take(row);
    CHECK(row.take.tokens == (beside_batch ? 20 : 8));
    CHECK(room.owners.draft.is_long() == beside_batch);
  }
}

TEST_CASE("the lane is charged for what its rows take") {
  ScheduleRoom room;
  Fairness& fairness = room.owners.fairness;
  Sequence& row = room.run(request_of(1, 20, 8, RequestClass::kBatch), 0);
  const LaneFlags wants = {false, true, true, false};
  fairness.order_for_prefill(wants);
  fairness.charge(Lane::kAgent, 1);  // the other one goes first now
  REQUIRE(fairness.order_for_prefill(wants)[0] == Lane::kBatch);
  room.owners.draft.begin();
  room.owners.draft.set_chunk_tokens(32);
  room.flows.chunks.take(row);
  CHECK(fairness.order_for_prefill(wants)[0] == Lane::kAgent);
}
