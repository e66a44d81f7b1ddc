// A Backend with a bug: what a scheduler, a lowering or a device could get wrong about positions, tables and keys is
// done to the inputs of each step before they are passed on. For the test that demands that the agreement test sees it.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/backend/backend.h"

namespace llmrt::test {

enum class Bug : int {
  kNone,
  kPositionLate,     // a decoding row's token is placed one position too far
  kChunkRestarts,    // later chunks of a prompt start at position 0 again
  kResumedShift,     // after a preemption, all steps but the first are five positions too far
  kSlotsSwapped,     // the first two rows write to each other's blocks
  kTableStale,       // blocks that a sequence gets while it runs are not told to the device
  kUpdatesLost,      // row updates of every third step are lost
  kPrefixOfAnother,  // a new row's first block is another row's
  kBlockTwice,       // a block that another row still holds is handed out
  kKeysShort,        // decoding rows do not see their last key
  kKeyNotWritten,    // the first decoding row's key and value are not stored
  kOldToken,         // a decoding row is fed the token before its last
  kSamplesSwapped,   // the first two sampled rows get each other's hidden state
};
inline constexpr int kNumBugs = 13;
const char* bug_name(Bug bug);

class PlantedBackend final : public Backend {
 public:
  explicit PlantedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  // From the next step on; while nothing is in flight.
  void plant(Bug bug);
  // How often the bug has been done since plant().
  uint64_t num_planted() const { return num_planted_; }

  const Caps& caps() const override { return inner_->caps(); }
  std::vector<std::string> unsupported() const override { return inner_->unsupported(); }
  Status load_weights(const WeightTable& weights, const Progress& progress) override {
    return inner_->load_weights(weights, progress);
  }
  Status create_state(const StateConfig& config) override { return inner_->create_state(config); }
  Status create_kv_pools(std::span<const KvGroup> groups) override;
  Status prepare(const OpList& list) override { return inner_->prepare(list); }
  Result<Ticket> submit(const StepSubmission& step) override;
  Result<StepOutput> wait(Ticket ticket) override { return inner_->wait(ticket); }
  Result<std::vector<double>> profile(const StepSubmission& step) override { return inner_->profile(step); }
  MemoryReport memory() const override { return inner_->memory(); }
  Status write_tensor(const OpList& list, TensorId tensor, std::span<const std::byte> bytes) override {
    return inner_->write_tensor(list, tensor, bytes);
  }
  Status read_tensor(const OpList& list, TensorId tensor, std::span<std::byte> bytes) override {
    return inner_->read_tensor(list, tensor, bytes);
  }
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override {
    return inner_->write_kv(kv_group, layer, block, bytes);
  }
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override {
    return inner_->read_kv(kv_group, layer, block, bytes);
  }

 private:
  struct Slot {
    std::vector<uint32_t> table;
    int32_t token = -1;  // that the row was fed last, where the host knew it
  };
  struct Saved {
    uint32_t layer, block;
    std::vector<std::byte> bytes;
  };

  void spoil_updates(ForwardInputs* in);
  void spoil_table(const RowUpdate& update, ForwardInputs* in);
  void spoil_rows(ForwardInputs* in);
  void spoil_samples(SampleInputs* in);
  bool is_resumed(const RowRecord& row, const ForwardInputs& in);
  Result<std::vector<Saved>> save_block(const ForwardInputs& in);
  Status restore(const std::vector<Saved>& saved);

  std::unique_ptr<Backend> inner_;
  KvGroup group_;
  Bug bug_ = Bug::kNone;
  uint64_t num_planted_ = 0, num_steps_ = 0;
  std::map<uint32_t, Slot> slots_;
  std::map<std::vector<int32_t>, int> first_chunks_;  // of rows that began: seen again, it is a resumed one
  std::map<uint32_t, bool> resumed_;                  // by slot
};

}  // namespace llmrt::test
