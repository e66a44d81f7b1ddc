"""Mistakes that oracle_test.py must tell: each is a model that another engine's reader, or ours of tomorrow, would make of
the same weights. Of a GGUF file keys or tensors are changed, of a folder config.json; or the model is right, and the device
is one that is wrong about states (reference_device.cpp).
"""

import numpy as np

from containers import Mxfp4, neighbours
from families import FAMILIES, WINDOW


def key(name, value):
    """value None: the key is left out."""
    def change(model):
        full = f"{model.arch}.{name}"
        model.keys.pop(full, None)
        if value is not None:
            model.keys[full] = value
    return change


def key_of_ours(name, value):
    return lambda model: model.keys.update({name: value})


def tensors(ending, function):
    """function of each tensor whose name ends so."""
    def change(model):
        names = [name for name in model.tensors if name.endswith(ending)]
        assert names, ending
        for name in names:
            model.tensors[name] = function(model.tensors[name])
    return change


def swapped(first, second):
    def change(model):
        names = [name for name in model.tensors if name.endswith(first)]
        assert names, first
        for name in names:
            other = name.removesuffix(first) + second
            model.tensors[name], model.tensors[other] = model.tensors[other], model.tensors[name]
    return change


def all_of(*changes):
    def change(model):
        for one in changes:
            one(model)
    return change


def without(name):
    return lambda model: model.tensors.pop(name)


def unscaled_embedding(model):
    embedding = model.tensors["token_embd.weight"]
    model.tensors["output.weight"] = embedding
    model.tensors["token_embd.weight"] = embedding / np.float32(np.sqrt(embedding.shape[1]))


def experts_rolled(model):
    for part in ("gate", "up", "down"):
        tensors(f"ffn_{part}_exps.weight", lambda value: np.roll(value, 1, axis=0))(model)


def rows_moved(value):
    """Thirds of the rows: the first to the end."""
    return np.roll(value, -(len(value) // 3), axis=0)


def current_alone(value):
    """A convolution without its earlier tokens."""
    return np.where(np.arange(value.shape[1]) == value.shape[1] - 1, value, 0)


def nibbles_swapped(value):
    pairs = value.codes.reshape(*value.exponents.shape, 16, 2)
    return Mxfp4(pairs[..., ::-1].reshape(value.codes.shape), value.exponents)


MISTAKES = [
    ("llama", "gguf", "rows of q and k in halves", all_of(
        tensors("attn_q.weight", lambda rows: neighbours(rows, 4)), tensors("attn_k.weight", lambda rows: neighbours(rows, 2)))),
    ("llama", "gguf", "llama3 divisors left out", without("rope_freqs.weight")),
    ("llama", "folder", "llama3 scaling left out", {"rope_scaling": None}),
    ("qwen2", "gguf", "bias of k left out", tensors("attn_k.bias", np.zeros_like)),
    ("qwen3", "gguf", "norms of q and k exchanged", swapped("attn_q_norm.weight", "attn_k_norm.weight")),
    ("gemma3", "gguf", "window one longer", key("attention.sliding_window", WINDOW + 1)),
    ("gemma3", "gguf", "window one shorter", key("attention.sliding_window", WINDOW - 1)),
    ("gemma3", "gguf", "other layers have the window", key("attention.sliding_window_pattern", [False, True, False, True])),
    ("gemma3", "gguf", "windows with the global base", key("rope.freq_base_swa", 1e6)),
    ("gemma3", "gguf", "full layers with the window's base", key("rope.freq_base", 1e4)),
    ("gemma3", "gguf", "scaling left out", all_of(key("rope.scaling.type", None), key("rope.scaling.factor", None))),
    ("gemma3", "gguf", "embedding scale left out", unscaled_embedding),
    ("gemma3", "gguf", "norm behind attention as that before the feed-forward part",
     swapped("post_attention_norm.weight", "ffn_norm.weight")),
    ("gemma3", "gguf", "norm weights without their 1", tensors("attn_norm.weight", lambda value: value - 1)),
    ("gemma3", "folder", "window one longer", {"sliding_window": WINDOW + 1}),
    ("gemma3", "folder", "windows with the global base", {"rope_local_base_freq": 1e6}),
    ("gemma3", "folder", "another score scale", {"query_pre_attn_scalar": 168}),
    ("qwen3moe", "gguf", "experts in another order", experts_rolled),
    ("qwen3moe", "gguf", "gate and up exchanged", swapped("ffn_gate_exps.weight", "ffn_up_exps.weight")),
    ("qwen3moe", "gguf", "one expert less", key("expert_used_count", 3)),
    ("qwen3moe", "gguf", "renormalisation left out", key("expert_weights_norm", False)),
    ("qwen3moe", "gguf", "scores by sigmoid", key("expert_gating_func", 2)),
    ("qwen3moe", "folder", "renormalisation left out", {"norm_topk_prob": False}),
    ("mixtral", "gguf", "experts in another order", experts_rolled),
    ("mixtral", "gguf", "one expert less", key("expert_used_count", 2)),
    ("deepseek2", "gguf", "factor on scores left out", key("rope.scaling.yarn_log_multiplier", 1e-6)),
    ("deepseek2", "gguf", "factor on scores beside that on cosines", key("rope.scaling.yarn_attn_factor", 1.37)),
    ("deepseek2", "gguf", "pairs in halves", key_of_ours("llmrt.rope_pairing", "halves")),
    ("deepseek2", "gguf", "key matrices of other heads", tensors("attn_k_b.weight", lambda value: np.roll(value, 1, axis=0))),
    ("deepseek2", "gguf", "value matrices of other heads", tensors("attn_v_b.weight", lambda value: np.roll(value, 1, axis=0))),
    ("deepseek2", "gguf", "shared experts left out", tensors("ffn_down_shexp.weight", np.zeros_like)),
    ("deepseek2", "folder", "factor on scores left out", {"rope_scaling": {
        **FAMILIES["deepseek2"]["config"]["rope_scaling"], "mscale_all_dim": 1e-6, "mscale": 1e-6}}),
    ("glm4-moe-lite", "gguf", "correction of the choice left out", tensors("exp_probs_b.bias", np.zeros_like)),
    ("glm4-moe-lite", "gguf", "scores by softmax", key("expert_gating_func", 1)),
    ("glm4-moe-lite", "gguf", "renormalisation left out", key("expert_weights_norm", False)),
    ("glm4-moe-lite", "gguf", "norm of queries' latents left out", tensors("attn_q_a_norm.weight", np.ones_like)),
    ("glm4-moe-lite", "folder", "another factor on experts", {"routed_scaling_factor": 1.0}),
    ("lfm2", "gguf", "earlier tokens left out", tensors("shortconv.conv.weight", current_alone)),
    ("lfm2", "gguf", "convolution turned round", tensors("shortconv.conv.weight", lambda value: value[:, ::-1])),
    ("lfm2", "gguf", "gate of the convolution's output as its input", tensors("shortconv.in_proj.weight", rows_moved)),
    ("lfm2", "gguf", "norms of q and k exchanged", swapped("attn_q_norm.weight", "attn_k_norm.weight")),
    ("lfm2", "folder", "another feed-forward norm", {"norm_eps": 0.3}),
    ("lfm2", "reference:shared-states", "states of another row", None),
    ("lfm2", "reference:lost-states", "states lost between steps", None),
    ("qwen35", "gguf", "V heads in the order of folders", key_of_ours("llmrt.value_head_order", "divided")),
    ("qwen35", "gguf", "norm of the rule with 1 added", tensors("ssm_norm.weight", lambda value: value + 1)),
    ("qwen35", "gguf", "earlier tokens left out of the convolution", tensors("ssm_conv1d.weight", current_alone)),
    ("qwen35", "gguf", "no decay", tensors("ssm_a", np.zeros_like)),
    ("qwen35", "gguf", "bias of the decay left out", tensors("ssm_dt.bias", np.zeros_like)),
    ("qwen35", "gguf", "betas and alphas exchanged", swapped("ssm_beta.weight", "ssm_alpha.weight")),
    ("qwen35", "gguf", "all of a head turned", key("rope.dimension_count", 64)),
    ("qwen35", "reference:shared-states", "states of another row", None),
    ("qwen35", "reference:lost-states", "states lost between steps", None),
    ("qwen35moe", "gguf", "V heads in the order of folders", key_of_ours("llmrt.value_head_order", "divided")),
    ("qwen35moe", "gguf", "shared expert left out", tensors("ffn_down_shexp.weight", np.zeros_like)),
    ("qwen3next", "gguf", "gate of the shared expert left out", tensors("ffn_gate_inp_shexp.weight", np.zeros_like)),
    ("qwen3next", "gguf", "shared expert left out", tensors("ffn_down_shexp.weight", np.zeros_like)),
    ("qwen3next", "gguf", "experts in another order", experts_rolled),
    ("granitehybrid", "gguf", "q and k turned", key("rope.scaling.finetuned", True)),
    ("granitehybrid", "gguf", "what passes the scan left out", tensors("ssm_d", np.zeros_like)),
    ("granitehybrid", "gguf", "bias of the convolution left out", tensors("ssm_conv1d.bias", np.zeros_like)),
    ("granitehybrid", "gguf", "decay as its logarithm", tensors("ssm_a", lambda value: -np.abs(np.log(-value)))),
    ("granitehybrid", "gguf", "gate of the scan as what it scans", tensors("ssm_in.weight", lambda rows: np.concatenate(
        [rows[512:1024], rows[:512], rows[1024:]]))),
    ("granitehybrid", "gguf", "parts added whole", key("residual_scale", 1.0)),
    ("granitehybrid", "gguf", "logits not divided", key("logit_scale", None)),
    ("granitehybrid", "reference:shared-states", "states of another row", None),
    ("granitehybrid", "reference:lost-states", "states lost between steps", None),
    ("granitehybrid-experts", "gguf", "shared expert left out", tensors("ffn_down_shexp.weight", np.zeros_like)),
    ("granitehybrid-experts", "gguf", "experts in another order", experts_rolled),
    ("lfm2moe", "gguf", "corrections of the router left out", tensors("exp_probs_b.bias", np.zeros_like)),
    ("lfm2moe", "gguf", "softmax for sigmoid", key("expert_gating_func", 1)),
    ("lfm2moe", "gguf", "factor on weights left out", key("expert_weights_scale", None)),
    ("nemotron_h", "gguf", "norms of groups exchanged", tensors("ssm_norm.weight", lambda value: value[::-1])),
    ("nemotron_h", "reference:shared-states", "states of another row", None),
    ("nemotron_h", "reference:lost-states", "states lost between steps", None),
    ("nemotron_h_moe", "gguf", "shared expert left out", tensors("ffn_down_shexp.weight", np.zeros_like)),
    ("nemotron_h_moe", "gguf", "corrections of the router left out", tensors("exp_probs_b.bias", np.zeros_like)),
    ("nemotron_h_moe", "gguf", "factor on weights left out", key("expert_weights_scale", None)),
    ("nemotron_h_moe-latent", "gguf", "groups of experts left out", key("expert_group_count", 1)),
    ("nemotron_h_moe-latent", "gguf", "experts in another order", all_of(
        tensors("ffn_up_exps.weight", lambda value: np.roll(value, 1, axis=0)),
        tensors("ffn_down_exps.weight", lambda value: np.roll(value, 1, axis=0)))),
    ("gpt-oss-rounded", "gguf", "window one longer", key("attention.sliding_window", WINDOW + 1)),
    ("gpt-oss-rounded", "gguf", "window one shorter", key("attention.sliding_window", WINDOW - 1)),
    ("gpt-oss-rounded", "gguf", "sinks zeroed", tensors("attn_sinks.weight", np.zeros_like)),
    ("gpt-oss-rounded", "gguf", "sinks left out", tensors("attn_sinks.weight", lambda value: np.full_like(value, -1e4))),
    ("gpt-oss-rounded", "gguf", "bias of the router left out", tensors("ffn_gate_inp.bias", np.zeros_like)),
    ("gpt-oss-rounded", "gguf", "biases of down left out", tensors("ffn_down_exps.bias", np.zeros_like)),
    ("gpt-oss-rounded", "gguf", "experts in another order", experts_rolled),
    ("gpt-oss-rounded", "gguf", "gate and up exchanged", all_of(
        swapped("ffn_gate_exps.weight", "ffn_up_exps.weight"), swapped("ffn_gate_exps.bias", "ffn_up_exps.bias"))),
    ("gpt-oss-rounded", "gguf-mxfp4", "neighbours in a byte", tensors("exps.weight", nibbles_swapped)),
    ("gpt-oss", "folder", "window one longer", {"sliding_window": WINDOW + 1}),
    ("gpt-oss", "folder", "ramp of YaRN rounded", {"rope_scaling": FAMILIES["gpt-oss-rounded"]["config"]["rope_scaling"]}),
]
# A reader may refuse these instead of computing something else.
MAY_BE_REFUSED = {"renormalisation left out", "other layers have the window", "another score scale"}
