#!/usr/bin/env python3
"""Writes small GGUF files with random weights and small trained vocabularies, for what no real weights are at hand.

    make_model.py FOLDER [NAME ...]      all of them, or those named; prints the paths
    make_model.py --list

Written with the `gguf` package alone: nothing of the engine is in the way between a file and reference.py, which runs
every one of them. Weights are scaled so that attention is peaked and positions matter: a wrong rotation, norm or bias
changes the logits far beyond rounding. K-quants, which the package cannot quantise, are random blocks with sane scales.
"""

import argparse
import os
import sys
import tempfile

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter, RopeScalingType, quantize

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "text"))

TYPES = {kind.name.lower(): kind for kind in GGMLQuantizationType}
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")

# Encodings by tensor; "*" is the rest. Widths and FFN widths are multiples of 256, so that every encoding fits.
MODELS = {
    "qwen3": {
        "arch": "qwen3", "about": "q/k norms, tied head, heads x head_dim beyond the width, k-quants",
        "heads": 4, "kv_heads": 2, "head_dim": 80, "width": 256, "ffn": 512, "tied": True, "vocabulary": "qwen2",
        "base": 1e6, "encodings": {"token_embd": "q6_k", "attn_q": "q4_k", "attn_k": "q5_k", "attn_v": "q6_k", "ffn_down": "q5_k", "attn_output": "f16", "*": "q4_k"}},
    "qwen3-f32": {
        "arch": "qwen3", "about": "as qwen3, in float32, with an attention scale of its own", "attention_scale": 0.16,
        "heads": 4, "kv_heads": 2, "head_dim": 80, "width": 256, "ffn": 512, "tied": True, "vocabulary": "qwen2",
        "base": 1e6, "encodings": {"*": "f32"}},
    "llama3": {
        "arch": "llama", "about": "llama3 scaling by rope_freqs.weight, own head, bf16 and f16, pre-tokenizer llama-bpe",
        "heads": 4, "kv_heads": 1, "head_dim": 64, "width": 256, "ffn": 512, "tied": False, "vocabulary": "llama-bpe",
        "base": 5e5, "llama3": (8.0, 1.0, 4.0, 64), "context": 512,
        "encodings": {"token_embd": "f16", "attn_v": "f32", "output": "bf16", "*": "bf16"}},
    "llama-yarn": {
        "arch": "llama", "about": "YaRN scaling, SentencePiece with byte fallback, own head, q8_0",
        "heads": 4, "kv_heads": 4, "head_dim": 64, "width": 256, "ffn": 512, "tied": False, "vocabulary": "sentencepiece",
        "base": 10000.0, "yarn": (4.0, 64), "context": 256, "encodings": {"*": "q8_0"}},
    "llama-yarn-f32": {
        "arch": "llama", "about": "as llama-yarn, in float32",
        "heads": 4, "kv_heads": 4, "head_dim": 64, "width": 256, "ffn": 512, "tied": False, "vocabulary": "sentencepiece",
        "base": 10000.0, "yarn": (4.0, 64), "context": 256, "encodings": {"*": "f32"}},
    "llama-linear": {
        "arch": "llama", "about": "linear scaling, rotation of half the head, biases everywhere, pre-tokenizer gpt-2, q5_0 and q5_1",
        "heads": 2, "kv_heads": 1, "head_dim": 128, "rope_dim": 64, "width": 256, "ffn": 256, "tied": True,
        "vocabulary": "gpt-2", "base": 10000.0, "linear": 4.0, "context": 256, "biases": "all",
        "encodings": {"token_embd": "q8_0", "ffn_gate": "q5_1", "*": "q5_0"}},
    "qwen2": {
        "arch": "qwen2", "about": "q/k/v biases, own head, three encodings inside qkv and two inside gate and up",
        "heads": 4, "kv_heads": 2, "head_dim": 64, "width": 256, "ffn": 768, "tied": False, "vocabulary": "qwen2",
        "base": 1e6, "biases": "qkv",
        "encodings": {"attn_q": "q5_0", "attn_k": "q4_1", "attn_v": "q8_0", "ffn_gate": "q4_0", "ffn_up": "q5_1", "ffn_down": "q6_k", "output": "q8_0", "*": "q4_0"}},
    "llama-windows": {
        "arch": "llama", "about": "a window in every layer, query heads and FFN widths that differ by layer, in float32",
        "heads": [4, 2, 8], "kv_heads": 2, "head_dim": 64, "width": 256, "ffn": [512, 256, 768], "tied": True,
        "vocabulary": "gpt-2", "base": 10000.0, "window": 40, "pattern": 0, "encodings": {"*": "f32"}},
    "qwen3-mixed": {
        "arch": "qwen3", "about": "every third layer full, the others with a window, a RoPE base and heads of their own",
        "heads": [4, 8, 4], "kv_heads": [2, 2, 1], "head_dim": 128, "window_head_dim": 64, "width": 256,
        "ffn": [512, 256, 768], "tied": True, "vocabulary": "qwen2", "base": 1e6, "window_base": 10000.0, "window": 24,
        "pattern": 3, "encodings": {"*": "f32"}},
    "gemma3": {
        "arch": "gemma3", "about": "windows but for the sixth layer and their RoPE base as the family has them, the full one scaled, in float32",
        "layers": 7, "heads": 4, "kv_heads": 2, "head_dim": 64, "width": 256, "ffn": 256, "tied": True, "vocabulary": "sentencepiece",
        "base": 1e6, "linear": 8.0, "window": 24, "embedding_gain": 0.5, "post_norm": 0.3, "context": 256, "encodings": {"*": "f32"}},
}
LAYERS = 3  # unless the model says otherwise
SEED = 20240


def random_blocks(kind, rows, columns, deviation, random):
    """K-quant blocks of random bits, their scales set so that numbers have the deviation and a mean of 0."""
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    # Deviation of a block of random quants with scale 1, where its f16 scale lies, and the minimum for mean 0.
    unit, at, minimum = {"Q4_K": (258.3, 0, 7.5), "Q5_K": (526.9, 0, 15.5), "Q6_K": (1365.7, 208, None)}[kind.name]
    scale = deviation / unit * random.uniform(0.75, 1.25, len(blocks)) * random.choice([-1, 1], len(blocks))
    blocks[:, at:at + 2] = scale.astype("<f2").view(np.uint8).reshape(-1, 2)
    if minimum:
        blocks[:, at + 2:at + 4] = (scale * minimum).astype("<f2").view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, columns // elements * size)


def matrix(kind, rows, columns, gain, random):
    deviation = gain / np.sqrt(columns)
    if kind.name in ("Q4_K", "Q5_K", "Q6_K"):
        return random_blocks(kind, rows, columns, deviation, random)
    return quantize((random.standard_normal((rows, columns)) * deviation).astype(np.float32), kind)


def llama3_divisors(base, dim, factor, low, high, original):
    wavelengths = 2 * np.pi * base ** (np.arange(0, dim, 2) / dim)
    smooth = (original / wavelengths - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wavelengths < original / high, 1, np.where(wavelengths > original / low, factor, between)).astype(np.float32)


def byte_vocabulary(pre):
    import hf_compare

    vocabulary = hf_compare.trained(pre, 500)
    vocabulary["tokens"] = vocabulary["tokens"] + ["<|user|>", "<|assistant|>", "<|end|>"]
    vocabulary["types"] = vocabulary["types"] + [3, 3, 3]
    return vocabulary


def sentencepiece_vocabulary():
    import spm_compare

    with tempfile.TemporaryDirectory() as folder:
        return spm_compare.vocabulary_of(spm_compare.train(folder, "model", vocab_size=1000))


def add_vocabulary(writer, name):
    vocabulary = sentencepiece_vocabulary() if name == "sentencepiece" else byte_vocabulary(name)
    last = len(vocabulary["tokens"]) - 1
    writer.add_tokenizer_model(vocabulary["model"])
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types(vocabulary["types"])
    if name == "sentencepiece":
        writer.add_tokenizer_pre("default")
        writer.add_token_scores(vocabulary["scores"])
        writer.add_unk_token_id(vocabulary["unk"])
        writer.add_bos_token_id(vocabulary["bos"])
        writer.add_eos_token_id(vocabulary["eos"])
        writer.add_add_space_prefix(vocabulary["add_space_prefix"])
    else:
        writer.add_tokenizer_pre(name)
        writer.add_token_merges(vocabulary["merges"])
        writer.add_eos_token_id(last)
        if name == "llama-bpe":
            writer.add_bos_token_id(vocabulary["tokens"].index("<|begin_of_text|>"))
    writer.add_add_bos_token(name in ("llama-bpe", "sentencepiece"))
    writer.add_chat_template(TEMPLATE)
    return last + 1


def add_rope(writer, model):
    dim = model.get("rope_dim", model["head_dim"])
    writer.add_rope_dimension_count(dim)
    writer.add_rope_freq_base(model["base"])
    if "yarn" in model:
        factor, original = model["yarn"]
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(factor)
        writer.add_rope_scaling_orig_ctx_len(original)
    if "linear" in model:
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(model["linear"])
    if "llama3" in model:
        writer.add_tensor("rope_freqs.weight", llama3_divisors(model["base"], dim, *model["llama3"]))


class Weights:
    """Adds random tensors; the same file each time."""

    def __init__(self, writer, model):
        self.writer, self.model, self.random = writer, model, np.random.default_rng(SEED)

    def matrix(self, name, rows, columns, gain=1.0):
        short = name.split(".")[-1]
        encodings = self.model["encodings"]
        kind = TYPES[encodings.get(short, encodings["*"])]
        self.writer.add_tensor(f"{name}.weight", matrix(kind, rows, columns, gain, self.random), raw_dtype=kind)
        wanted = self.model.get("biases")
        if (wanted == "all" and "blk." in name) or (wanted == "qkv" and short in ("attn_q", "attn_k", "attn_v")):
            self.vector(f"{name}.bias", rows, 0.0, 0.5)

    def vector(self, name, columns, mean=1.0, deviation=0.2):
        self.writer.add_tensor(name, (mean + deviation * self.random.standard_normal(columns)).astype(np.float32))


def each(model, key):
    """One value for each layer."""
    return model[key] if isinstance(model[key], list) else [model[key]] * model.get("layers", LAYERS)


def head_dims(model):
    """Of each layer: those with a window may have their own."""
    period = model.get("pattern", 1)
    return [model.get("window_head_dim", model["head_dim"]) if period == 0 or layer % period < period - 1 else model["head_dim"]
            for layer in range(model.get("layers", LAYERS))]


def add_windows(writer, model):
    writer.add_sliding_window(model["window"])
    if "pattern" in model:  # else that of the architecture
        writer.add_uint32(f"{model['arch']}.attention.sliding_window_pattern", model["pattern"])
    if "window_head_dim" in model:
        writer.add_uint32(f"{model['arch']}.attention.key_length_swa", model["window_head_dim"])
        writer.add_uint32(f"{model['arch']}.attention.value_length_swa", model["window_head_dim"])
    if "window_base" in model:
        writer.add_float32(f"{model['arch']}.rope.freq_base_swa", model["window_base"])


def write(name, path):
    model = MODELS[name]
    writer = GGUFWriter(path, model["arch"])
    writer.add_name(f"random {name}")
    writer.add_description(model["about"])
    writer.add_block_count(model.get("layers", LAYERS))
    writer.add_context_length(model.get("context", 512))
    writer.add_embedding_length(model["width"])
    writer.add_feed_forward_length(model["ffn"])
    writer.add_head_count(model["heads"])
    writer.add_head_count_kv(model["kv_heads"])
    writer.add_key_length(model["head_dim"])
    writer.add_value_length(model["head_dim"])
    writer.add_layer_norm_rms_eps(1e-5)
    if "attention_scale" in model:
        writer.add_float32(f"{model['arch']}.attention.scale", model["attention_scale"])
    if "window" in model:
        add_windows(writer, model)
    add_rope(writer, model)
    vocab = add_vocabulary(writer, model["vocabulary"])
    writer.add_vocab_size(vocab)

    weights = Weights(writer, model)
    width = model["width"]
    # Tied: small beside what the layers add, or each token would predict itself.
    weights.matrix("token_embd", vocab, width, model.get("embedding_gain", 1.5 if model["tied"] else 4.0))
    sizes = zip(each(model, "heads"), each(model, "kv_heads"), head_dims(model), each(model, "ffn"))
    for layer, (heads, kv_heads, head_dim, ffn) in enumerate(sizes):
        prefix = f"blk.{layer}."
        weights.vector(prefix + "attn_norm.weight", width)
        weights.matrix(prefix + "attn_q", heads * head_dim, width, 1.5)
        weights.matrix(prefix + "attn_k", kv_heads * head_dim, width, 1.5)
        weights.matrix(prefix + "attn_v", kv_heads * head_dim, width)
        if model["arch"] in ("qwen3", "gemma3"):
            weights.vector(prefix + "attn_q_norm.weight", head_dim, 1.4)
            weights.vector(prefix + "attn_k_norm.weight", head_dim, 1.4)
        weights.matrix(prefix + "attn_output", width, heads * head_dim)
        weights.vector(prefix + "ffn_norm.weight", width)
        weights.matrix(prefix + "ffn_gate", ffn, width)
        weights.matrix(prefix + "ffn_up", ffn, width)
        weights.matrix(prefix + "ffn_down", width, ffn)
        if "post_norm" in model:
            weights.vector(prefix + "post_attention_norm.weight", width, model["post_norm"])
            weights.vector(prefix + "post_ffw_norm.weight", width, model["post_norm"])
    weights.vector("output_norm.weight", width)
    if not model["tied"]:
        weights.matrix("output", vocab, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list or not arguments.folder:
        for name, model in MODELS.items():
            print(f"{name}: {model['about']}")
        return
    os.makedirs(arguments.folder, exist_ok=True)
    for name in arguments.names or MODELS:
        path = os.path.join(arguments.folder, f"{name}.gguf")
        write(name, path)
        print(path)


if __name__ == "__main__":
    main()
