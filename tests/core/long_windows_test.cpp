// A model with windows in five of six layers, as Gemma 3 has them, and prompts of 128k tokens: what its pools hold
// while the scheduler computes them. Method: the real shapes of the pools, plans carried out by nobody.
#include <catch2/catch_test_macros.hpp>

#include "core/engine/pool_shapes.h"
#include "core/schedule/scheduler.h"

namespace llmrt {
namespace {

constexpr uint32_t kWindow = 512, kPrompt = 128 * 1024, kMaxTokens = 40, kChunk = 2048, kBlock = 16;
// What the positions of a window may touch.
constexpr uint32_t kWindowBlocks = (kWindow - 1 + kBlock - 1) / kBlock + 1;

ModelConfig gemma_like() {
  ModelConfig model;
  model.layers.resize(18);
  for (uint32_t layer = 0; layer < model.num_layers(); ++layer) {
    LayerSpec& spec = model.layers[layer];
    if (layer % 6 < 5) {
      spec.attention = AttentionKind::kWindow;
      spec.window = kWindow;
    }
    spec.num_heads = 4;
    spec.num_kv_heads = 1;
    spec.head_dim = 256;
  }
  assign_cache_groups(model.layers);
  return model;
}

EngineConfig engine_config() {
  EngineConfig config;
  config.context_max = kPrompt + kMaxTokens;
  config.sequences_max = 4;
  config.step_tokens_max = kChunk;
  return config;
}

SchedulerConfig scheduler_config(const EngineConfig& engine, uint32_t num_blocks) {
  SchedulerConfig config;
  config.context_max = engine.context_max;
  config.sequences_max = engine.sequences_max;
  config.step_tokens_max = engine.step_tokens_max;
  config.kv_pools = PoolShapes(gemma_like(), engine).books(num_blocks, 0);
  config.prefix_cache = PrefixCacheKind::kRadix;
  config.watermark = 0;
  return config;
}

Request request_of(RequestId id, uint32_t num_own_tokens = 0) {
  Request request;
  request.id = id;
  for (uint32_t i = 0; i < kPrompt; ++i) request.prompt.push_back(static_cast<int32_t>(1 + i % 1000));
  for (uint32_t i = 0; i < num_own_tokens; ++i) request.prompt[kPrompt - 1 - i] = 2000 + static_cast<int32_t>(i);
  request.max_tokens = kMaxTokens;
  return request;
}

struct Run {
  uint32_t num_steps = 0;
  uint32_t first_position = ~0u;  // where the first row of the request began
  uint32_t decode_blocks = 0;     // of window layers, the most while tokens were drawn
};

Run run_to_end(Scheduler& scheduler, Request request) {
  Run run;
  const uint32_t num_prompt = static_cast<uint32_t>(request.prompt.size());
  scheduler.add(std::move(request), 0);
  while (scheduler.has_work()) {
    const TimeNs now = ++run.num_steps * TimeNs{1'000'000};
    const IterationPlan* plan = scheduler.plan(now);
    REQUIRE(plan != nullptr);
    run.first_position = std::min(run.first_position, plan->rows[0].start);
    std::vector<Verdict> verdicts(plan->samples.size());
    for (size_t i = 0; i < verdicts.size(); ++i) {
      verdicts[i].token = 7;
      if (plan->samples[i].output_position + 1 == kMaxTokens) verdicts[i].finish = FinishReason::kLength;
    }
    if (plan->rows[0].start >= num_prompt) {
      const KvGroupStats windows = scheduler.stats().kv_groups[1];
      run.decode_blocks = std::max(run.decode_blocks, windows.blocks_total - windows.blocks_free);
    }
    scheduler.commit(*plan, verdicts, now);
    REQUIRE(scheduler.check_books().ok());
    std::vector<TokenEvent> events;
    scheduler.take_events(&events);
    for (const TokenEvent& event : events)
      if (event.finish != FinishReason::kNone) scheduler.drained(event.request_id);
  }
  return run;
}

}  // namespace

TEST_CASE("a prompt of 128k tokens holds in window layers what its window and a chunk hold") {
  const uint32_t num_blocks = (kPrompt + kMaxTokens + kBlock - 1) / kBlock;
  const EngineConfig engine = engine_config();
  Scheduler scheduler(scheduler_config(engine, num_blocks));
  const Run run = run_to_end(scheduler, request_of(1));
  CHECK(run.num_steps == kPrompt / kChunk + kMaxTokens - 1);
  const std::vector<KvGroupStats>& groups = scheduler.stats().kv_groups;
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].window == 0);
  CHECK(groups[0].blocks_used_most == num_blocks);
  CHECK(groups[1].window == kWindow);
  // The pool itself: windows of 4 sequences, a chunk, and a quarter of the other pool for prefix hits.
  CHECK(groups[1].blocks_total == 4 * kWindowBlocks + kChunk / kBlock + num_blocks / 4);
  CHECK(groups[1].blocks_used_most <= kWindowBlocks + kChunk / kBlock);
  CHECK(groups[1].blocks_used_most >= kChunk / kBlock);
  CHECK(run.decode_blocks <= kWindowBlocks);
  CHECK(groups[0].blocks_free == num_blocks);
}

TEST_CASE("a prompt of 128k tokens that comes again needs its last window alone") {
  const uint32_t num_blocks = 2 * kPrompt / kBlock;
  Scheduler scheduler(scheduler_config(engine_config(), num_blocks));
  CHECK(run_to_end(scheduler, request_of(1)).first_position == 0);
  const uint32_t most = scheduler.stats().kv_groups[1].blocks_used_most;
  const Run again = run_to_end(scheduler, request_of(2));
  CHECK(again.first_position >= kPrompt - kBlock);
  CHECK(again.num_steps == kMaxTokens);
  CHECK(scheduler.stats().kv_groups[1].blocks_used_most == most);
  // Another end within the last window: what lies before it in that window has not been handed out.
  CHECK(run_to_end(scheduler, request_of(3, 100)).first_position == (kPrompt - 100) / kBlock * kBlock);
}

TEST_CASE("kept windows hold what all positions hold") {
  const uint32_t num_blocks = (kPrompt + kMaxTokens + kBlock - 1) / kBlock;
  EngineConfig engine = engine_config();
  engine.keeps_windows = true;
  Scheduler scheduler(scheduler_config(engine, num_blocks));
  run_to_end(scheduler, request_of(1));
  for (const KvGroupStats& group : scheduler.stats().kv_groups) {
    CHECK(group.window == 0);
    CHECK(group.blocks_total == num_blocks);
    CHECK(group.blocks_used_most == num_blocks);
  }
}

}  // namespace llmrt
