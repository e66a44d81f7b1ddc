#include "core/attention/expanded_rows.h"

#include <algorithm>

#include "core/base/checked_math.h"

namespace llmrt {
namespace {

// Pairs of a query and a key that it sees.
double pairs_of(uint64_t start, uint64_t num_tokens) {
  const double tokens = static_cast<double>(num_tokens);
  return tokens * static_cast<double>(start) + tokens * (tokens + 1) / 2;
}

}  // namespace

double ExpandedShape::absorbed_cost(uint64_t start, uint64_t num_tokens) const {
  return num_heads * (pairs_of(start, num_tokens) * (2.0 * rank + rope_dim) +
                      static_cast<double>(num_tokens) * rank * (nope_dim + value_dim));
}

double ExpandedShape::expanded_cost(uint64_t start, uint64_t num_tokens) const {
  return num_heads * (pairs_of(start, num_tokens) * (key_dim() + value_dim) +
                      static_cast<double>(start + num_tokens) * rank * (nope_dim + value_dim));
}

uint32_t expanded_blocks(const RowRecord& row) {
  return ceil_div(row.start + row.num_tokens, kExpandItemKeys);
}

void ExpandedRows::clear() {
  expanded_.clear();
  absorbed_.clear();
  block_firsts_.clear();
  heads_ = 0;
}

void ExpandedRows::choose(std::span<const RowRecord> rows, const ExpandedShape& shape) {
  clear();
  uint32_t num_blocks = 0;  // of each head
  for (const RowRecord& row : rows) {
    const bool pays = row.num_tokens > kDecodeRowTokens &&
                      shape.expanded_cost(row.start, row.num_tokens) < shape.absorbed_cost(row.start, row.num_tokens);
    if (!pays || num_blocks + expanded_blocks(row) > shape.num_blocks) {
      absorbed_.push_back(row);
      continue;
    }
    expanded_.push_back(row);
    block_firsts_.push_back(num_blocks);
    num_blocks += expanded_blocks(row);
  }
  if (num_blocks == 0) return;
  uint32_t passes = 1;
  do {
    heads_ = ceil_div(shape.num_heads, passes);
    passes *= 2;
  } while (num_blocks > shape.num_blocks / heads_);
}

uint32_t ExpandedRows::num_absorbed() const {
  uint32_t end = 0;
  for (const RowRecord& row : absorbed_) end = std::max(end, row.token_first + row.num_tokens);
  return end;
}

}  // namespace llmrt
