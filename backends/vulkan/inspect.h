// What a physical device can do, asked of the driver.
#pragma once

#include "backends/vulkan/device.h"

namespace llmrt::vulkan {

struct Features {
  VkPhysicalDeviceFeatures2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
  VkPhysicalDeviceVulkan11Features v11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
  VkPhysicalDeviceVulkan12Features v12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
  VkPhysicalDeviceVulkan13Features v13{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
  VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};

  void chain(bool with_matrix) {
    core.pNext = &v11;
    v11.pNext = &v12;
    v12.pNext = &v13;
    v13.pNext = with_matrix ? &matrix : nullptr;
  }
};

// Traits, and whether the device is usable at all.
Candidate inspect(const Instance& instance, VkPhysicalDevice physical);
// Sets the memory fields of `traits`.
void read_memory(const Instance& instance, VkPhysicalDevice physical, bool has_budget, bool is_integrated,
                 Traits* traits);

}  // namespace llmrt::vulkan
