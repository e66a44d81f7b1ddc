// What the audit finds between the owners: each fault is made by hand in a room whose books balance.
#include <catch2/catch_test_macros.hpp>

#include "schedule_room.h"

using namespace llmrt;
using test::request_of;
using test::ScheduleRoom;

namespace {

std::string fault(const ScheduleRoom& room) {
  const Status status = room.audit();
  return status.ok() ? "" : status.error().message;
}

}  // namespace

TEST_CASE("the audit names what differs between owners") {
  ScheduleRoom room;
  Sequence& row = room.run(request_of(1, 12, 8), 8);
  room.add(request_of(2));
  REQUIRE(fault(room).empty());

  SECTION("a table that does not hold what is computed") {
    row.progress.computed = 3;
    CHECK(fault(room).find("request 1: expected 1 table entries for 3 tokens, found 2") != std::string::npos);
  }
  SECTION("a block that nobody holds") {
    row.residency.tables[0].blocks.pop_back();
    CHECK_FALSE(fault(room).empty());
  }
  SECTION("a branch that neither runs nor waits nor streams") {
    room.owners.waiting.remove(*room.owners.branches.find(2));
    CHECK(fault(room).find("expected 2 requests, found 1 running + 0 waiting + 0 streaming") != std::string::npos);
  }
  SECTION("a sequence that runs in a state of waiting") {
    row.move_to(RequestState::kPreempted);
    CHECK(fault(room).find("request 1 runs in state PREEMPTED") != std::string::npos);
  }
  SECTION("a row that belongs to no batch") {
    row.ticket.batch = 3;
    CHECK(fault(room).find("batch 0: 1 run, 0 of them belong to it") != std::string::npos);
  }
}
