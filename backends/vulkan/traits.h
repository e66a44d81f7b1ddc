// What the kernels of a device are chosen and specialised by: facts about the device, no handles. Plain data, so that
// fusion and choice can be tested for any device without having it.
#pragma once

#include <cstdint>
#include <string>

namespace llmrt::vulkan {

// Each tier has what the tiers before it need, except that matrices do not need dot products.
enum class Tier : uint8_t {
  kScalar,    // T0: 32-bit words and floats, shared memory
  kSubgroup,  // T1: subgroup arithmetic and shuffles of a known size
  kDots,      // T2: dot products of bytes, to which rows of x are rounded (matmul_dots); only on request
  kMatrix,    // T3: KHR cooperative matrix, f16 inputs and f32 sums
};
const char* tier_name(Tier tier);

// A matrix shape whose elements lie in lanes as shaders/matmul_fragment.comp expects them: `row_lanes` neighbouring
// lanes share a row of the first factor and a column of the second, and a lane has `sum_run` adjacent columns of a row
// of sums. The backend checks this when it opens the device (fragment_probe.h).
struct Fragment {
  uint32_t m = 0, n = 0, k = 0, row_lanes = 0, sum_run = 0;  // 0: none is known
  bool sums_as_factor = false;  // a lane's sums of k columns are those that it has of the first factor, in that order
};

struct Traits {
  std::string name;         // as the driver calls it
  std::string driver;       // name, version, API version
  std::string pci_address;  // "0000:65:00.0"; empty: the driver does not say
  Tier tier = Tier::kScalar;
  bool is_cpu = false;
  bool cpu_kernels = false;  // kernels for subgroups that are vectors of a CPU: one subgroup a group, few barriers
  bool unified_memory = false;
  bool memory_budget = false;       // the device has VK_EXT_memory_budget
  uint32_t subgroup_size = 1;       // what kernels are compiled for; 1 on T0
  bool asks_subgroup_size = false;  // kernels can ask for their size; else the device has no other size
  uint32_t lane_registers = 256;    // 32-bit numbers that a lane has room for; more are spilled to memory
  uint32_t num_cores = 16;          // multiprocessors or compute units; a guess where the driver does not say
  uint32_t simd_registers = 0;  // for each of 64 lanes, shared by the subgroups of a SIMD; 0: the driver does not say
  uint32_t shared_bytes = 0;
  uint64_t range_bytes = 0;                           // largest buffer, and so the largest tensor
  uint32_t groups_max[3] = {65535, 65535, 65535};     // workgroups of a dispatch in x, y and z
  uint32_t matrix_m = 0, matrix_n = 0, matrix_k = 0;  // kMatrix: the shape in use
  Fragment fragment;
  bool has_int64 = false;   // kernels may use 64-bit integers
  bool packed_f16 = false;  // without matrix units: kernels compute in f16, two numbers at a time
  double timestamp_ns = 1;
  uint32_t timestamp_bits = 64;  // bits that count: the counter wraps behind them
  uint8_t pipeline_cache_uuid[16] = {};
  std::string statistics_path;  // for figures about compiled kernels; empty: not wanted, or the driver has none
  uint64_t memory_bytes = 0, memory_free_bytes = 0;  // of the heap that holds device memory
};

// Between two timestamps that are less than one turn of the counter apart (36 bits last an hour).
inline double elapsed_ms(const Traits& traits, uint64_t begin, uint64_t end) {
  const uint64_t mask = traits.timestamp_bits < 64 ? (uint64_t{1} << traits.timestamp_bits) - 1 : ~uint64_t{0};
  return static_cast<double>((end - begin) & mask) * traits.timestamp_ns * 1e-6;
}

inline bool is_nvidia(const Traits& traits) {
  return traits.driver.starts_with("NVIDIA");
}
// Intel: shapes made for other devices would spill.
inline bool has_small_lanes(const Traits& traits) {
  return traits.lane_registers < 256;
}
// AMD's GCN: at most half the registers of later ones, so that shapes made for other devices leave a SIMD one or two
// subgroups.
inline bool has_small_simds(const Traits& traits) {
  return traits.simd_registers > 0 && traits.simd_registers <= 256;
}
// NVIDIA: 255 registers a lane.
inline bool has_many_registers(const Traits& traits) {
  return is_nvidia(traits);
}

}  // namespace llmrt::vulkan
