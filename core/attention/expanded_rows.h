// Which rows of a step have the latents of their keys expanded to keys and values of every head (ExpandLatent), and how
// many heads at a time. With c numbers of a latent, r that turn, and heads of nope + r and v numbers, a row of T tokens
// that sees P pairs of query and key and K keys takes, multiplications a head:
//   absorbed   P (2c + r) + T c (nope + v)      expanded   P (nope + r + v) + K c (nope + v)
// The cheaper form is taken, as long as there is room for the keys. So 2,048 tokens behind nothing or much are
// expanded, and 8 tokens behind 8,192 are not (the border of GLM-4.7-Flash is at some 400 behind many keys). Where a
// token's numbers must depend on its position alone the form may not depend on how a prompt is cut: such steps stay
// absorbed.
#pragma once

#include <span>
#include <vector>

#include "core/attention/attention_group.h"
#include "core/ops/step_inputs.h"

namespace llmrt {

struct ExpandedShape {
  uint32_t num_heads = 0, rank = 0, rope_dim = 0, nope_dim = 0, value_dim = 0;
  uint32_t kv_group = 0;        // of the latents
  uint32_t expanded_group = 0;  // of the pool for keys and values
  uint32_t num_blocks = 0;      // there, of kExpandItemKeys keys of one head; 0: nothing is expanded

  uint32_t key_dim() const { return nope_dim + rope_dim; }
  // Multiplications of all heads.
  double absorbed_cost(uint64_t start, uint64_t num_tokens) const;
  double expanded_cost(uint64_t start, uint64_t num_tokens) const;
};

class ExpandedRows {
 public:
  // Splits the rows of a step; those of at most kDecodeRowTokens tokens stay absorbed.
  void choose(std::span<const RowRecord> rows, const ExpandedShape& shape);
  void clear();

  std::span<const RowRecord> expanded() const { return expanded_; }
  std::span<const RowRecord> absorbed() const { return absorbed_; }
  // Heads whose keys are there at a time: all, or as many parts of them as a power of two. 0: no row is expanded.
  uint32_t heads() const { return heads_; }
  // The row that is expanded at index i: its first block. Blocks of a row follow each other.
  uint32_t block_first(size_t i) const { return block_firsts_[i]; }
  // Tokens from here on are of expanded rows.
  uint32_t num_absorbed() const;

 private:
  std::vector<RowRecord> expanded_, absorbed_;
  std::vector<uint32_t> block_firsts_;
  uint32_t heads_ = 0;
};

// Blocks that a row's keys take.
uint32_t expanded_blocks(const RowRecord& row);

}  // namespace llmrt
