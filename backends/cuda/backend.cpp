#include "backends/cuda/backend.h"

#include "backends/cuda/choose.h"
#include "backends/cuda/rank.h"
#include "core/base/check.h"

namespace llmrt::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> open(uint32_t device_idx, const DeviceReport& report);

  const Caps& caps() const override { return caps_; }
  std::vector<std::string> unsupported() const override { return {"running_sum"}; }
  Status load_weights(const WeightTable& weights, const Progress& progress) override;
  Status add_f16_copies(uint64_t bytes_max) override;
  uint64_t arena_bytes(const OpList& list) const override { return cuda::arena_bytes(list); }
  Status create_state(const StateConfig& config) override;
  Status create_kv_pools(std::span<const KvGroup> groups) override;
  Status create_adapter_pool(const AdapterPoolConfig& config) override;
  Status write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) override;
  Status prepare(const SealedList& list) override;
  Result<Ticket> submit(const StepSubmission& step) override;
  Result<StepOutput> wait(Ticket ticket) override;
  Result<std::vector<double>> profile(const StepSubmission& step) override;
  Result<std::string> explain(const OpList& list) override;
  MemoryReport memory() const override { return rank_->memory(); }
  std::string remark() const override { return remark_; }
  Status write_tensor(const SealedList& list, TensorId tensor, std::span<const std::byte> bytes) override;
  Status read_tensor(const SealedList& list, TensorId tensor, std::span<std::byte> bytes) override;
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override;
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override;
  std::vector<std::span<std::byte>> host_block(uint32_t kv_group, uint32_t block) override {
    return rank_->host_block(kv_group, block);
  }

 private:
  Status ready() const;   // for steps and doors
  Status settle() const;  // for everything that moves addresses
  // Remembers a lost device: every later call fails with the same error.
  template <class T>
  T remember(T result) {
    if (!result.ok() && result.error().code == ErrorCode::kDeviceLost) lost_ = result.error();
    return result;
  }
  Status check_inputs(const StepSubmission& step) const;

  Caps caps_;
  std::unique_ptr<DeviceRank> rank_;
  Ticket submitted_ = 0, waited_ = 0;
  std::optional<Error> lost_;
  std::string remark_;
};

Caps caps_of(uint32_t device_idx, const DeviceReport& report, const DeviceFacts& facts) {
  Caps caps;
  caps.device_id = fmt::format("cuda:{}", device_idx);
  caps.device_name = report.name;
  caps.driver = report.driver;
  caps.tier = report.tier;
  caps.memory_bytes = report.memory_bytes;
  caps.memory_free_bytes = report.memory_free_bytes;
  caps.pci_address = report.pci_address;
  caps.range_bytes_max = report.memory_bytes;
  caps.activation_dtype = DType::kF16;
  caps.kv_dtypes.assign(std::begin(kKvDTypes), std::end(kKvDTypes));
  caps.batch_invariant = true;
  caps.head_dim_max = attention_head_dim_max(facts.shared_bytes_max);
  caps.latent_row_max = latent_row_max(facts.shared_bytes_max);
  caps.step_tokens_max = 8192;
  caps.f16_copies_rows_min = kTuning.f16_copies_rows_min;
  AttentionTuning& attention = caps.attention;
  attention.costs = kTuning.attention_costs;
  attention.latent_split_keys = kTuning.latent_split_keys;
  attention.prompt_tiles = kTuning.prompt_tiles_sm * facts.num_sms;
  if (facts.has_warpgroups) {
    attention.prompt_tile_rows = UINT32_MAX / kPromptItemTokens;  // an item of few tokens takes as long as a whole one
    attention.prompt_turns = true;
  }
  attention.decode_item_rows = attention.invariant_item_rows = kTuning.decode_item_rows;
  attention.decode_works =
      (facts.has_warpgroups ? kTuning.decode_works_sm_warpgroups : kTuning.decode_works_sm) * facts.num_sms;
  return caps;
}

Result<std::unique_ptr<Backend>> CudaBackend::open(uint32_t device_idx, const DeviceReport& report) {
  auto backend = std::make_unique<CudaBackend>();
  Result<std::unique_ptr<DeviceRank>> rank = DeviceRank::open(static_cast<int>(device_idx));
  if (!rank) return rank.error();
  backend->rank_ = *std::move(rank);
  backend->caps_ = caps_of(device_idx, report, backend->rank_->facts());
  return std::unique_ptr<Backend>(std::move(backend));
}

Status CudaBackend::ready() const {
  if (lost_) return *lost_;
  LLMRT_CHECK(rank_->is_ready(), "weights and state come before steps");
  return rank_->enter();
}

Status CudaBackend::settle() const {
  if (lost_) return *lost_;
  return rank_->settle();
}

// ---- what is allocated once ----------------------------------------------------------------------------------------

Status CudaBackend::load_weights(const WeightTable& weights, const Progress& progress) {
  if (Status status = settle(); !status) return remember(std::move(status));
  return remember(rank_->load_weights(weights, progress));
}

Status CudaBackend::add_f16_copies(uint64_t bytes_max) {
  if (Status status = settle(); !status) return remember(std::move(status));
  if (bytes_max > 0)
    if (Status status = rank_->join_cublas(&remark_); !status) return remember(std::move(status));
  return remember(rank_->add_f16_copies(bytes_max));
}

Status CudaBackend::create_state(const StateConfig& config) {
  if (config.step_tokens_max > caps_.step_tokens_max)
    return make_error(ErrorCode::kInvalidArgument, "create_state: step_tokens_max: expected at most {}, found {}",
                      caps_.step_tokens_max, config.step_tokens_max);
  if (Status status = settle(); !status) return remember(std::move(status));
  if (Status status = rank_->create_state(config); !status) return remember(std::move(status));
  submitted_ = waited_ = 0;
  return {};
}

Status CudaBackend::create_kv_pools(std::span<const KvGroup> groups) {
  for (const KvGroup& group : groups) {
    if (group.is_state()) continue;
    if (group.block_tokens != 16 && group.block_tokens != 32 && group.block_tokens != 64)
      return make_error(ErrorCode::kUnsupported, "create_kv_pools: block_tokens: expected 16, 32 or 64, found {}",
                        group.block_tokens);
  }
  if (Status status = settle(); !status) return remember(std::move(status));
  return remember(rank_->create_kv_pools(groups));
}

Status CudaBackend::create_adapter_pool(const AdapterPoolConfig& config) {
  if (Status status = settle(); !status) return remember(std::move(status));
  return remember(rank_->create_adapter_pool(config));
}

Status CudaBackend::write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) {
  if (lost_) return *lost_;
  if (Status status = rank_->enter(); !status) return remember(std::move(status));
  return remember(rank_->write_adapter_pool(offset, bytes));
}

// ---- steps ---------------------------------------------------------------------------------------------------------

Status CudaBackend::prepare(const SealedList& list) {
  if (Status status = ready(); !status) return status;
  if (Status status = rank_->join_cublas(&remark_); !status) return remember(std::move(status));
  return remember(rank_->prepare(list));
}

Result<std::string> CudaBackend::explain(const OpList& list) {
  if (Status status = ready(); !status) return status.error();
  if (Status status = rank_->join_cublas(&remark_); !status) return remember(std::move(status)).error();
  return rank_->explain(list);
}

Status CudaBackend::check_inputs(const StepSubmission& step) const {
  const auto too_many = [](const char* what, uint64_t limit, uint64_t found) {
    return make_error(ErrorCode::kInvalidArgument, "submit: {}: expected at most {}, found {}", what, limit, found);
  };
  if (step.memory || step.forward)
    if (step.forward_inputs.size() < kForwardHeadersWords ||
        step.forward_inputs.size() * 4 > rank_->forward_input_bytes())
      return too_many("words of forward inputs", rank_->forward_input_bytes() / 4, step.forward_inputs.size());
  if (step.forward) {
    if (step.forward_inputs[kFwdNumTokens] > step.forward->list.num_tokens)
      return too_many("tokens", step.forward->list.num_tokens, step.forward_inputs[kFwdNumTokens]);
    if (step.forward->list.num_tokens > rank_->config()->step_tokens_max)
      return too_many("tokens of the list", rank_->config()->step_tokens_max, step.forward->list.num_tokens);
  }
  if (step.sample) {
    if (step.sample_inputs.size() < kSampleHeaderWords || step.sample_inputs.size() * 4 > rank_->sample_input_bytes())
      return too_many("words of sample inputs", rank_->sample_input_bytes() / 4, step.sample_inputs.size());
    if (step.sample_inputs[kSmpNumRecords] > step.sample->list.num_sampled)
      return too_many("sampled rows", step.sample->list.num_sampled, step.sample_inputs[kSmpNumRecords]);
    if (step.sample->list.num_sampled > rank_->config()->sample_rows_max)
      return too_many("sampled rows of the list", rank_->config()->sample_rows_max, step.sample->list.num_sampled);
    if (step.num_sampled > step.sample->list.num_sampled)
      return too_many("results", step.sample->list.num_sampled, step.num_sampled);
  }
  return {};
}

Result<Ticket> CudaBackend::submit(const StepSubmission& step) {
  if (Status status = ready(); !status) return status.error();
  if (submitted_ - waited_ >= kInFlightMax)
    return make_error(ErrorCode::kInvalidArgument, "submit: {} steps are in flight, wait for one first", kInFlightMax);
  if (Status status = check_inputs(step); !status) return status.error();
  if (Status status = rank_->join_cublas(&remark_); !status) return remember(std::move(status)).error();
  const Ticket ticket = submitted_ + 1;
  if (Status status = rank_->queue(step, ticket); !status) {
    // What was queued before the failure may still read the slot's pinned memory.
    if (status.error().code != ErrorCode::kDeviceLost) (void)rank_->wait();
    return remember(std::move(status)).error();
  }
  submitted_ = ticket;
  return ticket;
}

Result<StepOutput> CudaBackend::wait(Ticket ticket) {
  if (Status status = ready(); !status) return status.error();
  if (ticket != waited_ + 1 || ticket > submitted_)
    return make_error(ErrorCode::kInvalidArgument, "wait: expected ticket {} of {} submitted, found {}", waited_ + 1,
                      submitted_, ticket);
  ++waited_;
  return remember(rank_->collect(ticket));
}

Result<std::vector<double>> CudaBackend::profile(const StepSubmission& step) {
  if (Status status = ready(); !status) return status.error();
  if (submitted_ != waited_)
    return make_error(ErrorCode::kInvalidArgument, "profile: {} steps are in flight", submitted_ - waited_);
  if (Status status = check_inputs(step); !status) return status.error();
  if (Status status = rank_->join_cublas(&remark_); !status) return remember(std::move(status)).error();
  std::vector<double> op_ms;
  if (Status status = remember(rank_->profile(step, &op_ms)); !status) return status.error();
  return op_ms;
}

// ---- doors ---------------------------------------------------------------------------------------------------------

Status CudaBackend::write_tensor(const SealedList& list, TensorId tensor, std::span<const std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  return remember(rank_->write_tensor(list, tensor, bytes));
}

Status CudaBackend::read_tensor(const SealedList& list, TensorId tensor, std::span<std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  return remember(rank_->read_tensor(list, tensor, bytes));
}

Status CudaBackend::write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  return remember(rank_->write_kv(kv_group, layer, block, bytes));
}

Status CudaBackend::read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  return remember(rank_->read_kv(kv_group, layer, block, bytes));
}

}  // namespace

Result<std::unique_ptr<Backend>> open_device(uint32_t device_idx) {
  auto reports = list_devices();
  if (!reports) return reports.error();
  if (device_idx >= reports->size())
    return make_error(ErrorCode::kNotFound, "device cuda:{}: found {} CUDA devices", device_idx, reports->size());
  const DeviceReport& report = (*reports)[device_idx];
  if (!report.usable)
    return make_error(ErrorCode::kMissingFeature, "device cuda:{} ({}): {}", device_idx, report.name, report.reason);
  return CudaBackend::open(device_idx, report);
}

}  // namespace llmrt::cuda
