// Aim: checkpoints in fp8 become fp8 rows with the scale that each scheme says, and every other quantisation, a missing
// or bad scale and an odd shape are refused by name.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>

#include "tests/weights/hf_bytes.h"

namespace llmrt::test {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr uint64_t kWidth = 256, kRows = 192;  // of q: three heads of 64
const std::string kQ = "model.layers.0.self_attn.q_proj.weight";

std::string config_with(const std::string& quantization) {
  return R"({"model_type":"llama","hidden_size":256,"num_hidden_layers":1,"num_attention_heads":3,"head_dim":64,
    "intermediate_size":256,"vocab_size":6,"rms_norm_eps":1e-6,"max_position_embeddings":64,
    "tie_word_embeddings":true,"quantization_config":)" +
         quantization + "}";
}
const std::string kBlock =
    R"({"quant_method":"fp8","activation_scheme":"dynamic","fmt":"e4m3","weight_block_size":[128,128]})";
const std::string kCompressed = R"({"quant_method":"compressed-tensors","format":"float-quantized",
  "config_groups":{"group_0":{"targets":["Linear"],"input_activations":{"num_bits":8},"weights":{"num_bits":8,
  "type":"float","strategy":"channel","symmetric":true}}},"ignore":["lm_head"],"kv_cache_scheme":null})";

HfBytes weight(uint64_t columns = kWidth) {
  HfBytes made{kQ, "F8_E4M3", {kRows, columns}, {}};
  for (uint64_t i = 0; i < kRows * columns; ++i) made.data += static_cast<char>(i % 126 + i / 256 % 2 * 128);
  return made;
}
HfBytes scales(const std::string& suffix, std::vector<uint64_t> shape, float first = 0.5f) {
  HfBytes made{kQ + suffix, "F32", std::move(shape), {}};
  uint64_t count = 1;
  for (const uint64_t dim : made.shape) count *= dim;
  for (uint64_t i = 0; i < count; ++i) made.data += raw(first + static_cast<float>(i) / 3);
  return made;
}
// Rows of blocks with the scale that `scale_idx` names.
template <typename Index>
std::string expected_rows(Index scale_idx) {
  const HfBytes numbers = weight();
  std::string out;
  for (uint64_t row = 0; row < kRows; ++row)
    for (uint64_t block = 0; block < kWidth / 128; ++block) {
      out += raw(0.5f + static_cast<float>(scale_idx(row, block)) / 3);
      out += numbers.data.substr(row * kWidth + block * 128, 128);
    }
  return out;
}
std::string q_bytes(const HfTestFolder& folder, const std::string& quantization, const std::vector<HfBytes>& tensors) {
  const auto source = folder.open(config_with(quantization), tensors);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  CHECK(source->find("blk.0.attn_q.weight")->encoding == Encoding::kFP8);
  return bytes_of(*source, "blk.0.attn_q.weight");
}

TEST_CASE("scales of a grid of blocks, of rows, and of the whole tensor") {
  HfTestFolder folder;
  const auto by_block = [](uint64_t row, uint64_t block) { return row / 128 * 2 + block; };
  const auto by_row = [](uint64_t row, uint64_t) { return row; };
  const auto one = [](uint64_t, uint64_t) { return uint64_t{0}; };
  CHECK(q_bytes(folder, kBlock, {weight(), scales("_scale_inv", {2, 2})}) == expected_rows(by_block));
  CHECK(q_bytes(folder, kCompressed, {weight(), scales("_scale", {kRows, 1})}) == expected_rows(by_row));
  CHECK(q_bytes(folder, kCompressed, {weight(), scales("_scale", {kRows})}) == expected_rows(by_row));
  CHECK(q_bytes(folder, kCompressed, {scales("_scale", {1}), weight()}) == expected_rows(one));
  HfBytes input{"model.layers.0.self_attn.q_proj.input_scale", "F32", {}, raw(1.0f)};
  const std::string modelopt = R"({"quant_method":"modelopt","quant_algo":"FP8"})";
  CHECK(q_bytes(folder, modelopt, {weight(), scales("_scale", {}), input}) == expected_rows(one));
  const std::string in_blocks = R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{
    "g":{"weights":{"num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]}}}})";
  CHECK(q_bytes(folder, in_blocks, {weight(), scales("_scale", {2, 2})}) == expected_rows(by_block));
}

TEST_CASE("modelopt says so in a file of its own; scales of the KV cache are kept") {
  HfTestFolder folder;
  std::string plain = config_with("null");
  folder.write("hf_quant_config.json", R"({"quantization":{"quant_algo":"FP8","kv_cache_quant_algo":"FP8"}})");
  const HfBytes k{"model.layers.0.self_attn.k_proj.k_scale", "F32", {}, raw(0.25f)};
  const HfBytes v{"model.layers.0.self_attn.v_proj.v_scale", "BF16", {1}, raw<uint16_t>(0x3f00)};
  const auto source = folder.open(plain, {weight(), scales("_scale", {}), k, v});
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  CHECK(bytes_of(*source, "blk.0.attn_k_cache.scale") == raw(0.25f));
  CHECK(bytes_of(*source, "blk.0.attn_v_cache.scale") == raw(0.5f));
  CHECK(source->find("blk.0.attn_k_cache.scale")->num_dims == 1);
  HfBytes many = k;
  many.shape = {2};
  many.data += many.data;
  CHECK_THAT(folder.message(plain, {many}), ContainsSubstring("k_scale: expected one number"));
  folder.write("hf_quant_config.json", R"({"quantization":{"quant_algo":"NVFP4"}})");
  CHECK_THAT(folder.message(plain, {weight()}), ContainsSubstring("quant_algo: expected FP8, found \"NVFP4\""));
}

TEST_CASE("scales that are missing, bad or of another shape are refused") {
  HfTestFolder folder;
  const auto message = [&](const std::string& quantization, const std::vector<HfBytes>& tensors) {
    return folder.message(config_with(quantization), tensors);
  };
  CHECK_THAT(message(kBlock, {weight()}), ContainsSubstring("missing tensor: " + kQ + ": the scale"));
  CHECK_THAT(message(kBlock, {scales("_scale_inv", {2, 2})}), ContainsSubstring("expected the weights that it scales"));
  CHECK_THAT(message(kBlock, {weight(), scales("_scale_inv", {2, 3})}),
             ContainsSubstring("expected [2, 2], one a block of 128 rows and 128 columns"));
  CHECK_THAT(message(kBlock, {weight(), scales("_scale_inv", {kRows, 1})}), ContainsSubstring("expected [2, 2]"));
  CHECK_THAT(message(kCompressed, {weight(), scales("_scale", {2, 2})}),
             ContainsSubstring("expected one scale, or 192"));
  CHECK_THAT(message(kCompressed, {weight(), scales("_scale", {1}), scales("_scale_inv", {1})}),
             ContainsSubstring("found twice"));
  for (const float bad : {0.0f, -1.0f, NAN, INFINITY})
    CHECK_THAT(message(kCompressed, {weight(), scales("_scale", {1}, bad)}),
               ContainsSubstring("expected a finite number above 0"));
  CHECK_THAT(message(kCompressed, {weight(192), scales("_scale", {1})}),
             ContainsSubstring("rows are a multiple of 128 numbers, file has [192, 192] f8_e4m3"));
  HfBytes plain{kQ, "BF16", {1, 2}, raw<uint32_t>(0)};
  CHECK_THAT(message(kCompressed, {plain, scales("_scale", {1})}), ContainsSubstring("expected weights in f8_e4m3"));
}

TEST_CASE("other quantisations are refused by name, with what is supported") {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"quant_method":"gptq","bits":4})", "found \"gptq\" (supported: fp8, compressed-tensors"},
      {R"({"quant_method":"awq"})", "found \"awq\""},
      {R"({"quant_method":"bitsandbytes"})", "found \"bitsandbytes\""},
      {R"({"quant_method":"modelopt","quant_algo":"NVFP4"})", "quant_algo: expected FP8, found \"NVFP4\""},
      {R"({"quant_method":"compressed-tensors","format":"pack-quantized"})", "expected float-quantized, found \"pack-"},
      {R"({"quant_method":"compressed-tensors","format":"float-quantized"})", "config_groups: expected an object"},
      {R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"weights":
        {"num_bits":4,"type":"float","strategy":"tensor"}}}})",
       "config_groups.g.weights: expected floats of 8 bits, found float of 4 bits"},
      {R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"weights":
        {"num_bits":8,"type":"float","strategy":"group"}}}})",
       "strategy: expected tensor, channel or block, found \"group\""},
      {R"({"quant_method":"fp8","fmt":"e5m2"})", "fmt: expected e4m3"},
      {R"({"quant_method":"fp8","weight_block_size":[128,64]})", "a multiple of 128 columns], found [128, 64]"},
      {R"({"quant_method":"fp8","weight_block_size":[0,128]})", "found [0, 128]"},
  };
  for (const auto& [quantization, message] : cases) {
    const auto source = read_hf_texts({config_with(quantization), {}, {}, {}, {}});
    REQUIRE_FALSE(source.ok());
    CHECK_THAT(source.error().message, ContainsSubstring(message));
  }
}

}  // namespace
}  // namespace llmrt::test
