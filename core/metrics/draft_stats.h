// What drafts have done.
#pragma once

#include <cstdint>

namespace llmrt {

struct DraftStats {
  uint64_t num_runs = 0;                        // rows of steps that verified drafts
  uint64_t num_proposed = 0, num_accepted = 0;  // drafts that were verified, and of these right
  uint64_t num_steps = 0;                       // with drafts
  uint64_t num_steps_off = 0;                   // in which a row had none as they did not pay for its class
  uint64_t num_awaited = 0;                     // steps that were planned when the one before had ended, for drafts
  uint64_t num_model_proposed = 0, num_model_accepted = 0;  // of those above: the draft model's
  double model_ms = 0, model_read_ms = 0;  // that it drafted; and that it read what it lacked of the rows' text
};

}  // namespace llmrt
