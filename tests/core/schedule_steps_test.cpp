// In which order rows and lanes take their parts of a step.
#include <catch2/catch_test_macros.hpp>

#include "schedule_room.h"

using namespace llmrt;
using test::request_of;
using test::room_config;
using test::ScheduleRoom;

namespace {

// It decodes: one token is known and not computed.
Sequence& decodes(ScheduleRoom& room, RequestId id, RequestClass request_class = RequestClass::kInteractive,
                  uint32_t max_tokens = 40) {
  Sequence& row = room.run(request_of(id, 8, max_tokens, request_class), 8, 16);
  row.tokens.push_back(7);
  row.move_to(RequestState::kDecoding);
  return row;
}

void take_tokens(ScheduleRoom& room, const IterationPlan* plan) {
  room.owners.plans.note_commit(*plan);
  for (Sequence* row : room.owners.running.rows()) {
    row->tokens.resize(row->tokens.size() + row->progress.pending, 7);
    row->progress.pending = 0;
  }
}

}  // namespace

TEST_CASE("rows that decode come first, then chunks of what runs, then what may start") {
  ScheduleRoom room(room_config(/*num_blocks=*/32));
  room.run(request_of(1, 20, 8), 4, 28);
  decodes(room, 2);
  room.add(request_of(3, 8, 8));
  CHECK(room.rows_of(room.plan()) == "1[4,20) 2[8,9) 3[0,8)");
  CHECK(room.audit().ok());
}

TEST_CASE("with more rows than tokens those left out come first the next time") {
  SchedulerConfig config = room_config();
  config.step_tokens_max = 2;
  ScheduleRoom room(config);
  for (RequestId id = 1; id <= 3; ++id) decodes(room, id);
  const IterationPlan* plan = room.plan();
  CHECK(room.rows_of(plan) == "1[8,9) 2[8,9)");
  take_tokens(room, plan);
  plan = room.plan();
  CHECK(room.rows_of(plan) == "1[9,10) 3[8,9)");
}

TEST_CASE("the newest row of the lowest lane yields when a row needs a block, and nothing starts then") {
  ScheduleRoom room(room_config(/*num_blocks=*/6));
  decodes(room, 1);
  decodes(room, 2, RequestClass::kBatch);
  decodes(room, 3);
  room.add(request_of(4, 2, 2));
  CHECK(room.rows_of(room.plan()) == "1[8,9) 3[8,9)");
  CHECK(room.owners.branches.find(2)->state() == RequestState::kPreempted);
  CHECK_FALSE(room.owners.branches.find(4)->runs());
}

TEST_CASE("a row that outgrows the pool alone ends, unless its token in flight may be the last") {
  ScheduleRoom room(room_config(/*num_blocks=*/2));
  Sequence& row = decodes(room, 1);
  row.progress.pending = 1;
  row.tokens.pop_back();
  CHECK(room.plan() == nullptr);
  CHECK(row.runs());
  row.progress.pending = 0;
  row.tokens.push_back(7);
  CHECK(room.plan() == nullptr);
  CHECK(row.state() == RequestState::kStreaming);
}

TEST_CASE("patient rows are left out for a long prompt that somebody waits for, but not twice in a row") {
  SchedulerConfig config = room_config(/*num_blocks=*/64);
  config.chunk_tokens = 12;
  ScheduleRoom room(config);
  decodes(room, 1, RequestClass::kBatch);
  const IterationPlan* plan = room.plan();
  CHECK(room.rows_of(plan) == "1[8,9)");
  take_tokens(room, plan);
  room.add(request_of(2, 28, 8));
  plan = room.plan();
  CHECK(room.rows_of(plan) == "2[0,28)");
  take_tokens(room, plan);
  room.add(request_of(3, 28, 8));
  CHECK(room.rows_of(room.plan()) == "1[9,10) 2[28,29) 3[0,28)");
}

TEST_CASE("rows that were left out run after all when no long prompt has started") {
  SchedulerConfig config = room_config(/*num_blocks=*/6);
  config.chunk_tokens = 12;
  ScheduleRoom room(config);
  decodes(room, 1, RequestClass::kBatch);
  take_tokens(room, room.plan());
  room.add(request_of(2, 28, 8));  // no room for it
  CHECK(room.rows_of(room.plan()) == "1[9,10)");
}

TEST_CASE("beams that wait for each other give up what the next one needs when nothing else can run") {
  ScheduleRoom room;
  Sequence& first = decodes(room, 1);
  first.beam.search = std::make_shared<BeamSearch>(2, BeamParams{}, 8, std::vector<int32_t>{});
  first.beam.is_asked = true;
  first.progress.computed = 9;
  REQUIRE(room.owners.kv.grow(first.residency.tables, 9));
  first.record.times.added_ns = 1;
  CHECK(room.plan() == nullptr);
  CHECK(first.state() == RequestState::kPreempted);
}

TEST_CASE("a lane with its share of prompt tokens goes behind the others") {
  SchedulerConfig config = room_config(/*num_blocks=*/64);
  config.step_tokens_max = 8;
  config.class_shares.prefill = {0.25, 0.25, 0.25, 0.25};
  ScheduleRoom room(config);
  room.run(request_of(1, 60, 1, RequestClass::kBatch), 0, 60);
  const IterationPlan* plan = room.plan();
  CHECK(room.rows_of(plan) == "1[0,8)");
  take_tokens(room, plan);
  room.run(request_of(2, 60, 1, RequestClass::kAgent), 0, 60);
  CHECK(room.rows_of(room.plan()) == "2[0,8)");
}
