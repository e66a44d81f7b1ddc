#include "backends/vulkan/choose_recurrent.h"

#include <algorithm>
#include <bit>

namespace llmrt::vulkan {
namespace {

// vec4s of a state that an invocation keeps: 64 registers, and half of that where lanes have few.
constexpr uint32_t kKeptQuads = 16;

}  // namespace

WalkShape choose_walk(const Traits& traits, uint32_t key_dim, uint32_t value_dim, bool decodes) {
  // A processor's group is one subgroup, which needs no barriers; its compiler takes minutes for long code.
  if (traits.cpu_kernels) return {std::max(traits.subgroup_size, 1u), 1, 4};
  // Decode: a group reads whole rows of the state, up to 512 bytes. Prompts: tokens follow each other, so more groups
  // of fewer values take less time for each.
  const bool small = has_small_lanes(traits);
  const uint32_t lanes = std::min(std::bit_ceil(value_dim / 4), !decodes ? 8u : small ? 16u : 32u);
  // The largest power of two in key_dim: all parts have equally many keys.
  const uint32_t parts_max = key_dim & ~(key_dim - 1);
  const uint32_t kept = small || !decodes ? kKeptQuads / 2 : kKeptQuads;
  const uint32_t wanted = std::bit_ceil((key_dim + kept - 1) / kept);
  const uint32_t parts = std::min({parts_max, wanted, 256 / lanes});
  return {lanes, parts, key_dim / parts};
}

WalkShape choose_ring_walk(const Traits& traits, uint32_t key_dim, uint32_t value_dim, bool decodes) {
  WalkShape shape = choose_walk(traits, key_dim, value_dim, decodes);
  while (!traits.cpu_kernels && shape.lanes > 4 && ring_shared_bytes(shape, key_dim) > traits.shared_bytes)
    shape.lanes /= 2;
  return shape;
}

// Twin: shaders/state_ring.comp.
uint32_t ring_shared_bytes(const WalkShape& shape, uint32_t key_dim) {
  const uint32_t size = shape.lanes * shape.parts;
  return 4 * (17 * key_dim + 16 * 4 * shape.lanes + 2 * 4 * size + 33 * shape.parts + 16 + 2 * 16 + 17) + 16;
}

}  // namespace llmrt::vulkan
