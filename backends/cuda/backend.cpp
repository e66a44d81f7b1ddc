#include "backends/cuda/backend.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>

#include "backends/cuda/check.h"
#include "backends/cuda/cublas.h"
#include "backends/cuda/executor.h"
#include "backends/cuda/memory.h"
#include "backends/cuda/ops/probe.h"
#include "backends/cuda/step_ring.h"
#include "backends/cuda/weights.h"
#include "core/base/checked_math.h"

namespace llmrt::cuda {
namespace {

constexpr uint64_t kCublasWorkspaceBytes = 32 << 20;
constexpr uint64_t kWorkspaceBytesMin = 32 << 20;
constexpr uint64_t kWorkspaceBytesMax = 128 << 20;  // of a slice of weights in f16; larger slices gain nothing
constexpr uint32_t kNumCountersMin = 1 << 16;

class CudaBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> open(uint32_t device_idx, const DeviceReport& report);
  ~CudaBackend() override;

  const Caps& caps() const override { return caps_; }
  Status load_weights(const WeightTable& weights, const Progress& progress) override;
  Status add_f16_copies(uint64_t bytes_max) override;
  Status create_state(const StateConfig& config) override;
  Status create_kv_pools(std::span<const KvGroup> groups) override;
  Status prepare(const OpList& list) override;
  Result<Ticket> submit(const StepSubmission& step) override;
  Result<StepOutput> wait(Ticket ticket) override;
  Result<std::vector<double>> profile(const StepSubmission& step) override;
  MemoryReport memory() const override;
  std::string remark() const override { return remark_; }
  Status write_tensor(const OpList& list, TensorId tensor, std::span<const std::byte> bytes) override;
  Status read_tensor(const OpList& list, TensorId tensor, std::span<std::byte> bytes) override;
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override;
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override;

 private:
  Status ready() const;
  // Remembers a lost device: every later call fails with the same error.
  template <class T>
  T remember(T result) {
    if (!result.ok() && result.error().code == ErrorCode::kDeviceLost) lost_ = result.error();
    return result;
  }
  Status settle();  // waits for the device and drops what refers to addresses
  Status allocate_state(const StateConfig& config);
  void drop_pools();
  Status allocate_pools(std::span<const KvGroup> groups);
  Status join_cublas();
  Status check_inputs(const StepSubmission& step) const;
  Status queue(const StepSubmission& step, StepRing::Slot* slot);
  Status copy_in(std::span<const uint32_t> words, const PinnedBuffer& host, const DeviceBuffer& device);
  std::byte* tensor_bytes(const OpList& list, TensorId tensor) const;
  Status copy_kv(uint32_t kv_group, uint32_t layer, uint32_t block, size_t num_bytes,
                 const std::function<cudaError_t(std::byte* device, size_t begin, size_t count)>& copy);

  Caps caps_;
  int device_ = 0;
  MemoryBook book_;
  cudaStream_t stream_ = nullptr;
  std::future<Result<std::unique_ptr<Cublas>>> cublas_opening_;
  std::optional<std::string> cublas_path_;  // LLMRT_CUBLAS; none: without
  std::unique_ptr<Cublas> cublas_;
  std::optional<DeviceWeights> weights_;
  std::optional<StateConfig> config_;
  DeviceBuffer arena_, hidden_, rows_, tables_, counts_, partials_, results_, logprobs_, forward_inputs_,
      sample_inputs_, workspace_, counters_, cublas_workspace_, kv_;
  PinnedBuffer kv_host_;
  std::vector<KvPool> pools_;
  OpContext context_;
  Executor executor_;
  StepRing ring_;
  Ticket submitted_ = 0, waited_ = 0;
  std::optional<Error> lost_;
  std::string remark_;
};

Result<std::unique_ptr<Backend>> CudaBackend::open(uint32_t device_idx, const DeviceReport& report) {
  auto backend = std::make_unique<CudaBackend>();
  backend->device_ = static_cast<int>(device_idx);
  CUDA_TRY(cudaSetDevice(backend->device_), "open device");
  CUDA_TRY(cudaStreamCreateWithFlags(&backend->stream_, cudaStreamNonBlocking), "open device: stream");
  int num_sms = 0, major = 0, minor = 0;
  CUDA_TRY(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, backend->device_), "open device");
  CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, backend->device_), "open device");
  CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, backend->device_), "open device");
  backend->context_.stream = backend->stream_;
  backend->context_.num_sms = num_sms;
  int shared_bytes = 0;
  CUDA_TRY(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, backend->device_),
           "open device");
  backend->context_.shared_bytes_max = static_cast<uint32_t>(shared_bytes);
  int architecture = 0;
  CUDA_TRY(probe_kernel_image(&architecture), "open device: kernels");
  const bool has_90 = major >= 9 && architecture >= 90;
  const auto is_on = [](const char* variable) {  // 0 turns it off
    const char* value = std::getenv(variable);
    return !(value && std::string_view(value) == "0");
  };
  backend->context_.has_clusters = has_90;
  // Without them: by the kernels of older devices, and of every other device.
  backend->context_.has_bulk_copies = has_90 && is_on("LLMRT_CUDA_BULK_COPIES");
#if defined(LLMRT_CUDA_90A)
  backend->context_.has_warpgroups = has_90 && major == 9 && minor == 0 && is_on("LLMRT_CUDA_WARPGROUPS");
#endif
  // A kernel may start while its predecessor ends (see launch.cuh); off, to find out what it does.
  backend->context_.dependent_launch = has_90 && is_on("LLMRT_CUDA_DEPENDENT_LAUNCH");

  Caps& caps = backend->caps_;
  caps.device_id = fmt::format("cuda:{}", device_idx);
  caps.device_name = report.name;
  caps.driver = report.driver;
  caps.tier = report.tier;
  caps.memory_bytes = report.memory_bytes;
  caps.memory_free_bytes = report.memory_free_bytes;
  caps.range_bytes_max = report.memory_bytes;
  caps.activation_dtype = DType::kF16;
  caps.kv_dtypes.assign(std::begin(kKvDTypes), std::end(kKvDTypes));
  caps.batch_invariant = true;
  caps.head_dim_max = attention_head_dim_max(backend->context_.shared_bytes_max);
  caps.step_tokens_max = 8192;
  caps.f16_copies_rows_min = kF16CopiesRowsMin;
  caps.prompt_tiles = 2 * static_cast<uint32_t>(num_sms);
  if (backend->context_.has_warpgroups) {
    caps.prompt_tile_rows = UINT32_MAX / kPromptItemTokens;  // an item of few tokens takes as long as a whole one
    caps.prompt_turns = true;
  }
  caps.decode_works = (backend->context_.has_warpgroups ? 2 : 3) * static_cast<uint32_t>(num_sms);
  // Loading cuBLAS takes longer than small weights do; it happens beside them.
  if (const char* path = std::getenv("LLMRT_CUBLAS"); path && *path) backend->cublas_path_ = path;
  if (backend->cublas_path_ != "none")
    backend->cublas_opening_ =
        std::async(std::launch::async, [device = backend->device_, path = backend->cublas_path_] {
          return Cublas::open(device, path);
        });
  return std::unique_ptr<Backend>(std::move(backend));
}

CudaBackend::~CudaBackend() {
  if (cublas_opening_.valid()) cublas_opening_.wait();
  if (stream_) {
    cudaStreamSynchronize(stream_);
    executor_.drop_graphs();
    cublas_.reset();
    cudaStreamDestroy(stream_);
  }
}

Status CudaBackend::ready() const {
  if (lost_) return *lost_;
  LLMRT_CHECK(config_ && weights_, "weights and state come before steps");
  // The caller may be another thread than the one that opened the device.
  CUDA_TRY(cudaSetDevice(device_), "set device");
  return {};
}

Status CudaBackend::settle() {
  if (lost_) return *lost_;
  CUDA_TRY(cudaSetDevice(device_), "set device");
  CUDA_TRY(cudaStreamSynchronize(stream_), "wait for the device");
  executor_.drop_graphs();
  return {};
}

Status CudaBackend::load_weights(const WeightTable& weights, const Progress& progress) {
  if (Status status = settle(); !status) return remember(std::move(status));
  context_.weights = nullptr;
  weights_.emplace();
  if (Status status = weights_->load(weights, device_, &book_, progress); !status) {
    weights_.reset();
    return remember(std::move(status));
  }
  context_.weights = &*weights_;
  return {};
}

Status CudaBackend::add_f16_copies(uint64_t bytes_max) {
  LLMRT_CHECK(weights_, "weights come before their copies");
  if (Status status = settle(); !status) return remember(std::move(status));
  drop_pools();  // there may be no room for both
  if (bytes_max > 0) {
    if (Status status = join_cublas(); !status) return remember(std::move(status));
    if (!cublas_) bytes_max = 0;  // nothing else reads them
  }
  return remember(weights_->add_f16_copies(bytes_max, &book_, context_));
}

// ---- state ---------------------------------------------------------------------------------------------------------

Status CudaBackend::create_state(const StateConfig& config) {
  if (config.step_tokens_max > caps_.step_tokens_max)
    return make_error(ErrorCode::kInvalidArgument, "create_state: step_tokens_max: expected at most {}, found {}",
                      caps_.step_tokens_max, config.step_tokens_max);
  if (Status status = settle(); !status) return remember(std::move(status));
  config_.reset();
  if (Status status = allocate_state(config); !status) return remember(std::move(status));
  if (Status status = ring_.create(config); !status) return remember(std::move(status));
  submitted_ = waited_ = 0;
  config_ = config;
  return {};
}

Status CudaBackend::allocate_state(const StateConfig& config) {
  const uint64_t slice_bytes = weights_ ? weights_->f16_bytes_max() : 0;
  const uint64_t workspace_bytes = std::max(std::clamp(slice_bytes, kWorkspaceBytesMin, kWorkspaceBytesMax),
                                            filter_workspace_bytes(config.sample_rows_max, context_.num_sms));
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
  if (cublas_) return cublas_->set_workspace(cublas_workspace_.data(), cublas_workspace_.bytes());
  return {};
}

Status CudaBackend::create_kv_pools(std::span<const KvGroup> groups) {
  for (const KvGroup& group : groups)
    if (group.block_tokens != 16 && group.block_tokens != 32 && group.block_tokens != 64)
      return make_error(ErrorCode::kUnsupported, "create_kv_pools: block_tokens: expected 16, 32 or 64, found {}",
                        group.block_tokens);
  if (Status status = settle(); !status) return remember(std::move(status));
  return remember(allocate_pools(groups));
}

uint64_t layer_bytes(const KvGroup& group, uint32_t num_blocks) {
  return round_up(num_blocks * group.data_bytes_block_layer(), kArenaAlignment);
}
uint64_t scales_bytes(const KvGroup& group, uint32_t num_blocks) {
  return round_up(num_blocks * group.scale_bytes_block_layer() * group.num_layers, kArenaAlignment);
}
uint64_t pool_bytes(const KvGroup& group, uint32_t num_blocks) {
  return layer_bytes(group, num_blocks) * group.num_layers + scales_bytes(group, num_blocks);
}

// A pool of so many blocks in the memory at *at, which moves behind it: the data of all layers, then their scales.
KvMemory lay_out(const KvGroup& group, uint32_t num_blocks, std::byte** at) {
  KvMemory memory;
  memory.num_blocks = num_blocks;
  memory.layer_bytes = layer_bytes(group, num_blocks);
  memory.layer_scales = num_blocks * group.scale_bytes_block_layer() / 4;
  memory.data = *at;
  if (kv_has_scales(group.dtype)) memory.scales = reinterpret_cast<float*>(*at + memory.layer_bytes * group.num_layers);
  *at += pool_bytes(group, num_blocks);
  return memory;
}

void CudaBackend::drop_pools() {
  pools_.clear();
  context_.num_pools = 0;
  kv_.reset();
  kv_host_.reset();
}

Status CudaBackend::allocate_pools(std::span<const KvGroup> groups) {
  drop_pools();
  uint64_t device_bytes = 0, host_bytes = 0;
  for (const KvGroup& group : groups) {
    device_bytes += pool_bytes(group, group.num_blocks);
    host_bytes += pool_bytes(group, group.num_host_blocks);
  }
  Result<DeviceBuffer> device = DeviceBuffer::create(&book_, MemoryKind::kKv, device_bytes, "create_kv_pools");
  if (!device) return device.error();
  kv_ = *std::move(device);
  CUDA_TRY(cudaMemsetAsync(kv_.data(), 0, kv_.bytes(), stream_), "create_kv_pools");
  if (host_bytes > 0) {
    Result<PinnedBuffer> host = PinnedBuffer::create(host_bytes, "create_kv_pools: host pool");
    if (!host) return host.error();
    kv_host_ = *std::move(host);
  }
  CUDA_TRY(cudaStreamSynchronize(stream_), "create_kv_pools");
  std::byte *device_at = kv_.data(), *host_at = kv_host_.data();
  for (const KvGroup& group : groups)
    pools_.push_back(
        {group, lay_out(group, group.num_blocks, &device_at), lay_out(group, group.num_host_blocks, &host_at)});
  context_.pools = pools_.data();
  context_.num_pools = static_cast<uint32_t>(pools_.size());
  return {};
}

// ---- steps ---------------------------------------------------------------------------------------------------------

// cuBLAS, once it is open. Its absence is an error only where LLMRT_CUBLAS says where it is; own kernels serve.
Status CudaBackend::join_cublas() {
  if (!cublas_opening_.valid()) return {};
  Result<std::unique_ptr<Cublas>> opened = cublas_opening_.get();
  if (!opened) {
    if (cublas_path_)
      return make_error(ErrorCode::kNotFound, "LLMRT_CUBLAS={}: {}", *cublas_path_, opened.error().message);
    remark_ = fmt::format(
        "without cuBLAS long prompts take more time: expected libcublas.so.13 or .12, or where it is in LLMRT_CUBLAS "
        "({})",
        opened.error().message);
    return {};
  }
  cublas_ = *std::move(opened);
  context_.cublas = cublas_.get();
  if (cublas_workspace_.bytes() == 0) return {};  // create_state does it
  return cublas_->set_workspace(cublas_workspace_.data(), cublas_workspace_.bytes());
}

Status CudaBackend::prepare(const OpList& list) {
  if (Status status = ready(); !status) return status;
  if (Status status = join_cublas(); !status) return remember(std::move(status));
  return remember(executor_.prepare(list, context_, arena_.bytes()));
}

Status CudaBackend::check_inputs(const StepSubmission& step) const {
  const auto too_many = [](const char* what, uint64_t limit, uint64_t found) {
    return make_error(ErrorCode::kInvalidArgument, "submit: {}: expected at most {}, found {}", what, limit, found);
  };
  if (step.memory || step.forward)
    if (step.forward_inputs.size() < kForwardHeadersWords || step.forward_inputs.size() * 4 > forward_inputs_.bytes())
      return too_many("words of forward inputs", forward_inputs_.bytes() / 4, step.forward_inputs.size());
  if (step.forward) {
    if (step.forward_inputs[kFwdNumTokens] > step.forward->num_tokens)
      return too_many("tokens", step.forward->num_tokens, step.forward_inputs[kFwdNumTokens]);
    if (step.forward->num_tokens > config_->step_tokens_max)
      return too_many("tokens of the list", config_->step_tokens_max, step.forward->num_tokens);
  }
  if (step.sample) {
    if (step.sample_inputs.size() < kSampleHeaderWords || step.sample_inputs.size() * 4 > sample_inputs_.bytes())
      return too_many("words of sample inputs", sample_inputs_.bytes() / 4, step.sample_inputs.size());
    if (step.sample_inputs[kSmpNumRecords] > step.sample->num_sampled)
      return too_many("sampled rows", step.sample->num_sampled, step.sample_inputs[kSmpNumRecords]);
    if (step.sample->num_sampled > config_->sample_rows_max)
      return too_many("sampled rows of the list", config_->sample_rows_max, step.sample->num_sampled);
    if (step.num_sampled > step.sample->num_sampled)
      return too_many("results", step.sample->num_sampled, step.num_sampled);
  }
  return {};
}

Status CudaBackend::copy_in(std::span<const uint32_t> words, const PinnedBuffer& host, const DeviceBuffer& device) {
  std::memcpy(host.data(), words.data(), words.size_bytes());
  CUDA_TRY(cudaMemcpyAsync(device.data(), host.data(), words.size_bytes(), cudaMemcpyHostToDevice, stream_),
           "copy inputs");
  return {};
}

Status CudaBackend::queue(const StepSubmission& step, StepRing::Slot* slot) {
  slot->has_memory = step.memory != nullptr;
  slot->has_forward = step.forward != nullptr;
  slot->has_sample = step.sample != nullptr;
  slot->num_sampled = step.num_sampled;
  slot->want_logprobs = step.want_logprobs;
  CUDA_TRY(cudaEventRecord(slot->begin, stream_), "submit: event");
  if (step.memory || step.forward)
    if (Status s = copy_in(step.forward_inputs, slot->forward_inputs, forward_inputs_); !s) return s;
  if (step.memory) {
    if (Status s = executor_.run(*step.memory, context_, arena_.bytes()); !s) return s;
    CUDA_TRY(cudaEventRecord(slot->memory_end, stream_), "submit: event");
  }
  if (step.forward) {
    if (Status s = executor_.run(*step.forward, context_, arena_.bytes()); !s) return s;
    CUDA_TRY(cudaEventRecord(slot->forward_end, stream_), "submit: event");
  }
  if (step.sample) {
    CUDA_TRY(cudaEventRecord(slot->sample_begin, stream_), "submit: event");
    if (Status s = copy_in(step.sample_inputs, slot->sample_inputs, sample_inputs_); !s) return s;
    if (Status s = executor_.run(*step.sample, context_, arena_.bytes()); !s) return s;
    CUDA_TRY(cudaMemcpyAsync(slot->results.data(), results_.data(), step.num_sampled * sizeof(SampleResult),
                             cudaMemcpyDeviceToHost, stream_),
             "submit: results");
    if (step.want_logprobs)
      CUDA_TRY(cudaMemcpyAsync(slot->logprobs.data(), logprobs_.data(), step.num_sampled * sizeof(LogprobRow),
                               cudaMemcpyDeviceToHost, stream_),
               "submit: results");
    CUDA_TRY(cudaEventRecord(slot->sample_end, stream_), "submit: event");
  }
  CUDA_TRY(cudaEventRecord(slot->done, stream_), "submit: event");
  return {};
}

Result<Ticket> CudaBackend::submit(const StepSubmission& step) {
  if (Status status = ready(); !status) return status.error();
  if (submitted_ - waited_ >= kInFlightMax)
    return make_error(ErrorCode::kInvalidArgument, "submit: {} steps are in flight, wait for one first", kInFlightMax);
  if (Status status = check_inputs(step); !status) return status.error();
  if (Status status = join_cublas(); !status) return remember(std::move(status)).error();
  const Ticket ticket = submitted_ + 1;
  if (Status status = queue(step, &ring_.slot(ticket)); !status) {
    // What was queued before the failure may still read the slot's pinned memory.
    if (status.error().code != ErrorCode::kDeviceLost) cudaStreamSynchronize(stream_);
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
  return remember(ring_.collect(ticket));
}

Result<std::vector<double>> CudaBackend::profile(const StepSubmission& step) {
  if (Status status = ready(); !status) return status.error();
  if (submitted_ != waited_)
    return make_error(ErrorCode::kInvalidArgument, "profile: {} steps are in flight", submitted_ - waited_);
  if (Status status = check_inputs(step); !status) return status.error();
  if (Status status = join_cublas(); !status) return remember(std::move(status)).error();
  StepRing::Slot& slot = ring_.slot(0);
  std::vector<double> op_ms;
  const auto run = [&]() -> Status {
    if (step.memory || step.forward)
      if (Status s = copy_in(step.forward_inputs, slot.forward_inputs, forward_inputs_); !s) return s;
    if (step.memory)
      if (Status s = executor_.run(*step.memory, context_, arena_.bytes()); !s) return s;
    if (step.forward)
      if (Status s = executor_.profile(*step.forward, context_, arena_.bytes(), &op_ms); !s) return s;
    if (step.sample) {
      if (Status s = copy_in(step.sample_inputs, slot.sample_inputs, sample_inputs_); !s) return s;
      if (Status s = executor_.profile(*step.sample, context_, arena_.bytes(), &op_ms); !s) return s;
    }
    return {};
  };
  if (Status status = remember(run()); !status) return status.error();
  return op_ms;
}

MemoryReport CudaBackend::memory() const {
  MemoryReport report;
  size_t free_bytes = 0, total_bytes = 0;
  if (cudaSetDevice(device_) == cudaSuccess && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
    report.free_bytes = free_bytes;
    report.total_bytes = total_bytes;
  }
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

std::byte* CudaBackend::tensor_bytes(const OpList& list, TensorId tensor) const {
  LLMRT_CHECK(list.tensors[static_cast<size_t>(tensor)].storage != Storage::kArena,
              "only pinned and hidden tensors have doors");
  if (list.tensors[static_cast<size_t>(tensor)].storage == Storage::kHidden) return hidden_.data();
  const ArenaPlan plan = plan_arena(list, kArenaAlignment);
  LLMRT_CHECK(plan.bytes <= arena_.bytes(), "a list larger than the arena");
  const uint64_t offset = plan.offsets[static_cast<size_t>(tensor)];
  return offset == ArenaPlan::kNoOffset ? nullptr : arena_.data() + offset;  // null: no op touches it
}

Status CudaBackend::write_tensor(const OpList& list, TensorId tensor, std::span<const std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  LLMRT_CHECK(bytes.size() == list.bytes_of(tensor), "bytes of a tensor");
  std::byte* device = tensor_bytes(list, tensor);
  if (!device) return {};
  const auto copy = [&]() -> Status {
    CUDA_TRY(cudaMemcpyAsync(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_), "write_tensor");
    CUDA_TRY(cudaStreamSynchronize(stream_), "write_tensor");
    return {};
  };
  return remember(copy());
}

Status CudaBackend::read_tensor(const OpList& list, TensorId tensor, std::span<std::byte> bytes) {
  if (Status status = ready(); !status) return status;
  LLMRT_CHECK(bytes.size() == list.bytes_of(tensor), "bytes of a tensor");
  const std::byte* device = tensor_bytes(list, tensor);
  if (!device) return {};
  const auto copy = [&]() -> Status {
    CUDA_TRY(cudaMemcpyAsync(bytes.data(), device, bytes.size(), cudaMemcpyDeviceToHost, stream_), "read_tensor");
    CUDA_TRY(cudaStreamSynchronize(stream_), "read_tensor");
    return {};
  };
  return remember(copy());
}

// Calls copy(device, begin, count) for the data and for the scales: `count` bytes at `begin` of the host's span.
Status CudaBackend::copy_kv(uint32_t kv_group, uint32_t layer, uint32_t block, size_t num_bytes,
                            const std::function<cudaError_t(std::byte*, size_t, size_t)>& copy) {
  if (Status status = ready(); !status) return status;
  LLMRT_CHECK(kv_group < pools_.size(), "kv group");
  const KvPool& pool = pools_[kv_group];
  const bool on_host = block >= pool.group.num_blocks;
  const KvMemory& memory = on_host ? pool.host : pool.device;
  if (on_host) block -= pool.group.num_blocks;
  LLMRT_CHECK(layer < pool.group.num_layers && block < memory.num_blocks, "kv layer and block");
  const uint64_t data = pool.group.data_bytes_block_layer(), scales = pool.group.scale_bytes_block_layer();
  LLMRT_CHECK(num_bytes == data + scales, "bytes of a kv block");
  const auto copy_all = [&]() -> Status {
    CUDA_TRY(copy(memory.data + layer * memory.layer_bytes + block * data, 0, data), "kv block");
    if (scales)
      CUDA_TRY(copy(reinterpret_cast<std::byte*>(memory.scales + layer * memory.layer_scales) + block * scales, data,
                    scales),
               "kv block");
    CUDA_TRY(cudaStreamSynchronize(stream_), "kv block");
    return {};
  };
  return remember(copy_all());
}

Status CudaBackend::write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) {
  return copy_kv(kv_group, layer, block, bytes.size(), [&](std::byte* device, size_t begin, size_t count) {
    return cudaMemcpyAsync(device, bytes.data() + begin, count, cudaMemcpyDefault, stream_);
  });
}

Status CudaBackend::read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) {
  return copy_kv(kv_group, layer, block, bytes.size(), [&](std::byte* device, size_t begin, size_t count) {
    return cudaMemcpyAsync(bytes.data() + begin, device, count, cudaMemcpyDefault, stream_);
  });
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
