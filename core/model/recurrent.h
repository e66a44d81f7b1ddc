// A first part of a layer that keeps a state of fixed size beside no keys or values: a short convolution alone (LFM2),
// or one in front of a gated delta rule (Qwen3-Next, Qwen3.5) or of Mamba-2's scan (Granite 4, Nemotron-H). Its sizes,
// and how its states lie in a record (StatePart in core/ops/recurrent_ops.h): the convolution's first, then that of the
// rule or scan from state_first() on. Plain data.
#pragma once

#include <cstdint>

#include "core/ops/ops.h"

namespace llmrt {

struct RecurrentSpec {
  uint32_t conv_width = 0;
  uint32_t conv_columns = 0;  // numbers of a token that the convolution passes
  // Heads of the delta rule. Of a scan: groups and heads, numbers of a state and of a head.
  uint32_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  KeyHeadOrder order = KeyHeadOrder::kDivided;
  bool gates_in_turn = false;  // betas and alphas of a key head in turn, in one tensor

  uint32_t value_columns() const { return value_heads * value_dim; }
  uint32_t key_columns() const { return key_heads * key_dim; }
  uint32_t state_first() const { return (conv_slots(conv_width) * conv_columns + 3) / 4 * 4; }
  // Numbers of a record in a layer.
  uint32_t state_columns() const { return conv_width == 0 ? 0 : state_first() + static_cast<uint32_t>(matrices()); }
  // With their ring (StateRing): by count all models that are known win by it; heads below some 20 x 20 would not.
  uint64_t matrices() const {
    const StateRing ring{value_heads, key_heads, key_dim, value_dim};
    return value_heads == 0 ? 0 : (ring.matrix_numbers() + ring.numbers() + 3) / 4 * 4;
  }
  bool operator==(const RecurrentSpec&) const = default;
};

}  // namespace llmrt
