// VK_TRY(call, what): returns from the enclosing function (Status or Result) with a typed Error when a Vulkan call fails.
#pragma once

#include "backends/vulkan/api.h"
#include "core/base/status.h"

namespace llmrt::vulkan {

const char* result_name(VkResult result);
// device_lost, out_of_memory, missing_feature, or io for what should not happen. `what`: the call, and how much was asked.
Error vk_error(VkResult result, const char* what);
Error vk_error(VkResult result, const std::string& what);

}  // namespace llmrt::vulkan

#define VK_TRY(call, what)                                                     \
  do {                                                                         \
    if (const VkResult vk_result = (call); vk_result < 0)                      \
      return ::llmrt::vulkan::vk_error(vk_result, what);                       \
  } while (0)
