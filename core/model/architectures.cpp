#include "core/model/architectures.h"

#include <fmt/format.h>

namespace llmrt {

namespace {

constexpr Architecture kArchitectures[] = {
    // name, RoPE pairing, q/k norm, rope factors, biases of qkv, of the output projection, of the FFN
    {"llama", RopePairing::kInterleaved, false, true, Presence::kOptional, Presence::kOptional, Presence::kOptional},
    {"qwen2", RopePairing::kHalves, false, false, Presence::kAlways, Presence::kNever, Presence::kNever},
    {"qwen3", RopePairing::kHalves, true, false, Presence::kNever, Presence::kNever, Presence::kNever},
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
