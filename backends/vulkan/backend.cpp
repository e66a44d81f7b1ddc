#include "backends/vulkan/backend.h"

#include <algorithm>

#include "backends/vulkan/adapter_pool.h"
#include "backends/vulkan/check.h"
#include "backends/vulkan/choose_attention.h"
#include "backends/vulkan/doors.h"
#include "backends/vulkan/executor.h"
#include "backends/vulkan/fragment_probe.h"
#include "backends/vulkan/program.h"
#include "backends/vulkan/state.h"
#include "backends/vulkan/transfer.h"
#include "backends/vulkan/weights.h"

namespace llmrt::vulkan {
namespace {

class VulkanBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> open(std::shared_ptr<const Instance> instance, const Candidate& candidate,
                                               uint32_t device_idx);
  ~VulkanBackend() override { device_->api().DeviceWaitIdle(device_->handle()); }

  const Caps& caps() const override { return caps_; }
  std::vector<std::string> unsupported() const override { return {"running_sum"}; }
  Status load_weights(const WeightTable& weights, const Progress& progress) override;
  Status add_f16_copies(uint64_t bytes_max) override;
  uint64_t arena_bytes(const OpList& list) const override { return vulkan::arena_bytes(list); }
  Status create_state(const StateConfig& config) override;
  Status create_kv_pools(std::span<const KvGroup> groups) override;
  Status create_adapter_pool(const AdapterPoolConfig& config) override;
  Status write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) override;
  Status compile(std::span<const SealedList* const> lists) override;
  Status prepare(const SealedList& list) override;
  Result<Ticket> submit(const StepSubmission& step) override;
  Result<StepOutput> wait(Ticket ticket) override;
  Result<std::vector<double>> profile(const StepSubmission& step) override;
  Result<std::string> explain(const OpList& list) override;
  std::vector<std::span<std::byte>> host_block(uint32_t kv_group, uint32_t block) override {
    return vulkan::host_block(resources_, kv_group, block);
  }
  MemoryReport memory() const override;
  Status write_tensor(const SealedList& list, TensorId tensor, std::span<const std::byte> bytes) override;
  Status read_tensor(const SealedList& list, TensorId tensor, std::span<std::byte> bytes) override;
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override;
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override;

 private:
  void fill_caps(uint32_t device_idx);
  Status ready() const;
  Status settle();
  void drop_pools();
  void drop_adapters();
  // Remembers a lost device: every later call fails with the same error.
  template <class T>
  T remember(T result) {
    if (!result.ok() && result.error().code == ErrorCode::kDeviceLost) lost_ = result.error();
    return result;
  }
  Status ready_for_door();
  Status flush_adapters() { return adapters_ ? remember(adapters_->flush()) : Status(); }

  Caps caps_;
  MemoryBook book_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Pipelines> pipelines_;
  std::unique_ptr<Transfer> transfer_;
  std::optional<Weights> weights_;
  std::optional<DeviceState> state_;
  std::optional<KvPools> kv_;
  std::unique_ptr<AdapterPool> adapters_;
  Resources resources_;
  std::unique_ptr<Executor> executor_;
  std::optional<Error> lost_;
};

Result<std::unique_ptr<Backend>> VulkanBackend::open(std::shared_ptr<const Instance> instance,
                                                     const Candidate& candidate, uint32_t device_idx) {
  auto device = Device::open(std::move(instance), candidate);
  if (!device) return device.error();
  auto backend = std::make_unique<VulkanBackend>();
  backend->device_ = std::move(*device);
  auto pipelines = Pipelines::create(*backend->device_);
  if (!pipelines) return pipelines.error();
  backend->pipelines_ = std::move(*pipelines);
  auto transfer = Transfer::create(*backend->device_, &backend->book_);
  if (!transfer) return transfer.error();
  backend->transfer_ = std::move(*transfer);
  if (backend->device_->traits().fragment.m > 0) {
    auto found =
        probe_fragment(*backend->device_, backend->pipelines_.get(), backend->transfer_.get(), &backend->book_);
    if (!found) return found.error();
    backend->device_->set_fragment(*found);
  }
  backend->resources_.traits = &backend->device_->traits();
  backend->fill_caps(device_idx);
  return std::unique_ptr<Backend>(std::move(backend));
}

void VulkanBackend::fill_caps(uint32_t device_idx) {
  const Traits& traits = device_->traits();
  caps_.device_id = fmt::format("vulkan:{}", device_idx);
  caps_.device_name = traits.name;
  caps_.driver = traits.driver;
  caps_.tier = tier_name(traits.tier);
  caps_.is_cpu = traits.is_cpu;
  caps_.unified_memory = traits.unified_memory;
  caps_.memory_bytes = traits.memory_bytes;
  caps_.memory_free_bytes = traits.memory_free_bytes;
  caps_.pci_address = traits.pci_address;
  caps_.range_bytes_max = traits.range_bytes;
  // A GPU reads half the bytes and feeds its matrix units; a CPU would only convert back and forth.
  caps_.activation_dtype = traits.cpu_kernels || traits.tier == Tier::kScalar ? DType::kF32 : DType::kF16;
  resources_.adapter_dtype = caps_.activation_dtype;
  caps_.kv_dtypes.assign(std::begin(kKvDTypes), std::end(kKvDTypes));
  caps_.batch_invariant = true;
  caps_.head_dim_max = 256;
  caps_.latent_row_max = kLatentRowMax;
  caps_.step_tokens_max = 8192;
  const Target target{traits, default_tuning()};
  caps_.attention = attention_tuning(target);
  if (traits.packed_f16) caps_.half_sums_rows_min = vector_rows_max(target, false) + 1;
  if (traits.tier == Tier::kDots) caps_.byte_inputs_rows_min = vector_rows_max(target, true) + 1;
  if (traits.fragment.m > 0) caps_.f16_copies_rows_min = target.tuning.copies_rows_min;
}

Status VulkanBackend::ready() const {
  if (lost_) return *lost_;
  LLMRT_CHECK(executor_ && weights_, "weights and state come before steps");
  return {};
}

// No step is in flight, and no recording refers to what will move.
Status VulkanBackend::settle() {
  if (adapters_) VK_TRY(device_->api().DeviceWaitIdle(device_->handle()), "vkDeviceWaitIdle");
  if (!executor_) return {};
  if (Status status = executor_->wait_idle(); !status) return status;
  executor_->drop_recordings();
  return {};
}

void VulkanBackend::drop_pools() {
  resources_.pools.clear();
  kv_.reset();
}

void VulkanBackend::drop_adapters() {
  resources_.adapters = {};
  adapters_.reset();
}

Status VulkanBackend::load_weights(const WeightTable& weights, const Progress& progress) {
  if (lost_) return *lost_;
  if (Status s = settle(); !s) return remember(std::move(s));
  drop_adapters();  // its table is of these weights' groups
  resources_.weights = nullptr;
  weights_.reset();
  auto loaded = remember(Weights::load(*device_, &book_, transfer_.get(), weights, progress));
  if (!loaded) return loaded.error();
  weights_ = std::move(*loaded);
  resources_.weights = &weights_->pieces();
  return {};
}

Status VulkanBackend::add_f16_copies(uint64_t bytes_max) {
  if (lost_) return *lost_;
  LLMRT_CHECK(weights_, "weights come before their copies");
  if (Status s = settle(); !s) return remember(std::move(s));
  drop_pools();  // there may be no room for both
  return remember(weights_->add_f16_copies(bytes_max, *device_, &book_, pipelines_.get(), transfer_.get()));
}

Status VulkanBackend::create_state(const StateConfig& config) {
  if (lost_) return *lost_;
  if (config.step_tokens_max > caps_.step_tokens_max)
    return make_error(ErrorCode::kInvalidArgument, "vulkan: step_tokens_max: expected at most {}, found {}",
                      caps_.step_tokens_max, config.step_tokens_max);
  executor_.reset();
  state_.reset();
  auto state = remember(DeviceState::create(*device_, &book_, transfer_.get(), config, &resources_));
  if (!state) return state.error();
  state_ = std::move(*state);
  auto executor = Executor::create(*device_, &book_, pipelines_.get(), config);
  if (!executor) return executor.error();
  executor_ = std::move(*executor);
  return {};
}

Status VulkanBackend::create_kv_pools(std::span<const KvGroup> groups) {
  if (lost_) return *lost_;
  if (Status s = settle(); !s) return remember(std::move(s));
  drop_pools();
  auto pools = remember(KvPools::create(*device_, &book_, transfer_.get(), groups, &resources_.pools));
  if (!pools) return pools.error();
  kv_ = std::move(*pools);
  return {};
}

Status VulkanBackend::create_adapter_pool(const AdapterPoolConfig& config) {
  if (lost_) return *lost_;
  LLMRT_CHECK(weights_, "weights come before adapters");
  if (Status s = settle(); !s) return remember(std::move(s));
  drop_adapters();
  if (config.bytes == 0) return {};
  auto pool = remember(AdapterPool::create(*device_, &book_, transfer_.get(), config, weights_->pieces().groups.size(),
                                           &resources_.adapters));
  if (!pool) return pool.error();
  adapters_ = std::move(*pool);
  return {};
}

Status VulkanBackend::write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) {
  if (lost_) return *lost_;
  if (!adapters_)
    return make_error(ErrorCode::kInvalidArgument, "vulkan: write to the pool of adapters: there is none");
  return remember(adapters_->write(offset, bytes));
}

Status VulkanBackend::compile(std::span<const SealedList* const> lists) {
  if (Status status = ready(); !status) return status;
  return remember(executor_->compile(resources_, lists));
}

Status VulkanBackend::prepare(const SealedList& list) {
  if (Status status = ready(); !status) return status;
  return remember(executor_->prepare(resources_, list));
}

Result<Ticket> VulkanBackend::submit(const StepSubmission& step) {
  if (Status status = ready(); !status) return status.error();
  if (Status status = flush_adapters(); !status) return status.error();
  return remember(executor_->submit(resources_, step));
}

Result<StepOutput> VulkanBackend::wait(Ticket ticket) {
  if (Status status = ready(); !status) return status.error();
  return remember(executor_->wait(ticket));
}

Result<std::vector<double>> VulkanBackend::profile(const StepSubmission& step) {
  if (Status status = ready(); !status) return status.error();
  if (Status status = flush_adapters(); !status) return status.error();
  return remember(executor_->profile(resources_, step));
}

Result<std::string> VulkanBackend::explain(const OpList& list) {
  if (Status status = ready(); !status) return status.error();
  const Result<Program> program = make_program(resources_, list);
  if (!program) return program.error();
  return print(*program);
}

MemoryReport VulkanBackend::memory() const {
  MemoryReport report;
  report.total_bytes = caps_.memory_bytes;
  report.free_bytes = device_->memory_free_bytes();
  report.f16_copy_bytes = book_.bytes(MemoryKind::kF16Copies);
  report.weight_bytes = book_.bytes(MemoryKind::kWeights) + report.f16_copy_bytes;
  report.kv_bytes = book_.bytes(MemoryKind::kKv);
  report.state_bytes = book_.bytes(MemoryKind::kState);
  report.arena_bytes = book_.bytes(MemoryKind::kArena);
  report.adapter_bytes = book_.bytes(MemoryKind::kAdapters);
  report.other_bytes = book_.bytes(MemoryKind::kOther);
  report.peak_bytes = book_.peak();
  return report;
}

// ---- doors ---------------------------------------------------------------------------------------------------------

Status VulkanBackend::ready_for_door() {
  if (Status status = ready(); !status) return status;
  return remember(executor_->wait_idle());
}

Status VulkanBackend::write_tensor(const SealedList& list, TensorId tensor, std::span<const std::byte> bytes) {
  if (Status status = ready_for_door(); !status) return status;
  return remember(vulkan::write_tensor(transfer_.get(), resources_, list, tensor, bytes));
}

Status VulkanBackend::read_tensor(const SealedList& list, TensorId tensor, std::span<std::byte> bytes) {
  if (Status status = ready_for_door(); !status) return status;
  return remember(vulkan::read_tensor(transfer_.get(), resources_, list, tensor, bytes));
}

Status VulkanBackend::write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) {
  if (Status status = ready_for_door(); !status) return status;
  return remember(vulkan::write_kv(transfer_.get(), resources_, {kv_group, layer, block}, bytes));
}

Status VulkanBackend::read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) {
  if (Status status = ready_for_door(); !status) return status;
  return remember(vulkan::read_kv(transfer_.get(), resources_, {kv_group, layer, block}, bytes));
}

}  // namespace

Result<std::vector<DeviceReport>> list_devices() {
  auto instance = Instance::get();
  if (!instance) return instance.error();
  auto candidates = list_candidates(**instance);
  if (!candidates) return candidates.error();
  std::vector<DeviceReport> reports;
  for (const Candidate& c : *candidates)
    reports.push_back({c.traits.name, tier_name(c.traits.tier), c.traits.driver, c.traits.pci_address,
                       c.traits.memory_bytes, c.traits.memory_free_bytes, c.traits.is_cpu,
                       c.type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU, c.usable, c.reason});
  return reports;
}

Result<std::unique_ptr<Backend>> open_device(uint32_t device_idx) {
  auto instance = Instance::get();
  if (!instance) return instance.error();
  auto candidates = list_candidates(**instance);
  if (!candidates) return candidates.error();
  if (device_idx >= candidates->size())
    return make_error(ErrorCode::kNotFound, "expected a Vulkan device below {}, found {}", candidates->size(),
                      device_idx);
  return VulkanBackend::open(*instance, (*candidates)[device_idx], device_idx);
}

}  // namespace llmrt::vulkan
