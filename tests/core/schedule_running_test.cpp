// Slots, order and lanes of the sequences that run.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/running.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;
using test::sequence_of;

namespace {

std::unique_ptr<Sequence> started(RequestId id, RequestClass request_class = RequestClass::kInteractive,
                                  bool has_penalty = false) {
  Request request = request_of(id, 4, 8, request_class);
  if (has_penalty) request.sampling.frequency_penalty = 1;
  auto sequence = sequence_of(std::move(request));
  sequence->move_to(RequestState::kPrefilling);
  return sequence;
}

}  // namespace

TEST_CASE("a sequence has a slot as long as it runs, and rows stand by admission") {
  Running running(2, 0);
  const auto a = started(1), b = started(2), c = started(3);
  running.admit(*a);
  running.admit(*b);
  CHECK(a->residency.slot == 0);
  CHECK(b->residency.slot == 1);
  CHECK_FALSE(running.has_slot());
  CHECK(running.at_slot(1) == b.get());
  running.release(*a);
  CHECK_FALSE(a->runs());
  CHECK(running.at_slot(0) == nullptr);
  running.admit(*c);
  CHECK(c->residency.slot == 0);
  REQUIRE(running.size() == 2);
  CHECK(running.rows()[0] == b.get());
  CHECK(running.rows()[1] == c.get());
  CHECK(c->residency.admission == 3);
  CHECK(running.num_admissions() == 3);
  CHECK(running.check().ok());
}

TEST_CASE("only requests with penalties take penalty slots, and give them back") {
  Running running(3, 1);
  const auto plain = started(1), counted = started(2, RequestClass::kInteractive, true);
  running.admit(*plain);
  CHECK(plain->residency.penalty_slot == -1);
  CHECK(running.has_penalty_slot());
  running.admit(*counted);
  CHECK(counted->residency.penalty_slot == 0);
  CHECK_FALSE(running.has_penalty_slot());
  running.release(*counted);
  CHECK(running.has_penalty_slot());
  CHECK(counted->residency.penalty_slot == -1);
  CHECK(running.check().ok());
}

TEST_CASE("a slot is cleared only where the device has its parameters") {
  Running running(2, 0);
  const auto told = started(1), untold = started(2);
  running.admit(*told);
  running.admit(*untold);
  told->residency.row_is_set = true;
  running.release(*told);
  running.release(*untold);
  REQUIRE(running.slots_to_clear().size() == 1);
  CHECK(running.slots_to_clear()[0] == 0);
  CHECK_FALSE(told->residency.row_is_set);
  running.forget_cleared();
  CHECK(running.slots_to_clear().empty());
}

TEST_CASE("rows are counted by lane, and batch and background are patient") {
  Running running(4, 0);
  const auto reader = started(1), agent = started(2, RequestClass::kAgent);
  const auto batch = started(3, RequestClass::kEvaluation);
  running.admit(*reader);
  running.admit(*agent);
  CHECK_FALSE(running.has_patient_rows());
  running.admit(*batch);
  CHECK(running.has_patient_rows());
  CHECK(running.lane_rows() == LaneCounts{1, 1, 1, 0});
  running.release(*batch);
  CHECK(running.lane_rows() == LaneCounts{1, 1, 0, 0});
}

TEST_CASE("slots of abandoned rows stay taken, and the check says so") {
  Running running(1, 0);
  const auto a = started(1);
  running.admit(*a);
  running.abandon(*a);
  CHECK(running.is_empty());
  CHECK_FALSE(running.has_slot());
  CHECK_FALSE(running.check().ok());
}

TEST_CASE("the check finds a slot that is another's and a state that does not run") {
  Running running(2, 0);
  const auto a = started(1), b = started(2);
  running.admit(*a);
  running.admit(*b);
  b->residency.slot = 0;
  CHECK(running.check().error().message.find("request 2: slot 0 is not its own") != std::string::npos);
  b->residency.slot = 1;
  CHECK(running.check().ok());
  a->move_to(RequestState::kPreempted);
  CHECK(running.check().error().message.find("request 1 runs in state PREEMPTED") != std::string::npos);
}
