// GGUF adapters: the same adapter as a PEFT folder, over a model of either kind, and what is refused.
#include "core/adapter/adapter_image.h"
#include "tests/adapter/adapter_bytes.h"

using namespace llmrt;
using namespace llmrt::test;

TEST_CASE("both kinds of files give one digest and one image, over models of both kinds") {
  for (const auto& model : {tiny_llama(), tiny_llama_folder()}) {
    const auto peft = expect_ok(read_peft(peft_config(), peft_tensors(usual_loras(), "BF16"), *model));
    const auto gguf = expect_ok(read_gguf(gguf_adapter(usual_loras()).build(), *model));
    CHECK(to_hex(peft->digest) == to_hex(gguf->digest));
    const auto a = make_image(*peft, DType::kF32), b = make_image(*gguf, DType::kF32);
    REQUIRE(a.ok());
    REQUIRE(b.ok());
    CHECK(a->bytes == b->bytes);
    CHECK(to_hex(expect_ok(read_gguf(gguf_adapter(usual_loras(), 4).build(), *model))->digest) != to_hex(peft->digest));
  }
}

TEST_CASE("an alpha of 0 is a scale of 1, others are divided by the rank") {
  const auto model = tiny_llama();
  for (const auto& [alpha, scale] : {std::pair{0.0f, 1.0f}, {4.0f, 1.0f}, {-2.0f, -0.5f}}) {
    const auto adapter = expect_ok(read_gguf(gguf_adapter(usual_loras(), alpha).build(), *model));
    CHECK(adapter->groups[0].parts[0].scale == scale);
  }
  // Each pair has a rank of its own.
  std::vector<TestLora> loras = usual_loras();
  loras[3] = test_lora("mlp.up_proj", "ffn_up", 48, 32, 16, 3);
  const auto adapter = expect_ok(read_gguf(gguf_adapter(loras).build(), *model));
  CHECK(find_part(*adapter, *model, "blk.0.ffn_up.weight")->scale == 0.5f);
  CHECK(adapter->rank_max == 16);
}

TEST_CASE("a GGUF file that is no LoRA adapter of this model is refused by key or tensor") {
  const auto model = tiny_llama();
  const auto changed = [&](const std::function<void(GgufBytes&)>& change) {
    GgufBytes file = gguf_adapter(usual_loras());
    change(file);
    return read_gguf(file.build(), *model);
  };
  const auto without = [&](
                           size_t pair, const std::function<void(GgufBytes&)>& instead = [](GgufBytes&) {}) {
    return changed([&](GgufBytes& file) {
      file.pairs.erase(file.pairs.begin() + static_cast<std::ptrdiff_t>(pair));
      instead(file);
    });
  };
  expect_error(without(0), "general.type", ErrorCode::kCorruptFile);
  expect_error(without(0, [](GgufBytes& file) { file.string("general.type", "model"); }),
               "general.type: expected adapter, found model", ErrorCode::kUnsupported);
  expect_error(without(1, [](GgufBytes& file) { file.string("general.architecture", "qwen3"); }),
               "general.architecture: expected llama, found qwen3", ErrorCode::kInvalidArgument);
  expect_error(without(2, [](GgufBytes& file) { file.string("adapter.type", "control_vector"); }),
               "adapter.type: expected lora, found control_vector", ErrorCode::kUnsupported);
  expect_error(without(3, [](GgufBytes& file) { file.f32("adapter.lora.alpha", NAN); }), "adapter.lora.alpha",
               ErrorCode::kCorruptFile);
  expect_error(changed([](GgufBytes& file) { file.string("adapter.lora.prompt_prefix", "x"); }),
               "adapter.lora.prompt_prefix: not a key that is known here", ErrorCode::kUnsupported);
  CHECK(changed([](GgufBytes& file) { file.string("general.name", "x"); }).ok());
  CHECK(without(3).ok());  // no alpha: a scale of 1
  expect_error(changed([](GgufBytes& file) { file.tensor_f32("blk.0.attn_norm.weight", {32}); }),
               "attn_norm.weight: expected a name that ends in .lora_a or .lora_b", ErrorCode::kUnsupported);
  struct Row {
    const char *name, *message;
    ErrorCode code;
  };
  const Row kRows[] = {
      {"token_embd.weight.lora_a", "no adapter on the embedding", ErrorCode::kUnsupported},
      {"blk.0.attn_norm.weight.lora_a", "expected a matrix of attention", ErrorCode::kUnsupported},
      {"blk.0.ffn_gate_exps.weight.lora_a", "found blk.0.ffn_gate_exps.weight, which it does not have",
       ErrorCode::kInvalidArgument},
      {"blk.1.ffn_up.weight.lora_a", "found blk.1.ffn_up.weight, which it does not have", ErrorCode::kInvalidArgument},
      {"blk.0.ffn_gate.weight.lora_a", "expected the module's B", ErrorCode::kCorruptFile},
      {".lora_a", "which it does not have", ErrorCode::kInvalidArgument},
  };
  for (const Row& row : kRows)
    expect_error(changed([&](GgufBytes& file) { file.tensor_f32(row.name, {32, 4}); }), row.message, row.code);
  expect_error(changed([](GgufBytes& file) { file.tensors.resize(1); }), "expected the module's B",
               ErrorCode::kCorruptFile);
  expect_error(changed([](GgufBytes& file) { file.tensors.clear(); }), "expected a matrix that it changes",
               ErrorCode::kCorruptFile);
  expect_error(changed([](GgufBytes& file) { file.tensors.push_back(file.tensors[0]); }), "found twice",
               ErrorCode::kCorruptFile);
  const auto with_rank = [&](uint32_t rank) {
    return read_gguf(gguf_adapter({test_lora("mlp.up_proj", "ffn_up", 48, 32, rank, 3)}).build(), *model);
  };
  CHECK(with_rank(kAdapterRankMax).ok());
  expect_error(with_rank(kAdapterRankMax + 1), "expected a rank in [1, 128], found 129", ErrorCode::kUnsupported);
}

TEST_CASE("invocation tokens are read from GGUF files too, and count in the digest") {
  const auto model = tiny_llama();
  GgufBytes file = gguf_adapter(usual_loras());
  file.array<uint32_t>("adapter.alora.invocation_tokens", kU32, {3, 7});
  const auto gguf = expect_ok(read_gguf(file.build(), *model));
  CHECK(gguf->invocation_tokens == std::vector<int32_t>{3, 7});
  const auto peft =
      expect_ok(read_peft(peft_config(R"(,"alora_invocation_tokens":[3,7])"), peft_tensors(usual_loras()), *model));
  CHECK(to_hex(gguf->digest) == to_hex(peft->digest));
  file = gguf_adapter(usual_loras());
  file.array<uint32_t>("adapter.alora.invocation_tokens", kU32, {8});
  expect_error(read_gguf(file.build(), *model), "expected tokens below 8, found 8", ErrorCode::kInvalidArgument);
}

TEST_CASE("a GGUF adapter that was cut anywhere is refused") {
  const auto model = tiny_llama();
  const std::string whole = gguf_adapter({usual_loras()[1]}).build();
  for (size_t size = 0; size < whole.size(); ++size)
    CHECK_FALSE(read_gguf_adapter(as_span(whole).first(size), *model, "test").ok());
  for (size_t at = 0; at + 800 < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x11);
    (void)read_gguf_adapter(as_span(changed), *model, "test");
  }
}
