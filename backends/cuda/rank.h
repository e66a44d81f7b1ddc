// One device: its stream, everything that is allocated on it, the programs that run there, the steps in flight. The
// backend (backend.cpp) says when what may be called.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>

#include "backends/cuda/adapter_pool.h"
#include "backends/cuda/cublas.h"
#include "backends/cuda/executor.h"
#include "backends/cuda/kv_pools.h"
#include "backends/cuda/memory.h"
#include "backends/cuda/step_ring.h"
#include "backends/cuda/weights.h"
#include "core/backend/backend.h"

namespace llmrt::cuda {

class DeviceRank {
 public:
  // Also begins to open cuBLAS, which takes longer than small weights do. Errors: those of the device.
  static Result<std::unique_ptr<DeviceRank>> open(int device);
  ~DeviceRank();

  const DeviceFacts& facts() const { return inputs_.device; }
  // Makes the device the calling thread's: that may be another thread than the one that opened it.
  Status enter() const;
  // Waits for the device and drops what refers to addresses.
  Status settle();

  Status load_weights(const WeightTable& weights, const Progress& progress);
  // Drops the pools: there may be no room for both.
  Status add_f16_copies(uint64_t bytes_max);
  Status create_state(const StateConfig& config);
  Status create_kv_pools(std::span<const KvGroup> groups);
  Status create_adapter_pool(const AdapterPoolConfig& config);
  Status write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes);
  bool is_ready() const { return weights_ && config_; }
  const std::optional<StateConfig>& config() const { return config_; }

  // Takes cuBLAS in, once it is open. Its absence is an error only where LLMRT_CUBLAS says where it is; else own
  // kernels do its work, and *remark says so.
  Status join_cublas(std::string* remark);
  Status prepare(const SealedList& list) { return executor_.prepare(list, setting()); }
  // What prepare() compiles.
  Result<const Program*> program(const SealedList& list) { return executor_.program(list, setting()); }
  Result<std::string> explain(const OpList& list) const;
  Status queue(const StepSubmission& step, Ticket ticket);
  Result<StepOutput> collect(Ticket ticket) { return ring_.collect(ticket); }
  Status wait() const;
  Status profile(const StepSubmission& step, std::vector<double>* op_ms);

  MemoryReport memory() const;
  // The sizes that check_inputs compares with.
  uint64_t forward_input_bytes() const { return forward_inputs_.bytes(); }
  uint64_t sample_input_bytes() const { return sample_inputs_.bytes(); }

  // Doors. A tensor that no op of the list touches has no place: nothing is copied.
  Status write_tensor(const OpList& list, TensorId tensor, std::span<const std::byte> bytes);
  Status read_tensor(const OpList& list, TensorId tensor, std::span<std::byte> bytes);
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes);
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes);
  std::vector<std::span<std::byte>> host_block(uint32_t kv_group, uint32_t block) const {
    return pools_.host_block(kv_group, block);
  }

 private:
  Status find_facts();
  Status allocate_state(const StateConfig& config);
  void drop_pools();
  void drop_adapters();
  Executor::Setting setting() const { return {&inputs_, &context_, arena_.bytes()}; }
  Status copy_in(std::span<const uint32_t> words, const PinnedBuffer& host, const DeviceBuffer& device);
  std::byte* tensor_bytes(const OpList& list, TensorId tensor) const;

  int device_ = 0;
  MemoryBook book_;
  cudaStream_t stream_ = nullptr;
  std::future<Result<std::unique_ptr<Cublas>>> cublas_opening_;
  std::optional<std::string> cublas_path_;  // LLMRT_CUBLAS; "none": without
  std::unique_ptr<Cublas> cublas_;
  std::optional<DeviceWeights> weights_;
  std::optional<StateConfig> config_;
  DeviceBuffer arena_, hidden_, rows_, tables_, counts_, partials_, results_, logprobs_, forward_inputs_,
      sample_inputs_, workspace_, counters_, cublas_workspace_;
  KvPools pools_;
  AdapterPool adapters_;
  CompileInputs inputs_;
  OpContext context_;
  Executor executor_;
  StepRing ring_;
};

}  // namespace llmrt::cuda
