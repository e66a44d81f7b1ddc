// Whose turn it is among lanes, with shares that make the arithmetic plain.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/fairness.h"

using namespace llmrt;
using Catch::Approx;

namespace {

constexpr TimeNs kMinute = 60'000'000'000;
constexpr LaneFlags kAll = {true, true, true, true};

}  // namespace

TEST_CASE("only background waits a minute before it has a share") {
  CHECK(Fairness::is_entitled(Lane::kBatch, 0));
  CHECK_FALSE(Fairness::is_entitled(Lane::kBackground, kMinute - 1));
  CHECK(Fairness::is_entitled(Lane::kBackground, kMinute));
}

TEST_CASE("prompt tokens are served in proportion to the lanes' shares") {
  Fairness fairness({.decode = {1, 1, 1, 1}, .prefill = {1, 1, 3, 1}}, 0);
  const LaneFlags wants = {true, false, true, false};
  std::array<uint32_t, kNumLanes> served = {};
  for (int step = 0; step < 400; ++step) {
    const Lane first = fairness.order_for_prefill(wants)[0];
    served[static_cast<size_t>(first)] += 10;
    fairness.charge(first, 10);
  }
  CHECK(served[0] == Approx(1000).margin(20));
  CHECK(served[2] == Approx(3000).margin(20));
  CHECK(served[1] + served[3] == 0);
}

TEST_CASE("a lane that comes back is owed a burst, not the time it was away") {
  Fairness fairness({.decode = {1, 1, 1, 1}, .prefill = {1, 1, 1, 1}}, /*step_tokens=*/10);
  const LaneFlags batch = {false, false, true, false}, both = {true, false, true, false};
  for (int step = 0; step < 100; ++step) {
    CHECK(fairness.order_for_prefill(batch)[0] == Lane::kBatch);
    fairness.charge(Lane::kBatch, 10);
  }
  int first_steps = 0;
  while (fairness.order_for_prefill(both)[0] == Lane::kInteractive) {
    fairness.charge(Lane::kInteractive, 10);
    ++first_steps;
  }
  CHECK(first_steps == 9);  // 8 of credit, and one at equal times
}

TEST_CASE("room goes to the lane with the fewest rows for its share") {
  const Fairness fairness({.decode = {0.5, 0.25, 0.25, 0.05}, .prefill = {1, 1, 1, 1}}, 0);
  CHECK(fairness.order_for_room(kAll, {0, 0, 0, 0}) ==
        LaneOrder{Lane::kInteractive, Lane::kAgent, Lane::kBatch, Lane::kBackground});
  CHECK(fairness.order_for_room(kAll, {4, 0, 1, 0}) ==
        LaneOrder{Lane::kAgent, Lane::kBatch, Lane::kInteractive, Lane::kBackground});
  CHECK(fairness.order_for_room({true, false, true, true}, {4, 0, 1, 0}) ==
        LaneOrder{Lane::kBatch, Lane::kInteractive, Lane::kBackground, Lane::kAgent});
}

TEST_CASE("a lane is entitled to its share of the rows that run, among lanes that run or wait") {
  const Fairness fairness({.decode = {0.5, 0.25, 0.25, 0.05}, .prefill = {1, 1, 1, 1}}, 0);
  const LaneFlags none = {};
  CHECK(fairness.entitled_rows(Lane::kBatch, {0, 0, 6, 0}, none) == Approx(6));
  CHECK(fairness.entitled_rows(Lane::kBatch, {0, 0, 6, 0}, {true, false, false, false}) == Approx(2));
  CHECK(fairness.entitled_rows(Lane::kInteractive, {3, 0, 6, 0}, none) == Approx(6));
}

TEST_CASE("a lane has its share of the rate of prompts beside the lanes that want some") {
  const Fairness fairness({.decode = {1, 1, 1, 1}, .prefill = {0.3, 0.2, 0.5, 0.05}}, 0);
  CHECK(fairness.prefill_rate(Lane::kAgent, {}, 100) == Approx(100));
  CHECK(fairness.prefill_rate(Lane::kAgent, {true, true, true, false}, 100) == Approx(20));
}
