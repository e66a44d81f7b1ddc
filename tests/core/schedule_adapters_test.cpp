// Rows with adapters: they start when their adapter is there, hold it while they run, and others start meanwhile, up to
// a bound.
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>
#include <vector>

#include "core/schedule/scheduler.h"
#include "schedule_parts.h"

using namespace llmrt;

namespace {

// Slots that the test gives and takes.
class TestBooks final : public AdapterBooks {
 public:
  Result<AdapterState> state_of(const Request& request, TimeNs) override {
    asked.insert(request.id);
    if (never_fits.contains(request.adapter_id)) return make_error(ErrorCode::kNeverFits, "too large");
    return states[request.adapter_id];
  }
  uint32_t hold(const Request& request, TimeNs) override {
    CHECK(states[request.adapter_id] == AdapterState::kReady);
    CHECK(holding.insert(request.id).second);
    return request.adapter_id + 6;
  }
  void release(RequestId id) override { CHECK(holding.erase(id) == 1); }
  void forget(RequestId id) override {
    CHECK(!holding.contains(id));
    forgotten.insert(id);
  }
  bool holds(RequestId id) const override { return holding.contains(id); }
  uint32_t num_holds() const override { return static_cast<uint32_t>(holding.size()); }

  std::map<uint32_t, AdapterState> states;
  std::set<uint32_t> never_fits;
  std::set<RequestId> asked, holding, forgotten;
};

struct Room {
  Room() : scheduler(config()) {}

  SchedulerConfig config() {
    SchedulerConfig config;
    config.kv_pools = {{64, 4}};
    config.context_max = 64;
    config.sequences_max = 8;
    config.step_tokens_max = 64;
    config.chunk_tokens = 64;
    config.watermark = 0;
    config.reserve_output_tokens = 4;
    config.prefix_cache = PrefixCacheKind::kRadix;
    config.adapters = &books;
    return config;
  }
  void add(RequestId id, uint32_t adapter_id, uint32_t max_tokens = 4) {
    Request request = test::request_of(id, 4);
    request.max_tokens = max_tokens;
    request.adapter_id = adapter_id;
    request.adapter_scale = 0.5f;
    if (adapter_id == 1) request.adapter_use = use;
    tokens_left[id] = max_tokens;
    scheduler.add(std::move(request), 0);
  }
  // Plans and commits a step; who was in it, and with which slot + 1.
  std::map<RequestId, uint32_t> step() {
    std::map<RequestId, uint32_t> rows;
    const IterationPlan* plan = scheduler.plan(0);
    if (plan == nullptr) return rows;
    std::vector<Verdict> verdicts(plan->samples.size());
    for (Verdict& verdict : verdicts) verdict.token = 7;
    for (const PlanRow& row : plan->rows) {
      if (row.num_samples > 0 && --tokens_left[row.request_id] == 0)
        verdicts[row.sample_first].finish = FinishReason::kLength;
      rows[row.request_id] = row.adapter_slot;
      CHECK(row.adapter_scale == 0.5f);
    }
    scheduler.commit(*plan, verdicts, 0);
    const Status books_status = scheduler.check_books();
    INFO((books_status ? "" : books_status.error().message));
    CHECK(books_status.ok());
    return rows;
  }

  TestBooks books;
  const std::shared_ptr<AdapterUse> use =
      std::make_shared<AdapterUse>(std::make_shared<AdapterCounts>());  // of adapter 1
  std::map<RequestId, uint32_t> tokens_left;
  Scheduler scheduler;
};

}  // namespace

TEST_CASE("a row starts with its adapter's slot, holds it while it runs, and forgets it at its end") {
  Room room;
  room.books.states[1] = AdapterState::kReady;
  room.add(1, 1, 2);
  room.add(2, 0, 2);
  CHECK(room.step() == std::map<RequestId, uint32_t>{{1, 8}, {2, 0}});
  CHECK(room.books.holding == std::set<RequestId>{1});
  CHECK(room.books.asked == std::set<RequestId>{1});
  room.step();
  CHECK(room.books.holding.empty());
  CHECK(room.books.forgotten == std::set<RequestId>{1});
}

TEST_CASE("who waits for an adapter and runs with it is counted, and what they had") {
  Room room;
  room.books.states[1] = AdapterState::kLoading;
  room.books.states[2] = AdapterState::kReady;
  room.add(1, 1, 2);
  room.add(2, 1, 3);
  room.add(3, 2, 2);
  room.step();
  CHECK(room.use->num_in_system == 2);
  CHECK(room.use->num_running == 0);
  CHECK(room.use->counts->num_requests == 2);
  CHECK(room.use->counts->prompt_tokens == 0);
  room.books.states[1] = AdapterState::kReady;
  room.step();
  CHECK(room.use->num_running == 2);
  CHECK(room.use->counts->prompt_tokens == 8);
  room.step();
  CHECK(room.use->num_running == 1);
  CHECK(room.use->num_in_system == 1);
  room.step();
  CHECK(room.use->num_running == 0);
  CHECK(room.use->num_in_system == 0);
  CHECK(room.use->counts->num_requests == 2);
  CHECK(room.use->counts->generated_tokens == 5);
}

TEST_CASE("while an adapter is on its way others start, and it is not held against them") {
  Room room;
  room.books.states[1] = AdapterState::kLoading;
  room.add(1, 1);
  for (RequestId id = 2; id < 20; ++id) {
    room.add(id, 0, 1);
    CHECK(room.step() == std::map<RequestId, uint32_t>{{id, 0}});
  }
  room.books.states[1] = AdapterState::kReady;
  CHECK(room.step() == std::map<RequestId, uint32_t>{{1, 8}});
}

TEST_CASE("one whose adapter finds no room is passed over so often, then it holds up the others") {
  Room room;
  room.books.states[1] = AdapterState::kNoRoom;
  room.add(1, 1);
  uint32_t num_passed = 0;
  for (RequestId id = 2; id < 40; ++id) {
    room.add(id, 0, 1);
    num_passed += room.step().contains(id);
  }
  CHECK(num_passed == 8);
  room.books.states[1] = AdapterState::kReady;
  CHECK(room.step().contains(1));
}

TEST_CASE("an adapter that never fits ends its requests alone, with the reason") {
  Room room;
  room.books.never_fits = {1};
  room.add(1, 1);
  room.add(2, 0);
  CHECK(room.step() == std::map<RequestId, uint32_t>{{2, 0}});
  std::vector<TokenEvent> events;
  room.scheduler.take_events(&events);
  REQUIRE(!events.empty());
  CHECK(events[0].request_id == 1);
  REQUIRE(events[0].error.has_value());
  CHECK(events[0].error->code == ErrorCode::kNeverFits);
  CHECK(room.books.forgotten == std::set<RequestId>{1});
}

TEST_CASE("one that is cancelled while it waits for its adapter forgets it") {
  Room room;
  room.books.states[1] = AdapterState::kLoading;
  room.add(1, 1);
  room.step();
  room.scheduler.cancel(1, 0);
  CHECK(room.books.forgotten == std::set<RequestId>{1});
}
