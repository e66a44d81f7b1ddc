// Aim: a model in other encodings holds the same numbers, rounded. Method: a synthetic model's rows, made in pieces as
// backends ask for them, beside rows decoded here.
#include "tools/llmrt_bench/kv/recoded_model.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>

#include "core/weights/row_codec.h"

using namespace llmrt;
using namespace llmrt::bench;

namespace {

constexpr uint64_t kRow = 5;

std::vector<std::byte> bytes_of(const WeightTensor& tensor, uint64_t first_row, uint64_t num_rows) {
  std::vector<std::byte> out(num_rows * tensor.bytes_row());
  if (tensor.data)
    std::memcpy(out.data(), tensor.data + first_row * tensor.bytes_row(), out.size());
  else
    tensor.generate(first_row * tensor.bytes_row(), out);
  return out;
}

std::vector<float> numbers_of(const WeightTensor& tensor) {
  std::vector<float> out(tensor.columns);
  decode_row(tensor.encoding, bytes_of(tensor, kRow, 1).data(), out);
  return out;
}

const WeightTensor& query_matrix(const Model& model) {
  return model.weights.tensors[model.weights.groups[model.layers[3].qkv].segments[0].tensor];
}

std::shared_ptr<const Model> load(const char* encoding) {
  auto model = load_model(std::string("synthetic:smollm2-135m:") + encoding);
  REQUIRE(model.ok());
  return *model;
}

}  // namespace

TEST_CASE("quantised matrices become f16, rows in any pieces, and the file's model may go") {
  std::shared_ptr<const Model> file = load("q4_1");
  const std::vector<float> exact = numbers_of(query_matrix(*file));
  const std::shared_ptr<const Model> floats = as_floats(std::exchange(file, nullptr));
  CHECK(floats->encoding == "f16");
  const WeightTensor& tensor = query_matrix(*floats);
  CHECK(tensor.encoding == Encoding::kF16);
  const std::vector<float> rounded = numbers_of(tensor);
  float worst = 0;
  for (size_t i = 0; i < exact.size(); ++i) worst = std::max(worst, std::fabs(rounded[i] - exact[i]));
  CHECK(worst > 0);
  CHECK(worst < 1e-4f);  // numbers near 1 / sqrt(576), f16 has 11 bits
  const std::vector<std::byte> together = bytes_of(tensor, kRow - 1, 3), alone = bytes_of(tensor, kRow, 1);
  CHECK(std::memcmp(together.data() + tensor.bytes_row(), alone.data(), alone.size()) == 0);
  CHECK(floats->weights.tensors[floats->final_norm].encoding == Encoding::kF32);
}

TEST_CASE("matrices that hold floats stay as they are") {
  const std::shared_ptr<const Model> file = load("bf16");
  const std::shared_ptr<const Model> floats = as_floats(file);
  CHECK(floats->encoding == "bf16");
  CHECK(bytes_of(query_matrix(*floats), kRow, 1) == bytes_of(query_matrix(*file), kRow, 1));
}

TEST_CASE("quantising rounds matrices, keeps embedding and head finer and vectors as they are") {
  const std::shared_ptr<const Model> floats = as_floats(load("q4_1"));
  auto quantised = quantise(floats, Encoding::kQ4_0);
  REQUIRE(quantised.ok());
  CHECK((*quantised)->encoding == "q4_0");
  const WeightTensor& tensor = query_matrix(**quantised);
  CHECK(tensor.encoding == Encoding::kQ4_0);
  std::vector<std::byte> expected(tensor.bytes_row());
  encode_row(Encoding::kQ4_0, numbers_of(query_matrix(*floats)), expected.data());
  CHECK(bytes_of(tensor, kRow, 1) == expected);
  CHECK((*quantised)->weights.tensors[(*quantised)->embedding].encoding == Encoding::kQ8_0);
  CHECK((*quantised)->weights.tensors[(*quantised)->final_norm].encoding == Encoding::kF32);
  CHECK((*quantised)->weights.tensors[(*quantised)->rope_freqs.front()].encoding == Encoding::kF32);
}

TEST_CASE("an encoding without an encoder is refused by name") {
  for (const Encoding encoding : {Encoding::kQ4_K, Encoding::kQ6_K, Encoding::kF16}) {
    auto refused = quantise(load("f16"), encoding);
    REQUIRE(!refused.ok());
    CHECK(refused.error().code == ErrorCode::kUnsupported);
    CHECK(refused.error().message.find(encoding_name(encoding)) != std::string::npos);
  }
}
