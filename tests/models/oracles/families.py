"""The families that oracles are made of: each a row of data. A new family is a row of FAMILIES, its names in containers.py
where they are new, and a line in oracle_test.py's EXPECTED.

config is config.json as a checkpoint of the family has it, small: heads as large as the real ones, an odd vocabulary, a
window shorter than the prompts, more than twice the experts that a token uses. rules give the numbers of a tensor by the
first expression that its name matches: mean and deviation, where a text "gain" is divided by the square root of the inputs.
seed is there where the usual one has tokens for which two experts are almost equally good: which of them they get depends on
rounding (README.md; make_oracles.py prints how far float16 moves a family).
"""

VOCABULARY = 307  # 256 bytes, others, the end token last
END = VOCABULARY - 1
WINDOW = 16

COMMON = {"vocab_size": VOCABULARY, "hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
          "num_hidden_layers": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "hidden_act": "silu",
          "eos_token_id": END, "torch_dtype": "bfloat16", "use_cache": True, "transformers_version": "4.57.6"}

# Gains make attention peaked and the layers' share of the logits large: a wrong rotation, norm or bias must be seen.
RULES = [
    (r"[qk]_(layer)?norm\.weight$", 1.4, 0.2),
    (r"norm\.weight$", 1.0, 0.2),
    (r"sinks$", 1.5, 1.0),
    (r"bias$", 0.0, 0.5),
    (r"embed_tokens\.weight$", 0.0, "gain 4"),
    (r"(q|k)_proj\.weight$", 0.0, "gain 1.5"),
    (r"(gate|router)\.weight$", 0.0, "gain 1.5"),  # of experts
    (r"lm_head\.weight$", 0.0, "gain 1.5"),
    (r"experts\.(gate_up|down)_proj$", 0.0, "gain 1"),
    (r"weight$", 0.0, "gain 1"),
]
TIED = [(r"embed_tokens\.weight$", 0.0, "gain 1.5")]  # or each token would predict itself
# Stored as w where the norm multiplies by 1 + w. Those behind a part are small, so that parts add little each.
GEMMA = [
    (r"[qk]_norm\.weight$", 0.4, 0.2),
    (r"post_(attention|feedforward)_layernorm\.weight$", -0.5, 0.2),
    (r"model\.norm\.weight$", 1.5, 0.2),
    (r"norm\.weight$", 0.0, 0.2),
    (r"embed_tokens\.weight$", 0.0, "gain 0.5"),
]

# Norms as gemma's, but for that of the delta rule. Rates of decay such that a state remembers tens of tokens.
DELTA = [
    (r"linear_attn\.norm\.weight$", 1.0, 0.2),
    (r"[qk]_norm\.weight$", 0.4, 0.2),
    (r"norm\.weight$", 0.0, 0.2),
    (r"A_log$", -1.0, 1.0),
    (r"dt_bias$", -2.0, 1.0),
    (r"(conv1d|in_proj_\w+)\.weight$", 0.0, "gain 1.5"),
]

SCAN = [
    (r"A_log$", 0.0, 1.0),
    (r"dt_bias$", -2.0, 1.0),
    (r"\.D$", 0.5, 0.5),
    (r"(q|k)_proj\.weight$", 0.0, "gain 2"),
    (r"(conv1d|in_proj)\.weight$", 0.0, "gain 1.5"),
]

LATENT = [
    (r"e_score_correction_bias$", 0.0, 0.2),
    (r"kv_a_layernorm\.weight$", 1.4, 0.2),
    (r"q_a_layernorm\.weight$", 1.4, 0.2),
]


def layer_types(count):
    return ["full_attention" if layer % 2 else "sliding_attention" for layer in range(count)]


def gpt_oss(**scaling):
    """truncate false: the ramp of YaRN as in the released config.json; without it its ends are rounded as llama.cpp does,
    for which GGUF has no key."""
    return {
        "class": "GptOssForCausalLM", "arch": "gpt-oss", "rules": RULES, "seed": 6,
        "config": {
            **COMMON, "model_type": "gpt_oss", "head_dim": 64, "num_hidden_layers": 4, "intermediate_size": 64,
            "num_local_experts": 10, "num_experts_per_tok": 4, "experts_per_token": 4, "sliding_window": WINDOW,
            "layer_types": layer_types(4), "attention_bias": True, "rope_theta": 150000, "swiglu_limit": 7.0,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                             "original_max_position_embeddings": 4096, **scaling},
            "max_position_embeddings": 131072, "tie_word_embeddings": False, "initial_context_length": 4096,
            "output_router_logits": False, "router_aux_loss_coef": 0.9}}


MROPE = {"rope_type": "default", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25, "mrope_section": [3, 3, 2],
         "mrope_interleaved": True}


def gated_delta(**config):
    """More V heads than K heads, of the real size."""
    return {**COMMON, "head_dim": 64, "num_hidden_layers": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
            "layer_types": ["linear_attention", "full_attention"] * 2, "intermediate_size": 160, "attention_bias": False,
            "tie_word_embeddings": False, **config}


def granite(**config):
    return {**COMMON, "model_type": "granitemoehybrid", "hidden_size": 256, "num_hidden_layers": 4,
            "layer_types": ["mamba", "attention"] * 2, "position_embedding_type": "nope", "embedding_multiplier": 3.0,
            "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.09, "mamba_n_heads": 8,
            "mamba_n_groups": 1, "mamba_d_state": 64, "mamba_d_head": 64, "mamba_d_conv": 4, "mamba_expand": 2,
            "mamba_chunk_size": 32, "mamba_conv_bias": True, "mamba_proj_bias": False, "rope_theta": 10000.0,
            "attention_bias": False, "tie_word_embeddings": True, **config}


NEMOTRON = [
    (r"e_score_correction_bias$", 0.0, 0.2),
    (r"norm_f\.weight$", 1.0, 0.2),
    (r"embeddings\.weight$", 0.0, "gain 4"),
    (r"experts\.(up|down)_proj$", 0.0, "gain 1"),
]


def nemotron(pattern, **config):
    """A layer is one part alone. Groups of the scan that are normed each alone."""
    return {**{key: value for key, value in COMMON.items() if key not in ("hidden_act", "rms_norm_eps", "torch_dtype")},
            "model_type": "nemotron_h", "hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern),
            "head_dim": 64, "intermediate_size": 160, "mlp_hidden_act": "relu2", "mamba_num_heads": 8, "mamba_head_dim": 32,
            "n_groups": 2, "ssm_state_size": 64, "conv_kernel": 4, "expand": 2, "chunk_size": 32, "use_conv_bias": True,
            "mamba_hidden_act": "silu", "mamba_proj_bias": False, "use_bias": False, "mlp_bias": False,
            "attention_bias": False, "layer_norm_epsilon": 1e-5, "residual_in_fp32": False, "rescale_prenorm_residual": False,
            "time_step_min": 0.001, "time_step_max": 0.1, "time_step_floor": 1e-4,
            "time_step_limit": [0.0, float("inf")], "tie_word_embeddings": False, **config}


NEMOTRON_EXPERTS = {"n_routed_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 64, "n_shared_experts": 1,
                    "moe_shared_expert_intermediate_size": 128, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
                    "n_group": 1, "topk_group": 1}

FAMILIES = {
    "llama": {
        "class": "LlamaForCausalLM", "arch": "llama", "rules": RULES,
        "config": {**COMMON, "model_type": "llama", "head_dim": 64, "intermediate_size": 160, "rope_theta": 500000.0,
                   "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                    "original_max_position_embeddings": 64},
                   "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False}},
    "qwen2": {  # heads are width / heads
        "class": "Qwen2ForCausalLM", "arch": "qwen2", "rules": RULES,
        "config": {**COMMON, "model_type": "qwen2", "hidden_size": 256, "intermediate_size": 160, "rope_theta": 1000000.0,
                   "use_sliding_window": False, "tie_word_embeddings": False}},
    "qwen3": {
        "class": "Qwen3ForCausalLM", "arch": "qwen3", "rules": TIED + RULES,
        "config": {**COMMON, "model_type": "qwen3", "head_dim": 128, "intermediate_size": 160, "rope_theta": 1000000.0,
                   "use_sliding_window": False, "attention_bias": False, "tie_word_embeddings": True}},
    "gemma3": {
        "class": "Gemma3ForCausalLM", "arch": "gemma3", "rules": GEMMA + RULES,
        "config": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, "model_type": "gemma3_text",
                   "head_dim": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 4,
                   "intermediate_size": 160, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
                   "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "sliding_window": WINDOW,
                   "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "layer_types": layer_types(4),
                   "sliding_window_pattern": 2, "attention_bias": False, "attn_logit_softcapping": None,
                   "final_logit_softcapping": None, "tie_word_embeddings": True}},
    "qwen3moe": {
        "class": "Qwen3MoeForCausalLM", "arch": "qwen3moe", "rules": RULES,
        "config": {**COMMON, "model_type": "qwen3_moe", "head_dim": 128, "intermediate_size": 160,
                   "moe_intermediate_size": 64, "num_experts": 12, "num_experts_per_tok": 4, "norm_topk_prob": True,
                   "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_theta": 1000000.0, "rope_scaling": None,
                   "use_sliding_window": False, "sliding_window": None, "attention_bias": False,
                   "output_router_logits": False, "router_aux_loss_coef": 0.001, "tie_word_embeddings": False}},
    "gpt-oss": gpt_oss(truncate=False),
    "gpt-oss-rounded": gpt_oss(truncate=True),
    "mixtral": {
        "class": "MixtralForCausalLM", "arch": "llama", "rules": RULES, "seed": 5,
        "config": {**COMMON, "model_type": "mixtral", "head_dim": 128, "intermediate_size": 64, "num_local_experts": 9,
                   "num_experts_per_tok": 3, "rope_theta": 1000000.0, "sliding_window": None,
                   "output_router_logits": False, "router_aux_loss_coef": 0.02, "tie_word_embeddings": False}},
    "lfm2": {  # heads are width / heads; the feed-forward width is 160: two thirds, rounded up
        "class": "Lfm2ForCausalLM", "arch": "lfm2", "rules": TIED + RULES,
        "config": {**{key: value for key, value in COMMON.items() if key not in ("hidden_act", "rms_norm_eps")},
                   "model_type": "lfm2", "hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 230,
                   "block_auto_adjust_ff_dim": True, "block_multiple_of": 32, "block_ffn_dim_multiplier": 1.0,
                   "norm_eps": 1e-5, "conv_L_cache": 3, "conv_bias": False, "rope_theta": 1000000.0,
                   "layer_types": ["conv", "full_attention", "conv", "full_attention"], "tie_word_embeddings": True}},
    "lfm2moe": {  # the first layer is dense
        "class": "Lfm2MoeForCausalLM", "arch": "lfm2moe", "rules": [(r"expert_bias$", 0.0, 0.2)] + TIED + RULES,
        "config": {**{key: value for key, value in COMMON.items() if key not in ("hidden_act", "rms_norm_eps")},
                   "model_type": "lfm2_moe", "hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 160,
                   "moe_intermediate_size": 64, "num_experts": 10, "num_experts_per_tok": 3, "num_dense_layers": 1,
                   "norm_topk_prob": True, "use_expert_bias": True, "routed_scaling_factor": 1.25, "norm_eps": 1e-5,
                   "conv_L_cache": 3, "conv_bias": False,
                   "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
                   "layer_types": ["conv", "full_attention", "conv", "full_attention"], "tie_word_embeddings": True}},
    "qwen35": {
        "class": "Qwen3_5ForCausalLM", "arch": "qwen35", "rules": DELTA + RULES,
        "config": gated_delta(model_type="qwen3_5_text", rope_parameters=MROPE)},
    "qwen35moe": {
        "class": "Qwen3_5MoeForCausalLM", "arch": "qwen35moe", "rules": DELTA + RULES, "seed": 1,
        "config": gated_delta(
            model_type="qwen3_5_moe_text", rope_parameters=MROPE, moe_intermediate_size=64,
            shared_expert_intermediate_size=64, num_experts=10, num_experts_per_tok=3, output_router_logits=False,
            router_aux_loss_coef=0.001)},
    "qwen3next": {
        "class": "Qwen3NextForCausalLM", "arch": "qwen3next", "rules": DELTA + RULES, "seed": 9,
        "config": gated_delta(
            model_type="qwen3_next", rope_theta=1000000.0, rope_scaling=None, partial_rotary_factor=0.25,
            moe_intermediate_size=64, shared_expert_intermediate_size=64, num_experts=10, num_experts_per_tok=3,
            norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], output_router_logits=False,
            router_aux_loss_coef=0.001)},
    "granitehybrid": {
        "class": "GraniteMoeHybridForCausalLM", "arch": "granitehybrid", "rules": SCAN + TIED + RULES,
        "config": granite(intermediate_size=160, shared_intermediate_size=160, num_local_experts=0, num_experts_per_tok=0)},
    "granitehybrid-experts": {  # the expert of all tokens is twice as wide as the others
        "class": "GraniteMoeHybridForCausalLM", "arch": "granitehybrid",
        "rules": [(r"router\.layer\.weight$", 0.0, "gain 1.5")] + SCAN + TIED + RULES,
        "config": granite(intermediate_size=64, shared_intermediate_size=128, num_local_experts=10, num_experts_per_tok=3)},
    "nemotron_h": {  # the last layer has no feed-forward part
        "class": "NemotronHForCausalLM", "arch": "nemotron_h", "rules": NEMOTRON + SCAN + RULES,
        "config": nemotron("M-*-M*")},
    "nemotron_h_moe": {
        "class": "NemotronHForCausalLM", "arch": "nemotron_h_moe", "rules": NEMOTRON + SCAN + RULES, "seed": 4,
        "config": nemotron("ME*ME", **NEMOTRON_EXPERTS)},
    "nemotron_h_moe-latent": {  # experts in groups, between two matrices
        "class": "NemotronHForCausalLM", "arch": "nemotron_h_moe", "rules": NEMOTRON + SCAN + RULES, "seed": 4,
        "config": nemotron("ME*ME", **NEMOTRON_EXPERTS | {"moe_latent_size": 64, "n_group": 3, "topk_group": 2})},
    # Shared experts that are two of an expert's width; YaRN's factor on scores. Two latents of different kinds: c is no
    # multiple of 32 here.
    "deepseek2": {
        "class": "DeepseekV2ForCausalLM", "arch": "deepseek2", "rules": LATENT + RULES, "seed": 1,
        "config": {**COMMON, "model_type": "deepseek_v2", "num_key_value_heads": 4, "num_hidden_layers": 3,
                   "intermediate_size": 160, "moe_intermediate_size": 64, "n_routed_experts": 10, "num_experts_per_tok": 3,
                   "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1, "routed_scaling_factor": 1.0,
                   "scoring_func": "softmax", "topk_method": "greedy", "n_group": 1, "topk_group": 1,
                   "norm_topk_prob": False, "q_lora_rank": None, "kv_lora_rank": 80, "qk_nope_head_dim": 48,
                   "qk_rope_head_dim": 32, "v_head_dim": 56, "aux_loss_alpha": 0.001, "seq_aux": True,
                   "rope_theta": 10000.0, "max_position_embeddings": 2560,
                   "rope_scaling": {"type": "yarn", "factor": 40.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
                                    "mscale_all_dim": 0.707, "original_max_position_embeddings": 64},
                   "attention_bias": False, "tie_word_embeddings": False}},
    "glm4-moe-lite": {
        "class": "Glm4MoeLiteForCausalLM", "arch": "deepseek2", "rules": LATENT + RULES, "seed": 13,
        "config": {**COMMON, "model_type": "glm4_moe_lite", "num_attention_heads": 5, "num_key_value_heads": 5,
                   "num_hidden_layers": 3, "intermediate_size": 160, "moe_intermediate_size": 64, "n_routed_experts": 10,
                   "num_experts_per_tok": 3, "n_shared_experts": 1, "first_k_dense_replace": 1,
                   "routed_scaling_factor": 1.8, "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1,
                   "norm_topk_prob": True, "q_lora_rank": 64, "kv_lora_rank": 128, "qk_nope_head_dim": 48,
                   "qk_rope_head_dim": 64, "v_head_dim": 96, "num_nextn_predict_layers": 0, "rope_theta": 1000000.0,
                   "rope_scaling": None, "partial_rotary_factor": 1.0, "attention_bias": False,
                   "tie_word_embeddings": False}},
}
for family in FAMILIES.values():
    family["config"]["architectures"] = [family["class"]]
