// What a backend allocates besides weights: the state of a StateConfig, and the KV pools.
#pragma once

#include <optional>
#include <span>

#include "backends/vulkan/memory.h"
#include "backends/vulkan/resources.h"
#include "backends/vulkan/transfer.h"

namespace llmrt::vulkan {

// The ranges of a StateConfig, all zero. Their views are put into `resources`.
class DeviceState {
 public:
  static Result<DeviceState> create(const Device& device, MemoryBook* book, Transfer* transfer,
                                    const StateConfig& config, Resources* resources);

 private:
  RangeSet state_, arena_;
};

// The pools of KV groups, those on the device zero.
class KvPools {
 public:
  static Result<KvPools> create(const Device& device, MemoryBook* book, Transfer* transfer,
                                std::span<const KvGroup> groups, std::vector<KvPool>* pools);

 private:
  RangeSet device_, host_;
};

}  // namespace llmrt::vulkan
