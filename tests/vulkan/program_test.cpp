// Lists in, programs out: what becomes one step, which kernels run, and what is said of patterns that do not match. A
// list is a few lines of text over the shapes of an 8B model:
//   norm x d -> h      matmul h qkv -> q   qknorm q   rope q   write q   attend q -> a
//   gate u -> g        add a b -> c        add a a -> b
// A tensor has its columns from what makes it; "d = -" is no delta.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <sstream>

#include "tests/vulkan/fake_device.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kWidth = 4096, kFfn = 14336, kHeads = 32, kKvHeads = 8, kDim = 128;

struct Weights {
  WeightTable table;
  WeightId norm, freqs;
  std::map<std::string, WeightGroupId> groups;

  WeightId tensor(Encoding encoding, uint64_t rows, uint64_t columns) {
    table.tensors.push_back({"", encoding, rows, columns, nullptr, nullptr});
    return static_cast<WeightId>(table.tensors.size() - 1);
  }
  void group(const std::string& name, Encoding encoding, uint64_t rows, uint64_t columns) {
    groups[name] = static_cast<WeightGroupId>(table.groups.size());
    table.groups.push_back({name, {{tensor(encoding, rows, columns), 0, rows}}, -1, rows, columns});
  }
  explicit Weights(Encoding encoding)
      : norm(tensor(Encoding::kF32, 1, kWidth)), freqs(tensor(Encoding::kF32, 1, kDim / 2)) {
    group("qkv", encoding, (kHeads + 2 * kKvHeads) * kDim, kWidth);
    group("o", encoding, kWidth, kHeads * kDim);
    group("gu", encoding, 2 * kFfn, kWidth);
    group("down", encoding, kWidth, kFfn);
  }
};

struct Text {
  const Weights& weights;
  DType activations;
  OpList list;
  std::map<std::string, TensorId> ids;

  TensorId make(const std::string& name, uint32_t columns, DType dtype) {
    const auto found = ids.find(name);
    if (found != ids.end()) return found->second;
    return ids[name] = list.add_tensor({name, Rows::kTokens, columns, dtype, Storage::kArena});
  }
  // One that is there before: the residual, and what a list begins with.
  TensorId in(const std::string& name) { return name == "-" ? kNoTensor : make(name, kWidth, DType::kF32); }

  void add(const std::string& line) {
    std::istringstream words(line);
    std::string op, a, b, arrow, out;
    words >> op >> a;
    if (op == "norm" || op == "matmul" || op == "add") words >> b;
    if (op != "qknorm" && op != "rope" && op != "write") words >> arrow >> out;
    const TensorId positions = make("positions", 1, DType::kI32);
    const auto columns = [&](TensorId id) { return list.tensors[static_cast<size_t>(id)].columns; };
    if (op == "norm") list.ops.push_back(RmsNorm{in(a), in(b), weights.norm, 1e-5f, make(out, kWidth, activations)});
    if (op == "matmul") {
      const WeightGroupId group = weights.groups.at(b);
      const uint32_t rows = static_cast<uint32_t>(weights.table.groups[static_cast<size_t>(group)].rows);
      list.ops.push_back(Matmul{in(a), group, make(out, rows, DType::kF32)});
    }
    if (op == "qknorm") list.ops.push_back(QkNorm{in(a), weights.norm, weights.norm, kHeads, kKvHeads, kDim, 1e-5f});
    if (op == "rope")
      list.ops.push_back(Rope{in(a), positions, weights.freqs, kHeads, kKvHeads, kDim, kDim, RopePairing::kHalves, 1});
    if (op == "write") list.ops.push_back(KvWrite{in(a), positions, 0, 0, kHeads, kKvHeads, kDim});
    if (op == "attend")
      list.ops.push_back(
          PagedAttention{in(a), make(out, kHeads * kDim, activations), 0, 0, kHeads, kKvHeads, kDim, 0.088f, 0, 0});
    if (op == "gate") list.ops.push_back(GatedActivation{in(a), Activation::kSilu, make(out, kFfn, activations)});
    if (op == "add") list.ops.push_back(Add{in(a), in(b), make(out, columns(in(a)), DType::kF32)});
  }
};

struct Made {
  OpList list;
  Program program;
};
Made make(const std::string& device, Encoding encoding, uint32_t rows, const std::string& text,
          bool batch_invariant = false) {
  const Weights weights(encoding);
  const Traits traits = fake_traits(device);
  const bool wide_activations = traits.cpu_kernels || traits.tier == Tier::kScalar;
  Text made{weights, wide_activations ? DType::kF32 : DType::kF16, {"forward", rows, 0, {}, {}, batch_invariant}, {}};
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) made.add(line);
  StateConfig config;
  config.hidden_columns = kWidth;
  const FakeDevice fake(device, weights.table, config, {1, kKvHeads, kDim, 16, 100, KvDType::kF16});
  Result<Program> program = make_program(fake.resources(), made.list);
  REQUIRE(program);
  return {made.list, std::move(*program)};
}

// A layer, from the norm before attention to the matmul behind the next one.
constexpr const char* kLayer =
    "norm x - -> h\n"
    "matmul h qkv -> q\n"
    "rope q\n"
    "write q\n"
    "attend q -> a\n"
    "matmul a o -> y\n"
    "norm x y -> h2\n"
    "matmul h2 gu -> u\n"
    "gate u -> g\n"
    "matmul g down -> z\n"
    "norm x z -> h3\n"
    "matmul h3 qkv -> q2\n"
    "rope q2\n"
    "write q2\n"
    "attend q2 -> a2\n";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// The programs of kLayer up to attention of the next layer, and why patterns are not taken.
TEST_CASE("the same layer becomes each device's own program") {
  struct Expected {
    const char* device;
    Encoding encoding;
    uint32_t rows;
    const char *program, *not_taken;
  };
  constexpr const char* kNoFragments =
      "not taken qkv_matmul at 1: the device has no fragments\n"
      "not taken normed_matmul at 5: the device has no fragments\n"
      "not taken parts_matmul at 5: no kernel for these rows and weights\n"
      "not taken gated_matmul at 7: no kernel for these rows and weights\n"
      "not taken normed_matmul at 9: the device has no fragments\n"
      "not taken parts_matmul at 9: no kernel for these rows and weights\n"
      "not taken qkv_matmul at 11: the device has no fragments\n";
  const Expected cases[] = {
      {"h200", Encoding::kQ4_0, 1,
       " rms_norm: rms_norm\n"
       "|qkv_matmul: matmul_row\n"
       "|paged_attention: paged_attention_wide\n"
       " paged_attention: paged_attention_fragment\n"
       "|paged_attention: paged_attention_merge\n"
       "|normed_matmul: matmul_row\n"
       "|gated_matmul: matmul_row\n"
       "|normed_matmul: matmul_row\n"
       "|qkv_matmul: matmul_row\n"
       "|paged_attention: paged_attention_wide\n"
       " paged_attention: paged_attention_fragment\n"
       "|paged_attention: paged_attention_merge\n",
       ""},
      {"h200", Encoding::kF16, 8,
       " rms_norm: rms_norm\n"
       "|qkv_matmul: matmul_fragment\n"
       "|paged_attention: paged_attention_wide\n"
       " paged_attention: paged_attention_fragment\n"
       "|paged_attention: paged_attention_merge\n"
       "|parts_matmul: matmul_batch\n"
       "|rms_norm: rms_norm\n"
       "|gated_matmul: matmul_batch\n"
       "|parts_matmul: matmul_batch\n"
       "|rms_norm: rms_norm\n"
       "|qkv_matmul: matmul_fragment\n"
       "|paged_attention: paged_attention_wide\n"
       " paged_attention: paged_attention_fragment\n"
       "|paged_attention: paged_attention_merge\n",
       "not taken normed_matmul at 5: no kernel for these rows and weights\n"
       "not taken normed_matmul at 9: no kernel for these rows and weights\n"},
      {"h200", Encoding::kQ4_K, 512,
       " rms_norm: rms_norm\n"
       " matmul: write_halves\n"
       "|matmul: matmul_wide\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_wide\n"
       " paged_attention: paged_attention_fragment\n"
       "|paged_attention: paged_attention_merge\n"
       " matmul: write_halves\n"
       "|matmul: matmul_wide\n"
       "|rms_norm: rms_norm\n"
       " gated_matmul: write_halves\n"
       "|gated_matmul: matmul_wide\n"
       "|gated_matmul: write_halves\n"
       "|gated_matmul: matmul_wide\n"
       "|matmul: write_halves\n"
       "|matmul: matmul_wide\n"
       "|rms_norm: rms_norm\n"
       " matmul: write_halves\n"
       "|matmul: matmul_wide\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_wide\n"
       " paged_attention: paged_attention_fragment\n"
       "|paged_attention: paged_attention_merge\n",
       "not taken qkv_matmul at 1: more rows than a matrix has\n"
       "not taken normed_matmul at 5: more rows than a matrix has\n"
       "not taken parts_matmul at 5: no kernel for these rows and weights\n"
       "not taken normed_matmul at 9: more rows than a matrix has\n"
       "not taken parts_matmul at 9: no kernel for these rows and weights\n"
       "not taken qkv_matmul at 11: more rows than a matrix has\n"},
      {"h200-t2", Encoding::kQ4_0, 32,
       " rms_norm: rms_norm\n"
       "|matmul: matmul_dots\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_block.pairs\n"
       " paged_attention: paged_attention_decode\n"
       "|paged_attention: paged_attention_merge\n"
       "|matmul: matmul_dots\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_dots\n"
       "|gated_activation: elementwise\n"
       "|matmul: matmul_dots\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_dots\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_block.pairs\n"
       " paged_attention: paged_attention_decode\n"
       "|paged_attention: paged_attention_merge\n",
       nullptr},
      {"h200-t0", Encoding::kQ4_0, 32,
       " rms_norm: rms_norm\n"
       "|matmul: matmul_tile\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_tile\n"
       "|paged_attention: paged_attention_merge\n"
       "|matmul: matmul_tile\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_tile\n"
       "|gated_activation: elementwise\n"
       "|matmul: matmul_tile\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_tile\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_tile\n"
       "|paged_attention: paged_attention_merge\n",
       nullptr},
      {"lavapipe", Encoding::kQ4_0, 1,
       " rms_norm: rms_norm\n"
       "|matmul: matmul_lanes\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_lanes\n"
       "|paged_attention: paged_attention_merge\n"
       "|matmul: matmul_lanes\n"
       "|rms_norm: rms_norm\n"
       "|gated_matmul: matmul_lanes\n"
       "|matmul: matmul_lanes\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_lanes\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_lanes\n"
       "|paged_attention: paged_attention_merge\n",
       "not taken qkv_matmul at 1: the device has no fragments\n"
       "not taken normed_matmul at 5: the device has no fragments\n"
       "not taken parts_matmul at 5: the norm's invocations keep no numbers\n"
       "not taken normed_matmul at 9: the device has no fragments\n"
       "not taken parts_matmul at 9: the norm's invocations keep no numbers\n"
       "not taken qkv_matmul at 11: the device has no fragments\n"},
      {"lavapipe-gpu", Encoding::kQ4_0, 8,
       " rms_norm: rms_norm\n"
       "|qkv_matmul: matmul_fragment\n"
       "|paged_attention: paged_attention_tile\n"
       "|paged_attention: paged_attention_merge\n"
       "|normed_matmul: matmul_fragment\n"
       "|gated_matmul: matmul_fragment\n"
       "|normed_matmul: matmul_fragment\n"
       "|qkv_matmul: matmul_fragment\n"
       "|paged_attention: paged_attention_tile\n"
       "|paged_attention: paged_attention_merge\n",
       ""},
      {"gcn", Encoding::kQ4_0, 32,
       " rms_norm: rms_norm\n"
       "|matmul: matmul_tile\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_block\n"
       " paged_attention: paged_attention_decode\n"
       "|paged_attention: paged_attention_merge\n"
       "|matmul: matmul_tile\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_tile\n"
       "|gated_activation: elementwise\n"
       "|matmul: matmul_tile\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_tile\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_block\n"
       " paged_attention: paged_attention_decode\n"
       "|paged_attention: paged_attention_merge\n",
       nullptr},
      {"rdna3", Encoding::kQ4_0, 128,
       " rms_norm: rms_norm\n"
       "|matmul: matmul_matrix\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_matrix\n"
       " paged_attention: paged_attention_decode\n"
       "|paged_attention: paged_attention_merge\n"
       "|matmul: matmul_matrix\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_matrix\n"
       "|gated_activation: elementwise\n"
       "|matmul: matmul_matrix\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_matrix\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_matrix\n"
       " paged_attention: paged_attention_decode\n"
       "|paged_attention: paged_attention_merge\n",
       nullptr},
      {"xe", Encoding::kQ4_0, 1,
       " rms_norm: rms_norm\n"
       "|matmul: matmul_vector\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_tile\n"
       " paged_attention: paged_attention_decode\n"
       "|paged_attention: paged_attention_merge\n"
       "|matmul: matmul_vector\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_vector\n"
       "|gated_activation: elementwise\n"
       "|matmul: matmul_vector\n"
       "|rms_norm: rms_norm\n"
       "|matmul: matmul_vector\n"
       "|qkv_heads: qkv\n"
       "|paged_attention: paged_attention_tile\n"
       " paged_attention: paged_attention_decode\n"
       "|paged_attention: paged_attention_merge\n",
       nullptr},
  };
  for (const Expected& expected : cases) {
    INFO(expected.device << ", rows " << expected.rows);
    const Made made = make(expected.device, expected.encoding, expected.rows, kLayer);
    CHECK(brief(made.program) == expected.program);
    CHECK(notes(made.program, true).empty());
    CHECK(notes(made.program, false) == (expected.not_taken ? expected.not_taken : kNoFragments));
  }
}

// What the first matmul of a norm says to the next is in the steps: slots of factors in turn, and the norm's epsilon.
TEST_CASE("a norm that a matmul leaves is ended by the next one, with the other slot") {
  const Made made = make("h200", Encoding::kQ4_0, 8, kLayer);
  const auto constants = [&](size_t launch) {
    const std::vector<uint32_t>& words = made.program.launches[launch].kernel.constants;
    return std::pair{words[words.size() - 2], words.back() != 0};  // leaves_norm, norm_eps
  };
  std::vector<std::pair<uint32_t, bool>> found;
  for (size_t i = 0; i < made.program.launches.size(); ++i)
    if (made.program.launches[i].kernel.shader == "matmul_fragment") found.push_back(constants(i));
  using Ends = std::vector<std::pair<uint32_t, bool>>;
  CHECK(found == Ends{{0, false}, {1, false}, {0, true}, {1, false}, {0, true}});
}

TEST_CASE("an op between two others is reported, and what is left runs by itself") {
  struct Lost {
    const char *what, *from, *to, *lost;
  };
  const Lost cases[] = {
      {"an adapter's sum before the activation", "gate u -> g\n", "add u u0 -> u1\ngate u1 -> g\n",
       "lost gated_matmul at 7: add stands between\n"},
      {"two sums before the activation", "gate u -> g\n", "add u u0 -> u1\nadd u1 u1 -> u2\ngate u2 -> g\n",
       "lost gated_matmul at 7: add stands between\n"},
      {"a sum into the same tensor", "gate u -> g\n", "add u u -> u\ngate u -> g\n",
       "lost gated_matmul at 7: add uses its result too\n"},
      {"an adapter's sum before the norm", "norm x y -> h2\n", "add y y0 -> y1\nnorm x y1 -> h2\n",
       "lost normed_matmul at 5: add stands between\nlost parts_matmul at 5: add stands between\n"},
      {"a second reader of the product", "norm x y -> h2\n", "norm x y -> h2\nadd y y -> y1\n",
       "lost normed_matmul at 5: add uses its result too\nlost parts_matmul at 5: add uses its result too\n"},
      {"a second reader of the norm", "gate u -> g\n", "gate u -> g\nadd h2 h2 -> h4\n",
       "lost normed_matmul at 5: of its norm: add uses its result too\n"},
      {"an adapter's sum before rope", "rope q\nwrite q\nattend q -> a\n",
       "add q q0 -> q1\nrope q1\nwrite q1\nattend q1 -> a\n", "lost qkv_matmul at 1: add stands between\n"},
      {"a sum between rope and store", "rope q\nwrite q\n", "rope q\nadd q q -> q\nwrite q\n",
       "lost qkv_matmul at 1: add uses its result too\nlost qkv_heads at 2: add stands between\n"},
      {"an overwritten input", "gate u -> g\n", "add x x -> h2\ngate u -> g\n",
       "lost normed_matmul at 5: of its norm: add uses its result too\n"
       "lost gated_matmul at 7: add overwrites its input\n"},
  };
  for (const Lost& c : cases) {
    INFO(c.what);
    for (const char* device : {"h200", "lavapipe", "gcn"}) {
      const Made made = make(device, Encoding::kQ4_0, 8, replaced(kLayer, c.from, c.to));
      CHECK(notes(made.program, true) == c.lost);
      CHECK(print(made.program).find("lost ") != std::string::npos);
    }
  }
}

TEST_CASE("an op that touches nothing of a pattern may stand within it") {
  const std::string apart = replaced(kLayer, "gate u -> g\n", "add s s -> s2\ngate u -> g\n");
  const Made made = make("h200", Encoding::kQ4_0, 8, apart);
  CHECK(notes(made.program, true).empty());
  CHECK(brief(made.program).find("elementwise") < brief(made.program).find("gated_matmul"));
  // What the matmul reads lives to the activation, and so apart from what is made between.
  const auto id = [&](const std::string& name) {
    for (size_t i = 0; i < made.list.tensors.size(); ++i)
      if (made.list.tensors[i].name == name) return static_cast<TensorId>(i);
    FAIL(name);
    return kNoTensor;
  };
  const ArenaPlan& arena = made.program.arena;
  for (const char* name : {"s2", "g"}) {
    const TensorId x = id("h2"), other = id(name);
    const uint64_t a = arena.offsets[static_cast<size_t>(x)], b = arena.offsets[static_cast<size_t>(other)];
    CHECK((a + made.list.bytes_of(x) <= b || b + made.list.bytes_of(other) <= a));
  }
  CHECK(arena_bytes(made.list) == arena.bytes);
}

TEST_CASE("qk_norm, rope and kv_write run as one, and no kernel takes their matmul too") {
  const Made made = make("h200", Encoding::kQ4_0, 8, replaced(kLayer, "rope q\n", "qknorm q\nrope q\n"));
  CHECK(notes(made.program, true).empty());
  CHECK(notes(made.program, false) == "not taken qkv_matmul at 1: no kernel norms q and k too\n");
  CHECK(brief(made.program).find("qkv_heads: qkv") != std::string::npos);
}

// Experts of Qwen3-30B-A3B.
Program make_experts(const std::string& device, uint32_t rows, bool batch_invariant = false) {
  constexpr uint32_t kExperts = 128, kUsed = 8, kColumns = 2048, kRows = 768;
  WeightTable table;
  const auto tensor = [&](Encoding encoding, uint64_t tensor_rows, uint64_t columns) {
    table.tensors.push_back({"", encoding, tensor_rows, columns, nullptr, nullptr});
    return static_cast<WeightId>(table.tensors.size() - 1);
  };
  const auto group = [&](std::vector<uint64_t> segments, uint64_t columns) {
    WeightGroup made{"", {}, -1, 0, columns};
    for (const uint64_t rows_segment : segments) {
      made.segments.push_back({tensor(Encoding::kQ4_0, rows_segment, columns), 0, rows_segment});
      made.rows += rows_segment;
    }
    made.num_experts = kExperts;
    table.groups.push_back(made);
    return static_cast<WeightGroupId>(table.groups.size() - 1);
  };
  const WeightId router = tensor(Encoding::kF32, kExperts, kColumns);
  const WeightGroupId gate_up = group({kExperts * kRows, kExperts * kRows}, kColumns);
  const WeightGroupId down = group({uint64_t{kExperts} * kColumns}, kRows);
  const Traits traits = fake_traits(device);
  const DType dtype = traits.cpu_kernels || traits.tier == Tier::kScalar ? DType::kF32 : DType::kF16;
  OpList list{"forward", rows, 0, {}, {}, batch_invariant};
  list.routed_per_row = kUsed;
  const auto add = [&](const char* name, Rows kind, uint32_t columns, DType type) {
    return list.add_tensor({name, kind, columns, type, Storage::kArena});
  };
  const TensorId x = add("x", Rows::kTokens, kColumns, DType::kF32),
                 out = add("out", Rows::kTokens, kColumns, DType::kF32);
  const TensorId ids = add("ids", Rows::kRouted, 1, DType::kI32),
                 weights = add("weights", Rows::kRouted, 1, DType::kF32);
  const TensorId gated = add("gated", Rows::kRouted, kRows, dtype);
  list.ops = {RouteExperts{x, router, -1, -1, -1, {}, ids, weights},
              ExpertGateUp{x, ids, gate_up, kExperts, false, Activation::kSilu, gated},
              ExpertDown{gated, ids, weights, down, kExperts, out}};
  StateConfig config;
  config.hidden_columns = kColumns;
  const FakeDevice fake(device, table, config, {1, kKvHeads, kDim, 16, 100, KvDType::kF16});
  Result<Program> program = make_program(fake.resources(), list);
  REQUIRE(program);
  return std::move(*program);
}

TEST_CASE("experts become few launches, rows are sorted once, and sums of many rows are made in parts") {
  const std::string route =
      " route_experts: expert_vector\n"
      "|route_experts: route_experts\n";
  const std::string sorted = route + "|expert_gate_up: sort_experts\n";
  CHECK(brief(make_experts("h200", 1)) == route +
                                              "|expert_gate_up: expert_fragment\n"
                                              "|expert_down: expert_fragment\n");
  const std::string few = sorted +
                          "|expert_gate_up: expert_fragment\n"
                          "|expert_down: expert_fragment\n"
                          "|expert_down: expert_sum\n";
  CHECK(brief(make_experts("h200", 2)) == few);
  CHECK(brief(make_experts("h200", 256)) == few);
  CHECK(brief(make_experts("h200", 2048, true)).find("expert_matrix") == std::string::npos);
  std::string many = sorted + "|expert_gate_up: expert_matrix\n";
  for (int part = 0; part < 4; ++part) many += "|expert_down: expert_matrix\n|expert_down: expert_sum\n";
  CHECK(brief(make_experts("h200", 2048)) == many);
  CHECK(brief(make_experts("rdna3", 256)).find("expert_matrix") != std::string::npos);
  for (const char* device : {"lavapipe", "gcn", "h200-t0"})
    CHECK(brief(make_experts(device, 1)) == route +
                                                "|expert_gate_up: expert_vector\n"
                                                "|expert_down: expert_vector\n"
                                                "|expert_down: expert_sum\n");
}

// The recurrent part of a layer of Qwen3-Next: 16 key heads, 32 value heads, all of 128 numbers.
Program make_recurrent(const char* device, uint32_t rows, bool decode_only, uint32_t ring_tokens = kRingTokens) {
  constexpr uint32_t kConv = 2 * 16 * 128 + 32 * 128, kAll = kConv + 32 * 128 + 64;
  WeightTable table;
  const auto weight = [&](uint64_t weight_rows, uint64_t columns) {
    table.tensors.push_back({"", Encoding::kF32, weight_rows, columns, nullptr, nullptr});
    return static_cast<WeightId>(table.tensors.size() - 1);
  };
  OpList list{"forward", rows, 0, {}, {}};
  list.decode_only = decode_only;
  const auto tensor = [&](const char* name, uint32_t columns) {
    return list.add_tensor({name, Rows::kTokens, columns, DType::kF32, Storage::kArena});
  };
  const TensorId all = tensor("all", kAll), qkv = tensor("qkv", kConv), mixed = tensor("mixed", 32 * 128);
  const WeightId conv = weight(kConv, 4), heads = weight(1, 32), norm = weight(1, 128);
  list.ops = {CausalConv{{all, 0}, {}, {}, conv, -1, 4, true, {0, 0, 0}, qkv},
              GatedDelta{{qkv, 0},
                         {all, kAll - 32},
                         {all, kAll - 64},
                         heads,
                         heads,
                         16,
                         32,
                         128,
                         128,
                         KeyHeadOrder::kDivided,
                         false,
                         true,
                         1e-6f,
                         0.0884f,
                         {0, 0, conv_slots(4) * kConv, ring_tokens},
                         mixed},
              GatedNorm{mixed, {all, kConv}, norm, 128, 1e-6f, false, tensor("gated", 32 * 128)}};
  StateConfig config;
  config.slots_max = 64;
  const KvGroup states{.num_layers = 1,
                       .num_blocks = 8,
                       .state_columns = conv_slots(4) * kConv + 32 * 128 * 128 +
                                        static_cast<uint32_t>(StateRing{32, 16, 128, 128}.numbers())};
  const FakeDevice fake(device, table, config, states);
  Result<Program> program = make_program(fake.resources(), list);
  REQUIRE(program);
  return std::move(*program);
}

TEST_CASE("a recurrent layer is three launches around its matmuls, or four, whose groups follow device and rows") {
  CHECK(brief(make_recurrent("h200", 8, true, 0)) ==
        " causal_conv: causal_conv\n"
        "|gated_delta: state_walk\n"
        "|gated_norm: gated_norm\n");
  const auto walk = [](const char* device, uint32_t rows, bool decode_only) {
    const Program program = make_recurrent(device, rows, decode_only);
    CHECK(brief(program) == std::string(" causal_conv: causal_conv\n|gated_delta: state_ring\n") +
                                (decode_only ? "" : "|gated_delta: state_entries\n") + "|gated_norm: gated_norm\n");
    const Launch& launch = program.launches[1];
    // Lanes, parts and groups.
    return fmt::format("{} x {} in {} {} {}", launch.kernel.constants[3], launch.kernel.constants[4], launch.groups.x,
                       launch.groups.y, launch.groups.z);
  };
  CHECK(walk("h200", 8, true) == "32 x 8 in 1 32 8");
  CHECK(walk("h200", 256, true) == "32 x 8 in 1 32 64");  // no more rows than slots
  CHECK(walk("h200", 256, false) == "8 x 16 in 4 32 64");
  CHECK(walk("xe", 8, true) == "16 x 16 in 2 32 8");
  CHECK(walk("xe", 256, false) == "8 x 16 in 4 32 64");
  CHECK(walk("h200-t0", 8, true) == "32 x 8 in 1 32 8");
  CHECK(walk("lavapipe", 8, true) == "8 x 1 in 4 32 8");
}

TEST_CASE("a program prints its choices by name") {
  const Made made = make("h200", Encoding::kQ4_0, 32, "norm x - -> h\nmatmul h gu -> u\ngate u -> g\n");
  CHECK(print(made.program) ==
        "forward: 2 launches, arena 4849664\n"
        "  rms_norm: rms_norm group_size=512 deltas=0 out_dtype=1 quads=2 leaves_factor=0 grid=32x1x1\n"
        "| gated_matmul: matmul_batch group_size=128 layout=259 bias=0 subgroups=4 m=16 n=8 k=16 row_lanes=4 tail=0 "
        "activate=1 activation=0 parts=2 matrices=4 step_units=1 leaves_parts=0 grid=396x1x1 sums=12976128 "
        "arrivals=1584\n");
}

TEST_CASE("a list that needs more than the arena is refused") {
  const Weights weights(Encoding::kQ4_0);
  Text text{weights, DType::kF16, {"forward", 1u << 18, 0, {}, {}}, {}};
  text.add("add x x -> y");
  StateConfig config;
  const FakeDevice fake("h200", weights.table, config, {1, kKvHeads, kDim, 16, 100, KvDType::kF16});
  Resources small = fake.resources();
  small.arena.bytes = 1 << 20;
  const Result<Program> program = make_program(small, text.list);
  REQUIRE_FALSE(program);
  CHECK(program.error().message.find("expected an arena of") != std::string::npos);
}

TEST_CASE("more groups than a device takes are refused") {
  const Weights weights(Encoding::kQ4_0);
  Text text{weights, DType::kF32, {"forward", 1u << 18, 0, {}, {}}, {}};
  text.add("matmul h o -> y");
  StateConfig config;
  const FakeDevice fake("lavapipe", weights.table, config, {1, kKvHeads, kDim, 16, 100, KvDType::kF16});
  const Result<Program> program = make_program(fake.resources(), text.list);
  REQUIRE_FALSE(program);
  CHECK(program.error().message.find("expected at most 65535") != std::string::npos);
}

}  // namespace
}  // namespace llmrt::vulkan
