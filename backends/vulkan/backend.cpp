#include "backends/vulkan/backend.h"

#include <algorithm>

#include "backends/vulkan/check.h"
#include "backends/vulkan/executor.h"
#include "backends/vulkan/fragment_probe.h"
#include "backends/vulkan/halves.h"
#include "backends/vulkan/transfer.h"

namespace llmrt::vulkan {
namespace {

class VulkanBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> open(std::shared_ptr<const Instance> instance, const Candidate& candidate,
                                               uint32_t device_idx);
  ~VulkanBackend() override { device_->api().DeviceWaitIdle(device_->handle()); }

  const Caps& caps() const override { return caps_; }
  Status load_weights(const WeightTable& weights, const Progress& progress) override;
  Status add_f16_copies(uint64_t bytes_max) override;
  Status create_state(const StateConfig& config) override;
  Status create_kv_pools(std::span<const KvGroup> groups) override;
  Status compile(std::span<const OpList* const> lists) override;
  Status prepare(const OpList& list) override;
  Result<Ticket> submit(const StepSubmission& step) override;
  Result<StepOutput> wait(Ticket ticket) override;
  Result<std::vector<double>> profile(const StepSubmission& step) override;
  MemoryReport memory() const override;
  Status write_tensor(const OpList& list, TensorId tensor, std::span<const std::byte> bytes) override;
  Status read_tensor(const OpList& list, TensorId tensor, std::span<std::byte> bytes) override;
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override;
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override;

 private:
  void fill_caps(uint32_t device_idx);
  Status ready() const;
  Status settle();
  void drop_pools();
  // Remembers a lost device: every later call fails with the same error.
  template <class T>
  T remember(T result) {
    if (!result.ok() && result.error().code == ErrorCode::kDeviceLost) lost_ = result.error();
    return result;
  }
  View tensor_view(const OpList& list, TensorId tensor) const;
  Result<std::pair<View, View>> kv_block(uint32_t kv_group, uint32_t layer, uint32_t block, size_t num_bytes) const;

  Caps caps_;
  MemoryBook book_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Pipelines> pipelines_;
  std::unique_ptr<Transfer> transfer_;
  std::optional<Weights> weights_;
  std::optional<RangeSet> state_, arena_, kv_, kv_host_;
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
    auto found = probe_fragment(*backend->device_, backend->pipelines_.get(), backend->transfer_.get(), &backend->book_);
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
  caps_.range_bytes_max = traits.range_bytes;
  // A GPU reads half the bytes and feeds its matrix units; a CPU would only convert back and forth.
  caps_.activation_dtype = traits.cpu_kernels || traits.tier == Tier::kScalar ? DType::kF32 : DType::kF16;
  caps_.kv_dtypes.assign(std::begin(kKvDTypes), std::end(kKvDTypes));
  caps_.batch_invariant = true;
  caps_.head_dim_max = 256;
  caps_.step_tokens_max = 8192;
  caps_.decode_works = decode_works(traits);
  set_prompt_tiles(traits, &caps_);
  if (traits.packed_f16) caps_.half_sums_rows_min = vector_rows_max(traits, false) + 1;
  if (traits.tier == Tier::kDots) caps_.byte_inputs_rows_min = vector_rows_max(traits, true) + 1;
  if (traits.fragment.m > 0) caps_.f16_copies_rows_min = kF16CopiesRowsMin;
}

Status VulkanBackend::ready() const {
  if (lost_) return *lost_;
  LLMRT_CHECK(executor_ && weights_, "weights and state come before steps");
  return {};
}

// No step is in flight, and no recording refers to what will move.
Status VulkanBackend::settle() {
  if (!executor_) return {};
  if (Status status = executor_->wait_idle(); !status) return status;
  executor_->drop_recordings();
  return {};
}

void VulkanBackend::drop_pools() {
  resources_.pools.clear();
  kv_.reset();
  kv_host_.reset();
}

Status VulkanBackend::load_weights(const WeightTable& weights, const Progress& progress) {
  if (lost_) return *lost_;
  if (Status s = settle(); !s) return remember(std::move(s));
  resources_.weights = nullptr;
  weights_.reset();
  auto loaded = remember(Weights::load(*device_, &book_, transfer_.get(), weights, progress));
  if (!loaded) return loaded.error();
  weights_ = std::move(*loaded);
  resources_.weights = &*weights_;
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
  arena_.reset();
  const uint64_t sizes[] = {
      uint64_t{config.step_tokens_max} * config.hidden_columns * 4,
      uint64_t{config.slots_max} * kRowWords * 4,
      uint64_t{config.num_kv_groups} * config.slots_max * config.blocks_row_max * 4,
      uint64_t{config.penalty_rows_max} * config.vocab_size * 4,
      uint64_t{config.partials_max} * config.heads_max * (config.head_dim_max + 2) * 4,
      config.sample_rows_max * uint64_t{sizeof(SampleResult) + sizeof(LogprobRow)},
      config.forward_words_max * 4,
      config.sample_words_max * 4,
      uint64_t{config.sample_rows_max} * 2 * kListMax * 4,
      device_->traits().num_cores * uint64_t{kSplitBytesCore},
      std::max(device_->traits().num_cores * kArrivalsCore, config.sample_rows_max) * uint64_t{4},
      uint64_t{config.partials_max} * config.heads_max * 4,
      device_->traits().fragment.n * (8 + config.hidden_columns * uint64_t{3}),  // 4 / m bytes of squares, 2 of x
      weights_ ? std::min(weights_->halves_bytes(device_->traits(), config.step_tokens_max), kHalvesBytesMax) : 0,
  };
  View* views[] = {&resources_.hidden,     &resources_.rows,     &resources_.tables,         &resources_.counts,
                   &resources_.partials,   &resources_.results,  &resources_.forward_inputs, &resources_.sample_inputs,
                   &resources_.candidates, &resources_.products, &resources_.arrivals,       &resources_.merge_arrivals,
                   &resources_.norms,      &resources_.halves};
  static_assert(std::size(sizes) == std::size(views));
  auto state = RangeSet::create(*device_, &book_, MemoryKind::kState, sizes);
  if (!state) return state.error();
  const uint64_t arena_bytes = config.arena_bytes;
  auto arena = RangeSet::create(*device_, &book_, MemoryKind::kArena, {&arena_bytes, 1});
  if (!arena) return arena.error();
  state_ = std::move(*state);
  arena_ = std::move(*arena);
  for (size_t i = 0; i < std::size(views); ++i) *views[i] = (*state_)[i];
  resources_.arena = (*arena_)[0];
  resources_.config = config;
  for (const auto& buffer : state_->buffers())
    if (Status s = transfer_->zero({0, buffer.get(), 0, buffer->bytes()}); !s) return remember(std::move(s));
  auto executor = Executor::create(*device_, &book_, pipelines_.get(), config);
  if (!executor) return executor.error();
  executor_ = std::move(*executor);
  return {};
}

// The ranges of so many blocks: by layer data, then scales.
void append_sizes(const KvGroup& group, uint32_t num_blocks, std::vector<uint64_t>* sizes) {
  for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
    sizes->push_back(num_blocks * group.data_bytes_block_layer());
    if (kv_has_scales(group.dtype)) sizes->push_back(num_blocks * group.scale_bytes_block_layer());
  }
}
void take_views(const KvGroup& group, const RangeSet& ranges, size_t* item, KvMemory* memory) {
  for (uint32_t layer = 0; layer < group.num_layers; ++layer) {
    memory->data.push_back(ranges[(*item)++]);
    if (kv_has_scales(group.dtype)) memory->scales.push_back(ranges[(*item)++]);
  }
}

Status VulkanBackend::create_kv_pools(std::span<const KvGroup> groups) {
  if (lost_) return *lost_;
  if (Status s = settle(); !s) return remember(std::move(s));
  drop_pools();
  std::vector<uint64_t> sizes, host_sizes;
  for (const KvGroup& group : groups) {
    append_sizes(group, group.num_blocks, &sizes);
    if (group.num_host_blocks > 0) append_sizes(group, group.num_host_blocks, &host_sizes);
  }
  auto kv = RangeSet::create(*device_, &book_, MemoryKind::kKv, sizes);
  if (!kv) return kv.error();
  kv_ = std::move(*kv);
  auto kv_host = RangeSet::create(*device_, &book_, MemoryKind::kOther, host_sizes, 256, Buffer::Where::kHostRead);
  if (!kv_host) return kv_host.error();
  kv_host_ = std::move(*kv_host);
  size_t item = 0, host_item = 0;
  for (const KvGroup& group : groups) {
    KvPool& pool = resources_.pools.emplace_back(KvPool{group, {}, {}});
    take_views(group, *kv_, &item, &pool.device);
    if (group.num_host_blocks > 0) take_views(group, *kv_host_, &host_item, &pool.host);
  }
  for (const auto& buffer : kv_->buffers())
    if (Status s = transfer_->zero({0, buffer.get(), 0, buffer->bytes()}); !s) return remember(std::move(s));
  return {};
}

Status VulkanBackend::compile(std::span<const OpList* const> lists) {
  if (Status status = ready(); !status) return status;
  return remember(executor_->compile(resources_, lists));
}

Status VulkanBackend::prepare(const OpList& list) {
  if (Status status = ready(); !status) return status;
  return remember(executor_->prepare(resources_, list));
}

Result<Ticket> VulkanBackend::submit(const StepSubmission& step) {
  if (Status status = ready(); !status) return status.error();
  return remember(executor_->submit(resources_, step));
}

Result<StepOutput> VulkanBackend::wait(Ticket ticket) {
  if (Status status = ready(); !status) return status.error();
  return remember(executor_->wait(ticket));
}

Result<std::vector<double>> VulkanBackend::profile(const StepSubmission& step) {
  if (Status status = ready(); !status) return status.error();
  return remember(executor_->profile(resources_, step));
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
  report.other_bytes = book_.bytes(MemoryKind::kOther);
  report.peak_bytes = book_.peak();
  return report;
}

// ---- doors ---------------------------------------------------------------------------------------------------------

View VulkanBackend::tensor_view(const OpList& list, TensorId tensor) const {
  LLMRT_CHECK(list.tensors[tensor].storage != Storage::kArena, "only pinned and hidden tensors have doors");
  if (list.tensors[tensor].storage == Storage::kHidden) return resources_.hidden.part(0, list.bytes_of(tensor));
  const ArenaPlan plan = plan_arena(list, 256);
  LLMRT_CHECK(plan.bytes <= resources_.arena.bytes, "a list larger than the arena");
  if (plan.offsets[tensor] == ArenaPlan::kNoOffset) return {};  // no op touches it
  return resources_.arena.part(plan.offsets[tensor], list.bytes_of(tensor));
}

Status VulkanBackend::write_tensor(const OpList& list, TensorId tensor, std::span<const std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  if (Status status = executor_->wait_idle(); !status) return remember(std::move(status));
  LLMRT_CHECK(bytes.size() == list.bytes_of(tensor), "bytes of a tensor");
  const View view = tensor_view(list, tensor);
  return view.bytes ? remember(transfer_->write(view, bytes)) : Status();
}

Status VulkanBackend::read_tensor(const OpList& list, TensorId tensor, std::span<std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  if (Status status = executor_->wait_idle(); !status) return remember(std::move(status));
  LLMRT_CHECK(bytes.size() == list.bytes_of(tensor), "bytes of a tensor");
  const View view = tensor_view(list, tensor);
  return view.bytes ? remember(transfer_->read(view, bytes)) : Status();
}

// Data and scales of one block in one layer.
Result<std::pair<View, View>> VulkanBackend::kv_block(uint32_t kv_group, uint32_t layer, uint32_t block,
                                                      size_t num_bytes) const {
  LLMRT_CHECK(kv_group < resources_.pools.size(), "kv group");
  const KvPool& pool = resources_.pools[kv_group];
  const bool on_host = block >= pool.group.num_blocks;
  const KvMemory& memory = on_host ? pool.host : pool.device;
  if (on_host) block -= pool.group.num_blocks;
  LLMRT_CHECK(layer < pool.group.num_layers && block < (on_host ? pool.group.num_host_blocks : pool.group.num_blocks),
              "kv layer and block");
  const uint64_t data = pool.group.data_bytes_block_layer(), scale = pool.group.scale_bytes_block_layer();
  LLMRT_CHECK(num_bytes == data + scale, "bytes of a kv block");
  return std::pair{memory.data[layer].part(block * data, data),
                   scale ? memory.scales[layer].part(block * scale, scale) : View{}};
}

Status VulkanBackend::write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  if (Status status = executor_->wait_idle(); !status) return remember(std::move(status));
  auto views = kv_block(kv_group, layer, block, bytes.size());
  if (!views) return views.error();
  if (Status s = transfer_->write(views->first, bytes.first(views->first.bytes)); !s) return remember(std::move(s));
  if (views->second.bytes == 0) return {};
  return remember(transfer_->write(views->second, bytes.subspan(views->first.bytes)));
}

Status VulkanBackend::read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  if (Status status = executor_->wait_idle(); !status) return remember(std::move(status));
  auto views = kv_block(kv_group, layer, block, bytes.size());
  if (!views) return views.error();
  if (Status s = transfer_->read(views->first, bytes.first(views->first.bytes)); !s) return remember(std::move(s));
  if (views->second.bytes == 0) return {};
  return remember(transfer_->read(views->second, bytes.subspan(views->first.bytes)));
}

}  // namespace

Result<std::vector<DeviceReport>> list_devices() {
  auto instance = Instance::get();
  if (!instance) return instance.error();
  auto candidates = list_candidates(**instance);
  if (!candidates) return candidates.error();
  std::vector<DeviceReport> reports;
  for (const Candidate& c : *candidates)
    reports.push_back({c.traits.name, tier_name(c.traits.tier), c.traits.driver, c.traits.memory_bytes,
                       c.traits.memory_free_bytes, c.traits.is_cpu, c.type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
                       c.usable, c.reason});
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
