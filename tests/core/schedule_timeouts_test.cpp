// When a branch's time is up, and what it is told.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/timeouts.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;

namespace {

constexpr TimeNs kMs = 1'000'000;

Request timed(RequestId id, TimeNs deadline, TimeNs expiry, TimeNs start_by) {
  Request request = request_of(id);
  request.deadline_ns = deadline * kMs;
  request.expiry_ns = expiry * kMs;
  request.start_by_ns = start_by * kMs;
  return request;
}

}  // namespace

TEST_CASE("the earliest of a branch's times counts, and the earliest branch is due first") {
  Timeouts timeouts;
  Sequence a(timed(1, 50, 30, 40)), b(timed(2, 20, 0, 0)), never(timed(3, 0, 0, 0));
  for (Sequence* sequence : {&a, &b, &never}) timeouts.set(*sequence);
  CHECK(a.times_out_ns == 30 * kMs);
  CHECK(never.times_out_ns == 0);
  CHECK_FALSE(timeouts.due(20 * kMs - 1));
  CHECK(timeouts.due(20 * kMs) == RequestId{2});
  CHECK(timeouts.due(90 * kMs) == RequestId{2});
  timeouts.erase(b);
  CHECK(timeouts.due(90 * kMs) == RequestId{1});
  timeouts.erase(a);
  CHECK_FALSE(timeouts.due(90 * kMs));
}

TEST_CASE("a branch that has started has no time to start by any more, and keeps its other limits") {
  Timeouts timeouts;
  Sequence sequence(timed(1, 0, 50, 10));
  timeouts.set(sequence);
  CHECK(timeouts.due(10 * kMs) == RequestId{1});
  sequence.move_to(RequestState::kPrefilling);
  timeouts.set(sequence);
  CHECK_FALSE(timeouts.due(49 * kMs));
  CHECK(timeouts.due(50 * kMs) == RequestId{1});
}

TEST_CASE("the error says which limit was passed") {
  Timeouts timeouts;
  Sequence waits(timed(1, 0, 50, 10)), slow(timed(2, 0, 20, 30)), late(timed(3, 20, 0, 0));
  for (Sequence* sequence : {&waits, &slow, &late}) timeouts.set(*sequence);
  CHECK(timed_out(waits, 12 * kMs).message == "timeout: expected a start within 10 ms, found it waiting after 12 ms");
  CHECK(timed_out(slow, 25 * kMs).message.find("(this engine's limit), found 0 of at most 8") != std::string::npos);
  CHECK(timed_out(late, 25 * kMs).message.find("(its deadline)") != std::string::npos);
}
