// PEFT folders: what is read goes to the right rows with the right scale, and everything else is refused by name.
#include "core/adapter/adapter.h"
#include "tests/adapter/adapter_bytes.h"

using namespace llmrt;
using namespace llmrt::test;

TEST_CASE("a folder's matrices go to the parts of the groups that they change") {
  const auto model = tiny_llama();
  const auto adapter = expect_ok(read_peft(peft_config(), peft_tensors(usual_loras()), *model));
  REQUIRE(adapter->groups.size() == 4);  // q with k, output, gate with up, down
  CHECK(adapter->rank_max == 4);
  const AdapterGroup& qkv = adapter->groups[0];
  CHECK(qkv.group == model->layers[0].qkv);
  CHECK(qkv.columns == 32);
  REQUIRE(qkv.parts.size() == 3);
  CHECK(qkv.parts[0].rank == 4);
  CHECK(qkv.parts[0].scale == 2);
  CHECK(qkv.parts[2].rank == 0);  // v is not changed
  CHECK(qkv.parts[2].rows == 16);
  const AdapterPart* up = find_part(*adapter, *model, "blk.0.ffn_up.weight");
  REQUIRE(up != nullptr);
  CHECK(find_part(*adapter, *model, "blk.0.ffn_gate.weight")->rank == 0);
  const TestLora lora = usual_loras()[3];
  std::vector<float> row(32);
  read_a_row(*up, 2, row);
  CHECK(row == std::vector<float>(lora.a.numbers.begin() + 2 * 32, lora.a.numbers.begin() + 3 * 32));
  row.resize(4);
  read_b_row(*up, 47, row);
  CHECK(row == std::vector<float>(lora.b.numbers.end() - 4, lora.b.numbers.end()));
}

TEST_CASE("rows of q and k are those of the model, where these are pairs of neighbours, and stay where they are not") {
  const TestLora q = usual_loras()[0];
  std::vector<float> row(4);
  for (const bool is_gguf : {true, false}) {
    const auto model = is_gguf ? tiny_llama() : tiny_llama_folder();
    const auto adapter = expect_ok(read_peft(peft_config(), peft_tensors(usual_loras()), *model));
    const AdapterPart* part = find_part(*adapter, *model, "blk.0.attn_q.weight");
    REQUIRE(part != nullptr);
    using Rows = std::vector<std::pair<uint64_t, uint64_t>>;  // of the model, of the file
    for (const auto& [at, from] :
         is_gguf ? Rows{{0, 0}, {1, 8}, {2, 1}, {15, 15}, {17, 24}} : Rows{{0, 0}, {1, 1}, {17, 17}}) {
      read_b_row(*part, at, row);
      for (uint64_t j = 0; j < 4; ++j) CHECK(row[j] == q.b.at(from, j));
    }
  }
}

TEST_CASE("the head may be changed, tied or not") {
  const auto model = tiny_llama();
  TestLora head = test_lora("lm_head", "", 8, 32, 4, 11);
  auto tensors = peft_tensors({head});
  tensors[0].name = "base_model.model.lm_head.lora_A.weight";
  tensors[1].name = "base_model.model.lm_head.lora_B.weight";
  const auto adapter = expect_ok(read_peft(peft_config(), tensors, *model));
  REQUIRE(adapter->groups.size() == 1);
  CHECK(adapter->groups[0].group == model->head);
  CHECK(adapter->groups[0].parts[0].rows == 8);
  expect_error(read_peft(R"({"peft_type":"LORA","r":4,"target_modules":"all-linear"})", tensors, *model),
               "expected a module that adapter_config.json names as a target", ErrorCode::kCorruptFile);
}

TEST_CASE("copies of the model's own head and embedding change nothing, others are refused") {
  const auto model = tiny_llama();
  const auto with = [&](const std::string& name, const std::vector<float>& rows) {
    auto tensors = peft_tensors(usual_loras());
    tensors.push_back({name, "BF16", {8, 32}, bytes_of(TestMatrix{8, 32, rows}, "BF16")});
    return read_peft(peft_config(), tensors, *model);
  };
  std::vector<float> rows(8 * 32, 0.125f);  // tiny_model()'s
  const auto digest = expect_ok(read_peft(peft_config(), peft_tensors(usual_loras()), *model))->digest;
  for (const char* name : {"base_model.model.lm_head.base_layer.weight", "base_model.model.lm_head.weight",
                           "base_model.model.model.embed_tokens.weight"}) {
    CHECK(expect_ok(with(name, rows))->digest == digest);
    std::vector<float> trained = rows;
    trained[5 * 32 + 3] = 0.25f;
    expect_error(with(name, trained), "row 5: expected the model's own numbers", ErrorCode::kUnsupported);
    trained[5 * 32 + 3] = NAN;
    expect_error(with(name, trained), "row 5: expected the model's own numbers", ErrorCode::kUnsupported);
  }
}

TEST_CASE("ranks and scales follow the patterns, and the square root where it is asked for") {
  const auto model = tiny_llama();
  std::vector<TestLora> loras = usual_loras();
  loras[2] = test_lora("self_attn.o_proj", "attn_output", 32, 32, 16, 5);
  const std::string more =
      R"(,"rank_pattern":{"o_proj":16},"alpha_pattern":{"layers.0.mlp.up_proj":2,".*proj":12,"o_proj":1},)"
      R"("use_rslora":true)";
  std::string config = peft_config(more);
  config.replace(config.find(R"(,"rank_pattern":{})"), 18, "");
  const auto adapter = expect_ok(read_peft(config, peft_tensors(loras), *model));
  CHECK(find_part(*adapter, *model, "blk.0.attn_output.weight")->rank == 16);
  CHECK(find_part(*adapter, *model, "blk.0.attn_output.weight")->scale == 3);  // 12 / sqrt(16): the first that matches
  CHECK(find_part(*adapter, *model, "blk.0.ffn_up.weight")->scale == 1);       // 2 / sqrt(4)
  CHECK(find_part(*adapter, *model, "blk.0.ffn_down.weight")->scale == 6);
  CHECK(adapter->rank_max == 16);
  expect_error(read_peft(peft_config(), peft_tensors(loras), *model),
               "self_attn.o_proj.lora_A.weight: expected [32, 4], found [32, 16] f32", ErrorCode::kInvalidArgument);
}

TEST_CASE("f16 and bf16 hold the same numbers, so the digest is the same; any change is another") {
  const auto model = tiny_llama();
  const auto digest_of = [&](const std::string& config, const std::vector<HfBytes>& tensors) {
    return to_hex(expect_ok(read_peft(config, tensors, *model))->digest);
  };
  const std::string digest = digest_of(peft_config(), peft_tensors(usual_loras()));
  CHECK(digest == digest_of(peft_config(), peft_tensors(usual_loras(), "F16")));
  CHECK(digest == digest_of(peft_config(), peft_tensors(usual_loras(), "BF16")));
  CHECK(digest == digest_of(peft_config(R"(,"base_model_name_or_path":"elsewhere")"), peft_tensors(usual_loras())));
  CHECK(digest != digest_of(peft_config(R"(,"use_rslora":true)"), peft_tensors(usual_loras())));
  CHECK(digest != digest_of(peft_config(R"(,"alora_invocation_tokens":[1,2])"), peft_tensors(usual_loras())));
  std::vector<TestLora> loras = usual_loras();
  loras[1].b.numbers[5] += 0.0625f;
  CHECK(digest != digest_of(peft_config(), peft_tensors(loras)));
  loras = usual_loras();
  std::swap(loras[0].b.numbers[0], loras[0].b.numbers[1]);
  CHECK(digest != digest_of(peft_config(), peft_tensors(loras)));
  loras = usual_loras();
  loras.pop_back();
  CHECK(digest != digest_of(peft_config(), peft_tensors(loras)));
}

TEST_CASE("invocation tokens of aLoRA are kept, and are tokens of the model") {
  const auto model = tiny_llama();
  const auto tensors = peft_tensors(usual_loras());
  const auto adapter = expect_ok(read_peft(peft_config(R"(,"alora_invocation_tokens":[6,0,7])"), tensors, *model));
  CHECK(adapter->invocation_tokens == std::vector<int32_t>{6, 0, 7});
  CHECK(expect_ok(read_peft(peft_config(R"(,"alora_invocation_tokens":null)"), tensors, *model))
            ->invocation_tokens.empty());
  expect_error(read_peft(peft_config(R"(,"alora_invocation_tokens":[8])"), tensors, *model),
               "alora_invocation_tokens: expected tokens below 8, found 8", ErrorCode::kInvalidArgument);
  std::string many = "0";
  for (size_t i = 0; i < kInvocationTokensMax; ++i) many += ",1";
  expect_error(read_peft(peft_config(fmt::format(R"(,"alora_invocation_tokens":[{}])", many)), tensors, *model),
               "expected 1 to 64 tokens, found 65", ErrorCode::kUnsupported);
  expect_error(read_peft(peft_config(R"(,"alora_invocation_tokens":[])"), tensors, *model), "alora_invocation_tokens",
               ErrorCode::kCorruptFile);
}

TEST_CASE("tensors that are not a module's two halves are refused by name") {
  const auto model = tiny_llama();
  struct Row {
    const char *name, *message;
    ErrorCode code;
  };
  const Row kRows[] = {
      {"base_model.model.model.embed_tokens.lora_embedding_A", "no adapter on the embedding", ErrorCode::kUnsupported},
      {"base_model.model.model.embed_tokens.lora_A.weight", "no adapter on the embedding", ErrorCode::kUnsupported},
      {"base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector", "use_dora", ErrorCode::kUnsupported},
      {"base_model.model.model.layers.0.mlp.up_proj.lora_B.bias", "lora_bias", ErrorCode::kUnsupported},
      {"base_model.model.lm_head.modules_to_save.weight", "modules_to_save", ErrorCode::kUnsupported},
      {"base_model.model.model.embed_tokens.weight", "expected [32, 8], found [32, 4] f32",
       ErrorCode::kInvalidArgument},
      {"base_model.model.model.layers.0.mlp.gate_proj.weight", "expected no weights of the model itself",
       ErrorCode::kUnsupported},
      {"model.layers.0.mlp.gate_proj.lora_A.weight", "expected base_model.model.<module>", ErrorCode::kUnsupported},
      {"base_model.model.model.layers.0.mlp.experts.3.up_proj.lora_A.weight", "expected a module of llama",
       ErrorCode::kInvalidArgument},
      {"base_model.model.model.layers.0.input_layernorm.lora_A.weight", "expected a matrix of attention",
       ErrorCode::kUnsupported},
      {"base_model.model.model.layers.1.mlp.up_proj.lora_A.weight", "expected a module of llama with 1 layers",
       ErrorCode::kInvalidArgument},
      {"base_model.model.model.layers.0.mlp.fc1.lora_A.weight", "expected a module of llama",
       ErrorCode::kInvalidArgument},
      {"base_model.model.model.layers.0.mlp.gate_proj.lora_A.weight", "expected the module's B",
       ErrorCode::kCorruptFile},
      {"base_model.model.model.layers.0.mlp.gate_proj.lora_B.weight", "expected the module's A",
       ErrorCode::kCorruptFile},
  };
  for (const Row& row : kRows) {
    auto tensors = peft_tensors(usual_loras());
    tensors.push_back({row.name, "F32", {4, 32}, std::string(4 * 32 * 4, '\0')});
    expect_error(read_peft(peft_config(), tensors, *model), row.message, row.code);
  }
  expect_error(read_peft(peft_config(), {}, *model), "expected a matrix that it changes", ErrorCode::kCorruptFile);
}

TEST_CASE("shapes, types, ranks and numbers are checked before anything is taken") {
  const auto model = tiny_llama();
  const auto changed = [&](const std::function<void(std::vector<HfBytes>&)>& change,
                           const std::string& config = peft_config()) {
    auto tensors = peft_tensors(usual_loras());
    change(tensors);
    return read_peft(config, tensors, *model);
  };
  expect_error(changed([](auto& t) {
                 t[0].shape = {32, 4};
               }),
               "q_proj.lora_A.weight: expected [32, 4], found [4, 32] f32", ErrorCode::kInvalidArgument);
  expect_error(changed([](auto& t) {
                 t[1].shape = {64, 2};
               }),
               "q_proj.lora_B.weight: expected [4, 32], found [2, 64] f32", ErrorCode::kInvalidArgument);
  expect_error(changed([](auto& t) {
                 t[0].shape = {4, 2, 16};
               }),
               "expected [32, 4], found [16, 2, 4] f32", ErrorCode::kInvalidArgument);
  expect_error(changed([](auto& t) {
                 t[0].dtype = "F8_E4M3";
                 t[0].data.resize(4 * 32);
               }),
               "expected f32, f16 or bf16, found [32, 4] f8_e4m3", ErrorCode::kUnsupported);
  for (const float number : {INFINITY, -INFINITY, NAN}) {
    expect_error(changed([&](auto& t) { std::memcpy(t[3].data.data() + 40, &number, sizeof number); }),
                 "k_proj.lora_B.weight: expected finite numbers", ErrorCode::kCorruptFile);
    expect_error(changed([&](auto& t) { std::memcpy(t[4].data.data(), &number, sizeof number); }),
                 "o_proj.lora_A.weight: expected finite numbers", ErrorCode::kCorruptFile);
  }
  expect_error(changed([](auto&) {}, peft_config("", 129)), "r: expected at most 128, found 129",
               ErrorCode::kUnsupported);
  expect_error(changed([](auto&) {}, peft_config("", 0)), "r: expected a positive integer, found 0",
               ErrorCode::kCorruptFile);
  expect_error(changed([](auto& t) { t.push_back(t[0]); }), "occurs twice", ErrorCode::kCorruptFile);
}

TEST_CASE("matrices whose columns no kernel reads are refused") {
  GgufBytes file = tiny_model();
  file.pairs.clear();
  file.tensors.clear();
  for (const auto& pair : tiny_model().pairs)
    if (pair.find("feed_forward_length") == std::string::npos) file.pairs.push_back(pair);
  file.u32("llama.feed_forward_length", 36);
  for (GgufBytes::Tensor tensor : tiny_model().tensors) {
    for (uint64_t& dim : tensor.dims)
      if (dim == 48) dim = 36;
    tensor.data.resize(std::min<size_t>(
        tensor.data.size(), tensor.dims.size() == 2 ? tensor.dims[0] * tensor.dims[1] * 4 : tensor.data.size()));
    file.tensors.push_back(tensor);
  }
  const std::string bytes = file.build();
  auto source = parse_weight_source(as_span(bytes));
  REQUIRE(source.ok());
  auto model = load_from_source(*source, "odd");
  REQUIRE(model.ok());
  CHECK(read_peft(peft_config(), peft_tensors({test_lora("mlp.up_proj", "ffn_up", 36, 32, 4, 1)}), **model).ok());
  expect_error(read_peft(peft_config(), peft_tensors({test_lora("mlp.down_proj", "ffn_down", 32, 36, 4, 1)}), **model),
               "expected a matrix of a multiple of 8 columns, found 36", ErrorCode::kUnsupported);
}

TEST_CASE("tensors that overlap, or leave bytes between them, are refused") {
  const auto model = tiny_llama();
  const std::string whole = safetensors_of(peft_tensors({usual_loras()[1]}));  // 512 bytes of A, 256 of B
  const std::string own = "[512,768]";
  REQUIRE(whole.find(own) != std::string::npos);
  for (const char* other : {"[256,512]", "[500,756]", "[513,769]", "[512,767]"}) {
    std::string changed = whole;
    changed.replace(changed.find(own), own.size(), other);
    expect_error(read_peft_adapter(peft_config(), as_span(changed), *model, "test"), "data_offsets",
                 ErrorCode::kCorruptFile);
  }
}

TEST_CASE("a file that was cut or changed anywhere is refused or read, never more") {
  const auto model = tiny_llama();
  const std::string whole = safetensors_of(peft_tensors({usual_loras()[1]}));
  for (size_t size = 0; size < whole.size(); ++size)
    CHECK_FALSE(read_peft_adapter(peft_config(), as_span(whole).first(size), *model, "test").ok());
  for (size_t at = 0; at < whole.size() - 800; ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x21);
    (void)read_peft_adapter(peft_config(), as_span(changed), *model, "test");
  }
}

TEST_CASE("a folder on disk is loaded, with the reason where it is not") {
  const auto model = tiny_llama();
  const HfTestFolder folder;
  const auto load = [&] { return load_adapter(folder.path(), *model); };
  expect_error(load(), "adapter_config.json", ErrorCode::kNotFound);
  folder.write("adapter_config.json", peft_config());
  folder.write("adapter_model.bin", "x");
  expect_error(load(), "expected adapter_model.safetensors, found adapter_model.bin", ErrorCode::kUnsupported);
  folder.write("adapter_model.safetensors", safetensors_of(peft_tensors(usual_loras())));
  const auto adapter = expect_ok(load());
  CHECK(adapter->path == folder.path());
  // The value has the bytes itself.
  const AdapterPart* up = find_part(*adapter, *model, "blk.0.ffn_up.weight");
  folder.write("adapter_model.safetensors", "");
  std::vector<float> row(32);
  read_a_row(*up, 0, row);
  CHECK(row[0] == usual_loras()[3].a.numbers[0]);
  expect_error(load(), "adapter_model.safetensors: corrupt safetensors", ErrorCode::kCorruptFile);
  folder.write("other", "no adapter");
  expect_error(load_adapter(folder.path() + "/other", *model),
               "expected a folder with adapter_config.json or a GGUF file", ErrorCode::kUnsupported);
  expect_error(load_adapter(folder.path() + "/nothing", *model), "cannot open file", ErrorCode::kNotFound);
}
