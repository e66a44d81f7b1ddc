// What a rank allocates beside weights: the state of rows, the arena, the pools; and the doors to it.
#include <algorithm>

#include "backends/cuda/check.h"
#include "backends/cuda/choose.h"
#include "backends/cuda/rank.h"
#include "core/base/check.h"

namespace llmrt::cuda {
namespace {

constexpr uint64_t kCublasWorkspaceBytes = 32 << 20;
constexpr uint64_t kWorkspaceBytesMin = 32 << 20;
constexpr uint32_t kNumCountersMin = 1 << 16;

}  // namespace

Status DeviceRank::create_state(const StateConfig& config) {
  config_.reset();
  if (Status status = allocate_state(config); !status) return status;
  if (Status status = ring_.create(config); !status) return status;
  config_ = config;
  return {};
}

Status DeviceRank::allocate_state(const StateConfig& config) {
  const uint64_t slice_bytes = weights_ ? weights_->f16_bytes_max() : 0;
  // Lists whose scratch is larger are cut (choose_experts.cpp).
  const bool has_experts = weights_ && std::ranges::any_of(weights_->groups(), [](const DeviceGroup& group) {
                             return group.num_experts > 0;
                           });
  const uint64_t expert_bytes = has_experts ? kTuning.expert_scratch_bytes : 0;
  const uint64_t workspace_bytes =
      std::max({std::clamp(slice_bytes, kWorkspaceBytesMin, kTuning.slice_bytes_max),
                filter_workspace_bytes(config.sample_rows_max, inputs_.device.num_sms), expert_bytes});
  const uint32_t num_counters = std::max(kNumCountersMin, config.step_tokens_max * config.heads_max);
  const uint64_t partial_rows = uint64_t{config.partials_max} * config.heads_max;
  struct Wanted {
    DeviceBuffer* buffer;
    MemoryKind kind;
    uint64_t bytes;
    int fill;
  };
  const Wanted all[] = {
      {&arena_, MemoryKind::kArena, config.arena_bytes, 0},
      {&hidden_, MemoryKind::kState, uint64_t{config.step_tokens_max} * config.hidden_columns * 4, 0},
      {&rows_, MemoryKind::kState, config.slots_max * (sizeof(RowSampling) + 4), 0xff},
      {&tables_, MemoryKind::kState, uint64_t{config.num_kv_groups} * config.slots_max * config.blocks_row_max * 4,
       0xff},
      {&counts_, MemoryKind::kState, uint64_t{config.penalty_rows_max} * config.vocab_size * 4, 0},
      {&partials_, MemoryKind::kState, partial_rows * (config.head_dim_max + 2) * 4, 0},
      {&results_, MemoryKind::kState, config.sample_rows_max * sizeof(SampleResult), 0},
      {&logprobs_, MemoryKind::kState, config.sample_rows_max * sizeof(LogprobRow), 0},
      {&forward_inputs_, MemoryKind::kState, std::max<uint64_t>(config.forward_words_max, kForwardHeadersWords) * 4, 0},
      {&sample_inputs_, MemoryKind::kState, std::max<uint64_t>(config.sample_words_max, kSampleHeaderWords) * 4, 0},
      {&workspace_, MemoryKind::kOther, workspace_bytes, 0},
      {&counters_, MemoryKind::kOther, num_counters * 4, 0},
      {&cublas_workspace_, MemoryKind::kOther, kCublasWorkspaceBytes, 0},
  };
  for (const Wanted& wanted : all) wanted.buffer->reset();
  for (const Wanted& wanted : all) {
    Result<DeviceBuffer> buffer = DeviceBuffer::create(&book_, wanted.kind, wanted.bytes, "create_state");
    if (!buffer) return buffer.error();
    *wanted.buffer = *std::move(buffer);
    CUDA_TRY(cudaMemsetAsync(wanted.buffer->data(), wanted.fill, wanted.buffer->bytes(), stream_), "create_state");
  }
  const std::vector<RowSampling> sampling(config.slots_max);
  CUDA_TRY(cudaMemcpyAsync(rows_.data(), sampling.data(), sampling.size() * sizeof(RowSampling), cudaMemcpyHostToDevice,
                           stream_),
           "create_state");
  CUDA_TRY(cudaStreamSynchronize(stream_), "create_state");

  context_.arena = arena_.data();
  context_.hidden = hidden_.as<float>();
  context_.hidden_rows = config.step_tokens_max;
  context_.rows = {
      rows_.as<RowSampling>(), reinterpret_cast<int32_t*>(rows_.data() + config.slots_max * sizeof(RowSampling)),
      tables_.as<int32_t>(),   counts_.as<uint32_t>(),
      config.slots_max,        config.blocks_row_max,
      config.penalty_rows_max, config.vocab_size,
      config.num_kv_groups};
  context_.partial_values = partials_.as<float>();
  context_.partial_sums = partials_.as<float>() + partial_rows * config.head_dim_max;
  context_.workspace = {workspace_.data(), workspace_.bytes(), counters_.as<uint32_t>(), num_counters};
  context_.forward_inputs = forward_inputs_.as<uint32_t>();
  context_.sample_inputs = sample_inputs_.as<uint32_t>();
  context_.results = results_.as<SampleResult>();
  context_.logprobs = logprobs_.as<LogprobRow>();
  inputs_.hidden_rows = config.step_tokens_max;
  inputs_.workspace_bytes = workspace_.bytes();
  inputs_.num_counters = num_counters;
  if (cublas_) return cublas_->set_workspace(cublas_workspace_.data(), cublas_workspace_.bytes());
  return {};
}

// ---- pools ---------------------------------------------------------------------------------------------------------

void DeviceRank::drop_pools() {
  pools_.drop();
  context_.pools = nullptr;
  context_.num_pools = 0;
  inputs_.pools = {};
}

Status DeviceRank::create_kv_pools(std::span<const KvGroup> groups) {
  drop_pools();
  if (Status status = pools_.create(groups, &book_, stream_); !status) return status;
  context_.pools = pools_.pools().data();
  context_.num_pools = static_cast<uint32_t>(pools_.pools().size());
  inputs_.pools = pools_.groups();
  return {};
}

void DeviceRank::drop_adapters() {
  adapters_.drop();
  context_.adapter_pool = nullptr;
}

Status DeviceRank::create_adapter_pool(const AdapterPoolConfig& config) {
  LLMRT_CHECK(weights_, "weights come before adapters");
  drop_adapters();
  if (config.bytes == 0) return {};
  if (Status status = adapters_.create(config, weights_->groups().size(), &book_, stream_); !status) return status;
  context_.adapter_pool = adapters_.data();
  return {};
}

Status DeviceRank::write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) {
  if (!context_.adapter_pool)
    return make_error(ErrorCode::kInvalidArgument, "write_adapter_pool: there is no pool of adapters");
  return adapters_.write(offset, bytes, stream_);
}

// ---- doors ---------------------------------------------------------------------------------------------------------

std::byte* DeviceRank::tensor_bytes(const OpList& list, TensorId tensor) const {
  const Storage storage = list.tensors[static_cast<size_t>(tensor)].storage;
  LLMRT_CHECK(storage != Storage::kArena, "only pinned and hidden tensors have doors");
  if (storage == Storage::kHidden) return hidden_.data();
  const ArenaPlan plan = plan_arena(list);
  LLMRT_CHECK(plan.bytes <= arena_.bytes(), "a list larger than the arena");
  const uint64_t offset = plan.offsets[static_cast<size_t>(tensor)];
  return offset == ArenaPlan::kNoOffset ? nullptr : arena_.data() + offset;
}

Status DeviceRank::write_tensor(const OpList& list, TensorId tensor, std::span<const std::byte> bytes) {
  LLMRT_CHECK(bytes.size() == list.bytes_of(tensor), "bytes of a tensor");
  std::byte* device = tensor_bytes(list, tensor);
  if (!device) return {};
  CUDA_TRY(cudaMemcpyAsync(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_), "write_tensor");
  CUDA_TRY(cudaStreamSynchronize(stream_), "write_tensor");
  return {};
}

Status DeviceRank::read_tensor(const OpList& list, TensorId tensor, std::span<std::byte> bytes) {
  LLMRT_CHECK(bytes.size() == list.bytes_of(tensor), "bytes of a tensor");
  const std::byte* device = tensor_bytes(list, tensor);
  if (!device) return {};
  CUDA_TRY(cudaMemcpyAsync(bytes.data(), device, bytes.size(), cudaMemcpyDeviceToHost, stream_), "read_tensor");
  CUDA_TRY(cudaStreamSynchronize(stream_), "read_tensor");
  return {};
}

Status DeviceRank::write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) {
  const auto copy = [&](std::byte* memory, size_t begin, size_t count) {
    return cudaMemcpyAsync(memory, bytes.data() + begin, count, cudaMemcpyDefault, stream_);
  };
  if (Status status = pools_.copy(kv_group, layer, block, bytes.size(), copy); !status) return status;
  return wait();
}

Status DeviceRank::read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) {
  const auto copy = [&](std::byte* memory, size_t begin, size_t count) {
    return cudaMemcpyAsync(bytes.data() + begin, memory, count, cudaMemcpyDefault, stream_);
  };
  if (Status status = pools_.copy(kv_group, layer, block, bytes.size(), copy); !status) return status;
  return wait();
}

}  // namespace llmrt::cuda
