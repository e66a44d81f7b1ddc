// A kernel as a value: a shader with everything that is fixed when its pipeline is compiled, and what a dispatch of it
// needs. Each shader has a struct in kernels/<shader>.h with its name, its specialization constants and its push
// constants as plain structs; make_kernel and PushBytes turn those into words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "backends/vulkan/traits.h"
#include "backends/vulkan/view.h"

namespace llmrt::vulkan {

// Constants 0 and 1 are set by Pipelines: group size and subgroup size; `constants` are the shader's own, with ids 10,
// 11, ...
struct Kernel {
  std::string shader;  // file name under shaders/ without extension
  uint32_t group_size = 1;
  std::vector<uint32_t> constants;

  bool operator<(const Kernel& other) const {
    return std::tie(shader, group_size, constants) < std::tie(other.shader, other.group_size, other.constants);
  }
};

struct Groups {
  uint32_t x = 1, y = 1, z = 1;
};
// In y as well where there are more than the device takes in x, and then a few too many. Twin: shaders/spread.glsl.
Groups spread(const Traits& traits, uint64_t groups);

// A kernel and how many groups of it run. What a choice comes to.
struct KernelChoice {
  Kernel kernel;
  Groups groups;
};

// A buffer reference among push constants. Two words, so that a struct of push constants has no hidden padding.
struct Address {
  uint32_t low = 0, high = 0;
  Address() = default;
  Address(const View& view)
      : low(static_cast<uint32_t>(view.address)), high(static_cast<uint32_t>(view.address >> 32)) {}
};

struct PushBytes {
  std::array<std::byte, 128> bytes{};
  uint32_t size = 0;

  PushBytes() = default;
  template <class Push>
  requires(!std::is_same_v<Push, PushBytes>) explicit PushBytes(const Push& push) : size(sizeof(Push)) {
    static_assert(std::is_trivially_copyable_v<Push> && alignof(Push) == 4 && sizeof(Push) <= sizeof(bytes));
    std::memcpy(bytes.data(), &push, sizeof(Push));
  }
};

struct NoConstants {};
// A specialization constant of a struct of them: its name in the shader (kTileRows: tile_rows) and its place.
template <class Constants>
struct Constant {
  const char* name;
  uint32_t Constants::*member;
};

// K is a struct of kernels/<shader>.h. `shader`: a variant that has the same constants.
template <class K>
Kernel make_kernel(uint32_t group_size, const typename K::Constants& constants, const char* shader = K::kShader) {
  using Constants = typename K::Constants;
  Kernel kernel{shader, group_size, {}};
  if constexpr (!std::is_empty_v<Constants>) {
    static_assert(sizeof(Constants) == 4 * std::size(K::kConstants));
    for (const auto& constant : K::kConstants) kernel.constants.push_back(constants.*constant.member);
  }
  return kernel;
}

// What is known of a shader besides its code: for prints and for the check against the SPIR-V.
struct Shader {
  const char* name;
  std::vector<const char*> constants;  // names, in the order of their ids
  uint32_t push_bytes;
};
// All shaders; kernels/shaders.cpp.
std::span<const Shader> all_shaders();
// "matmul_vector x128 layout=2 rows=4 ...": shader, group size, constants by name.
std::string print(const Kernel& kernel);
// The same with the groups.
std::string print(const KernelChoice& choice);

}  // namespace llmrt::vulkan
