// Launches of a layer, pinned for each architecture, encoding and number of rows: a change that splits what ran as one
// shows here. A layer's are those of a forward list of three layers less those of one of two.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "core/model/decoder.h"
#include "core/model/model.h"
#include "tests/vulkan/fake_device.h"

namespace llmrt::vulkan {
namespace {

constexpr uint32_t kRows[] = {1, 8, 32, 128, 512, 2048};

// A model of a shape with its first layers alone; "qwen2" is the llama shape with biases.
Model first_layers(const std::string& architecture, const std::string& encoding, uint32_t num_layers) {
  const bool biased = architecture == "qwen2";
  const std::string shape = architecture == "qwen3" ? "qwen3-8b" : "llama-3.1-8b";
  const auto loaded = load_model(fmt::format("synthetic:{}:{}", shape, encoding));
  REQUIRE(loaded);
  Model model = **loaded;
  model.layers.resize(num_layers);
  model.config.layers.resize(num_layers);
  for (const LayerWeights& layer : model.layers) {
    if (!biased) break;
    WeightGroup& group = model.weights.groups[static_cast<size_t>(layer.qkv)];
    group.bias = static_cast<WeightId>(model.weights.tensors.size());
    model.weights.tensors.push_back({"bias", Encoding::kF32, 1, group.rows, nullptr, nullptr});
  }
  return model;
}

uint32_t num_launches(const std::string& device, const Model& model, uint32_t rows) {
  const ModelConfig& c = model.config;
  Caps caps;
  caps.activation_dtype = fake_traits(device).cpu_kernels ? DType::kF32 : DType::kF16;
  StateConfig config;
  config.hidden_columns = c.width;
  const FakeDevice fake(
      device, model.weights, config,
      {c.num_layers(), c.layers.front().num_kv_heads, c.layers.front().head_dim, 16, 100, KvDType::kF16});
  const Result<Program> program = make_program(fake.resources(), build_forward(model, caps, rows));
  REQUIRE(program);
  CHECK(notes(*program, true).empty());
  return static_cast<uint32_t>(program->launches.size());
}

struct Pinned {
  const char *device, *architecture, *encoding;
  uint32_t launches[std::size(kRows)];
};
constexpr Pinned kPinned[] = {
    {"h200", "llama", "f16", {7, 9, 10, 10, 10, 10}},        {"h200", "llama", "q4_0", {7, 7, 10, 10, 10, 16}},
    {"h200", "llama", "q4_k", {8, 8, 11, 11, 18, 18}},       {"h200", "llama", "q8_0", {7, 7, 10, 10, 10, 16}},
    {"h200", "llama", "mxfp4", {7, 7, 10, 10, 10, 16}},      {"h200", "llama", "fp8", {7, 7, 10, 10, 10, 16}},
    {"h200", "qwen2", "f16", {7, 9, 10, 10, 10, 10}},        {"h200", "qwen2", "q4_0", {7, 7, 10, 10, 10, 16}},
    {"h200", "qwen2", "q4_k", {8, 8, 11, 11, 18, 18}},       {"h200", "qwen2", "q8_0", {7, 7, 10, 10, 10, 16}},
    {"h200", "qwen3", "f16", {8, 10, 10, 10, 10, 10}},       {"h200", "qwen3", "q4_0", {8, 8, 10, 10, 10, 16}},
    {"h200", "qwen3", "q4_k", {9, 9, 11, 11, 18, 18}},       {"h200", "qwen3", "q8_0", {8, 8, 10, 10, 10, 16}},
    {"lavapipe", "llama", "f16", {9, 9, 9, 9, 9, 9}},        {"lavapipe", "llama", "q4_0", {9, 9, 9, 9, 9, 9}},
    {"lavapipe", "llama", "q4_k", {10, 10, 10, 10, 10, 10}}, {"lavapipe", "llama", "q8_0", {9, 9, 9, 9, 9, 9}},
    {"lavapipe", "llama", "mxfp4", {9, 9, 9, 9, 9, 9}},      {"lavapipe", "llama", "fp8", {9, 9, 9, 9, 9, 9}},
    {"lavapipe", "qwen2", "f16", {9, 9, 9, 9, 9, 9}},        {"lavapipe", "qwen2", "q4_0", {9, 9, 9, 9, 9, 9}},
    {"lavapipe", "qwen2", "q4_k", {10, 10, 10, 10, 10, 10}}, {"lavapipe", "qwen2", "q8_0", {9, 9, 9, 9, 9, 9}},
    {"lavapipe", "qwen3", "f16", {9, 9, 9, 9, 9, 9}},        {"lavapipe", "qwen3", "q4_0", {9, 9, 9, 9, 9, 9}},
    {"lavapipe", "qwen3", "q4_k", {10, 10, 10, 10, 10, 10}}, {"lavapipe", "qwen3", "q8_0", {9, 9, 9, 9, 9, 9}},
};

TEST_CASE("a layer has as many launches as before") {
  for (const Pinned& pinned : kPinned) {
    const Model two = first_layers(pinned.architecture, pinned.encoding, 2);
    const Model three = first_layers(pinned.architecture, pinned.encoding, 3);
    for (size_t i = 0; i < std::size(kRows); ++i) {
      INFO(pinned.device << " " << pinned.architecture << " " << pinned.encoding << ", rows " << kRows[i]);
      CHECK(num_launches(pinned.device, three, kRows[i]) - num_launches(pinned.device, two, kRows[i]) ==
            pinned.launches[i]);
    }
  }
}

}  // namespace
}  // namespace llmrt::vulkan
