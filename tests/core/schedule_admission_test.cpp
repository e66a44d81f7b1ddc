// Which waiting sequences start, and what a start does.
#include <catch2/catch_test_macros.hpp>

#include "schedule_room.h"

using namespace llmrt;
using test::request_of;
using test::room_config;
using test::ScheduleRoom;

namespace {

struct Door : ScheduleRoom {
  using ScheduleRoom::ScheduleRoom;
  // A step in which sequences may start, `chunk` tokens of prompts in it.
  void begin(uint32_t chunk = 32) {
    for (Sequence* row : owners.running.rows()) row->take = {};
    owners.draft.begin();
    owners.draft.set_chunk_tokens(chunk);
    flows.admission.begin_step(++step);
    flows.admission.begin_round();
  }
  void admit(Lane lane = Lane::kInteractive) { flows.admission.admit(lane, 0); }
  bool runs(RequestId id) const { return owners.branches.find(id)->runs(); }

  uint64_t step = 0;
};

}  // namespace

TEST_CASE("a sequence that starts has left the queue, holds a slot and its first chunk, and reserves its output") {
  Door door;
  Request request = request_of(1, 12, 40);
  request.start_by_ns = 99;
  const Sequence& sequence = *door.add(request);
  door.begin(/*chunk=*/10);
  door.admit();
  CHECK(sequence.state() == RequestState::kPrefilling);
  CHECK_FALSE(sequence.waits());
  CHECK(sequence.residency.slot == 0);
  CHECK(sequence.residency.reserved_tokens == 20);
  CHECK(sequence.take.tokens == 10);
  CHECK(sequence.residency.tables[0].blocks.size() == 3);
  CHECK(sequence.times_out_ns == 0);
  CHECK(door.stats().prompt_tokens == 12);
}

TEST_CASE("a sequence without room is passed over, and smaller ones behind it start") {
  Door door(room_config(/*num_blocks=*/6));
  door.run(request_of(1, 8, 1), 8);
  door.add(request_of(2, 24, 1));  // 6 blocks of 4
  door.add(request_of(3, 8, 1));
  door.begin();
  door.admit();
  CHECK_FALSE(door.runs(2));
  CHECK(door.runs(3));
  CHECK(door.flows.admission.is_room_scarce());
  CHECK(door.owners.branches.find(2)->ticket.num_overtaken == 1);
}

TEST_CASE("one that came of age holds up its lane and those behind") {
  Door door(room_config(/*num_blocks=*/6));
  door.run(request_of(1, 8, 1), 8);
  door.add(request_of(2, 24, 1))->ticket.num_overtaken = 8;
  door.add(request_of(3, 8, 1));
  door.add(request_of(4, 8, 1, RequestClass::kBatch));
  door.begin();
  door.admit();
  door.admit(Lane::kBatch);
  CHECK_FALSE(door.runs(3));
  CHECK_FALSE(door.runs(4));
}

TEST_CASE("one that came of age and needs more of a step than is left closes its lane for the step") {
  SchedulerConfig config = room_config();
  config.penalty_rows_max = 2;
  Door door(config);
  const auto counted = [](RequestId id) {
    Request request = request_of(id, 24, 1);
    request.sampling.presence_penalty = 1;
    return request;
  };
  door.owners.draft.begin();
  Sequence& first = *door.add(counted(1));
  Sequence& aged = *door.add(counted(2));
  aged.tokens.resize(60, 2);  // with the first one's more than a step can count
  aged.ticket.num_overtaken = 8;
  first.ticket.num_overtaken = 8;
  door.add(request_of(3, 4, 1));
  door.begin(/*chunk=*/30);
  door.admit();
  door.admit();  // the lane is asked again in the same round
  CHECK(door.runs(1));
  CHECK_FALSE(door.runs(2));
  CHECK_FALSE(door.runs(3));
}

TEST_CASE("where a row has yielded none starts any more, until it is opened for those that wait") {
  Door door;
  door.add(request_of(1, 8, 1));
  door.begin();
  door.flows.admission.close();
  door.admit();
  CHECK_FALSE(door.runs(1));
  door.flows.admission.reopen();
  door.admit();
  CHECK(door.runs(1));
}

TEST_CASE("with nothing left of the chunk the next one waits for a later step") {
  Door door;
  door.add(request_of(1, 8, 1));
  door.add(request_of(2, 8, 1));
  door.begin(/*chunk=*/8);
  door.admit();
  CHECK(door.runs(1));
  CHECK_FALSE(door.runs(2));
  CHECK_FALSE(door.flows.admission.is_room_scarce());
  door.begin(8);
  door.admit();
  CHECK(door.runs(2));
}

TEST_CASE("where nothing may wait for room a request is rejected with what it lacks") {
  SchedulerConfig config = room_config(/*num_blocks=*/6, /*rows=*/2);
  config.on_exhaustion = OnExhaustion::kReject;
  Door door(config);
  door.run(request_of(1, 8, 1), 8);
  door.add(request_of(2, 20, 1));
  door.begin();
  door.admit();
  CHECK(door.owners.branches.find(2) == nullptr);
  CHECK(door.events().back().error->message == "no room now: 5 KV blocks of 4 are needed, 4 are free, 0 of them kept");
  door.run(request_of(3, 4, 1), 4);
  door.add(request_of(4, 4, 1));
  door.begin();
  door.admit();
  CHECK(door.events().back().error->message == "no room now: 2 requests run, which is the most");
  CHECK(door.stats().num_rejected == 2);
}

TEST_CASE("a preempted sequence that the pool cannot hold any more ends") {
  Door door(room_config(/*num_blocks=*/3));
  Sequence& row = door.run(request_of(1, 12, 8), 12);
  door.flows.yields.preempt(row, 1);
  row.tokens.push_back(5);  // its token in flight has come
  door.begin();
  door.admit();
  CHECK(row.state() == RequestState::kStreaming);
  CHECK(door.events().back().error->code == ErrorCode::kPoolExhausted);
  CHECK(door.stats().num_pool_exhausted == 1);
}

TEST_CASE("beams may start late once one of them has started") {
  Door door;
  Request request = request_of(1, 8, 4);
  request.n = 2;
  request.beam = BeamParams{};
  request.start_by_ns = 50;
  door.add(request);
  door.begin();
  door.admit();
  CHECK(door.runs(1));
  CHECK_FALSE(door.owners.timeouts.due(60));
}
