// A simulated service for tests of load figures: engines on the backend of hashes, arrivals at random times, and steps
// that take what the script says, by a clock that is moved by hand. What the engines tell of themselves is looked at
// every simulated second.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "core/engine/engine.h"
#include "tests/fakes/fake_backend.h"
#include "tests/fakes/sim_clock.h"

namespace llmrt::test {

// What holds for a while.
struct LoadPhase {
  double seconds = 0;
  double arrivals_per_s = 3;          // at each worker, Poisson
  double shared_share = 0.7;          // of the prompts that begin with the same 48 of 64 tokens
  uint32_t output_tokens = 16;        // mean; uniform within half of it
  double slow_from = 1, slow_to = 1;  // factor of a step's time, growing evenly
  bool all_to_first = false;          // every request goes to the first worker
};

class LoadSim {
 public:
  explicit LoadSim(uint64_t seed, size_t num_workers = 1);

  // `look` is called every simulated second.
  void run(const LoadPhase& phase, const std::function<void(double now_s)>& look);

  EngineStats stats(size_t worker) const { return workers_[worker].engine->stats(); }
  const SaturationVerdict& verdict(Saturation which) const;  // of the first worker, or of all together (worker skew)
  double now_s() const { return static_cast<double>(clock_.now_ns()) * 1e-9; }
  uint64_t num_finished() const { return num_finished_; }

 private:
  struct Sink;
  struct Worker {
    std::unique_ptr<Engine> engine;
    std::shared_ptr<Sink> sink;
    TimeNs free_ns = 0, arrival_ns = 0;
    double num_tokens = 0;  // of all steps so far
  };
  void arrive(Worker& worker, const LoadPhase& phase);
  void tick(Worker& worker, double slow);
  TimeNs gap_ns(const LoadPhase& phase);

  std::mt19937_64 random_;
  SimClock clock_;
  std::vector<Worker> workers_;
  WorkerSkew skew_;
  SaturationVerdict skew_verdict_;
  EngineStats first_;  // as last looked at
  uint64_t num_finished_ = 0;
};

}  // namespace llmrt::test
