// The program on the float64 reference backend instead of a GPU: what it answers has the rounding of a float16 KV cache
// and no other that matters, so oracle_test.py can tell a wrong graph or a wrong tensor from rounding.
#include "backends/backends.h"
#include "tests/reference/backend.h"

namespace llmrt {

std::vector<DeviceInfo> list_devices() {
  DeviceInfo device;
  device.id = "reference:0";
  device.name = "float64 reference";
  device.is_cpu = true;
  device.usable = true;
  return {device};
}

Result<std::unique_ptr<Backend>> open_device(const std::string&) {
  return make_reference_backend();
}

}  // namespace llmrt
