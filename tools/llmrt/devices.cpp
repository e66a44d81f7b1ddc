#include <boost/json.hpp>

#include "backends/backends.h"
#include "core/platform/device_monitor.h"
#include "tools/llmrt/program.h"

namespace llmrt::cli {
namespace {

void print_json(const std::vector<DeviceInfo>& devices) {
  boost::json::array list;
  for (const DeviceInfo& device : devices)
    list.push_back({{"id", device.id},
                    {"name", device.name},
                    {"tier", device.tier},
                    {"driver", device.driver},
                    {"pci_address", device.pci_address},
                    {"memory_bytes", device.memory_bytes},
                    {"memory_free_bytes", device.memory_free_bytes},
                    {"is_cpu", device.is_cpu},
                    {"usable", device.usable},
                    {"reason", device.reason}});
  fmt::print("{}\n", boost::json::serialize(list));
}

// ", 35 % busy, 1980 MHz, 310 W, 52 C", as far as the driver says.
std::string state_text(const DeviceInfo& device) {
  const auto monitor = monitor_device(device.pci_address);
  if (!monitor) return {};
  const DeviceFigures figures = monitor->read();
  std::string text;
  if (figures.busy_ratio) text += fmt::format(", {:.0f} % busy", 100 * *figures.busy_ratio);
  if (figures.core_clock_hz) text += fmt::format(", {:.0f} MHz", 1e-6 * *figures.core_clock_hz);
  if (figures.power_watts) text += fmt::format(", {:.0f} W", *figures.power_watts);
  if (figures.temperature_celsius) text += fmt::format(", {:.0f} °C", *figures.temperature_celsius);
  return text;
}

}  // namespace

void add_devices(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "List the devices of this machine, and why a device is skipped");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->footer("--device auto takes the first device that is usable. The exit code is 4 when none is.");
  command->callback([json] {
    const std::vector<DeviceInfo> devices = list_devices();
    bool any = false;
    for (const DeviceInfo& device : devices) any |= device.usable;
    if (*json) {
      print_json(devices);
    } else {
      for (const DeviceInfo& device : devices) {
        fmt::print("{:<10} {}{}\n", device.id, device.name, device.is_cpu ? " (the CPU)" : "");
        if (device.usable)
          fmt::print("{:<10} {}, driver {}, {} ({} free){}\n", "", device.tier, device.driver,
                     bytes_text(device.memory_bytes), bytes_text(device.memory_free_bytes), state_text(device));
        else
          fmt::print("{:<10} skipped: {}\n", "", device.reason);
      }
    }
    if (!any)
      fail(
          kNoDevice,
          "no usable device: expected an NVIDIA driver, or a Vulkan 1.3 driver (for the CPU: mesa-vulkan-drivers 24 or "
          "later)");
  });
}

}  // namespace llmrt::cli
