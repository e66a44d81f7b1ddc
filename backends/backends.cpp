#include "backends/backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#if LLMRT_HAVE_CUDA
#include "backends/cuda/backend.h"
#endif
#if LLMRT_HAVE_VULKAN
#include "backends/vulkan/backend.h"
#endif

namespace llmrt {
namespace {

// One row a backend: its devices in its own order, and how to open the N-th.
struct BackendRow {
  const char* name;
  std::vector<DeviceInfo> (*list)();
  Result<std::unique_ptr<Backend>> (*open)(uint32_t device_idx);
};

// A backend that is there but has no device at all, with the reason.
[[maybe_unused]] DeviceInfo nothing(const char* name, std::string reason) {
  DeviceInfo info;
  info.id = name;
  info.name = "no device";
  info.reason = std::move(reason);
  return info;
}

#if LLMRT_HAVE_CUDA
std::vector<DeviceInfo> list_cuda() {
  auto reports = cuda::list_devices();
  if (!reports) return {nothing("cuda", reports.error().message)};
  if (reports->empty()) return {nothing("cuda", "the driver found no device")};
  std::vector<DeviceInfo> infos;
  for (const cuda::DeviceReport& report : *reports)
    infos.push_back({fmt::format("cuda:{}", infos.size()), report.name, report.tier, report.driver, report.pci_address,
                     report.memory_bytes, report.memory_free_bytes, false, report.usable, report.reason});
  return infos;
}
#endif

#if LLMRT_HAVE_VULKAN
std::vector<DeviceInfo> list_vulkan() {
  auto reports = vulkan::list_devices();
  if (!reports) return {nothing("vulkan", reports.error().message)};
  if (reports->empty()) return {nothing("vulkan", "the loader found no driver")};
  std::vector<DeviceInfo> infos;
  for (const vulkan::DeviceReport& report : *reports)
    infos.push_back({fmt::format("vulkan:{}", infos.size()), report.name, report.tier, report.driver,
                     report.pci_address, report.memory_bytes, report.memory_free_bytes, report.is_cpu, report.usable,
                     report.reason});
  return infos;
}
#endif

constexpr BackendRow kBackends[] = {
#if LLMRT_HAVE_CUDA
    {"cuda", list_cuda, cuda::open_device},
#endif
#if LLMRT_HAVE_VULKAN
    {"vulkan", list_vulkan, vulkan::open_device},
#endif
    {nullptr, nullptr, nullptr},  // so that the table is never empty
};

}  // namespace

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> infos;
  for (const BackendRow& row : kBackends) {
    if (!row.name) continue;
    for (DeviceInfo& info : row.list()) infos.push_back(std::move(info));
  }
  std::stable_sort(infos.begin(), infos.end(), [](const DeviceInfo& a, const DeviceInfo& b) {
    const auto rank = [](const DeviceInfo& info) { return !info.usable ? 2 : info.is_cpu ? 1 : 0; };
    return rank(a) < rank(b);
  });
  return infos;
}

Result<std::unique_ptr<Backend>> open_device(const std::string& id) {
  if (id == "auto") {
    for (const DeviceInfo& info : list_devices())
      if (info.usable) return open_device(info.id);
  }
  const size_t colon = id.find(':');
  uint32_t device_idx = 0;
  const char *first = id.data() + std::min(colon, id.size() - 1) + 1, *last = id.data() + id.size();
  const bool numbered =
      colon != std::string::npos && std::from_chars(first, last, device_idx).ptr == last && first != last;
  for (const BackendRow& row : kBackends)
    if (row.name && numbered && id.substr(0, colon) == row.name) {
      auto backend = row.open(device_idx);
      if (!backend) return Error{backend.error().code, fmt::format("device {}: {}", id, backend.error().message)};
      return backend;
    }
  std::string found;
  for (const DeviceInfo& info : list_devices())
    found += fmt::format("{}{} ({}{})", found.empty() ? "" : ", ", info.id, info.name,
                         info.usable ? "" : ": " + info.reason);
  return make_error(ErrorCode::kNotFound, "device {}: expected auto, cuda:N or vulkan:N; found {}", id,
                    found.empty() ? "none" : found);
}

}  // namespace llmrt
