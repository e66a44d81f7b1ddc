// Aim: `llmrt-bench ops` counts a step's kernels and their least work as they are, and takes no wrong number for a
// right one. Method: the lists of known models; a model of two layers on the reference itself, plain and with one bug
// planted at a time behind the Backend interface, of which exactly the kernel that has it must be found.
#include "tools/llmrt_bench/ops/op_report.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <set>

#include "core/backend/forwarding.h"
#include "core/model/model.h"
#include "tests/reference/backend.h"
#include "tools/llmrt_bench/ops/excerpt.h"

using namespace llmrt;
using namespace llmrt::bench;
using Catch::Approx;

namespace {

std::shared_ptr<const Model> model_of(const char* path) {
  auto model = load_model(path);
  REQUIRE(model.ok());
  return *model;
}

// Two layers; other layers' weights are empty.
std::shared_ptr<Model> small_model(const char* path = "synthetic:smollm2-135m:q4_1") {
  auto model = std::make_shared<Model>(*model_of(path));
  model->config.layers.resize(2);
  model->layers.resize(2);
  for (WeightTensor& tensor : model->weights.tensors)
    if (tensor.name.starts_with("blk.") && !tensor.name.starts_with("blk.0.") && !tensor.name.starts_with("blk.1."))
      tensor.rows = 0;
  return model;
}

constexpr uint32_t kWindow = 8;

// The first of the two layers sees so many positions, the other one all.
std::shared_ptr<const Model> windowed_model() {
  std::shared_ptr<Model> model = small_model();
  model->config.layers[0].attention = AttentionKind::kWindow;
  model->config.layers[0].window = kWindow;
  assign_cache_groups(model->config.layers);
  return model;
}

// Each token goes to two of four experts; few tokens are known.
std::shared_ptr<const Model> model_with_experts() {
  constexpr uint32_t kExperts = 4, kVocab = 512;
  std::shared_ptr<Model> model = small_model("synthetic:qwen3-30b-a3b:q4_0");
  const uint32_t all = model->config.layers[0].experts.count, vocab = model->config.vocab_size;
  for (LayerSpec& layer : model->config.layers) {
    layer.experts.count = kExperts;
    layer.experts.used = 2;
  }
  model->config.vocab_size = kVocab;
  for (WeightTensor& tensor : model->weights.tensors) {
    if (tensor.name.find("_exps.") != std::string::npos) tensor.rows = tensor.rows / all * kExperts;
    if (tensor.name.find("gate_inp") != std::string::npos) tensor.rows = std::min<uint64_t>(tensor.rows, kExperts);
    if (tensor.rows == vocab) tensor.rows = kVocab;
  }
  for (WeightGroup& group : model->weights.groups) {
    if (group.num_experts == 0 && group.rows != vocab) continue;
    group.num_experts = group.num_experts > 0 ? kExperts : 0;
    group.rows = 0;
    for (RowSegment& segment : group.segments) {
      segment.num_rows = group.num_experts > 0 ? segment.num_rows / all * kExperts : kVocab;
      group.rows += segment.num_rows;
    }
  }
  return model;
}

// The step that `shape` is, lowered for a device of no kernels.
struct Lowered {
  Lowering lowering;
  LoweredStep step;
  Lowered(const std::shared_ptr<const Model>& model, const Caps& caps, const ProbeShape& shape)
      : lowering(model, caps, 2048, 256) {
    lowering.lower(probe_plan(shape, model->config.vocab_size), &step);
  }
  size_t num_ops() const { return step.forward->list.ops.size() + step.sample->list.ops.size(); }
};

const Kernel& find(const std::vector<Kernel>& kernels, const std::string& name) {
  const auto found = std::ranges::find(kernels, name, &Kernel::name);
  INFO(name);
  REQUIRE(found != kernels.end());
  return *found;
}

DeviceLimits some_limits(const Caps& caps) {
  DeviceLimits limits;
  limits.caps = caps;
  limits.read = {"read", "GB/s", 100, {100}};
  limits.write = {"write", "GB/s", 50, {50}};
  limits.copy = {"copy", "GB/s", 80, {80}};
  limits.matrix = {{"f32 x f32", "TFLOP/s", 1, {1}}};
  return limits;
}

// What a list needs of an arena on a device that runs each of the joined ops with the op before it. The list's first op
// is `first` of all.
uint64_t arena_of(const OpList& list, const std::vector<bool>& joined, size_t first) {
  std::vector<int> lives_with(list.ops.size());
  for (size_t op = list.ops.size(); op-- > 0;) {
    const bool joins = op + 1 < list.ops.size() && joined[first + op + 1];
    lives_with[op] = joins ? lives_with[op + 1] : static_cast<int>(op);
  }
  return plan_arena(list, 256, lives_with).bytes;
}

enum class Bug { kNone, kNumberOff, kNotWritten, kKeyNotStored, kAnotherToken };

// Spoils what the kernel with `op` in it leaves behind, when it runs alone.
class Spoiled final : public ForwardingBackend {
 public:
  Spoiled(Bug bug, std::string op) : ForwardingBackend(make_reference_backend()), bug_(bug), op_(std::move(op)) {}

  Result<Ticket> submit(const StepSubmission& step) override {
    is_alone_ = false;
    for (const SealedList* sealed : {step.forward, step.sample})
      is_alone_ = is_alone_ || (sealed && sealed->list.ops.size() <= 4 && op_name(sealed->list.ops.back()) == op_);
    if (!is_alone_ || (bug_ != Bug::kNotWritten && bug_ != Bug::kKeyNotStored)) return ForwardingBackend::submit(step);
    OpList without = step.forward ? step.forward->list : step.sample->list;
    without.ops.pop_back();
    without.ops.push_back(UpdateRows{});  // keys differ, so tensors do too: nothing of theirs is written
    const SealedList sealed(without);
    StepSubmission less = step;
    (step.forward ? less.forward : less.sample) = &sealed;
    return ForwardingBackend::submit(less);
  }
  Result<StepOutput> wait(Ticket ticket) override {
    Result<StepOutput> output = ForwardingBackend::wait(ticket);
    if (output && is_alone_ && bug_ == Bug::kAnotherToken) output->results[0].token ^= 1;
    return output;
  }
  Status read_tensor(const SealedList& list, TensorId id, std::span<std::byte> bytes) override {
    Status status = ForwardingBackend::read_tensor(list, id, bytes);
    if (!status || !is_alone_ || bug_ != Bug::kNumberOff) return status;
    float number;
    std::memcpy(&number, bytes.data(), 4);
    number += 0.5f;
    std::memcpy(bytes.data(), &number, 4);
    return status;
  }

 private:
  Bug bug_;
  std::string op_;
  bool is_alone_ = false;
};

// The figures of a step of three rows at depth 20.
StepFigures run_on(std::unique_ptr<Backend> backend, uint32_t runs = 1,
                   const std::shared_ptr<const Model>& model = small_model(), uint32_t num_adapters = 0) {
  EngineConfig config;
  config.context_max = 32;
  config.sequences_max = config.sample_rows_max = 4;
  config.step_tokens_max = 16;
  config.kv_tokens = 256;
  config.adapters = {.slots = num_adapters, .rank_max = 16, .planned_rank = 12};
  const DeviceLimits limits = some_limits(backend->caps());
  auto device = prepare_device(limits, std::move(backend), model, config);
  INFO((device ? "" : device.error().message));
  REQUIRE(device.ok());
  std::vector<BenchDevice> devices;
  devices.push_back(*std::move(device));
  const StepKind kind{"decode x3", {3, 1, 20, 1, 16}, num_adapters};
  auto figures = bench_step(model, kind, {runs, true}, &devices, [](const std::string&) {});
  INFO((figures ? "" : figures.error().message));
  REQUIRE(figures.ok());
  return std::move(figures->front());
}

std::vector<MeasuredStep> measured(const StepFigures& figures) {
  std::vector<MeasuredStep> all(1);
  all[0].kind.name = "decode x3";
  all[0].devices.push_back(figures);
  return all;
}

std::set<std::string> wrong_kernels(const StepFigures& figures) {
  std::set<std::string> names;
  for (const KernelFigures& kernel : figures.kernels)
    if (kernel.check.is_wrong()) names.insert(kernel.kernel.name);
  return names;
}

}  // namespace

TEST_CASE("a step's ops are counted by what they compute, and none is left out") {
  const auto model = model_of("synthetic:smollm2-135m:q4_1");
  const ProbeShape shape{8, 1, 64, 1, 16};
  const Lowered lowered(model, {}, shape);
  const CostSizes sizes = probe_sizes(shape, model->config, KvDType::kF16);
  const auto kernels =
      step_kernels(lowered.step, *model, sizes, sizes, KvDType::kF16, std::vector<bool>(lowered.num_ops(), false));
  std::set<uint32_t> ops;
  for (const Kernel& kernel : kernels) ops.insert(kernel.op_idxs.begin(), kernel.op_idxs.end());
  CHECK(ops.size() == lowered.num_ops());
  CHECK(find(kernels, "matmul qkv").op_idxs.size() == 30);
  CHECK(find(kernels, "matmul qkv").encoding == "q4_1");
  CHECK(find(kernels, "matmul qkv").shape == "[8, 576] x [960, 576]");
  CHECK(find(kernels, "matmul head").op_idxs.size() == 1);
  CHECK(find(kernels, "rms_norm with residual").op_idxs.size() == 59);
  CHECK(find(kernels, "rms_norm").op_idxs.size() == 2);  // the first layer's, and that before the head
  CHECK(find(kernels, "paged_attention").encoding == "KV f16");
  CHECK(find(kernels, "paged_attention").cost.flops == 4.0 * 8 * 65 * 576);
}

TEST_CASE("ops that run as one hand their numbers on without memory") {
  const auto model = model_of("synthetic:smollm2-135m:q4_1");
  const ProbeShape shape{1, 64, 0, 1, 16};
  const Lowered lowered(model, {}, shape);
  const CostSizes sizes = probe_sizes(shape, model->config, KvDType::kF16);
  std::vector<bool> joined(lowered.num_ops(), false);
  for (size_t op = 0; op < lowered.step.forward->list.ops.size(); ++op)
    joined[op] = std::holds_alternative<GatedActivation>(lowered.step.forward->list.ops[op]) ||
                 std::holds_alternative<KvWrite>(lowered.step.forward->list.ops[op]);
  const auto kernels = step_kernels(lowered.step, *model, sizes, sizes, KvDType::kF16, joined);
  const Kernel& activated = find(kernels, "matmul gate_up + gated_activation");
  CHECK(activated.cost.bytes == 3072.0 * 576 * 20 / 32 + 64 * 576 * 4 + 64 * 1536 * 4);
  CHECK(activated.written_bytes == 64 * 1536 * 4);
  CHECK(activated.cost.flops == 2.0 * 64 * 3072 * 576 + 6.0 * 64 * 1536);
  const Kernel& stored = find(kernels, "rope + kv_write");
  CHECK(stored.cost.bytes == 64 * 960 * 4 * 2 + 64 * 2 * 3 * 64 * 2);
}

TEST_CASE("the floor is the slower of memory, by the mix of reading and writing, and arithmetic") {
  const DeviceLimits limits = some_limits({});
  Kernel kernel;
  kernel.cost = {1e6, 1e6};
  CHECK(floor_us(kernel, limits) == Approx(10));  // 1 MB read at 100 GB/s
  kernel.written_bytes = 5e5;
  CHECK(floor_us(kernel, limits) == Approx(12.5));
  kernel.written_bytes = 1e6;
  CHECK(floor_us(kernel, limits) == Approx(20));
  kernel.cost.flops = 1e9;
  CHECK(floor_us(kernel, limits) == Approx(1000));
}

TEST_CASE("each kernel alone fits the arena of the steps that it comes from") {
  Caps caps;
  caps.activation_dtype = DType::kF16;
  for (const char* path : {"synthetic:llama-3.1-8b:q4_0", "synthetic:qwen3-0.6b:f16", "synthetic:gpt-oss-20b:q8_0"}) {
    const auto model = model_of(path);
    for (const ProbeShape& shape : {ProbeShape{256, 1, 512, 1, 16}, ProbeShape{1, 2048, 0, 1, 16}}) {
      const Lowered lowered(model, caps, shape);
      for (const bool fused : {false, true}) {
        std::vector<bool> joined;
        for (const OpList* list : {&lowered.step.forward->list, &lowered.step.sample->list})
          for (size_t op = 0; op < list->ops.size(); ++op)
            joined.push_back(fused && op > 0 && std::holds_alternative<Matmul>(list->ops[op - 1]) &&
                             !std::holds_alternative<ApplyPenalties>(list->ops[op]));
        const OpList &forward = *lowered.step.forward, &sample = *lowered.step.sample;
        const uint64_t arena_bytes =
            std::max(arena_of(forward, joined, 0), arena_of(sample, joined, forward.ops.size()));
        const CostSizes sizes = probe_sizes(shape, model->config, KvDType::kF16);
        for (const Kernel& kernel : step_kernels(lowered.step, *model, sizes, sizes, KvDType::kF16, joined)) {
          const OpList& list = kernel.is_sample ? sample : forward;
          const OpList alone = excerpt_of(list, kernel.first_op, kernel.num_ops).list;
          std::vector<bool> joined_alone(alone.ops.size());
          for (size_t op = 1; op < kernel.num_ops; ++op) joined_alone[alone.ops.size() - op] = true;
          INFO(path << " " << kernel.label());
          CHECK(arena_of(alone, joined_alone, 0) <= arena_bytes);
        }
      }
    }
  }
}

TEST_CASE("of a large product rows of all segments are multiplied, the first and the last among them") {
  const auto model = model_of("synthetic:llama-3.1-8b:q4_0");
  const WeightGroupId group = model->layers[0].gate_up;
  OpList list{"forward", 1, 0, {}, {}};
  const TensorId x = list.add_tensor({"x", Rows::kTokens, 4096, DType::kF32, Storage::kPinned});
  const TensorId out = list.add_tensor({"out", Rows::kTokens, 28672, DType::kF32, Storage::kPinned});
  list.ops.emplace_back(Matmul{x, group, out});
  const WeightExcerpt excerpt = weight_excerpt_of(model->weights, list);
  const WeightGroup& cut = excerpt.table.groups[group];
  REQUIRE(cut.rows == excerpt.columns.size());
  CHECK(cut.rows * cut.columns <= 1u << 25);
  CHECK(cut.rows > 4096);
  CHECK(std::ranges::is_sorted(excerpt.columns));
  for (const uint32_t column : {0u, 14335u, 14336u, 28671u}) CHECK(std::ranges::count(excerpt.columns, column) == 1);
  // The numbers are those of the rows.
  const WeightTensor &up = model->weights.tensors[model->weights.groups[group].segments[1].tensor],
                     &up_cut = excerpt.table.tensors[cut.segments[1].tensor];
  std::vector<std::byte> expected(up.bytes_row()), found(up_cut.bytes());
  up.generate((up.rows - 1) * up.bytes_row(), expected);
  up_cut.generate(0, found);
  CHECK(std::memcmp(expected.data(), found.data() + found.size() - expected.size(), expected.size()) == 0);
}

TEST_CASE("the reference agrees with itself, and what cannot be compared says why") {
  const StepFigures figures = run_on(make_reference_backend(), 3);
  REQUIRE(figures.missing.empty());
  CHECK(figures.step_ms.size() == 3);
  std::set<std::string> unchecked;
  double sum_ms = 0;
  for (const KernelFigures& kernel : figures.kernels) {
    INFO(kernel.kernel.label() << ": " << kernel.check.what);
    CHECK(kernel.us.size() == 3);
    CHECK_FALSE(kernel.check.what.empty());
    CHECK(kernel.check.error == 0);
    if (!kernel.check.is_checked) unchecked.insert(kernel.kernel.name);
    sum_ms += kernel.median_us() * 1e-3 * static_cast<double>(kernel.kernel.op_idxs.size());
  }
  CHECK(unchecked == std::set<std::string>{"update_rows"});
  CHECK(print_checks(measured(figures)).ok());
  CHECK(figures.sum_ms() == Approx(sum_ms));
  CHECK(std::ranges::is_sorted(figures.kernels, std::greater(), &KernelFigures::lost_ms));
}

TEST_CASE("a planted wrong result is found at the kernel that has it") {
  struct Planted {
    Bug bug;
    const char* op;
    std::set<std::string> found;
  };
  const std::set<std::string> products{"matmul qkv", "matmul attn_output", "matmul gate_up", "matmul down",
                                       "matmul head"};
  for (const Planted& planted :
       {Planted{Bug::kNumberOff, "matmul", products},
        Planted{Bug::kNumberOff, "gated_activation", {"gated_activation"}},
        Planted{Bug::kNumberOff, "paged_attention", {"paged_attention"}}, Planted{Bug::kNumberOff, "add", {"add"}},
        Planted{Bug::kNotWritten, "rms_norm", {"rms_norm", "rms_norm with residual"}},
        Planted{Bug::kNotWritten, "paged_attention", {"paged_attention"}},
        Planted{Bug::kKeyNotStored, "kv_write", {"kv_write"}}, Planted{Bug::kAnotherToken, "sample", {"sample"}},
        Planted{Bug::kNotWritten, "apply_penalties", {"apply_penalties"}},
        Planted{Bug::kNotWritten, "apply_bias", {"apply_bias"}}, Planted{Bug::kNotWritten, "filter", {"filter"}},
        Planted{Bug::kNotWritten, "logprobs", {"logprobs"}}}) {
    INFO(planted.op);
    const StepFigures figures = run_on(std::make_unique<Spoiled>(planted.bug, planted.op));
    CHECK(wrong_kernels(figures) == planted.found);
    const Status status = print_checks(measured(figures));
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().message ==
          fmt::format("{} kernels are further from the reference than they may be", planted.found.size()));
  }
}

TEST_CASE("layers with a window are counted, timed and checked apart from those without") {
  const StepFigures figures = run_on(make_reference_backend(), 1, windowed_model());
  REQUIRE(figures.missing.empty());
  std::vector<Kernel> kernels;
  for (const KernelFigures& kernel : figures.kernels) {
    INFO(kernel.kernel.label() << ": " << kernel.check.what);
    CHECK(kernel.check.error == 0);
    kernels.push_back(kernel.kernel);
    if (kernel.kernel.name.starts_with("kv_write") || kernel.kernel.name.starts_with("paged_attention"))
      CHECK(kernel.check.is_checked);
  }
  for (const char* name : {"kv_write", "kv_write, window 8", "paged_attention", "paged_attention, window 8"})
    CHECK(find(kernels, name).op_idxs.size() == 1);
  const Kernel &all = find(kernels, "paged_attention"), &window = find(kernels, "paged_attention, window 8");
  CHECK(all.cost.flops == 4.0 * 3 * 21 * 576);
  CHECK(window.cost.flops == 4.0 * 3 * kWindow * 576);
  CHECK(all.shape == "[3, 576] f32 over 63 keys");
  CHECK(window.shape == "[3, 576] f32 over 24 keys");
  const double kv_bytes_token = 2 * 3 * 64 * 2;
  CHECK(all.cost.bytes - window.cost.bytes == (63 - 24) * kv_bytes_token);

  for (const auto& [bug, op] : {std::pair{Bug::kKeyNotStored, "kv_write"}, {Bug::kNumberOff, "paged_attention"}}) {
    INFO(op);
    const std::string in_windows = fmt::format("{}, window {}", op, kWindow);
    CHECK(wrong_kernels(run_on(std::make_unique<Spoiled>(bug, op), 1, windowed_model())) ==
          std::set<std::string>{op, in_windows});
  }
}

TEST_CASE("the experts that rows go to are compared as what they are, in the last layer too") {
  const StepFigures figures = run_on(make_reference_backend(), 1, model_with_experts());
  REQUIRE(figures.missing.empty());
  uint32_t num_compared = 0;
  for (const KernelFigures& kernel : figures.kernels) {
    INFO(kernel.kernel.label() << ": " << kernel.check.what);
    CHECK(kernel.check.error == 0);
    num_compared += kernel.kernel.name == "route_experts" && kernel.check.is_checked;
  }
  CHECK(num_compared == 1);
  CHECK(wrong_kernels(run_on(std::make_unique<Spoiled>(Bug::kNumberOff, "route_experts"), 1, model_with_experts())) ==
        std::set<std::string>{"route_experts"});
}

TEST_CASE("adapters of rows in turn are counted and compared as what they are") {
  const StepFigures figures = run_on(make_reference_backend(), 1, small_model(), 2);
  INFO(figures.missing);
  REQUIRE(figures.missing.empty());
  std::vector<Kernel> kernels;
  for (const KernelFigures& kernel : figures.kernels) {
    INFO(kernel.kernel.label() << ": " << kernel.check.what);
    CHECK(kernel.check.error == 0);
    const std::string& name = kernel.kernel.name;
    CHECK((kernel.check.is_checked || name == "update_rows" || name == "adapter_shrink head"));
    kernels.push_back(kernel.kernel);
  }
  // Three rows of two adapters; rank 12 lies in 16 of q, k and v, which have 576, 192 and 192 rows.
  const Kernel &shrink = find(kernels, "adapter_shrink qkv"), &expand = find(kernels, "adapter_expand qkv");
  CHECK(shrink.op_idxs.size() == 2);
  CHECK(shrink.cost.flops == 2.0 * 3 * 48 * 576);
  CHECK(shrink.cost.bytes == 2 * 48 * 576 * 4 + 3 * (576 * 4 + 48 * 4));
  CHECK(expand.cost.flops == 2.0 * 3 * 16 * 960);
  CHECK(expand.cost.bytes == 2 * 16 * 960 * 4 + 3 * (48 * 4 + 2 * 960 * 4));
  CHECK(find(kernels, "adapter_expand head").cost.bytes == 0);  // random adapters leave it as it is
  CHECK(wrong_kernels(run_on(std::make_unique<Spoiled>(Bug::kNumberOff, "adapter_shrink"), 1, small_model(), 2)) ==
        std::set<std::string>{"adapter_shrink qkv", "adapter_shrink attn_output", "adapter_shrink gate_up",
                              "adapter_shrink down"});
  CHECK(wrong_kernels(run_on(std::make_unique<Spoiled>(Bug::kNotWritten, "adapter_expand"), 1, small_model(), 2)) ==
        std::set<std::string>{"adapter_expand qkv", "adapter_expand attn_output", "adapter_expand gate_up",
                              "adapter_expand down"});
}

TEST_CASE("a step that a device cannot run says so and is not measured") {
  const std::shared_ptr<const Model> model = small_model();
  EngineConfig config;
  config.context_max = 64;
  config.sequences_max = config.sample_rows_max = 2;
  config.step_tokens_max = 8;
  config.kv_tokens = 64;
  auto backend = make_reference_backend();
  const DeviceLimits limits = some_limits(backend->caps());
  auto device = prepare_device(limits, std::move(backend), model, config);
  REQUIRE(device.ok());
  std::vector<BenchDevice> devices;
  devices.push_back(*std::move(device));
  for (const auto& [shape, missing] : {std::pair{ProbeShape{1, 9, 0, 1, 16}, "9 tokens: steps there have at most 8"},
                                       {ProbeShape{3, 1, 4, 1, 16}, "3 sampled rows: steps there have at most 2"},
                                       {ProbeShape{2, 1, 40, 1, 16}, "6 KV blocks: each pool has 4"}}) {
    auto figures = bench_step(model, {"step", shape}, {}, &devices, [](const std::string&) {});
    REQUIRE(figures.ok());
    CHECK(figures->front().missing == missing);
    CHECK(figures->front().kernels.empty());
  }
}
