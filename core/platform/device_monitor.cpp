#include "core/platform/device_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/platform/dynamic_library.h"

namespace llmrt {
namespace {

namespace fs = std::filesystem;

// ---- NVML: the few calls that are used, as its header declares them
// --------------------------------------------------

using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlUtilization {
  unsigned gpu, memory;  // per cent
};
constexpr unsigned kNvmlClockSm = 1, kNvmlClockMemory = 2, kNvmlTemperatureGpu = 0;

class NvmlMonitor : public DeviceMonitor {
 public:
  static std::unique_ptr<DeviceMonitor> open(std::string_view pci_address, const std::string& library) {
    auto opened = DynamicLibrary::open({library});
    if (!opened) return nullptr;
    auto monitor = std::unique_ptr<NvmlMonitor>(new NvmlMonitor(*std::move(opened)));
    const auto init = monitor->call<int (*)()>("nvmlInit_v2");
    const auto find = monitor->call<int (*)(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByPciBusId_v2");
    if (!init || !find || init() != 0) return nullptr;
    monitor->is_initialised_ = true;
    if (find(std::string(pci_address).c_str(), &monitor->device_) != 0) return nullptr;
    return monitor;
  }
  ~NvmlMonitor() override {
    if (const auto shutdown = call<int (*)()>("nvmlShutdown"); shutdown && is_initialised_) shutdown();
  }

  DeviceFigures read() const override {
    DeviceFigures figures;
    NvmlMemory memory = {};
    if (memory_info_ && memory_info_(device_, &memory) == 0) {
      figures.memory_used_bytes = memory.used;
      figures.memory_total_bytes = memory.total;
    }
    NvmlUtilization load = {};
    if (utilization_ && utilization_(device_, &load) == 0) figures.busy_ratio = 0.01 * load.gpu;
    unsigned number = 0;
    if (clock_ && clock_(device_, kNvmlClockSm, &number) == 0) figures.core_clock_hz = 1e6 * number;
    if (clock_ && clock_(device_, kNvmlClockMemory, &number) == 0) figures.memory_clock_hz = 1e6 * number;
    if (power_ && power_(device_, &number) == 0) figures.power_watts = 1e-3 * number;
    if (temperature_ && temperature_(device_, kNvmlTemperatureGpu, &number) == 0) figures.temperature_celsius = number;
    return figures;
  }

 private:
  explicit NvmlMonitor(std::shared_ptr<const DynamicLibrary> library) : library_(std::move(library)) {
    memory_info_ = call<decltype(memory_info_)>("nvmlDeviceGetMemoryInfo");
    utilization_ = call<decltype(utilization_)>("nvmlDeviceGetUtilizationRates");
    clock_ = call<decltype(clock_)>("nvmlDeviceGetClockInfo");
    power_ = call<decltype(power_)>("nvmlDeviceGetPowerUsage");
    temperature_ = call<decltype(temperature_)>("nvmlDeviceGetTemperature");
  }
  template <typename Function>
  Function call(const char* name) const {
    return reinterpret_cast<Function>(library_->symbol(name));
  }

  std::shared_ptr<const DynamicLibrary> library_;
  NvmlDevice device_ = nullptr;
  bool is_initialised_ = false;
  int (*memory_info_)(NvmlDevice, NvmlMemory*);
  int (*utilization_)(NvmlDevice, NvmlUtilization*);
  int (*clock_)(NvmlDevice, unsigned, unsigned*);
  int (*power_)(NvmlDevice, unsigned*);
  int (*temperature_)(NvmlDevice, unsigned, unsigned*);
};

// ---- sysfs
// -----------------------------------------------------------------------------------------------------------

std::optional<double> read_number(const fs::path& path) {
  std::ifstream file(path);
  double number = 0;
  if (!(file >> number) || number < 0) return std::nullopt;
  return number;
}
std::optional<double> scaled(std::optional<double> number, double factor) {
  if (number) *number *= factor;
  return number;
}
std::optional<uint64_t> bytes_of(std::optional<double> number) {
  if (!number) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

// The first of `paths` that holds a number.
std::optional<double> read_first(const std::vector<fs::path>& paths) {
  for (const fs::path& path : paths)
    if (const auto number = read_number(path)) return number;
  return std::nullopt;
}

// The folders below `folder` whose names begin so, in order.
std::vector<fs::path> folders_of(const fs::path& folder, std::string_view begin) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with(begin)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

// amdgpu's files, and those of i915 and xe where they have a figure; hwmon's are the same for all.
class SysfsMonitor : public DeviceMonitor {
 public:
  explicit SysfsMonitor(fs::path device) : device_(std::move(device)) {
    hwmon_ = folders_of(device_ / "hwmon", "hwmon");
    for (const fs::path& card : folders_of(device_ / "drm", "card")) {
      if (card.filename().string().find('-') == std::string::npos) intel_clocks_.push_back(card / "gt_act_freq_mhz");
    }
    intel_clocks_.push_back(device_ / "tile0/gt0/freq0/act_freq");
  }

  DeviceFigures read() const override {
    DeviceFigures figures;
    figures.memory_used_bytes = bytes_of(read_number(device_ / "mem_info_vram_used"));
    figures.memory_total_bytes = bytes_of(read_number(device_ / "mem_info_vram_total"));
    figures.busy_ratio = scaled(read_number(device_ / "gpu_busy_percent"), 0.01);
    figures.core_clock_hz = sensor({"freq1_input"});
    if (!figures.core_clock_hz) figures.core_clock_hz = scaled(read_first(intel_clocks_), 1e6);
    figures.memory_clock_hz = sensor({"freq2_input"});
    figures.power_watts = scaled(sensor({"power1_average", "power1_input"}), 1e-6);
    figures.temperature_celsius = scaled(sensor({"temp1_input"}), 1e-3);
    return figures;
  }

 private:
  std::optional<double> sensor(const std::vector<const char*>& names) const {
    for (const fs::path& folder : hwmon_)
      for (const char* name : names)
        if (const auto number = read_number(folder / name)) return number;
    return std::nullopt;
  }

  fs::path device_;
  std::vector<fs::path> hwmon_, intel_clocks_;
};

bool says_anything(const DeviceFigures& figures) {
  return figures.memory_used_bytes || figures.memory_total_bytes || figures.busy_ratio || figures.core_clock_hz ||
         figures.memory_clock_hz || figures.power_watts || figures.temperature_celsius;
}

}  // namespace

std::string pci_address_text(uint32_t domain, uint32_t bus, uint32_t device, uint32_t function) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

bool is_pci_address(std::string_view text) {
  const size_t first = text.find(':');  // a domain has four digits, or more
  if (first == std::string_view::npos || first < 4 || first > 8 || text.size() != first + 8) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char expected = i == first || i == first + 3 ? ':' : i == first + 6 ? '.' : 'x';
    const bool is_digit = std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
    if (expected == 'x' ? !is_digit : text[i] != expected) return false;
  }
  return true;
}

std::unique_ptr<DeviceMonitor> monitor_device(std::string_view pci_address, const MonitorSources& sources) {
  if (!is_pci_address(pci_address)) return nullptr;
  if (auto nvidia = NvmlMonitor::open(pci_address, sources.nvml)) return nvidia;
  auto other = std::make_unique<SysfsMonitor>(fs::path(sources.devices) / pci_address);
  if (!says_anything(other->read())) return nullptr;
  return other;
}

}  // namespace llmrt
