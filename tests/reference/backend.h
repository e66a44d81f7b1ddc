// The oracle: a Backend that executes every op in float64 with plain loops, slowly and on purpose. All work happens in
// submit(); wait() hands out what was kept. Weights, KV pools and row state are copies of its own.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "core/backend/backend.h"
#include "tests/reference/machine.h"

namespace llmrt {

struct ReferenceConfig {
  DType activation_dtype = DType::kF32;  // what caps() asks lists to use as matmul inputs
  uint32_t num_threads = 2;
};

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(ReferenceConfig config);

  const Caps& caps() const override { return caps_; }
  Status load_weights(const WeightTable& weights, const Progress& progress) override;
  uint64_t arena_bytes(const OpList& list) const override;
  Status create_state(const StateConfig& config) override;
  Status create_kv_pools(std::span<const KvGroup> groups) override;
  Status create_adapter_pool(const AdapterPoolConfig& config) override;
  Status write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) override;
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

  // The row state, for tests that look at it.
  const reference::Machine& machine() const { return machine_; }

 private:
  struct Bound {  // tensors of a list; arena tensors are empty between submissions
    std::vector<reference::Tensor> tensors;
    uint64_t last_use = 0;
  };
  Bound& bind(const SealedList& sealed);
  Status run_step(const StepSubmission& step, std::vector<double>* op_ms);
  Status run_list(const SealedList& sealed, std::vector<double>* op_ms);
  Result<reference::Tensor*> door(const SealedList& sealed, TensorId id, size_t num_bytes);
  Result<reference::KvPool*> kv_door(uint32_t kv_group, uint32_t layer, uint32_t block, size_t num_bytes);

  Caps caps_;
  reference::Machine machine_;
  std::map<uint64_t, Bound> bound_;  // by SealedList::key
  uint64_t uses_ = 0;
  std::deque<std::pair<Ticket, StepOutput>> finished_;
  Ticket next_ticket_ = 1;
};

std::unique_ptr<Backend> make_reference_backend(ReferenceConfig config = {});

}  // namespace llmrt
