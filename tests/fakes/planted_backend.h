// A Backend with a bug: what a scheduler, a lowering or a device could get wrong about positions, tables and keys is
// done to the inputs of each step before they are passed on. For the test that demands that the agreement test sees it.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/backend/forwarding.h"

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

class PlantedBackend final : public ForwardingBackend {
 public:
  explicit PlantedBackend(std::unique_ptr<Backend> inner) : ForwardingBackend(std::move(inner)) {}

  // From the next step on; while nothing is in flight.
  void plant(Bug bug);
  // How often the bug has been done since plant().
  uint64_t num_planted() const { return num_planted_; }

  Status create_kv_pools(std::span<const KvGroup> groups) override;
  Result<Ticket> submit(const StepSubmission& step) override;

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

  KvGroup group_;
  Bug bug_ = Bug::kNone;
  uint64_t num_planted_ = 0, num_steps_ = 0;
  std::map<uint32_t, Slot> slots_;
  std::map<std::vector<int32_t>, int> first_chunks_;  // of rows that began: seen again, it is a resumed one
  std::map<uint32_t, bool> resumed_;                  // by slot
};

}  // namespace llmrt::test
