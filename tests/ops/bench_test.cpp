// Speed of single ops: ops_test "[bench]" prints, for each case on each device, the time, the share of bytes and FLOPs
// moved per second. Weights are repeated until they no longer fit a cache. Nothing is judged; hidden from plain runs.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <set>

#include "core/base/checked_math.h"
#include "tests/ops/op_harness.h"
#include "tests/ops/test_devices.h"

namespace llmrt::optest {
namespace {

constexpr int kRepeats = 7;

struct BenchCase {
  std::string name;
  Step step;
  std::vector<KvGroup> groups;
  CostSizes sizes;
};

// Prints the median of the summed times of every op but update_rows.
void bench(const std::string& device, const Suite& suite, const std::vector<BenchCase>& cases) {
  auto opened = open_test_device(device);
  INFO(device << ": " << (opened ? "" : opened.error().message));
  REQUIRE(opened.ok());
  Backend& backend = **opened;
  REQUIRE(backend.load_weights(suite.weights, {}).ok());
  REQUIRE(backend.create_state(state_config(suite, backend)).ok());
  for (const BenchCase& bench_case : cases) {
    if (!bench_case.groups.empty()) REQUIRE(backend.create_kv_pools(bench_case.groups).ok());
    std::vector<uint32_t> words;
    pack(bench_case.step.forward_inputs, &words);
    const SealedList forward(bench_case.step.forward);
    StepSubmission submission;
    submission.forward = &forward;
    submission.forward_inputs = words;
    for (const Fill& fill : bench_case.step.fills)
      REQUIRE(backend.write_tensor(forward, fill.tensor, bytes_before(bench_case.step, fill.tensor)).ok());
    std::vector<double> times;
    for (int i = 0; i < kRepeats; ++i) {
      const auto op_ms = backend.profile(submission);
      if (!op_ms) {
        fmt::print("{:<12} {:<48} {}\n", device, bench_case.name, op_ms.error().message);
        break;
      }
      double sum = 0;
      for (size_t op = 0; op < op_ms->size(); ++op)
        if (!std::holds_alternative<UpdateRows>(bench_case.step.forward.ops[op])) sum += (*op_ms)[op];
      times.push_back(sum);
    }
    if (times.empty()) continue;
    std::sort(times.begin(), times.end());
    const double ms = times[times.size() / 2];
    OpCost total;
    for (const Op& op : bench_case.step.forward.ops) {
      const OpCost one = cost(bench_case.step.forward, op, suite.weights, bench_case.sizes);
      total.flops += one.flops;
      total.bytes += one.bytes;
    }
    fmt::print("{:<12} {:<48} {:>10.4f} ms {:>9.1f} GB/s {:>10.1f} GFLOP/s\n", device, bench_case.name, ms,
               total.bytes / ms / 1e6, total.flops / ms / 1e6);
    std::fflush(stdout);
  }
}

// A CPU or the reference gets shapes that it can finish.
bool is_small(const std::string& device) {
  auto backend = open_test_device(device);
  return !backend.ok() || (*backend)->caps().is_cpu;
}
DType activation_of(const std::string& device) {
  auto backend = open_test_device(device);
  return backend.ok() ? (*backend)->caps().activation_dtype : DType::kF32;
}

void run_bench(const std::string& device, const Suite& prepared, const std::vector<BenchCase>& cases) {
  Suite suite = prepared;
  for (const BenchCase& bench_case : cases) {
    suite.cases.push_back({});
    suite.cases.back().steps = {bench_case.step};
  }
  bench(device, suite, cases);
}

}  // namespace

TEST_CASE("matmul's speed", "[.bench]") {
  for (const std::string& device : test_devices()) {
    auto rng = test_rng("bench");
    const bool small = is_small(device);
    const uint64_t n = small ? 1536 : 4096, k = small ? 576 + 192 : 4096, cache_bytes = small ? 4u << 20 : 200u << 20;
    for (Encoding encoding : all_encodings()) {
      Suite suite;
      const WeightId weight = suite.add_weight(encoding, n, k, rng, 0.02);
      // Copies share the host's bytes; the device holds each one.
      std::vector<WeightGroupId> copies;
      for (uint64_t bytes = 0; bytes < cache_bytes; bytes += suite.weights.tensors[0].bytes()) {
        suite.weights.tensors.push_back(suite.weights.tensors[static_cast<size_t>(weight)]);
        copies.push_back(suite.add_group({static_cast<WeightId>(suite.weights.tensors.size() - 1)}, false, rng));
      }
      std::vector<BenchCase> cases;
      for (uint32_t rows : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 512u}) {
        if (small && rows > 64) continue;
        BenchCase bench_case;
        bench_case.name =
            fmt::format("matmul {} rows {} n {} k {} x{}", encoding_name(encoding), rows, n, k, copies.size());
        Step& step = bench_case.step;
        step.add_row(0, 0, rows);
        const TensorId x = step.forward.add_tensor(
            {"x", Rows::kTokens, static_cast<uint32_t>(k), activation_of(device), Storage::kPinned});
        const TensorId out =
            step.forward.add_tensor({"out", Rows::kTokens, static_cast<uint32_t>(n), DType::kF32, Storage::kPinned});
        for (WeightGroupId copy : copies) step.forward.ops.push_back(Matmul{x, copy, out});
        bench_case.sizes.num_tokens = rows;
        cases.push_back(std::move(bench_case));
      }
      run_bench(device, suite, cases);
    }
  }
}

TEST_CASE("paged_attention's speed", "[.bench]") {
  for (const std::string& device : test_devices()) {
    const bool small = is_small(device);
    const uint32_t heads = 32, kv_heads = 8, dim = 128;
    struct Load {
      uint32_t rows, context, num_tokens;
    };
    const std::vector<Load> loads =
        small ? std::vector<Load>{{1, 500, 1}, {8, 500, 1}, {1, 0, 64}}
              : std::vector<Load>{{1, 2000, 1},   {1, 32000, 1}, {8, 8000, 1}, {32, 2000, 1},
                                  {128, 2000, 1}, {1, 0, 512},   {1, 0, 2048}, {1, 8000, 512}};
    for (KvDType dtype : {KvDType::kF16, KvDType::kI8}) {
      Suite suite;
      suite.slots_max = 128;
      std::vector<BenchCase> cases;
      for (const Load& load : loads) {
        const uint32_t blocks_row = ceil_div(load.context + load.num_tokens, 16u);
        BenchCase bench_case;
        bench_case.name = fmt::format("paged_attention {} rows {} context {} tokens {}", kv_dtype_name(dtype),
                                      load.rows, load.context, load.num_tokens);
        bench_case.groups = {{1, kv_heads, dim, 16, blocks_row * load.rows, dtype}};
        Step& step = bench_case.step;
        KvSizes kv;
        for (uint32_t r = 0; r < load.rows; ++r) {
          std::vector<uint32_t> blocks(blocks_row);
          for (uint32_t b = 0; b < blocks_row; ++b) blocks[b] = b * load.rows + r;
          step.patch_table(r, 0, blocks);
          const uint32_t row_idx = step.add_row(r, load.context, load.num_tokens);
          const uint32_t split_keys = load.context < 256 ? 64 : load.context < 8192 ? 256 : 1024;
          if (load.num_tokens > 1)
            step.add_prompt_items(row_idx);
          else
            step.add_decode_items(row_idx, split_keys);
          kv.tokens += load.context + load.num_tokens;
          for (uint32_t i = 0; i < load.num_tokens; ++i) kv.attention_pairs += load.context + i + 1;
        }
        const TensorId qkv = step.forward.add_tensor(
            {"qkv", Rows::kTokens, (heads + 2 * kv_heads) * dim, DType::kF32, Storage::kPinned});
        const TensorId out =
            step.forward.add_tensor({"out", Rows::kTokens, heads * dim, activation_of(device), Storage::kPinned});
        step.forward.ops = {UpdateRows{},
                            PagedAttention{qkv, out, 0, 0, heads, kv_heads, dim, 1 / std::sqrt(128.0f), 0, 0}};
        bench_case.sizes.num_tokens = load.rows * load.num_tokens;
        const KvGroup& group = bench_case.groups[0];
        kv.bytes_token = static_cast<uint32_t>((group.data_bytes_block_layer() + group.scale_bytes_block_layer()) / 16);
        bench_case.sizes.kv = {kv};
        cases.push_back(std::move(bench_case));
      }
      run_bench(device, suite, cases);
    }
  }
}

TEST_CASE("the small ops' speed", "[.bench]") {
  for (const std::string& device : test_devices()) {
    auto rng = test_rng("bench small");
    const uint32_t width = 4096;
    Suite suite;
    const WeightId weight = suite.add_weight(Encoding::kF32, 1, width, rng);
    std::vector<BenchCase> cases;
    for (uint32_t rows : {1u, 32u, 512u}) {
      if (is_small(device) && rows > 32) continue;
      const auto add = [&](const char* name, auto fill) {
        BenchCase bench_case;
        bench_case.name = fmt::format("{} rows {}", name, rows);
        bench_case.step.add_row(0, 0, rows);
        bench_case.sizes.num_tokens = rows;
        fill(bench_case.step.forward);
        cases.push_back(std::move(bench_case));
      };
      const DType narrow = activation_of(device);
      add("rms_norm with residual", [&](OpList& list) {
        const TensorId x = list.add_tensor({"x", Rows::kTokens, width, DType::kF32, Storage::kPinned});
        const TensorId delta = list.add_tensor({"delta", Rows::kTokens, width, DType::kF32, Storage::kPinned});
        const TensorId out = list.add_tensor({"out", Rows::kTokens, width, narrow, Storage::kPinned});
        list.ops = {RmsNorm{x, delta, weight, 1e-5f, out}};
      });
      add("gated_activation", [&](OpList& list) {
        const TensorId x = list.add_tensor({"x", Rows::kTokens, 2 * 14336, DType::kF32, Storage::kPinned});
        const TensorId out = list.add_tensor({"out", Rows::kTokens, 14336, narrow, Storage::kPinned});
        list.ops = {GatedActivation{x, Activation::kSilu, out}};
      });
    }
    run_bench(device, suite, cases);
  }
}

namespace {

struct ExpertBench {
  const char* encoding;
  uint32_t num_experts, used, width, ffn;
};

// Layers of one shape, which share the host's bytes.
struct ExpertLayers {
  std::vector<WeightGroupId> gate_up, down;
  WeightId router;
};
ExpertLayers add_layers(Suite* suite, const ExpertBench& shape, Encoding encoding, int count, std::mt19937_64& rng) {
  ExpertLayers layers;
  const uint64_t rows = uint64_t{shape.num_experts} * shape.ffn;
  const WeightId first = suite->add_weight(encoding, rows, shape.width, rng, 0.02);
  suite->add_weight(encoding, rows, shape.width, rng, 0.02);
  suite->add_weight(encoding, uint64_t{shape.num_experts} * shape.width, shape.ffn, rng, 0.02);
  const auto copy_of = [&](WeightId id) {
    suite->weights.tensors.push_back(WeightTensor(suite->weights.tensors[static_cast<size_t>(id)]));
    return static_cast<WeightId>(suite->weights.tensors.size() - 1);
  };
  for (int i = 0; i < count; ++i) {
    const WeightId gate = i == 0 ? first : copy_of(first), up = i == 0 ? first + 1 : copy_of(first + 1);
    layers.gate_up.push_back(suite->add_group({gate, up}, false, rng));
    layers.down.push_back(suite->add_group({i == 0 ? first + 2 : copy_of(first + 2)}, false, rng));
    for (const WeightGroupId id : {layers.gate_up.back(), layers.down.back()})
      suite->weights.groups[static_cast<size_t>(id)].num_experts = shape.num_experts;
  }
  std::vector<float> router(size_t{shape.num_experts} * shape.width);
  for (float& value : router) value = std::normal_distribution<float>(0, 0.02f)(rng);
  layers.router = suite->add_f32(router);
  suite->weights.tensors[static_cast<size_t>(layers.router)].rows = shape.num_experts;
  suite->weights.tensors[static_cast<size_t>(layers.router)].columns = shape.width;
  return layers;
}

// The three ops of one number of rows, whose experts are drawn evenly.
std::vector<BenchCase> expert_cases(const ExpertBench& shape, const ExpertLayers& layers, uint32_t rows,
                                    const std::string& device, std::mt19937_64& rng) {
  const DType narrow = activation_of(device);
  std::vector<double> ids;
  std::vector<uint32_t> order(shape.num_experts);
  std::iota(order.begin(), order.end(), 0);
  for (uint32_t t = 0; t < rows; ++t) {
    std::ranges::shuffle(order, rng);
    ids.insert(ids.end(), order.begin(), order.begin() + shape.used);
  }
  const auto numbers = [&](size_t count, DType dtype) { return random_normal(rng, count, 1, dtype); };
  std::vector<BenchCase> cases;
  for (const char* op : {"route_experts", "expert_gate_up", "expert_down"}) {
    BenchCase bench_case;
    bench_case.name = fmt::format("{} {} E {} k {} D {} F {} rows {} x{}", op, shape.encoding, shape.num_experts,
                                  shape.used, shape.width, shape.ffn, rows, layers.down.size());
    Step& step = bench_case.step;
    OpList& list = step.set_rows(Rows::kTokens, rows, rows);
    list.routed_per_row = shape.used;
    const bool is_route = op == std::string_view("route_experts"), is_down = op == std::string_view("expert_down");
    const TensorId x =
        is_down ? step.input_in(list, Rows::kRouted, "x", shape.ffn, narrow,
                                numbers(size_t{rows} * shape.used * shape.ffn, narrow))
                : step.input(Rows::kTokens, "x", shape.width, DType::kF32, numbers(size_t{rows} * shape.width, narrow));
    const TensorId chosen = step.input_in(list, Rows::kRouted, "ids", 1, DType::kI32, ids);
    const TensorId weights =
        step.input_in(list, Rows::kRouted, "weights", 1, DType::kF32, std::vector<double>(ids.size(), 0.125));
    const TensorId out = is_down ? list.add_tensor({"out", Rows::kTokens, shape.width, DType::kF32, Storage::kPinned})
                                 : list.add_tensor({"out", Rows::kRouted, shape.ffn, narrow, Storage::kPinned});
    for (size_t i = 0; i < layers.down.size(); ++i) {
      if (is_route)
        list.ops.push_back(RouteExperts{
            x, layers.router, -1, -1, -1, {.scoring = ExpertScoring::kSoftmax, .renormalise = true}, chosen, weights});
      else if (is_down)
        list.ops.push_back(ExpertDown{x, chosen, weights, layers.down[i], shape.num_experts, out});
      else
        list.ops.push_back(
            ExpertGateUp{x, chosen, layers.gate_up[i], shape.num_experts, false, Activation::kSilu, out});
    }
    bench_case.sizes.num_tokens = rows;
    bench_case.sizes.distinct_experts.assign(list.tensors.size(),
                                             static_cast<double>(std::set<double>(ids.begin(), ids.end()).size()));
    cases.push_back(std::move(bench_case));
  }
  return cases;
}

}  // namespace

// Shapes of Qwen3-30B-A3B and gpt-oss-20b. A figure is that of all layers together.
TEST_CASE("experts' speed", "[.bench][experts_speed]") {
  for (const std::string& device : test_devices()) {
    const bool small = is_small(device);
    const std::vector<ExpertBench> shapes =
        small ? std::vector<ExpertBench>{{"q4_k", 16, 4, 256, 256}}
              : std::vector<ExpertBench>{
                    {"q4_k", 128, 8, 2048, 768}, {"q8_0", 128, 8, 2048, 768}, {"mxfp4", 32, 4, 2880, 2880}};
    for (const ExpertBench& shape : shapes) {
      const auto all = all_encodings();
      const auto encoding =
          std::ranges::find_if(all, [&](Encoding e) { return encoding_name(e) == std::string_view(shape.encoding); });
      if (encoding == all.end()) continue;
      auto rng = test_rng("bench experts");
      Suite suite;
      const ExpertLayers layers = add_layers(&suite, shape, *encoding, small ? 2 : 6, rng);
      std::vector<BenchCase> cases;
      for (uint32_t rows : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 256u, 512u, 1024u, 2048u}) {
        if (small && rows > 32) continue;
        std::ranges::move(expert_cases(shape, layers, rows, device, rng), std::back_inserter(cases));
      }
      run_bench(device, suite, cases);
    }
  }
}

}  // namespace llmrt::optest
