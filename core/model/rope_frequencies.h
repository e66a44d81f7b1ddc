// The angle per position of each RoPE pair, with the long-context scaling rules of model files folded in, so that the
// rope op needs only frequencies and one magnitude. Computed in float64, stored as f32.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/weights/metadata.h"

namespace llmrt {

inline constexpr double kRopeBaseMin = 1.001, kRopeBaseMax = 1e12;

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeParameters {
  uint32_t rope_dim = 0;  // even
  double base = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                                 // linear, llama3, YaRN: the stretch of the context
  double original_context = 0;                       // llama3, YaRN: positions before the stretch
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  bool truncates = true;                             // YaRN: the ramp begins and ends at whole pairs
  double beta_fast = 32, beta_slow = 1;              // YaRN
  double magnitude = 1;         // factor on cos and sin; for YaRN 1 + 0.1 ln(factor) unless the file says otherwise
  std::vector<float> divisors;  // empty, or one for each pair: frequencies are divided by them
};

// Result: rope_dim / 2 radians per position.
std::vector<float> rope_frequencies(const RopeParameters& parameters);

// llama3 scaling as the divisors that GGUF files carry in rope_freqs.weight.
std::vector<float> llama3_divisors(const RopeParameters& parameters);

// Reads "<prefix>rope.*": freq_base, scaling.type none, linear (also the older scale_linear), yarn, and llama3 with
// scaling.low_freq_factor and high_freq_factor. Without a type a factor means linear, as readers of GGUF agree.
// Another type is unsupported, by name. base_key: of layers whose base is another.
Result<RopeParameters> read_rope_parameters(const Metadata& metadata, std::string_view prefix, uint32_t rope_dim,
                                            uint32_t context_max, const char* base_key = "rope.freq_base");

}  // namespace llmrt
