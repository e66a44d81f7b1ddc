// Sizes of multi-head latent attention (core/ops/latent_ops.h).
#pragma once

#include <cstdint>

namespace llmrt {

struct LatentSpec {
  uint32_t rank = 0;                                    // c: numbers of a latent
  uint32_t rope_dim = 0;                                // r: of keys and queries that turn
  uint32_t nope_dim = 0;                                // of a head's keys and queries that do not
  uint32_t value_dim = 0;                               // of a head's values
  uint32_t query_rank = 0;                              // of the latent that queries are made from; 0: from x
  uint32_t row_dim() const { return rank + rope_dim; }  // in the cache, and of a query
  uint32_t key_dim() const { return nope_dim + rope_dim; }
  // Whether keys and values of heads may be made for prompts (core/attention/expanded_rows.h): attention's kernels take
  // keys of that size, and values that are no longer.
  bool can_expand() const { return key_dim() % 16 == 0 && value_dim % 8 == 0 && value_dim <= key_dim(); }
  bool operator==(const LatentSpec&) const = default;
};

}  // namespace llmrt
