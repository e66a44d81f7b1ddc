// The kernels of a step: ops of its lists that a device runs as one, counted with their likes in other layers.
#pragma once

#include <string>
#include <vector>

#include "core/engine/lower.h"
#include "core/model/model.h"

namespace llmrt::bench {

struct Kernel {
  std::string name;               // "matmul gate_up + gated_activation"
  std::string shape;              // of the matrices of a product, else of what is written
  std::string encoding;           // of weights or of keys and values; empty = neither
  bool is_sample = false;         // of the step's sample list, else of the forward list
  uint32_t first_op = 0;          // of the first of them, in its list
  uint32_t num_ops = 1;           // that are run as one
  std::vector<uint32_t> op_idxs;  // the first op of each, in the forward list's ops and the sample list's behind them
  OpCost cost;                    // of one
  double written_bytes = 0;       // of those in cost

  std::string label() const;  // name, encoding and shape: the same for the same work
};

// `sizes` of the forward list's ops and of the sample list's. `joined`: whether an op ran as part of the one before it,
// of the forward and then the sample list's ops.
std::vector<Kernel> step_kernels(const LoweredStep& step, const Model& model, const CostSizes& sizes,
                                 const CostSizes& sample_sizes, KvDType kv_dtype, const std::vector<bool>& joined);

}  // namespace llmrt::bench
