// A plan and a model become op lists with their packed inputs. Lists are built once per bucket and kept; inputs are
// packed into buffers that keep their capacity. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/backend/backend.h"
#include "core/engine/engine_config.h"
#include "core/model/model.h"
#include "core/ops/sealed_list.h"
#include "core/schedule/iteration_plan.h"
#include "core/schedule/scheduler.h"

namespace llmrt {

// Keys per split for a query at a position that sees `num_keys` keys, where Caps::decode_works is 0: 64 up to 256
// tokens, 256 up to 8k, 1,024 beyond. A function of the row's own position, so that it neither starves a lone row nor
// depends on the batch, but for a step whose rows share so many keys that the partial results would not fit
// (Lowering::lower).
uint32_t split_keys(uint32_t num_keys);
// The same where nothing but the position may decide, for every query token of the step: at most kInvariantSplits.
uint32_t invariant_split_keys(uint32_t num_keys);
inline constexpr uint32_t kInvariantSplits = 4;
// Most splits that one query token can have in a context of that many tokens.
uint32_t splits_max(uint32_t context_tokens);

// Rows of a step with at most this many tokens go to the decode kernel, one item a token and split.
inline constexpr uint32_t kDecodeRowTokens = 4;

// The layers of one KV group, as their work lists need to know them. Layers with states have none: no heads.
struct AttentionGroup {
  uint32_t num_heads = 0, num_kv_heads = 0;  // heads of the layer with the most of them
  uint32_t window = 0;                       // 0 = all keys
};
// Those of a model, by KV group.
std::vector<AttentionGroup> attention_groups(const ModelConfig& config);

struct ListKey {
  uint32_t bucket;
  bool batch_invariant, decode_only;
  auto operator<=>(const ListKey&) const = default;
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

  // The plan stays the caller's; `step` may be reused from an earlier one. The tail of the same plan follows into the
  // same step, when it is complete. Partial results have room for what the
  // pool's keys can make; rows that share blocks may have more keys than the pool, and then all splits of the step are
  // made longer, by the least power of two. A step with a batch-invariant row runs such kernels, and then every token's
  // attention is cut by its position alone.
  void lower_forward(const IterationPlan& plan, LoweredStep* step);
  // unsupported: a kind of tail that no op computes.
  Status lower_tail(const IterationPlan& plan, LoweredStep* step);
  // Both, of a plan that the caller has made of kinds that have ops.
  void lower(const IterationPlan& plan, LoweredStep* step);

  // Of the bucket that holds so many.
  const SealedList& forward_list(uint32_t num_tokens, bool batch_invariant = false, bool decode_only = false);
  const SealedList& sample_list(uint32_t num_sampled, bool batch_invariant = false);
  const SealedList& memory_list() const { return memory_list_; }
  // Sizes of everything that `backend` allocates once. kv_tokens_max: an upper bound of the pool.
  StateConfig state_config(const EngineConfig& config, const PlanLimits& limits, uint64_t kv_tokens_max,
                           const Backend& backend);

 private:
  // The first `items` prompt items of the step have so many splits each, or, where run_keys > 0, are cut as if they lay
  // end to end and each workgroup had a run of so many keys, of which the one at work lacks run_left. Kernels begin
  // with the last items.
  struct PromptSplits {
    uint32_t items = 0, splits = 1;
    uint32_t run_keys = 0, run_left = 0;
  };
  // What a split of a decode item has at most, in this step: `keys` of the first `queries`, `last_keys` of the others.
  // 0 keys: as many as split_keys says.
  struct DecodeSplits {
    uint32_t keys = 0, queries = 0, last_keys = 0;
  };
  void add_attention_work(const IterationPlan& plan, bool batch_invariant);
  void add_attention_items(const PlanRow& row, uint32_t stretch, PromptSplits* prompt, DecodeSplits* decode);
  void add_prompt_item(const PlanRow& row, uint32_t first, uint32_t stretch, PromptSplits* prompt);
  uint32_t round_items() const;  // prompt items that are computed at a time
  PromptSplits prompt_splits(const IterationPlan& plan);
  void try_prompt_runs(const IterationPlan& plan, double least, PromptSplits* best);
  double time_of_runs(uint32_t run_keys);
  uint32_t first_key(uint32_t position) const;   // that is in the window of a query there
  uint32_t first_tile(uint32_t position) const;  // the first key of the tile that holds it
  DecodeSplits decode_splits(const IterationPlan& plan) const;
  void add_decode_items(const PlanRow& row, uint32_t token, uint32_t begin, uint32_t length);

  std::shared_ptr<const Model> model_;
  Caps caps_;
  const std::vector<AttentionGroup> groups_;  // by KV group
  const AttentionGroup* group_ = nullptr;     // whose lists are made, and the lists
  AttentionWork* work_ = nullptr;
  uint32_t step_tokens_max_, sample_rows_max_;
  uint32_t partials_max_ = ~0u;  // as announced by state_config
  const SealedList memory_list_;
  std::map<ListKey, SealedList> forward_lists_, sample_lists_;  // references stay valid
  ForwardInputs forward_;
  SampleInputs sample_;
  std::vector<uint32_t> split_ends_;  // of the prompt item at work
  // Of try_prompt_runs: items and their share of a whole one's time a key; keys and time of splits; when workgroups
  // end.
  struct RunItem {
    uint32_t begin, end;
    bool fills;
    double share;
  };
  std::vector<RunItem> run_items_;
  std::vector<std::pair<uint32_t, double>> run_splits_;
  std::vector<double> run_ends_;
};

// Lowers, submits and waits for one plan while nothing else is in flight.
Result<StepOutput> run_probe(const IterationPlan& plan, Lowering* lowering, Backend* backend);

}  // namespace llmrt
