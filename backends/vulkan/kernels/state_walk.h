// shaders/state_walk.comp, shaders/state_ring.comp, shaders/state_entries.comp
#pragma once

#include "backends/vulkan/kernel.h"

namespace llmrt::vulkan {

struct StateWalkKernel {
  static constexpr const char *kShader = "state_walk", *kRingShader = "state_ring";
  struct Constants {
    uint32_t delta;  // the gated delta rule, else Mamba-2's scan
    uint32_t key_dim, value_dim;
    uint32_t lanes, parts;  // of a group: vec4s of values, parts of the keys; powers of two
    uint32_t key_heads, shared;
    uint32_t modulo, gates_in_turn, normalise;
    uint32_t has_d;
    uint32_t unrolled;  // keys of a lane
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"delta", &Constants::delta},
      {"key_dim", &Constants::key_dim},
      {"value_dim", &Constants::value_dim},
      {"lanes", &Constants::lanes},
      {"parts", &Constants::parts},
      {"key_heads", &Constants::key_heads},
      {"shared", &Constants::shared},
      {"modulo", &Constants::modulo},
      {"gates_in_turn", &Constants::gates_in_turn},
      {"normalise", &Constants::normalise},
      {"has_d", &Constants::has_d},
      {"unrolled", &Constants::unrolled},
  };
  struct Push {
    Address inputs;
    Address query, key, value;  // of the delta rule q, k, v; of the scan C, B, x
    Address alpha;              // of the scan dt
    Address beta;               // of the scan D of each head
    Address a, dt_bias;
    Address records;  // from the state's first number on
    Address tables, result;
    uint32_t query_columns, key_columns, value_columns, alpha_columns, beta_columns;  // from a row to the next
    uint32_t record_columns, blocks_row_max, kv_group;
    float low, high;  // of the delta rule scale, eps; of the scan dt_min, dt_max
  };
};
static_assert(sizeof(StateWalkKernel::Push) == 128);

struct StateEntriesKernel {
  static constexpr const char* kShader = "state_entries";
  struct Constants {
    uint32_t delta, key_dim, value_dim, key_heads, shared, gates_in_turn;  // as above
  };
  static constexpr Constant<Constants> kConstants[] = {
      {"delta", &Constants::delta},         {"key_dim", &Constants::key_dim},
      {"value_dim", &Constants::value_dim}, {"key_heads", &Constants::key_heads},
      {"shared", &Constants::shared},       {"gates_in_turn", &Constants::gates_in_turn},
  };
  struct Push {
    Address inputs, key, alpha, a, dt_bias, records, tables;
    uint32_t key_columns, alpha_columns;  // from a row to the next
    uint32_t record_columns, blocks_row_max, kv_group;
    float low, high;
  };
};
static_assert(sizeof(StateEntriesKernel::Push) == 84);

}  // namespace llmrt::vulkan
