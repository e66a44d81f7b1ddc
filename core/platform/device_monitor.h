// What a GPU's driver says of the device itself: memory in use by all programs, load, clocks, power, temperature. NVML
// for NVIDIA, the kernel's own files (sysfs) for AMD and Intel. Beside the compute API, which knows none of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace llmrt {

// A figure that nobody tells is absent, never 0.
struct DeviceFigures {
  std::optional<uint64_t> memory_used_bytes, memory_total_bytes;  // by every program
  std::optional<double> busy_ratio;                               // 0 to 1, over the driver's own last interval
  std::optional<double> core_clock_hz, memory_clock_hz;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
};

class DeviceMonitor {
 public:
  virtual ~DeviceMonitor() = default;
  // Some calls of the driver or reads of small files: about a millisecond. Any thread.
  virtual DeviceFigures read() const = 0;
};

// Where the makers' figures are found; other places than these are for tests.
struct MonitorSources {
  std::string nvml = "libnvidia-ml.so.1";
  std::string devices = "/sys/bus/pci/devices";
};

// `pci_address`: "0000:65:00.0", of a device that a compute API listed. Null where nobody says anything of it.
std::unique_ptr<DeviceMonitor> monitor_device(std::string_view pci_address, const MonitorSources& sources = {});

// The address as sysfs spells it, from its parts.
std::string pci_address_text(uint32_t domain, uint32_t bus, uint32_t device, uint32_t function);
// Whether a text is one; it becomes a part of paths.
bool is_pci_address(std::string_view text);

}  // namespace llmrt
