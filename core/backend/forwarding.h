// A Backend that passes every call on to another: what derives from it overrides the calls that it changes.
#pragma once

#include <memory>
#include <utility>

#include "core/backend/backend.h"

namespace llmrt {

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}

  const Caps& caps() const override { return inner_->caps(); }
  std::vector<std::string> unsupported() const override { return inner_->unsupported(); }
  Status load_weights(const WeightTable& weights, const Progress& progress) override {
    return inner_->load_weights(weights, progress);
  }
  Status add_f16_copies(uint64_t bytes_max) override { return inner_->add_f16_copies(bytes_max); }
  uint64_t arena_bytes(const OpList& list) const override { return inner_->arena_bytes(list); }
  Status create_state(const StateConfig& config) override { return inner_->create_state(config); }
  Status create_kv_pools(std::span<const KvGroup> groups) override { return inner_->create_kv_pools(groups); }
  Status create_adapter_pool(const AdapterPoolConfig& config) override { return inner_->create_adapter_pool(config); }
  Status write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) override {
    return inner_->write_adapter_pool(offset, bytes);
  }
  Status compile(std::span<const SealedList* const> lists) override { return inner_->compile(lists); }
  Status prepare(const SealedList& list) override { return inner_->prepare(list); }
  Result<Ticket> submit(const StepSubmission& step) override { return inner_->submit(step); }
  Result<StepOutput> wait(Ticket ticket) override { return inner_->wait(ticket); }
  Result<std::vector<double>> profile(const StepSubmission& step) override { return inner_->profile(step); }
  Result<std::string> explain(const OpList& list) override { return inner_->explain(list); }
  std::vector<std::span<std::byte>> host_block(uint32_t kv_group, uint32_t block) override {
    return inner_->host_block(kv_group, block);
  }
  MemoryReport memory() const override { return inner_->memory(); }
  std::string remark() const override { return inner_->remark(); }
  Status write_tensor(const SealedList& list, TensorId tensor, std::span<const std::byte> bytes) override {
    return inner_->write_tensor(list, tensor, bytes);
  }
  Status read_tensor(const SealedList& list, TensorId tensor, std::span<std::byte> bytes) override {
    return inner_->read_tensor(list, tensor, bytes);
  }
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override {
    return inner_->write_kv(kv_group, layer, block, bytes);
  }
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override {
    return inner_->read_kv(kv_group, layer, block, bytes);
  }

 protected:
  Backend& inner() { return *inner_; }
  const Backend& inner() const { return *inner_; }

 private:
  std::shared_ptr<Backend> inner_;
};

}  // namespace llmrt
