// Aim: layers with experts are what their file says, and what does not fit is refused by name. Method: small whole
// models, as bytes, that are right or wrong in one place.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>

#include "core/model/assemble.h"
#include "core/model/decoder.h"
#include "core/model/load_file.h"
#include "tests/weights/changed_file.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;

namespace {

// tiny_model() with two layers of four experts of 16, of which a token goes to two.
GgufBytes expert_model(bool joined = false) {
  GgufBytes file = tiny_model();
  std::erase_if(file.tensors, [](const auto& tensor) { return tensor.name.starts_with("blk."); });
  for (uint32_t i = 0; i < 2; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    file.tensor_f32(prefix + "attn_norm.weight", {32});
    file.tensor_f32(prefix + "attn_q.weight", {32, 32});
    file.tensor_f32(prefix + "attn_k.weight", {32, 16});
    file.tensor_f32(prefix + "attn_v.weight", {32, 16});
    file.tensor_f32(prefix + "attn_output.weight", {32, 32});
    file.tensor_f32(prefix + "ffn_norm.weight", {32});
    file.tensor_f32(prefix + "ffn_gate_inp.weight", {32, 4});
    if (joined) {
      file.tensor_f32(prefix + "ffn_gate_up_exps.weight", {32, 32, 4});
    } else {
      file.tensor_f32(prefix + "ffn_gate_exps.weight", {32, 16, 4});
      file.tensor_f32(prefix + "ffn_up_exps.weight", {32, 16, 4});
    }
    file.tensor_f32(prefix + "ffn_down_exps.weight", {16, 32, 4});
  }
  replace_pair(file, "llama.block_count", [&] { file.u32("llama.block_count", 2); });
  file.u32("llama.expert_count", 4);
  file.u32("llama.expert_used_count", 2);
  file.u32("llama.expert_feed_forward_length", 16);
  return file;
}

std::shared_ptr<const Model> loaded(const GgufBytes& file) {
  static std::vector<std::string> kept;  // views point into them
  auto model = load(kept.emplace_back(file.build()));
  INFO((model ? "" : model.error().message));
  REQUIRE(model.ok());
  return *model;
}

template <class T>
std::vector<T> ops_of(const OpList& list) {
  std::vector<T> found;
  for (const Op& op : list.ops)
    if (const T* wanted = std::get_if<T>(&op)) found.push_back(*wanted);
  return found;
}

}  // namespace

TEST_CASE("a layer of experts is routed, multiplied and summed") {
  for (const bool joined : {false, true}) {
    const auto model = loaded(expert_model(joined));
    const LayerSpec& layer = model->config.layers[1];
    CHECK(layer.feed_forward == FeedForwardKind::kExperts);
    CHECK(layer.experts.count == 4);
    CHECK(layer.experts.used == 2);
    CHECK(layer.experts.by_expert == joined);
    CHECK(layer.ffn_width == 16);
    CHECK((layer.experts.rule == RoutingRule{.scoring = ExpertScoring::kSoftmax, .renormalise = true}));
    const WeightGroup& gate_up = model->weights.groups[static_cast<size_t>(model->layers[1].gate_up)];
    CHECK(gate_up.rows == 4 * 32);
    CHECK(gate_up.columns == 32);
    CHECK(gate_up.num_experts == 4);
    CHECK(gate_up.of_sampled_rows);
    const WeightGroup& down = model->weights.groups[static_cast<size_t>(model->layers[1].down)];
    CHECK(down.rows == 4 * 32);
    CHECK(down.columns == 16);

    // The last layer's are in the sample list.
    for (const OpList& list : {build_forward(*model, Caps{}, 4), build_sample(*model, Caps{}, 4)}) {
      CHECK(list.routed_per_row == 2);
      REQUIRE(ops_of<RouteExperts>(list).size() == 1);
      const RouteExperts route = ops_of<RouteExperts>(list)[0];
      const ExpertGateUp product = ops_of<ExpertGateUp>(list).at(0);
      const ExpertDown sum = ops_of<ExpertDown>(list).at(0);
      CHECK(list.tensors[static_cast<size_t>(route.x)].dtype == DType::kF32);
      CHECK(list.tensors[static_cast<size_t>(route.ids)].rows == Rows::kRouted);
      CHECK(product.by_expert == joined);
      CHECK((product.ids == route.ids && sum.ids == route.ids && sum.weights == route.weights));
      CHECK((product.num_experts == 4 && sum.num_experts == 4));
      CHECK(sum.x == product.out);
    }
  }
}

TEST_CASE("the keys of experts are read") {
  GgufBytes file = expert_model();
  file.u32("llama.expert_gating_func", 2);
  file.f32("llama.expert_weights_scale", 2.5f);
  file.boolean("llama.expert_weights_norm", false);
  file.u32("llama.expert_group_count", 2);
  file.u32("llama.expert_group_used_count", 1);
  file.tensor_f32("blk.0.exp_probs_b.bias", {4});
  const auto model = loaded(file);
  const ExpertSpec& experts = model->config.layers[0].experts;
  CHECK((experts.rule == RoutingRule{.scoring = ExpertScoring::kSigmoid, .scale = 2.5f, .groups = 2}));
  CHECK(experts.has_correction);
  CHECK_FALSE(model->config.layers[1].experts.has_correction);
  CHECK(ops_of<RouteExperts>(build_forward(*model, Caps{}, 1))[0].correction == model->layers[0].router_correction);
}

TEST_CASE("the first layers may be dense") {
  GgufBytes file = expert_model();
  std::erase_if(file.tensors, [](const auto& tensor) {
    return tensor.name.starts_with("blk.0.ffn_") && tensor.name != "blk.0.ffn_norm.weight";
  });
  file.tensor_f32("blk.0.ffn_gate.weight", {32, 48});
  file.tensor_f32("blk.0.ffn_up.weight", {32, 48});
  file.tensor_f32("blk.0.ffn_down.weight", {48, 32});
  file.u32("llama.leading_dense_block_count", 1);
  const auto model = loaded(file);
  CHECK(model->config.layers[0].feed_forward == FeedForwardKind::kDense);
  CHECK(model->config.layers[0].ffn_width == 48);
  CHECK(model->config.layers[1].ffn_width == 16);
  CHECK(build_forward(*model, Caps{}, 1).routed_per_row == 0);
  CHECK(build_sample(*model, Caps{}, 1).routed_per_row == 2);
}

TEST_CASE("what a file says of its experts must fit them") {
  struct Wrong {
    const char* message;
    std::function<void(GgufBytes&)> spoil;
  };
  const auto set = [](const char* key, uint32_t value) {
    return [key, value](GgufBytes& f) { replace_pair(f, key, [&] { f.u32(key, value); }); };
  };
  const auto tensor = [](const char* name, std::vector<uint64_t> dims) {
    return [name, dims](GgufBytes& f) {
      std::erase_if(f.tensors, [&](const auto& old) { return old.name == name; });
      if (!dims.empty()) f.tensor_f32(name, dims);
    };
  };
  const Wrong wrongs[] = {
      {"llama.expert_used_count: expected an integer in [1, 4], found", set("llama.expert_used_count", 5)},
      {"llama.expert_count: expected an integer in [0, 1024], found", set("llama.expert_count", 1025)},
      {"shape mismatch: blk.0.ffn_gate_inp.weight: expected [32, 3], file has [32, 4]", set("llama.expert_count", 3)},
      {"shape mismatch: blk.0.ffn_gate_exps.weight: expected [32, 24, 4], file has [32, 16, 4]",
       set("llama.expert_feed_forward_length", 24)},
      {"missing tensor: blk.1.ffn_down_exps.weight: expected [16, 32, 4], found nothing",
       tensor("blk.1.ffn_down_exps.weight", {})},
      {"shape mismatch: blk.1.ffn_up_exps.weight: expected [32, 16, 4], file has [32, 64]",
       tensor("blk.1.ffn_up_exps.weight", {32, 64})},
      {"tensor blk.0.ffn_gate_shexp.weight: llama has no such tensor", tensor("blk.0.ffn_gate_shexp.weight", {32, 16})},
      {"llama.expert_shared_count: expected 0, found 1", [](GgufBytes& f) { f.u32("llama.expert_shared_count", 1); }},
      {"llama.expert_group_count: expected 4 experts in equal groups",
       [](GgufBytes& f) {
         f.u32("llama.expert_group_count", 3);
         f.u32("llama.expert_group_used_count", 1);
       }},
      {"llama.expert_gating_func: expected an integer in [0, 4], found",
       [](GgufBytes& f) { f.u32("llama.expert_gating_func", 9); }},
      {"llama.expert_latent_size: not a key that this decoder knows",
       [](GgufBytes& f) { f.u32("llama.expert_latent_size", 64); }},
  };
  for (const Wrong& wrong : wrongs) {
    GgufBytes file = expert_model();
    wrong.spoil(file);
    const std::string bytes = file.build();
    const auto model = load(bytes);
    INFO(wrong.message);
    REQUIRE_FALSE(model.ok());
    CHECK_THAT(model.error().message, ContainsSubstring(wrong.message));
  }
}

TEST_CASE("layers go to as many experts each, or are refused") {
  LayerSpec layer;
  layer.num_heads = layer.num_kv_heads = 2;
  layer.head_dim = 32;
  layer.feed_forward = FeedForwardKind::kExperts;
  layer.experts.count = 8;
  layer.experts.used = 2;
  std::vector<LayerSpec> layers(2, layer);
  CHECK(check_layers(layers).ok());
  layers[1].experts.used = 3;
  const Status status = check_layers(layers);
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.error().message, ContainsSubstring("layer 1: expected 2 experts a token"));
}
