// The batches of the baselines (batching.h): which sequences belong to the one that runs, and what it has padded. With
// continuous batching there are none, and every sequence may start at any time.
//
// Owns the batch that runs; writes WaitTicket::batch. A sequence that runs belongs to the batch. No errors. The
// engine's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/status.h"
#include "core/schedule/running.h"
#include "core/schedule/scheduler_config.h"
#include "core/schedule/waiting.h"

namespace llmrt {

class Batches {
 public:
  // `config` outlives it.
  explicit Batches(const SchedulerConfig& config) : config_(config) {}

  // Makes the next batch of those that wait, if the last one is over and it is time.
  void make(const Waiting& waiting, TimeNs now);
  // A sequence of the batch does not run yet.
  bool may_start_any(const Running& running) const {
    return config_.batching == Batching::kContinuous || running.size() < batch_.num_left;
  }
  bool may_start(const Sequence& sequence) const;

  // What was computed for a sequence that leaves and, where its batch is over with it, what that has padded.
  struct Left {
    uint64_t computed = 0, padding = 0;
  };
  // It ends; to be called before its slot is given back.
  Left leave(const Sequence& sequence);

  uint64_t number() const { return batch_.number; }
  // Rows are of the batch, and as many of it run and wait as have not ended.
  Status check(const Running& running, const Waiting& waiting) const;

 private:
  struct Batch {
    uint64_t number = 0;    // counts up from 1
    uint32_t num_left = 0;  // of it, those that have not ended
    // Sequences that had started and have ended, and the positions that were computed for them.
    uint32_t num_rows = 0;
    uint32_t prompt_max = 0, output_max = 0;
    uint64_t tokens = 0;

    void add_row(uint32_t prompt_tokens, uint32_t output_tokens) {
      ++num_rows;
      prompt_max = std::max(prompt_max, prompt_tokens);
      output_max = std::max(output_max, output_tokens);
      tokens += uint64_t{prompt_tokens} + output_tokens;
    }
    uint64_t padding() const { return uint64_t{num_rows} * (uint64_t{prompt_max} + output_max) - tokens; }
  };

  const SchedulerConfig& config_;
  Batch batch_;
};

}  // namespace llmrt
