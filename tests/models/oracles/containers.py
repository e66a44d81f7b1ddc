"""The two containers of an oracle's weights: a GGUF file and a Hugging Face folder. Needs numpy and gguf; names and order of
rows are as llama.cpp's converter writes them (README.md: compared with it tensor by tensor).

    gguf_of(...) -> Gguf, keys and tensors that a test may change before write_gguf
    write_folder(...): config.json, one safetensors file, tokenizer.json
"""

import json
import os
import re
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

import weights
from families import END, FAMILIES, VOCABULARY

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_folder  # noqa: E402

SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # bytes that byte-level BPE shows as themselves
TOKENS = [chr(byte) if byte in SHOWN else chr(0x100 + sum(other not in SHOWN for other in range(byte))) for byte in range(256)]
TOKENS += ["th"] + [f"<|x{i}|>" for i in range(257, END)] + ["<|end|>"]  # one merge, and specials
assert len(TOKENS) == VOCABULARY

MODEL_NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
               "lm_head.weight": "output.weight", "model.embedding_norm.weight": "token_embd_norm.weight",
               "model.embeddings.weight": "token_embd.weight", "model.norm_f.weight": "output_norm.weight"}
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp"}
FAMILY_NAMES = {  # where a family gives a name another meaning
    "gemma3": {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"},
    "gpt-oss": {"post_attention_layernorm": "post_attention_norm"},
    **{name: {"post_attention_layernorm": "post_attention_norm", "linear_attn.conv1d": "ssm_conv1d",
              "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "linear_attn.in_proj_qkv": "attn_qkv",
              "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
              "linear_attn.in_proj_ba": "ssm_ba", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
              "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
              "mlp.shared_expert.down_proj": "ffn_down_shexp"} for name in ("qwen35", "qwen35moe", "qwen3next")},
    **{name: {"mamba.in_proj": "ssm_in", "mamba.conv1d": "ssm_conv1d", "mamba.norm": "ssm_norm",
              "mamba.out_proj": "ssm_out", "shared_mlp.output_linear": down, "block_sparse_moe.router.layer": "ffn_gate_inp",
              "block_sparse_moe.output_linear": "ffn_down_exps"}
       for name, down in (("granitehybrid", "ffn_down"), ("granitehybrid-experts", "ffn_down_shexp"))},
    **{name: {"norm": "attn_norm", "mixer.in_proj": "ssm_in", "mixer.conv1d": "ssm_conv1d", "mixer.out_proj": "ssm_out",
              "mixer.q_proj": "attn_q", "mixer.k_proj": "attn_k", "mixer.v_proj": "attn_v", "mixer.o_proj": "attn_output",
              "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down", "mixer.gate": "ffn_gate_inp",
              "mixer.shared_experts.up_proj": "ffn_up_shexp", "mixer.shared_experts.down_proj": "ffn_down_shexp",
              "mixer.fc1_latent_proj": "ffn_latent_down", "mixer.fc2_latent_proj": "ffn_latent_up"}
       for name in ("nemotron_h", "nemotron_h_moe", "nemotron_h_moe-latent")},
    **{name: {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.q_layernorm": "attn_q_norm",
              "self_attn.k_layernorm": "attn_k_norm", "self_attn.out_proj": "attn_output",
              "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv", "conv.out_proj": "shortconv.out_proj",
              "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
              "feed_forward.gate": "ffn_gate_inp"} for name in ("lfm2", "lfm2moe")},
}
FAMILY_NAMES |= {name: {
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp"} for name in ("deepseek2", "glm4-moe-lite")}
EXPERT_NAMES = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
                "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}


class Mxfp4:
    """Codes [..., rows, columns] and exponents, as a tensor of GGUF."""

    def __init__(self, codes, exponents):
        self.codes, self.exponents = codes, exponents

    def blocks(self):
        """GGUF's 17 bytes: exponent, then 16 bytes whose low halves are the first 16 numbers."""
        halves = self.codes.reshape(*self.exponents.shape, 2, 16)
        bytes_of = np.concatenate([self.exponents[..., None], halves[..., 0, :] | halves[..., 1, :] << 4], axis=-1)
        return np.ascontiguousarray(bytes_of.reshape(*self.codes.shape[:-1], -1), np.uint8)


class Gguf:
    def __init__(self, arch, keys, tensors):
        self.arch, self.keys, self.tensors = arch, keys, tensors


def neighbours(rows, heads):
    """Halves of a head become pairs of neighbours: row i of a head goes to 2i, row i + half to 2i + 1."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return np.ascontiguousarray(np.swapaxes(halves, 1, 2)).reshape(rows.shape)


def gpt_oss_experts(part, value):
    """Its stacked experts, whose gate and up take turns; value is [E, in, out], a bias [E, out] or Mxfp4 [E, out, in]."""
    kind = "bias" if part.endswith("_bias") else "weight"
    if part.startswith("down_proj"):
        return {f"ffn_down_exps.{kind}": value if kind == "bias" or isinstance(value, Mxfp4) else value.swapaxes(1, 2)}

    def every_other(first):
        if isinstance(value, Mxfp4):
            return Mxfp4(value.codes[:, first::2], value.exponents[:, first::2])
        return value[:, first::2] if kind == "bias" else value[..., first::2].swapaxes(1, 2)

    return {f"ffn_gate_exps.{kind}": every_other(0), f"ffn_up_exps.{kind}": every_other(1)}


SCAN = ("granitehybrid", "nemotron_h", "nemotron_h_moe")
DELTA = ("qwen35", "qwen35moe", "qwen3next")


def tiled(value, config, axis=0, first=0):
    """V heads of K head 0, of K head 1, ... become the first of each K head, the second of each, ...: the part of an axis
    from `first` on."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    before, heads = np.split(np.moveaxis(value, axis, 0), [first])
    heads = heads.reshape(keys, values // keys, -1, *heads.shape[1:]).swapaxes(0, 1).reshape(heads.shape)
    return np.ascontiguousarray(np.moveaxis(np.concatenate([before, heads]), 0, axis))


def stacked_experts(layer, part, value):
    """Experts that transformers keeps in one tensor, gate rows of each in front of its up rows; {}: not of them."""
    if part.endswith(("experts.gate_up_proj", "block_sparse_moe.input_linear.weight")):
        gate, up = np.split(value, 2, axis=1)
        return {f"blk.{layer}.ffn_gate_exps.weight": gate, f"blk.{layer}.ffn_up_exps.weight": up}
    if part.endswith("experts.down_proj"):
        return {f"blk.{layer}.ffn_down_exps.weight": value}
    if part.endswith("experts.up_proj"):
        return {f"blk.{layer}.ffn_up_exps.weight": value}
    if part.endswith(("expert_bias", "e_score_correction_bias")):
        return {f"blk.{layer}.exp_probs_b.bias": value}
    return {}


def delta_tensor(arch, config, layer, part, value):
    """What a gated delta net has under other names or in another order; {}: nothing of it."""
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    is_tiled = arch.startswith("qwen35")
    if part.endswith("A_log"):
        value = -np.exp(value)
        return {f"blk.{layer}.ssm_a": tiled(value, config) if is_tiled else value}
    if part.endswith("dt_bias"):
        return {f"blk.{layer}.ssm_dt.bias": tiled(value, config) if is_tiled else value}
    if part.endswith("in_proj_qkvz.weight"):  # by K head
        heads, own = config["linear_num_key_heads"], config["linear_key_head_dim"]
        q, k, v, z = np.split(value.reshape(heads, -1, value.shape[1]), [own, 2 * own, (len(value) // heads + 2 * own) // 2],
                              axis=1)
        q, k, v, z = (rows.reshape(-1, value.shape[1]) for rows in (q, k, v, z))
        return {f"blk.{layer}.attn_qkv.weight": np.concatenate([q, k, v]), f"blk.{layer}.attn_gate.weight": z}
    if is_tiled and part.startswith("linear_attn.") and not part.endswith(".norm.weight"):
        base = part.removeprefix("linear_attn.").removesuffix(".weight")
        first = 2 * keys if base in ("in_proj_qkv", "conv1d") else 0
        value = tiled(value, config, axis=int(base == "out_proj"), first=first)
        value = value.reshape(value.shape[0], -1)
        return {f"blk.{layer}.{FAMILY_NAMES['qwen35']['linear_attn.' + base]}.weight": value}
    return {}


def scan_tensor(config, layer, part, value):
    """What granitehybrid and nemotron_h have under other names or in another shape; {}: nothing of it."""
    part = part.replace("mixer.", "mamba.")
    if part in ("mamba.A_log", "mamba.D"):  # one number a row
        return {f"blk.{layer}.ssm_a" if part.endswith("A_log") else f"blk.{layer}.ssm_d":
                (-np.exp(value) if part.endswith("A_log") else value).reshape(-1, 1)}
    if part == "mamba.dt_bias":
        return {f"blk.{layer}.ssm_dt.bias": value}
    if part == "mamba.conv1d.bias":
        return {f"blk.{layer}.ssm_conv1d.bias": value}
    if part == "mamba.norm.weight":
        return {f"blk.{layer}.ssm_norm.weight": value.reshape(config.get("n_groups", 1), -1)}
    if part == "shared_mlp.input_linear.weight":
        gate, up = np.split(value, 2)
        end = "_shexp" if config["num_local_experts"] else ""
        return {f"blk.{layer}.ffn_gate{end}.weight": gate, f"blk.{layer}.ffn_up{end}.weight": up}
    return {}


def latent_tensor(config, layer, part, value):
    """What latent attention has under other names or in another shape; {}: nothing of it."""
    prefix = f"blk.{layer}."
    if part == "self_attn.kv_b_proj.weight":  # per head rows of keys, then of values
        heads = value.reshape(config["num_attention_heads"], -1, value.shape[1])
        keys, values = np.split(heads, [config["qk_nope_head_dim"]], axis=1)
        return {prefix + "attn_k_b.weight": keys.swapaxes(1, 2), prefix + "attn_v_b.weight": values}
    if part == "mlp.gate.e_score_correction_bias":
        return {prefix + "exp_probs_b.bias": value}
    if part == "mlp.experts.gate_up_proj":
        gate, up = np.split(value, 2, axis=1)
        return {prefix + "ffn_gate_exps.weight": gate, prefix + "ffn_up_exps.weight": up}
    if part == "mlp.experts.down_proj":
        return {prefix + "ffn_down_exps.weight": value}
    return {}


def gguf_tensors(name, config, values):
    arch, out, experts = FAMILIES[name]["arch"], {}, {}
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    names = LAYER_NAMES | FAMILY_NAMES.get(name.removesuffix("-rounded"), {})
    for hf, value in values.items():
        if (arch == "gemma3" or arch in DELTA) and hf.endswith("norm.weight") and "linear_attn" not in hf:
            value = value + np.float32(1)
        if hf in MODEL_NAMES:
            out[MODEL_NAMES[hf]] = value
            continue
        layer, part = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", hf).groups()
        if expert := re.fullmatch(r".*\.experts\.(\d+)\.(\w+)\.weight", part):
            experts.setdefault(f"blk.{layer}.{EXPERT_NAMES[expert[2]]}.weight", {})[int(expert[1])] = value
        elif part.startswith("mlp.experts.") and arch == "gpt-oss":
            stacked = gpt_oss_experts(part.removeprefix("mlp.experts."), value)
            out |= {f"blk.{layer}.{part}": tensor for part, tensor in stacked.items()}
        elif arch != "gpt-oss" and (made := stacked_experts(layer, part, value)):
            out |= made
        elif arch in DELTA and (made := delta_tensor(arch, config, layer, part, value)):
            out |= made
        elif arch == "deepseek2" and (made := latent_tensor(config, layer, part, value)):
            out |= made
        elif arch in SCAN and (made := scan_tensor(config, layer, part, value)):
            out |= made
        elif part == "self_attn.sinks":
            out[f"blk.{layer}.attn_sinks.weight"] = value
        else:
            base, kind = part.rsplit(".", 1)
            short = names[base]
            if short.endswith("conv") or short.endswith("conv1d"):
                value = value.reshape(value.shape[0], -1)
            if short == "ffn_gate_inp_shexp":
                value = value.reshape(-1)
            if arch in ("llama", "granitehybrid") and short in heads:
                value = neighbours(value, heads[short])
            out[f"blk.{layer}.{short}.{kind}"] = value
    return out | {base: np.stack([parts[i] for i in range(len(parts))]) for base, parts in experts.items()}


def rope_keys(config):
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    base = config.get("rope_theta") or config.get("rope_parameters", {}).get("rope_theta")
    keys = {"rope.freq_base": float(base)} if base else {}
    if kind in ("linear", "yarn"):
        keys |= {"rope.scaling.type": kind, "rope.scaling.factor": scaling["factor"]}
    if kind == "yarn":
        keys |= {"rope.scaling.original_context_length": scaling["original_max_position_embeddings"],
                 "rope.scaling.yarn_beta_fast": float(scaling["beta_fast"]),
                 "rope.scaling.yarn_beta_slow": float(scaling["beta_slow"])}
    if scaling.get("mscale_all_dim"):
        keys["rope.scaling.yarn_log_multiplier"] = 0.1 * scaling["mscale_all_dim"]
    return keys


def llama3_divisors(config):
    scaling, dim = config["rope_scaling"], config["head_dim"]
    turns = scaling["original_max_position_embeddings"] / (2 * np.pi * config["rope_theta"] ** (np.arange(0, dim, 2) / dim))
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype(np.float32)


def lfm2_keys(config):
    keys = {"shortconv.l_cache": config["conv_L_cache"],
            "attention.head_count_kv": [config["num_key_value_heads"] if kind == "full_attention" else 0
                                        for kind in config["layer_types"]]}
    if "num_experts" in config:
        return keys | {"leading_dense_block_count": config["num_dense_layers"], "expert_gating_func": 2,
                       "expert_weights_scale": config["routed_scaling_factor"]}
    width, multiple = 2 * config["intermediate_size"] // 3, config["block_multiple_of"]
    return keys | {"feed_forward_length": -(-width // multiple) * multiple}


def delta_keys(config):
    rope = config.get("rope_parameters", config)
    keys = {"ssm.conv_kernel": config["linear_conv_kernel_dim"], "ssm.state_size": config["linear_key_head_dim"],
            "ssm.group_count": config["linear_num_key_heads"], "ssm.time_step_rank": config["linear_num_value_heads"],
            "ssm.inner_size": config["linear_num_value_heads"] * config["linear_value_head_dim"],
            "full_attention_interval": config["layer_types"].index("full_attention") + 1,
            "rope.dimension_count": int(config["head_dim"] * rope["partial_rotary_factor"])}
    if "mrope_section" in rope:
        keys["rope.dimension_sections"] = [*rope["mrope_section"], 0]
    if "num_experts" in config:
        keys["expert_shared_feed_forward_length"] = config["shared_expert_intermediate_size"]
    return keys


def granite_keys(config):
    return {"ssm.conv_kernel": config["mamba_d_conv"], "ssm.state_size": config["mamba_d_state"],
            "ssm.group_count": config["mamba_n_groups"], "ssm.time_step_rank": config["mamba_n_heads"],
            "ssm.inner_size": config["mamba_expand"] * config["hidden_size"], "embedding_scale": config["embedding_multiplier"],
            "residual_scale": config["residual_multiplier"], "logit_scale": config["logits_scaling"],
            "attention.scale": config["attention_multiplier"], "rope.scaling.finetuned": False,
            "feed_forward_length": config["intermediate_size"],
            "expert_shared_feed_forward_length": config["shared_intermediate_size"],
            "attention.head_count_kv": [config["num_key_value_heads"] if kind == "attention" else 0
                                        for kind in config["layer_types"]]}


def latent_keys(config):
    row = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    has_sigmoid = config["model_type"] == "glm4_moe_lite"
    keys = {"attention.head_count_kv": 1, "attention.kv_lora_rank": config["kv_lora_rank"], "attention.key_length": row,
            "attention.value_length": config["kv_lora_rank"],
            "attention.key_length_mla": config["qk_nope_head_dim"] + config["qk_rope_head_dim"],
            "attention.value_length_mla": config["v_head_dim"], "rope.dimension_count": config["qk_rope_head_dim"],
            "leading_dense_block_count": config["first_k_dense_replace"], "expert_count": config["n_routed_experts"],
            "expert_used_count": config["num_experts_per_tok"], "expert_shared_count": config["n_shared_experts"],
            "expert_feed_forward_length": config["moe_intermediate_size"],
            "expert_weights_scale": config["routed_scaling_factor"], "expert_weights_norm": has_sigmoid,
            "expert_gating_func": 2 if has_sigmoid else 1}
    if config["q_lora_rank"]:
        keys["attention.q_lora_rank"] = config["q_lora_rank"]
    return keys


def nemotron_keys(config):
    pattern, has_experts = config["hybrid_override_pattern"], "n_routed_experts" in config
    width = config["moe_intermediate_size" if has_experts else "intermediate_size"]
    keys = {"ssm.conv_kernel": config["conv_kernel"], "ssm.state_size": config["ssm_state_size"],
            "ssm.group_count": config["n_groups"], "ssm.time_step_rank": config["mamba_num_heads"],
            "ssm.inner_size": config["mamba_num_heads"] * config["mamba_head_dim"],
            "attention.layer_norm_rms_epsilon": config["layer_norm_epsilon"],
            "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
            "attention.head_count_kv": [config["num_key_value_heads"] if part == "*" else 0 for part in pattern],
            "feed_forward_length": [width if part in "-E" else 0 for part in pattern]}
    if has_experts:
        keys |= {"expert_count": config["n_routed_experts"], "expert_used_count": config["num_experts_per_tok"],
                 "expert_feed_forward_length": width,
                 "expert_shared_feed_forward_length": config["moe_shared_expert_intermediate_size"],
                 "expert_shared_count": config["n_shared_experts"], "expert_weights_norm": config["norm_topk_prob"],
                 "expert_weights_scale": config["routed_scaling_factor"], "expert_group_count": config["n_group"],
                 "expert_group_used_count": config["topk_group"]}
    if "moe_latent_size" in config:
        keys["moe_latent_size"] = config["moe_latent_size"]
    return keys


def gguf_keys(name, config):
    arch, head_dim = FAMILIES[name]["arch"], config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    keys = {"block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
            "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
            "attention.head_count": config["num_attention_heads"], "attention.head_count_kv": config["num_key_value_heads"],
            "attention.key_length": head_dim, "attention.value_length": head_dim, "vocab_size": VOCABULARY,
            "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps", config.get("norm_eps")), **rope_keys(config)}
    if arch.startswith("nemotron"):
        keys |= nemotron_keys(config)
    if arch == "llama":
        keys["rope.dimension_count"] = head_dim
    if arch in ("lfm2", "lfm2moe"):
        keys |= lfm2_keys(config)
    if arch in DELTA:
        keys |= delta_keys(config)
    if arch == "granitehybrid":
        keys |= granite_keys(config)
    if arch == "deepseek2":
        keys |= latent_keys(config)
    if config.get("sliding_window") and "layer_types" in config:
        keys["attention.sliding_window"] = config["sliding_window"]
    if arch == "gemma3":  # gpt-oss' is 2 by nature, and this one's 6
        keys["attention.sliding_window_pattern"] = config["sliding_window_pattern"]
    experts = config.get("num_experts", config.get("num_local_experts"))
    if experts:
        keys |= {"expert_count": experts, "expert_used_count": config["num_experts_per_tok"]}
    if arch in ("qwen3moe", "gpt-oss", "qwen3next", "qwen35moe", "lfm2moe"):
        keys["expert_feed_forward_length"] = config.get("moe_intermediate_size", config["intermediate_size"])
    return {f"{arch}.{key}": value for key, value in keys.items()}


def gguf_of(name, fixture, is_mxfp4=False):
    config, values = fixture["config"], weights.tensors(fixture)
    if is_mxfp4:
        values |= {key: Mxfp4(*parts) for key, parts in weights.mxfp4_tensors(fixture).items()}
    tensors = gguf_tensors(name, config, values)
    if (config.get("rope_scaling") or {}).get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = llama3_divisors(config)
    keys = gguf_keys(name, config)
    if drafts := gguf_draft_tensors(name, fixture):
        arch = FAMILIES[name]["arch"]
        keys |= {f"{arch}.block_count": config["num_hidden_layers"] + 1, f"{arch}.nextn_predict_layers": 1}
        tensors |= drafts
    return Gguf(FAMILIES[name]["arch"], keys, tensors)


def joined_heads(model, heads):
    """deepseek2 as converters wrote it before key_length_mla: rows that make a head's keys, then its values, in one tensor, and
    the sizes of these under the usual keys."""
    for name in [name for name in model.tensors if name.endswith("attn_k_b.weight")]:
        prefix = name.removesuffix("attn_k_b.weight")
        keys, values = model.tensors.pop(name), model.tensors.pop(prefix + "attn_v_b.weight")
        both = np.concatenate([keys.swapaxes(1, 2), values], axis=1)
        model.tensors[prefix + "attn_kv_b.weight"] = both.reshape(-1, both.shape[2])
    for size in ("key", "value"):
        model.keys[f"deepseek2.attention.{size}_length"] = model.keys.pop(f"deepseek2.attention.{size}_length_mla")
    model.keys["deepseek2.attention.head_count_kv"] = heads


def write_gguf(model, path):
    """Everything but MXFP4 in float32."""
    writer = GGUFWriter(path, model.arch)
    add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
           list: writer.add_array}
    for key, value in model.keys.items():
        add[type(value)](key, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * 257 + [3] * (VOCABULARY - 257))
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(False)
    for name, value in model.tensors.items():
        if isinstance(value, Mxfp4):
            writer.add_tensor(name, value.blocks(), raw_dtype=GGMLQuantizationType.MXFP4)
        else:
            writer.add_tensor(name, np.ascontiguousarray(value, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tokenizer_json():
    added = [{"id": i, "content": TOKENS[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i in range(257, VOCABULARY)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {token: i for i, token in enumerate(TOKENS[:257])}, "merges": [["t", "h"]]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model}


LATENT_TYPES = ("deepseek_v2", "glm4_moe_lite")


def with_single_experts(tensors):
    """Stacks of experts as checkpoints have them: a tensor of each."""
    out = {}
    for name, value in tensors.items():
        base, _, part = name.rpartition(".")
        if not base.endswith("mlp.experts"):
            out[name] = value
            continue
        for expert, rows in enumerate(value):
            if part == "down_proj":
                out[f"{base}.{expert}.down_proj.weight"] = rows
            else:
                out[f"{base}.{expert}.gate_proj.weight"], out[f"{base}.{expert}.up_proj.weight"] = np.split(rows, 2)
    return out


def released_tensors(config, tensors):
    """Under the names that released checkpoints have, where transformers loads them under others."""
    if config["model_type"] not in ("lfm2_moe", "nemotron_h"):
        return tensors
    out, is_nemotron = {}, config["model_type"] == "nemotron_h"
    down = "down_proj" if is_nemotron else "w2"
    for name, value in tensors.items():
        name = name.replace("model.", "backbone.") if is_nemotron else name
        base = name.rsplit(".", 1)[0]
        if name.endswith("experts.gate_up_proj"):
            for expert, (gate, up) in enumerate(np.split(rows, 2) for rows in value):
                out |= {f"{base}.{expert}.w1.weight": gate, f"{base}.{expert}.w3.weight": up}
        elif name.endswith("experts.up_proj"):
            out |= {f"{base}.{expert}.up_proj.weight": rows for expert, rows in enumerate(value)}
        elif name.endswith("experts.down_proj"):
            out |= {f"{base}.{expert}.{down}.weight": rows for expert, rows in enumerate(value)}
        else:
            out[name] = value
    return out


DRAFTS = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "glm4_moe_lite")
DRAFT_NAMES = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm",
               "eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head.norm": "shared_head_norm"}


def draft_tensors(fixture):
    """A layer that drafts tokens under Hugging Face's names, as released checkpoints have one: like the model's last layer.
    transformers leaves it out. {}: the family has none."""
    config = fixture["config"]
    if config["model_type"] not in DRAFTS:
        return {}
    layers, width = config["num_hidden_layers"], config["hidden_size"]
    last, is_glm = f"model.layers.{layers - 1}.", config["model_type"] == "glm4_moe_lite"
    root, own = (f"model.layers.{layers}.",) * 2 if is_glm else ("mtp.", "mtp.layers.0.")
    out = {name.replace(last, own): weights.normal(fixture["seed"], name.replace(last, own), shape, *numbers)
           for name, shape, _, *numbers in fixture["tensors"] if name.startswith(last)}
    # Norms of qwen are stored as w where the norm multiplies by 1 + w.
    norms = ("enorm", "hnorm", "shared_head.norm") if is_glm else ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    shapes = {f"{norm}.weight": ((width,), 1.0 if is_glm else 0.0, 0.2) for norm in norms}
    shapes["eh_proj.weight" if is_glm else "fc.weight"] = ((width, 2 * width), 0.0, (2 * width) ** -0.5)
    return out | {root + name: weights.normal(fixture["seed"], root + name, *numbers) for name, numbers in shapes.items()}


def gguf_draft_tensors(name, fixture):
    """The same as GGUF names and keeps them."""
    config = fixture["config"]
    root = f"model.layers.{config['num_hidden_layers']}."
    layer, rest = {}, {}
    for hf, value in draft_tensors(fixture).items():
        short = hf.removeprefix("mtp.").removeprefix(root).removesuffix(".weight")
        if short in DRAFT_NAMES:
            is_norm = FAMILIES[name]["arch"] in DELTA and short != "fc"
            rest[f"blk.{config['num_hidden_layers']}.nextn.{DRAFT_NAMES[short]}.weight"] = value + np.float32(is_norm)
        else:
            layer[hf.replace("mtp.layers.0.", root)] = value
    return gguf_tensors(name, config, layer) | rest


def write_folder(fixture, folder, is_mxfp4=False, **changes):
    """bf16, as checkpoints are. changes: of config.json."""
    config, tensors = fixture["config"] | changes, weights.tensors(fixture) | draft_tensors(fixture)
    if is_mxfp4:
        config["quantization_config"] = {
            "quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                "model.embed_tokens", "lm_head"]}
        for name, (codes, exponents) in weights.mxfp4_tensors(fixture).items():
            del tensors[name]
            pairs = codes.reshape(*exponents.shape, 16, 2)  # the low half is the even number
            tensors[name + "_blocks"] = pairs[..., 0] | pairs[..., 1] << 4
            tensors[name + "_scales"] = exponents
    if config["model_type"] in LATENT_TYPES:
        tensors = with_single_experts(tensors)
    if config["model_type"] == "glm4_moe_lite":
        config["num_nextn_predict_layers"] = 1
    os.makedirs(folder)
    tensors = released_tensors(config, tensors)
    make_folder.write_safetensors(os.path.join(folder, "model.safetensors"), tensors, "bf16")
    texts = {"config.json": config, "tokenizer.json": tokenizer_json(), "tokenizer_config.json": {"eos_token": "<|end|>"},
             "generation_config.json": {"eos_token_id": END}}
    for name, tree in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(tree, file, ensure_ascii=False)
