// A Backend whose steps take a set time and next to no work, behind a real engine: what a client then waits for is the
// server, the queue, or a step of that length. It waits as a device does, asleep.
//
// Its model is a chain of hashes: what a position stores in the KV pool depends on its token and on what the position
// before it stored, read through the row's table of blocks. So an answer still depends on every token before it, and a
// wrong block, position or slot changes the text, while a step costs a hash per token however long the context is.
// Masks and bans are kept, penalties change nothing.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/clock.h"

namespace llmrt::test {

struct PacedConfig {
  double step_ms = 8, token_us = 2;  // of a step: step_ms + its tokens x token_us
  uint32_t vocab_size = 0;
  int32_t text_first = 0;  // tokens that are drawn: [text_first, text_end) and `end`
  int32_t text_end = 0;
  int32_t end = -1;  // the end of an answer, one draw in end_one_in
  uint32_t end_one_in = 512;
};

class PacedBackend : public Backend {
 public:
  explicit PacedBackend(const PacedConfig& config);

  const Caps& caps() const override { return caps_; }
  Status load_weights(const WeightTable&, const Progress&) override { return {}; }
  uint64_t arena_bytes(const OpList&) const override { return 0; }  // it has no tensors
  Status create_state(const StateConfig& config) override;
  Status create_kv_pools(std::span<const KvGroup> groups) override;
  Status prepare(const SealedList&) override { return {}; }
  Result<Ticket> submit(const StepSubmission& step) override;
  Result<StepOutput> wait(Ticket ticket) override;
  Result<std::vector<double>> profile(const StepSubmission& step) override;
  Result<std::string> explain(const OpList& list) override { return print(list); }
  MemoryReport memory() const override;
  Status write_tensor(const SealedList& list, TensorId tensor, std::span<const std::byte> bytes) override;
  Status read_tensor(const SealedList& list, TensorId tensor, std::span<std::byte> bytes) override;
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override;
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override;

 protected:
  struct Position {
    uint32_t slot, position;
  };
  // What a position's cell holds, from that of the one before it (0 at the beginning).
  virtual uint64_t cell_after(uint64_t before, int32_t token) const;
  // A token that allows() takes; -1: there is none.
  virtual int32_t draw(const Position& at, const RowSampling& row, uint32_t output_position);
  // By the bans and the mask of the record that is drawn for. Not so for the tokens outside of the vocabulary.
  bool allows(int32_t token) const;
  // All from the first to this one.
  std::vector<uint64_t> cells_until(const Position& at);

 private:
  struct Slot {
    RowSampling sampling;
    int32_t last_token = 0;
    std::vector<uint32_t> table;
  };
  struct Finished {
    Ticket ticket;
    TimeNs at_ns;
    StepOutput output;
  };

  Status update_rows(const ForwardInputs& in);
  Status move_blocks(const ForwardInputs& in);
  Status run_forward(const ForwardInputs& in);
  Status run_sample(const SampleInputs& in, bool want_logprobs, StepOutput* output);
  // Null where the row's table has no block of the pool for the position.
  uint64_t* cell_at(const Slot& slot, uint32_t position);
  void read_limits(const SampleRecord& record, const SampleInputs& in);

  const PacedConfig config_;
  const SteadyClock clock_;
  Caps caps_;
  uint32_t block_tokens_ = 0, num_blocks_ = 0;
  std::vector<uint64_t> cells_;  // of the pool, then of the host's
  std::vector<Slot> slots_;
  std::vector<Position> positions_;  // by token of the step
  std::vector<bool> denied_;         // by token, for the record that is drawn for
  uint32_t num_denied_ = 0;
  int32_t wanted_ = -1;  // a bias makes it sure to be drawn
  uint64_t num_submitted_ = 0;
  TimeNs free_at_ns_ = 0;  // when the device is done with what was submitted
  std::deque<Finished> finished_;
};

}  // namespace llmrt::test
