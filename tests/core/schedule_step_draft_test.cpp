// What is left of a step, and what rows take of it.
#include <catch2/catch_test_macros.hpp>

#include "core/schedule/step_draft.h"
#include "schedule_parts.h"

using namespace llmrt;
using test::request_of;

namespace {

SchedulerConfig small_step() {
  SchedulerConfig config;
  config.context_max = 64;
  config.sequences_max = 4;
  config.step_tokens_max = 16;
  config.sample_rows_max = 3;
  config.kv_pools = {{64, 4}};
  return config;
}

struct BansMany final : LogitsProcessor {
  std::string_view name() const override { return "bans_many"; }
  void process(std::span<const int32_t>, uint32_t, std::vector<TokenBias>* changes) const override {
    for (int32_t token = 0; token < static_cast<int32_t>(kProcessorEntriesMax); ++token)
      changes->push_back({token, kBan});
  }
};

Request scored(RequestId id, uint32_t prompt_tokens) {
  Request request = request_of(id, prompt_tokens);
  request.sampling.logprobs = 0;
  request.sampling.prompt_logprobs = true;
  return request;
}

}  // namespace

TEST_CASE("rows take tokens and samples, and what one gives up is left again") {
  const SchedulerConfig config = small_step();
  StepDraft draft(config);
  Sequence a(request_of(1, 6)), b(request_of(2, 20));
  CHECK(draft.is_empty());
  REQUIRE(draft.count_that_fits(a, 6) == 6);
  draft.take(a, 6);
  draft.take(b, 10);
  CHECK(draft.tokens_left() == 0);
  CHECK(a.take.tokens == 6);
  draft.give_up(a);
  CHECK(a.take.tokens == 0);
  CHECK(draft.tokens_left() == 6);
  CHECK_FALSE(draft.is_empty());
  draft.give_up(b);
  CHECK(draft.is_empty());
  draft.take(a, 6);
  a.take = {};
  draft.begin();
  CHECK(draft.is_empty());
}

TEST_CASE("a chunk stops where the step has no samples left for scored tokens or a drawn one") {
  const SchedulerConfig config = small_step();
  StepDraft draft(config);
  Sequence scores(scored(1, 10)), last(request_of(2, 3));
  CHECK(draft.count_that_fits(scores, 10) == 3);
  draft.take(scores, 3);
  CHECK(draft.count_that_fits(scores, 7) == 0);
  CHECK(draft.count_that_fits(last, 3) == 2);  // its third token draws
  draft.give_up(scores);
  CHECK(draft.count_that_fits(last, 3) == 3);
}

TEST_CASE("a token whose logit changes are more than the step has left waits for a later step") {
  SchedulerConfig config = small_step();
  config.sample_rows_max = 8;  // 8 rows of 1,152 plain changes, and 5,184 further ones for one row
  StepDraft draft(config);
  Request request = request_of(1, 3);
  request.processors = {std::make_shared<BansMany>()};
  std::vector<std::unique_ptr<Sequence>> rows;
  for (RequestId id = 1; id <= 4; ++id) {
    request.id = id;
    rows.push_back(test::sequence_of(request));
    const uint32_t count = draft.count_that_fits(*rows.back(), 3);
    CHECK(count == (id <= 3 ? 3 : 2));  // 4,096 each: the fourth is computed up to its last token
    draft.take(*rows.back(), count);
  }
  draft.give_up(*rows[0]);
  CHECK(draft.count_that_fits(*rows[3], 1) == 1);
}

TEST_CASE("a row that needs its token in flight takes no room for changes yet") {
  const SchedulerConfig config = small_step();
  StepDraft draft(config);
  Request request = request_of(1, 3);
  request.sampling.no_repeat_ngram_size = 2;
  Sequence sequence(request);
  sequence.progress = {.computed = 3, .in_flight = {1, 1}, .scored = 3};
  CHECK(draft.count_that_fits(sequence, 1) == 1);
  draft.take(sequence, 1);
  CHECK(draft.tokens_left() == config.step_tokens_max - 1);
  draft.give_up(sequence);
  sequence.tokens.push_back(5);
  sequence.progress.in_flight = {};
  CHECK(draft.count_that_fits(sequence, 1) == 1);
}

TEST_CASE("a row that needs its token in flight waits for it where the model has states") {
  SchedulerConfig config = small_step();
  config.kv_pools.push_back({4, 4, CacheKind::kState});
  StepDraft draft(config);
  Request request = request_of(1, 3);
  request.sampling.no_repeat_ngram_size = 2;
  Sequence sequence(request);
  sequence.progress = {.computed = 3, .in_flight = {1, 1}, .scored = 3};
  CHECK(draft.waits_for_changes(sequence));
  CHECK(draft.count_that_fits(sequence, 1) == 0);
  sequence.tokens.push_back(5);
  sequence.progress.in_flight = {};
  CHECK_FALSE(draft.waits_for_changes(sequence));
  CHECK(draft.count_that_fits(sequence, 1) == 1);
}

TEST_CASE("chunks take of the chunk tokens, and a prompt that passes them makes the step long") {
  const SchedulerConfig config = small_step();
  StepDraft draft(config);
  Sequence a(request_of(1, 5)), b(request_of(2, 30));
  draft.set_chunk_tokens(8);
  draft.take_of_chunk(a, 5);
  CHECK(draft.chunk_tokens() == 3);
  CHECK_FALSE(draft.is_long());
  draft.take_of_chunk(b, 7);
  CHECK(draft.chunk_tokens() == 0);
  CHECK(draft.is_long());
  CHECK(draft.tokens_left() == 4);
}

TEST_CASE("what is taken so far tells whether others decode and where the first chunk begins") {
  const SchedulerConfig config = small_step();
  StepDraft draft(config);
  Sequence decodes(request_of(1, 4)), prompt(request_of(2, 30)), later(request_of(3, 30));
  decodes.progress.computed = 3;
  prompt.progress.computed = 8;
  later.progress.computed = 12;
  Sequence* const prompts[] = {&prompt, &later};
  CHECK_FALSE(draft.so_far(prompts).others_decode);
  CHECK(draft.so_far(prompts).depth == 8);
  Sequence* const all[] = {&decodes, &prompt};
  CHECK(draft.so_far(all).others_decode);  // though it is left out
  CHECK(draft.so_far(all).work.tokens == 0);
  draft.take(decodes, 1);
  const StepSoFar step = draft.so_far(all);
  CHECK(step.work.tokens == 1);
  CHECK(step.work.decode_keys == 4);
}

TEST_CASE("admitted sequences share the payload for counts and tables") {
  SchedulerConfig config = small_step();  // a context has 16 blocks, and four rows of one 64
  StepDraft draft(config);
  Request counted = request_of(1, 40);
  counted.sampling.presence_penalty = 1;
  Sequence first(counted), second(counted), plain(request_of(3, 40));
  PrefixMatch match;
  match.blocks.resize(50);
  match.host_blocks.resize(10);
  CHECK(draft.can_recount(first));
  CHECK(draft.can_take_over({.prefix_blocks = 64, .host_blocks = 16}));
  draft.take_payload(first, match);
  CHECK_FALSE(draft.can_recount(second));  // 80 tokens of 64
  CHECK(draft.can_recount(plain));
  CHECK(draft.can_take_over({.prefix_blocks = 4, .host_blocks = 0}));
  CHECK_FALSE(draft.can_take_over({.prefix_blocks = 5, .host_blocks = 0}));
  CHECK(draft.can_take_over({.prefix_blocks = 4, .host_blocks = 6}));
  CHECK_FALSE(draft.can_take_over({.prefix_blocks = 4, .host_blocks = 7}));
}
