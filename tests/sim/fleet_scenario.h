// One simulated fleet, made from a seed alone: unlike workers, clients with all that they may ask for, and what goes
// wrong when. Times count from the beginning of the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/engine_config.h"
#include "core/request/request.h"
#include "core/router/placement.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/fake_model.h"
#include "tests/fakes/sim_clock.h"

namespace llmrt::test::fleet {

struct WorkerPlan {
  std::string name;
  EngineConfig config;
  FakeBackendConfig backend;                  // what its steps take
  TimeNs lost_ns = kNever;                    // its device is lost ...
  TimeNs back_ns = kNever;                    // ... and is opened again
  bool is_lost_in_wait = false;               // ... while a step runs; else as the next one is handed over
  TimeNs fails_from_ns = 0, fails_to_ns = 0;  // meanwhile its log-probabilities are wrong
  TimeNs drained_from_ns = kNever, drained_to_ns = kNever;
};

enum class Kind : uint8_t { kChat, kShared, kLong, kHuge };
inline constexpr size_t kNumKinds = 4;

struct ClientPlan {
  Kind kind = Kind::kChat;
  Request request;
  TimeNs arrival_ns = 0;
  TimeNs cancel_ns = kNever;     // by the clock
  int cancel_after_tokens = -1;  // of branch 0
  TimeNs pause_ns = kNever, resume_ns = kNever;
  std::vector<FakeAnswer> alone;  // of each branch

  // Does not count: it ends or waits by its own will.
  bool is_moody() const { return cancel_ns != kNever || cancel_after_tokens >= 0 || pause_ns != kNever; }
};

// What goes wrong: outages come by the clock and hit every policy alike, requests fail where they are.
enum class Faults : uint8_t { kNone, kOutages, kAll };

// Load as a share of what the workers bear together, about.
struct FleetAsk {
  uint64_t seed = 1;
  uint32_t num_workers = 0;  // 0: 2 to 8, by the seed
  double load = 0.8;
  Faults faults = Faults::kNone;
  uint32_t clients_each = 60;  // a worker

  bool has_faults() const { return faults != Faults::kNone; }
};

struct FleetScenario {
  FleetAsk ask;
  double ttft_target_ms = 0, tpot_target_ms = 0;
  double kept_share = PlacementConfig{}.kept_share;
  uint64_t long_tokens = 1024;
  std::vector<WorkerPlan> workers;
  std::vector<ClientPlan> clients;  // by arrival
};

FleetScenario make_fleet_scenario(const FleetAsk& ask);
// A large worker and small ones under more short chats than the small ones bear, and long requests that the large one
// alone can serve.
FleetScenario make_long_scenario(uint64_t seed);

}  // namespace llmrt::test::fleet
