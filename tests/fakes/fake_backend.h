// A Backend whose model is made of hashes (fake_model.h). It understands the packed inputs as a device does: row state
// by slot, tables, KV cells by block and offset, attention work lists, merges. It executes at submit, in order, and
// refuses what a device would silently get wrong: inputs beyond the announced sizes, a cell written twice in a step,
// copies that depend on each other's order, a second tail of one forward part.
#pragma once

#include <array>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "tests/fakes/fake_model.h"

namespace llmrt::test {

struct FakeBackendConfig {
  uint32_t poison = 0;  // one hidden state in so many is not finite; 0 = none
  double step_ms = 0.1, token_ms = 0.01, key_ms = 1e-5, move_ms = 0.01;  // what a step says that it took
  bool batch_invariant = true;                                           // what it says of itself; it always is
  uint64_t lost_at_submit = 0;           // this submission (from 1) and all later calls say device_lost; 0 = never
  float best_logprob = 0;                // added to the best alternative of each row
  std::vector<FakeGroup> groups = {{}};  // the model's
  uint32_t model = 0;                    // of models that only their numbers tell apart
  uint64_t* masked_drafts = nullptr;     // counts draws behind drafts that had a mask
  uint32_t wrong_of_16 = 0;              // so many of 16 tokens that it draws are not what the model draws
  uint64_t* tokens_read = nullptr;       // counts tokens of its steps
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(FakeBackendConfig config);

  const Caps& caps() const override { return caps_; }
  Status load_weights(const WeightTable& weights, const Progress& progress) override;
  uint64_t arena_bytes(const OpList&) const override { return 0; }  // it has no tensors
  Status create_state(const StateConfig& config) override;
  Status create_kv_pools(std::span<const KvGroup> groups) override;
  Status prepare(const SealedList& list) override;
  Result<Ticket> submit(const StepSubmission& step) override;
  Result<StepOutput> wait(Ticket ticket) override;
  Result<std::vector<double>> profile(const StepSubmission& step) override;
  Result<std::string> explain(const OpList& list) override { return print(list); }
  MemoryReport memory() const override;
  Status write_tensor(const SealedList& list, TensorId tensor, std::span<const std::byte> bytes) override;
  Status read_tensor(const SealedList& list, TensorId tensor, std::span<std::byte> bytes) override;
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override;
  std::vector<std::span<std::byte>> host_block(uint32_t kv_group, uint32_t block) override;
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override;

  uint64_t num_submitted() const { return num_submitted_; }
  // What a record of a group of states holds (fake_state).
  uint64_t state_in(uint32_t group, uint32_t record) const { return pools_[group].cells[record].stored.layer0; }

 private:
  struct Slot {
    RowSampling sampling;
    int32_t last_token = -1;
    std::array<std::vector<uint32_t>, kKvGroupsMax> tables;  // by KV group
  };
  struct Cell {
    FakeCell stored;
    uint64_t written_in = 0, read_in = 0;  // submission
    uint32_t num_tokens = 0;               // of a record: behind how many its state is
    std::vector<uint64_t> back = {};       // the states behind one token less, and so on, that it can go back to

    void take(const Cell& source) {
      stored = source.stored;
      num_tokens = source.num_tokens;
      back = source.back;
    }
    // Nothing: it cannot go back there.
    std::optional<uint64_t> state_behind(uint32_t tokens) const;
  };
  struct Pool {
    uint32_t block_tokens = 0, num_blocks = 0;
    std::vector<Cell> cells;   // host blocks follow those of the pool
    uint32_t block_cells = 0;  // of a block: as many as it has tokens; a record of states has one
  };
  // A token of the step, as prepare_rows makes it.
  struct StepToken {
    int32_t token;
    uint32_t position;
    uint32_t adapter_id;
    std::array<Cell*, kKvGroupsMax> cells;  // by KV group
  };

  Status check_sizes(const StepSubmission& step, const ForwardInputs& forward) const;
  Status update_rows(const ForwardInputs& in);
  Status move_blocks(const StepSubmission& step, const ForwardInputs& in);
  // Cells of a block.
  Result<Cell*> block_at(uint32_t group, bool on_host, uint32_t block);
  Status copy_blocks(const ForwardInputs& in);
  Status prepare_rows(const ForwardInputs& in);
  Result<std::vector<uint64_t>> attend(const ForwardInputs& in, uint32_t group, uint64_t FakeCell::*layer);
  struct Attended {  // the sum over the keys before `end`
    uint64_t sum = 0;
    uint32_t end = 0;
  };
  Result<uint64_t> attend_token(const AttentionItem& item, uint32_t i, uint32_t group, uint64_t FakeCell::*layer,
                                const Attended& before);
  Status run_forward(const ForwardInputs& in);
  Status run_layers(const ForwardInputs& in, uint32_t group);
  Status run_states(const ForwardInputs& in, uint32_t group);
  Status run_row_states(const ForwardInputs& in, const RowRecord& row, uint32_t group);
  Result<Cell*> record_to_write(uint32_t group, uint32_t record);
  static void leave_state(Cell& record, std::span<const uint64_t> states, uint32_t start);
  Status check_places(const ForwardInputs& in) const;
  Status run_sample(const SampleInputs& in, bool want_logprobs, StepOutput* output);
  Result<Cell*> cell_at(uint32_t group, uint32_t slot, uint32_t position);

  FakeBackendConfig config_;
  Caps caps_;
  StateConfig state_;
  std::vector<Pool> pools_;  // by KV group
  std::vector<Slot> slots_;
  std::vector<FakeCounts> counts_;
  std::vector<StepToken> tokens_;
  std::vector<uint64_t> hidden_;
  uint64_t num_submitted_ = 0;
  bool has_tail_ = true;  // the forward part that ran last
  std::deque<std::pair<Ticket, StepOutput>> finished_;
};

}  // namespace llmrt::test
