// One cell of an operating envelope: requests of one kind on an engine in process. The highest rate at which they meet
// their objectives, what happens beyond it, and how long a burst is felt.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/llmrt_bench/load/adapter_mix.h"
#include "tools/llmrt_bench/load/arrivals.h"
#include "tools/llmrt_bench/load/engine_load.h"

namespace llmrt::bench {

struct Cell {
  uint32_t prompt_tokens = 1, output_tokens = 1;
  RequestClass request_class = RequestClass::kInteractive;
  // "top-p": temperature 1, the likeliest 90 %; "grammar": temperature 1, each request with a JSON schema of its own,
  // whose answer ends by itself, after output_tokens at most.
  std::string sampling = "greedy";
  AdapterMix adapters;
  std::string pattern = "steady";  // poisson; "burst": 8 at once; "heavy-tail": Pareto gaps of infinite variance
  std::string name() const;
};

struct CellOptions {
  LoadSlo slo;
  double slo_share = 0.95;     // of the requests must meet it
  double trial_s = 20;         // of arrivals at one rate; at least 3 lone requests and 5 TTFT objectives
  uint32_t requests_min = 16;  // of a trial
  double tolerance = 0.1;      // the lowest rate that misses over the highest that meets, less 1
  uint32_t trials_max = 16;    // of the search
  double beyond = 1.5;         // of the highest rate
  double burst_s = 5;          // a burst is what comes in so long at the highest rate
  uint64_t seed = 1;
};

enum class CellVerdict { kMet, kMissedAlone, kDoesNotFit, kCannotRun };
const char* cell_verdict_name(CellVerdict verdict);  // "met", "missed_alone", "does_not_fit", "cannot_run"

struct Trial {
  double per_s = 0;
  Summary summary;
  uint64_t num_refused = 0, num_preemptions = 0;
  uint32_t waiting_max = 0;

  double good_share() const;
};

struct CellResult {
  CellVerdict verdict = CellVerdict::kMet;
  std::string note;  // why it did not run, or what the search did not find
  uint32_t num_trials = 0;
  Trial alone;                  // one request at a time
  Trial highest;                // kMet: at the highest rate that meets
  double missed_per_s = 0;      // the lowest rate that missed; 0 = none did
  Trial beyond;                 // kMet
  std::string beyond_what;      // "queues+degrades", ...: what_happens
  uint32_t burst_requests = 0;  // kMet
  double recovery_s = 0;        // from the burst to the last request that came behind it and missed; 0 = none did
  bool is_recovered = false;    // false: the last ones that came missed, so it is longer
};

// Rejects (somebody was refused), preempts, queues (first tokens come later than the objective, as somebody waits),
// delays (nobody waits, yet they do: prompts share steps), degrades (tokens do), joined by '+'. None of them: misses
// (too few meet the objectives, if p95 does) or holds.
std::string what_happens(const Trial& trial, const CellOptions& options);

struct CellBench {
  Engine* engine;
  const Clock& clock;
  std::function<void(TimeNs)> wait_until;
  // Told of the requests of one trial.
  std::function<OnOutcome(const std::string& what, size_t num_requests)> on_trial;
  GrammarSupply* grammars = nullptr;            // for cells with grammars
  std::span<const ReadyAdapter> adapters = {};  // for cells with adapters, as many as any of them asks for
};
// Errors: the machine's.
Result<CellResult> measure_cell(const CellBench& bench, const Cell& cell, const CellOptions& options);

}  // namespace llmrt::bench
