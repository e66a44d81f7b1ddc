#include "tests/ops/test_devices.h"

#include <cstdlib>
#include <sstream>

#include "tests/reference/backend.h"
#if LLMRT_HAVE_BACKENDS
#include "backends/backends.h"
#endif

namespace llmrt::optest {

std::vector<std::string> test_devices() {
  std::vector<std::string> ids;
  if (const char* wanted = std::getenv("LLMRT_TEST_DEVICES")) {
    std::istringstream stream(wanted);
    for (std::string id; std::getline(stream, id, ',');)
      if (id != "none") ids.push_back(id);
    return ids;
  }
#if LLMRT_HAVE_BACKENDS
  for (const DeviceInfo& info : list_devices())
    if (info.usable) ids.push_back(info.id);
#endif
  return ids;
}

std::vector<std::string> absent_devices() {
  std::vector<std::string> absent;
#if LLMRT_HAVE_BACKENDS
  for (const DeviceInfo& info : list_devices())
    if (!info.usable) absent.push_back(info.id + " (" + info.name + "): " + info.reason);
#else
  absent.push_back("every device: this build has no backends");
#endif
  return absent;
}

Result<std::unique_ptr<Backend>> open_test_device(const std::string& id) {
  if (id == "reference") return make_reference_backend();
  if (id == "reference:f16") return make_reference_backend({.activation_dtype = DType::kF16});
  if (id == "reference:bf16") return make_reference_backend({.activation_dtype = DType::kBF16});
#if LLMRT_HAVE_BACKENDS
  return open_device(id);
#else
  return make_error(ErrorCode::kNotFound, "device {}: this build has no backends", id);
#endif
}

}  // namespace llmrt::optest
