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
    for name, tree in (("tokenizer.json", tokenizer), ("config.json", config)):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(tree, file)


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


if __name__ == "__main__":
    main()
