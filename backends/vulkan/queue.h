// The device's one queue as the executor uses it: command buffers, submissions in order, and a timeline that counts
// them.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "backends/vulkan/device.h"
#include "core/base/status.h"

namespace llmrt::vulkan {

class Queue {
 public:
  static Result<std::unique_ptr<Queue>> create(const Device& device);
  ~Queue();  // the device is idle
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  const Device& device() const { return device_; }
  Result<VkCommandBuffer> allocate();
  void free(VkCommandBuffer commands);
  // once: submitted one time; else as often as wanted, also while it runs.
  Status begin(VkCommandBuffer commands, bool once);
  Status end(VkCommandBuffer commands);
  // Runs them in order behind all submissions before; the timeline then has `value`.
  Status submit(std::span<const VkCommandBuffer> commands, uint64_t value);
  Status wait(uint64_t value);

 private:
  explicit Queue(const Device& device) : device_(device) {}

  const Device& device_;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
};

// Timestamps in device memory; freed when it goes.
class Timestamps {
 public:
  static Result<Timestamps> create(const Device& device, uint32_t count);
  Timestamps(Timestamps&& other) noexcept : device_(other.device_), pool_(std::exchange(other.pool_, VK_NULL_HANDLE)) {}
  Timestamps& operator=(Timestamps&& other) noexcept;
  Timestamps() = default;
  ~Timestamps() { reset(); }

  void clear(VkCommandBuffer commands, uint32_t first, uint32_t count) const;
  // When all commands before it are done.
  void write(VkCommandBuffer commands, uint32_t idx) const;
  // Waits for them.
  Status read(uint32_t first, std::span<uint64_t> times) const;

 private:
  void reset();
  const Device* device_ = nullptr;
  VkQueryPool pool_ = VK_NULL_HANDLE;
};

}  // namespace llmrt::vulkan
