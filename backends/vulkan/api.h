// The Vulkan functions, loaded at run time: the loader library is opened by name, so a machine without Vulkan runs the
// same binary. One Api per instance; one DeviceApi per device (its functions skip the loader's dispatch).
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/platform/dynamic_library.h"

namespace llmrt::vulkan {

class Instance {
 public:
  // The process's one instance, made on first use and kept to the end: drivers do not bear being loaded and unloaded many
  // times (NVIDIA's fails from about the tenth on). Thread-safe. Errors: not_found (no loader), missing_feature (loader
  // older than 1.3), out_of_memory. With LLMRT_VULKAN_VALIDATION=1 the validation layer is enabled, and any error it
  // finds stops the process.
  static Result<std::shared_ptr<const Instance>> get();
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

#define VK_GLOBAL(name) PFN_vk##name name = nullptr;
#define VK_INSTANCE(name) PFN_vk##name name = nullptr;
#define VK_DEVICE(name)
#include "backends/vulkan/api_functions.inc"
#undef VK_GLOBAL
#undef VK_INSTANCE
#undef VK_DEVICE
  PFN_vkGetInstanceProcAddr GetInstanceProcAddr = nullptr;

  VkInstance handle() const { return handle_; }
  Result<std::vector<VkPhysicalDevice>> physical_devices() const;

 private:
  Instance() = default;
  static Result<std::shared_ptr<const Instance>> create();
  Status create_handle();

  std::shared_ptr<const DynamicLibrary> library_;
  VkInstance handle_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
};

struct DeviceApi {
#define VK_GLOBAL(name)
#define VK_INSTANCE(name)
#define VK_DEVICE(name) PFN_vk##name name = nullptr;
#include "backends/vulkan/api_functions.inc"
#undef VK_GLOBAL
#undef VK_INSTANCE
#undef VK_DEVICE
  void load(const Instance& instance, VkDevice device);
};

}  // namespace llmrt::vulkan
