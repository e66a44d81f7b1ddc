// Aim: synthetic models have the true shapes, the encodings that a quantizer would give them, and the same bytes each
// time, in memory and in the file that is written. Method: exact dimensions, ranges made twice, a file read back.

#include "core/model/synthetic.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/model/load_file.h"
#include "core/weights/random_weights.h"
#include "core/weights/row_codec.h"

using namespace llmrt;

namespace {

std::shared_ptr<const Model> make(const std::string& path) {
  auto model = load_model(path);
  REQUIRE(model.ok());
  return *model;
}

std::vector<std::byte> bytes_of(const WeightTensor& tensor, uint64_t first_row, uint64_t num_rows) {
  std::vector<std::byte> out(num_rows * tensor.bytes_row());
  if (tensor.data != nullptr) {
    std::memcpy(out.data(), tensor.data + first_row * tensor.bytes_row(), out.size());
  } else {
    tensor.generate(first_row * tensor.bytes_row(), out);
  }
  return out;
}

Encoding encoding_of(const Model& model, const std::string& name) {
  for (const auto& tensor : model.weights.tensors)
    if (tensor.name == name) return tensor.encoding;
  throw std::runtime_error("no tensor " + name);
}

uint64_t num_parameters(const Model& model) {
  uint64_t sum = 0;
  for (const auto& tensor : model.weights.tensors) sum += tensor.rows * tensor.columns;
  for (const std::vector<float>& freqs : model.config.rope_freqs) sum -= freqs.size();  // these are none
  return sum;
}

double f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double magnitude =
      exponent == 0 ? std::ldexp(bits & 1023, -24) : std::ldexp(1024 + (bits & 1023), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("synthetic shapes have as many parameters as the models they are named for") {
  CHECK(num_parameters(*make("synthetic:smollm2-135m:q4_1")) == 134515008);
  CHECK(num_parameters(*make("synthetic:qwen3-0.6b:f16")) == 596049920);
  CHECK(num_parameters(*make("synthetic:llama-3.1-8b:bf16")) == 8030261248);
  CHECK(num_parameters(*make("synthetic:qwen3-8b:q8_0")) == 8190735360);
  CHECK(num_parameters(*make("synthetic:qwen3-32b:q8_0")) == 32762123264);
  CHECK(num_parameters(*make("synthetic:llama-3.3-70b:q4_0")) == 70553706496);
  CHECK(num_parameters(*make("synthetic:qwen3-30b-a3b:q4_0")) == 30532122624);
  CHECK(num_parameters(*make("synthetic:qwen3.6-27b:q4_k")) == 26895998464);
  CHECK(num_parameters(*make("synthetic:qwen3.6-35b-a3b:q4_k")) == 34660610688);
  CHECK(num_parameters(*make("synthetic:qwen3-next-80b-a3b:mxfp4")) == 79674391296);
  constexpr uint64_t kCorrections = 23 * 128;  // no parameters to whoever counts them
  CHECK(num_parameters(*make("synthetic:nemotron-3-30b-a3b:q4_k")) == 31577937344 + kCorrections);
}

TEST_CASE("synthetic flags follow the architecture") {
  const auto llama = make("synthetic:llama-3.1-8b:f16");
  CHECK(llama->config.layers.front().rope.pairing == RopePairing::kInterleaved);
  CHECK(llama->config.rope_freqs.at(0)[63] == Catch::Approx(3.068926e-07));  // llama3 scaling
  CHECK(llama->weights.groups.at(llama->head).segments[0].tensor != llama->embedding);
  const auto is_of_sampled_rows = [&](WeightGroupId id) { return llama->weights.groups.at(id).of_sampled_rows; };
  CHECK(std::ranges::count_if(llama->weights.groups, &WeightGroup::of_sampled_rows) == 3);
  CHECK(is_of_sampled_rows(llama->head));
  CHECK(is_of_sampled_rows(llama->layers.back().gate_up));
  CHECK(is_of_sampled_rows(llama->layers.back().down));
  CHECK(llama->encoding == "f16");
  CHECK_FALSE(llama->vocabulary.has_value());
  const auto qwen = make("synthetic:qwen3-0.6b:q4_0");
  CHECK(qwen->config.layers.front().qk_norm);
  CHECK(qwen->layers.at(27).k_norm >= 0);
  CHECK(qwen->weights.groups.at(qwen->head).segments[0].tensor == qwen->embedding);
}

TEST_CASE("synthetic experts and windows are those of the models") {
  const auto qwen = make("synthetic:qwen3-30b-a3b:q4_k");
  const LayerSpec& layer = qwen->config.layers.at(47);
  CHECK(layer.feed_forward == FeedForwardKind::kExperts);
  CHECK((layer.experts.count == 128 && layer.experts.used == 8 && layer.ffn_width == 768));
  CHECK(layer.experts.rule.renormalise);
  CHECK(encoding_of(*qwen, "blk.0.ffn_gate_inp.weight") == Encoding::kF32);
  CHECK(encoding_of(*qwen, "blk.0.ffn_down_exps.weight") == Encoding::kQ6_K);
  CHECK(encoding_of(*qwen, "blk.6.ffn_up_exps.weight") == Encoding::kQ4_K);
  const auto gpt = make("synthetic:gpt-oss-20b:mxfp4");
  CHECK(num_parameters(*gpt) == 20914757184);
  CHECK(encoding_of(*gpt, "blk.3.ffn_up_exps.weight") == Encoding::kMXFP4);
  CHECK(encoding_of(*gpt, "blk.3.attn_q.weight") == Encoding::kQ8_0);
  CHECK(gpt->config.layers[0].window == 128);
  CHECK(gpt->config.layers[1].window == 0);
  CHECK(gpt->config.layers[1].rope.magnitude == Catch::Approx(1.34657));
  CHECK((gpt->config.layers[1].sinks && gpt->config.layers[1].experts.has_bias));
  const auto gemma = make("synthetic:gemma-3-27b:q4_0");
  CHECK(std::ranges::count(gemma->config.layers, 1024u, &LayerSpec::window) == 52);
  CHECK(gemma->config.layers[5].window == 0);
  CHECK(gemma->config.layers[5].attention_scale == Catch::Approx(1 / std::sqrt(168.0)));
  CHECK(gemma->config.rope_freqs.size() == 2);
}

TEST_CASE("synthetic layers with states are those of the models") {
  const auto dense = make("synthetic:qwen3.6-27b:q4_k");
  CHECK(std::ranges::count(dense->config.layers, AttentionKind::kGatedDelta, &LayerSpec::attention) == 48);
  const RecurrentSpec& rule = dense->config.layers[0].recurrent;
  CHECK((rule.value_heads == 48 && rule.key_heads == 16 && rule.value_dim == 128));
  CHECK(rule.order == KeyHeadOrder::kModulo);
  // The convolution's, the matrices, and the ring's: 15 values a head, 20 keys of each key head and as many decays.
  CHECK(rule.state_columns() == (3 + 3) * 10240 + 48 * 128 * 128 + 15 * 48 * 128 + 20 * (16 * 128 + 48));
  CHECK((dense->config.layers[3].head_dim == 256 && dense->config.layers[3].rope.dim == 64));
  const auto next = make("synthetic:qwen3-next-80b-a3b:q4_k");
  CHECK(next->config.layers[0].recurrent.gates_in_turn);
  CHECK(encoding_of(*next, "blk.0.ssm_conv1d.weight") == Encoding::kF32);
  const auto nemotron = make("synthetic:nemotron-3-30b-a3b:q8_0");
  const auto count = [&](AttentionKind kind) {
    return std::ranges::count(nemotron->config.layers, kind, &LayerSpec::attention);
  };
  CHECK((count(AttentionKind::kSelectiveScan) == 23 && count(AttentionKind::kFull) == 6));
  const LayerSpec& last = nemotron->config.layers.back();
  CHECK((last.attention == AttentionKind::kNone && last.feed_forward == FeedForwardKind::kExperts));
  CHECK((last.experts.shared_width == 3712 && last.experts.has_correction && last.experts.rule.scale == 2.5f));
  CHECK(nemotron->config.layers[5].rope.dim == 0);
  for (const WeightTensor& tensor : nemotron->weights.tensors) {
    if (!tensor.name.ends_with("ssm_a")) continue;
    float rate;
    std::memcpy(&rate, tensor.data, sizeof(rate));
    CHECK(rate < 0);
  }
}

TEST_CASE("encodings follow the quantizer's mixes") {
  const auto q4_k = make("synthetic:llama-3.1-8b:q4_k");
  CHECK(encoding_of(*q4_k, "output.weight") == Encoding::kQ6_K);
  CHECK(encoding_of(*q4_k, "token_embd.weight") == Encoding::kQ4_K);
  CHECK(encoding_of(*q4_k, "blk.0.attn_v.weight") == Encoding::kQ6_K);
  CHECK(encoding_of(*q4_k, "blk.0.attn_q.weight") == Encoding::kQ4_K);
  int num_down_q6 = 0;
  for (int layer = 0; layer < 32; ++layer)
    num_down_q6 += encoding_of(*q4_k, "blk." + std::to_string(layer) + ".ffn_down.weight") == Encoding::kQ6_K;
  CHECK(num_down_q6 == 16);  // 4 at each end and every third of the 24 between
  CHECK(encoding_of(*q4_k, "blk.5.ffn_down.weight") == Encoding::kQ4_K);
  CHECK(encoding_of(*q4_k, "blk.6.ffn_down.weight") == Encoding::kQ6_K);
  CHECK(q4_k->weights.bytes() == Catch::Approx(4.91e9).epsilon(0.01));  // the size of the real Q4_K_M file

  const auto small = make("synthetic:smollm2-135m:q4_k");  // rows of 576 have no blocks of 256
  CHECK(encoding_of(*small, "token_embd.weight") == Encoding::kQ8_0);
  CHECK(encoding_of(*small, "blk.0.attn_q.weight") == Encoding::kQ5_0);
  CHECK(encoding_of(*small, "blk.5.ffn_down.weight") == Encoding::kQ6_K);
  CHECK(encoding_of(*make("synthetic:smollm2-135m:q4_1"), "token_embd.weight") == Encoding::kQ8_0);
  CHECK(encoding_of(*make("synthetic:llama-3.1-8b:q4_0"), "output.weight") == Encoding::kQ6_K);
  CHECK(encoding_of(*make("synthetic:llama-3.1-8b:q8_0"), "output.weight") == Encoding::kQ8_0);
  CHECK(encoding_of(*make("synthetic:llama-3.1-8b:mxfp4"), "output.weight") == Encoding::kQ8_0);
  const auto fp8 = make("synthetic:llama-3.1-8b:fp8");
  CHECK(encoding_of(*fp8, "output.weight") == Encoding::kBF16);
  CHECK(encoding_of(*fp8, "token_embd.weight") == Encoding::kBF16);
  CHECK(encoding_of(*fp8, "blk.0.attn_v.weight") == Encoding::kFP8);
  const Status written = write_synthetic_gguf("smollm2-135m", "fp8", "/dev/null");
  REQUIRE(!written);
  CHECK(written.error().code == ErrorCode::kUnsupported);
}

TEST_CASE("any range of rows is the same each time, and rows and tensors differ") {
  for (const auto& known : kEncodingGeometry) {
    INFO(known.name);
    const auto model = make(std::string("synthetic:smollm2-135m:") + known.name);
    const WeightGroup& down = model->weights.groups.at(model->layers.at(3).down);
    const WeightTensor& tensor = model->weights.tensors.at(down.segments[0].tensor);
    const auto whole = bytes_of(tensor, 0, tensor.rows);
    const auto part = bytes_of(tensor, 100, 7);
    CHECK(std::memcmp(part.data(), whole.data() + 100 * tensor.bytes_row(), part.size()) == 0);
    CHECK(bytes_of(tensor, 100, 1) != bytes_of(tensor, 101, 1));
    const WeightGroup& other = model->weights.groups.at(model->layers.at(4).down);
    if (model->weights.tensors.at(other.segments[0].tensor).encoding == tensor.encoding)
      CHECK(bytes_of(model->weights.tensors.at(other.segments[0].tensor), 100, 1) != bytes_of(tensor, 100, 1));
  }
}

TEST_CASE("random numbers of small floats are finite, with mean 0 and the deviation asked for") {
  constexpr uint64_t kColumns = 4096, kRows = 64;
  for (const Encoding encoding : {Encoding::kMXFP4, Encoding::kFP8}) {
    for (const double deviation : {0.011, 0.0156, 0.03}) {
      std::vector<std::byte> row(row_bytes(encoding, kColumns));
      std::vector<float> values(kColumns);
      double sum = 0, squares = 0;
      for (uint64_t r = 0; r < kRows; ++r) {
        random_weights(encoding, kColumns, 1, deviation)(r * row.size(), row);
        decode_row(encoding, row.data(), values);
        for (const float value : values) sum += value, squares += double(value) * value;
      }
      INFO(encoding_name(encoding) << " " << deviation);
      CHECK(std::fabs(sum / (kRows * kColumns)) < 0.01 * deviation);
      CHECK(std::sqrt(squares / (kRows * kColumns)) == Catch::Approx(deviation).epsilon(0.05));
    }
  }
}

TEST_CASE("random weights have mean 0 and the deviation asked for") {
  constexpr uint64_t kColumns = 4096, kRows = 64;
  const double deviation = 1 / std::sqrt(double(kColumns));
  std::vector<std::byte> out(kRows * row_bytes(Encoding::kF32, kColumns));
  random_weights(Encoding::kF32, kColumns, 1, deviation)(0, out);
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < kRows * kColumns; ++i) {
    float value;
    std::memcpy(&value, out.data() + i * 4, 4);
    sum += value;
    squares += double(value) * value;
  }
  CHECK(std::fabs(sum / (kRows * kColumns)) < 0.01 * deviation);
  CHECK(std::sqrt(squares / (kRows * kColumns)) == Catch::Approx(deviation).epsilon(0.42));

  out.resize(kRows * row_bytes(Encoding::kQ8_0, kColumns));
  random_weights(Encoding::kQ8_0, kColumns, 1, deviation)(0, out);
  sum = squares = 0;
  for (size_t block = 0; block < out.size(); block += 34) {
    uint16_t scale;
    std::memcpy(&scale, out.data() + block, 2);
    for (int i = 0; i < 32; ++i) {
      const double value = f16_value(scale) * static_cast<int8_t>(out[block + 2 + i]);
      sum += value;
      squares += value * value;
    }
  }
  CHECK(std::fabs(sum / (kRows * kColumns)) < 0.01 * deviation);
  CHECK(std::sqrt(squares / (kRows * kColumns)) == Catch::Approx(deviation).epsilon(0.03));
}

TEST_CASE("a written synthetic model reads back as the same model") {
  const auto file = std::filesystem::temp_directory_path() / "llmrt_synthetic_test.gguf";
  uint64_t last_done = 0, last_total = 0;
  const auto status = write_synthetic_gguf("smollm2-135m", "q4_k", file.string(), [&](uint64_t done, uint64_t total) {
    CHECK(done >= last_done);
    last_done = done;
    last_total = total;
  });
  REQUIRE(status.ok());
  CHECK(last_done == last_total);
  CHECK(std::filesystem::file_size(file) == last_total);

  const auto written = make(file.string());
  const auto made = make("synthetic:smollm2-135m:q4_k");
  std::filesystem::remove(file);  // the mapping lives on
  CHECK(written->config.rope_freqs == made->config.rope_freqs);
  CHECK(written->config.layers == made->config.layers);
  CHECK(written->vocabulary->tokens.size() == 49152);
  REQUIRE(written->weights.tensors.size() == made->weights.tensors.size());
  for (size_t i = 0; i < made->weights.tensors.size(); ++i) {
    const WeightTensor& expected = made->weights.tensors[i];
    const WeightTensor& found = written->weights.tensors[i];
    INFO(expected.name);
    REQUIRE(found.name == expected.name);
    REQUIRE(found.encoding == expected.encoding);
    REQUIRE(found.rows == expected.rows);
    CHECK(bytes_of(found, 0, found.rows) == bytes_of(expected, 0, expected.rows));
  }
}

TEST_CASE("unknown shapes and encodings are refused by name, an unwritable file too") {
  CHECK(load_model("synthetic:gpt-5:f16").error().code == ErrorCode::kNotFound);
  CHECK(load_model("synthetic:qwen3-8b:q3_k").error().code == ErrorCode::kUnsupported);
  CHECK(load_model("synthetic:qwen3-8b").error().code == ErrorCode::kInvalidArgument);
  CHECK(write_synthetic_gguf("smollm2-135m", "q4_1", "/nowhere/file.gguf").error().code == ErrorCode::kIo);
}

TEST_CASE("the first layers of a shape are those of the whole, and the whole's others may add nothing") {
  const auto whole = make("synthetic:smollm2-135m:f16"), first = make("synthetic:smollm2-135m@4:f16"),
             padded = make("synthetic:smollm2-135m@4+:f16");
  CHECK(first->config.num_layers() == 4);
  CHECK(padded->config.num_layers() == whole->config.num_layers());
  const auto bytes = [](const Model& model, const std::string& name) {
    for (const WeightTensor& tensor : model.weights.tensors)
      if (tensor.name == name) return bytes_of(tensor, 0, tensor.rows);
    throw std::runtime_error("no tensor " + name);
  };
  for (const char* name : {"blk.3.attn_output.weight", "blk.3.ffn_down.weight", "blk.0.attn_q.weight"}) {
    CHECK(bytes(*first, name) == bytes(*whole, name));
    CHECK(bytes(*padded, name) == bytes(*whole, name));
  }
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  for (const char* name : {"blk.4.attn_output.weight", "blk.29.ffn_down.weight"})
    CHECK(std::ranges::all_of(bytes(*padded, name), is_zero));
  CHECK(bytes(*padded, "blk.4.ffn_up.weight") == bytes(*whole, "blk.4.ffn_up.weight"));
  for (const char* wrong : {"synthetic:smollm2-135m@0:f16", "synthetic:smollm2-135m@31:f16",
                            "synthetic:smollm2-135m@4-:f16", "synthetic:smollm2-135m@:f16"})
    CHECK_FALSE(make_synthetic(wrong).ok());
}
