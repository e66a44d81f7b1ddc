#include "tools/llmrt_bench/ops/device_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace llmrt::bench {
namespace {

constexpr int kRuns = 10, kRunsLeast = 3, kRunsBefore = 2;
constexpr double kBudgetMs = 2000;  // of one limit, but for the least number of runs
constexpr uint64_t kCpuRangeBytes = 64ull << 20;
constexpr uint32_t kCpuMatrixSize = 512, kReadColumns = 8192, kCopyColumnsMax = 32768;
constexpr Encoding kMatrixEncodings[] = {Encoding::kF32, Encoding::kF16, Encoding::kBF16};

// f16 numbers in [-0.06, 0.06], never zeros: chips run faster on those. As bf16 or f32 they are finite too.
void random_halves(uint64_t byte_offset, std::span<std::byte> out) {
  for (size_t i = 0; i + 2 <= out.size(); i += 2) {
    const uint64_t h = (byte_offset + i) * 0x9e3779b97f4a7c15ull;
    const uint16_t half = static_cast<uint16_t>((h >> 48 & 0x83ffu) | (0x2400u + (h >> 33 & 0x0400u)));
    std::memcpy(out.data() + i, &half, 2);
  }
}

WeightId add_tensor(Encoding encoding, uint64_t rows, uint64_t columns, WeightTable* table) {
  const auto id = static_cast<WeightId>(table->tensors.size());
  table->tensors.push_back({fmt::format("matrix{}", id), encoding, rows, columns, nullptr, random_halves});
  return id;
}

WeightGroupId add_matrix(Encoding encoding, uint64_t rows, uint64_t columns, WeightTable* table) {
  const WeightId id = add_tensor(encoding, rows, columns, table);
  table->groups.push_back({fmt::format("matrix{}", id), {{id, 0, rows}}, -1, rows, columns});
  return static_cast<WeightGroupId>(table->groups.size() - 1);
}

// One op, its input and what a run of it counts for, in the unit's billions or trillions.
struct Work {
  std::string name, unit;
  OpList list;
  TensorId input = kNoTensor;
  double amount = 0;  // GB or TFLOP
};

TensorId add_pinned(const char* name, uint32_t columns, DType dtype, OpList* list) {
  return list->add_tensor({name, Rows::kTokens, columns, dtype, Storage::kPinned});
}

Work multiply(std::string name, const char* unit, uint32_t num_tokens, DType dtype, WeightGroupId group,
              const WeightTable& weights) {
  const WeightGroup& matrix = weights.groups[group];
  Work work{std::move(name), unit, {"forward", num_tokens, 0, {}, {}}};
  work.input = add_pinned("x", static_cast<uint32_t>(matrix.columns), dtype, &work.list);
  const TensorId out = add_pinned("out", static_cast<uint32_t>(matrix.rows), DType::kF32, &work.list);
  work.list.ops.emplace_back(Matmul{work.input, group, out});
  return work;
}

// In this order: copy, read, write, matrices.
std::vector<Work> all_work(const Caps& caps, WeightTable* weights) {
  const uint32_t size = caps.is_cpu ? kCpuMatrixSize : std::min(kMatrixSize, caps.step_tokens_max);
  const uint64_t range = std::min(caps.range_bytes_max, caps.is_cpu ? kCpuRangeBytes : kRangeBytes);
  const uint32_t columns = static_cast<uint32_t>(std::min<uint64_t>(range / 4 / size, kCopyColumnsMax) / 8 * 8);
  std::vector<Work> all;

  Work copy{"copy", "GB/s", {"forward", size, 0, {}, {}}};
  copy.input = add_pinned("x", columns, DType::kF32, &copy.list);
  copy.list.ops.emplace_back(Scale{copy.input, 1.5f, add_pinned("out", columns, DType::kF32, &copy.list)});
  copy.amount = 2e-9 * static_cast<double>(copy.list.bytes_of(copy.input));
  all.push_back(std::move(copy));

  const WeightGroupId large = add_matrix(Encoding::kF16, range / (kReadColumns * 2), kReadColumns, weights);
  Work read = multiply("read", "GB/s", 1, caps.activation_dtype, large, *weights);
  read.amount = 1e-9 * static_cast<double>(weights->tensors[weights->groups[large].segments[0].tensor].bytes());
  all.push_back(std::move(read));

  const WeightId row = add_tensor(Encoding::kF16, 1, columns, weights);
  Work write{"write", "GB/s", {"forward", size, 0, {}, {}}};
  write.input = add_pinned("tokens", 1, DType::kI32, &write.list);
  const TensorId written = add_pinned("out", columns, DType::kF32, &write.list);
  write.list.ops.emplace_back(Embed{write.input, row, written});
  write.amount = 1e-9 * static_cast<double>(write.list.bytes_of(written));
  all.push_back(std::move(write));

  std::vector<DType> dtypes{DType::kF32};
  if (caps.activation_dtype != DType::kF32) dtypes.push_back(caps.activation_dtype);
  for (const Encoding encoding : kMatrixEncodings) {
    const WeightGroupId square = add_matrix(encoding, size, size, weights);
    for (const DType dtype : dtypes) {
      Work matrix = multiply(fmt::format("{} x {}", dtype_name(dtype), encoding_name(encoding)), "TFLOP/s", size, dtype,
                             square, *weights);
      matrix.amount = 2e-12 * size * size * size;
      all.push_back(std::move(matrix));
    }
  }
  return all;
}

StateConfig state_for(std::span<const Work> all, const Backend& backend) {
  StateConfig state;
  state.sample_rows_max = state.slots_max = state.penalty_rows_max = state.blocks_row_max = 1;
  state.partials_max = state.heads_max = 1;
  state.head_dim_max = state.hidden_columns = state.vocab_size = 64;
  for (const Work& work : all) {
    state.step_tokens_max = std::max(state.step_tokens_max, work.list.num_tokens);
    state.arena_bytes = std::max(state.arena_bytes, backend.arena_bytes(work.list));
  }
  state.forward_words_max = kForwardHeadersWords + 64 + 2ull * state.step_tokens_max;
  state.sample_words_max = kSampleHeaderWords + 64;
  return state;
}

std::vector<std::byte> input_bytes(const Work& work) {
  std::vector<std::byte> bytes(work.list.bytes_of(work.input));
  const DType dtype = work.list.tensors[work.input].dtype;
  if (dtype == DType::kF16 || dtype == DType::kBF16) random_halves(0, bytes);
  if (dtype == DType::kF32)  // floats near 1
    for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
      const float value = 1.0f + static_cast<float>(i % 1021) * 1e-3f;
      std::memcpy(bytes.data() + i, &value, 4);
    }
  return bytes;  // token ids: all 0
}

Result<Limit> measure(const Work& work, Backend* backend) {
  const SealedList list(work.list);
  if (Status status = backend->write_tensor(list, work.input, input_bytes(work)); !status) return status.error();
  ForwardInputs step;
  step.tokens.assign(work.list.num_tokens, 0);
  step.token_rows.assign(work.list.num_tokens, 0);
  std::vector<uint32_t> words;
  pack(step, &words);
  Limit limit{work.name, work.unit, 0, {}};
  double spent_ms = 0;
  for (int run = 0; run < kRunsBefore + (spent_ms < kBudgetMs ? kRuns : kRunsLeast); ++run) {
    Result<Ticket> ticket = backend->submit({.forward = &list, .forward_inputs = words});
    if (!ticket) return ticket.error();
    Result<StepOutput> output = backend->wait(*ticket);
    if (!output) return output.error();
    spent_ms += output->forward_ms;
    if (run >= kRunsBefore) limit.samples.push_back(work.amount / output->forward_ms * 1e3);
  }
  limit.best = *std::ranges::max_element(limit.samples);
  return limit;
}

}  // namespace

double DeviceLimits::matrix_tflop_s() const {
  double best = 0;
  for (const Limit& limit : matrix) best = std::max(best, limit.best);
  return best;
}

void record_limits(const DeviceLimits& limits, Record* record) {
  const auto add = [&](const std::string& name, const Limit& limit) {
    record->add({"limit: " + name, limits.caps.device_id, {{"rate", limit.unit, limit.best, limit.samples}}});
  };
  for (const Limit* limit : {&limits.read, &limits.write, &limits.copy}) add(limit->name, *limit);
  for (const Limit& limit : limits.matrix) add(limit.name, limit);
}

Result<DeviceLimits> measure_limits(std::unique_ptr<Backend> backend) {
  DeviceLimits limits;
  limits.caps = backend->caps();
  WeightTable weights;
  const std::vector<Work> all = all_work(limits.caps, &weights);
  if (Status status = backend->load_weights(weights, {}); !status) return status.error();
  if (Status status = backend->create_state(state_for(all, *backend)); !status) return status.error();
  for (const Work& work : all) {
    Result<Limit> limit = measure(work, backend.get());
    const bool is_matrix = work.unit == "TFLOP/s";
    if (!limit && is_matrix && limit.error().code == ErrorCode::kUnsupported) continue;  // no such pair there
    if (!limit) return limit.error();
    if (is_matrix)
      limits.matrix.push_back(*std::move(limit));
    else
      (limit->name == "copy" ? limits.copy : limit->name == "read" ? limits.read : limits.write) = *std::move(limit);
  }
  return limits;
}

}  // namespace llmrt::bench
