// list_devices: what is there, and why one can't be used.
#include <cuda_runtime_api.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/check.h"
#include "backends/cuda/ops/probe.h"
#include "core/platform/device_monitor.h"

namespace llmrt::cuda {
namespace {

Result<DeviceReport> report_of(int device) {
  DeviceReport report;
  cudaDeviceProp properties{};
  CUDA_TRY(cudaGetDeviceProperties(&properties, device), "device properties");
  int driver = 0;
  CUDA_TRY(cudaDriverGetVersion(&driver), "driver version");
  report.name = properties.name;
  report.tier = fmt::format("sm_{}{}", properties.major, properties.minor);
  report.driver = fmt::format("CUDA {}.{}", driver / 1000, driver % 1000 / 10);
  report.pci_address =
      pci_address_text(static_cast<uint32_t>(properties.pciDomainID), static_cast<uint32_t>(properties.pciBusID),
                       static_cast<uint32_t>(properties.pciDeviceID), 0);
  report.memory_bytes = properties.totalGlobalMem;
  // From here on a failure is the device's own, and its reason.
  size_t free_bytes = 0, total_bytes = 0;
  cudaError_t code = cudaSetDevice(device);
  if (code == cudaSuccess) code = cudaMemGetInfo(&free_bytes, &total_bytes);
  report.memory_free_bytes = free_bytes;
  if (code == cudaSuccess) code = probe_kernel_image();
  report.usable = code == cudaSuccess;
  if (code == cudaErrorNoKernelImageForDevice)
    report.reason = fmt::format("this build has no code for {}", report.tier);
  else if (code != cudaSuccess)
    report.reason = cuda_error(code, "open").message;
  cudaGetLastError();
  return report;
}

}  // namespace

Result<std::vector<DeviceReport>> list_devices() {
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code == cudaErrorNoDevice) {
    cudaGetLastError();
    return std::vector<DeviceReport>{};
  } else if (code != cudaSuccess) {
    cudaGetLastError();
    return make_error(ErrorCode::kMissingFeature, "CUDA: {}", cudaGetErrorString(code));
  }
  std::vector<DeviceReport> reports;
  for (int device = 0; device < count; ++device) {
    Result<DeviceReport> report = report_of(device);
    if (!report) return report.error();
    reports.push_back(*std::move(report));
  }
  return reports;
}

}  // namespace llmrt::cuda
