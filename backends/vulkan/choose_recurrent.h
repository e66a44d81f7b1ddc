// How kernels of recurrent layers are cut, from shapes and traits alone.
#pragma once

#include <cstdint>

#include "backends/vulkan/traits.h"

namespace llmrt::vulkan {

// A group of state_walk or state_ring: vec4s of values of one head, and parts of its keys; their product is the group's
// size.
struct WalkShape {
  uint32_t lanes = 1, parts = 1;
  uint32_t unrolled = 1;  // keys of a lane whose code is unrolled
};
// decodes: rows have one token, so a group does little more than read a state and write it.
WalkShape choose_walk(const Traits& traits, uint32_t key_dim, uint32_t value_dim, bool decodes);
// The same for state_ring, which has a ring's entries in shared memory.
WalkShape choose_ring_walk(const Traits& traits, uint32_t key_dim, uint32_t value_dim, bool decodes);
uint32_t ring_shared_bytes(const WalkShape& shape, uint32_t key_dim);

}  // namespace llmrt::vulkan
