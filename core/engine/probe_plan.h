// Plans made up for measuring: equal sequences at a given depth, with block tables of their own. Used by the measured
// run of the largest step, by `explain --device` and by the bench; never while requests are served.
#pragma once

#include <cstdint>
#include <span>

#include "core/attention/expanded_rows.h"
#include "core/backend/backend.h"
#include "core/kv/block_pool.h"
#include "core/model/model_config.h"
#include "core/schedule/iteration_plan.h"

namespace llmrt {

struct ProbeShape {
  uint32_t num_sequences = 1;
  uint32_t num_tokens = 1;   // of each in this step
  uint32_t start = 0;        // position of each one's first token
  uint32_t num_samples = 1;  // of each: the last of its tokens
  uint32_t block_tokens = 16;
  uint32_t num_decoding = 0;    // sequences of one token beside those
  uint32_t decoding_start = 0;  // its position

  uint32_t num_rows() const { return num_sequences + num_decoding; }
  uint32_t tokens_of(uint32_t sequence_idx) const { return sequence_idx < num_sequences ? num_tokens : 1; }
  uint32_t start_of(uint32_t sequence_idx) const { return sequence_idx < num_sequences ? start : decoding_start; }
  uint32_t samples_of(uint32_t sequence_idx) const { return sequence_idx < num_sequences ? num_samples : 1; }
  uint32_t step_tokens() const { return num_sequences * num_tokens + num_decoding; }
};

// Gives sequence i slot i and the i-th run of blocks, by a step of one token at its start. One plan for each sequence:
// tables of many deep sequences would not fit into the inputs of one step. Those that decode come last. `pools`: by KV
// group, where there are several; blocks that a smaller pool lacks are taken from its start again.
IterationPlan probe_setup_plan(const ProbeShape& shape, uint32_t sequence_idx, std::span<const KvPoolSize> pools = {});
// A plan's row updates alone, on a device at which nothing is in flight.
Status apply_row_updates(IterationPlan plan, Backend* backend);
// The step itself; token ids are spread over the vocabulary.
IterationPlan probe_plan(const ProbeShape& shape, uint32_t vocab_size);
// Blocks that such a plan needs in the pool.
uint32_t probe_blocks(const ProbeShape& shape);
// What the step's ops count for. `expanded`: Lowering::expanded_shape.
CostSizes probe_sizes(const ProbeShape& shape, const ModelConfig& model, KvDType kv_dtype,
                      const ExpandedShape& expanded = {});

}  // namespace llmrt
