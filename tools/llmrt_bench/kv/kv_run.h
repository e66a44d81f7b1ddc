// One model on one device, run over a text from its first token: the logits of the last positions and, for the last
// queries of every layer, the positions that they attend to most, from the keys as the cache holds them. Drives the
// backend without the engine; one sequence, one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/engine/lower.h"
#include "core/model/model.h"
#include "tools/llmrt_bench/kv/attention_ranking.h"

namespace llmrt::bench {

// Position sets by layer; in a layer by query, then by head.
using AttendedPositions = std::vector<std::vector<std::vector<uint32_t>>>;

class KvRun {
 public:
  // Rows of logits [rows, vocab_size], the first of which belongs to scored position `first`.
  using LogitsSink = std::function<void(uint32_t first, std::span<const float> logits)>;
  using Progress = std::function<void(uint32_t done_tokens)>;

  // Loads the weights. The text is at most `context_max` tokens long. Errors: those of Backend.
  static Result<std::unique_ptr<KvRun>> create(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model,
                                               uint32_t context_max);

  const Caps& caps() const { return backend_->caps(); }
  // A cache of that dtype for so many tokens; the one before is gone. Errors: unsupported, out_of_memory.
  Status set_cache(KvDType dtype, uint32_t num_tokens);
  // Runs `tokens` from an empty cache. The last `num_scored` positions' logits go to `sink` in order; num_scored is
  // from 1 to tokens.size(). Errors: those of Backend; not_finite.
  Status run(std::span<const int32_t> tokens, uint32_t num_scored, const LogitsSink& sink, const Progress& progress);
  // The `count` keys with the greatest q.k for each of the last kAttentionQueries positions of the text that was run
  // last, which had at least so many scored positions.
  // Errors: those of Backend; internal, when what is stored is far from the keys that were computed.
  Result<AttendedPositions> attended(uint32_t count);

 private:
  KvRun(std::unique_ptr<Backend> backend, std::shared_ptr<const Model> model, uint32_t context_max);

  Status load();
  Status step(const IterationPlan& plan, bool is_scored, bool is_last);
  Result<StepOutput> submit(const StepSubmission& submission);
  Status read_last_rows(uint32_t num_tokens);
  Status attended_layer(uint32_t layer, uint32_t count, std::vector<std::vector<uint32_t>>* sets);

  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const Model> model_;
  EngineConfig config_;
  Lowering lowering_;
  KvGroup group_;
  LoweredStep lowered_;
  std::optional<SealedList> scored_forward_, scored_sample_;  // with queries and logits that can be read
  std::vector<float> logits_;
  std::vector<std::vector<float>> last_rows_;  // q, k and v of the last queries, by layer
  uint32_t num_tokens_ = 0;                    // of the last run
};

}  // namespace llmrt::bench
