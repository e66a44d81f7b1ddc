// A plan and a model become op lists with their packed inputs. Lists are built once per bucket and kept; inputs are
// packed into buffers that keep their capacity. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/attention/expanded_rows.h"
#include "core/attention/work_lists.h"
#include "core/backend/backend.h"
#include "core/engine/engine_config.h"
#include "core/model/model.h"
#include "core/ops/sealed_list.h"
#include "core/schedule/iteration_plan.h"
#include "core/schedule/scheduler.h"

namespace llmrt {

// Those of a model, by KV group.
std::vector<AttentionGroup> attention_groups(const ModelConfig& config);

// What the adapters of a step's rows change: the lists of each kind have the ops for it.
enum class Adapted : uint8_t { kNothing, kMatrices, kExperts };  // kExperts: matrices too

struct ListKey {
  uint32_t bucket;
  bool batch_invariant, decode_only;
  Adapted adapted;
  bool has_runs;
  uint32_t expanded_heads;  // at a time, of rows whose latents are expanded; 0: no row's are
  auto operator<=>(const ListKey&) const = default;
};

// A row of a list, a token or a sample, that has an adapter.
struct AdaptedRow {
  uint32_t slot;  // of the adapter pool
  uint32_t row;
  float scale;
  bool on_experts = false;  // the adapter changes experts
};

struct LoweredStep {
  const SealedList* memory = nullptr;  // null when no block moves
  const SealedList* forward = nullptr;
  const SealedList* sample = nullptr;  // null when no row samples
  std::vector<uint32_t> forward_words, sample_words;
  uint32_t num_sampled = 0;
  bool want_logprobs = false;

  // The whole step, or its two parts one after the other.
  StepSubmission submission() const {
    return {memory, forward, forward_words, sample, sample_words, num_sampled, want_logprobs};
  }
  StepSubmission forward_submission() const {
    return {.memory = memory, .forward = forward, .forward_inputs = forward_words};
  }
  StepSubmission tail_submission() const {
    return {
        .sample = sample, .sample_inputs = sample_words, .num_sampled = num_sampled, .want_logprobs = want_logprobs};
  }
};

class Lowering {
 public:
  Lowering(std::shared_ptr<const Model> model, const Caps& caps, uint32_t step_tokens_max, uint32_t sample_rows_max);
  Lowering(std::shared_ptr<const Model> model, const Caps& caps, uint32_t step_tokens_max, uint32_t sample_rows_max,
           std::vector<AttentionGroup> groups);

  // Ranks that lists for rows with adapters have room for. Before the first list.
  void set_adapter_rank(uint32_t rank) { adapter_rank_ = rank; }
  // The kinds of lists that steps may have, kNothing first: with adapters if there is a rank for them.
  std::span<const Adapted> adapted_kinds() const;

  // Sample lists keep final_hidden, to be read. Before the first list.
  void keep_final() { keeps_final_ = true; }

  // The pool for expanded latents, which the backend has behind those of the model; without blocks all rows stay
  // absorbed. Before state_config.
  void set_expanded_pool(const KvGroup& pool);

  // The plan stays the caller's; `step` may be reused from an earlier one. The tail of the same plan follows into the
  // same step, when it is complete. A step with a batch-invariant row runs such kernels.
  void lower_forward(const IterationPlan& plan, LoweredStep* step);
  // unsupported: a kind of tail that no op computes.
  Status lower_tail(const IterationPlan& plan, LoweredStep* step);
  // Both, of a plan that the caller has made of kinds that have ops.
  void lower(const IterationPlan& plan, LoweredStep* step);

  // The list of the bucket that holds so many.
  const SealedList& forward_list(uint32_t num_tokens, bool batch_invariant = false, bool decode_only = false,
                                 Adapted adapted = Adapted::kNothing, bool has_runs = false,
                                 uint32_t expanded_heads = 0);
  // All of them, of a model whose latents may be expanded; else 0.
  uint32_t expanded_heads() const { return expanded_shape_.num_heads; }
  // What its lists expand.
  const ExpandedShape& expanded_shape() const { return expanded_shape_; }
  // Tokens of a row that may share decode items, in the KV groups with the fewest and the most of them.
  struct ItemTokens {
    uint32_t least = 1, most = 1;
  };
  ItemTokens decode_item_tokens(bool batch_invariant) const;
  const SealedList& sample_list(uint32_t num_sampled, bool batch_invariant = false,
                                Adapted adapted = Adapted::kNothing);
  const SealedList& memory_list() const { return memory_list_; }
  // Sizes of everything that `backend` allocates once. kv_tokens_max: an upper bound of the pool.
  StateConfig state_config(const EngineConfig& config, const PlanLimits& limits, uint64_t kv_tokens_max,
                           const Backend& backend);

 private:
  // Work lists of rows that are expanded, and of those that are not, in place of the latent group's. Whether any is.
  bool lower_expanded();
  void add_expanded_row(const RowRecord& row, uint32_t block_first);

  std::shared_ptr<const Model> model_;
  Caps caps_;
  const std::vector<AttentionGroup> groups_;  // by KV group
  uint32_t step_tokens_max_, sample_rows_max_;
  uint32_t adapter_rank_ = 0;
  bool keeps_final_ = false;
  WorkLists work_lists_;
  ExpandedShape expanded_shape_;
  ExpandedRows expanded_rows_;  // of the step at work
  const SealedList memory_list_;
  std::map<ListKey, SealedList> forward_lists_, sample_lists_;  // references stay valid
  ForwardInputs forward_;
  SampleInputs sample_;
  std::vector<AdaptedRow> adapted_;
};

// Submits moves of KV blocks alone and waits for them, while nothing else is in flight.
Result<StepOutput> run_moves(const ForwardInputs& moves, const SealedList& memory, Backend* backend);
// Lowers, submits and waits for one plan while nothing else is in flight.
Result<StepOutput> run_probe(const IterationPlan& plan, Lowering* lowering, Backend* backend);

}  // namespace llmrt
