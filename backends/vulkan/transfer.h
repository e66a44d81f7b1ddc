// Moves bytes between host and device outside of steps: weights at load, and the doors for tests and tools. Where the
// host can reach device memory it writes there; else through staging buffers, filled by several threads while earlier
// ones are copied. Used by one thread at a time, with no step in flight.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/vulkan/memory.h"
#include "core/backend/backend.h"

namespace llmrt::vulkan {

class Transfer {
 public:
  static constexpr uint64_t kJobBytesMax = 16ull << 20;
  struct Job {
    View target;                           // at most kJobBytesMax, or one row of a tensor
    std::function<void(std::byte*)> fill;  // writes target.bytes bytes; called from a worker thread
  };

  static Result<std::unique_ptr<Transfer>> create(const Device& device, MemoryBook* book);
  ~Transfer();

  // Jobs in any order; returns when all bytes are on the device. `progress` is called on this thread.
  Status run(std::span<const Job> jobs, const Progress& progress);
  Status write(const View& target, std::span<const std::byte> bytes);
  Status read(const View& source, std::span<std::byte> bytes);
  Status zero(const View& target);
  // Commands between barriers against everything before and after, the host included; waits for them.
  Status execute(const std::function<void(VkCommandBuffer)>& record);

 private:
  struct Lane;  // a staging buffer with its commands and fence
  Transfer(const Device& device, MemoryBook* book);
  Status submit(Lane& lane, const std::function<void(VkCommandBuffer)>& record);
  Status copy(Lane& lane, VkBuffer source, uint64_t source_offset, VkBuffer target, uint64_t target_offset,
              uint64_t bytes);
  Result<Lane*> first_lane(uint64_t bytes);
  Result<std::unique_ptr<Lane>> make_lane();
  Status finish(Lane& lane);  // waits for its last copy
  Status reserve(Lane& lane, uint64_t bytes);

  const Device& device_;
  MemoryBook* book_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace llmrt::vulkan
