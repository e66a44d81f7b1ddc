// The pool of adapters: its memory, and writes to it while steps are in flight. What is written goes through staging
// buffers, whose copies are commands of the device's queue in front of the next step's.
#pragma once

#include <memory>
#include <span>

#include "backends/vulkan/memory.h"
#include "backends/vulkan/queue.h"
#include "backends/vulkan/resources.h"
#include "backends/vulkan/transfer.h"
#include "core/backend/backend.h"

namespace llmrt::vulkan {

// The device is idle when it goes.
class AdapterPool {
 public:
  static constexpr uint64_t kStagingBytes = 4 << 20;  // of a buffer
  // A step hands over one that may not be full: one for each in flight, and others to be filled meanwhile.
  static constexpr uint32_t kNumStaging = kInFlightMax + 3;

  // num_groups: of the weights. The table is zero. Puts its place into *pool_view.
  static Result<std::unique_ptr<AdapterPool>> create(const Device& device, MemoryBook* book, Transfer* transfer,
                                                     const AdapterPoolConfig& config, size_t num_groups,
                                                     View* pool_view);
  // Copies the bytes to staging buffers; waits only where all of these hold bytes that the device has not copied yet.
  Status write(uint64_t offset, std::span<const std::byte> bytes);
  // Hands over to the queue what was written so far.
  Status flush();

 private:
  struct Staging {
    Buffer buffer;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    uint64_t used = 0;       // bytes; above 0: its commands are being recorded
    uint64_t submitted = 0;  // timeline value of its last copies
  };
  explicit AdapterPool(const Device& device) : device_(device) {}
  Status begin(Staging* staging);

  const Device& device_;
  RangeSet memory_;
  std::unique_ptr<Queue> queue_;
  Staging staging_[kNumStaging];
  uint32_t current_ = 0;
  uint64_t submissions_ = 0;
};

}  // namespace llmrt::vulkan
