// The ops of a step, with shapes, FLOPs and least bytes and, on a device, measured times and the share of its limits,
// and what the device runs for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/engine/engine_config.h"
#include "core/model/model.h"

namespace llmrt {

struct ExplainOptions {
  std::vector<uint32_t> tokens{1};  // of each sequence in the step; one report each
  uint32_t num_sequences = 1;
  uint32_t context = 512;             // positions before the step
  uint32_t num_decoding = 0;          // sequences of one token beside those
  uint32_t decoding_context = 512;    // positions before it
  std::string device;                 // empty: nothing is measured
  double read_gb_s = 0, tflop_s = 0;  // measured limits, for shares; 0 = no shares
  bool every_op = false;              // each op on its own line; else summed by kind
  bool program = false;               // the device's programs too
  bool json = false;
  EngineConfig engine;
};

// Prints to standard output.
Status explain_ops(std::shared_ptr<const Model> model, const ExplainOptions& options);

}  // namespace llmrt
