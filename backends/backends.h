// Names to backends: the one file that knows them all. A backend that is not built, or whose driver is not there, shows
// up as a device that is skipped, with the reason.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/status.h"

namespace llmrt {

struct DeviceInfo {
  std::string id;           // "cuda:0", "vulkan:1"
  std::string name;         // as the driver calls it
  std::string tier;         // "sm_90", "T1 subgroup + f16"
  std::string driver;       // driver and API version
  std::string pci_address;  // "0000:65:00.0"; empty: the driver does not say
  uint64_t memory_bytes = 0, memory_free_bytes = 0;
  bool is_cpu = false;
  bool usable = false;
  std::string reason;  // why it is skipped, when not usable
};

// Every device of every backend, usable ones first, in the order in which "auto" would choose: CUDA, then discrete,
// integrated and CPU Vulkan devices.
std::vector<DeviceInfo> list_devices();

// `id`: "auto", "cuda:N" or "vulkan:N". Errors: not_found (listing what is there), missing_feature.
Result<std::unique_ptr<Backend>> open_device(const std::string& id);

}  // namespace llmrt
