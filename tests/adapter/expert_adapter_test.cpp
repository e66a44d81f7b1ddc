// Adapters on experts: one tensor of each, one of all as PEFT flattens it, and GGUF's stacks are one adapter; what a
// device computes from the image is each expert's own product; files that say otherwise are refused by name.
#include <cmath>

#include "core/adapter/adapter_image.h"
#include "tests/adapter/adapter_bytes.h"

using namespace llmrt;
using namespace llmrt::test;

namespace {

constexpr uint32_t kExperts = 4, kWidth = 32, kFfn = 48;

// tiny_model() with four experts, of which a row goes to two.
std::shared_ptr<const Model> tiny_mixtral() {
  static const std::string bytes = [] {
    GgufBytes file = tiny_model();
    file.u32("llama.expert_count", kExperts);
    file.u32("llama.expert_used_count", 2);
    std::erase_if(file.tensors, [](const auto& tensor) {
      return tensor.name.starts_with("blk.0.ffn_") && tensor.name != "blk.0.ffn_norm.weight";
    });
    file.tensor_f32("blk.0.ffn_gate_inp.weight", {kWidth, kExperts});
    file.tensor_f32("blk.0.ffn_gate_exps.weight", {kWidth, kFfn, kExperts});
    file.tensor_f32("blk.0.ffn_up_exps.weight", {kWidth, kFfn, kExperts});
    file.tensor_f32("blk.0.ffn_down_exps.weight", {kFfn, kWidth, kExperts});
    return file.build();
  }();
  auto source = parse_weight_source(as_span(bytes));
  REQUIRE(source.ok());
  auto model = load_from_source(*source, "tiny mixtral");
  INFO((model.ok() ? "" : model.error().message));
  REQUIRE(model.ok());
  return *model;
}

// The matrices of one expert: a[0], b[0] of gate, then of up, then of down.
struct ExpertLora {
  TestMatrix a[3], b[3];
};
ExpertLora expert_lora(uint32_t rank, uint32_t seed) {
  ExpertLora lora;
  for (uint32_t m = 0; m < 3; ++m) {
    lora.a[m] = test_matrix(rank, m == 2 ? kFfn : kWidth, seed + 10 * m);
    lora.b[m] = test_matrix(m == 2 ? kWidth : kFfn, rank, seed + 10 * m + 5);
  }
  return lora;
}
std::vector<ExpertLora> expert_loras(uint32_t rank) {
  std::vector<ExpertLora> loras;
  for (uint32_t e = 0; e < kExperts; ++e) loras.push_back(expert_lora(rank, 100 * e + rank));
  return loras;
}

HfBytes peft_matrix(const std::string& module, char half, const TestMatrix& matrix) {
  return {fmt::format("base_model.model.model.layers.0.{}.lora_{}.weight", module, half),
          "F32",
          {matrix.rows, matrix.columns},
          bytes_of(matrix, "F32")};
}

constexpr const char* kMixtralNames[] = {"w1", "w3", "w2"};
std::vector<HfBytes> each_expert(const std::vector<ExpertLora>& loras) {
  std::vector<HfBytes> tensors;
  for (uint32_t e = 0; e < loras.size(); ++e)
    for (uint32_t m = 0; m < 3; ++m) {
      const std::string module = fmt::format("block_sparse_moe.experts.{}.{}", e, kMixtralNames[m]);
      tensors.push_back(peft_matrix(module, 'A', loras[e].a[m]));
      tensors.push_back(peft_matrix(module, 'B', loras[e].b[m]));
    }
  return tensors;
}

// A of all experts behind each other; B with the experts of a rank beside each other.
TestMatrix flattened_a(const std::vector<TestMatrix>& of_experts) {
  TestMatrix all{0, of_experts[0].columns, {}};
  for (const TestMatrix& a : of_experts) {
    all.rows += a.rows;
    all.numbers.insert(all.numbers.end(), a.numbers.begin(), a.numbers.end());
  }
  return all;
}
TestMatrix flattened_b(const std::vector<TestMatrix>& of_experts) {
  TestMatrix all{of_experts[0].rows, 0, {}};
  all.columns = of_experts[0].columns * of_experts.size();
  for (uint64_t row = 0; row < all.rows; ++row)
    for (uint64_t j = 0; j < of_experts[0].columns; ++j)
      for (const TestMatrix& b : of_experts) all.numbers.push_back(b.at(row, j));
  return all;
}
// One A for gates and other halves, as a tensor of both has it: `loras` have equal ones.
std::vector<HfBytes> flattened(const std::vector<ExpertLora>& loras, const std::string& up, const std::string& down) {
  std::vector<TestMatrix> up_a, up_b, down_a, down_b;
  for (const ExpertLora& lora : loras) {
    TestMatrix both = lora.b[0];
    both.rows *= 2;
    both.numbers.insert(both.numbers.end(), lora.b[1].numbers.begin(), lora.b[1].numbers.end());
    up_a.push_back(lora.a[0]);
    up_b.push_back(both);
    down_a.push_back(lora.a[2]);
    down_b.push_back(lora.b[2]);
  }
  return {peft_matrix(up, 'A', flattened_a(up_a)), peft_matrix(up, 'B', flattened_b(up_b)),
          peft_matrix(down, 'A', flattened_a(down_a)), peft_matrix(down, 'B', flattened_b(down_b))};
}

GgufBytes gguf_stacks(const std::vector<ExpertLora>& loras, bool shares_a = false) {
  GgufBytes file = gguf_adapter({});
  constexpr const char* kNames[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
  for (uint32_t m = 0; m < 3; ++m) {
    const TestMatrix &a = loras[0].a[m], &b = loras[0].b[m];
    std::string all_a, all_b;
    for (const ExpertLora& lora : loras) {
      all_a += bytes_of(lora.a[m], "F32");
      all_b += bytes_of(lora.b[m], "F32");
    }
    std::vector<uint64_t> dims = {a.columns, a.rows, loras.size()};
    if (shares_a) {
      dims.pop_back();
      all_a = bytes_of(a, "F32");
    }
    const std::string name = fmt::format("blk.0.{}.weight", kNames[m]);
    file.tensors.push_back({name + ".lora_a", dims, 0, all_a, {}, {}});
    file.tensors.push_back({name + ".lora_b", {b.columns, b.rows, loras.size()}, 0, all_b, {}, {}});
  }
  return file;
}

std::string mixtral_config(const std::string& more = "", int rank = 4) {
  return fmt::format(
      R"({{"peft_type":"LORA","r":{},"lora_alpha":8,"bias":"none","target_modules":["w1","w2","w3","q_proj"]{}}})",
      rank, more);
}
constexpr const char* kBothParameters = R"(,"target_parameters":["experts.gate_up_proj","experts.down_proj"])";

// B (A x) of part `p` of an expert, as AdapterEntry says, in f32.
std::vector<double> image_products(const AdapterImage& image, const AdapterRun& run, uint32_t expert, uint32_t p,
                                   const std::vector<float>& x) {
  const AdapterEntry& entry = run.entry;
  const auto bytes = image.run_bytes(run);
  const auto number = [&](uint32_t offset, uint64_t i) {
    float value;
    REQUIRE(offset * kAdapterUnitBytes + i * 4 + 4 <= bytes.size());
    std::memcpy(&value, bytes.data() + offset * kAdapterUnitBytes + i * 4, 4);
    return double{value};
  };
  const uint32_t rank_begin = p == 0 ? 0 : entry.rank_end[p - 1], row_begin = p == 0 ? 0 : entry.row_end[p - 1];
  const uint32_t rank = entry.rank_end[p] - rank_begin;
  std::vector<double> out(entry.row_end[p] - row_begin);
  if (expert - entry.expert_first >= entry.num_experts) return out;
  const uint32_t own = expert - entry.expert_first;
  for (uint32_t j = 0; j < rank; ++j) {
    double shrunk = 0;
    for (size_t k = 0; k < x.size(); ++k)
      shrunk += number(entry.a_offset + own * entry.a_stride, uint64_t{rank_begin + j} * x.size() + k) * x[k];
    for (size_t row = 0; row < out.size(); ++row)
      out[row] += entry.scale[p] * number(entry.b_offset[p] + own * entry.b_stride[p], row * rank + j) * shrunk;
  }
  return out;
}

void expect_products(const AdapterImage& image, const AdapterRun& run, uint32_t expert, uint32_t p, const TestMatrix& a,
                     const TestMatrix& b, double scale) {
  const std::vector<float> x = test_matrix(1, a.columns, 77).numbers;
  const std::vector<double> found = image_products(image, run, expert, p, x);
  REQUIRE(found.size() == b.rows);
  for (uint64_t row = 0; row < b.rows; ++row) {
    double expected = 0;
    for (uint64_t j = 0; j < a.rows; ++j)
      for (uint64_t k = 0; k < a.columns; ++k) expected += scale * b.at(row, j) * a.at(j, k) * x[k];
    CHECK(std::abs(found[row] - expected) <= 1e-5 * (1 + std::abs(expected)));
  }
}

// All of them, by scale 8 / rank.
void expect_image(const Adapter& adapter, const std::vector<ExpertLora>& loras, AdapterImage* image) {
  auto made = make_image(adapter, DType::kF32);
  REQUIRE(made.ok());
  CHECK(made->bytes.size() == image_bytes(adapter, DType::kF32));
  CHECK(made->changes_experts());
  REQUIRE(made->runs.size() == 2);
  for (uint32_t e = 0; e < kExperts; ++e)
    for (uint32_t m = 0; m < 3; ++m) {
      INFO("expert " << e << ", matrix " << m);
      const double scale = 8.0 / static_cast<double>(loras[e].a[m].rows);
      expect_products(*made, made->runs[m == 2], e, m % 2, loras[e].a[m], loras[e].b[m], scale);
    }
  *image = *std::move(made);
}

}  // namespace

TEST_CASE("experts' adapters of all kinds of files are one adapter, with a product of each expert") {
  const auto model = tiny_mixtral();
  auto loras = expert_loras(4);
  for (ExpertLora& lora : loras) lora.a[1] = lora.a[0];
  const auto each = expect_ok(read_peft(mixtral_config(), each_expert(loras), *model));
  const auto all = expect_ok(
      read_peft(mixtral_config(kBothParameters), flattened(loras, "mlp.experts.base_layer", "mlp.experts"), *model));
  const auto gguf = expect_ok(read_gguf(gguf_stacks(loras).build(), *model));
  CHECK(to_hex(each->digest) == to_hex(all->digest));
  CHECK(to_hex(each->digest) == to_hex(gguf->digest));
  for (const auto& adapter : {each, all, gguf}) {
    AdapterImage image;
    expect_image(*adapter, loras, &image);
    CHECK(image.runs[0].entry.expert_first == 0);
    CHECK(image.runs[0].entry.num_experts == kExperts);
    CHECK(image.runs[0].entry.a_stride == 2 * 8 * kWidth * 4 / kAdapterUnitBytes);
    CHECK(image.runs[0].entry.b_stride[1] == 8 * kFfn * 4 / kAdapterUnitBytes);
  }
}

TEST_CASE("one A for all experts lies in the pool once") {
  const auto model = tiny_mixtral();
  auto loras = expert_loras(5);
  for (ExpertLora& lora : loras)
    for (uint32_t m = 0; m < 3; ++m) lora.a[m] = loras[0].a[m];
  const auto shared = expect_ok(read_gguf(gguf_stacks(loras, true).build(), *model));
  const auto whole = expect_ok(read_gguf(gguf_stacks(loras).build(), *model));
  CHECK(to_hex(shared->digest) == to_hex(whole->digest));
  AdapterImage image, other;
  expect_image(*shared, loras, &image);
  expect_image(*whole, loras, &other);
  CHECK(image.runs[0].entry.a_stride == 0);
  CHECK(image.runs[0].entry.b_stride[0] > 0);
  CHECK(image.bytes.size() < other.bytes.size());
}

TEST_CASE("experts of several ranks and scales, and none, are told apart") {
  const auto model = tiny_mixtral();
  // Experts 1 and 2 alone, by ranks 3 and 12, and expert 2's down not at all.
  const ExpertLora few = expert_lora(3, 1), many = expert_lora(12, 2);
  auto tensors = each_expert({few, few, many});
  tensors.erase(tensors.end() - 2, tensors.end());
  tensors.erase(tensors.begin(), tensors.begin() + 6);
  const auto adapter = expect_ok(read_peft(
      mixtral_config(R"(,"rank_pattern":{"experts.1.w1":3,"experts.1.w2":3,"experts.1.w3":3})", 12), tensors, *model));
  CHECK(adapter->rank_max == 12);
  auto image = make_image(*adapter, DType::kF32);
  REQUIRE(image.ok());
  CHECK(image->bytes.size() == image_bytes(*adapter, DType::kF32));
  REQUIRE(image->runs.size() == 2);
  const AdapterEntry &up = image->runs[0].entry, &down = image->runs[1].entry;
  CHECK(up.expert_first == 1);
  CHECK(up.num_experts == 2);
  CHECK(down.expert_first == 1);
  CHECK(down.num_experts == 1);
  for (uint32_t m = 0; m < 2; ++m) {
    expect_products(*image, image->runs[0], 1, m, few.a[m], few.b[m], 8.0 / 3);
    expect_products(*image, image->runs[0], 2, m, many.a[m], many.b[m], 8.0 / 12);
  }
  expect_products(*image, image->runs[1], 1, 0, few.a[2], few.b[2], 8.0 / 3);
  const std::vector<double> untouched = image_products(*image, image->runs[1], 2, 0, test_matrix(1, kFfn, 77).numbers);
  CHECK(untouched == std::vector<double>(kWidth));
}

TEST_CASE("of two parameters of a module the second lies outside, and one alone has the module's own name") {
  const auto model = tiny_mixtral();
  auto loras = expert_loras(4);
  for (ExpertLora& lora : loras) lora.a[1] = lora.a[0];
  const auto both = flattened(loras, "mlp.experts.base_layer", "mlp.experts");
  const auto down = flattened(loras, "x", "mlp.experts");
  const auto only = [&](const std::string& parameters, const std::vector<HfBytes>& tensors) {
    return read_peft(mixtral_config(R"(,"target_parameters":[)" + parameters + "]"), tensors, *model);
  };
  const std::vector<HfBytes> own(down.begin() + 2, down.end());
  const auto adapter = expect_ok(only(R"("mlp.experts.down_proj")", own));
  REQUIRE(adapter->groups.size() == 1);
  CHECK(adapter->groups[0].group == model->layers[0].down);
  expect_error(only(R"("mlp.experts.down_proj")", both), "expected a parameter that adapter_config.json names",
               ErrorCode::kCorruptFile);
  expect_error(only(R"("experts.gate_up_proj")", own), "expected [32, 16], found", ErrorCode::kInvalidArgument);
  expect_error(only(R"("experts.down_proj","experts.down_proj_bias")", own), "expected no adapters on biases",
               ErrorCode::kUnsupported);
  expect_error(only(R"("mlp.other")", own), "expected a module of llama", ErrorCode::kInvalidArgument);
  // By another rank than the configuration says.
  expect_error(read_peft(mixtral_config(kBothParameters, 8), both, *model), "expected [48, 32], found",
               ErrorCode::kInvalidArgument);
}

TEST_CASE("adapters on experts that fit no expert are refused by name") {
  const auto model = tiny_mixtral();
  const auto loras = expert_loras(4);
  const auto changed = [&](const auto& change) {
    auto tensors = each_expert(loras);
    change(tensors);
    return read_peft(mixtral_config(), tensors, *model);
  };
  const auto renamed = [&](const std::string& module) {
    return changed([&](std::vector<HfBytes>& tensors) {
      for (size_t i : {0, 1})
        tensors[i] = peft_matrix(module, i == 0 ? 'A' : 'B', i == 0 ? loras[0].a[0] : loras[0].b[0]);
    });
  };
  CHECK(renamed("block_sparse_moe.experts.0.w1").ok());
  expect_error(renamed("block_sparse_moe.experts.4.w1"), "expected a module of llama", ErrorCode::kInvalidArgument);
  expect_error(renamed("block_sparse_moe.experts.-1.w1"), "expected a module of llama", ErrorCode::kInvalidArgument);
  expect_error(renamed("block_sparse_moe.experts.99999999999999999999.w1"), "expected a module of llama",
               ErrorCode::kInvalidArgument);
  expect_error(renamed("block_sparse_moe.experts.0.w9"), "expected a module of llama", ErrorCode::kInvalidArgument);
  expect_error(renamed("block_sparse_moe.gate"), "expected a matrix of attention", ErrorCode::kUnsupported);
  expect_error(renamed("mlp.gate_proj"), "which it does not have", ErrorCode::kInvalidArgument);
  expect_error(changed([](auto& tensors) { tensors.erase(tensors.begin()); }), "expected the module's A",
               ErrorCode::kCorruptFile);
  expect_error(changed([](auto& tensors) { std::swap(tensors[0].shape, tensors[4].shape); }), "",
               ErrorCode::kCorruptFile);
  // Both a tensor of each expert and one for all.
  auto twice = each_expert({loras[0]});
  for (const HfBytes& tensor : flattened(loras, "mlp.experts.base_layer", "mlp.experts")) twice.push_back(tensor);
  expect_error(read_peft(mixtral_config(kBothParameters), twice, *model), "expected one adapter on",
               ErrorCode::kCorruptFile);

  const auto stacked = [&](const auto& change) {
    GgufBytes file = gguf_stacks(loras);
    change(file);
    return read_gguf(file.build(), *model);
  };
  CHECK(stacked([](GgufBytes&) {}).ok());
  expect_error(stacked([](GgufBytes& file) { file.tensors.erase(file.tensors.begin() + 1); }),
               "expected the module's B", ErrorCode::kCorruptFile);
  expect_error(stacked([](GgufBytes& file) {
                 file.tensors[1].dims[2] = 3;
                 file.tensors[1].data.resize(4 * 48 * 3 * 4);
               }),
               "expected [4, 48, 4] or [4, 48], found", ErrorCode::kInvalidArgument);
  expect_error(stacked([](GgufBytes& file) { std::swap(file.tensors[0].dims[0], file.tensors[0].dims[1]); }),
               "expected [32, 32, 4] or [32, 32], found", ErrorCode::kInvalidArgument);
  CHECK_FALSE(stacked([](GgufBytes& file) { file.tensors[0].dims[2] = 1ull << 62; }).ok());
  expect_error(stacked([](GgufBytes& file) {
                 for (size_t i : {0, 1}) file.tensors[i].name.replace(4, 1, "1");
               }),
               "which it does not have", ErrorCode::kInvalidArgument);
  expect_error(stacked([](GgufBytes& file) {
                 for (size_t i : {0, 1}) file.tensors[i].name.replace(6, 13, "ffn_gate_shexp");
               }),
               "which it does not have", ErrorCode::kInvalidArgument);
  expect_error(stacked([](GgufBytes& file) {
                 const std::string nan = raw(std::nanf(""));
                 file.tensors[1].data.replace(file.tensors[1].data.size() - 4, 4, nan);
               }),
               "expected finite numbers", ErrorCode::kCorruptFile);
  // A model without experts.
  expect_error(read_gguf(gguf_stacks(loras).build(), *tiny_llama()), "which it does not have",
               ErrorCode::kInvalidArgument);
}

TEST_CASE("a file of stacks that was cut or changed anywhere is refused or read, never more") {
  const auto model = tiny_mixtral();
  GgufBytes file = gguf_stacks(expert_loras(1));
  file.tensors.resize(2);
  const std::string whole = file.build();
  for (size_t size = 0; size < whole.size(); size += 7)
    CHECK_FALSE(read_gguf_adapter(as_span(whole).first(size), *model, "test").ok());
  for (size_t at = 0; at < 600 && at < whole.size(); ++at)
    for (const int flip : {0x11, 0x80}) {
      std::string other = whole;
      other[at] = static_cast<char>(other[at] ^ flip);
      const auto adapter = read_gguf_adapter(as_span(other), *model, "test");
      if (adapter.ok()) CHECK(make_image(**adapter, DType::kF32).ok());
    }
}
