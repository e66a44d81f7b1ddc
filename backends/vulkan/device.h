// One Vulkan device: what it can do, its queue, and the handles everything else hangs on. Opened once; immutable
// afterwards, so that worker threads may read it. The queue itself belongs to the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/vulkan/api.h"
#include "backends/vulkan/traits.h"
#include "core/base/status.h"

namespace llmrt::vulkan {

struct Candidate {
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  Traits traits;
  VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_OTHER;
  bool usable = false;
  std::string reason;  // why not, when not usable
};

// Every device of the instance: discrete, integrated, virtual, then CPU; each kind in the driver's order. The index in
// this list is N of "vulkan:N". For tests: LLMRT_VULKAN_TIER=0|1|2|3 caps the tier (2 asks for T2),
// LLMRT_VULKAN_KERNELS=gpu lets a CPU device run what a GPU would, LLMRT_VULKAN_REGISTERS=64|128 chooses kernels as for
// lanes with so few, LLMRT_VULKAN_F16=0 those that compute in f32 where there are no matrix units, and
// LLMRT_VULKAN_STATISTICS=FILE asks for what drivers say of compiled kernels (pipelines.h).
Result<std::vector<Candidate>> list_candidates(const Instance& instance);

class Device {
 public:
  static Result<std::unique_ptr<Device>> open(std::shared_ptr<const Instance> instance, const Candidate& candidate);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Traits& traits() const { return traits_; }
  void set_fragment(const Fragment& fragment) { traits_.fragment = fragment; }  // before anything reads it
  const DeviceApi& api() const { return api_; }
  VkDevice handle() const { return handle_; }
  VkQueue queue() const { return queue_; }
  uint32_t queue_family() const { return queue_family_; }
  // Free bytes of the device heap now (its whole size where the driver does not say).
  uint64_t memory_free_bytes() const;
  // A memory type among `type_bits` with all of `flags`, or -1.
  int memory_type(uint32_t type_bits, VkMemoryPropertyFlags flags) const;

 private:
  Device() = default;
  std::shared_ptr<const Instance> instance_;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  Traits traits_;
  DeviceApi api_;
  VkDevice handle_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  uint32_t queue_family_ = 0;
  VkPhysicalDeviceMemoryProperties memory_{};
};

}  // namespace llmrt::vulkan
