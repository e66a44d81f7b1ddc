// Which rows have drafts, and how many. The cost model is taught a device that takes 1 ms a step and so much a token.
#include <catch2/catch_test_macros.hpp>

#include "../fakes/scripted_drafts.h"
#include "core/ops/recurrent_ops.h"
#include "core/request/draft_rules.h"
#include "schedule_room.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

constexpr TimeNs kMs = 1'000'000;

// Its drafts are any tokens.
Request with_drafts(RequestId id, uint32_t tokens_max, RequestClass request_class = RequestClass::kInteractive) {
  Request request = request_of(id, 4, 40, request_class);
  DraftScript script{.right_of_16 = 0, .always_as_many = true, .vocab_size = 50};
  request.speculation = Speculation{std::make_shared<ScriptedDrafts>(std::move(script)), tokens_max};
  return request;
}

void teach(Pace& pace, double token_ms) {
  for (uint64_t i = 0; i < 300; ++i) {
    const uint64_t tokens = 1 + 7 * i % 30;
    pace.observe({.tokens = tokens}, {.step_ms = 1 + token_ms * static_cast<double>(tokens)}, false, 0);
  }
}

// It has its prompt and one token of its answer.
Sequence& decode(ScheduleRoom& room, Request request) {
  Sequence& row = room.run(std::move(request), 4, 20);
  row.move_to(RequestState::kDecoding);
  row.tokens.push_back(1);
  return row;
}

// Each run has its first `num_right` drafts right.
void commit(ScheduleRoom& room, const IterationPlan& plan, uint32_t num_right, double step_ms, TimeNs now) {
  std::vector<Verdict> verdicts(plan.samples.size());
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const PlanSample& sample = plan.samples[i];
    verdicts[i].token = sample.run_idx < num_right && sample.draft >= 0 ? sample.draft : 1000;
  }
  room.owners.plans.note_commit(plan);
  room.flows.commits.take(plan, verdicts, now);
  room.flows.drafts.note_commit(plan, {.step_ms = step_ms}, now);
}

void step(ScheduleRoom& room, uint32_t num_right, double step_ms, TimeNs now) {
  commit(room, *room.plan(now), num_right, step_ms, now);
}

uint32_t num_drafts(const IterationPlan& plan) {
  uint32_t count = 0;
  for (const PlanRow& row : plan.rows) count += row.num_drafts;
  return count;
}

}  // namespace

TEST_CASE("drafts stand behind the row's newest token, each with a sample of its own") {
  ScheduleRoom room;
  decode(room, with_drafts(1, 3));
  decode(room, request_of(2, 4, 40));
  const IterationPlan& plan = *room.plan();
  CHECK(room.rows_of(&plan) == "1[4,8) 2[4,5)");
  REQUIRE(plan.samples.size() == 5);
  for (uint32_t i = 0; i < 4; ++i) {
    CHECK(plan.samples[i].token_offset == i);
    CHECK(plan.samples[i].output_position == 1 + i);
    CHECK(plan.samples[i].run_idx == i);
    CHECK(plan.samples[i].draft == (i < 3 ? plan.tokens[1 + i] : -1));
  }
  CHECK_FALSE(plan.samples[4].verifies());
  CHECK(room.audit().ok());
}

TEST_CASE("a draft that is wrong takes back what is computed behind it; the tokens before it count") {
  for (const uint32_t num_right : {0u, 1u, 2u, 3u}) {
    ScheduleRoom room;
    Sequence& row = decode(room, with_drafts(1, 3));
    step(room, num_right, 0, 0);
    CHECK(row.tokens.size() == 5 + 1 + num_right);
    CHECK(row.progress.computed == 5 + num_right);
    CHECK(row.progress.in_flight.is_empty());
    CHECK(row.gap() == 1);
    CHECK(room.audit().ok());
    CHECK(room.events().size() == 1 + num_right);
    CHECK(room.flows.drafts.stats().num_proposed == 3);
    CHECK(room.flows.drafts.stats().num_accepted == num_right);
  }
}

TEST_CASE("drafts take what a step has left of tokens, samples and blocks, and nobody yields for them") {
  SchedulerConfig few_tokens = room_config(), few_samples = room_config();
  few_tokens.step_tokens_max = 6;
  few_samples.sample_rows_max = 5;
  const SchedulerConfig few_blocks = room_config(/*num_blocks=*/2);  // positions up to 8, of which 5 have no draft
  for (const auto& [config, expected] : {std::pair{few_tokens, 5u}, {few_samples, 4u}, {few_blocks, 3u}}) {
    ScheduleRoom room(config);
    decode(room, with_drafts(1, 8));
    const IterationPlan* plan = room.plan();
    REQUIRE(plan != nullptr);
    CHECK(num_drafts(*plan) == expected);
    CHECK(room.stats().num_preemptions == 0);
    CHECK(room.audit().ok());
  }
}

TEST_CASE("rows with states have as many drafts as can be taken back, none of them the last of 16 positions") {
  for (uint32_t position = 0; position < 64; ++position) {
    const uint32_t count = drafts_beside_states(position, 3);
    for (uint32_t i = 0; i < count; ++i) CHECK((position + i) % kRingTokens != kRingTokens - 1);
    CHECK((count == 3 || (position + count) % kRingTokens == kRingTokens - 1));
  }
  for (const auto& [num_prompt, expected] : {std::pair{4u, 3u}, {11u, 3u}, {12u, 2u}, {13u, 1u}, {14u, 0u}, {15u, 3u}})
    for (const uint32_t back : {0u, 1u, 3u}) {
      SchedulerConfig config = room_config(/*num_blocks=*/16);
      config.kv_pools.push_back({.num_blocks = 4, .block_tokens = 16, .kind = CacheKind::kState});
      config.state_back_tokens = back;
      ScheduleRoom room(config);
      Request request = with_drafts(1, 8);
      request.prompt.resize(num_prompt, 1);
      Sequence& row = room.run(std::move(request), num_prompt, 32);
      row.move_to(RequestState::kDecoding);
      row.tokens.push_back(1);
      CHECK(num_drafts(*room.plan()) == std::min(back, expected));
    }
}

TEST_CASE("the answer's last token is never drafted") {
  ScheduleRoom room;
  Request request = with_drafts(1, 8);
  request.max_tokens = 4;
  decode(room, std::move(request));
  CHECK(num_drafts(*room.plan()) == 2);
}

TEST_CASE("so many drafts as make tokens come faster, by the cost model and what was right before") {
  for (const auto& [token_ms, expected] : {std::pair{0.01, 6u}, {0.3, 2u}, {3.0, 0u}}) {
    ScheduleRoom room;
    teach(room.owners.pace, token_ms);
    decode(room, with_drafts(1, 6));
    CHECK(num_drafts(*room.plan()) == expected);
  }
}

TEST_CASE("rows of batch have no drafts while requests wait") {
  SchedulerConfig config = room_config(16, /*rows=*/1);
  ScheduleRoom room(config);
  decode(room, with_drafts(1, 3, RequestClass::kBatch));
  REQUIRE(room.add(request_of(2)) != nullptr);
  CHECK(num_drafts(*room.plan()) == 0);
}

TEST_CASE("a class whose drafts are wrong gets none for a while, then they are tried again") {
  SchedulerConfig config = room_config(64);
  ScheduleRoom room(config);
  teach(room.owners.pace, 0.01);
  Sequence& row = decode(room, with_drafts(1, 3));
  row.request.max_tokens = 5000;
  config.context_max = 5000;
  std::vector<uint32_t> with_some;
  uint32_t num_steps = 0;
  TimeNs now = 0;
  for (; num_steps < 700 && row.progress.computed < 200; ++num_steps) {
    const uint64_t before = room.flows.drafts.stats().num_steps;
    step(room, 0, 1.4, now += 2 * kMs);
    if (room.flows.drafts.stats().num_steps > before) with_some.push_back(num_steps);
  }
  REQUIRE_FALSE(with_some.empty());
  CHECK(with_some.front() == 0);
  CHECK(with_some.size() <= 40);
  CHECK(room.flows.drafts.stats().num_steps_off > 0);
}

TEST_CASE("a long wait before the first drafts does not speak for them ever after") {
  SchedulerConfig config = room_config(64);
  ScheduleRoom room(config);
  teach(room.owners.pace, 0.01);
  decode(room, request_of(1, 4, 40)).request.max_tokens = 5000;
  TimeNs now = 0;
  for (int i = 0; i < 30; ++i) step(room, 0, 1.4, now += 10 * kMs);
  decode(room, with_drafts(2, 3)).request.max_tokens = 5000;
  for (int i = 0; i < 150 && room.flows.drafts.stats().num_steps_off == 0; ++i)
    step(room, 0, 1.4, now += 14 * kMs / 10);
  CHECK(room.flows.drafts.stats().num_steps_off > 0);
}

TEST_CASE("what a step takes without drafts is learnt where each could have some") {
  SchedulerConfig config = room_config(64);
  ScheduleRoom room(config);
  decode(room, with_drafts(1, 3)).request.max_tokens = 5000;
  TimeNs now = 0;
  // A draft makes a step longer by a tenth, and the first of three is right in one step of ten: they would be worth it
  // if they cost nothing.
  for (int i = 0; i < 180; ++i) {
    const IterationPlan& plan = *room.plan(now);
    const double ms = 1 + 0.1 * num_drafts(plan);
    now += static_cast<TimeNs>(ms * kMs);
    room.owners.pace.observe(plan.work, {.step_ms = ms}, false, now);
    commit(room, plan, i % 10 == 0, ms, now);
  }
  CHECK(room.flows.drafts.stats().num_steps < 100);
}

TEST_CASE("the step behind one with drafts is planned when their tokens are known") {
  ScheduleRoom room;
  decode(room, with_drafts(1, 3));
  CHECK_FALSE(room.flows.drafts.awaits_tokens());
  room.plan();
  CHECK(room.flows.drafts.awaits_tokens());
}

// ---- a draft model -------------------------------------------------------------------------------------------------

namespace {

// Says what its passes take, and drafts any tokens.
class SlowDrafter final : public ModelDrafter {
 public:
  explicit SlowDrafter(double pass_ms) : pass_ms_(pass_ms) {}
  std::unique_ptr<DraftPlace> begin(const Digest&) override { return std::make_unique<DraftPlace>(); }
  Took propose(std::span<Row> rows) override {
    ++num_calls;
    Took took;
    for (Row& row : rows) {
      CHECK(row.place != nullptr);
      passes = row.most;
      if (!reads_for_ever) row.drafts->assign(row.most, 7);
      took.draft_ms = pass_ms_ * row.most;
    }
    return took;
  }
  double pass_ms(size_t) const override { return pass_ms_; }

  uint32_t num_calls = 0, passes = 0;
  bool reads_for_ever = false;

 private:
  const double pass_ms_;
};

SchedulerConfig model_config(SlowDrafter* drafter) {
  SchedulerConfig config = room_config(200);
  config.model_drafter = drafter;
  return config;
}

Request by_model(RequestId id, uint32_t tokens_max) {
  Request request = request_of(id, 4, 40);
  request.speculation = Speculation{nullptr, tokens_max, /*by_model=*/true};
  return request;
}

}  // namespace

TEST_CASE("the draft model makes as many passes as make tokens come faster, and none that do not") {
  for (const auto& [pass_ms, expected] : {std::pair{0.01, 6u}, {0.2, 3u}, {0.9, 0u}}) {
    SlowDrafter drafter(pass_ms);
    ScheduleRoom room(model_config(&drafter));
    teach(room.owners.pace, 0.01);
    decode(room, by_model(1, 6));
    CHECK(num_drafts(*room.plan()) == expected);
    CHECK(drafter.passes == expected);
  }
}

TEST_CASE("the draft model is asked for all rows at once, and for no more than an answer has room for") {
  SlowDrafter drafter(0.01);
  ScheduleRoom room(model_config(&drafter));
  decode(room, by_model(1, 3));
  Request shorter = by_model(2, 3);
  shorter.max_tokens = 3;
  decode(room, std::move(shorter));
  decode(room, request_of(3, 4, 40));
  const IterationPlan& plan = *room.plan();
  CHECK(drafter.num_calls == 1);
  REQUIRE(plan.rows.size() == 3);
  CHECK(plan.rows[0].num_drafts == 3);
  CHECK(plan.rows[1].num_drafts == 1);
  CHECK(plan.rows[2].num_drafts == 0);
  CHECK(plan.rows[0].draft_origin == DraftOrigin::kModel);
}

TEST_CASE("a draft model that is wrong, or never gets to drafting, is asked seldom, and what it takes counts") {
  for (const bool reads_for_ever : {false, true}) {
    SlowDrafter drafter(0.3);
    drafter.reads_for_ever = reads_for_ever;
    ScheduleRoom room(model_config(&drafter));
    teach(room.owners.pace, 0.01);
    Sequence& row = decode(room, by_model(1, 3));
    row.request.max_tokens = 5000;
    TimeNs now = 0;
    while (row.progress.computed < 600) step(room, 0, 1.01, now += 2 * kMs);
    CHECK(drafter.num_calls <= (reads_for_ever ? 350 : 60));
    CHECK(room.flows.drafts.stats().num_steps_off > 0);
    CHECK(room.flows.drafts.stats().model_ms > 0);
  }
}
