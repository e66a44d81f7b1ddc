// The rules of causal_conv, gated_delta and selective_scan over whole texts, in double and without a state: what tokens
// give is worked out from all tokens before, as attention would do it. Weights are drawn into a suite.
#pragma once

#include "tests/ops/recurrent_script.h"

namespace llmrt::optest {

struct ConvShape {
  uint32_t channels, width;
  bool bias, silu, gates;
  DType out_dtype = DType::kF32;
};
RecurrentRule conv_rule(const ConvShape& shape, Suite* suite, std::mt19937_64& rng);

struct DeltaShape {
  uint32_t key_heads, value_heads, key_dim, value_dim;
  KeyHeadOrder order = KeyHeadOrder::kDivided;
  bool gates_in_turn = false, normalise = true, ring = true;
};
RecurrentRule delta_rule(const DeltaShape& shape, Suite* suite, std::mt19937_64& rng);

struct ScanShape {
  uint32_t num_heads, head_dim, num_groups, state_dim;
  bool has_d = true;
  float dt_min = 0, dt_max = 1e30f;
  bool ring = true;
};
RecurrentRule scan_rule(const ScanShape& shape, Suite* suite, std::mt19937_64& rng);

}  // namespace llmrt::optest
