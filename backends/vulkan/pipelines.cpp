#include "backends/vulkan/pipelines.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "backends/vulkan/check.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kOwnConstantsFirst = 10;  // twin: shaders/types.glsl

// $XDG_CACHE_HOME or ~/.cache; empty when neither is known (then nothing is kept).
std::filesystem::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return std::filesystem::path(cache) / "llmrt";
  if (const char* home = std::getenv("HOME"); home && *home) return std::filesystem::path(home) / ".cache" / "llmrt";
  return {};
}

std::string cache_file(const Traits& traits) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return {};
  std::string uuid;
  for (const uint8_t byte : traits.pipeline_cache_uuid) uuid += fmt::format("{:02x}", byte);
  return folder / fmt::format("vulkan-{}-{:016x}.cache", uuid, spirv_hash());
}

std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

Result<std::unique_ptr<Pipelines>> Pipelines::create(const Device& device) {
  const DeviceApi& api = device.api();
  std::unique_ptr<Pipelines> pipelines(new Pipelines(device));
  const VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0, 128};
  VkPipelineLayoutCreateInfo layout{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &push;
  VK_TRY(api.CreatePipelineLayout(device.handle(), &layout, nullptr, &pipelines->layout_), "pipeline layout");
  // The driver checks the header (vendor, device, its own UUID) and starts empty on anything else.
  pipelines->cache_path_ = cache_file(device.traits());
  const std::vector<char> data =
      pipelines->cache_path_.empty() ? std::vector<char>() : read_file(pipelines->cache_path_);
  VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
  info.initialDataSize = data.size();
  info.pInitialData = data.data();
  if (api.CreatePipelineCache(device.handle(), &info, nullptr, &pipelines->cache_) < 0) {
    info.initialDataSize = 0;
    VK_TRY(api.CreatePipelineCache(device.handle(), &info, nullptr, &pipelines->cache_), "pipeline cache");
  }
  return pipelines;
}

Pipelines::~Pipelines() {
  if (changed_) save();
  for (const auto& [kernel, pipeline] : pipelines_) device_.api().DestroyPipeline(device_.handle(), pipeline, nullptr);
  device_.api().DestroyPipelineCache(device_.handle(), cache_, nullptr);
  device_.api().DestroyPipelineLayout(device_.handle(), layout_, nullptr);
}

Status Pipelines::compile(std::span<const Kernel> kernels) {
  std::set<Kernel> missing;
  for (const Kernel& kernel : kernels)
    if (!find(kernel)) missing.insert(kernel);
  const std::vector<Kernel> work(missing.begin(), missing.end());
  if (work.empty()) return {};
  std::vector<std::optional<Result<VkPipeline>>> built(work.size());
  std::atomic<size_t> next{0};
  const auto worker = [&] {
    for (size_t i = next++; i < work.size(); i = next++) built[i].emplace(build(work[i]));
  };
  const size_t num_threads = std::min<size_t>(work.size(), std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < num_threads; ++i) threads.emplace_back(worker);
  worker();
  for (std::thread& thread : threads) thread.join();

  std::optional<Error> failed;
  for (size_t i = 0; i < work.size(); ++i) {
    if (*built[i])
      pipelines_[work[i]] = built[i]->value();
    else if (!failed)
      failed = built[i]->error();
  }
  changed_ = true;
  if (failed) return *failed;
  return {};
}

VkPipeline Pipelines::find(const Kernel& kernel) const {
  const auto found = pipelines_.find(kernel);
  return found == pipelines_.end() ? VK_NULL_HANDLE : found->second;
}

Result<VkPipeline> Pipelines::build(const Kernel& kernel) const {
  const Traits& traits = device_.traits();
  const bool subgroup = traits.tier >= Tier::kSubgroup;
  std::span<const uint32_t> words = find_spirv(kernel.shader);
  if (words.empty()) words = find_spirv(kernel.shader + (subgroup ? ".subgroup" : ".scalar"));
  if (words.empty())
    return make_error(ErrorCode::kUnsupported, "vulkan: shader {}: not in this build for {}", kernel.shader,
                      tier_name(traits.tier));

  std::vector<uint32_t> data{kernel.group_size, traits.subgroup_size};
  std::vector<VkSpecializationMapEntry> entries{{0, 0, 4}, {1, 4, 4}};
  for (size_t i = 0; i < kernel.constants.size(); ++i) {
    entries.push_back({kOwnConstantsFirst + static_cast<uint32_t>(i), static_cast<uint32_t>(data.size() * 4), 4});
    data.push_back(kernel.constants[i]);
  }
  const VkSpecializationInfo specialization{static_cast<uint32_t>(entries.size()), entries.data(), data.size() * 4,
                                            data.data()};
  VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
  module_info.codeSize = words.size_bytes();
  module_info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  VK_TRY(device_.api().CreateShaderModule(device_.handle(), &module_info, nullptr, &module),
         "shader module " + kernel.shader);
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size{
      VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
  size.requiredSubgroupSize = traits.subgroup_size;
  VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  if (subgroup) {
    if (traits.asks_subgroup_size) info.stage.pNext = &size;
    info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  }
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &specialization;
  info.layout = layout_;
  const bool with_statistics = !traits.statistics_path.empty();
  if (with_statistics) info.flags |= VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR;
  VkPipeline pipeline = VK_NULL_HANDLE;
  const VkResult result = device_.api().CreateComputePipelines(device_.handle(), cache_, 1, &info, nullptr, &pipeline);
  device_.api().DestroyShaderModule(device_.handle(), module, nullptr);
  VK_TRY(result, "pipeline " + kernel.shader);
  if (with_statistics) write_statistics(kernel, pipeline);
  return pipeline;
}

void Pipelines::write_statistics(const Kernel& kernel, VkPipeline pipeline) const {
  const DeviceApi& api = device_.api();
  VkPipelineExecutableInfoKHR info{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR};
  info.pipeline = pipeline;
  uint32_t count = 0;
  if (api.GetPipelineExecutableStatisticsKHR(device_.handle(), &info, &count, nullptr) < 0) return;
  std::vector<VkPipelineExecutableStatisticKHR> statistics(count,
                                                           {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
  if (api.GetPipelineExecutableStatisticsKHR(device_.handle(), &info, &count, statistics.data()) < 0) return;
  std::string values;
  for (const VkPipelineExecutableStatisticKHR& s : statistics) {
    const double value =
        s.format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR    ? s.value.b32
        : s.format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR   ? static_cast<double>(s.value.i64)
        : s.format == VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR ? s.value.f64
                                                                          : static_cast<double>(s.value.u64);
    values += fmt::format("{}\"{}\":{}", values.empty() ? "" : ",", s.name, value);
  }
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::ofstream file(device_.traits().statistics_path, std::ios::app);
  file << fmt::format(
      "{{\"shader\":\"{}\",\"group_size\":{},\"subgroup_size\":{},\"constants\":[{}],\"statistics\":{{{}}}}}\n",
      kernel.shader, kernel.group_size, device_.traits().subgroup_size, fmt::join(kernel.constants, ","), values);
}

// Written beside the file and renamed, so that a reader never sees half of it. A cache that can't be kept costs time
// at the next start, nothing else.
void Pipelines::save() const {
  if (cache_path_.empty() || !cache_) return;
  size_t size = 0;
  if (device_.api().GetPipelineCacheData(device_.handle(), cache_, &size, nullptr) != VK_SUCCESS || size == 0) return;
  std::vector<char> data(size);
  if (device_.api().GetPipelineCacheData(device_.handle(), cache_, &size, data.data()) != VK_SUCCESS) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(cache_path_).parent_path(), error);
  const std::string temporary = fmt::format("{}.{}", cache_path_, fmt::ptr(this));
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(data.data(), static_cast<std::streamsize>(size));
    if (!file) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(temporary, cache_path_, error);
  if (error) std::filesystem::remove(temporary, error);
}

}  // namespace llmrt::vulkan
