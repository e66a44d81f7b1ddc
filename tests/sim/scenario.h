// One simulated run, made from a seed alone: an engine's limits, a device that may fail, clients with all that they may
// ask for and do.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "core/engine/engine_config.h"
#include "core/request/request.h"
#include "tests/fakes/fake_backend.h"

namespace llmrt::test {

struct ClientPlan {
  Request request;  // deadline_ns counts from its arrival
  uint32_t arrival_tick = 0;
  int cancel_after_ticks = -1;     // from its arrival; -1 = never
  int cancel_after_events = -1;    // from inside the sink
  uint32_t drain_after_ticks = 0;  // from its end
  bool disconnects = false;        // where it cancels
  int pause_at_ticks = -1;         // from its arrival: takes no more ...
  int pause_ticks = 0;             // ... for so long
  int right_drafts_of_16 = -1;     // its answers are drafted (scripted_drafts.h); -1 = they are not
  bool asks_draft_model = false;   // of a scenario that has one
};

struct Scenario {
  uint64_t seed = 0;
  EngineConfig config;
  FakeBackendConfig backend;
  std::optional<FakeBackendConfig> draft_model;  // beside the model
  // It is the model's twin, and drafts for answers alone that nothing changes and only their length ends: each of its
  // drafts is right.
  bool has_twin = false;
  std::deque<ClientPlan> clients;  // those of a later wave stand behind, and none moves
  uint32_t tick_ms_max = 0;

  bool has_drafts() const;                                      // of some clients
  bool is_hybrid() const { return backend.groups.size() > 1; }  // a model with a state beside its attention
};

Scenario make_scenario(uint64_t seed);
// Clients of the next wave: when all before are gone, arrivals count from `tick`. One wave may be over in a few steps.
void add_wave(Scenario& scenario, uint32_t tick);

}  // namespace llmrt::test
