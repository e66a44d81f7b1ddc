// The CUDA backend: NVIDIA devices that this build has code for. Opened by index; nothing of CUDA shows here. libcuda
// is opened by the (static) runtime when first needed: a machine without a driver has no devices, with that reason.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace llmrt::cuda {

struct DeviceReport {
  std::string name, tier, driver, pci_address;
  uint64_t memory_bytes = 0, memory_free_bytes = 0;
  bool usable = false;
  std::string reason;  // why it is skipped, when not usable
};

// Every device of the machine in the order of "cuda:N". Errors: missing_feature (no driver, or one too old).
Result<std::vector<DeviceReport>> list_devices();

// Errors: not_found, missing_feature, out_of_memory.
Result<std::unique_ptr<Backend>> open_device(uint32_t device_idx);

}  // namespace llmrt::cuda
