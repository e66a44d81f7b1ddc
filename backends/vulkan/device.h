// One Vulkan device: what it can do, its queue, and the handles everything else hangs on. Opened once; immutable
// afterwards, so that worker threads may read it. The queue itself belongs to the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/vulkan/api.h"
#include "core/base/status.h"

namespace llmrt::vulkan {

// Each tier holds what the ones before it need, but matrices do not need dot products.
enum class Tier : uint8_t {
  kScalar,    // T0: 32-bit words and floats, shared memory
  kSubgroup,  // T1: subgroup arithmetic and shuffles of a known size
  kDots,      // T2: dot products of bytes, to which rows of x are rounded (matmul_dots); only where asked for
  kMatrix,    // T3: KHR cooperative matrix, f16 inputs and f32 sums
};
const char* tier_name(Tier tier);

// A matrix shape whose elements lie in lanes as shaders/matmul_fragment.comp expects them: `row_lanes` neighbouring lanes
// share a row of the first factor and a column of the second, and a lane has `sum_run` columns beside each other of a row of
// sums. Tried when the backend opens (fragment_probe.h).
struct Fragment {
  uint32_t m = 0, n = 0, k = 0, row_lanes = 0, sum_run = 0;  // 0: none is known
  bool sums_as_factor = false;  // of k columns of sums a lane has those that it has of the first factor, in that order
};

// What kernels are chosen and specialised by.
struct Traits {
  std::string name;    // as the driver calls it
  std::string driver;  // name, version, API version
  Tier tier = Tier::kScalar;
  bool is_cpu = false;
  bool cpu_kernels = false;    // kernels for subgroups that are vectors of a CPU: one subgroup a group, few barriers
  bool unified_memory = false;
  bool memory_budget = false;  // VK_EXT_memory_budget is there
  uint32_t subgroup_size = 1;  // what kernels are compiled for; 1 on T0
  bool asks_subgroup_size = false;  // kernels can ask for theirs; else the device has no other size
  uint32_t lane_registers = 256;    // 32-bit numbers that a lane has room for; more are spilled to memory
  uint32_t num_cores = 16;     // multiprocessors or compute units; a guess where the driver does not say
  uint32_t simd_registers = 0;  // of each of 64 lanes, which the subgroups of a SIMD share; 0: the driver does not say
  uint32_t shared_bytes = 0;
  uint64_t range_bytes = 0;    // largest buffer, and so the largest tensor
  uint32_t groups_max[3] = {65535, 65535, 65535};  // workgroups of a dispatch in x, y and z
  uint32_t matrix_m = 0, matrix_n = 0, matrix_k = 0;  // kMatrix: the shape in use
  Fragment fragment;
  bool has_int64 = false;  // integers of 64 bits in kernels
  bool packed_f16 = false;  // without matrix units: kernels compute in f16, two numbers at a time
  double timestamp_ns = 1;
  uint32_t timestamp_bits = 64;  // that count: the counter begins again behind them
  uint8_t pipeline_cache_uuid[VK_UUID_SIZE] = {};
  std::string statistics_path;  // of compiled kernels; empty: not wanted, or the driver has none
  uint64_t memory_bytes = 0, memory_free_bytes = 0;  // of the heap that holds device memory
};

// Between two timestamps less than one turn of the counter apart (36 bits last an hour).
inline double elapsed_ms(const Traits& traits, uint64_t begin, uint64_t end) {
  const uint64_t mask = traits.timestamp_bits < 64 ? (uint64_t{1} << traits.timestamp_bits) - 1 : ~uint64_t{0};
  return static_cast<double>((end - begin) & mask) * traits.timestamp_ns * 1e-6;
}

inline bool is_nvidia(const Traits& traits) {
  return traits.driver.starts_with("NVIDIA");
}
// Intel's: shapes made elsewhere would spill.
inline bool has_small_lanes(const Traits& traits) {
  return traits.lane_registers < 256;
}
// AMD's GCN: at most half of what its later ones have, so that shapes made elsewhere leave a SIMD one or two subgroups.
inline bool has_small_simds(const Traits& traits) {
  return traits.simd_registers > 0 && traits.simd_registers <= 256;
}

struct Candidate {
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  Traits traits;
  VkPhysicalDeviceType type = VK_PHYSICAL_DEVICE_TYPE_OTHER;
  bool usable = false;
  std::string reason;  // why not, when not usable
};

// Every device of the instance: discrete, integrated, virtual, then CPU; each kind in the driver's order. The index in
// this list is N of "vulkan:N". For tests: LLMRT_VULKAN_TIER=0|1|2|3 caps the tier (2 asks for T2),
// LLMRT_VULKAN_KERNELS=gpu lets a CPU device run what a GPU would, LLMRT_VULKAN_REGISTERS=64|128 chooses kernels as for
// lanes with so few, LLMRT_VULKAN_F16=0 those that compute in f32 where there are no matrix units, and
// LLMRT_VULKAN_STATISTICS=FILE asks for what drivers say of compiled kernels (pipelines.h).
Result<std::vector<Candidate>> list_candidates(const Instance& instance);

class Device {
 public:
  static Result<std::unique_ptr<Device>> open(std::shared_ptr<const Instance> instance, const Candidate& candidate);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Traits& traits() const { return traits_; }
  void set_fragment(const Fragment& fragment) { traits_.fragment = fragment; }  // before anything reads it
  const DeviceApi& api() const { return api_; }
  VkDevice handle() const { return handle_; }
  VkQueue queue() const { return queue_; }
  uint32_t queue_family() const { return queue_family_; }
  // Free bytes of the device heap now (its whole size where the driver does not say).
  uint64_t memory_free_bytes() const;
  // A memory type among `type_bits` with all of `flags`, or -1.
  int memory_type(uint32_t type_bits, VkMemoryPropertyFlags flags) const;

 private:
  Device() = default;
  std::shared_ptr<const Instance> instance_;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  Traits traits_;
  DeviceApi api_;
  VkDevice handle_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  uint32_t queue_family_ = 0;
  VkPhysicalDeviceMemoryProperties memory_{};
};

}  // namespace llmrt::vulkan
