#include "tests/reference/backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/weights/weight_bytes.h"

namespace llmrt {

using reference::KvPool;
using reference::Tensor;

namespace {

constexpr size_t kBoundListsMax = 8;

Tensor make_tensor(DType dtype, uint32_t rows, uint32_t columns) {
  return {dtype, rows, columns, std::vector<double>(static_cast<size_t>(rows) * columns)};
}

// Numbers of a tensor to and from the bytes of its dtype.
void encode(const Tensor& tensor, std::span<std::byte> bytes) {
  for (size_t i = 0; i < bytes.size() / dtype_bytes(tensor.dtype); ++i) {
    const double x = tensor.values[i];
    const auto put = [&](auto number) { std::memcpy(bytes.data() + i * sizeof(number), &number, sizeof(number)); };
    switch (tensor.dtype) {
      case DType::kF32:
        put(static_cast<float>(x));
        break;
      case DType::kI32:
        put(static_cast<int32_t>(x));
        break;
      case DType::kF16:
        put(reference::f16_bits(x));
        break;
      case DType::kBF16:
        put(reference::bf16_bits(x));
        break;
    }
  }
}
void decode(std::span<const std::byte> bytes, Tensor* tensor) {
  for (size_t i = 0; i < bytes.size() / dtype_bytes(tensor->dtype); ++i) {
    const auto get = [&](auto number) {
      std::memcpy(&number, bytes.data() + i * sizeof(number), sizeof(number));
      return number;
    };
    switch (tensor->dtype) {
      case DType::kF32:
        tensor->values[i] = get(float{});
        break;
      case DType::kI32:
        tensor->values[i] = get(int32_t{});
        break;
      case DType::kF16:
        tensor->values[i] = reference::f16_value(get(uint16_t{}));
        break;
      case DType::kBF16:
        tensor->values[i] = reference::bf16_value(get(uint16_t{}));
        break;
    }
  }
}

}  // namespace

ReferenceBackend::ReferenceBackend(ReferenceConfig config) {
  caps_.device_id = "reference:0";
  caps_.device_name = "float64 reference";
  caps_.tier = "reference";
  caps_.is_cpu = caps_.unified_memory = true;
  caps_.attention.splits_prompts = false;
  caps_.memory_bytes = caps_.memory_free_bytes = 1ull << 40;  // ordinary host memory, allocated as it is used
  caps_.range_bytes_max = 1ull << 40;
  caps_.activation_dtype = machine_.adapter_dtype = config.activation_dtype;
  caps_.kv_dtypes.assign(std::begin(kKvDTypes), std::end(kKvDTypes));
  caps_.batch_invariant = true;
  caps_.head_dim_max = 1024;
  caps_.latent_row_max = kLatentRowMax;
  caps_.step_tokens_max = 1u << 16;
  machine_.num_threads = config.num_threads;
}

Status ReferenceBackend::load_weights(const WeightTable& weights, const Progress& progress) {
  machine_.weights = weights;
  machine_.weights.storage.reset();
  machine_.weight_bytes.assign(weights.tensors.size(), {});
  machine_.weight_values.assign(weights.tensors.size(), {});
  uint64_t done = 0;
  for (size_t i = 0; i < weights.tensors.size(); ++i) {
    WeightTensor& tensor = machine_.weights.tensors[i];
    std::vector<std::byte>& bytes = machine_.weight_bytes[i];
    bytes.resize(tensor.bytes());
    copy_weight_bytes(tensor, 0, bytes);
    tensor.data = bytes.data();
    tensor.generate = nullptr;
    done += bytes.size();
    if (progress) progress(done, weights.bytes());
  }
  return {};
}

// Each tensor has a place of its own.
uint64_t ReferenceBackend::arena_bytes(const OpList& list) const {
  uint64_t bytes = 0;
  for (TensorId id = 0; id < static_cast<TensorId>(list.tensors.size()); ++id)
    if (list.tensors[static_cast<size_t>(id)].storage != Storage::kHidden) bytes += list.bytes_of(id);
  return bytes;
}

Status ReferenceBackend::create_state(const StateConfig& config) {
  machine_.state = config;
  machine_.slots.assign(config.slots_max, {});
  for (auto& slot : machine_.slots)
    slot.tables.assign(config.num_kv_groups, std::vector<int32_t>(config.blocks_row_max, -1));
  machine_.penalty_counts.assign(config.penalty_rows_max, {});
  for (auto& counts : machine_.penalty_counts) {
    counts.prompt.assign(config.vocab_size, 0);
    counts.output.assign(config.vocab_size, 0);
  }
  machine_.hidden = make_tensor(DType::kF32, config.step_tokens_max, config.hidden_columns);
  bound_.clear();
  return {};
}

Status ReferenceBackend::create_kv_pools(std::span<const KvGroup> groups) {
  machine_.pools.clear();
  for (const KvGroup& group : groups) {
    KvPool pool{group, {}, {}};
    const uint64_t num_blocks = uint64_t{group.num_blocks} + group.num_host_blocks;
    pool.data.assign(group.num_layers, std::vector<std::byte>(group.data_bytes_block_layer() * num_blocks));
    pool.scales.assign(group.num_layers, std::vector<float>(group.scale_bytes_block_layer() / 4 * num_blocks));
    machine_.pools.push_back(std::move(pool));
  }
  return {};
}

Status ReferenceBackend::create_adapter_pool(const AdapterPoolConfig& config) {
  machine_.adapters = config;
  machine_.adapter_pool.assign(config.bytes, std::byte{0});
  return {};
}

Status ReferenceBackend::write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) {
  if (offset > machine_.adapter_pool.size() || bytes.size() > machine_.adapter_pool.size() - offset)
    return make_error(ErrorCode::kInvalidArgument, "adapter pool: {} bytes at {} of {}", bytes.size(), offset,
                      machine_.adapter_pool.size());
  std::ranges::copy(bytes, machine_.adapter_pool.begin() + static_cast<int64_t>(offset));
  return {};
}

Status ReferenceBackend::prepare(const SealedList&) {
  return {};
}

// The tensors of `list`, kept from one submission to the next while it is among the last few lists in use.
ReferenceBackend::Bound& ReferenceBackend::bind(const SealedList& sealed) {
  const OpList& list = sealed;
  Bound& bound = bound_[sealed.key];
  bound.last_use = ++uses_;
  bound.tensors.resize(list.tensors.size());
  for (size_t i = 0; i < list.tensors.size(); ++i) {
    const TensorDesc& desc = list.tensors[i];
    if (desc.storage != Storage::kHidden && bound.tensors[i].values.empty())
      bound.tensors[i] = make_tensor(desc.dtype, list.rows_of(static_cast<TensorId>(i)), desc.columns);
  }
  if (bound_.size() > kBoundListsMax) {
    auto oldest = bound_.begin();
    for (auto it = bound_.begin(); it != bound_.end(); ++it)
      if (it->second.last_use < oldest->second.last_use) oldest = it;
    bound_.erase(oldest);
  }
  return bound;
}

Status ReferenceBackend::run_list(const SealedList& sealed, std::vector<double>* op_ms) {
  const OpList& list = sealed;
  Bound& bound = bind(sealed);
  machine_.list = &list;
  machine_.tensors.clear();
  for (size_t i = 0; i < list.tensors.size(); ++i)
    machine_.tensors.push_back(list.tensors[i].storage == Storage::kHidden ? &machine_.hidden : &bound.tensors[i]);
  for (const Op& op : list.ops) {
    const auto begin = std::chrono::steady_clock::now();
    Status status = std::visit([&](const auto& concrete) { return run(machine_, concrete); }, op);
    if (!status) return status;
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    if (op_ms) op_ms->push_back(std::max(elapsed.count(), 1e-6));
  }
  for (size_t i = 0; i < list.tensors.size(); ++i)
    if (list.tensors[i].storage == Storage::kArena) bound.tensors[i] = {};
  return {};
}

Status ReferenceBackend::run_step(const StepSubmission& step, std::vector<double>* op_ms) {
  std::vector<double> times;
  machine_.output = {};
  if (step.memory || step.forward) {
    auto inputs = unpack_forward(step.forward_inputs);
    if (!inputs) return inputs.error();
    machine_.forward = std::move(*inputs);
  }
  if (step.memory) {
    if (Status status = run_list(*step.memory, &times); !status) return status;
    for (double ms : std::exchange(times, {})) machine_.output.memory_ms += ms;
  }
  if (step.forward) {
    if (Status status = run_list(*step.forward, &times); !status) return status;
    for (double ms : times) machine_.output.forward_ms += ms;
  }
  const size_t forward_ops = times.size();
  if (step.sample) {
    auto inputs = unpack_sample(step.sample_inputs);
    if (!inputs) return inputs.error();
    machine_.sample = std::move(*inputs);
    machine_.output.results.assign(step.num_sampled, {});
    if (step.want_logprobs) machine_.output.logprobs.assign(step.num_sampled, {});
    if (Status status = run_list(*step.sample, &times); !status) return status;
    for (size_t i = forward_ops; i < times.size(); ++i) machine_.output.sample_ms += times[i];
  }
  if (op_ms) *op_ms = std::move(times);
  return {};
}

Result<Ticket> ReferenceBackend::submit(const StepSubmission& step) {
  if (Status status = run_step(step, nullptr); !status) return status.error();
  finished_.emplace_back(next_ticket_, std::move(machine_.output));
  return next_ticket_++;
}

Result<StepOutput> ReferenceBackend::wait(Ticket ticket) {
  if (finished_.empty() || finished_.front().first != ticket)
    return make_error(ErrorCode::kInvalidArgument, "wait: ticket {} is not the oldest in flight", ticket);
  StepOutput output = std::move(finished_.front().second);
  finished_.pop_front();
  return output;
}

Result<std::vector<double>> ReferenceBackend::profile(const StepSubmission& step) {
  std::vector<double> op_ms;
  if (Status status = run_step(step, &op_ms); !status) return status.error();
  return op_ms;
}

MemoryReport ReferenceBackend::memory() const {
  MemoryReport report;
  report.total_bytes = caps_.memory_bytes;
  report.free_bytes = caps_.memory_free_bytes;
  report.weight_bytes = machine_.weights.bytes();
  for (const KvPool& pool : machine_.pools) report.kv_bytes += pool.group.bytes_block() * pool.group.num_blocks;
  report.peak_bytes = report.weight_bytes + report.kv_bytes;
  return report;
}

Result<Tensor*> ReferenceBackend::door(const SealedList& sealed, TensorId id, size_t num_bytes) {
  const OpList& list = sealed;
  if (id < 0 || static_cast<size_t>(id) >= list.tensors.size() || num_bytes != list.bytes_of(id))
    return make_error(ErrorCode::kInvalidArgument, "tensor door: no tensor {} of {} bytes", id, num_bytes);
  Bound& bound = bind(sealed);
  return list.tensors[static_cast<size_t>(id)].storage == Storage::kHidden ? &machine_.hidden
                                                                           : &bound.tensors[static_cast<size_t>(id)];
}

Status ReferenceBackend::write_tensor(const SealedList& list, TensorId id, std::span<const std::byte> bytes) {
  auto tensor = door(list, id, bytes.size());
  if (!tensor) return tensor.error();
  decode(bytes, *tensor);
  return {};
}

Status ReferenceBackend::read_tensor(const SealedList& list, TensorId id, std::span<std::byte> bytes) {
  auto tensor = door(list, id, bytes.size());
  if (!tensor) return tensor.error();
  encode(**tensor, bytes);
  return {};
}

Result<KvPool*> ReferenceBackend::kv_door(uint32_t kv_group, uint32_t layer, uint32_t block, size_t num_bytes) {
  if (kv_group >= machine_.pools.size())
    return make_error(ErrorCode::kInvalidArgument, "kv door: group {} of {}", kv_group, machine_.pools.size());
  KvPool& pool = machine_.pools[kv_group];
  const KvGroup& group = pool.group;
  const uint64_t expected = group.data_bytes_block_layer() + group.scale_bytes_block_layer();
  if (layer >= group.num_layers || block >= group.num_blocks + group.num_host_blocks || num_bytes != expected)
    return make_error(ErrorCode::kInvalidArgument, "kv door: layer {} of {}, block {} of {}, {} bytes for {}", layer,
                      group.num_layers, block, group.num_blocks, num_bytes, expected);
  return &pool;
}

Status ReferenceBackend::write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) {
  auto pool = kv_door(kv_group, layer, block, bytes.size());
  if (!pool) return pool.error();
  const uint64_t data = (*pool)->group.data_bytes_block_layer(), scales = (*pool)->group.scale_bytes_block_layer();
  std::memcpy((*pool)->data[layer].data() + block * data, bytes.data(), data);
  if (scales) std::memcpy((*pool)->scales[layer].data() + block * scales / 4, bytes.data() + data, scales);
  return {};
}

Status ReferenceBackend::read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) {
  auto pool = kv_door(kv_group, layer, block, bytes.size());
  if (!pool) return pool.error();
  const uint64_t data = (*pool)->group.data_bytes_block_layer(), scales = (*pool)->group.scale_bytes_block_layer();
  std::memcpy(bytes.data(), (*pool)->data[layer].data() + block * data, data);
  if (scales) std::memcpy(bytes.data() + data, (*pool)->scales[layer].data() + block * scales / 4, scales);
  return {};
}

std::vector<std::span<std::byte>> ReferenceBackend::host_block(uint32_t kv_group, uint32_t block) {
  KvPool& pool = machine_.pools.at(kv_group);
  const uint64_t data = pool.group.data_bytes_block_layer(), scales = pool.group.scale_bytes_block_layer();
  const uint64_t number = uint64_t{pool.group.num_blocks} + block;
  std::vector<std::span<std::byte>> parts;
  for (uint32_t layer = 0; layer < pool.group.num_layers; ++layer) {
    parts.push_back(std::span(pool.data[layer]).subspan(number * data, data));
    if (scales > 0)
      parts.push_back(std::as_writable_bytes(std::span(pool.scales[layer]).subspan(number * scales / 4, scales / 4)));
  }
  return parts;
}

std::unique_ptr<Backend> make_reference_backend(ReferenceConfig config) {
  return std::make_unique<ReferenceBackend>(config);
}

}  // namespace llmrt
