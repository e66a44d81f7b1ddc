#include "backends/cuda/rank.h"

#include <cstdlib>
#include <string_view>

#include "backends/cuda/check.h"
#include "backends/cuda/ops/probe.h"

namespace llmrt::cuda {
namespace {

bool is_on(const char* variable) {  // 0 turns it off
  const char* value = std::getenv(variable);
  return !(value && std::string_view(value) == "0");
}

}  // namespace

Status DeviceRank::find_facts() {
  const auto ask = [&](cudaDeviceAttr attribute, int* value) {
    return cudaDeviceGetAttribute(value, attribute, device_);
  };
  int num_sms = 0, major = 0, minor = 0, shared_bytes = 0, architecture = 0;
  CUDA_TRY(ask(cudaDevAttrMultiProcessorCount, &num_sms), "open device");
  CUDA_TRY(ask(cudaDevAttrComputeCapabilityMajor, &major), "open device");
  CUDA_TRY(ask(cudaDevAttrComputeCapabilityMinor, &minor), "open device");
  CUDA_TRY(ask(cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared_bytes), "open device");
  CUDA_TRY(probe_kernel_image(&architecture), "open device: kernels");
  const bool has_90 = major >= 9 && architecture >= 90;
  DeviceFacts& facts = inputs_.device;
  facts.num_sms = static_cast<uint32_t>(num_sms);
  facts.shared_bytes_max = static_cast<uint32_t>(shared_bytes);
  facts.has_clusters = has_90;
  facts.has_state_products = major >= 8 && architecture >= 80 && is_on("LLMRT_CUDA_STATE_PRODUCTS");
  // Without them: by the kernels of older devices, and of every other device.
  facts.has_bulk_copies = has_90 && is_on("LLMRT_CUDA_BULK_COPIES");
#if defined(LLMRT_CUDA_90A)
  facts.has_warpgroups = has_90 && major == 9 && minor == 0 && is_on("LLMRT_CUDA_WARPGROUPS");
#endif
  // A kernel may start while its predecessor ends (see launch.cuh); off, to find out what it does.
  context_.dependent_launch = has_90 && is_on("LLMRT_CUDA_DEPENDENT_LAUNCH");
  return {};
}

Result<std::unique_ptr<DeviceRank>> DeviceRank::open(int device) {
  auto rank = std::make_unique<DeviceRank>();
  rank->device_ = device;
  CUDA_TRY(cudaSetDevice(device), "open device");
  CUDA_TRY(cudaStreamCreateWithFlags(&rank->stream_, cudaStreamNonBlocking), "open device: stream");
  rank->context_.stream = rank->stream_;
  if (Status status = rank->find_facts(); !status) return status.error();
  if (const char* path = std::getenv("LLMRT_CUBLAS"); path && *path) rank->cublas_path_ = path;
  if (rank->cublas_path_ != "none")
    rank->cublas_opening_ =
        std::async(std::launch::async, [device, path = rank->cublas_path_] { return Cublas::open(device, path); });
  return rank;
}

DeviceRank::~DeviceRank() {
  if (cublas_opening_.valid()) cublas_opening_.wait();
  if (stream_) {
    cudaStreamSynchronize(stream_);
    executor_.drop();
    cublas_.reset();
    cudaStreamDestroy(stream_);
  }
}

Status DeviceRank::enter() const {
  CUDA_TRY(cudaSetDevice(device_), "set device");
  return {};
}

Status DeviceRank::wait() const {
  CUDA_TRY(cudaStreamSynchronize(stream_), "wait for the device");
  return {};
}

Status DeviceRank::settle() {
  if (Status status = enter(); !status) return status;
  if (Status status = wait(); !status) return status;
  executor_.drop();
  return {};
}

// ---- weights -------------------------------------------------------------------------------------------------------

Status DeviceRank::load_weights(const WeightTable& weights, const Progress& progress) {
  context_.weights = nullptr;
  drop_adapters();  // its table is of these weights' groups
  weights_.emplace();
  if (Status status = weights_->load(weights, device_, &book_, progress); !status) {
    weights_.reset();
    return status;
  }
  context_.weights = &*weights_;
  inputs_.tensors = weights_->tensors();
  inputs_.groups = weights_->groups();
  return {};
}

Status DeviceRank::add_f16_copies(uint64_t bytes_max) {
  drop_pools();
  if (!cublas_) bytes_max = 0;  // nothing else reads them
  return weights_->add_f16_copies(bytes_max, &book_, context_);
}

Status DeviceRank::join_cublas(std::string* remark) {
  if (!cublas_opening_.valid()) return {};
  Result<std::unique_ptr<Cublas>> opened = cublas_opening_.get();
  if (!opened) {
    if (cublas_path_)
      return make_error(ErrorCode::kNotFound, "LLMRT_CUBLAS={}: {}", *cublas_path_, opened.error().message);
    *remark = fmt::format(
        "without cuBLAS long prompts take more time: expected libcublas.so.13 or .12, or where it is in LLMRT_CUBLAS "
        "({})",
        opened.error().message);
    return {};
  }
  cublas_ = *std::move(opened);
  context_.cublas = cublas_.get();
  inputs_.device.has_cublas = true;
  if (cublas_workspace_.bytes() == 0) return {};  // create_state does it
  return cublas_->set_workspace(cublas_workspace_.data(), cublas_workspace_.bytes());
}

// ---- steps ---------------------------------------------------------------------------------------------------------

Status DeviceRank::copy_in(std::span<const uint32_t> words, const PinnedBuffer& host, const DeviceBuffer& device) {
  std::memcpy(host.data(), words.data(), words.size_bytes());
  CUDA_TRY(cudaMemcpyAsync(device.data(), host.data(), words.size_bytes(), cudaMemcpyHostToDevice, stream_),
           "copy inputs");
  return {};
}

Result<std::string> DeviceRank::explain(const OpList& list) const {
  const Result<Program> program = compile(list, inputs_);
  if (!program) return program.error();
  return print(*program);
}

Status DeviceRank::queue(const StepSubmission& step, Ticket ticket) {
  StepRing::Slot* slot = &ring_.slot(ticket);
  slot->has_memory = step.memory != nullptr;
  slot->has_forward = step.forward != nullptr;
  slot->has_sample = step.sample != nullptr;
  slot->num_sampled = step.num_sampled;
  slot->want_logprobs = step.want_logprobs;
  CUDA_TRY(cudaEventRecord(slot->begin, stream_), "submit: event");
  if (step.memory || step.forward)
    if (Status s = copy_in(step.forward_inputs, slot->forward_inputs, forward_inputs_); !s) return s;
  if (step.memory) {
    if (Status s = executor_.run(*step.memory, setting()); !s) return s;
    CUDA_TRY(cudaEventRecord(slot->memory_end, stream_), "submit: event");
  }
  if (step.forward) {
    if (Status s = executor_.run(*step.forward, setting()); !s) return s;
    CUDA_TRY(cudaEventRecord(slot->forward_end, stream_), "submit: event");
  }
  if (step.sample) {
    CUDA_TRY(cudaEventRecord(slot->sample_begin, stream_), "submit: event");
    if (Status s = copy_in(step.sample_inputs, slot->sample_inputs, sample_inputs_); !s) return s;
    if (Status s = executor_.run(*step.sample, setting()); !s) return s;
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

Status DeviceRank::profile(const StepSubmission& step, std::vector<double>* op_ms) {
  StepRing::Slot& slot = ring_.slot(0);
  if (step.memory || step.forward)
    if (Status s = copy_in(step.forward_inputs, slot.forward_inputs, forward_inputs_); !s) return s;
  if (step.memory)
    if (Status s = executor_.run(*step.memory, setting()); !s) return s;
  if (step.forward)
    if (Status s = executor_.profile(*step.forward, setting(), op_ms); !s) return s;
  if (!step.sample) return {};
  if (Status s = copy_in(step.sample_inputs, slot.sample_inputs, sample_inputs_); !s) return s;
  return executor_.profile(*step.sample, setting(), op_ms);
}

MemoryReport DeviceRank::memory() const {
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
  report.adapter_bytes = book_.bytes(MemoryKind::kAdapters);
  report.other_bytes = book_.bytes(MemoryKind::kOther);
  report.peak_bytes = book_.peak();
  return report;
}

}  // namespace llmrt::cuda
