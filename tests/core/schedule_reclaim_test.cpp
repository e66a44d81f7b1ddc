// Rows that are lent to a lane, and who takes them back. Four rows, shares of decode: interactive 1/2, batch 1/4.
#include <catch2/catch_test_macros.hpp>

#include "schedule_room.h"

using namespace llmrt;
using test::request_of;
using test::room_config;
using test::ScheduleRoom;

namespace {

// All rows are the lane's, and hold 2 blocks of 8 each.
void fill(ScheduleRoom& room, RequestClass request_class) {
  for (RequestId id = 1; id <= 4; ++id) room.run(request_of(id, 8, 8, request_class), 8, /*reserved=*/8);
  room.owners.reservations.count(room.owners.running.rows());
}

SchedulerConfig full_pool() {
  return room_config(/*num_blocks=*/8);
}

}  // namespace

TEST_CASE("a higher lane takes back the newest rows that a lower one has beyond its share, as many as it needs") {
  ScheduleRoom room(full_pool());
  fill(room, RequestClass::kBatch);
  const Sequence& wants = *room.add(request_of(10, 8, 1));  // 2 blocks
  CHECK(room.flows.reclaim.make_room(wants, /*round=*/1));
  CHECK(room.owners.running.size() == 3);
  CHECK_FALSE(room.owners.branches.find(4)->runs());
  CHECK(room.stats().num_reclaims == 1);
  CHECK(room.owners.kv.num_free(0) == 2);
}

TEST_CASE("none yields where all that may would not be enough, or for a lane that is not above it") {
  ScheduleRoom room(full_pool());
  fill(room, RequestClass::kBatch);
  // Of four rows interactive is entitled to 2.67, batch keeps 1.33: two may yield, which hold 4 blocks.
  CHECK_FALSE(room.flows.reclaim.make_room(*room.add(request_of(10, 20, 8)), 1));
  CHECK_FALSE(room.flows.reclaim.make_room(*room.add(request_of(11, 4, 1, RequestClass::kEvaluation)), 1));
  CHECK(room.owners.running.size() == 4);
  CHECK(room.stats().num_preemptions == 0);
}

TEST_CASE("a lane that has its share takes nothing, nor do rows yield that were admitted in this round") {
  ScheduleRoom interactive(full_pool());
  fill(interactive, RequestClass::kInteractive);
  CHECK_FALSE(interactive.flows.reclaim.make_room(*interactive.add(request_of(10, 8, 1)), 1));

  ScheduleRoom room(full_pool());
  fill(room, RequestClass::kBatch);
  for (Sequence* row : room.owners.running.rows()) row->ticket.tried_in = 7;
  const Sequence& wants = *room.add(request_of(10, 8, 1));
  CHECK_FALSE(room.flows.reclaim.make_room(wants, 7));
  CHECK(room.flows.reclaim.make_room(wants, 8));
}

TEST_CASE("where everything is reserved nothing is lent") {
  SchedulerConfig config = full_pool();
  config.on_exhaustion = OnExhaustion::kQueue;
  ScheduleRoom room(config);
  fill(room, RequestClass::kBatch);
  CHECK_FALSE(room.flows.reclaim.make_room(*room.add(request_of(10, 8, 1)), 1));
}
