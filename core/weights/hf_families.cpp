#include "core/weights/hf_families.h"

namespace llmrt {
namespace {

constexpr HfName kUsualLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
};
constexpr HfName kGemma3Layer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
};
constexpr HfName kQwen3MoeLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"}, {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
};
constexpr HfName kMixtralLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"block_sparse_moe.gate.weight", "ffn_gate_inp.weight"},
};
// post_attention_norm is the name that GGUF has for the norm in front of the experts here.
constexpr HfName kGptOssLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"self_attn.sinks", "attn_sinks.weight"},
};

constexpr HfName kUsualProjections[] = {
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"mlp.gate_proj", "ffn_gate"},  {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};
constexpr HfName kAttentionProjections[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
};
constexpr HfName kGptOssProjections[] = {
    {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"mlp.router", "ffn_gate_inp"},
};

constexpr HfName kLfm2Layer[] = {
    {"operator_norm.weight", "attn_norm.weight"},           {"ffn_norm.weight", "ffn_norm.weight"},
    {"self_attn.q_layernorm.weight", "attn_q_norm.weight"}, {"self_attn.k_layernorm.weight", "attn_k_norm.weight"},
    {"conv.conv.weight", "shortconv.conv.weight"},
};
constexpr HfName kLfm2MoeLayer[] = {
    {"operator_norm.weight", "attn_norm.weight"},           {"ffn_norm.weight", "ffn_norm.weight"},
    {"self_attn.q_layernorm.weight", "attn_q_norm.weight"}, {"self_attn.k_layernorm.weight", "attn_k_norm.weight"},
    {"conv.conv.weight", "shortconv.conv.weight"},          {"feed_forward.gate.weight", "ffn_gate_inp.weight"},
    {"feed_forward.expert_bias", "exp_probs_b.bias"},
};
constexpr HfName kLfm2Projections[] = {
    {"self_attn.q_proj", "attn_q"},        {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},        {"self_attn.out_proj", "attn_output"},
    {"conv.in_proj", "shortconv.in_proj"}, {"conv.out_proj", "shortconv.out_proj"},
    {"feed_forward.w1", "ffn_gate"},       {"feed_forward.w3", "ffn_up"},
    {"feed_forward.w2", "ffn_down"},
};

constexpr HfName kGraniteHybridLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mamba.A_log", "ssm_a"},
    {"mamba.D", "ssm_d"},
    {"mamba.dt_bias", "ssm_dt.bias"},
    {"mamba.norm.weight", "ssm_norm.weight"},
    {"block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"},
    {"block_sparse_moe.input_linear.weight", "ffn_gate_up_exps.weight"},  // gate rows of an expert, then its up rows
    {"block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"},
};
constexpr HfName kGraniteHybridProjections[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"mamba.in_proj", "ssm_in"},
    {"mamba.conv1d", "ssm_conv1d"},
    {"mamba.out_proj", "ssm_out"},
    {"shared_mlp.input_linear", "ffn_gate_up"},
    {"shared_mlp.output_linear", "ffn_down"},
};
constexpr HfName kNemotronLayer[] = {
    {"norm.weight", "attn_norm.weight"},
    {"mixer.A_log", "ssm_a"},
    {"mixer.D", "ssm_d"},
    {"mixer.dt_bias", "ssm_dt.bias"},
    {"mixer.norm.weight", "ssm_norm.weight"},
    {"mixer.gate.weight", "ffn_gate_inp.weight"},
    {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
};
constexpr HfName kNemotronProjections[] = {
    {"mixer.q_proj", "attn_q"},
    {"mixer.k_proj", "attn_k"},
    {"mixer.v_proj", "attn_v"},
    {"mixer.o_proj", "attn_output"},
    {"mixer.in_proj", "ssm_in"},
    {"mixer.conv1d", "ssm_conv1d"},
    {"mixer.out_proj", "ssm_out"},
    {"mixer.up_proj", "ffn_up"},
    {"mixer.down_proj", "ffn_down"},
    {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
    {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
    {"mixer.fc1_latent_proj", "ffn_latent_down"},
    {"mixer.fc2_latent_proj", "ffn_latent_up"},
};
constexpr HfName kNemotronExperts[] = {
    {"up_proj.weight", "ffn_up_exps.weight"},
    {"down_proj.weight", "ffn_down_exps.weight"},
};
// post_attention_norm is the name that GGUF has for the norm in front of the feed-forward part here too. Of experts
// that lie in one tensor, an expert's gate rows come before its up rows, as in GGUF.
constexpr HfName kDeltaLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
    {"linear_attn.A_log", "ssm_a"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
    {"linear_attn.norm.weight", "ssm_norm.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"mlp.experts.down_proj", "ffn_down_exps.weight"},
};
constexpr HfName kDeltaProjections[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"linear_attn.in_proj_qkvz", "ssm_in"},
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.out_proj", "ssm_out"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
};

constexpr HfName kLatentLayer[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
    {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
};
constexpr HfName kLatentProjections[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.o_proj", "attn_output"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
};

constexpr HfName kQwen3MoeExperts[] = {
    {"gate_proj.weight", "ffn_gate_exps.weight"},
    {"up_proj.weight", "ffn_up_exps.weight"},
    {"down_proj.weight", "ffn_down_exps.weight"},
};
constexpr HfName kMixtralExperts[] = {
    {"w1.weight", "ffn_gate_exps.weight"},
    {"w3.weight", "ffn_up_exps.weight"},
    {"w2.weight", "ffn_down_exps.weight"},
};

constexpr HfFamily kGemma3Text = {.model_type = "gemma3_text",
                                  .class_name = "Gemma3ForCausalLM",
                                  .architecture = "gemma3",
                                  .width = 2304,
                                  .layers = 26,
                                  .heads = 8,
                                  .kv_heads = 4,
                                  .head_dim = 256,
                                  .ffn = 9216,
                                  .vocab = 262208,
                                  .context = 131072,
                                  .eps = 1e-6,
                                  .rope_base = 1e6,
                                  .is_tied = true,
                                  .is_gemma = true,
                                  .windows = HfWindows::kByPattern,
                                  .window = 4096,
                                  .pattern = 6,
                                  .activation_key = "hidden_activation",
                                  .activation = "gelu_pytorch_tanh",
                                  .layer_names = kGemma3Layer,
                                  .projection_names = kUsualProjections};

constexpr HfFamily kQwen35Text = {.model_type = "qwen3_5_text",
                                  .class_name = "Qwen3_5ForCausalLM",
                                  .architecture = "qwen35",
                                  .width = 4096,
                                  .layers = 32,
                                  .heads = 16,
                                  .kv_heads = 4,
                                  .head_dim = 256,
                                  .ffn = 12288,
                                  .vocab = 248320,
                                  .context = 32768,
                                  .eps = 1e-6,
                                  .norms_add_one = true,
                                  .rotary_share = 0.25,
                                  .recurrent = HfRecurrent::kGatedDelta,
                                  .drafts = HfDrafts::kMtp,
                                  .layer_names = kDeltaLayer,
                                  .projection_names = kDeltaProjections};

constexpr HfFamily with_experts(HfFamily family, std::string_view model_type, std::string_view class_name,
                                std::string_view architecture, uint32_t num_experts, uint32_t num_used) {
  family.model_type = model_type;
  family.class_name = class_name;
  family.architecture = architecture;
  family.width = 2048;
  family.kv_heads = 2;
  family.ffn = 5632;
  family.experts = HfExperts::kOneTensorEach;
  family.count_key = "num_experts";
  family.num_experts = num_experts;
  family.num_used = num_used;
  family.expert_ffn = 512;
  family.expert_names = kQwen3MoeExperts;
  family.experts_prefix = "mlp.experts.";
  return family;
}

constexpr HfFamily kQwen35MoeText =
    with_experts(kQwen35Text, "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "qwen35moe", 256, 8);

// The same text model as a part of one that reads images.
constexpr HfFamily nested(HfFamily family, std::string_view model_type, std::string_view class_name) {
  family.model_type = model_type;
  family.class_name = class_name;
  family.is_nested = true;
  return family;
}

constexpr HfFamily kFamilies[] = {
    {.model_type = "llama",
     .class_name = "LlamaForCausalLM",
     .architecture = "llama",
     .may_have_biases = true,
     .layer_names = kUsualLayer,
     .projection_names = kUsualProjections},
    {.model_type = "mistral",
     .class_name = "MistralForCausalLM",
     .architecture = "llama",
     .kv_heads = 8,
     .context = 131072,
     .eps = 1e-6,
     .windows = HfWindows::kAll,
     .window = 4096,
     .layer_names = kUsualLayer,
     .projection_names = kUsualProjections},
    {.model_type = "mixtral",
     .class_name = "MixtralForCausalLM",
     .architecture = "llama",
     .kv_heads = 8,
     .context = 131072,
     .eps = 1e-5,
     .rope_base = 1e6,
     .windows = HfWindows::kAll,
     .experts = HfExperts::kOneTensorEach,
     .count_key = "num_local_experts",
     .num_experts = 8,
     .num_used = 2,
     .layer_names = kMixtralLayer,
     .projection_names = kAttentionProjections,
     .expert_names = kMixtralExperts,
     .experts_prefix = "block_sparse_moe.experts."},
    {.model_type = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .architecture = "qwen2",
     .windows = HfWindows::kFromLayer,
     .layer_names = kUsualLayer,
     .projection_names = kUsualProjections},
    {.model_type = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .architecture = "qwen3",
     .head_dim = 128,
     .windows = HfWindows::kFromLayer,
     .layer_names = kUsualLayer,
     .projection_names = kUsualProjections},
    {.model_type = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .architecture = "qwen3moe",
     .kv_heads = 4,
     .windows = HfWindows::kAllIfUsed,
     .experts = HfExperts::kOneTensorEach,
     .count_key = "num_experts",
     .num_experts = 128,
     .num_used = 8,
     .expert_ffn = 768,
     .layer_names = kQwen3MoeLayer,
     .projection_names = kAttentionProjections,
     .expert_names = kQwen3MoeExperts,
     .experts_prefix = "mlp.experts."},
    {.model_type = "gpt_oss",
     .class_name = "GptOssForCausalLM",
     .architecture = "gpt-oss",
     .kv_heads = 8,
     .head_dim = 64,
     .context = 131072,
     .eps = 1e-5,
     .rope_base = 150000,
     .may_have_biases = true,
     .windows = HfWindows::kByPattern,
     .window = 128,
     .pattern = 2,
     .experts = HfExperts::kFused,
     .count_key = "num_local_experts",
     .num_experts = 128,
     .num_used = 4,
     .layer_names = kGptOssLayer,
     .projection_names = kGptOssProjections},
    kGemma3Text,
    nested(kGemma3Text, "gemma3", "Gemma3ForConditionalGeneration"),
    {.model_type = "lfm2",
     .class_name = "Lfm2ForCausalLM",
     .architecture = "lfm2",
     .width = 2560,
     .layers = 32,
     .heads = 32,
     .kv_heads = 8,
     .ffn = 12288,
     .vocab = 65536,
     .context = 128000,
     .eps = 1e-5,
     .rope_base = 1e6,
     .is_tied = true,
     .recurrent = HfRecurrent::kShortConv,
     .layer_names = kLfm2Layer,
     .projection_names = kLfm2Projections},
    {.model_type = "lfm2_moe",
     .class_name = "Lfm2MoeForCausalLM",
     .architecture = "lfm2moe",
     .width = 2048,
     .layers = 32,
     .heads = 32,
     .kv_heads = 8,
     .ffn = 7168,
     .vocab = 65536,
     .context = 128000,
     .eps = 1e-5,
     .rope_base = 1e6,
     .is_tied = true,
     .experts = HfExperts::kOneTensorEach,
     .count_key = "num_experts",
     .num_experts = 32,
     .num_used = 4,
     .expert_ffn = 1792,
     .recurrent = HfRecurrent::kShortConv,
     .layer_names = kLfm2MoeLayer,
     .projection_names = kLfm2Projections,
     .expert_names = kMixtralExperts,
     .experts_prefix = "feed_forward.experts."},
    {.model_type = "granitemoehybrid",
     .class_name = "GraniteMoeHybridForCausalLM",
     .architecture = "granitehybrid",
     .width = 4096,
     .layers = 32,
     .heads = 32,
     .ffn = 1024,
     .vocab = 32000,
     .context = 2048,
     .eps = 1e-6,
     .experts = HfExperts::kOneTensorEach,
     .may_lack_experts = true,
     .count_key = "num_local_experts",
     .num_experts = 8,
     .num_used = 2,
     .recurrent = HfRecurrent::kScan,
     .layer_names = kGraniteHybridLayer,
     .projection_names = kGraniteHybridProjections},
    {.model_type = "nemotron_h",
     .class_name = "NemotronHForCausalLM",
     .architecture = "nemotron_h",
     .width = 4096,
     .heads = 32,
     .kv_heads = 8,
     .head_dim = 128,
     .ffn = 21504,
     .vocab = 131072,
     .context = 4096,
     .eps = 1e-5,
     .experts = HfExperts::kOneTensorEach,
     .may_lack_experts = true,
     .count_key = "n_routed_experts",
     .num_experts = 8,
     .num_used = 2,
     .expert_ffn = 7688,
     .recurrent = HfRecurrent::kLoneScan,
     .drafts = HfDrafts::kMtpParts,
     .activation_key = "mlp_hidden_act",
     .activation = "relu2",
     .layer_names = kNemotronLayer,
     .projection_names = kNemotronProjections,
     .expert_names = kNemotronExperts,
     .experts_prefix = "mixer.experts."},
    with_experts(kQwen35Text, "qwen3_next", "Qwen3NextForCausalLM", "qwen3next", 512, 10),
    kQwen35Text,
    nested(kQwen35Text, "qwen3_5", "Qwen3_5ForConditionalGeneration"),
    kQwen35MoeText,
    nested(kQwen35MoeText, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"),
    {.model_type = "deepseek_v2",
     .class_name = "DeepseekV2ForCausalLM",
     .architecture = "deepseek2",
     .width = 4096,
     .layers = 32,
     .heads = 32,
     .ffn = 11008,
     .vocab = 102400,
     .context = 2048,
     .eps = 1e-6,
     .experts = HfExperts::kOneTensorEach,
     .count_key = "n_routed_experts",
     .num_experts = 64,
     .expert_ffn = 1407,
     .is_latent = true,
     .nope_dim = 128,
     .value_dim = 128,
     .query_rank = 1536,
     .num_shared = 2,
     .layer_names = kLatentLayer,
     .projection_names = kLatentProjections,
     .expert_names = kQwen3MoeExperts,
     .experts_prefix = "mlp.experts."},
    {.model_type = "glm4_moe_lite",
     .class_name = "Glm4MoeLiteForCausalLM",
     .architecture = "deepseek2",
     .width = 2048,
     .layers = 47,
     .heads = 20,
     .ffn = 10240,
     .vocab = 154880,
     .context = 202752,
     .eps = 1e-5,
     .experts = HfExperts::kOneTensorEach,
     .count_key = "n_routed_experts",
     .num_experts = 64,
     .num_used = 4,
     .expert_ffn = 1536,
     .is_latent = true,
     .has_correction = true,
     .nope_dim = 192,
     .value_dim = 256,
     .query_rank = 768,
     .num_shared = 1,
     .num_dense = 1,
     .routed_scale = 1.8,
     .layer_names = kLatentLayer,
     .projection_names = kLatentProjections,
     .expert_names = kQwen3MoeExperts,
     .experts_prefix = "mlp.experts."},
};

}  // namespace

std::span<const HfFamily> hf_families() {
  return kFamilies;
}

const HfFamily* find_hf_family(std::string_view model_type) {
  for (const HfFamily& family : kFamilies)
    if (family.model_type == model_type) return &family;
  return nullptr;
}

}  // namespace llmrt
