// A smaller model beside an engine's own, which drafts for it (core/schedule/model_drafter.h): weights, keys and values
// in a second backend on the same device, with books of their own.
//
// A branch has a place: a slot of the draft model's backend, a table of blocks, and the tokens whose keys they hold. A
// call reads what the places lack of their texts and draws the first draft of each, in one step; then a step of one
// token a row for each draft more. Drafts are read back by the host between the steps, some tens of microseconds each:
// so whatever is found on the host behind a draft (bans, processors, masks) is found as for any other, and the model's
// step knows nothing of where its drafts came from.
//
// The model's own layer that drafts (core/model/draft_head.h) is such a model too: what it reads at a place are pairs
// of a token and the model's hidden state in front of it, which the engine hands it behind each step that it waits for
// (put_hidden). They begin with the prompt's last token, as a step leaves the states of sampled rows alone. Where a
// step was not waited for its place begins anew. Drafts beyond the first go by its own hidden state, and leave no keys.
//
// Why books of its own: what moves, evicts and swaps the model's blocks goes by the model's needs, in steps that the
// draft model takes no part in. Here a row that lacks keys reads them again, at a small part of the price. There are as
// many blocks as the model has in its first group, so those that run find room; where rows share a long prefix there
// they may be too few, and the rows that find none have no drafts. A place that is let go keeps its text until another
// branch takes it: the one that shares most whole blocks with it, if their identities are equal.
//
// Errors: a device that fails once gives no drafts any more, and failure() says why. The engine's thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/clock.h"
#include "core/engine/draft_parts.h"
#include "core/engine/engine_config.h"
#include "core/engine/hidden_rows.h"
#include "core/engine/lower.h"
#include "core/engine/pool_shapes.h"
#include "core/engine/warm_up.h"
#include "core/model/model.h"
#include "core/schedule/model_drafter.h"

namespace llmrt {

class DraftModel final : public ModelDrafter {
 public:
  // Loads the weights and measures the largest step; no pool yet. `config`: the engine's, resolved for `target`.
  // invalid_argument where the two models' tokens are not the same; unsupported where the draft model is recurrent, or
  // for what the device lacks. `clock` outlives it.
  static Result<std::unique_ptr<DraftModel>> load(const EngineConfig& config, const Model& target, DraftParts parts,
                                                  const Clock* clock, const Progress& progress);

  // What it takes beside the engine's model: for good, and for each block of that one's pool.
  const BesideMemory& memory() const { return memory_; }
  Status create_pool(uint32_t num_blocks);

  std::unique_ptr<DraftPlace> begin(const Digest& identity) override;
  Took propose(std::span<Row> rows) override;
  double pass_ms(size_t num_rows) const override;

  // Whether it drafts by the model's hidden states, that behind the token at `position` of the place's branch.
  bool reads_hidden() const { return model_->draft_input.has_value(); }
  void put_hidden(DraftPlace* place, uint32_t position, std::span<const float> hidden);

  // Why there are no drafts any more.
  const std::optional<Error>& failure() const { return failure_; }
  // Every block is free or in one place. O(blocks).
  Status check() const;

  const Model& model() const { return *model_; }

 private:
  class Handle;
  // A slot of the backend.
  struct Place {
    Handle* holder = nullptr;     // null: no branch drafts with it
    Digest identity = {};         // of the holder, or the last one
    std::vector<int32_t> tokens;  // of its text, whose keys and values its blocks hold
    uint32_t num_agreed = 0;      // of these, known to be the holder's text
    std::vector<uint32_t> blocks;
    uint32_t num_sent = 0;  // of its blocks, that the device's table has
    bool is_set = false;    // the device has the holder's parameters
    uint64_t used_in = 0;   // call
  };
  // A row of the call that is being made.
  struct Work {
    Row* row;
    Place* place;
    std::span<const int32_t> text;  // that it drafts by: the row's, or the last part of it
    uint32_t start, count;          // of it, what the first step reads
    uint32_t most;                  // drafts; 0: the text is not read to its end
    uint32_t result_idx = 0;        // of its last draft

    bool is_near() const { return start + kNearTokens >= text.size(); }
  };
  // The most that a step leaves to read of a row with drafts.
  static constexpr uint32_t kNearTokens = kDraftTokensMax + 1;

  DraftModel(WarmModel warm, std::shared_ptr<const Model> model, std::unique_ptr<Backend> backend, const Clock* clock,
             uint32_t vocab_size);

  bool is_idle(const Place& place) const;
  void cut(Place& place, uint32_t num_tokens);
  Place* oldest_idle(bool has_blocks);
  Place* place_to_begin(const Digest& identity, std::span<const int32_t> tokens);
  Place* find_place(const Row& row);
  std::span<const int32_t> text_of(const Row& row) const;
  bool begin_text(const Row& row, Place& place) const;
  bool grow(Place& place, uint32_t positions);
  void find_work(std::span<Row> rows);
  void add_row(const Work& work, uint32_t start, std::span<const int32_t> tokens, uint32_t output_position);
  void add_updates(const Work& work);
  void plan_first();
  void plan_next(uint32_t num_drafts);
  Result<double> run_step();
  void take_drafts(uint32_t num_drafts);
  void note_pass(size_t num_rows, double ms);

  const std::shared_ptr<const Model> model_;
  const std::unique_ptr<Backend> backend_;
  const Clock* const clock_;
  const int32_t vocab_size_;  // tokens that both models know
  const EngineConfig config_;
  const PoolShapes shapes_;
  const std::unique_ptr<Lowering> lowering_;
  const BesideMemory memory_;
  std::optional<Error> failure_;

  std::vector<Place> places_;  // by slot
  std::vector<uint32_t> free_blocks_;
  uint32_t num_blocks_ = 0;
  uint64_t call_ = 0;
  std::vector<Work> work_;
  IterationPlan plan_;
  LoweredStep step_;
  std::vector<SampleResult> results_;
  std::vector<float> hidden_in_, hidden_out_;  // of the tokens of a step, and of its samples
  std::vector<double> pass_ms_;                // by power of two of the rows; 0 = not known
};

}  // namespace llmrt
