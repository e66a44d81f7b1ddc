// Aim: layers that draft tokens (MTP) are read beside a model that is the same without them, from GGUF and under the
// names of Hugging Face folders. Method: small whole models, as bytes; names alone.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/model/decoder.h"
#include "core/model/load_file.h"
#include "core/model/model_digest.h"
#include "core/weights/hf_names.h"
#include "tests/weights/changed_file.h"

using namespace llmrt;
using namespace llmrt::test;
using Catch::Matchers::ContainsSubstring;

namespace {

// tiny_model() with a layer that drafts behind its own.
GgufBytes drafting_model() {
  GgufBytes file = tiny_model();
  replace_pair(file, "llama.block_count", [&] { file.u32("llama.block_count", 2); });
  replace_pair(file, "llama.feed_forward_length", [&] {
    file.array<int32_t>("llama.feed_forward_length", kI32, {48, 999});
  });
  file.u32("llama.nextn_predict_layers", 1);
  file.tensor_f32("blk.1.nextn.eh_proj.weight", {64, 32});
  file.tensor_f32("blk.1.attn_norm.weight", {32});
  return file;
}

HfConfig config_of(const HfFamily& family) {
  HfConfig config;
  config.family = &family;
  config.num_layers = 4;
  config.num_experts = 2;
  return config;
}

}  // namespace

TEST_CASE("layers that draft are read beside the model") {
  const std::string bytes = drafting_model().build(), without = tiny_model().build();
  const auto model = load(bytes), plain = load(without);
  INFO((model ? "" : model.error().message));
  REQUIRE((model.ok() && plain.ok()));
  const ModelConfig& config = (*model)->config;
  CHECK(config.num_layers() == 1);
  CHECK(config.layers[0].ffn_width == 48);
  CHECK(config.num_draft_layers == 1);
  REQUIRE((*model)->draft_tensors.size() == 2);
  CHECK((*model)->draft_tensors[0].name == "blk.1.nextn.eh_proj.weight");
  CHECK((*model)->draft_tensors[0].rows == 32);
  CHECK((*model)->draft_tensors[0].columns == 64);
  CHECK((*model)->draft_tensors[0].data != nullptr);
  CHECK((*model)->draft_head == nullptr);
  CHECK_THAT((*model)->draft_head_lack, ContainsSubstring("missing tensor: blk.1."));
  // Neither what a device holds nor what it computes knows of them.
  CHECK((*model)->weights.tensors.size() == (*plain)->weights.tensors.size());
  CHECK(print(build_forward(**model, Caps{}, 4)) == print(build_forward(**plain, Caps{}, 4)));
  CHECK(model_digest(**model) == model_digest(**plain));
  CHECK((*plain)->draft_tensors.empty());
}

TEST_CASE("what is behind the layers that draft, or is no tensor of theirs, is refused") {
  const auto message = [](auto change) {
    GgufBytes file = drafting_model();
    change(file);
    const std::string bytes = file.build();
    const auto model = load(bytes);
    REQUIRE_FALSE(model.ok());
    return model.error().message;
  };
  CHECK_THAT(message([](GgufBytes& f) { f.tensor_f32("blk.2.attn_norm.weight", {32}); }),
             ContainsSubstring("tensor blk.2.attn_norm.weight: llama has no such tensor"));
  CHECK_THAT(message([](GgufBytes& f) { f.tensor_f32("blk.0.nextn.enorm.weight", {32}); }),
             ContainsSubstring("tensor blk.0.nextn.enorm.weight: llama has no such tensor"));
  CHECK_THAT(message([](GgufBytes& f) { f.tensor_f32("blk.1x.enorm.weight", {32}); }),
             ContainsSubstring("tensor blk.1x.enorm.weight: llama has no such tensor"));
  const auto drafts = [](uint32_t count) {
    return [count](GgufBytes& f) {
      replace_pair(f, "llama.nextn_predict_layers", [&] { f.u32("llama.nextn_predict_layers", count); });
    };
  };
  CHECK_THAT(message(drafts(2)), ContainsSubstring("llama.nextn_predict_layers: expected an integer in [0, 1]"));
  CHECK_THAT(message(drafts(0)), ContainsSubstring("missing tensor: blk.1."));
  CHECK_THAT(message([](GgufBytes& f) {
               replace_pair(f, "llama.feed_forward_length", [&] {
                 f.array<int32_t>("llama.feed_forward_length", kI32, {48, 48, 48});
               });
             }),
             ContainsSubstring("expected 1 elements, one a layer, found 3"));
}

TEST_CASE("folders name layers that draft in ways of their own") {
  const HfConfig qwen = config_of(*find_hf_family("qwen3_next")), nemotron = config_of(*find_hf_family("nemotron_h"));
  HfConfig glm = config_of(*find_hf_family("glm4_moe_lite"));
  glm.num_later = 1;
  struct Name {
    const HfConfig& config;
    const char *hf, *canonical;
    uint64_t layers;
  };
  const Name names[] = {
      {qwen, "mtp.fc.weight", "blk.4.nextn.eh_proj.weight", 1},
      {qwen, "mtp.pre_fc_norm_embedding.weight", "blk.4.nextn.enorm.weight", 1},
      {qwen, "mtp.norm.weight", "blk.4.nextn.shared_head_norm.weight", 1},
      {qwen, "mtp.layers.0.self_attn.q_proj.weight", "blk.4.attn_q.weight", 1},
      {qwen, "mtp.layers.1.input_layernorm.weight", "blk.5.attn_norm.weight", 2},
      {qwen, "mtp.layers.0.mlp.experts.1.up_proj.weight", "blk.4.ffn_up_exps.weight", 1},
      {glm, "model.layers.4.eh_proj.weight", "blk.4.nextn.eh_proj.weight", 1},
      {glm, "model.layers.4.shared_head.norm.weight", "blk.4.nextn.shared_head_norm.weight", 1},
      {glm, "model.layers.4.shared_head.head.weight", "blk.4.nextn.shared_head_head.weight", 1},
      {glm, "model.layers.4.embed_tokens.weight", "blk.4.nextn.embed_tokens.weight", 1},
      {glm, "model.layers.4.input_layernorm.weight", "blk.4.attn_norm.weight", 1},
      {glm, "model.layers.4.mlp.experts.1.up_proj.weight", "blk.4.ffn_up_exps.weight", 1},
      {nemotron, "mtp.layers.0.eh_proj.weight", "blk.4.nextn.eh_proj.weight", 1},
      {nemotron, "mtp.layers.0.norm.weight", "blk.4.attn_norm.weight", 1},
      {nemotron, "mtp.layers.0.mixer.o_proj.weight", "blk.4.attn_output.weight", 1},
      {nemotron, "mtp.layers.1.norm.weight", "blk.4.post_attention_norm.weight", 1},
      {nemotron, "mtp.layers.1.mixer.experts.0.down_proj.weight", "blk.4.ffn_down_exps.weight", 1},
      {nemotron, "mtp.layers.1.final_layernorm.weight", "blk.4.nextn.shared_head_norm.weight", 1},
  };
  for (const Name& name : names) {
    const HfPlace place = place_of(name.hf, name.config);
    INFO(name.hf);
    CHECK(place.canonical == name.canonical);
    CHECK(place.draft_layers == name.layers);
  }
  CHECK(place_of("mtp.layers.0.mlp.experts.1.up_proj.weight", qwen).expert == 1);
  CHECK(place_of("mtp.layers.0.self_attn.q_proj.weight_scale_inv", qwen).is_scale);
  // Nothing reads them, so what is not known is left out; elsewhere there are none.
  for (const char* name : {"mtp.other.weight", "mtp.layers.99.input_layernorm.weight", "mtp.layers.0.other.weight"})
    CHECK(place_of(name, qwen).role == HfPlace::Role::kIgnored);
  CHECK(place_of("mtp.fc.weight", config_of(*find_hf_family("llama"))).role == HfPlace::Role::kUnknown);
}
