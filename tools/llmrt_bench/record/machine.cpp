#include "tools/llmrt_bench/record/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/platform/dynamic_library.h"
#include "git_commit.h"

namespace llmrt::bench {
namespace {

namespace json = boost::json;

// What stands behind `key` and `separator` in the first such line of a file; null when there is none.
json::value line_value(const char* path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(separator);
    if (!line.starts_with(key) || at == std::string::npos) continue;
    const size_t first = line.find_first_not_of(" \t\"", at + 1);
    const size_t last = line.find_last_not_of(" \t\"");
    if (first != std::string::npos && first <= last) return json::value(line.substr(first, last - first + 1));
  }
  return nullptr;
}

// The few functions of libnvidia-ml.so.1 that tell clocks, by the types of its ABI.
class Nvml {
 public:
  Nvml() {
    auto library = DynamicLibrary::open({"libnvidia-ml.so.1"});
    if (!library) return;
    library_ = *library;
    const auto init = symbol<int()>("nvmlInit_v2");
    if (init == nullptr || init() != 0) library_ = nullptr;
  }
  bool is_open() const { return library_ != nullptr; }

  // The only device of that name, or null.
  void* find(const std::string& device_name) const {
    const auto count_of = symbol<int(unsigned*)>("nvmlDeviceGetCount_v2");
    const auto at = symbol<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    const auto name_of = symbol<int(void*, char*, unsigned)>("nvmlDeviceGetName");
    unsigned count = 0;
    if (!count_of || !at || !name_of || count_of(&count) != 0) return nullptr;
    void* found = nullptr;
    for (unsigned i = 0; i < count; ++i) {
      void* device = nullptr;
      std::array<char, 97> name{};
      if (at(i, &device) != 0 || name_of(device, name.data(), name.size() - 1) != 0 || device_name != name.data())
        continue;
      if (found != nullptr) return nullptr;
      found = device;
    }
    return found;
  }
  template <typename... Args>
  json::value number(const char* function, double scale, void* device, Args... args) const {
    const auto call = symbol<int(void*, Args..., unsigned*)>(function);
    unsigned value = 0;
    if (call == nullptr || call(device, args..., &value) != 0) return nullptr;
    return value * scale;
  }

 private:
  template <typename Function>
  Function* symbol(const char* name) const {
    return reinterpret_cast<Function*>(library_->symbol(name));
  }
  std::shared_ptr<const DynamicLibrary> library_;
};

}  // namespace

std::string git_commit() {
  return LLMRT_GIT_COMMIT;
}

std::vector<std::string> command_line() {
  constexpr std::string_view kSecret = "--header";
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) {
    if (!arguments.empty() && arguments.back() == kSecret)
      argument = "...";
    else if (argument.starts_with(std::string(kSecret) + "="))
      argument = std::string(kSecret) + "=...";
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

json::object host_json() {
  utsname system{};
  uname(&system);
  return {{"cpu", line_value("/proc/cpuinfo", "model name", ':')},
          {"num_cpus", std::thread::hardware_concurrency()},
          {"memory_bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)},
          {"os", line_value("/etc/os-release", "PRETTY_NAME", '=')},
          {"kernel", system.release}};
}

json::value clocks_json(const std::string& device_name) {
  static const Nvml nvml;
  void* device = nvml.is_open() ? nvml.find(device_name) : nullptr;
  if (device == nullptr) return nullptr;
  constexpr int kSm = 1, kMemory = 2;
  return {{"sm_mhz", nvml.number("nvmlDeviceGetClockInfo", 1, device, kSm)},
          {"sm_mhz_max", nvml.number("nvmlDeviceGetMaxClockInfo", 1, device, kSm)},
          {"memory_mhz", nvml.number("nvmlDeviceGetClockInfo", 1, device, kMemory)},
          {"memory_mhz_max", nvml.number("nvmlDeviceGetMaxClockInfo", 1, device, kMemory)},
          {"power_w", nvml.number("nvmlDeviceGetPowerUsage", 1e-3, device)},
          {"power_limit_w", nvml.number("nvmlDeviceGetEnforcedPowerLimit", 1e-3, device)}};
}

}  // namespace llmrt::bench
