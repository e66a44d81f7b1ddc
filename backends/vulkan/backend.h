// The Vulkan backend: any device with Vulkan 1.3, lavapipe (Vulkan on the CPU) included. Opened by index; nothing of
// Vulkan shows here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace llmrt::vulkan {

struct DeviceReport {
  std::string name, tier, driver, pci_address;
  uint64_t memory_bytes = 0, memory_free_bytes = 0;
  bool is_cpu = false, is_discrete = false;
  bool usable = false;
  std::string reason;  // why it is skipped, when not usable
};

// Every device of the machine in the order of "vulkan:N". Errors: no loader, or one older than 1.3.
Result<std::vector<DeviceReport>> list_devices();

// Errors: not_found, missing_feature, out_of_memory.
Result<std::unique_ptr<Backend>> open_device(uint32_t device_idx);

}  // namespace llmrt::vulkan
