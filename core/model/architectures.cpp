#include "core/model/architectures.h"

#include <fmt/format.h>

namespace llmrt {

namespace {

// A row names what its architecture has; architectures.h says what the rest is.
constexpr Architecture kArchitectures[] = {
    {.name = "llama",
     .rope_pairing = RopePairing::kInterleaved,
     .has_rope_factors = true,
     .qkv_bias = Presence::kOptional,
     .output_bias = Presence::kOptional,
     .ffn_bias = Presence::kOptional},
    {.name = "qwen2", .rope_pairing = RopePairing::kHalves, .qkv_bias = Presence::kAlways},
    {.name = "qwen3", .rope_pairing = RopePairing::kHalves, .qk_norm = true},
};

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (name == architecture.name) return &architecture;
  }
  return nullptr;
}

std::string tensor_names::of_layer(uint32_t layer, std::string_view name) {
  return fmt::format("blk.{}.{}", layer, name);
}

}  // namespace llmrt
