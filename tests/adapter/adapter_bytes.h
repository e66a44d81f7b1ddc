// Small adapters and models for tests: numbers that every float type holds exactly, as PEFT's and as GGUF's files.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/adapter/adapter_files.h"
#include "core/base/half.h"
#include "core/model/load_file.h"
#include "core/weights/hf_folder.h"
#include "tests/weights/gguf_bytes.h"
#include "tests/weights/hf_bytes.h"

namespace llmrt::test {

using Catch::Matchers::ContainsSubstring;

// The llama of tiny_model(): width 32, 2 heads of 16, 1 KV head, feed-forward 48, 8 tokens.
inline std::shared_ptr<const Model> tiny_llama() {
  static const std::string bytes = tiny_model().build();
  auto source = parse_weight_source(as_span(bytes));
  REQUIRE(source.ok());
  auto model = load_from_source(*source, "tiny");
  REQUIRE(model.ok());
  return *model;
}

// The same as a Hugging Face folder.
inline std::shared_ptr<const Model> tiny_llama_folder() {
  const char* config =
      R"({"model_type":"llama","hidden_size":32,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,)"
      R"("vocab_size":8,"intermediate_size":48,"rms_norm_eps":1e-5,"max_position_embeddings":64,)"
      R"("tie_word_embeddings":true})";
  std::vector<HfBytes> tensors;
  const auto add = [&](const char* name, std::vector<uint64_t> shape) {
    uint64_t count = 1;
    for (const uint64_t dim : shape) count *= dim;
    tensors.push_back({name, "F32", std::move(shape), std::string(count * sizeof(float), '\0')});
  };
  add("model.embed_tokens.weight", {8, 32});
  add("model.norm.weight", {32});
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    add(fmt::format("model.layers.0.{}.weight", norm).c_str(), {32});
  const std::pair<const char*, std::vector<uint64_t>> kMatrices[] = {
      {"self_attn.q_proj", {32, 32}}, {"self_attn.k_proj", {16, 32}}, {"self_attn.v_proj", {16, 32}},
      {"self_attn.o_proj", {32, 32}}, {"mlp.gate_proj", {48, 32}},    {"mlp.up_proj", {48, 32}},
      {"mlp.down_proj", {32, 48}}};
  for (const auto& [name, shape] : kMatrices) add(fmt::format("model.layers.0.{}.weight", name).c_str(), shape);
  static std::string weights;
  weights = safetensors_of(tensors);
  auto source = read_hf_texts({config, {}, {}, {}, {}}, as_span(weights));
  INFO((source.ok() ? "" : source.error().message));
  REQUIRE(source.ok());
  auto model = load_from_source(*source, "tiny folder");
  INFO((model.ok() ? "" : model.error().message));
  REQUIRE(model.ok());
  return *model;
}

// A matrix in the order of a Hugging Face folder. Numbers are whole multiples of 1/16 below 8.
struct TestMatrix {
  uint64_t rows = 0, columns = 0;
  std::vector<float> numbers;

  float at(uint64_t row, uint64_t column) const { return numbers[row * columns + column]; }
};
inline TestMatrix test_matrix(uint64_t rows, uint64_t columns, uint32_t seed) {
  TestMatrix matrix{rows, columns, {}};
  uint32_t state = seed * 2654435761u + 1;
  for (uint64_t i = 0; i < rows * columns; ++i) {
    state = state * 1664525u + 1013904223u;
    matrix.numbers.push_back((static_cast<float>(state >> 24) - 128) / 16);
  }
  return matrix;
}

struct TestLora {
  std::string module;     // "self_attn.q_proj"
  std::string canonical;  // "attn_q"
  uint32_t heads = 0;     // whose rows GGUF has in another order; 0: none
  TestMatrix a, b;
};
inline TestLora test_lora(const std::string& module, const std::string& canonical, uint64_t rows, uint64_t columns,
                          uint32_t rank, uint32_t seed, uint32_t heads = 0) {
  return {module, canonical, heads, test_matrix(rank, columns, seed), test_matrix(rows, rank, seed + 1)};
}
// Of layer 0 of the tiny llama.
inline std::vector<TestLora> usual_loras(uint32_t rank = 4) {
  return {test_lora("self_attn.q_proj", "attn_q", 32, 32, rank, 1, 2),
          test_lora("self_attn.k_proj", "attn_k", 16, 32, rank, 3, 1),
          test_lora("self_attn.o_proj", "attn_output", 32, 32, rank, 5),
          test_lora("mlp.up_proj", "ffn_up", 48, 32, rank, 7), test_lora("mlp.down_proj", "ffn_down", 32, 48, rank, 9)};
}

inline std::string bytes_of(const TestMatrix& matrix, const std::string& dtype) {
  std::string out;
  for (const float number : matrix.numbers) {
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    if (dtype == "F32") out += raw(number);
    if (dtype == "BF16") out += raw(static_cast<uint16_t>(bits >> 16));
    if (dtype == "F16") out += raw(f16_bits(number));
  }
  return out;
}
// Row 2i of a head is row i of the folder's, row 2i + 1 is row i + half.
inline TestMatrix neighbours(const TestMatrix& matrix, uint32_t heads) {
  if (heads == 0) return matrix;
  TestMatrix out{matrix.rows, matrix.columns, {}};
  const uint64_t dim = matrix.rows / heads, half = dim / 2;
  for (uint64_t row = 0; row < matrix.rows; ++row)
    for (uint64_t column = 0; column < matrix.columns; ++column)
      out.numbers.push_back(matrix.at(row / dim * dim + row % 2 * half + row % dim / 2, column));
  return out;
}

inline std::string peft_name(const TestLora& lora, char half, int layer = 0) {
  return fmt::format("base_model.model.model.layers.{}.{}.lora_{}.weight", layer, lora.module, half);
}
inline std::vector<HfBytes> peft_tensors(const std::vector<TestLora>& loras, const std::string& dtype = "F32") {
  std::vector<HfBytes> tensors;
  for (const TestLora& lora : loras) {
    tensors.push_back({peft_name(lora, 'A'), dtype, {lora.a.rows, lora.a.columns}, bytes_of(lora.a, dtype)});
    tensors.push_back({peft_name(lora, 'B'), dtype, {lora.b.rows, lora.b.columns}, bytes_of(lora.b, dtype)});
  }
  return tensors;
}
// `more`: members of adapter_config.json, each with a comma in front.
inline std::string peft_config(const std::string& more = "", int rank = 4) {
  return fmt::format(
      R"({{"peft_type":"LORA","task_type":"CAUSAL_LM","r":{},"lora_alpha":8,"lora_dropout":0.0,"bias":"none",)"
      R"("target_modules":["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj","lm_head"],)"
      R"("inference_mode":true,"modules_to_save":null,"use_dora":false,"loftq_config":{{}},"rank_pattern":{{}}{}}})",
      rank, more);
}
inline GgufBytes gguf_adapter(const std::vector<TestLora>& loras, float alpha = 8) {
  GgufBytes file;
  file.string("general.type", "adapter");
  file.string("general.architecture", "llama");
  file.string("adapter.type", "lora");
  file.f32("adapter.lora.alpha", alpha);
  for (const TestLora& lora : loras) {
    const std::string name = fmt::format("blk.0.{}.weight", lora.canonical);
    file.tensors.push_back({name + ".lora_a", {lora.a.columns, lora.a.rows}, 0, bytes_of(lora.a, "F32"), {}, {}});
    file.tensors.push_back(
        {name + ".lora_b", {lora.b.columns, lora.b.rows}, 0, bytes_of(neighbours(lora.b, lora.heads), "F32"), {}, {}});
  }
  return file;
}

inline Result<std::shared_ptr<const Adapter>> read_peft(const std::string& config, const std::vector<HfBytes>& tensors,
                                                        const Model& model) {
  const std::string bytes = safetensors_of(tensors);
  return read_peft_adapter(config, as_span(bytes), model, "test");
}
inline Result<std::shared_ptr<const Adapter>> read_gguf(const std::string& file, const Model& model) {
  return read_gguf_adapter(as_span(file), model, "test");
}
inline std::shared_ptr<const Adapter> expect_ok(const Result<std::shared_ptr<const Adapter>>& adapter) {
  INFO((adapter.ok() ? "" : adapter.error().message));
  REQUIRE(adapter.ok());
  return *adapter;
}
inline void expect_error(const Result<std::shared_ptr<const Adapter>>& adapter, const std::string& message,
                         ErrorCode code) {
  INFO(message);
  REQUIRE_FALSE(adapter.ok());
  CHECK_THAT(adapter.error().message, ContainsSubstring(message));
  CHECK(adapter.error().code == code);
  CHECK(adapter.error().message.size() < 1000);
}

inline const AdapterPart* find_part(const Adapter& adapter, const Model& model, std::string_view tensor) {
  for (const AdapterGroup& group : adapter.groups) {
    const WeightGroup& weights = model.weights.groups[static_cast<size_t>(group.group)];
    for (size_t p = 0; p < group.parts.size(); ++p)
      if (model.weights.tensors[static_cast<size_t>(weights.segments[p].tensor)].name == tensor) return &group.parts[p];
  }
  return nullptr;
}

}  // namespace llmrt::test
