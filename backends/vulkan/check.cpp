#include "backends/vulkan/check.h"

namespace llmrt::vulkan {

const char* result_name(VkResult result) {
  switch (result) {
    case VK_SUCCESS: return "success";
    case VK_TIMEOUT: return "timeout";
    case VK_ERROR_OUT_OF_HOST_MEMORY: return "out of host memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "out of device memory";
    case VK_ERROR_INITIALIZATION_FAILED: return "initialization failed";
    case VK_ERROR_DEVICE_LOST: return "device lost";
    case VK_ERROR_MEMORY_MAP_FAILED: return "memory map failed";
    case VK_ERROR_LAYER_NOT_PRESENT: return "layer not present";
    case VK_ERROR_EXTENSION_NOT_PRESENT: return "extension not present";
    case VK_ERROR_FEATURE_NOT_PRESENT: return "feature not present";
    case VK_ERROR_INCOMPATIBLE_DRIVER: return "incompatible driver";
    case VK_ERROR_TOO_MANY_OBJECTS: return "too many objects";
    case VK_ERROR_OUT_OF_POOL_MEMORY: return "out of pool memory";
    default: return "unexpected result";
  }
}

Error vk_error(VkResult result, const char* what) {
  return vk_error(result, std::string(what));
}

Error vk_error(VkResult result, const std::string& what) {
  ErrorCode code = ErrorCode::kIo;
  switch (result) {
    case VK_ERROR_DEVICE_LOST: code = ErrorCode::kDeviceLost; break;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS: code = ErrorCode::kOutOfMemory; break;
    case VK_ERROR_LAYER_NOT_PRESENT:
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_INCOMPATIBLE_DRIVER: code = ErrorCode::kMissingFeature; break;
    default: break;
  }
  return make_error(code, "vulkan: {}: {} ({})", what, result_name(result), static_cast<int>(result));
}

}  // namespace llmrt::vulkan
