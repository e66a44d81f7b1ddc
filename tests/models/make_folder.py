#!/usr/bin/env python3
"""Writes a GGUF file (llama, qwen2, qwen3, byte-level BPE) again as a Hugging Face folder: the same numbers in the other
container, written without the engine and without the safetensors package.

    make_folder.py FILE FOLDER [--dtype f32|bf16] [--shards N]

Matrices are dequantised; f32 keeps them as they are, so both containers must give the same answers. Rows of q and k of
llama go back from pairs of neighbours to halves.
"""

import argparse
import json
import os
import struct
import sys

import numpy as np
from gguf import GGUFReader, dequantize

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "text"))

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def hf_name(name):
    base, kind = name.rsplit(".", 1)
    if base in NAMES:
        return f"{NAMES[base]}.{kind}"
    _, layer, part = base.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.{kind}"


def halves(values, heads):
    """Row 2i of a head becomes row i, row 2i + 1 becomes row i + half."""
    rows = values.reshape(heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(np.swapaxes(rows, 1, 2)).reshape(values.shape)


def raw(values, dtype):
    if dtype == "u8":
        return values.tobytes()
    if dtype == "f32":
        return values.astype("<f4").tobytes()
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_safetensors(path, tensors, dtype):
    """Bytes stay bytes."""
    header, data, end = {"__metadata__": {"format": "pt"}}, [], 0
    for name, values in tensors.items():
        own = "u8" if values.dtype == np.uint8 else dtype
        data.append(raw(values, own))
        begin, end = end, end + len(data[-1])
        header[name] = {"dtype": own.upper(), "shape": list(values.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(data)


def tokenizer_of(get):
    """tokenizer.json as the tokenizers package writes it, with the pre-tokenizers of tests/text/hf_compare.py."""
    import hf_compare

    fields = {"pre": "tokenizer.ggml.pre", "tokens": "tokenizer.ggml.tokens", "types": "tokenizer.ggml.token_type",
              "merges": "tokenizer.ggml.merges"}
    vocabulary = {"model": "gpt2"} | {name: get(key) for name, key in fields.items()}
    tokenizer = hf_compare.hugging_face(vocabulary)
    tree = json.loads(tokenizer.to_str())
    if get("tokenizer.ggml.add_bos_token", False):
        bos = vocabulary["tokens"][get("tokenizer.ggml.bos_token_id")]
        tree["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [get("tokenizer.ggml.bos_token_id")], "tokens": [bos]}}}
    return vocabulary, tree


def write(path, folder, dtype="f32", shards=1):
    reader = GGUFReader(path)

    def get(key, otherwise=None):
        return reader.fields[key].contents() if key in reader.fields else otherwise

    arch = get("general.architecture")
    heads = {"attn_q": get(f"{arch}.attention.head_count"), "attn_k": get(f"{arch}.attention.head_count_kv")}
    tensors, divisors = {}, False
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":  # follows from config.json
            divisors = True
            continue
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        part = tensor.name.split(".")[-2]
        if arch == "llama" and part in heads:
            values = halves(values, heads[part])
        tensors[hf_name(tensor.name)] = values
    vocabulary, tokenizer = tokenizer_of(get)
    config = {
        "architectures": [CLASSES[arch]], "model_type": arch, "hidden_size": get(f"{arch}.embedding_length"),
        "num_hidden_layers": get(f"{arch}.block_count"), "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"], "intermediate_size": get(f"{arch}.feed_forward_length"),
        "head_dim": get(f"{arch}.attention.key_length", get(f"{arch}.embedding_length") // heads["attn_q"]),
        "vocab_size": len(vocabulary["tokens"]), "rms_norm_eps": float(f"{get(f'{arch}.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": get(f"{arch}.rope.freq_base"), "max_position_embeddings": get(f"{arch}.context_length"),
        "tie_word_embeddings": "lm_head.weight" not in tensors, "hidden_act": "silu", "torch_dtype": "bfloat16",
        "use_cache": True, "transformers_version": "4.57.6", "sliding_window": None,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64} if divisors else None}
    names = {key: vocabulary["tokens"][get(f"tokenizer.ggml.{key}_id")] for key in ("bos_token", "eos_token")
             if get(f"tokenizer.ggml.{key}_id") is not None}
    os.makedirs(folder, exist_ok=True)
    texts = {"config.json": config, "tokenizer.json": tokenizer,
             "tokenizer_config.json": names | {"chat_template": get("tokenizer.chat_template")},
             "generation_config.json": {"eos_token_id": [get("tokenizer.ggml.eos_token_id")], "temperature": 0.6}}
    parts = [dict(list(tensors.items())[i::shards]) for i in range(shards)]
    files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors" for i in range(shards)]
    for file, part in zip(files, parts):
        write_safetensors(os.path.join(folder, file), part, dtype)
    if shards > 1:
        texts["model.safetensors.index.json"] = {
            "metadata": {}, "weight_map": {name: file for file, part in zip(files, parts) for name in part}}
    for name, tree in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(tree, file, ensure_ascii=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("folder")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--shards", type=int, default=1)
    args = parser.parse_args()
    write(args.file, args.folder, args.dtype, args.shards)


if __name__ == "__main__":
    main()
