#include "backends/vulkan/device.h"

#include <algorithm>
#include <optional>

#include "backends/vulkan/check.h"
#include "backends/vulkan/inspect.h"

namespace llmrt::vulkan {
namespace {

int rank(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return 0;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return 1;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return 2;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return 4;
    default:
      return 3;
  }
}

struct QueueFamily {
  uint32_t idx, timestamp_bits;
};
std::optional<QueueFamily> compute_queue_family(const Instance& instance, VkPhysicalDevice physical) {
  uint32_t count = 0;
  instance.GetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  instance.GetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  for (uint32_t i = 0; i < count; ++i)
    if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) && families[i].timestampValidBits > 0)
      return QueueFamily{i, families[i].timestampValidBits};
  return std::nullopt;
}

}  // namespace

const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::kScalar:
      return "T0 scalar";
    case Tier::kSubgroup:
      return "T1 subgroup";
    case Tier::kDots:
      return "T2 dot products of bytes";
    case Tier::kMatrix:
      return "T3 cooperative matrix";
  }
  return "";
}

Result<std::vector<Candidate>> list_candidates(const Instance& instance) {
  auto devices = instance.physical_devices();
  if (!devices) return devices.error();
  std::vector<Candidate> candidates;
  for (VkPhysicalDevice physical : *devices) candidates.push_back(inspect(instance, physical));
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return rank(a.type) < rank(b.type); });
  return candidates;
}

Result<std::unique_ptr<Device>> Device::open(std::shared_ptr<const Instance> instance, const Candidate& candidate) {
  if (!candidate.usable)
    return make_error(ErrorCode::kMissingFeature, "vulkan device: {}: {}", candidate.traits.name, candidate.reason);
  std::unique_ptr<Device> device(new Device);
  device->instance_ = instance;
  device->physical_ = candidate.physical;
  device->traits_ = candidate.traits;
  const std::optional<QueueFamily> family = compute_queue_family(*instance, candidate.physical);
  if (!family)
    return make_error(ErrorCode::kMissingFeature, "vulkan device: {}: no compute queue with timestamps",
                      candidate.traits.name);
  device->queue_family_ = family->idx;
  device->traits_.timestamp_bits = family->timestamp_bits;

  const bool subgroup = candidate.traits.tier >= Tier::kSubgroup, matrix = candidate.traits.tier >= Tier::kMatrix;
  Features features;
  features.chain(matrix);
  features.core.features.shaderInt64 = candidate.traits.has_int64;
  features.v12.bufferDeviceAddress = VK_TRUE;
  features.v12.timelineSemaphore = VK_TRUE;
  features.v12.vulkanMemoryModel = VK_TRUE;
  features.v12.vulkanMemoryModelDeviceScope = VK_TRUE;  // of plain atomics
  features.v13.synchronization2 = VK_TRUE;
  features.v13.maintenance4 = VK_TRUE;
  features.v13.shaderIntegerDotProduct = candidate.traits.tier == Tier::kDots;
  features.v13.subgroupSizeControl = subgroup;
  features.v13.computeFullSubgroups = subgroup;
  features.v11.storageBuffer16BitAccess = matrix;
  features.v12.shaderFloat16 = matrix || candidate.traits.packed_f16;
  features.matrix.cooperativeMatrix = matrix;
  const bool with_statistics = !candidate.traits.statistics_path.empty();
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics{
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR};
  statistics.pNext = &features.core;
  statistics.pipelineExecutableInfo = VK_TRUE;

  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
  queue.queueFamilyIndex = device->queue_family_;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  std::vector<const char*> extensions;
  if (matrix) extensions.push_back(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
  if (candidate.traits.memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (with_statistics) extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
  info.pNext = with_statistics ? static_cast<void*>(&statistics) : &features.core;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  VK_TRY(instance->CreateDevice(candidate.physical, &info, nullptr, &device->handle_),
         "vkCreateDevice " + candidate.traits.name);
  device->api_.load(*instance, device->handle_);
  device->api_.GetDeviceQueue(device->handle_, device->queue_family_, 0, &device->queue_);
  VkPhysicalDeviceMemoryProperties2 memory{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  instance->GetPhysicalDeviceMemoryProperties2(candidate.physical, &memory);
  device->memory_ = memory.memoryProperties;
  return device;
}

Device::~Device() {
  if (handle_) api_.DestroyDevice(handle_, nullptr);
}

uint64_t Device::memory_free_bytes() const {
  Traits now = traits_;
  read_memory(*instance_, physical_, traits_.memory_budget, false, &now);
  return now.memory_free_bytes;
}

int Device::memory_type(uint32_t type_bits, VkMemoryPropertyFlags flags) const {
  for (uint32_t i = 0; i < memory_.memoryTypeCount; ++i)
    if ((type_bits >> i & 1) && (memory_.memoryTypes[i].propertyFlags & flags) == flags) return static_cast<int>(i);
  return -1;
}

}  // namespace llmrt::vulkan
