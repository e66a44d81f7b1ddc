#include "backends/vulkan/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "backends/vulkan/check.h"
#include "core/platform/device_monitor.h"

namespace llmrt::vulkan {
namespace {

// Kernels index 32-bit words with signed 32-bit numbers.
constexpr uint64_t kRangeBytesMax = 8ull << 30;

constexpr uint32_t kVendorIntel = 0x8086;
// Registers of a lane: parts of products and of attention do not fit in fewer; fragments of many rows do not fit in
// 128.
constexpr uint32_t kMatrixRegistersMin = 128, kFragmentRegistersMin = 256;

std::set<std::string> extensions_of(const Instance& instance, VkPhysicalDevice physical) {
  uint32_t count = 0;
  std::set<std::string> names;
  if (instance.EnumerateDeviceExtensionProperties(physical, nullptr, &count, nullptr) < 0) return names;
  std::vector<VkExtensionProperties> properties(count);
  if (instance.EnumerateDeviceExtensionProperties(physical, nullptr, &count, properties.data()) < 0) return names;
  for (uint32_t i = 0; i < count; ++i) names.insert(properties[i].extensionName);
  return names;
}

Tier tier_cap() {
  const char* value = std::getenv("LLMRT_VULKAN_TIER");
  if (!value || !*value) return Tier::kMatrix;
  return *value >= '0' && *value <= '2' ? static_cast<Tier>(*value - '0') : Tier::kMatrix;
}

bool f16_wanted() {
  const char* value = std::getenv("LLMRT_VULKAN_F16");
  return !(value && std::strcmp(value, "0") == 0);
}

bool gpu_kernels_wanted() {
  const char* value = std::getenv("LLMRT_VULKAN_KERNELS");
  return value && std::strcmp(value, "gpu") == 0;
}

// The first f16 x f16 -> f32 shape among those that the kernels are written for, larger ones first.
bool choose_matrix_shape(const Instance& instance, VkPhysicalDevice physical, Traits* traits) {
  const auto enumerate = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR>(
      instance.GetInstanceProcAddr(instance.handle(), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  uint32_t count = 0;
  if (!enumerate || enumerate(physical, &count, nullptr) < 0) return false;
  std::vector<VkCooperativeMatrixPropertiesKHR> shapes(count, {VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR});
  if (enumerate(physical, &count, shapes.data()) < 0) return false;
  // The extension leaves open where elements lie. This is what the drivers do today.
  Fragment known;
  if (is_nvidia(*traits) && traits->subgroup_size == 32) known = {16, 8, 16, 4, 2};
  if (traits->driver.starts_with("llvmpipe") && traits->subgroup_size == 8) known = {8, 8, 8, 8, 1};
  uint32_t best = 0;
  for (const auto& s : shapes) {
    if (s.AType != VK_COMPONENT_TYPE_FLOAT16_KHR || s.BType != VK_COMPONENT_TYPE_FLOAT16_KHR ||
        s.CType != VK_COMPONENT_TYPE_FLOAT32_KHR || s.ResultType != VK_COMPONENT_TYPE_FLOAT32_KHR ||
        s.scope != VK_SCOPE_SUBGROUP_KHR || s.MSize > 16 || s.NSize > 16 || s.KSize > 16)
      continue;
    const bool is_known = s.MSize == known.m && s.NSize == known.n && s.KSize == known.k;
    if (is_known && traits->lane_registers >= kFragmentRegistersMin) traits->fragment = known;
    if (s.MSize * s.NSize * s.KSize <= best) continue;
    best = s.MSize * s.NSize * s.KSize;
    traits->matrix_m = s.MSize;
    traits->matrix_n = s.NSize;
    traits->matrix_k = s.KSize;
  }
  return best > 0;
}

// Intel's compilers give a thread 128 registers, as wide as the device's smallest subgroup, which its lanes share. So a
// lane has room for 128 * smallest / size numbers: 64 with 16 lanes up to Xe, 128 on Xe2. With the 32 lanes that the
// driver names most kernels spill; 8 lanes are too few for decode attention over heads of 128 numbers.
uint32_t intel_subgroup_size(const VkPhysicalDeviceVulkan13Properties& v13) {
  return std::clamp(16u, v13.minSubgroupSize, v13.maxSubgroupSize);
}

void limit_registers(bool is_intel, const VkPhysicalDeviceVulkan13Properties& v13, Traits* traits) {
  if (is_intel && traits->subgroup_size > 1) traits->lane_registers = 128 * v13.minSubgroupSize / traits->subgroup_size;
  const char* value = std::getenv("LLMRT_VULKAN_REGISTERS");
  if (value && std::strcmp(value, "64") == 0) traits->lane_registers = 64;
  if (value && std::strcmp(value, "128") == 0) traits->lane_registers = 128;
}

// What the tier's kernels need beyond T0, from features and limits.
Tier choose_tier(const Instance& instance, VkPhysicalDevice physical, const Features& f, bool has_matrix_extension,
                 const VkPhysicalDeviceVulkan11Properties& v11, const VkPhysicalDeviceVulkan13Properties& v13,
                 bool is_intel, Traits* traits) {
  constexpr VkSubgroupFeatureFlags kOperations = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                                 VK_SUBGROUP_FEATURE_SHUFFLE_BIT | VK_SUBGROUP_FEATURE_BALLOT_BIT;
  const Tier cap = tier_cap();
  const bool is_fixed = v13.minSubgroupSize == v13.maxSubgroupSize;
  const bool can_ask = v13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT;
  // Where there is a choice, not more than the kernels are written for.
  const uint32_t wanted = is_intel ? intel_subgroup_size(v13) : std::min(v11.subgroupSize, 64u);
  const uint32_t size = can_ask && v13.minSubgroupSize <= 64 ? wanted : v11.subgroupSize;
  const bool subgroup = (v11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) &&
                        (v11.subgroupSupportedOperations & kOperations) == kOperations && f.v13.subgroupSizeControl &&
                        f.v13.computeFullSubgroups && (is_fixed || can_ask) && size >= 8 && size <= 64;
  if (!subgroup || cap < Tier::kSubgroup) return Tier::kScalar;
  traits->subgroup_size = size;
  traits->asks_subgroup_size = can_ask;
  limit_registers(is_intel, v13, traits);
  const bool matrix = has_matrix_extension && f.matrix.cooperativeMatrix && f.v12.shaderFloat16 &&
                      f.v11.storageBuffer16BitAccess && cap >= Tier::kMatrix &&
                      traits->lane_registers >= kMatrixRegistersMin;
  if (matrix && choose_matrix_shape(instance, physical, traits)) return Tier::kMatrix;
  const bool dots = f.v13.shaderIntegerDotProduct && cap == Tier::kDots && !has_small_lanes(*traits);
  return dots ? Tier::kDots : Tier::kSubgroup;
}

const VkMemoryHeap* device_heap(const VkPhysicalDeviceMemoryProperties& memory, uint32_t* heap_idx) {
  const VkMemoryHeap* best = nullptr;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryHeaps[i];
    if (!(heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) || (best && heap.size <= best->size)) continue;
    best = &heap;
    *heap_idx = i;
  }
  return best;
}

// Multiprocessors, where the driver tells.
uint32_t count_cores(const Instance& instance, VkPhysicalDevice physical, const std::set<std::string>& extensions) {
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nv{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
  VkPhysicalDeviceShaderCoreProperties2AMD amd{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD};
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  if (extensions.count(VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    properties.pNext = &nv;
    instance.GetPhysicalDeviceProperties2(physical, &properties);
    return nv.shaderSMCount;
  }
  if (extensions.count(VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME)) {
    properties.pNext = &amd;
    instance.GetPhysicalDeviceProperties2(physical, &properties);
    return amd.activeComputeUnitCount;
  }
  return 16;
}

// AMD's drivers alone tell. Some count registers of lanes by 32, some by 64.
uint32_t count_simd_registers(const Instance& instance, VkPhysicalDevice physical,
                              const std::set<std::string>& extensions) {
  if (!extensions.count(VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) return 0;
  VkPhysicalDeviceShaderCorePropertiesAMD amd{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD};
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  properties.pNext = &amd;
  instance.GetPhysicalDeviceProperties2(physical, &properties);
  return amd.vgprsPerSimd * amd.wavefrontSize / 64;
}

std::string read_pci_address(const Instance& instance, VkPhysicalDevice physical,
                             const std::set<std::string>& extensions) {
  if (!extensions.count(VK_EXT_PCI_BUS_INFO_EXTENSION_NAME)) return {};
  VkPhysicalDevicePCIBusInfoPropertiesEXT pci{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT};
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  properties.pNext = &pci;
  instance.GetPhysicalDeviceProperties2(physical, &properties);
  return pci_address_text(pci.pciDomain, pci.pciBus, pci.pciDevice, pci.pciFunction);
}

}  // namespace

void read_memory(const Instance& instance, VkPhysicalDevice physical, bool has_budget, bool is_integrated,
                 Traits* traits) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
  VkPhysicalDeviceMemoryProperties2 memory{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
  if (has_budget) memory.pNext = &budget;
  instance.GetPhysicalDeviceMemoryProperties2(physical, &memory);
  uint32_t heap_idx = 0;
  const VkMemoryHeap* heap = device_heap(memory.memoryProperties, &heap_idx);
  if (!heap) return;
  traits->memory_bytes = traits->memory_free_bytes = heap->size;
  traits->memory_budget = has_budget;
  if (has_budget) {
    const uint64_t used = budget.heapUsage[heap_idx], limit = budget.heapBudget[heap_idx];
    traits->memory_free_bytes = limit > used ? limit - used : 0;
  }
  traits->unified_memory = traits->is_cpu || is_integrated;
}

Candidate inspect(const Instance& instance, VkPhysicalDevice physical) {
  Candidate candidate;
  candidate.physical = physical;
  VkPhysicalDeviceVulkan11Properties v11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
  VkPhysicalDeviceVulkan12Properties v12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
  VkPhysicalDeviceVulkan13Properties v13{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
  VkPhysicalDeviceProperties2 properties{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
  instance.GetPhysicalDeviceProperties2(physical, &properties);
  const VkPhysicalDeviceProperties& core = properties.properties;
  Traits& traits = candidate.traits;
  traits.name = core.deviceName;
  candidate.type = core.deviceType;
  traits.is_cpu = core.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  const uint32_t version = core.apiVersion;
  traits.driver = fmt::format("Vulkan {}.{}.{}", VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version),
                              VK_API_VERSION_PATCH(version));
  if (version < VK_API_VERSION_1_3) {
    candidate.reason = fmt::format("expected Vulkan 1.3 or newer, driver has {}.{}", VK_API_VERSION_MAJOR(version),
                                   VK_API_VERSION_MINOR(version));
    return candidate;
  }
  properties.pNext = &v11;
  v11.pNext = &v12;
  v12.pNext = &v13;
  instance.GetPhysicalDeviceProperties2(physical, &properties);
  traits.driver = fmt::format("{} {}, {}", v12.driverName, v12.driverInfo, traits.driver);

  const std::set<std::string> extensions = extensions_of(instance, physical);
  traits.pci_address = read_pci_address(instance, physical, extensions);
  const bool has_matrix = extensions.count(VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME) > 0;
  Features features;
  features.chain(has_matrix);
  instance.GetPhysicalDeviceFeatures2(physical, &features.core);

  const bool is_intel = core.vendorID == kVendorIntel;
  traits.tier = choose_tier(instance, physical, features, has_matrix, v11, v13, is_intel, &traits);
  traits.has_int64 = features.core.features.shaderInt64;
  traits.cpu_kernels = traits.is_cpu && traits.has_int64 && !gpu_kernels_wanted();
  if (traits.cpu_kernels) traits.fragment = {};  // none of them fills matrices
  const char* statistics_path = std::getenv("LLMRT_VULKAN_STATISTICS");
  if (statistics_path && extensions.count(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME) > 0)
    traits.statistics_path = statistics_path;
  traits.num_cores = std::max(count_cores(instance, physical, extensions), 1u);
  traits.simd_registers = count_simd_registers(instance, physical, extensions);
  // The kernel was made for lanes of many registers.
  traits.packed_f16 = traits.tier >= Tier::kSubgroup && traits.tier < Tier::kMatrix && features.v12.shaderFloat16 &&
                      !traits.cpu_kernels && !has_small_lanes(traits) && !has_small_simds(traits) && f16_wanted();
  traits.shared_bytes = core.limits.maxComputeSharedMemorySize;
  std::copy_n(core.limits.maxComputeWorkGroupCount, 3, traits.groups_max);
  traits.range_bytes =
      std::min<uint64_t>({v13.maxBufferSize, v11.maxMemoryAllocationSize, kRangeBytesMax}) & ~0xffffull;
  traits.timestamp_ns = core.limits.timestampPeriod;
  static_assert(sizeof(traits.pipeline_cache_uuid) == VK_UUID_SIZE);
  std::memcpy(traits.pipeline_cache_uuid, core.pipelineCacheUUID, VK_UUID_SIZE);
  read_memory(instance, physical, extensions.count(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) > 0,
              core.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU, &traits);

  const auto need = [&candidate](bool present, std::string what) {
    if (!present && candidate.reason.empty()) candidate.reason = "lacks " + what;
  };
  need(features.v12.timelineSemaphore, "timeline semaphores");
  need(features.v13.synchronization2, "synchronization2");
  need(features.v13.maintenance4, "maintenance4");
  need(features.v12.bufferDeviceAddress, "buffer device addresses");
  need(features.v12.vulkanMemoryModel && features.v12.vulkanMemoryModelDeviceScope, "the Vulkan memory model");
  need(core.limits.timestampComputeAndGraphics, "timestamps on compute queues");
  need(core.limits.maxPushConstantsSize >= 128, "128 bytes of push constants");
  need(traits.memory_bytes > 0, "device-local memory");
  candidate.usable = candidate.reason.empty();
  return candidate;
}

}  // namespace llmrt::vulkan
