#include "tools/llmrt_bench/ops/op_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "core/adapter/adapter_image.h"
#include "core/base/checked_math.h"
#include "tests/reference/backend.h"
#include "tests/reference/number.h"
#include "tools/llmrt_bench/ops/bounds.h"
#include "tools/llmrt_bench/ops/difference.h"
#include "tools/llmrt_bench/ops/excerpt.h"
#include "tools/llmrt_bench/ops/sampling_features.h"
#include "tools/llmrt_bench/ops/test_data.h"

namespace llmrt::bench {
namespace {

constexpr uint32_t kRowsChecked = 8;

std::vector<uint32_t> spread(uint32_t count) {
  const uint32_t wanted = std::min(count, kRowsChecked);
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < wanted; ++i)
    rows.push_back(wanted < 2 ? 0 : static_cast<uint32_t>(uint64_t{i} * (count - 1) / (wanted - 1)));
  return rows;
}

std::vector<std::byte> rows_of(std::span<const std::byte> bytes, uint64_t bytes_row, std::span<const uint32_t> rows) {
  std::vector<std::byte> out(rows.size() * bytes_row);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(out.data() + i * bytes_row, bytes.data() + rows[i] * bytes_row, bytes_row);
  return out;
}

void keep_nearest_to_bound(double error, double bound, OpCheck* check) {
  const auto ratio = [](double e, double b) { return e == 0 ? 0 : e / b; };
  if (!check->is_checked || ratio(error, bound) > ratio(check->error, check->bound)) {
    check->error = error;
    check->bound = bound;
  }
  check->is_checked = true;
}

class Check {
 public:
  Check(const CheckedDevice& device, const LoweredStep& step, const Kernel& kernel)
      : device_(device),
        step_(step),
        whole_(kernel.is_sample ? *step.sample : *step.forward),
        is_sample_(kernel.is_sample),
        excerpt_(excerpt_of(whole_, kernel.first_op, kernel.num_ops)),
        own_ops_(whole_.ops.begin() + kernel.first_op, whole_.ops.begin() + kernel.first_op + kernel.num_ops),
        weights_(weight_excerpt_of(device.model->weights, excerpt_.list)) {
    const ProbeShape& shape = device.shape;
    num_tokens_ = shape.num_sequences * shape.num_tokens;
    for (const KvGroup& pool : device.pools) books_.push_back({pool.num_blocks, pool.block_tokens});
    rows_ = spread(is_sample_ ? shape.num_sequences : num_tokens_);
    for (const uint32_t row : rows_) tokens_.push_back(is_sample_ ? (row + 1) * shape.num_tokens - 1 : row);
    for (const Op& op : own_ops_) {
      if (const auto* found = std::get_if<KvWrite>(&op)) touch(*found, &found->scales);
      if (const auto* found = std::get_if<LatentRows>(&op)) touch(*found, &found->scales);
      if (const auto* found = std::get_if<PagedAttention>(&op)) touch(*found, nullptr);
      if (const auto* found = std::get_if<LatentAttention>(&op)) touch(*found, nullptr);
      if (const auto* found = std::get_if<Filter>(&op)) kept_ = found->kept;
      draws_ = draws_ || std::holds_alternative<Sample>(op);
      logprobs_ = logprobs_ || std::holds_alternative<Logprobs>(op);
    }
    OpList list = excerpt_.list;
    (is_sample_ ? list.num_sampled : list.num_tokens) = static_cast<uint32_t>(rows_.size());
    for (Op& op : list.ops) {  // its pools have one layer
      if (auto* write = std::get_if<KvWrite>(&op)) write->layer = 0;
      if (auto* attention = std::get_if<PagedAttention>(&op)) attention->layer = 0;
      if (auto* latents = std::get_if<LatentRows>(&op)) latents->layer = 0;
      if (auto* latent = std::get_if<LatentAttention>(&op)) latent->layer = 0;
    }
    if (!weights_.columns.empty())
      list.tensors[std::get<Matmul>(own_ops_[0]).out].columns = static_cast<uint32_t>(weights_.columns.size());
    list_.emplace(excerpt_.list);
    reference_list_.emplace(std::move(list));
  }

  Result<OpCheck> run() {
    if (Status status = start_reference(); !status) return status.error();
    for (Backend* backend : {device_.backend, reference_.get()})
      if (Status status = set_up_rows(backend); !status) return status.error();
    if (Status status = fill(); !status) return status.error();
    Result<StepOutput> found = submit(device_.backend, *list_, device_step());
    if (!found) return found.error();
    Result<StepOutput> expected = submit(reference_.get(), *reference_list_, reference_step());
    if (!expected) return expected.error();
    OpCheck check;
    check.what = what();
    for (const TensorId id : excerpt_.outputs)
      if (Status status = compare_tensor(id, &check); !status) return status.error();
    if (written_)
      if (Status status = compare_kv(&check); !status) return status.error();
    compare_results(*expected, *found, &check);
    return check;
  }

 private:
  std::string what() const {
    const uint32_t num_rows = is_sample_ ? device_.shape.num_sequences : num_tokens_;
    std::string text = rows_.size() < num_rows ? fmt::format("{} of {} rows", rows_.size(), num_rows) : "all rows";
    if (!weights_.columns.empty())
      text += fmt::format(", {} of {} columns", weights_.columns.size(),
                          whole_.tensors[std::get<Matmul>(own_ops_[0]).out].columns);
    return text;
  }

  // ---- the reference: the picked rows, each as a row of one token, in the slots and blocks of the device

  uint32_t sequence_of(uint32_t token) const { return token / device_.shape.num_tokens; }
  uint32_t position_of(uint32_t token) const { return device_.shape.start + token % device_.shape.num_tokens; }
  uint32_t blocks_each() const { return probe_blocks(device_.shape) / device_.shape.num_sequences; }

  Status start_reference() {
    ReferenceConfig config;
    config.num_threads = std::max(1u, std::thread::hardware_concurrency());
    config.activation_dtype = device_.backend->caps().activation_dtype;  // that of adapters
    reference_ = make_reference_backend(config);
    if (Status status = reference_->load_weights(weights_.table, {}); !status) return status;
    StateConfig state;
    state.step_tokens_max = state.sample_rows_max = kRowsChecked;
    state.slots_max = device_.shape.num_sequences;
    state.num_kv_groups = static_cast<uint32_t>(device_.pools.size());
    state.penalty_rows_max = kRowsChecked;
    state.blocks_row_max = blocks_each();
    state.partials_max = ~0u;
    state.hidden_columns = device_.model->config.width;
    state.vocab_size = device_.model->config.vocab_size;
    if (Status status = reference_->create_state(state); !status) return status;
    // Groups that the kernel does not touch have one block: no op of its list goes to those that tables name.
    std::vector<KvGroup> pools = device_.pools;
    for (uint32_t g = 0; g < pools.size(); ++g) {
      pools[g].num_layers = 1;
      pools[g].num_blocks = kv_ && g == kv_->group ? probe_blocks(device_.shape) : 1;
      pools[g].num_host_blocks = 0;
    }
    if (Status status = reference_->create_kv_pools(pools); !status) return status;
    return has_adapters() ? fill_reference_adapters() : Status{};
  }

  // Slot i of the reference's pool has what the kernel's ops need of the i-th picked row's adapter.
  Status fill_reference_adapters() {
    const size_t num_groups = weights_.table.groups.size();
    std::vector<std::byte> bytes(round_up(adapter_table_bytes(rows_.size(), num_groups), uint64_t{kAdapterAlignment}));
    for (size_t i = 0; i < rows_.size(); ++i) {
      const uint32_t adapter = device_.adapters->of_row(sequence_of(tokens_[i]));
      const AdapterImage& image = *device_.adapters->adapters[adapter].image;
      for (const AdapterRun& run : image.runs) {
        if (!adapts(run.group)) continue;
        AdapterEntry entry = run.entry;
        const auto offset = static_cast<uint32_t>(bytes.size() / kAdapterAlignment);
        entry.a_offset += offset;
        for (uint32_t& b_offset : entry.b_offset) b_offset += offset;
        std::memcpy(bytes.data() + (i * num_groups + static_cast<size_t>(run.group)) * sizeof entry, &entry,
                    sizeof entry);
        const std::span<const std::byte> numbers = image.run_bytes(run);
        bytes.insert(bytes.end(), numbers.begin(), numbers.end());
      }
    }
    if (Status status = reference_->create_adapter_pool({bytes.size(), static_cast<uint32_t>(rows_.size())}); !status)
      return status;
    return reference_->write_adapter_pool(0, bytes);
  }

  bool has_adapters() const { return device_.adapters && !device_.adapters->empty(); }
  // Whether an op of the kernel is that group's adapters'.
  bool adapts(WeightGroupId group) const {
    return std::ranges::any_of(own_ops_, [group](const Op& op) {
      const auto* shrink = std::get_if<AdapterShrink>(&op);
      const auto* expand = std::get_if<AdapterExpand>(&op);
      return (shrink && shrink->group == group) || (expand && expand->group == group);
    });
  }

  // Of the rows of a sample list every other asks for all that its ops can do.
  bool is_featured(size_t i) const { return is_sample_ && i % 2 == 0; }

  // The row state of the picked sequences; the device has that of the others.
  Status set_up_rows(Backend* backend) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const uint32_t sequence = sequence_of(tokens_[i]);
      if (i > 0 && sequence == sequence_of(tokens_[i - 1])) continue;
      IterationPlan plan = is_featured(i) ? featured_setup_plan(device_.shape, sequence, static_cast<uint32_t>(i),
                                                                device_.model->config.vocab_size)
                                          : probe_setup_plan(device_.shape, sequence, books_);
      if (Status status = apply_row_updates(std::move(plan), backend); !status) return status;
    }
    return {};
  }

  LoweredStep device_step() const {
    if (!is_sample_) return step_;
    IterationPlan plan = probe_plan(device_.shape, device_.model->config.vocab_size);
    if (has_adapters()) device_.adapters->give_to(&plan);
    for (size_t i = 0; i < rows_.size(); ++i) add_features(i, rows_[i], &plan);
    return lower(plan, device_.backend->caps(), num_tokens_, device_.shape.num_sequences);
  }

  LoweredStep reference_step() const {
    const IterationPlan whole = probe_plan(device_.shape, device_.model->config.vocab_size);
    IterationPlan plan;
    for (const uint32_t token : tokens_) {
      const auto i = static_cast<uint32_t>(plan.tokens.size()), sequence = sequence_of(token);
      plan.tokens.push_back(whole.tokens[token]);
      plan.samples.push_back({0, 0});
      plan.rows.push_back(
          {sequence, sequence, position_of(token), 1, i, i, 1, has_adapters() ? i + 1 : 0, false, 0, 0});
    }
    if (is_sample_)
      for (size_t i = 0; i < rows_.size(); ++i) add_features(i, static_cast<uint32_t>(i), &plan);
    return lower(plan, reference_->caps(), kRowsChecked, kRowsChecked);
  }

  // Of the i-th picked row, which is row `row_idx` of the plan.
  void add_features(size_t i, uint32_t row_idx, IterationPlan* plan) const {
    if (is_featured(i)) add_bias(row_idx, device_.model->config.vocab_size, plan);
    add_logprobs(row_idx, plan);
  }

  LoweredStep lower(const IterationPlan& plan, const Caps& caps, uint32_t tokens_max, uint32_t rows_max) const {
    Lowering lowering(device_.model, caps, tokens_max, rows_max);
    LoweredStep step;
    lowering.lower(plan, &step);
    return step;
  }

  Result<StepOutput> submit(Backend* backend, const SealedList& list, const LoweredStep& step) const {
    StepSubmission submission;
    if (is_sample_) {
      submission.sample = &list;
      submission.sample_inputs = step.sample_words;
      submission.num_sampled = step.num_sampled;
      submission.want_logprobs = logprobs_;
    } else {
      submission.forward = &list;
      submission.forward_inputs = step.forward_words;
    }
    Result<Ticket> ticket = backend->submit(submission);
    if (!ticket) return ticket.error();
    return backend->wait(*ticket);
  }

  // ---- inputs

  // Rows of the tensor that stand for the picked ones. The hidden tensor's are tokens in both lists.
  std::vector<uint32_t> picked(TensorId id) const {
    if (whole_.tensors[id].rows != Rows::kRouted) return whole_.tensors[id].rows == Rows::kTokens ? tokens_ : rows_;
    std::vector<uint32_t> routed;
    for (const uint32_t row : rows_)
      for (uint32_t k = 0; k < whole_.routed_per_row; ++k) routed.push_back(row * whole_.routed_per_row + k);
    return routed;
  }

  // The list to reach a tensor by: of a sample list, which has no tokens, the hidden tensor alone in a forward list.
  static std::pair<SealedList, TensorId> door(const SealedList& sealed, TensorId id, uint32_t num_tokens) {
    const OpList& list = sealed;
    if (list.tensors[id].storage != Storage::kHidden || list.num_tokens > 0) return {sealed, id};
    return {SealedList({"forward", num_tokens, 0, {list.tensors[id]}, {}}), 0};
  }

  Status write_both(TensorId id, bool poison) {
    const auto [sealed, own_id] = door(*list_, id, num_tokens_);
    const auto [reference, reference_id] = door(*reference_list_, id, static_cast<uint32_t>(tokens_.size()));
    const OpList &list = sealed, &reference_list = reference;
    const TensorDesc& tensor = list.tensors[own_id];
    const std::vector<std::byte> bytes =
        poison ? poisoned(list.bytes_of(own_id)) : random_numbers(tensor.dtype, list.bytes_of(own_id), id);
    if (Status status = device_.backend->write_tensor(sealed, own_id, bytes); !status) return status;
    if (poison)
      return reference_->write_tensor(reference, reference_id, poisoned(reference_list.bytes_of(reference_id)));
    return reference_->write_tensor(reference, reference_id,
                                    rows_of(bytes, uint64_t{tensor.columns} * dtype_bytes(tensor.dtype), picked(id)));
  }

  Status fill() {
    for (const TensorId id : excerpt_.inputs)
      if (Status status = write_both(id, false); !status) return status;
    for (const TensorId id : excerpt_.outputs)
      if (std::ranges::find(excerpt_.inputs, id) == excerpt_.inputs.end())
        if (Status status = write_both(id, true); !status) return status;
    return kv_ ? fill_kv() : Status{};
  }

  // The op reads or writes keys there; `scales`: it writes them.
  template <class T>
  void touch(const T& op, const KvTensorScales* scales) {
    if (!written_) kv_ = {op.kv_group, op.layer};
    if (scales) written_ = scales;
  }
  uint32_t kv_group() const { return kv_->group; }
  const KvGroup& pool() const { return device_.pools[kv_group()]; }
  uint32_t layer() const { return kv_->layer; }
  uint64_t block_bytes() const { return pool().data_bytes_block_layer() + pool().scale_bytes_block_layer(); }
  uint32_t block_of(uint32_t token) const {
    return sequence_of(token) * blocks_each() + position_of(token) / pool().block_tokens;
  }

  // The reference gets what the device has of the picked sequences.
  Status fill_kv() {
    std::vector<std::byte> bytes(block_bytes());
    if (written_)
      for (const uint32_t token : tokens_) {
        if (Status s = device_.backend->read_kv(kv_group(), layer(), block_of(token), bytes); !s) return s;
        poison_token(pool(), position_of(token) % pool().block_tokens, bytes);
        if (Status s = device_.backend->write_kv(kv_group(), layer(), block_of(token), bytes); !s) return s;
      }
    uint32_t last = ~0u;
    for (const uint32_t token : tokens_) {
      if (sequence_of(token) == last) continue;
      last = sequence_of(token);
      for (uint32_t block = last * blocks_each(); block < (last + 1) * blocks_each(); ++block) {
        if (Status s = device_.backend->read_kv(kv_group(), layer(), block, bytes); !s) return s;
        if (Status s = reference_->write_kv(kv_group(), 0, block, bytes); !s) return s;
      }
    }
    return {};
  }

  // ---- outputs

  Status compare_tensor(TensorId id, OpCheck* check) {
    const auto [sealed, own_id] = door(*list_, id, num_tokens_);
    const OpList &list = sealed, &reference_list = *reference_list_;
    std::vector<std::byte> bytes(list.bytes_of(own_id)), expected(reference_list.bytes_of(id));
    if (Status status = device_.backend->read_tensor(sealed, own_id, bytes); !status) return status;
    if (Status status = reference_->read_tensor(*reference_list_, id, expected); !status) return status;
    const TensorDesc& tensor = list.tensors[own_id];
    const std::vector<std::byte> found =
        rows_of(bytes, uint64_t{tensor.columns} * dtype_bytes(tensor.dtype), picked(id));
    if (id == kept_) {
      keep_nearest_to_bound(filter_difference(expected, found).relative(), kLogSumBound, check);
      return {};
    }
    Difference sum;
    const uint32_t columns = reference_list.tensors[id].columns, num_written = std::min(columns, columns_written(id));
    for (uint64_t row = 0; row < picked(id).size(); ++row)
      for (uint32_t c = 0; c < num_written; ++c)
        sum.add(reference::number_at(expected.data(), tensor.dtype, row * columns + c),
                reference::number_at(found.data(), tensor.dtype,
                                     row * tensor.columns + (weights_.columns.empty() ? c : weights_.columns[c])));
    keep_nearest_to_bound(sum.relative(), bound() + rounding_of(tensor.dtype), check);
    return {};
  }

  // Behind an adapter's own rank what adapter_shrink leaves is unspecified.
  uint32_t columns_written(TensorId id) const {
    for (const Op& op : own_ops_)
      if (const auto* shrink = std::get_if<AdapterShrink>(&op); shrink && shrink->y == id)
        return device_.adapters->rank_of(shrink->group);
    return ~0u;
  }

  void compare_results(const StepOutput& expected, const StepOutput& all, OpCheck* check) const {
    StepOutput found;
    for (const uint32_t row : rows_) {
      if (draws_ || logprobs_) found.results.push_back(all.results[row]);
      if (logprobs_) found.logprobs.push_back(all.logprobs[row]);
    }
    if (draws_) keep_nearest_to_bound(draw_difference(expected.results, found.results).relative(), kMarginBound, check);
    if (logprobs_) keep_nearest_to_bound(logprobs_difference(expected, found).relative(), kLogprobBound, check);
  }

  Status compare_kv(OpCheck* check) {
    Difference sum;
    std::vector<std::byte> found(block_bytes()), expected(block_bytes());
    for (const uint32_t token : tokens_) {
      if (Status s = device_.backend->read_kv(kv_group(), layer(), block_of(token), found); !s) return s;
      if (Status s = reference_->read_kv(kv_group(), 0, block_of(token), expected); !s) return s;
      const uint32_t offset = position_of(token) % pool().block_tokens;
      const std::vector<double> want = kv_numbers(pool(), expected, offset, *written_),
                                got = kv_numbers(pool(), found, offset, *written_);
      for (size_t i = 0; i < want.size(); ++i) sum.add(want[i], got[i]);
    }
    keep_nearest_to_bound(sum.relative(), bound() + rounding_of(pool().dtype), check);
    return {};
  }

  // Without the rounding of what comes out.
  double bound() const {
    const DType math = device_.backend->caps().activation_dtype;
    return bound_of(own_ops_, excerpt_, math, device_.shape.start + device_.shape.num_tokens);
  }

  const CheckedDevice& device_;
  const LoweredStep& step_;
  const OpList& whole_;
  const bool is_sample_;
  const Excerpt excerpt_;
  const std::vector<Op> own_ops_;
  const WeightExcerpt weights_;
  std::optional<SealedList> list_, reference_list_;  // the excerpt, and the reference's
  uint32_t num_tokens_ = 0;                          // of the step
  std::vector<uint32_t> rows_;                       // compared: tokens, or of a sample list its rows
  std::vector<uint32_t> tokens_;                     // the tokens of these rows
  struct KvPlace {
    uint32_t group, layer;
  };
  std::optional<KvPlace> kv_;                // of the keys that the ops touch
  const KvTensorScales* written_ = nullptr;  // of those that they write
  TensorId kept_ = kNoTensor;                // the filter's output
  bool draws_ = false, logprobs_ = false;
  std::unique_ptr<Backend> reference_;
  std::vector<KvPoolSize> books_;  // of the device's pools
};

}  // namespace

namespace {

// Attention of a list that expands latents: the picked tokens, each as a row of its own, would have the other form.
bool touches_expanded(const OpList& list, const Kernel& kernel) {
  if (std::ranges::none_of(list.ops, [](const Op& op) { return std::holds_alternative<ExpandLatent>(op); }))
    return false;
  return std::any_of(list.ops.begin() + kernel.first_op, list.ops.begin() + kernel.first_op + kernel.num_ops,
                     [](const Op& op) {
                       return std::holds_alternative<ExpandLatent>(op) || std::holds_alternative<PagedAttention>(op) ||
                              std::holds_alternative<LatentAttention>(op) || std::holds_alternative<HeadMatmul>(op);
                     });
}

}  // namespace

Result<OpCheck> check_kernel(const CheckedDevice& device, const LoweredStep& step, const Kernel& kernel) {
  const OpList& list = kernel.is_sample ? *step.sample : *step.forward;
  if (std::holds_alternative<UpdateRows>(list.ops[kernel.first_op]))
    return OpCheck{.what = "no updates in the step, no tensor written"};
  if (touches_expanded(list, kernel)) return OpCheck{.what = "not here: ops_test checks expanded latents"};
  const auto* shrink = std::get_if<AdapterShrink>(&list.ops[kernel.first_op]);
  if (shrink && kernel.num_ops == 1 && device.adapters->rank_of(shrink->group) == 0)
    return OpCheck{.what = "no adapter changes the matrix"};
  return Check(device, step, kernel).run();
}

}  // namespace llmrt::bench
