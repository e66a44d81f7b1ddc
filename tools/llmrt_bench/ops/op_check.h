// How far a kernel of a device is from the float64 reference: both run its ops alone on the same random numbers, from
// the row state and the keys and values that the device has. Where there are many rows, or a product has many columns,
// some are computed again and compared; the device runs all of them, with the kernels of the whole step. Every other
// row of a sample list asks for penalties, bias and all filters, and all for log-probabilities.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/engine/probe_plan.h"
#include "tools/llmrt_bench/ops/step_adapters.h"
#include "tools/llmrt_bench/ops/step_kernels.h"

namespace llmrt::bench {

struct OpCheck {
  bool is_checked = false;
  std::string what;  // "8 of 256 rows, 4096 of 28672 columns"; or why nothing was checked
  // The norm of the difference over that of the reference, and what it may be, for the output that comes nearest to its
  // bound.
  double error = 0, bound = 0;

  bool is_wrong() const { return is_checked && !(error <= bound); }
};

// A device with its row state and block tables set up for the steps of `shape`, and the KV pools that it has, by group,
// with equally many blocks.
struct CheckedDevice {
  std::shared_ptr<const Model> model;
  ProbeShape shape;
  std::vector<KvGroup> pools;
  Backend* backend;
  const StepAdapters* adapters = nullptr;  // that the step's rows have in turn, in the pool; null: none
};

// Writes to the device's tensors and, where the kernel stores keys and values, to the pool. Errors: of the backends.
Result<OpCheck> check_kernel(const CheckedDevice& device, const LoweredStep& step, const Kernel& kernel);

}  // namespace llmrt::bench
