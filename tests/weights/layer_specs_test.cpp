// Aim: layers that differ are what their file says, keys and values of like layers share a cache group, and what no op
// computes is refused by name. Method: small whole models, as bytes and as specs; a row of an architecture that no
// table has, so that its pattern and its norms are read by the code that reads the others.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>

#include "core/model/assemble.h"
#include "core/model/decoder.h"
#include "core/model/load_file.h"
#include "core/model/read_metadata.h"
#include "core/weights/gathered_rows.h"
#include "tests/weights/changed_file.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;

namespace {

struct LayerSize {
  uint32_t heads, kv_heads, head_dim, ffn_width;
};

// tiny_model() with layers of these sizes, which the caller's keys must say.
GgufBytes model_of(const std::vector<LayerSize>& layers) {
  GgufBytes file = tiny_model();
  std::erase_if(file.tensors, [](const auto& tensor) { return tensor.name.starts_with("blk."); });
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& [heads, kv_heads, dim, ffn_width] = layers[i];
    const std::string prefix = "blk." + std::to_string(i) + ".";
    file.tensor_f32(prefix + "attn_norm.weight", {32});
    file.tensor_f32(prefix + "attn_q.weight", {32, heads * dim});
    file.tensor_f32(prefix + "attn_k.weight", {32, kv_heads * dim});
    file.tensor_f32(prefix + "attn_v.weight", {32, kv_heads * dim});
    file.tensor_f32(prefix + "attn_output.weight", {heads * dim, 32});
    file.tensor_f32(prefix + "ffn_norm.weight", {32});
    file.tensor_f32(prefix + "ffn_gate.weight", {32, ffn_width});
    file.tensor_f32(prefix + "ffn_up.weight", {32, ffn_width});
    file.tensor_f32(prefix + "ffn_down.weight", {ffn_width, 32});
  }
  replace_pair(file, "llama.block_count", [&] { file.u32("llama.block_count", static_cast<uint32_t>(layers.size())); });
  return file;
}

// Three layers: window, full, window. Windows have heads of 8 and a RoPE base of their own.
GgufBytes mixed_model() {
  GgufBytes file = model_of({{4, 2, 8, 48}, {2, 1, 16, 64}, {4, 2, 8, 32}});
  replace_pair(file, "llama.feed_forward_length", [&] {
    file.array<uint32_t>("llama.feed_forward_length", kU32, {48, 64, 32});
  });
  replace_pair(file, "llama.attention.head_count", [&] {
    file.array<int32_t>("llama.attention.head_count", kI32, {4, 2, 4});
    file.array<int32_t>("llama.attention.head_count_kv", kI32, {2, 1, 2});
  });
  file.u32("llama.attention.key_length", 16);
  file.u32("llama.attention.key_length_swa", 8);
  file.u32("llama.attention.value_length_swa", 8);
  file.u32("llama.attention.sliding_window", 24);
  file.array<uint8_t>("llama.attention.sliding_window_pattern", kBool, {1, 0, 1});
  file.f32("llama.rope.freq_base_swa", 500.0f);
  return file;
}

LayerSpec spec(AttentionKind attention, uint32_t window, uint32_t num_kv_heads, uint32_t head_dim) {
  LayerSpec layer;
  layer.attention = attention;
  layer.window = window;
  layer.num_heads = 8;
  layer.num_kv_heads = num_kv_heads;
  layer.head_dim = head_dim;
  return layer;
}

// A row that is in no table: every third layer sees all, norms on both sides of each part.
constexpr Architecture kToy = {
    .name = "toy", .rope_pairing = RopePairing::kHalves, .post_norms = true, .windows = every_nth_full(3)};

GgufBytes toy_file(uint32_t num_layers) {
  GgufBytes file;
  file.u32("toy.block_count", num_layers);
  file.u32("toy.context_length", 64);
  file.u32("toy.embedding_length", 32);
  file.u32("toy.feed_forward_length", 48);
  file.u32("toy.attention.head_count", 2);
  file.f32("toy.attention.layer_norm_rms_epsilon", 1e-5f);
  return file;
}

Result<ModelConfig> toy_config(const std::function<void(GgufBytes&)>& change) {
  GgufBytes file = toy_file(7);
  change(file);
  const std::string bytes = file.build();
  auto source = parse_weight_source(as_span(bytes));
  if (!source) return source.error();
  return read_config(kToy, source->metadata);
}

std::vector<bool> windows_of(const ModelConfig& config) {
  std::vector<bool> windows;
  for (const LayerSpec& layer : config.layers) windows.push_back(layer.attention == AttentionKind::kWindow);
  return windows;
}

// Every tensor that is asked for, of zeros; remembers the names.
class AnyTensors : public TensorSource {
 public:
  explicit AnyTensors(ModelStorage& storage) : storage_(storage) {}
  bool has(const std::string& name) const override { return name == "output.weight"; }
  Result<WeightTensor> take(const std::string& name, uint64_t rows, uint64_t columns, bool) override {
    names.push_back(name);
    WeightTensor tensor = storage_.own(name, std::vector<float>(rows * columns));
    tensor.rows = rows;
    tensor.columns = columns;
    return tensor;
  }
  Result<WeightTensor> take_stack(const std::string& name, uint64_t count, uint64_t rows, uint64_t columns) override {
    return take(name, count * rows, columns, false);
  }
  std::vector<std::string> names;

 protected:
  ModelStorage& storage_;
};

// The same with a number in place of each sink.
class SinkTensors final : public AnyTensors {
 public:
  SinkTensors(ModelStorage& storage, float sink) : AnyTensors(storage), sink_(sink) {}
  Result<WeightTensor> take(const std::string& name, uint64_t rows, uint64_t columns, bool is_vector) override {
    if (!name.ends_with(tensor_names::kSinks)) return AnyTensors::take(name, rows, columns, is_vector);
    return storage_.own(name, std::vector<float>(columns, sink_));
  }

 private:
  float sink_;
};

}  // namespace

TEST_CASE("layers that differ are read as their file has them") {
  const std::string bytes = mixed_model().build();
  const auto loaded = load(bytes);
  INFO((loaded ? "" : loaded.error().message));
  REQUIRE(loaded.ok());
  const Model& model = **loaded;
  const std::vector<LayerSpec>& layers = model.config.layers;
  REQUIRE(layers.size() == 3);
  CHECK(windows_of(model.config) == std::vector<bool>{true, false, true});
  CHECK(layers[0].window == 24);
  CHECK(layers[1].window == 0);
  CHECK(layers[0].num_heads == 4);
  CHECK(layers[1].num_kv_heads == 1);
  CHECK(layers[0].head_dim == 8);
  CHECK(layers[1].head_dim == 16);
  CHECK(layers[0].rope.dim == 8);
  CHECK(layers[1].rope.dim == 16);
  CHECK(layers[0].attention_scale == Catch::Approx(1 / std::sqrt(8.0)));
  CHECK(layers[1].attention_scale == 0.25f);
  CHECK(layers[0].ffn_width == 48);
  CHECK(layers[2].ffn_width == 32);

  // A table of frequencies for each base.
  REQUIRE(model.config.rope_freqs.size() == 2);
  REQUIRE(model.rope_freqs.size() == 2);
  CHECK(layers[0].rope.freqs_idx == layers[2].rope.freqs_idx);
  CHECK(model.config.rope_freqs[layers[0].rope.freqs_idx][1] == Catch::Approx(std::pow(500.0, -2.0 / 8)));
  CHECK(model.config.rope_freqs[layers[1].rope.freqs_idx][1] == Catch::Approx(std::pow(10000.0, -2.0 / 16)));

  const std::vector<CacheGroup> groups = cache_groups(layers);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].window == 0);  // the layer that sees all positions is not the first one
  CHECK(groups[0].head_dim == 16);
  CHECK(groups[0].num_layers == 1);
  CHECK(groups[1].window == 24);
  CHECK(groups[1].num_layers == 2);
}

TEST_CASE("each layer's ops have the numbers of that layer") {
  const std::string bytes = mixed_model().build();
  const auto model = load(bytes);
  REQUIRE(model.ok());
  std::vector<PagedAttention> attentions;
  std::vector<Rope> ropes;
  for (const Op& op : build_forward(**model, Caps{}, 4).ops) {
    if (const auto* attention = std::get_if<PagedAttention>(&op)) attentions.push_back(*attention);
    if (const auto* rope = std::get_if<Rope>(&op)) ropes.push_back(*rope);
  }
  REQUIRE(attentions.size() == 3);
  REQUIRE(ropes.size() == 3);
  const std::vector<std::array<uint32_t, 5>> expected = {{1, 0, 24, 4, 8}, {0, 0, 0, 2, 16}, {1, 1, 24, 4, 8}};
  for (size_t i = 0; i < 3; ++i) {
    const PagedAttention& op = attentions[i];
    CHECK(std::array{op.kv_group, op.layer, op.window, op.num_heads, op.head_dim} == expected[i]);
    CHECK(ropes[i].freqs == (*model)->rope_freqs[i == 1 ? 1 : 0]);
  }
}

TEST_CASE("what a file says of its layers must fit them") {
  struct Wrong {
    const char* message;
    std::function<void(GgufBytes&)> spoil;
  };
  const Wrong wrongs[] = {
      {"llama.feed_forward_length: expected 3 elements, one a layer, found 2",
       [](auto& f) {
         replace_pair(f, "llama.feed_forward_length", [&] {
           f.template array<uint32_t>("llama.feed_forward_length", kU32, {48, 64});
         });
       }},
      {"llama.attention.head_count_kv: layer 1: expected attention in every layer, found no heads",
       [](auto& f) {
         replace_pair(f, "llama.attention.head_count_kv", [&] {
           f.template array<int32_t>("llama.attention.head_count_kv", kI32, {2, 0, 2});
         });
       }},
      {"llama.feed_forward_length: element 2: expected an array of integers in [1,",
       [](auto& f) {
         replace_pair(f, "llama.feed_forward_length", [&] {
           f.template array<uint32_t>("llama.feed_forward_length", kU32, {48, 64, 0});
         });
       }},
      {"llama.attention.head_count: expected a multiple of head_count_kv 2, found 3",
       [](auto& f) {
         replace_pair(f, "llama.attention.head_count", [&] {
           f.template array<int32_t>("llama.attention.head_count", kI32, {3, 2, 4});
         });
         f.template array<int32_t>("llama.attention.head_count_kv", kI32, {2, 1, 2});
       }},
      {"missing metadata: llama.attention.sliding_window: expected the window of layer 0",
       [](auto& f) { remove_pair(f, "llama.attention.sliding_window\x04"); }},
      {"llama.attention.sliding_window_pattern: expected an array of bools",
       [](auto& f) {
         replace_pair(f, "llama.attention.sliding_window_pattern", [&] {
           f.template array<int32_t>("llama.attention.sliding_window_pattern", kI32, {1, 0, 1});
         });
       }},
      {"llama.attention.sliding_window_pattern: expected 3 elements, one a layer, found 1",
       [](auto& f) {
         replace_pair(f, "llama.attention.sliding_window_pattern",
                      [&] { f.template array<uint8_t>("llama.attention.sliding_window_pattern", kBool, {1}); });
       }},
      {"llama.attention.value_length_swa: expected key_length 8, found 16",
       [](auto& f) {
         replace_pair(f, "llama.attention.value_length_swa", [&] { f.u32("llama.attention.value_length_swa", 16); });
       }},
      {"llama.rope.freq_base_swa: expected no RoPE scaling beside it",
       [](auto& f) { f.f32("llama.rope.scaling.factor", 4); }},
      {"shape mismatch: blk.2.ffn_gate.weight: expected [32, 64], file has [32, 32]",
       [](auto& f) {
         replace_pair(f, "llama.feed_forward_length", [&] {
           f.template array<uint32_t>("llama.feed_forward_length", kU32, {48, 64, 64});
         });
       }},
      {"llama.attention.kv_lora_rank: latent attention: expected 0, found 512",
       [](auto& f) { f.u32("llama.attention.kv_lora_rank", 512); }},
      {"llama.full_attention_interval: linear attention: expected 0, found 4",
       [](auto& f) { f.u32("llama.full_attention_interval", 4); }},
      {"llama.attention.recurrent_layers: linear attention",
       [](auto& f) {
         f.template array<uint8_t>("llama.attention.recurrent_layers", kBool, {1, 0, 1});
       }},
  };
  for (const Wrong& wrong : wrongs) {
    GgufBytes file = mixed_model();
    wrong.spoil(file);
    const std::string bytes = file.build();
    const auto model = load(bytes);
    INFO(wrong.message);
    REQUIRE_FALSE(model.ok());
    CHECK_THAT(model.error().message, ContainsSubstring(wrong.message));
  }
}

TEST_CASE("windows follow the pattern of the file, else that of the architecture") {
  const auto windows = [](const std::function<void(GgufBytes&)>& change) {
    const auto config = toy_config(change);
    INFO((config ? "" : config.error().message));
    REQUIRE(config.ok());
    return windows_of(*config);
  };
  const auto window = [](GgufBytes& file) { file.u32("toy.attention.sliding_window", 16); };
  CHECK(windows([](GgufBytes&) {}) == std::vector<bool>(7, false));
  CHECK(windows(window) == std::vector<bool>{true, true, false, true, true, false, true});
  const auto with_period = [&](uint32_t period) {
    return windows([&](GgufBytes& file) {
      window(file);
      file.u32("toy.attention.sliding_window_pattern", period);
    });
  };
  CHECK(with_period(2) == std::vector<bool>{true, false, true, false, true, false, true});
  CHECK(with_period(1) == std::vector<bool>(7, false));
  CHECK(with_period(0) == std::vector<bool>(7, true));
  CHECK(windows([&](GgufBytes& file) {
          window(file);
          file.array<uint8_t>("toy.attention.sliding_window_pattern", kBool, {0, 0, 0, 0, 1, 0, 0});
        }) == std::vector<bool>{false, false, false, false, true, false, false});
}

TEST_CASE("gemma3 has what its files do not say") {
  const auto gemma = [](uint32_t num_layers, const std::function<void(GgufBytes&)>& change) {
    GgufBytes file;
    file.u32("gemma3.block_count", num_layers);
    file.u32("gemma3.context_length", 64);
    file.u32("gemma3.embedding_length", 64);
    file.u32("gemma3.feed_forward_length", 48);
    file.u32("gemma3.attention.head_count", 2);
    file.u32("gemma3.attention.key_length", 16);
    file.u32("gemma3.attention.value_length", 16);
    file.u32("gemma3.attention.sliding_window", 16);
    file.f32("gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
    change(file);
    const std::string bytes = file.build();
    auto source = parse_weight_source(as_span(bytes));
    REQUIRE(source.ok());
    return read_config(*find_architecture("gemma3"), source->metadata);
  };
  const auto config = gemma(7, [](GgufBytes& file) { file.u32("gemma3.vision.block_count", 27); });
  REQUIRE(config.ok());
  CHECK(windows_of(*config) == std::vector<bool>{true, true, true, true, true, false, true});
  CHECK(config->embedding_scale == 8);
  const LayerSpec& layer = config->layers[5];
  CHECK(layer.activation == Activation::kGelu);
  CHECK(layer.rope.pairing == RopePairing::kHalves);
  CHECK((layer.qk_norm && layer.attention_post_norm && layer.ffn_post_norm));
  CHECK(layer.attention_scale == 0.25f);
  const auto largest = gemma(62, [](GgufBytes&) {});
  REQUIRE(largest.ok());
  CHECK(largest->layers[5].attention_scale == Catch::Approx(1 / std::sqrt(32.0)));
  CHECK((config->logit_soft_cap == 0 && layer.soft_cap == 0));
  const auto capped = gemma(7, [](GgufBytes& file) {
    file.f32("gemma3.final_logit_softcapping", 30);
    file.f32("gemma3.attn_logit_softcapping", 50);
  });
  REQUIRE(capped.ok());
  CHECK(capped->logit_soft_cap == 30);
  CHECK(capped->layers[5].soft_cap == 50);
  CHECK(tensor_names::is_of_images("v.blk.0.attn_q.weight"));
  CHECK_FALSE(tensor_names::is_of_images("blk.0.attn_v.weight"));
}

TEST_CASE("windows of gemma3 turn by their own base, unscaled, and what reads images is left out") {
  GgufBytes file = model_of(std::vector<LayerSize>(6, {2, 1, 8, 48}));
  replace_pair(file, "general.architecture", [&] { file.string("general.architecture", "gemma3"); });
  for (uint32_t i = 0; i < 6; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    file.tensor_f32(prefix + "attn_q_norm.weight", {8});
    file.tensor_f32(prefix + "attn_k_norm.weight", {8});
    file.tensor_f32(prefix + "post_attention_norm.weight", {32});
    file.tensor_f32(prefix + "post_ffw_norm.weight", {32});
  }
  file.u32("gemma3.block_count", 6);
  file.u32("gemma3.context_length", 64);
  file.u32("gemma3.embedding_length", 32);
  file.u32("gemma3.feed_forward_length", 48);
  file.u32("gemma3.attention.head_count", 2);
  file.u32("gemma3.attention.head_count_kv", 1);
  file.u32("gemma3.attention.key_length", 8);
  file.u32("gemma3.attention.value_length", 8);
  file.u32("gemma3.attention.sliding_window", 16);
  file.f32("gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
  file.f32("gemma3.rope.freq_base", 1e6f);
  file.string("gemma3.rope.scaling.type", "linear");
  file.f32("gemma3.rope.scaling.factor", 8);
  file.tensor_f32("v.patch_embd.bias", {32});
  file.tensor_f32("mm.soft_emb_norm.weight", {32});
  const auto check_base = [&](double base) {
    const std::string bytes = file.build();
    const auto loaded = load(bytes);
    INFO((loaded ? "" : loaded.error().message));
    REQUIRE(loaded.ok());
    const ModelConfig& config = (*loaded)->config;
    REQUIRE(config.rope_freqs.size() == 2);
    CHECK(config.rope_freqs[config.layers[0].rope.freqs_idx][1] == Catch::Approx(std::pow(base, -2.0 / 8)));
    CHECK(config.rope_freqs[config.layers[5].rope.freqs_idx][1] == Catch::Approx(std::pow(1e6, -2.0 / 8) / 8));
    REQUIRE_FALSE((*loaded)->warnings.empty());
    CHECK_THAT((*loaded)->warnings.back(), ContainsSubstring("2 tensors of parts that read images are left out"));
    CHECK(std::ranges::count_if(build_forward(**loaded, Caps{}, 4).ops,
                                [](const Op& op) { return std::holds_alternative<Scale>(op); }) == 1);
  };
  check_base(10000);
  file.f32("gemma3.rope.freq_base_swa", 500);
  check_base(500);
  file.tensor_f32("blk.0.other.weight", {32});
  const std::string bytes = file.build();
  const auto refused = load(bytes);
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, ContainsSubstring("tensor blk.0.other.weight: gemma3 has no such tensor"));
}

TEST_CASE("post norms are tensors and ops of every layer whose architecture has them") {
  auto config = toy_config([](GgufBytes& file) { file.u32("toy.attention.sliding_window", 16); });
  REQUIRE(config.ok());
  Model model;
  model.config = *config;
  model.config.vocab_size = 8;
  model.config.rope_freqs = {std::vector<float>(8)};
  const auto storage = std::make_shared<ModelStorage>();
  AnyTensors tensors(*storage);
  REQUIRE(assemble_weights(kToy, tensors, storage, &model).ok());
  CHECK(std::ranges::count(tensors.names, "blk.6.post_attention_norm.weight") == 1);
  CHECK(std::ranges::count(tensors.names, "blk.0.post_ffw_norm.weight") == 1);
  const auto norms = [](const OpList& list) {
    return std::ranges::count_if(list.ops, [](const Op& op) { return std::holds_alternative<RmsNorm>(op); });
  };
  CHECK(norms(build_forward(model, Caps{}, 4)) == 7 * 2 + 6 * 2);  // the last feed-forward part is the sample list's
  CHECK(norms(build_sample(model, Caps{}, 4)) == 3);

  // Each adds to x what was normed, not what was computed.
  const OpList list = build_forward(model, Caps{}, 4);
  int num_checked = 0;
  for (size_t i = 0; i + 1 < list.ops.size(); ++i) {
    const auto* post = std::get_if<RmsNorm>(&list.ops[i]);
    const auto* next = std::get_if<RmsNorm>(&list.ops[i + 1]);
    if (post == nullptr || next == nullptr) continue;
    CHECK(post->delta == kNoTensor);
    CHECK(next->delta == post->out);
    CHECK(list.tensors[static_cast<size_t>(post->out)].dtype == DType::kF32);
    ++num_checked;
  }
  CHECK(num_checked == 12);
}

// The same keys under a row that has all that a layer may have beside the usual.
constexpr Architecture kRich = {.name = "toy",
                                .rope_pairing = RopePairing::kHalves,
                                .qk_norm = true,
                                .sinks = true,
                                .v_norm = true,
                                .may_lack_values = true,
                                .divides_logits = true,
                                .windows = every_nth_full(2),
                                .turned = every_nth_full(4)};

GgufBytes rich_file() {
  GgufBytes file = toy_file(6);
  file.u32("toy.attention.sliding_window", 16);
  file.u32("toy.attention.shared_kv_layers", 3);
  file.f32("toy.logit_scale", 16);
  file.f32("toy.residual_scale", 0.25f);
  file.f32("toy.embedding_scale", 12);
  return file;
}

Result<ModelConfig> config_of(const Architecture& architecture, const GgufBytes& file) {
  const std::string bytes = file.build();
  auto source = parse_weight_source(as_span(bytes));
  if (!source) return source.error();
  return read_config(architecture, source->metadata);
}

TEST_CASE("scales, layers that do not turn and layers that read another's cache are read") {
  const auto config = config_of(kRich, rich_file());
  INFO((config ? "" : config.error().message));
  REQUIRE(config.ok());
  CHECK(config->logit_scale == 1.0f / 16);
  CHECK(config->residual_scale == 0.25f);
  CHECK(config->embedding_scale == 12);
  std::vector<int32_t> owners;
  std::vector<bool> turned;
  for (const LayerSpec& layer : config->layers) {
    owners.push_back(layer.cache_of);
    turned.push_back(layer.rope.dim > 0);
  }
  CHECK(owners == std::vector<int32_t>{-1, -1, -1, 1, 2, 1});  // full layers are 1, 3 and 5
  CHECK(turned == std::vector<bool>{true, true, true, false, true, true});
  CHECK(check_layers(config->layers).ok());
  const std::vector<CacheGroup> groups = cache_groups(config->layers);
  REQUIRE(groups.size() == 2);
  CHECK((groups[0].num_layers == 1 && groups[1].num_layers == 2));
  CHECK((config->layers[5].cache_group == 0 && config->layers[4].cache_layer == 1));

  GgufBytes lonely = rich_file();
  replace_pair(lonely, "toy.attention.shared_kv_layers", [&] { lonely.u32("toy.attention.shared_kv_layers", 5); });
  const auto refused = config_of(kRich, lonely);  // layer 0 has a window, and layer 1 has none
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message,
             ContainsSubstring("shared_kv_layers: expected a layer before 1 with the window and heads of layer 1"));
}

TEST_CASE("such layers have the tensors and ops that they need") {
  const auto config = config_of(kRich, rich_file());
  REQUIRE(config.ok());
  Model model;
  model.config = *config;
  model.config.vocab_size = 8;
  model.config.rope_freqs = {std::vector<float>(8)};
  const auto storage = std::make_shared<ModelStorage>();
  AnyTensors tensors(*storage);
  REQUIRE(assemble_weights(kRich, tensors, storage, &model).ok());
  const auto has = [&](const char* name) { return std::ranges::count(tensors.names, name) == 1; };
  CHECK((has("blk.0.attn_sinks.weight") && has("blk.2.attn_k.weight") && !has("blk.0.attn_v.weight")));
  CHECK((has("blk.3.attn_q.weight") && has("blk.3.attn_q_norm.weight")));
  CHECK_FALSE((has("blk.3.attn_k.weight") || has("blk.3.attn_k_norm.weight")));
  const auto count = [](const OpList& list, auto is) { return std::ranges::count_if(list.ops, is); };
  const OpList forward = build_forward(model, Caps{}, 4), sample = build_sample(model, Caps{}, 4);
  CHECK(count(forward, [](const Op& op) { return std::holds_alternative<Rope>(op); }) == 5);
  CHECK(count(forward, [](const Op& op) { return std::holds_alternative<KvWrite>(op); }) == 3);
  CHECK(count(forward, [](const Op& op) {
          const auto* attention = std::get_if<PagedAttention>(&op);
          return attention != nullptr && attention->sinks >= 0 && attention->queries_only;
        }) == 3);
  CHECK(count(forward, [](const Op& op) {
          const auto* norm = std::get_if<QkNorm>(&op);
          return norm != nullptr && norm->v_weight >= 0;
        }) == 3);
  // Embeddings, and what each part adds; the last part is the sample list's, as are the logits.
  CHECK(count(forward, [](const Op& op) { return std::holds_alternative<Scale>(op); }) == 1 + 6 + 5);
  CHECK(count(sample, [](const Op& op) { return std::holds_alternative<Scale>(op); }) == 2);
}

TEST_CASE("sinks are numbers, or minus infinity where a head has none") {
  const auto made = [](float sink) {
    auto config = config_of(kRich, rich_file());
    REQUIRE(config.ok());
    Model model;
    model.config = *config;
    model.config.vocab_size = 8;
    const auto storage = std::make_shared<ModelStorage>();
    SinkTensors tensors(*storage, sink);
    return assemble_weights(kRich, tensors, storage, &model);
  };
  CHECK(made(-INFINITY).ok());
  CHECK(made(-3).ok());
  for (const float bad : {INFINITY, NAN}) {
    const Status status = made(bad);
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().message, ContainsSubstring("bad tensor: blk.0.attn_sinks.weight: expected numbers"));
  }
}

TEST_CASE("rows of gates stand behind each head's of q") {
  constexpr Architecture kGated = {.name = "toy", .rope_pairing = RopePairing::kHalves, .output_gate = true};
  auto config = toy_config([](GgufBytes&) {});
  REQUIRE(config.ok());
  Model model;
  model.config = *config;
  model.config.vocab_size = 8;
  model.config.rope_freqs = {std::vector<float>(8)};
  for (LayerSpec& layer : model.config.layers) {
    layer.output_gate = true;
    layer.attention_post_norm = layer.ffn_post_norm = false;
  }
  const auto storage = std::make_shared<ModelStorage>();
  AnyTensors tensors(*storage);
  REQUIRE(assemble_weights(kGated, tensors, storage, &model).ok());
  const WeightGroup& queries = model.weights.groups[static_cast<size_t>(model.layers[0].qkv)];
  const WeightGroup& gates = model.weights.groups[static_cast<size_t>(model.layers[0].attention_gate)];
  REQUIRE((queries.segments.size() == 3 && gates.segments.size() == 1));
  CHECK((queries.rows == 6 * 16 && gates.rows == 2 * 16));
  CHECK(model.weights.tensors[static_cast<size_t>(queries.segments[0].tensor)].rows == 32);
  CHECK(model.weights.tensors[static_cast<size_t>(gates.segments[0].tensor)].rows == 32);
}

TEST_CASE("gathered rows come in the order of their ranges, in whatever parts they are read") {
  std::vector<float> numbers(10 * 2);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  WeightTensor from;
  from.rows = 10;
  from.columns = 2;
  from.data = reinterpret_cast<const std::byte*>(numbers.data());
  std::vector<RowRange> ranges = ranges_of_each(10, 5, 1, 3);
  ranges.push_back({0, 1});
  const WeightTensor gathered = gathered_rows("g", from, ranges);
  CHECK((gathered.rows == 7 && gathered.columns == 2 && gathered.data == nullptr));
  const std::vector<float> expected = {2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 16, 17, 0, 1};
  for (uint64_t begin = 0; begin < 7; ++begin) {
    for (uint64_t end = begin + 1; end <= 7; ++end) {
      std::vector<float> found(2 * (end - begin));
      gathered.generate(begin * 8, std::as_writable_bytes(std::span(found)));
      CHECK(found == std::vector<float>(expected.begin() + 2 * begin, expected.begin() + 2 * end));
    }
  }
}

TEST_CASE("layers share a cache group when their blocks are alike") {
  std::vector<LayerSpec> layers = {spec(AttentionKind::kWindow, 64, 2, 32), spec(AttentionKind::kFull, 0, 2, 32),
                                   spec(AttentionKind::kWindow, 64, 2, 32), spec(AttentionKind::kFull, 0, 2, 64),
                                   spec(AttentionKind::kWindow, 32, 2, 32), spec(AttentionKind::kFull, 0, 2, 32)};
  layers[5].num_heads = 16;  // queries are not in blocks
  layers[5].ffn_width = 7;
  assign_cache_groups(layers);
  std::vector<std::pair<uint32_t, uint32_t>> places;
  for (const LayerSpec& layer : layers) places.emplace_back(layer.cache_group, layer.cache_layer);
  CHECK(places == std::vector<std::pair<uint32_t, uint32_t>>{{1, 0}, {0, 0}, {1, 1}, {2, 0}, {3, 0}, {0, 1}});
  std::vector<uint32_t> num_layers;
  for (const CacheGroup& group : cache_groups(layers)) num_layers.push_back(group.num_layers);
  CHECK(num_layers == std::vector<uint32_t>{2, 2, 1, 1});
}

TEST_CASE("layers that no op computes are refused by name") {
  std::vector<LayerSpec> layers(3, spec(AttentionKind::kFull, 0, 2, 32));
  CHECK(check_layers(layers).ok());
  const auto message = [&] {
    const Status status = check_layers(layers);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == ErrorCode::kUnsupported);
    return status.error().message;
  };
  for (uint32_t i = 0; i < 3; ++i) layers.push_back(spec(AttentionKind::kFull, 0, 2, 64 << i));
  assign_cache_groups(layers);
  CHECK(check_layers(layers).ok());
  layers.push_back(spec(AttentionKind::kFull, 0, 4, 32));
  assign_cache_groups(layers);
  CHECK_THAT(message(), ContainsSubstring("layer 6: expected at most 4 kinds of window"));
  layers[2].feed_forward = FeedForwardKind::kBoth;
  CHECK_THAT(message(),
             ContainsSubstring("layer 2: expected a dense feed-forward part or experts, found experts beside"));
  layers[1].attention = AttentionKind::kNone;
  layers[1].feed_forward = FeedForwardKind::kNone;
  CHECK_THAT(message(), ContainsSubstring("layer 1: expected at least one part, found nothing"));
  layers[0].attention = AttentionKind::kLatent;
  CHECK_THAT(message(),
             ContainsSubstring("layer 0: expected one row of a latent's size in the cache, found heads of another"));
  for (LayerSpec& layer : layers) layer.attention = AttentionKind::kShortConv;
  CHECK_THAT(message(), ContainsSubstring("expected attention in at least one of 7 layers, found it in none"));
}
