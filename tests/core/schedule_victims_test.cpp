// Who yields first.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/victims.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;
using test::sequence_of;

namespace {

struct RunningRows {
  std::vector<std::unique_ptr<Sequence>> owned;
  std::vector<Sequence*> all;

  void add(RequestClass request_class, uint32_t num_preemptions) {
    const uint64_t number = all.size() + 1;
    owned.push_back(sequence_of(request_of(number, 4, 8, request_class)));
    test::make_resident(*owned.back(), static_cast<int32_t>(number), number);
    owned.back()->record.num_preemptions = num_preemptions;
    all.push_back(owned.back().get());
  }
  std::vector<RequestId> order() const {
    std::vector<RequestId> ids;
    for (const Sequence* sequence : yield_order(all)) ids.push_back(sequence->request.id);
    return ids;
  }
};

}  // namespace

TEST_CASE("the lowest lane yields first, in it the newest") {
  RunningRows rows;
  rows.add(RequestClass::kBackground, 0);
  rows.add(RequestClass::kInteractive, 0);
  rows.add(RequestClass::kBatch, 0);
  rows.add(RequestClass::kEvaluation, 0);  // the same lane
  rows.add(RequestClass::kAgent, 0);
  CHECK(rows.order() == std::vector<RequestId>{1, 4, 3, 5, 2});
  CHECK(pick_victim(rows.all).request.id == 1);
}

TEST_CASE("a row that has yielded twice is spared, and the one that yielded least yields again") {
  RunningRows rows;
  rows.add(RequestClass::kBatch, 0);
  rows.add(RequestClass::kBatch, 1);  // once does not spare it
  rows.add(RequestClass::kBatch, 3);
  rows.add(RequestClass::kBatch, 2);
  CHECK(rows.order() == std::vector<RequestId>{2, 1, 4, 3});
}

TEST_CASE("how often it has yielded does not lift a row above its lane") {
  RunningRows rows;
  rows.add(RequestClass::kInteractive, 0);
  rows.add(RequestClass::kBackground, 9);
  CHECK(pick_victim(rows.all).request.id == 2);
}
