// What is needed to run one kernel of a step alone: its ops as a list whose inputs and outputs can be reached, and for
// the reference the weights that they use, or rows of them.
#pragma once

#include <vector>

#include "core/ops/op_list.h"
#include "core/weights/weight_table.h"

namespace llmrt::bench {

// Tensors keep their ids; those that the ops do not touch are empty.
struct Excerpt {
  OpList list;
  std::vector<TensorId> inputs, outputs;  // read before anything wrote them; written and of use beyond the kernel
  std::vector<TensorId> handed_on;        // written by one op of the kernel and read by the next one alone
};
// Ops [first, first + num_ops) of `whole`, behind the ops that make the integers that they read and the tokens that
// they score.
Excerpt excerpt_of(const OpList& whole, uint32_t first, uint32_t num_ops);

struct WeightExcerpt {
  WeightTable table;              // same ids; what the ops do not use has no rows
  std::vector<uint32_t> columns;  // of the one product's output that the table has rows for; empty = all
};
// A large product that stands alone gives only some rows, spread over all its segments. `weights` outlives the result.
WeightExcerpt weight_excerpt_of(const WeightTable& weights, const OpList& list);

}  // namespace llmrt::bench
