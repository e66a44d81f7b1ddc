#include "tests/ops/op_harness.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <optional>
#include <set>

#include "core/backend/validating.h"
#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "tests/ops/coverage.h"
#include "tests/ops/test_devices.h"
#include "tests/reference/backend.h"

namespace llmrt::optest {
namespace {

// A NaN in f32, f16 and bf16, and a number that no i32 output has.
constexpr uint32_t kPoison = 0x7fc17fc1u;

std::vector<std::byte> poisoned(uint64_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  for (uint64_t i = 0; i < num_bytes; ++i) bytes[i] = static_cast<std::byte>(kPoison >> (i % 4 * 8));
  return bytes;
}

void encode(const std::vector<double>& values, DType dtype, std::byte* out) {
  for (double x : values) {
    const auto put = [&](auto number) {
      std::memcpy(out, &number, sizeof(number));
      out += sizeof(number);
    };
    switch (dtype) {
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

bool is_visible(const OpList& list, TensorId id) {
  return list.tensors[static_cast<size_t>(id)].storage != Storage::kArena;
}
bool has_pinned(const OpList& list) {
  for (const TensorDesc& tensor : list.tensors)
    if (tensor.storage == Storage::kPinned) return true;
  return false;
}

Result<StepOutput> execute_step(Backend& backend, const Step& step,
                                std::map<TensorId, std::vector<std::byte>>* tensors) {
  const SealedList memory(step.memory), forward(step.forward), sample(step.sample);
  const SealedList& sealed = &step.tensor_list() == &step.forward ? forward : sample;
  const OpList& list = sealed;
  LLMRT_CHECK(step.forward.tensors.empty() || !has_pinned(step.sample), "pinned tensors in both lists");
  for (TensorId id = 0; id < static_cast<TensorId>(list.tensors.size()); ++id)
    if (is_visible(list, id))
      if (Status status = backend.write_tensor(sealed, id, bytes_before(step, id)); !status) return status.error();
  std::vector<uint32_t> forward_words, sample_words;
  pack(step.forward_inputs, &forward_words);
  pack(step.sample_inputs, &sample_words);
  StepSubmission submission;
  submission.forward_inputs = forward_words;
  if (!step.memory.ops.empty()) submission.memory = &memory;
  if (!step.forward.ops.empty()) submission.forward = &forward;
  if (!step.sample.ops.empty()) {
    submission.sample = &sample;
    submission.sample_inputs = sample_words;
    submission.num_sampled = static_cast<uint32_t>(step.sample_inputs.records.size());
    submission.want_logprobs = step.want_logprobs;
  }
  auto ticket = backend.submit(submission);
  if (!ticket) return ticket.error();
  auto output = backend.wait(*ticket);
  if (!output) return output.error();
  for (TensorId id = 0; id < static_cast<TensorId>(list.tensors.size()); ++id) {
    if (!is_visible(list, id)) continue;
    std::vector<std::byte>& bytes = (*tensors)[id];
    bytes.resize(list.bytes_of(id));
    if (Status status = backend.read_tensor(sealed, id, bytes); !status) return status.error();
  }
  return output;
}

// The reason why a device can not be asked for this case, or nothing.
std::string cannot_run(const Backend& backend, const Case& test_case) {
  const std::vector<std::string> unsupported = backend.unsupported();
  for (const Step& step : test_case.steps)
    for (const auto* ops : {&step.memory.ops, &step.forward.ops, &step.sample.ops})
      for (const Op& op : *ops)
        if (std::find(unsupported.begin(), unsupported.end(), op_name(op)) != unsupported.end())
          return fmt::format("no kernel for {}", op_name(op));
  const Caps& caps = backend.caps();
  for (const KvGroup& group : test_case.groups) {
    if (std::find(caps.kv_dtypes.begin(), caps.kv_dtypes.end(), group.dtype) == caps.kv_dtypes.end())
      return fmt::format("no {} KV", kv_dtype_name(group.dtype));
    const uint32_t most = group.keys_only ? caps.latent_row_max : caps.head_dim_max;
    if (group.head_dim > most) return fmt::format("head_dim at most {}", most);
  }
  return "";
}

// A device is asked for f32 and for the one narrow dtype that it wants its lists in.
bool has_foreign_dtype(const Backend& backend, const Case& test_case) {
  for (const Step& step : test_case.steps)
    for (const TensorDesc& tensor : step.tensor_list().tensors)
      if (dtype_bytes(tensor.dtype) == 2 && tensor.dtype != backend.caps().activation_dtype) return true;
  return false;
}

Status start(Backend& backend, const Suite& suite) {
  if (Status status = backend.load_weights(suite.weights, {}); !status) return status;
  if (Status status = backend.add_f16_copies(suite.f16_copies_max); !status) return status;
  return backend.create_state(state_config(suite, backend));
}

std::string describe(const Case& test_case) {
  std::string text;
  for (const Step& step : test_case.steps)
    for (const OpList* list : {&step.memory, &step.forward, &step.sample})
      if (!list->ops.empty()) text += print(*list);
  return text;
}

// The reference's answers, worked out when a device first needs them.
class Oracle {
 public:
  explicit Oracle(const Suite& suite) : suite_(suite), outcomes_(suite.cases.size()) {
    const Status status = start(*backend_, suite);
    INFO((status ? "" : status.error().message));
    REQUIRE(status.ok());
  }
  const Outcome& expected(size_t case_idx) {
    if (!outcomes_[case_idx]) {
      const Case& test_case = suite_.cases[case_idx];
      auto outcome = execute(*backend_, test_case, suite_.weights.groups.size());
      INFO("reference: " << test_case.name << ": " << (outcome ? "" : outcome.error().message) << "\n"
                         << describe(test_case));
      REQUIRE(outcome.ok());
      outcomes_[case_idx] = std::move(*outcome);
    }
    return *outcomes_[case_idx];
  }

 private:
  const Suite& suite_;
  std::unique_ptr<Backend> backend_ = make_validating(make_reference_backend());
  std::vector<std::optional<Outcome>> outcomes_;
};

// Returns why cases were skipped.
std::set<std::string> run_on(const std::string& device, const Suite& suite, Oracle& oracle) {
  std::set<std::string> skips;
  auto opened = open_test_device(device);
  if (!opened) {
    FAIL_CHECK(device << ": " << opened.error().message);
    return skips;
  }
  const std::unique_ptr<Backend> validating = make_validating(std::move(*opened));
  Backend& backend = *validating;
  if (Status status = start(backend, suite); !status) {
    FAIL_CHECK(device << ": start: " << status.error().message);
    return skips;
  }
  for (size_t i = 0; i < suite.cases.size(); ++i) {
    const Case& test_case = suite.cases[i];
    if (has_foreign_dtype(backend, test_case)) continue;
    std::string reason = cannot_run(backend, test_case);
    if (reason.empty()) {
      const auto actual = execute(backend, test_case, suite.weights.groups.size());
      if (actual) {
        const auto failures = compare(test_case, oracle.expected(i), *actual, backend.caps());
        INFO(device << ": " << test_case.name << " (--rng-seed " << Catch::getSeed() << ")\n" << describe(test_case));
        for (const std::string& failure : failures) FAIL_CHECK(failure);
        if (failures.empty()) SUCCEED();
        record_coverage(device, test_case, failures.empty() ? Verdict::kPassed : Verdict::kFailed);
        continue;
      }
      if (actual.error().code != ErrorCode::kUnsupported) {
        FAIL_CHECK(device << ": " << test_case.name << ": " << actual.error().message << "\n" << describe(test_case));
        record_coverage(device, test_case, Verdict::kFailed);
        if (actual.error().code == ErrorCode::kDeviceLost) return skips;
        continue;
      }
      reason = actual.error().message;
    }
    record_coverage(device, test_case, Verdict::kSkipped);
    skips.insert(device + ": " + reason);
  }
  return skips;
}

}  // namespace

std::vector<std::byte> bytes_before(const Step& step, TensorId id) {
  const OpList& list = step.tensor_list();
  std::vector<std::byte> bytes = poisoned(list.bytes_of(id));
  for (const Fill& fill : step.fills)
    if (fill.tensor == id) encode(fill.values, list.tensors[static_cast<size_t>(id)].dtype, bytes.data());
  return bytes;
}

Outcome reference_outcome(const Suite& suite, const Case& test_case) {
  const auto backend = make_reference_backend();
  REQUIRE(backend->load_weights(suite.weights, {}).ok());
  REQUIRE(backend->create_state(state_config(suite, *backend)).ok());
  auto outcome = execute(*backend, test_case, suite.weights.groups.size());
  REQUIRE(outcome.ok());
  return *std::move(outcome);
}

AdapterPoolBytes adapter_pool(const std::vector<AdapterOf>& adapters, size_t num_groups, DType dtype) {
  AdapterPoolBytes pool;
  for (const AdapterOf& adapter : adapters) pool.config.slots_max = std::max(pool.config.slots_max, adapter.slot + 1);
  pool.bytes.resize(pool.config.slots_max * num_groups * sizeof(AdapterEntry));
  const auto append = [&](const std::vector<double>& numbers) {
    const size_t first = pool.bytes.size();
    pool.bytes.resize(first + round_up<size_t>(numbers.size() * dtype_bytes(dtype), kAdapterAlignment));
    encode(numbers, dtype, pool.bytes.data() + first);
    return static_cast<uint32_t>(first / kAdapterAlignment);
  };
  for (const AdapterOf& adapter : adapters) {
    AdapterEntry entry{.num_parts = static_cast<uint32_t>(adapter.parts.size())};
    entry.expert_first = adapter.expert_first;
    entry.num_experts = adapter.num_experts;
    const uint32_t experts = std::max(adapter.num_experts, 1u);
    const uint32_t num_a = adapter.shares_a ? 1 : experts, num_b = adapter.shares_b ? 1 : experts;
    const auto stride = [&](uint32_t matrices, size_t numbers) {
      return matrices == 1 ? 0 : static_cast<uint32_t>(numbers / matrices * dtype_bytes(dtype) / kAdapterAlignment);
    };
    std::vector<double> a;
    uint32_t rows = 0;
    for (uint32_t p = 0; p < entry.num_parts; ++p) {
      const AdapterPart& part = adapter.parts[p];
      const uint32_t rank = round_up(part.rank, kAdapterRankStep);
      std::vector<double> b(size_t{num_b} * part.num_rows * rank, 0.0);
      for (size_t n = 0; n < size_t{num_b} * part.num_rows && rank > 0; ++n)
        std::copy_n(part.b.begin() + static_cast<int64_t>(n * part.rank), part.rank,
                    b.begin() + static_cast<int64_t>(n * rank));
      if (rank > 0) entry.b_offset[p] = append(b);
      entry.b_stride[p] = stride(num_b, b.size());
      entry.rank += rank;
      entry.rank_end[p] = entry.rank;
      entry.row_end[p] = rows += part.num_rows;
      entry.scale[p] = part.scale;
    }
    for (uint32_t e = 0; e < num_a; ++e)
      for (const AdapterPart& part : adapter.parts) {
        const size_t numbers = part.a.size() / num_a, columns = part.rank == 0 ? 0 : numbers / part.rank;
        a.insert(a.end(), part.a.begin() + static_cast<int64_t>(e * numbers),
                 part.a.begin() + static_cast<int64_t>((e + 1) * numbers));
        a.insert(a.end(), (round_up(part.rank, kAdapterRankStep) - part.rank) * columns, 0.0);
      }
    entry.a_offset = append(a);
    entry.a_stride = stride(num_a, a.size());
    const size_t index = adapter.slot * num_groups + static_cast<size_t>(adapter.group);
    std::memcpy(pool.bytes.data() + index * sizeof(AdapterEntry), &entry, sizeof(AdapterEntry));
  }
  pool.config.bytes = pool.bytes.size();
  return pool;
}

Result<Outcome> execute(Backend& backend, const Case& test_case, size_t num_groups) {
  if (!test_case.adapters.empty()) {
    const AdapterPoolBytes pool = adapter_pool(test_case.adapters, num_groups, backend.caps().activation_dtype);
    if (Status status = backend.create_adapter_pool(pool.config); !status) return status.error();
    if (Status status = backend.write_adapter_pool(0, pool.bytes); !status) return status.error();
  }
  if (!test_case.groups.empty())
    if (Status status = backend.create_kv_pools(test_case.groups); !status) return status.error();
  for (uint32_t g = 0; g < test_case.kv.size(); ++g)
    for (uint32_t layer = 0; layer < test_case.kv[g].size(); ++layer)
      for (uint32_t block = 0; block < test_case.kv[g][layer].size(); ++block)
        if (Status status = backend.write_kv(g, layer, block, test_case.kv[g][layer][block]); !status)
          return status.error();
  Outcome outcome;
  for (const Step& step : test_case.steps) {
    auto output = execute_step(backend, step, &outcome.tensors.emplace_back());
    if (!output) return output.error();
    outcome.outputs.push_back(std::move(*output));
  }
  outcome.kv = test_case.kv;
  for (uint32_t g = 0; g < outcome.kv.size(); ++g)
    for (uint32_t layer = 0; layer < outcome.kv[g].size(); ++layer)
      for (uint32_t block = 0; block < outcome.kv[g][layer].size(); ++block)
        if (Status status = backend.read_kv(g, layer, block, outcome.kv[g][layer][block]); !status)
          return status.error();
  return outcome;
}

StateConfig state_config(const Suite& suite, const Backend& backend) {
  StateConfig config;
  config.step_tokens_max = config.sample_rows_max = 1;
  config.slots_max = suite.slots_max;
  config.penalty_rows_max = suite.penalty_rows_max;
  config.vocab_size = suite.vocab_size;
  config.blocks_row_max = config.heads_max = config.head_dim_max = config.hidden_columns = 1;
  const auto raise = [](auto& limit, uint64_t value) {
    limit = std::max<std::remove_reference_t<decltype(limit)>>(
        limit, static_cast<std::remove_reference_t<decltype(limit)>>(value));
  };
  std::vector<uint32_t> words;
  for (const Case& test_case : suite.cases) {
    raise(config.num_kv_groups, test_case.groups.size());
    for (const Step& step : test_case.steps) {
      raise(config.step_tokens_max, step.forward.num_tokens);
      raise(config.step_tokens_max, step.sample.num_tokens);
      raise(config.sample_rows_max, step.sample.num_sampled);
      for (const AttentionWork& work : step.forward_inputs.attention) raise(config.partials_max, work.num_partials);
      for (const RowUpdate& update : step.forward_inputs.row_updates)
        if (update.kind == RowUpdateKind::kPatchTable) raise(config.blocks_row_max, update.arg0 + update.payload_words);
      for (const OpList* list : {&step.forward, &step.sample}) {
        raise(config.arena_bytes, backend.arena_bytes(*list));
        for (const TensorDesc& tensor : list->tensors)
          if (tensor.storage == Storage::kHidden) raise(config.hidden_columns, tensor.columns);
        for (const Op& op : list->ops) {
          if (const auto* attention = std::get_if<PagedAttention>(&op)) {
            raise(config.heads_max, attention->num_heads);
            raise(config.head_dim_max, attention->head_dim);
          }
          if (const auto* latent = std::get_if<LatentAttention>(&op)) {
            raise(config.heads_max, latent->num_heads);
            raise(config.head_dim_max, latent->rank);
          }
        }
      }
      pack(step.forward_inputs, &words);
      raise(config.forward_words_max, words.size());
      pack(step.sample_inputs, &words);
      raise(config.sample_words_max, words.size());
    }
  }
  return config;
}

void run(const Suite& suite) {
  const std::vector<std::string> devices = test_devices();
  if (devices.empty()) SKIP("no device: " << (absent_devices().empty() ? "none wanted" : absent_devices().front()));
  Oracle oracle(suite);
  std::string skipped;
  for (const std::string& device : devices)
    for (const std::string& reason : run_on(device, suite, oracle)) skipped += reason + "\n";
  if (!skipped.empty()) SKIP(skipped);
}

}  // namespace llmrt::optest
