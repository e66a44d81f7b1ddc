// Devices for fleet_serve_test.py: those of the Vulkan backend and the float64 reference beside them. With
// LLMRT_LOSE_EVERY_S=S one that has run for a while is lost every S seconds, as long as another one is left.
#include <cstdlib>

#include "backends/backends.h"
#include "backends/vulkan/backend.h"
#include "tests/reference/backend.h"
#include "tests/server/losable_backend.h"

namespace llmrt {
namespace {

constexpr const char* kReference = "reference:0";

}  // namespace

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices;
  if (auto reports = vulkan::list_devices())
    for (const vulkan::DeviceReport& report : *reports)
      devices.push_back({fmt::format("vulkan:{}", devices.size()), report.name, report.tier, report.driver,
                         report.pci_address, report.memory_bytes, report.memory_free_bytes, report.is_cpu,
                         report.usable, report.reason});
  DeviceInfo& reference = devices.emplace_back();
  reference.id = kReference;
  reference.name = "float64 reference";
  reference.is_cpu = reference.usable = true;
  return devices;
}

Result<std::unique_ptr<Backend>> open_device(const std::string& id) {
  Result<std::unique_ptr<Backend>> backend = id == kReference ? make_reference_backend() : vulkan::open_device(0);
  if (!backend) return backend.error();
  if (const char* text = std::getenv("LLMRT_LOSE_EVERY_S")) test::Fates::all().set_every_s(std::atof(text));
  return std::unique_ptr<Backend>(
      std::make_unique<test::LosableBackend>(*std::move(backend), test::Fates::all().make()));
}

}  // namespace llmrt
