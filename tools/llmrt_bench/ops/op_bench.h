// The kernels of steps, timed in the steps that a model runs, on several devices in turn.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/probe_plan.h"
#include "core/engine/warm_up.h"
#include "tools/llmrt_bench/ops/device_limits.h"
#include "tools/llmrt_bench/ops/op_check.h"
#include "tools/llmrt_bench/ops/step_adapters.h"
#include "tools/llmrt_bench/ops/step_kernels.h"

namespace llmrt::bench {

struct StepKind {
  std::string name;  // "decode x8", "prompt 512"
  ProbeShape shape;
  uint32_t num_adapters = 0;  // distinct ones, which rows have in turn; 0: none has one
};

// Random keys and values for every block of the pools, by KV group: a few from the host, which the device copies to the
// others.
Status fill_pools(std::span<const KvGroup> pools, const SealedList& memory, Backend* backend);

// A device that is ready for steps, with its limits and pools of random keys and values. Blocks behind windows are
// kept, so that each pool has room for every row and no two share a block.
struct BenchDevice {
  DeviceLimits limits;
  std::unique_ptr<Backend> backend;
  WarmEngine warm;
  std::vector<KvGroup> pools;  // by KV group, equally many blocks in each
  StepAdapters adapters = {};  // as many as the config has slots, of its planned rank
};
// Keeps the blocks behind windows, whatever `config` says.
Result<BenchDevice> prepare_device(DeviceLimits limits, std::unique_ptr<Backend> backend,
                                   const std::shared_ptr<const Model>& model, EngineConfig config);

struct KernelFigures {
  Kernel kernel;
  std::vector<double> us;  // of one, in each run; where it occurs more than once in the step, their mean
  double floor_us = 0;     // that the device's limits allow
  OpCheck check;

  double median_us() const;
  double lost_ms() const;  // of a step: what its kernels take beyond the floor
};
struct StepFigures {
  std::string device_id;
  std::string missing;                 // why nothing was measured; else empty
  std::string experts;                 // how many distinct ones rows went to; empty: there are none
  std::vector<double> step_ms;         // of whole steps, submitted as an engine does
  std::vector<KernelFigures> kernels;  // those that lose most first

  double sum_ms() const;  // of all kernels, one by one
};

// The time in which the device's limits let a kernel read, write and multiply what it must. Bandwidth is that of
// writing, copying or reading, whichever is nearest to the kernel's mix.
double floor_us(const Kernel& kernel, const DeviceLimits& limits);

struct BenchOptions {
  uint32_t runs = 10;  // after two that warm up
  bool check = true;
};
// One for each device, which take turns run by run. `tell` gets what is being done, for progress.
Result<std::vector<StepFigures>> bench_step(const std::shared_ptr<const Model>& model, const StepKind& kind,
                                            const BenchOptions& options, std::vector<BenchDevice>* devices,
                                            const std::function<void(const std::string&)>& tell);

}  // namespace llmrt::bench
