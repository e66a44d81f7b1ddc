// Which devices the op tests run on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/backend.h"

namespace llmrt::optest {

// Ids to test: LLMRT_TEST_DEVICES, or every usable device.
std::vector<std::string> test_devices();
// Devices that are known and not usable: "cuda:0: reason".
std::vector<std::string> absent_devices();
Result<std::unique_ptr<Backend>> open_test_device(const std::string& id);

}  // namespace llmrt::optest
