// Aim: what each family of Hugging Face models keeps otherwise than GGUF (norms, experts one by one or fused, fp8 with
// its scales) becomes the tensor that GGUF would hold, bit by bit, and config.json becomes its keys.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <random>

#include "core/base/half.h"
#include "core/model/load_file.h"
#include "core/weights/row_codec.h"
#include "tests/weights/hf_bytes.h"

namespace llmrt::test {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string changed_text(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// Small bf16 numbers that differ by tensor and element.
uint16_t bf16_bits(size_t tensor, size_t i) {
  return static_cast<uint16_t>(0x3c00 + 7 * tensor % 512 + i % 251);
}
HfBytes bf16(const std::string& name, std::vector<uint64_t> shape, size_t seed) {
  size_t count = 1;
  for (const uint64_t dim : shape) count *= dim;
  HfBytes made{name, "BF16", std::move(shape), {}};
  for (size_t i = 0; i < count; ++i) made.data += raw(bf16_bits(seed, i));
  return made;
}
HfBytes bytes(const std::string& name, const std::string& dtype, std::vector<uint64_t> shape, size_t seed) {
  size_t count = 1;
  for (const uint64_t dim : shape) count *= dim;
  HfBytes made{name, dtype, std::move(shape), {}};
  for (size_t i = 0; i < count; ++i) made.data += static_cast<char>((37 * i + 11 * seed + i / 7) % 120);
  return made;
}

uint64_t integer(const WeightSource& source, const std::string& key) {
  INFO(key);
  const auto value = source.metadata.integer(key, 0, UINT32_MAX);
  REQUIRE(value.ok());
  return *value;
}
double number(const WeightSource& source, const std::string& key) {
  INFO(key);
  const auto value = source.metadata.number(key, -1e30, 1e30);
  REQUIRE(value.ok());
  return *value;
}
std::string windows(const WeightSource& source, const std::string& architecture) {
  if (!source.metadata.has(architecture + ".attention.sliding_window")) return "none";
  const auto pattern = source.metadata.booleans(architecture + ".attention.sliding_window_pattern");
  REQUIRE(pattern.ok());
  std::string out = fmt::format("{}:", integer(source, architecture + ".attention.sliding_window"));
  for (const bool has_window : *pattern) out += has_window ? 'w' : 'f';
  return out;
}
Result<WeightSource> config_alone(const std::string& config) {
  return read_hf_texts({config, {}, {}, {}, {}});
}
std::string windows_of(const std::string& architecture, const std::string& config) {
  const auto source = config_alone(config);
  return source ? windows(*source, architecture) : source.error().message;
}

// The tensors of one layer that all families have; D 8, two heads of 4, one for keys.
std::vector<HfBytes> attention(const std::string& layer, bool has_qk_norm, uint64_t width = 8) {
  std::vector<HfBytes> tensors = {bf16(layer + "input_layernorm.weight", {width}, 1),
                                  bf16(layer + "post_attention_layernorm.weight", {width}, 2),
                                  bf16(layer + "self_attn.q_proj.weight", {8, width}, 3),
                                  bf16(layer + "self_attn.k_proj.weight", {4, width}, 4),
                                  bf16(layer + "self_attn.v_proj.weight", {4, width}, 5),
                                  bf16(layer + "self_attn.o_proj.weight", {width, 8}, 6)};
  if (has_qk_norm) {
    tensors.push_back(bf16(layer + "self_attn.q_norm.weight", {4}, 7));
    tensors.push_back(bf16(layer + "self_attn.k_norm.weight", {4}, 8));
  }
  return tensors;
}
std::vector<HfBytes> around(const std::string& prefix, uint64_t width = 8) {
  return {bf16(prefix + "embed_tokens.weight", {6, width}, 20), bf16(prefix + "norm.weight", {width}, 21)};
}

const std::string kGemma = R"({"architectures":["Gemma3ForCausalLM"],"model_type":"gemma3_text","hidden_size":8,
  "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,"intermediate_size":16,
  "vocab_size":6,"max_position_embeddings":64,"query_pre_attn_scalar":16,"sliding_window":16,
  "sliding_window_pattern":2,"rope_local_base_freq":10000.0,"rope_theta":1000000.0,"attn_logit_softcapping":null,
  "final_logit_softcapping":null,"hidden_activation":"gelu_pytorch_tanh","rope_scaling":{"rope_type":"linear",
  "factor":8.0}})";

std::vector<HfBytes> gemma_tensors(const std::string& prefix) {
  std::vector<HfBytes> tensors = around(prefix);
  for (const char* layer : {"layers.0.", "layers.1."}) {
    for (const HfBytes& tensor : attention(prefix + layer, true)) tensors.push_back(tensor);
    for (const auto& [name, shape] :
         {std::pair<const char*, std::vector<uint64_t>>{"pre_feedforward_layernorm.weight", {8}},
          {"post_feedforward_layernorm.weight", {8}},
          {"mlp.gate_proj.weight", {16, 8}},
          {"mlp.up_proj.weight", {16, 8}},
          {"mlp.down_proj.weight", {8, 16}}})
      tensors.push_back(bf16(prefix + layer + name, shape, 9));
  }
  return tensors;
}

std::string widened(size_t seed, size_t count, float offset) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += raw(bf16_value(bf16_bits(seed, i)) + offset);
  return out;
}

TEST_CASE("gemma3: norms hold one more, layers differ in windows and bases, images are left out") {
  HfTestFolder folder;
  const auto source = folder.open(kGemma, gemma_tensors("model."));
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  CHECK(bytes_of(*source, "blk.1.attn_norm.weight") == widened(1, 8, 1));
  CHECK(bytes_of(*source, "blk.0.post_attention_norm.weight") == widened(2, 8, 1));
  CHECK(bytes_of(*source, "blk.0.attn_q_norm.weight") == widened(7, 4, 1));
  CHECK(bytes_of(*source, "output_norm.weight") == widened(21, 8, 1));
  CHECK(source->find("blk.0.ffn_norm.weight") != nullptr);
  CHECK(source->find("blk.0.post_ffw_norm.weight") != nullptr);
  CHECK(windows(*source, "gemma3") == "16:wf");
  CHECK(number(*source, "gemma3.attention.scale") == 0.25);
  CHECK(number(*source, "gemma3.rope.freq_base_swa") == 10000);
  const auto model = load_model(folder.path());
  CAPTURE(model ? "" : model.error().message);
  REQUIRE(model.ok());
  const ModelConfig& config = (*model)->config;
  CHECK(config.layers[0].window == 16);
  CHECK(config.layers[1].attention == AttentionKind::kFull);
  CHECK(config.layers[0].attention_scale == 0.25f);
  CHECK(config.rope_freqs[config.layers[0].rope.freqs_idx][1] == 0.01f);
  CHECK(config.rope_freqs[config.layers[1].rope.freqs_idx][0] == 0.125f);  // stretched by 8
  CHECK((*model)->warnings.empty());

  const std::string nested = R"({"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3",
    "vision_config":{"x":1},"mm_tokens_per_image":256,"text_config":)" +
                             changed_text(kGemma, R"("architectures":["Gemma3ForCausalLM"],)", "") + "}";
  for (const char* prefix : {"model.language_model.", "language_model.model."}) {
    std::vector<HfBytes> tensors = gemma_tensors(prefix);
    tensors.push_back(bf16("vision_tower.vision_model.post_layernorm.weight", {8}, 1));
    tensors.push_back(bf16("model.multi_modal_projector.mm_soft_emb_norm.weight", {8}, 1));
    REQUIRE(folder.open(nested, tensors).ok());
    const auto text_alone = load_model(folder.path());
    CAPTURE(text_alone ? "" : text_alone.error().message);
    REQUIRE(text_alone.ok());
    REQUIRE((*text_alone)->warnings.size() == 1);
    CHECK_THAT((*text_alone)->warnings[0], ContainsSubstring("2 tensors of parts that read images"));
  }
  const auto message = [&](const std::string& from, const std::string& to) {
    return folder.message(changed_text(kGemma, from, to), gemma_tensors("model."));
  };
  CHECK_THAT(message("gelu_pytorch_tanh", "gelu"), ContainsSubstring("hidden_activation: expected gelu_pytorch_tanh"));
  CHECK_THAT(message("{\"arch", "{\"use_bidirectional_attention\":true,\"arch"), ContainsSubstring("expected false"));
  CHECK_THAT(message("\"gemma3_text\"", "\"gemma3\""), ContainsSubstring("architectures: expected"));
  CHECK_THAT(folder.message(changed_text(nested, "gemma3_text", "llama"), {}),
             ContainsSubstring("text_config.model_type: expected gemma3_text"));
}

TEST_CASE("gemma3: rope_parameters and layer_types of later versions") {
  std::string config = changed_text(kGemma, R"("rope_scaling":{"rope_type":"linear",
  "factor":8.0})",
                                    R"("rope_parameters":{"full_attention":{"rope_type":"linear","rope_theta":5e5,
    "factor":8.0},"sliding_attention":{"rope_type":"default","rope_theta":2e4}},
    "layer_types":["full_attention","sliding_attention"])");
  config =
      changed_text(changed_text(config, R"("rope_theta":1000000.0,)", ""), R"("rope_local_base_freq":10000.0,)", "");
  const auto source = config_alone(config);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  CHECK(windows(*source, "gemma3") == "16:fw");
  CHECK(number(*source, "gemma3.rope.freq_base") == 5e5);
  CHECK(number(*source, "gemma3.rope.freq_base_swa") == 2e4);
  CHECK(number(*source, "gemma3.rope.scaling.factor") == 8);
  const auto refused = config_alone(changed_text(config, "\"default\"", "\"linear\""));
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, ContainsSubstring("sliding_attention.rope_type: expected default"));
}

const std::string kLfm2 = R"({"architectures":["Lfm2ForCausalLM"],"model_type":"lfm2","hidden_size":8,
  "num_hidden_layers":3,"num_attention_heads":2,"num_key_value_heads":1,"block_ff_dim":30,"block_multiple_of":8,
  "vocab_size":6,"norm_eps":1e-4,"max_position_embeddings":64,"theta":5e5,"conv_L_cache":3,"full_attn_idxs":[1]})";

TEST_CASE("lfm2: layers, epsilon and the width of the feed-forward part under their own names") {
  const auto source = config_alone(kLfm2);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  const auto kv_heads = source->metadata.integers("lfm2.attention.head_count_kv", 0, 9);
  REQUIRE(kv_heads.ok());
  CHECK(std::vector<int64_t>(kv_heads->begin(), kv_heads->end()) == std::vector<int64_t>{0, 1, 0});
  CHECK(integer(*source, "lfm2.feed_forward_length") == 24);  // two thirds of 30, rounded up
  CHECK(number(*source, "lfm2.attention.layer_norm_rms_epsilon") == 1e-4);
  CHECK(number(*source, "lfm2.rope.freq_base") == 5e5);
  const auto message = [](const std::string& from, const std::string& to) {
    const auto refused = config_alone(changed_text(kLfm2, from, to));
    REQUIRE_FALSE(refused.ok());
    return refused.error().message;
  };
  CHECK_THAT(message("[1]", "[3]"), ContainsSubstring("full_attn_idxs: expected layers below 3, found 3"));
  CHECK_THAT(message("\"full_attn_idxs\":[1]", R"("layer_types":["conv","full_attention","mamba"])"),
             ContainsSubstring("layer_types: expected full_attention and conv"));
  CHECK_THAT(message("\"norm_eps\"", "\"conv_bias\":true,\"norm_eps\""),
             ContainsSubstring("conv_bias: expected false"));
  CHECK_THAT(message("\"norm_eps\"", "\"conv_dim\":16,\"norm_eps\""),
             ContainsSubstring("conv_dim: expected 8, as hidden_size, found 16"));
  CHECK_THAT(message("\"norm_eps\"", "\"sliding_window\":16,\"norm_eps\""),
             ContainsSubstring("sliding_window: expected none, found 16"));
  CHECK_THAT(message("\"norm_eps\"", "\"mamba_expand\":2,\"norm_eps\""), ContainsSubstring("mamba_expand: not a key"));
}

const std::string kQwenNext = R"({"architectures":["Qwen3NextForCausalLM"],"model_type":"qwen3_next","hidden_size":8,
  "num_hidden_layers":4,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":16,"moe_intermediate_size":12,
  "num_experts":3,"num_experts_per_tok":2,"vocab_size":6,"linear_num_key_heads":2,"linear_num_value_heads":4,
  "linear_key_head_dim":8,"linear_value_head_dim":12,"shared_expert_intermediate_size":12})";

TEST_CASE("qwen3_next: sizes of the delta rule, a share of each head turns") {
  const auto source = config_alone(kQwenNext);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  const auto recurrent = source->metadata.booleans("qwen3next.attention.recurrent_layers");
  REQUIRE(recurrent.ok());
  CHECK(*recurrent == std::vector<bool>{true, true, true, false});
  CHECK(integer(*source, "qwen3next.rope.dimension_count") == 4);
  CHECK(integer(*source, "qwen3next.ssm.inner_size") == 48);
  CHECK(integer(*source, "qwen3next.ssm.group_count") == 2);
  CHECK(integer(*source, "qwen3next.expert_shared_feed_forward_length") == 12);
  const auto message = [](const std::string& from, const std::string& to) {
    const auto refused = config_alone(changed_text(kQwenNext, from, to));
    REQUIRE_FALSE(refused.ok());
    return refused.error().message;
  };
  CHECK_THAT(message("\"vocab", "\"partial_rotary_factor\":1.5,\"vocab"),
             ContainsSubstring("partial_rotary_factor: expected in (0, 1], found 1.5"));
  CHECK_THAT(message("\"vocab", "\"attn_output_gate\":false,\"vocab"),
             ContainsSubstring("attn_output_gate: expected true, found false"));
}

const std::string kNemotron = R"({"architectures":["NemotronHForCausalLM"],"model_type":"nemotron_h","hidden_size":8,
    "num_hidden_layers":4,"hybrid_override_pattern":"ME*E","num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,
    "vocab_size":6,"mamba_num_heads":4,"mamba_head_dim":8,"n_groups":2,"ssm_state_size":16,"conv_kernel":4,
    "time_step_limit":[0.0,Infinity],"mlp_hidden_act":"relu2","layer_norm_epsilon":1e-5,"n_routed_experts":4,
    "num_experts_per_tok":2,"moe_intermediate_size":12,"moe_shared_expert_intermediate_size":24,"moe_latent_size":16,
    "routed_scaling_factor":2.5,"n_group":2,"topk_group":1})";

TEST_CASE("nemotron_h: a layer is one part alone, by a pattern or by names") {
  const auto source = config_alone(kNemotron);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  const auto array = [](const WeightSource& from, const char* key) {
    return from.metadata.integers(std::string("nemotron_h.") + key, 0, 100'000);
  };
  CHECK(*array(*source, "attention.head_count_kv") == std::vector<int64_t>{0, 0, 1, 0});
  CHECK(*array(*source, "feed_forward_length") == std::vector<int64_t>{0, 12, 0, 12});
  CHECK(integer(*source, "nemotron_h.block_count") == 4);
  CHECK(integer(*source, "nemotron_h.ssm.inner_size") == 32);
  CHECK(integer(*source, "nemotron_h.ssm.time_step_rank") == 4);
  CHECK(integer(*source, "nemotron_h.ssm.group_count") == 2);
  CHECK(integer(*source, "nemotron_h.expert_group_used_count") == 1);
  CHECK(integer(*source, "nemotron_h.expert_shared_feed_forward_length") == 24);
  CHECK(integer(*source, "nemotron_h.moe_latent_size") == 16);
  CHECK(number(*source, "nemotron_h.expert_weights_scale") == 2.5);
  const std::string pattern = R"("num_hidden_layers":4,"hybrid_override_pattern":"ME*E")";
  // Newer checkpoints name the layers and do not count them; a model without experts may name their sizes.
  const auto dense = config_alone(
      changed_text(kNemotron, pattern, R"("layers_block_type":["linear_attention","mlp","full_attention"])"));
  CAPTURE(dense ? "" : dense.error().message);
  REQUIRE(dense.ok());
  CHECK(integer(*dense, "nemotron_h.block_count") == 3);
  CHECK(*array(*dense, "feed_forward_length") == std::vector<int64_t>{0, 21504, 0});
  CHECK_FALSE(dense->metadata.has("nemotron_h.expert_count"));
  const auto message = [](const std::string& from, const std::string& to) {
    const auto refused = config_alone(changed_text(kNemotron, from, to));
    REQUIRE_FALSE(refused.ok());
    return refused.error().message;
  };
  CHECK_THAT(message("ME*E", "MX*E"), ContainsSubstring("found \"X\""));
  CHECK_THAT(message("ME*E", "ME*"), ContainsSubstring("num_hidden_layers: expected 3"));
  CHECK_THAT(message("ME*E", "ME*-"), ContainsSubstring("layers with experts or dense ones, found both"));
  CHECK_THAT(message(pattern, R"("num_hidden_layers":4)"), ContainsSubstring("what each layer is, found nothing"));
  CHECK_THAT(message("\"head_dim\":4", "\"use_conv_bias\":false"), ContainsSubstring("use_conv_bias: expected true"));
  CHECK_THAT(message("relu2", "silu"), ContainsSubstring("mlp_hidden_act: expected relu2"));
  CHECK_THAT(message(":1e-5", ":Infinity"), ContainsSubstring("layer_norm_epsilon: expected a number"));
}

TEST_CASE("lfm2_moe: leading layers are dense, and experts go by sigmoid") {
  const std::string config = R"({"architectures":["Lfm2MoeForCausalLM"],"model_type":"lfm2_moe","hidden_size":8,
    "num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"vocab_size":6,"intermediate_size":24,
    "moe_intermediate_size":12,"num_experts":4,"num_experts_per_tok":2,"num_dense_layers":1,"conv_L_cache":3,
    "norm_topk_prob":true,"use_expert_bias":true,"routed_scaling_factor":1.5,"layer_types":["conv","full_attention"]})";
  const auto source = config_alone(config);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  CHECK(integer(*source, "lfm2moe.leading_dense_block_count") == 1);
  CHECK(integer(*source, "lfm2moe.feed_forward_length") == 24);
  CHECK(integer(*source, "lfm2moe.expert_feed_forward_length") == 12);
  CHECK(integer(*source, "lfm2moe.expert_gating_func") == 2);
  CHECK(number(*source, "lfm2moe.expert_weights_scale") == 1.5);
  const auto none = config_alone(changed_text(config, "dense_layers\":1", "dense_layers\":0"));
  REQUIRE(none.ok());
  CHECK(integer(*none, "lfm2moe.leading_dense_block_count") == 0);
  CHECK_FALSE(config_alone(changed_text(config, "dense_layers\":1", "dense_layers\":3")).ok());
}

TEST_CASE("granitemoehybrid: factors, and what its readers do differently is refused") {
  const std::string config = R"({"architectures":["GraniteMoeHybridForCausalLM"],"model_type":"granitemoehybrid",
    "hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,"vocab_size":6,
    "layer_types":["mamba","attention"],"shared_intermediate_size":16,"num_local_experts":0,"mamba_n_heads":4,
    "mamba_d_head":4,"mamba_d_state":8,"position_embedding_type":"nope","embedding_multiplier":12,
    "logits_scaling":8,"residual_multiplier":0.25,"attention_multiplier":0.125})";
  const auto source = config_alone(config);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  CHECK(integer(*source, "granitehybrid.ssm.inner_size") == 16);
  CHECK(integer(*source, "granitehybrid.feed_forward_length") == 16);
  CHECK(number(*source, "granitehybrid.embedding_scale") == 12);
  CHECK(number(*source, "granitehybrid.logit_scale") == 8);
  CHECK(number(*source, "granitehybrid.residual_scale") == 0.25);
  CHECK(number(*source, "granitehybrid.attention.scale") == 0.125);
  const auto message = [&](const std::string& from, const std::string& to) {
    const auto refused = config_alone(changed_text(config, from, to));
    REQUIRE_FALSE(refused.ok());
    return refused.error().message;
  };
  const auto with_experts = config_alone(
      changed_text(config, "experts\":0", "experts\":4,\"num_experts_per_tok\":2,\"intermediate_size\":8"));
  REQUIRE(with_experts.ok());
  CHECK(integer(*with_experts, "granitehybrid.expert_count") == 4);
  CHECK(integer(*with_experts, "granitehybrid.expert_feed_forward_length") == 8);
  CHECK(integer(*with_experts, "granitehybrid.expert_shared_feed_forward_length") == 16);
  CHECK_THAT(message("experts\":0", "experts\":-1"), ContainsSubstring("num_local_experts: expected an integer"));
  CHECK_THAT(message("\"mamba_d_head\":4", "\"mamba_d_head\":8"), ContainsSubstring("mamba_d_head: expected 4"));
  CHECK_THAT(message("\"mamba_d_state\"", "\"mamba_n_groups\":2,\"mamba_d_state\""),
             ContainsSubstring("mamba_n_groups: expected 1, found 2"));
  CHECK_THAT(message("\"nope\"", "\"alibi\""), ContainsSubstring("position_embedding_type: expected nope or rope"));
}

const std::string kQwenMoe = R"({"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","hidden_size":8,
  "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,"intermediate_size":16,
  "moe_intermediate_size":12,"num_experts":3,"num_experts_per_tok":2,"norm_topk_prob":true,"vocab_size":6,
  "rms_norm_eps":1e-6,"max_position_embeddings":64,"tie_word_embeddings":true,"decoder_sparse_step":1,
  "mlp_only_layers":[],"use_sliding_window":false,"sliding_window":null,"max_window_layers":48})";

// Experts in the order 2, 0, 1, as names sort and files mix.
std::vector<HfBytes> expert_tensors(const std::string& prefix, const std::vector<std::string>& names) {
  std::vector<HfBytes> tensors;
  for (const size_t expert : {2, 0, 1})
    for (size_t i = 0; i < names.size(); ++i)
      tensors.push_back(bf16(fmt::format("{}{}.{}.weight", prefix, expert, names[i]),
                             i == 2 ? std::vector<uint64_t>{8, 12} : std::vector<uint64_t>{12, 8},
                             30 + 3 * expert + i));
  return tensors;
}
std::string stacked(size_t part) {
  std::string out;
  for (size_t expert = 0; expert < 3; ++expert) out += bf16("", {96}, 30 + 3 * expert + part).data;
  return out;
}

void expect_model(const HfTestFolder& folder) {
  const auto model = load_model(folder.path());
  CAPTURE(model ? "" : model.error().message);
  CHECK(model.ok());
}

TEST_CASE("experts one by one become one tensor, in the order of their numbers") {
  HfTestFolder folder;
  std::vector<HfBytes> tensors = around("model.");
  for (const HfBytes& tensor : attention("model.layers.0.", true)) tensors.push_back(tensor);
  for (const HfBytes& tensor : expert_tensors("model.layers.0.mlp.experts.", {"gate_proj", "up_proj", "down_proj"}))
    tensors.push_back(tensor);
  tensors.push_back(bf16("model.layers.0.mlp.gate.weight", {3, 8}, 50));
  const auto source = folder.open(kQwenMoe, tensors);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  CHECK(bytes_of(*source, "blk.0.ffn_gate_exps.weight") == stacked(0));
  CHECK(bytes_of(*source, "blk.0.ffn_up_exps.weight") == stacked(1));
  CHECK(bytes_of(*source, "blk.0.ffn_down_exps.weight") == stacked(2));
  CHECK(source->find("blk.0.ffn_gate_exps.weight")->dims == std::array<uint64_t, 4>{8, 12, 3, 1});
  CHECK(source->find("blk.0.ffn_down_exps.weight")->dims == std::array<uint64_t, 4>{12, 8, 3, 1});
  CHECK(bytes_of(*source, "blk.0.ffn_gate_inp.weight") == widened(50, 24, 0));
  CHECK(source->find("blk.0.ffn_gate_inp.weight")->encoding == Encoding::kF32);
  CHECK(integer(*source, "qwen3moe.expert_count") == 3);
  CHECK(integer(*source, "qwen3moe.expert_used_count") == 2);
  CHECK(integer(*source, "qwen3moe.expert_feed_forward_length") == 12);
  CHECK(*source->metadata.boolean("qwen3moe.expert_weights_norm"));
  expect_model(folder);

  std::erase_if(tensors, [](const HfBytes& tensor) { return tensor.name.find("experts.1.up") != std::string::npos; });
  CHECK_THAT(folder.message(kQwenMoe, tensors), ContainsSubstring("that of expert 1 of blk.0.ffn_up_exps.weight"));
  tensors.push_back(bf16("model.layers.0.mlp.experts.1.up_proj.weight", {8, 12}, 1));
  CHECK_THAT(folder.message(kQwenMoe, tensors), ContainsSubstring("expected a matrix as that of the first expert"));
  tensors.back().name = "model.layers.0.mlp.experts.3.up_proj.weight";
  CHECK_THAT(folder.message(kQwenMoe, tensors), ContainsSubstring("qwen3_moe has no such tensor"));
  const auto message = [&](const std::string& from, const std::string& to) {
    return config_alone(changed_text(kQwenMoe, from, to)).error().message;
  };
  CHECK_THAT(message("\"decoder_sparse_step\":1", "\"decoder_sparse_step\":2"),
             ContainsSubstring("expected 1, experts"));
  CHECK_THAT(message("\"mlp_only_layers\":[]", "\"mlp_only_layers\":[0]"),
             ContainsSubstring("mlp_only_layers: expected"));
  CHECK_THAT(message("_per_tok\":2", "_per_tok\":4"), ContainsSubstring("num_experts_per_tok: expected at most the 3"));
  CHECK_THAT(message("\"num_experts\":3", "\"num_experts\":5000"), ContainsSubstring("an integer in [1, 4096]"));
}

TEST_CASE("mixtral: w1, w3, w2 are gate, up, down of a llama with experts; mistral: all layers have the window") {
  HfTestFolder folder;
  const std::string config = R"({"architectures":["MixtralForCausalLM"],"model_type":"mixtral","hidden_size":8,
    "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":12,"vocab_size":6,
    "num_local_experts":3,"num_experts_per_tok":2,"sliding_window":null,"tie_word_embeddings":true,
    "router_aux_loss_coef":0.02,"output_router_logits":false})";
  std::vector<HfBytes> tensors = around("model.");
  for (const HfBytes& tensor : attention("model.layers.0.", false)) tensors.push_back(tensor);
  for (const HfBytes& tensor : expert_tensors("model.layers.0.block_sparse_moe.experts.", {"w1", "w3", "w2"}))
    tensors.push_back(tensor);
  tensors.push_back(bf16("model.layers.0.block_sparse_moe.gate.weight", {3, 8}, 50));
  const auto source = folder.open(config, tensors);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  CHECK(bytes_of(*source, "blk.0.ffn_gate_exps.weight") == stacked(0));
  CHECK(bytes_of(*source, "blk.0.ffn_up_exps.weight") == stacked(1));
  CHECK(bytes_of(*source, "blk.0.ffn_down_exps.weight") == stacked(2));
  CHECK(integer(*source, "llama.expert_count") == 3);
  CHECK(integer(*source, "llama.expert_feed_forward_length") == 12);
  CHECK(number(*source, "llama.rope.freq_base") == 1e6);
  CHECK(windows(*source, "llama") == "none");
  expect_model(folder);

  const std::string mistral = R"({"model_type":"mistral","hidden_size":8,"num_hidden_layers":2,
    "num_attention_heads":8,"intermediate_size":12,"vocab_size":6,"sliding_window":32})";
  CHECK(windows_of("llama", mistral) == "32:ww");
  CHECK(windows_of("llama", changed_text(mistral, ":32", ":null")) == "none");
  CHECK(windows_of("llama", changed_text(mistral, ",\"sliding_window\":32", "")) == "4096:ww");
}

TEST_CASE("windows of qwen: use_sliding_window, then max_window_layers or layer_types") {
  const std::string config = R"({"model_type":"qwen3","hidden_size":8,"num_hidden_layers":3,"num_attention_heads":2,
    "intermediate_size":12,"vocab_size":6,"rms_norm_eps":1e-6,"max_position_embeddings":64,"sliding_window":32,
    "use_sliding_window":true,"max_window_layers":1})";
  CHECK(windows_of("qwen3", config) == "32:fww");
  CHECK(windows_of("qwen3", changed_text(config, "true", "false")) == "none");
  const std::string types =
      changed_text(config, "{", R"({"layer_types":["sliding_attention","full_attention","sliding_attention"],)");
  CHECK(windows_of("qwen3", types) == "32:wfw");
  CHECK_THAT(windows_of("qwen3", changed_text(types, "true", "false")),
             ContainsSubstring("layer_types: expected full_attention alone"));
  CHECK_THAT(windows_of("qwen3", changed_text(types, "\"full_attention\",", "")),
             ContainsSubstring("expected an array of 3"));
  CHECK_THAT(windows_of("qwen3", changed_text(types, "full_attention", "chunked_attention")),
             ContainsSubstring("expected full_attention and sliding_attention, found \"chunked_attention\""));
  CHECK_THAT(windows_of("llama", changed_text(config, "qwen3", "llama")),
             ContainsSubstring("sliding_window: expected"));
}

const std::string kGptOss = R"({"architectures":["GptOssForCausalLM"],"model_type":"gpt_oss","hidden_size":64,
  "num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,"intermediate_size":32,
  "num_local_experts":2,"num_experts_per_tok":1,"experts_per_token":1,"vocab_size":6,"rms_norm_eps":1e-5,
  "max_position_embeddings":131072,"tie_word_embeddings":true,"attention_bias":true,"swiglu_limit":7.0,
  "layer_types":["sliding_attention"],"sliding_window":128,"initial_context_length":4096,"rope_theta":150000,
  "rope_scaling":{"beta_fast":32.0,"beta_slow":1.0,"factor":32.0,"original_max_position_embeddings":4096,
  "rope_type":"yarn","truncate":false},"quantization_config":{"quant_method":"mxfp4",
  "modules_to_not_convert":["lm_head"]}})";
constexpr uint64_t kOssExperts = 2, kOssWidth = 64, kOssFfn = 32;

std::vector<HfBytes> gpt_oss_tensors() {
  const std::string layer = "model.layers.0.", experts = layer + "mlp.experts.";
  std::vector<HfBytes> tensors = around("model.", kOssWidth);
  for (const HfBytes& tensor : attention(layer, false, kOssWidth)) tensors.push_back(tensor);
  tensors.push_back(bf16(layer + "self_attn.sinks", {2}, 60));
  tensors.push_back(bf16(layer + "mlp.router.weight", {kOssExperts, kOssWidth}, 61));
  tensors.push_back(bf16(layer + "mlp.router.bias", {kOssExperts}, 62));
  tensors.push_back(bf16(experts + "gate_up_proj_bias", {kOssExperts, 2 * kOssFfn}, 63));
  tensors.push_back(bf16(experts + "down_proj_bias", {kOssExperts, kOssWidth}, 64));
  return tensors;
}

// Row `row` of a tensor of blocks as numbers, by the formula of the format: the low nibble is the even element.
std::vector<float> mxfp4_numbers(const HfBytes& blocks, const HfBytes& scales, uint64_t row, uint64_t columns) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  std::vector<float> out;
  for (uint64_t c = 0; c < columns; ++c) {
    const auto byte = static_cast<uint8_t>(blocks.data[(row * columns + c) / 2]);
    const auto power = static_cast<uint8_t>(scales.data[(row * columns + c) / 32]);
    out.push_back(std::ldexp(kValues[c % 2 == 0 ? byte & 15 : byte >> 4], power - 127));
  }
  return out;
}
void check_mxfp4(const WeightSource& source, const char* name, const HfBytes& blocks, const HfBytes& scales,
                 uint64_t rows, uint64_t first, uint64_t step, uint64_t columns) {
  const std::string all = bytes_of(source, name);
  const uint64_t size = row_bytes(Encoding::kMXFP4, columns);
  REQUIRE(all.size() == kOssExperts * rows * size);
  for (uint64_t row = 0; row < kOssExperts * rows; ++row) {
    std::vector<float> found(columns);
    decode_row(Encoding::kMXFP4, reinterpret_cast<const std::byte*>(all.data()) + row * size, found);
    const uint64_t there = row / rows * rows * step + row % rows * step + first;
    CHECK(found == mxfp4_numbers(blocks, scales, there, columns));
  }
}

TEST_CASE("gpt-oss in mxfp4: gates and ups come apart, nibbles change places") {
  HfTestFolder folder;
  const std::string experts = "model.layers.0.mlp.experts.";
  std::vector<HfBytes> tensors = gpt_oss_tensors();
  const HfBytes gate_up = bytes(experts + "gate_up_proj_blocks", "U8", {kOssExperts, 2 * kOssFfn, 2, 16}, 3);
  const HfBytes gate_up_scales = bytes(experts + "gate_up_proj_scales", "U8", {kOssExperts, 2 * kOssFfn, 2}, 4);
  const HfBytes down = bytes(experts + "down_proj_blocks", "U8", {kOssExperts, kOssWidth, 1, 16}, 5);
  const HfBytes down_scales = bytes(experts + "down_proj_scales", "U8", {kOssExperts, kOssWidth, 1}, 6);
  for (const HfBytes& tensor : {gate_up, gate_up_scales, down, down_scales}) tensors.push_back(tensor);
  const auto source = folder.open(kGptOss, tensors);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  check_mxfp4(*source, "blk.0.ffn_gate_exps.weight", gate_up, gate_up_scales, kOssFfn, 0, 2, kOssWidth);
  check_mxfp4(*source, "blk.0.ffn_up_exps.weight", gate_up, gate_up_scales, kOssFfn, 1, 2, kOssWidth);
  check_mxfp4(*source, "blk.0.ffn_down_exps.weight", down, down_scales, kOssWidth, 0, 1, kOssFfn);
  CHECK(source->find("blk.0.ffn_gate_exps.weight")->dims ==
        std::array<uint64_t, 4>{kOssWidth, kOssFfn, kOssExperts, 1});
  CHECK(source->find("blk.0.ffn_down_exps.weight")->dims ==
        std::array<uint64_t, 4>{kOssFfn, kOssWidth, kOssExperts, 1});
  std::string gate_bias, up_bias;
  for (uint64_t i = 0; i < kOssExperts * kOssFfn; ++i) {
    gate_bias += raw(bf16_value(bf16_bits(63, 2 * i)));
    up_bias += raw(bf16_value(bf16_bits(63, 2 * i + 1)));
  }
  CHECK(bytes_of(*source, "blk.0.ffn_gate_exps.bias") == gate_bias);
  CHECK(bytes_of(*source, "blk.0.ffn_up_exps.bias") == up_bias);
  CHECK(bytes_of(*source, "blk.0.ffn_down_exps.bias") == widened(64, kOssExperts * kOssWidth, 0));
  CHECK(bytes_of(*source, "blk.0.ffn_gate_inp.weight") == widened(61, kOssExperts * kOssWidth, 0));
  CHECK(bytes_of(*source, "blk.0.ffn_gate_inp.bias") == widened(62, kOssExperts, 0));
  CHECK(bytes_of(*source, "blk.0.attn_sinks.weight") == widened(60, 2, 0));
  CHECK(windows(*source, "gpt-oss") == "128:w");
  CHECK_FALSE(*source->metadata.boolean("llmrt.rope_yarn_truncate"));
  CHECK(number(*source, "gpt-oss.rope.scaling.factor") == 32);

  std::vector<HfBytes> broken = tensors;
  broken.back().shape = {kOssExperts, 1, kOssWidth};
  CHECK_THAT(folder.message(kGptOss, broken),
             ContainsSubstring("shape mismatch: model.layers.0.mlp.experts.down_proj"));
  broken.pop_back();
  CHECK_THAT(folder.message(kGptOss, broken), ContainsSubstring("missing tensor: blk.0.mlp.experts.down_proj_scales"));
  CHECK_THAT(folder.message(changed_text(kGptOss, "7.0", "6.0"), tensors),
             ContainsSubstring("swiglu_limit: expected 7"));
}

TEST_CASE("gpt-oss in bf16: matrices lie transposed, gates and ups side by side") {
  HfTestFolder folder;
  const std::string experts = "model.layers.0.mlp.experts.";
  std::vector<HfBytes> tensors = gpt_oss_tensors();
  HfBytes gate_up{experts + "gate_up_proj", "BF16", {kOssExperts, kOssWidth, 2 * kOssFfn}, {}};
  HfBytes down{experts + "down_proj", "BF16", {kOssExperts, kOssFfn, kOssWidth}, {}};
  for (uint16_t i = 0; i < kOssExperts * kOssWidth * 2 * kOssFfn; ++i) gate_up.data += raw<uint16_t>(i);
  for (uint16_t i = 0; i < kOssExperts * kOssWidth * kOssFfn; ++i) down.data += raw<uint16_t>(20000 + i);
  tensors.push_back(gate_up);
  tensors.push_back(down);
  const auto source = folder.open(kGptOss, tensors);
  CAPTURE(source ? "" : source.error().message);
  REQUIRE(source.ok());
  std::string gate, up, downs;
  for (uint64_t e = 0; e < kOssExperts; ++e) {
    for (uint64_t r = 0; r < kOssFfn; ++r)
      for (uint64_t c = 0; c < kOssWidth; ++c) {
        const uint64_t at = (e * kOssWidth + c) * 2 * kOssFfn + 2 * r;
        gate += raw(static_cast<uint16_t>(at));
        up += raw(static_cast<uint16_t>(at + 1));
      }
    for (uint64_t r = 0; r < kOssWidth; ++r)
      for (uint64_t c = 0; c < kOssFfn; ++c)
        downs += raw(static_cast<uint16_t>(20000 + (e * kOssFfn + c) * kOssWidth + r));
  }
  CHECK(bytes_of(*source, "blk.0.ffn_gate_exps.weight") == gate);
  CHECK(bytes_of(*source, "blk.0.ffn_up_exps.weight") == up);
  CHECK(bytes_of(*source, "blk.0.ffn_down_exps.weight") == downs);
}

// What tests/fuzz does longer and under sanitizers.
TEST_CASE("folders with changed bytes are read or refused, and what is read can be made") {
  std::vector<HfBytes> moe = around("model."), oss = gpt_oss_tensors();
  for (const HfBytes& tensor : attention("model.layers.0.", true)) moe.push_back(tensor);
  for (const HfBytes& tensor : expert_tensors("model.layers.0.mlp.experts.", {"gate_proj", "up_proj", "down_proj"}))
    moe.push_back(tensor);
  const std::string experts = "model.layers.0.mlp.experts.";
  oss.push_back(bytes(experts + "gate_up_proj_blocks", "U8", {kOssExperts, 2 * kOssFfn, 2, 16}, 3));
  oss.push_back(bytes(experts + "gate_up_proj_scales", "U8", {kOssExperts, 2 * kOssFfn, 2}, 4));
  oss.push_back(bf16(experts + "down_proj", {kOssExperts, kOssFfn, kOssWidth}, 5));
  const uint32_t seed = std::random_device()();
  CAPTURE(seed);
  std::minstd_rand random(seed);
  size_t num_read = 0;
  for (const auto& [config, tensors] : {std::pair(kQwenMoe, moe), std::pair(kGptOss, oss)}) {
    const std::string file = safetensors_of(tensors);
    const size_t header = file.find("}}") + 1;
    for (int i = 0; i < 1000; ++i) {
      std::string changed_config = config, changed_file = file;
      std::string& text = i % 2 == 0 ? changed_config : changed_file;
      const size_t end = i % 2 == 0 ? text.size() : header;
      for (size_t n = random() % 3 + 1; n > 0; --n) text[random() % end] = "0123456789,\"[]{}:x-"[random() % 19];
      const auto source = read_hf_texts({changed_config, {}, {}, {}, {}}, as_span(changed_file));
      if (!source) continue;
      ++num_read;
      for (const SourceTensor& tensor : source->tensors) (void)bytes_of(*source, tensor.name);
    }
  }
  CHECK(num_read > 0);
}

}  // namespace
}  // namespace llmrt::test
