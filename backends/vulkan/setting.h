// What fusing and choosing look at: a list, the device's traits and tuning, and the sizes of what lies on it. No
// addresses, so that both are tested without a device.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/vulkan/tuning.h"
#include "backends/vulkan/weight_pieces.h"
#include "core/kv/kv_format.h"
#include "core/ops/op_list.h"

namespace llmrt::vulkan {

struct Setting {
  Target target;
  const WeightPieces& weights;
  const OpList& list;
  std::vector<KvGroup> kv_groups = {};
  uint32_t hidden_columns = 0;
  uint64_t halves_bytes = 0, products_bytes = 0, arrivals_bytes = 0;  // of Resources

  const Traits& traits() const { return target.traits; }
  const Tuning& tuning() const { return target.tuning; }
  const TensorDesc& desc(TensorId id) const { return list.tensors[id]; }
};

// The dtype as kernels know it (shaders/kv_format.glsl): 0 is no pool.
constexpr uint32_t kv_constant(KvDType dtype) {
  return static_cast<uint32_t>(dtype) + 1;
}
// Pairing as kernels know it (shaders/rope.glsl): 0 is none.
constexpr uint32_t rope_constant(const Rope& rope) {
  return static_cast<uint32_t>(rope.pairing) + 1;
}

// Bytes of Resources::products and words of Resources::arrivals for each core.
inline constexpr uint32_t kSplitBytesCore = 256 << 10, kArrivalsCore = 16;

}  // namespace llmrt::vulkan
