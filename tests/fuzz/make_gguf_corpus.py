#!/usr/bin/env python3
"""Writes the seeds of gguf_fuzz: whole models of a few kilobytes, and a file with every type of value.

    make_gguf_corpus.py [FOLDER]         default: corpus/gguf beside this script; the same files each time
"""

import json
import struct
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, RopeScalingType, quantize

BYTES = [chr(code) for code in range(ord("a"), ord("a") + 5)]


def vocabulary(writer, kind):
    writer.add_tokenizer_model(kind)
    if kind == "llama":
        writer.add_token_list(["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", "a", "b", "ab"])
        writer.add_token_types([2, 3, 3, 6, 1, 1, 1, 1])
        writer.add_token_scores([0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -0.5])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
    else:
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(BYTES + ["ab", "abc", "<|end|>"])
        writer.add_token_types([1] * 7 + [3])
        writer.add_token_merges(["a b", "ab c"])
        writer.add_eos_token_id(7)
        writer.add_chat_template("{{ messages[0]['content'] }}")


def model(folder, name, arch, width=4, kind=GGMLQuantizationType.F32, tokenizer="gpt2", scaling=None, tied=True):
    writer = GGUFWriter(os.path.join(folder, name), arch)
    heads, kv_heads, head_dim, ffn, vocab = 2, 1, max(width // 2, 2), width, 8
    random = np.random.default_rng(1)

    def tensor(tensor_name, *shape):
        values = random.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(tensor_name, values)
        else:
            writer.add_tensor(tensor_name, quantize(values, kind), raw_dtype=kind)

    writer.add_block_count(1)
    writer.add_context_length(16)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if scaling:
        writer.add_rope_scaling_type(scaling)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(8)
    if tokenizer:
        vocabulary(writer, tokenizer)
    tensor("token_embd.weight", vocab, width)
    tensor("blk.0.attn_norm.weight", width)
    for part, rows in (("q", heads * head_dim), ("k", kv_heads * head_dim), ("v", kv_heads * head_dim)):
        tensor(f"blk.0.attn_{part}.weight", rows, width)
        if arch == "qwen2":
            tensor(f"blk.0.attn_{part}.bias", rows)
        if arch == "qwen3" and part != "v":
            tensor(f"blk.0.attn_{part}_norm.weight", head_dim)
    tensor("blk.0.attn_output.weight", width, heads * head_dim)
    tensor("blk.0.ffn_norm.weight", width)
    tensor("blk.0.ffn_gate.weight", ffn, width)
    tensor("blk.0.ffn_up.weight", ffn, width)
    tensor("blk.0.ffn_down.weight", width, ffn)
    tensor("output_norm.weight", width)
    if not tied:
        tensor("output.weight", vocab, width)
    if name.startswith("rope_factors"):
        writer.add_tensor("rope_freqs.weight", np.full(head_dim // 2, 2, np.float32))
    close(writer)


def values(folder):
    writer = GGUFWriter(os.path.join(folder, "values.gguf"), "llama")
    for kind, value in (("UINT8", 200), ("INT8", -3), ("UINT16", 40000), ("INT16", -400), ("UINT32", 1 << 31), ("INT32", -5),
                        ("FLOAT32", 0.5), ("UINT64", 1 << 63), ("INT64", -(1 << 40)), ("FLOAT64", 0.1), ("BOOL", True),
                        ("STRING", "text")):
        writer.add_key_value(f"one.{kind.lower()}", value, GGUFValueType[kind])
        writer.add_key_value(f"many.{kind.lower()}", [value, value], GGUFValueType.ARRAY, GGUFValueType[kind])
    writer.add_custom_alignment(64)
    writer.add_tensor("scalar", np.ones(1, np.float32))
    writer.add_tensor("cube", np.ones((2, 2, 3), np.float16))
    close(writer)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def hugging_face(folder):
    """What gguf_fuzz.cpp reads as parts of a Hugging Face folder."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                         "b": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [8, 16]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(os.path.join(folder, "two.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + bytes(16))
    tokenizer = {"added_tokens": [{"id": 3, "content": "<e>", "special": True}],
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 8,
              "intermediate_size": 64, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
              "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    pieces = ["<unk>", "<s>", "\u2581", "a", "b", "ab", "\u2581a"] + [f"<0x{byte:02X}>" for byte in range(256)]
    sentencepiece = {"added_tokens": [{"id": 0, "content": "<unk>", "special": True}],
                     "normalizer": {"type": "Sequence", "normalizers": [
                         {"type": "Prepend", "prepend": "\u2581"},
                         {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
                     "model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "merges": [["a", "b"], ["\u2581", "a"]],
                               "vocab": {piece: i for i, piece in enumerate(pieces)}}}
    metaspace = {**sentencepiece, "normalizer": None, "pre_tokenizer": {
        "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}}
    for name, tree in (("tokenizer.json", tokenizer), ("config.json", config), ("sentencepiece.json", sentencepiece),
                       ("metaspace.json", metaspace)):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(tree, file)


DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U8": np.uint8, "F8_E4M3": np.uint8}


def hugging_face_model(folder, name, config, tensors):
    """A config.json and the safetensors file of its model in one, with a zero byte between."""
    header, data = {}, b""
    for tensor, (dtype, *shape) in tensors.items():
        added = np.ones(shape, DTYPES[dtype]).tobytes()
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(added)]}
        data += added
    config = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4,
              "intermediate_size": 32, "vocab_size": 4, "rms_norm_eps": 1e-6, "max_position_embeddings": 64,
              "tie_word_embeddings": True, **config}
    if config["model_type"] == "gemma3":
        config = {"model_type": "gemma3", "text_config": {**config, "model_type": "gemma3_text"}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, name + ".folder"), "wb") as file:
        file.write(json.dumps(config).encode() + b"\0" + struct.pack("<Q", len(text)) + text + data)


def hugging_face_models(folder):
    def layer(prefix="model.", width=32, **more):
        base = {"embed_tokens.weight": (4, width), "norm.weight": (width,), "layers.0.input_layernorm.weight": (width,),
                "layers.0.post_attention_layernorm.weight": (width,), "layers.0.self_attn.q_proj.weight": (4, width),
                "layers.0.self_attn.k_proj.weight": (4, width), "layers.0.self_attn.v_proj.weight": (4, width),
                "layers.0.self_attn.o_proj.weight": (width, 4)}
        return {prefix + name: ("BF16", *shape) for name, shape in base.items()} | {
            f"{prefix}layers.0.{name}": shape for name, shape in more.items()}

    def experts(prefix, gate, up, down, router):
        return {router: ("BF16", 2, 32)} | {
            f"{prefix}{i}.{name}.weight": ("BF16", 32, 32) for i in range(2) for name in (gate, up, down)}

    norms = {f"self_attn.{part}_norm.weight": ("BF16", 4) for part in "qk"}
    hugging_face_model(folder, "qwen3_moe", {"model_type": "qwen3_moe", "num_experts": 2, "num_experts_per_tok": 1,
                                             "moe_intermediate_size": 32},
                       layer(**norms, **experts("mlp.experts.", "gate_proj", "up_proj", "down_proj", "mlp.gate.weight")))
    hugging_face_model(folder, "mixtral", {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 1},
                       layer(**experts("block_sparse_moe.experts.", "w1", "w3", "w2", "block_sparse_moe.gate.weight")))
    around = {"self_attn.sinks": ("BF16", 1), "mlp.router.weight": ("BF16", 2, 32), "mlp.router.bias": ("BF16", 2),
              "mlp.experts.gate_up_proj_bias": ("BF16", 2, 64), "mlp.experts.down_proj_bias": ("BF16", 2, 32)}
    around |= {f"self_attn.{part}_proj.bias": ("BF16", 32 if part == "o" else 4) for part in "qkvo"}
    oss = {"model_type": "gpt_oss", "num_local_experts": 2, "num_experts_per_tok": 1}
    hugging_face_model(folder, "gpt_oss", {**oss, "quantization_config": {"quant_method": "mxfp4"}}, layer(**around, **{
        "mlp.experts.gate_up_proj_blocks": ("U8", 2, 64, 1, 16), "mlp.experts.gate_up_proj_scales": ("U8", 2, 64, 1),
        "mlp.experts.down_proj_blocks": ("U8", 2, 32, 1, 16), "mlp.experts.down_proj_scales": ("U8", 2, 32, 1)}))
    hugging_face_model(folder, "gpt_oss_bf16", oss, layer(**around, **{
        "mlp.experts.gate_up_proj": ("BF16", 2, 32, 64), "mlp.experts.down_proj": ("BF16", 2, 32, 32)}))
    dense = {f"mlp.{part}_proj.weight": ("BF16", 32, 32) for part in ("gate", "up", "down")}
    hugging_face_model(folder, "gemma3", {"model_type": "gemma3", "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
                       layer("model.language_model.", **norms, **dense, **{
                           "pre_feedforward_layernorm.weight": ("BF16", 32), "post_feedforward_layernorm.weight": ("BF16", 32)}))
    wide = {f"self_attn.{part}_proj.weight": ("F8_E4M3", 4, 128) for part in "qkv"}
    fp8 = {"model_type": "mistral", "hidden_size": 128}
    for name, quantization, scale, shape in (
            ("fp8_block", {"quant_method": "fp8", "weight_block_size": [128, 128]}, "weight_scale_inv", (1, 1)),
            ("fp8_channel", {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
                "g": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}, "weight_scale", (4, 1))):
        scales = {f"self_attn.{part}_proj.{scale}": ("F32", *shape) for part in "qkv"}
        hugging_face_model(folder, name, {**fp8, "quantization_config": quantization}, layer(
            "model.", 128, **wide, **scales, **{f"mlp.{part}_proj.weight": ("BF16", 32, 128) for part in ("gate", "up")},
            **{"mlp.down_proj.weight": ("BF16", 128, 32), "self_attn.k_proj.k_scale": ("F32", 1),
               "self_attn.v_proj.v_scale": ("F32", 1)}))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "gguf")
    os.makedirs(folder, exist_ok=True)
    model(folder, "llama.gguf", "llama")
    model(folder, "qwen2.gguf", "qwen2", tied=False)
    model(folder, "qwen3.gguf", "qwen3")
    model(folder, "sentencepiece.gguf", "llama", tokenizer="llama", scaling=RopeScalingType.YARN)
    model(folder, "linear.gguf", "llama", scaling=RopeScalingType.LINEAR)
    model(folder, "rope_factors.gguf", "llama", tokenizer=None)
    model(folder, "q4_0.gguf", "llama", width=32, kind=GGMLQuantizationType.Q4_0)
    values(folder)
    hugging_face(folder)
    hugging_face_models(folder)


if __name__ == "__main__":
    main()
