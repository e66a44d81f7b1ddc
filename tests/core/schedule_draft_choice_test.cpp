// Which rows have drafts, and how many. The cost model is taught a device that takes 1 ms a step and so much a token.
#include <catch2/catch_test_macros.hpp>

#include "../fakes/scripted_drafts.h"
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

// One step; each run has its first `num_right` drafts right.
void step(ScheduleRoom& room, uint32_t num_right, double step_ms, TimeNs now) {
  const IterationPlan& plan = *room.plan(now);
  std::vector<Verdict> verdicts(plan.samples.size());
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const PlanSample& sample = plan.samples[i];
    verdicts[i].token = sample.run_idx < num_right && sample.draft >= 0 ? sample.draft : 1000;
  }
  room.owners.plans.note_commit(plan);
  room.flows.commits.take(plan, verdicts, now);
  room.flows.drafts.note_commit(plan, {.step_ms = step_ms}, now);
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

TEST_CASE("the step behind one with drafts is planned when their tokens are known") {
  ScheduleRoom room;
  decode(room, with_drafts(1, 3));
  CHECK_FALSE(room.flows.drafts.awaits_tokens());
  room.plan();
  CHECK(room.flows.drafts.awaits_tokens());
}
