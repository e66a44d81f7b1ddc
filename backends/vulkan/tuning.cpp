#include "backends/vulkan/tuning.h"

#include "backends/vulkan/weight_rows.h"

namespace llmrt::vulkan {

const Tuning& default_tuning() {
  static const Tuning tuning;
  return tuning;
}

uint32_t vector_rows_max(const Target& target, bool quantized) {
  const Tuning& tuning = target.tuning;
  if (quantized && target.traits.tier == Tier::kDots) return tuning.vector_dots_rows_max;
  if (!target.traits.packed_f16) return tuning.vector_rows_max;
  return quantized ? tuning.vector_packed_quantized_rows_max : tuning.vector_packed_rows_max;
}

uint32_t halves_rows_min(const Tuning& tuning, Encoding encoding, bool has_copy) {
  const bool is_k = is_k_block(encoding);
  if (!has_copy) return is_k ? tuning.halves_k_rows_min : tuning.halves_rows_min;
  if (is_k) return tuning.copies_k_rows_min;
  return is_of_bytes(encoding) ? tuning.copies_q8_0_rows_min : tuning.copies_rows_min;
}

}  // namespace llmrt::vulkan
