// Compute pipelines by kernel: embedded SPIR-V specialised by constants. Compiled by worker threads ahead of use, kept
// for the life of the device, and remembered between runs by a pipeline cache file under the user's cache folder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/vulkan/device.h"
#include "backends/vulkan/kernel.h"
#include "core/base/status.h"

namespace llmrt::vulkan {

class Pipelines {
 public:
  // The one layout of all kernels: 128 bytes of push constants, no descriptors (tensors are addresses).
  static Result<std::unique_ptr<Pipelines>> create(const Device& device);
  ~Pipelines();  // writes the cache file when something new was compiled
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  // Compiles those that are missing, in parallel. Errors: unsupported (no such shader in this build), out_of_memory.
  // Where Traits::statistics_path names a file, a line of JSON for each is added to it: shader, group_size,
  // subgroup_size, constants, and what the driver says of it by the driver's own names (registers, spills).
  Status compile(std::span<const Kernel> kernels);
  // Null unless compiled.
  VkPipeline find(const Kernel& kernel) const;
  size_t size() const { return pipelines_.size(); }

  VkPipelineLayout layout() const { return layout_; }

 private:
  explicit Pipelines(const Device& device) : device_(device) {}
  Result<VkPipeline> build(const Kernel& kernel) const;
  void write_statistics(const Kernel& kernel, VkPipeline pipeline) const;
  void save() const;

  const Device& device_;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::string cache_path_;
  bool changed_ = false;
  std::map<Kernel, VkPipeline> pipelines_;
};

// The modules that the build embedded (generated from shaders/spirv): words of "<shader>" or, where a shader is built
// for tiers apart, "<shader>.<tier>". Empty when there is none.
std::span<const uint32_t> find_spirv(std::string_view name);
// A hash of every module, so that a cache of another build is not read.
uint64_t spirv_hash();

}  // namespace llmrt::vulkan
