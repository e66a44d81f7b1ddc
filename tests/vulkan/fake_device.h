// Devices that are not there: traits as drivers report them, and views of memory that nobody allocated. Enough to make
// a program of a list.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/vulkan/memory.h"
#include "backends/vulkan/program.h"

namespace llmrt::vulkan {

// "h200": T3 with fragments; "h200-t2", "h200-t1", "h200-t0": the same without matrix units, without dot products,
// without subgroups; "lavapipe": kernels for processors; "lavapipe-gpu": those for GPUs on it; "gcn": AMD, few
// registers a SIMD; "rdna3": AMD, T3; "xe": Intel, few registers a lane.
Traits fake_traits(const std::string& name);

// Resources of a device that holds the table's weights. It keeps all that it refers to.
class FakeDevice {
 public:
  FakeDevice(const std::string& traits, const WeightTable& table, const StateConfig& config, const KvGroup& group);

  const Resources& resources() const { return resources_; }
  // As f16 copies of all weights that may have one.
  void add_copies();

 private:
  View make(uint64_t bytes);

  Traits traits_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  WeightPieces weights_;
  Resources resources_;
};

// Step and shader of each launch, a line a launch: "|gated_matmul: matmul_fragment". "|": behind a barrier.
std::string brief(const Program& program);
// "lost gated_matmul at 7: scale stands between"; those that are lost, or not taken, by `is_lost`.
std::string notes(const Program& program, bool is_lost);

}  // namespace llmrt::vulkan
