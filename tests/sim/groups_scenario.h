// One simulated run of a model with several KV groups, made from a seed alone: the pools, the scheduler's limits,
// clients that ask about few texts.
#pragma once

#include <deque>
#include <vector>

#include "core/engine/engine_config.h"
#include "core/engine/lower.h"
#include "core/schedule/scheduler.h"
#include "tests/fakes/fake_backend.h"

namespace llmrt::test::groups {

struct Client {
  Request request;  // each run gives it fresh masks
  uint32_t arrival_tick = 0;
  int cancel_after_ticks = -1;
  int right_drafts_of_16 = -1;  // its answers are drafted (scripted_drafts.h); -1 = they are not
  struct Branch {
    FakeAnswer alone;
    std::vector<int32_t> tokens;
    FinishReason finish = FinishReason::kNone;
  };
  std::vector<Branch> branches;
};

struct Scenario {
  EngineConfig engine;
  SchedulerConfig config;
  std::vector<KvGroup> pools;
  FakeBackendConfig backend;
  std::deque<Client> clients;
  std::vector<AttentionGroup> attention;
};

Scenario make_scenario(uint64_t seed);
// The blocks or records of a pool without which a sequence of so many tokens cannot run.
uint32_t blocks_needed(const KvPoolSize& pool, uint32_t num_tokens);

}  // namespace llmrt::test::groups
