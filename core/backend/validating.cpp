#include "core/backend/validating.h"

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "core/backend/validating_checks.h"

namespace llmrt {
namespace {

using namespace validating;

template <typename... Args>
Error invalid(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::kInvalidArgument, "validating: " + fmt::format(format, std::forward<Args>(args)...)};
}

class ValidatingBackend final : public Backend {
 public:
  explicit ValidatingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {
    limits_.range_bytes_max = inner_->caps().range_bytes_max;
    limits_.adapter_dtype = inner_->caps().activation_dtype;
  }

  const Caps& caps() const override { return inner_->caps(); }
  std::vector<std::string> unsupported() const override { return inner_->unsupported(); }

  Status load_weights(const WeightTable& weights, const Progress& progress) override {
    if (Status status = check_weights(weights); !status) return status;
    limits_.weights = weights;
    limits_.weights.storage.reset();
    for (WeightTensor& tensor : limits_.weights.tensors) {
      tensor.data = nullptr;
      tensor.generate = nullptr;
    }
    checked_.clear();
    return inner_->load_weights(weights, progress);
  }

  Status add_f16_copies(uint64_t bytes_max) override { return inner_->add_f16_copies(bytes_max); }

  uint64_t arena_bytes(const OpList& list) const override { return inner_->arena_bytes(list); }

  Status create_state(const StateConfig& config) override {
    if (config.num_kv_groups == 0 || config.num_kv_groups > kKvGroupsMax)
      return invalid("num_kv_groups: expected 1 to {}, found {}", kKvGroupsMax, config.num_kv_groups);
    limits_.state = config;
    limits_.slots.assign(config.slots_max, empty_slot(config));
    checked_.clear();
    return inner_->create_state(config);
  }

  Status create_kv_pools(std::span<const KvGroup> groups) override {
    if (groups.size() > limits_.state.num_kv_groups)
      return invalid("kv groups: expected at most {}, found {}", limits_.state.num_kv_groups, groups.size());
    for (size_t g = 0; g < groups.size(); ++g)
      if (!groups[g].is_state() && groups[g].block_tokens != 16 && groups[g].block_tokens != 32 &&
          groups[g].block_tokens != 64)
        return invalid("kv group {}: block_tokens: expected 16, 32 or 64, found {}", g, groups[g].block_tokens);
    limits_.groups.assign(groups.begin(), groups.end());
    checked_.clear();
    return inner_->create_kv_pools(groups);
  }

  Status create_adapter_pool(const AdapterPoolConfig& config) override {
    const uint64_t entries = uint64_t{config.slots_max} * limits_.weights.groups.size();
    if (config.slots_max > kAdapterSlotsMax)
      return invalid("adapter pool: slots_max: expected at most {}, found {}", kAdapterSlotsMax, config.slots_max);
    const uint64_t table_bytes = adapter_table_bytes(config.slots_max, limits_.weights.groups.size());
    if (config.bytes > 0 && config.bytes < table_bytes)
      return invalid("adapter pool: bytes: expected at least {}, found {}", table_bytes, config.bytes);
    limits_.adapters = config;
    limits_.adapter_table.assign(entries, {});
    return inner_->create_adapter_pool(config);
  }
  Status write_adapter_pool(uint64_t offset, std::span<const std::byte> bytes) override {
    if (offset % kAdapterAlignment != 0 || bytes.size() % kAdapterAlignment != 0)
      return invalid("adapter pool: expected multiples of {} bytes, found {} bytes at {}", kAdapterAlignment,
                     bytes.size(), offset);
    if (offset > limits_.adapters.bytes || bytes.size() > limits_.adapters.bytes - offset)
      return invalid("adapter pool: expected a range within {} bytes, found {} bytes at {}", limits_.adapters.bytes,
                     bytes.size(), offset);
    const std::span<std::byte> table = std::as_writable_bytes(std::span(limits_.adapter_table));
    if (offset < table.size())
      std::ranges::copy(bytes.first(std::min<size_t>(bytes.size(), table.size() - offset)), table.begin() + offset);
    return inner_->write_adapter_pool(offset, bytes);
  }

  Status compile(std::span<const SealedList* const> lists) override { return inner_->compile(lists); }

  Status prepare(const SealedList& list) override {
    if (Status status = check(list, part_of(list)); !status) return status;
    return inner_->prepare(list);
  }

  Result<Ticket> submit(const StepSubmission& step) override {
    if (in_flight_.size() >= kInFlightMax) return invalid("submit: expected at most {} steps in flight", kInFlightMax);
    if (Status status = check_step(step); !status) return status.error();
    auto ticket = inner_->submit(step);
    if (ticket) in_flight_.push_back(*ticket);
    return ticket;
  }

  Result<StepOutput> wait(Ticket ticket) override {
    if (in_flight_.empty() || in_flight_.front() != ticket)
      return invalid("wait: ticket: expected {}, found {}", in_flight_.empty() ? 0 : in_flight_.front(), ticket);
    in_flight_.pop_front();
    return inner_->wait(ticket);
  }

  Result<std::vector<double>> profile(const StepSubmission& step) override {
    if (Status status = check_step(step); !status) return status.error();
    return inner_->profile(step);
  }

  Result<std::string> explain(const OpList& list) override {
    if (Status status = check_list(limits_, list, part_of(list)); !status) return status.error();
    return inner_->explain(list);
  }

  MemoryReport memory() const override { return inner_->memory(); }
  std::string remark() const override { return inner_->remark(); }

  Status write_tensor(const SealedList& list, TensorId tensor, std::span<const std::byte> bytes) override {
    if (Status status = check_door(list, tensor, bytes.size()); !status) return status;
    return inner_->write_tensor(list, tensor, bytes);
  }
  Status read_tensor(const SealedList& list, TensorId tensor, std::span<std::byte> bytes) override {
    if (Status status = check_door(list, tensor, bytes.size()); !status) return status;
    return inner_->read_tensor(list, tensor, bytes);
  }
  Status write_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<const std::byte> bytes) override {
    if (Status status = check_kv_door(kv_group, layer, block, bytes.size()); !status) return status;
    return inner_->write_kv(kv_group, layer, block, bytes);
  }
  std::vector<std::span<std::byte>> host_block(uint32_t kv_group, uint32_t block) override {
    LLMRT_CHECK(kv_group < limits_.groups.size() && block < limits_.groups[kv_group].num_host_blocks, "host block");
    return inner_->host_block(kv_group, block);
  }
  Status read_kv(uint32_t kv_group, uint32_t layer, uint32_t block, std::span<std::byte> bytes) override {
    if (Status status = check_kv_door(kv_group, layer, block, bytes.size()); !status) return status;
    return inner_->read_kv(kv_group, layer, block, bytes);
  }

 private:
  Status check_weights(const WeightTable& weights) const {
    for (const WeightTensor& tensor : weights.tensors)
      if (tensor.columns % geometry(tensor.encoding).elements_block != 0)
        return invalid("weight {}: columns: expected a multiple of {}, found {}", tensor.name,
                       geometry(tensor.encoding).elements_block, tensor.columns);
    for (const WeightGroup& group : weights.groups) {
      uint64_t rows = 0;
      for (const RowSegment& segment : group.segments) {
        if (segment.tensor < 0 || static_cast<size_t>(segment.tensor) >= weights.tensors.size())
          return invalid("group {}: segment tensor: expected below {}, found {}", group.name, weights.tensors.size(),
                         segment.tensor);
        const WeightTensor& tensor = weights.tensors[static_cast<size_t>(segment.tensor)];
        if (segment.row_begin + segment.num_rows > tensor.rows || tensor.columns != group.columns)
          return invalid("group {}: segment of {}: expected rows within {} and {} columns, found rows [{}, +{}) and {}",
                         group.name, tensor.name, tensor.rows, group.columns, segment.row_begin, segment.num_rows,
                         tensor.columns);
        rows += segment.num_rows;
      }
      if (rows != group.rows) return invalid("group {}: rows: expected {}, found {}", group.name, rows, group.rows);
    }
    return {};
  }

  static Part part_of(const OpList& list) {
    return list.num_sampled > 0 ? Part::kSample : list.num_tokens > 0 ? Part::kForward : Part::kMemory;
  }

  // Each list once: its key stands for it.
  Status check(const SealedList& sealed, Part part) {
    if (checked_.contains(sealed.key)) return {};
    const OpList& list = sealed;
    if (Status status = check_list(limits_, list, part); !status) return status;
    if (const uint64_t needed = inner_->arena_bytes(list); needed > limits_.state.arena_bytes)
      return invalid("{} list: arena bytes: expected at most {}, found {}", list.name, limits_.state.arena_bytes,
                     needed);
    checked_.insert(sealed.key);
    return {};
  }

  Status check_step(const StepSubmission& step) {
    if (step.memory)
      if (Status status = check(*step.memory, Part::kMemory); !status) return status;
    if (step.forward)
      if (Status status = check(*step.forward, Part::kForward); !status) return status;
    if (step.memory || step.forward) {
      if (step.forward_inputs.size() > limits_.state.forward_words_max)
        return invalid("forward inputs: words: expected at most {}, found {}", limits_.state.forward_words_max,
                       step.forward_inputs.size());
      auto inputs = unpack_forward(step.forward_inputs);
      if (!inputs) return inputs.error();
      const OpList* memory = step.memory ? &step.memory->list : nullptr;
      const OpList* forward = step.forward ? &step.forward->list : nullptr;
      if (Status status = check_forward_inputs(limits_, memory, forward, *inputs); !status) return status;
      live_tokens_ = static_cast<uint32_t>(inputs->tokens.size());
      token_slots_.clear();
      for (const uint32_t row : inputs->token_rows) token_slots_.push_back(inputs->rows[row].adapter_id);
    }
    return step.sample ? check_sample(step) : Status{};
  }

  Status check_sample(const StepSubmission& step) {
    if (Status status = check(*step.sample, Part::kSample); !status) return status;
    if (step.sample_inputs.size() > limits_.state.sample_words_max)
      return invalid("sample inputs: words: expected at most {}, found {}", limits_.state.sample_words_max,
                     step.sample_inputs.size());
    auto inputs = unpack_sample(step.sample_inputs);
    if (!inputs) return inputs.error();
    if (step.num_sampled != inputs->records.size())
      return invalid("num_sampled: expected {}, found {}", inputs->records.size(), step.num_sampled);
    bool wanted = false;
    for (const SampleRecord& record : inputs->records) wanted |= (record.flags & kSampleLogprobs) != 0;
    if (wanted && !step.want_logprobs) return invalid("want_logprobs: expected true, as a record asks for them");
    // Only gather_rows looks at token_idx, among the tokens of the forward part that ran last.
    const bool is_known = has_op<GatherRows>(*step.sample) && step.forward;
    const uint32_t num_tokens = is_known ? live_tokens_ : limits_.state.step_tokens_max;
    return check_sample_inputs(limits_, *step.sample, *inputs, num_tokens,
                               is_known ? std::span<const uint32_t>(token_slots_) : std::span<const uint32_t>());
  }

  Status check_door(const OpList& list, TensorId id, size_t num_bytes) const {
    if (id < 0 || static_cast<size_t>(id) >= list.tensors.size())
      return invalid("tensor door: tensor: expected below {}, found {}", list.tensors.size(), id);
    const TensorDesc& tensor = list.tensors[static_cast<size_t>(id)];
    if (tensor.storage == Storage::kArena)
      return invalid("tensor door: {}: expected a pinned or hidden tensor", tensor.name);
    if (num_bytes != list.bytes_of(id))
      return invalid("tensor door: {}: expected {} bytes, found {}", tensor.name, list.bytes_of(id), num_bytes);
    return {};
  }

  Status check_kv_door(uint32_t kv_group, uint32_t layer, uint32_t block, size_t num_bytes) const {
    if (kv_group >= limits_.groups.size())
      return invalid("kv door: kv_group: expected below {}, found {}", limits_.groups.size(), kv_group);
    const KvGroup& group = limits_.groups[kv_group];
    const uint64_t expected = group.data_bytes_block_layer() + group.scale_bytes_block_layer();
    if (layer >= group.num_layers)
      return invalid("kv door: layer: expected below {}, found {}", group.num_layers, layer);
    if (block >= group.num_blocks + group.num_host_blocks)
      return invalid("kv door: block: expected below {}, found {}", group.num_blocks + group.num_host_blocks, block);
    if (num_bytes != expected) return invalid("kv door: bytes: expected {}, found {}", expected, num_bytes);
    return {};
  }

  std::unique_ptr<Backend> inner_;
  Limits limits_;
  std::unordered_set<uint64_t> checked_;
  std::deque<Ticket> in_flight_;
  uint32_t live_tokens_ = 0;
  std::vector<uint32_t> token_slots_;  // by token of the last forward part: slot of its adapter + 1
};

}  // namespace

std::unique_ptr<Backend> make_validating(std::unique_ptr<Backend> inner) {
  return std::make_unique<ValidatingBackend>(std::move(inner));
}

}  // namespace llmrt
