#!/usr/bin/env python3
"""The independent reference: a float32 forward pass in numpy over the dequantised weights of a GGUF file.

Reads files with the `gguf` package and shares no code with the engine. Architectures llama, qwen2, qwen3 and gemma3;
tied and own heads, biases, q/k norms, norms behind parts, both RoPE pairings, linear, llama3 and YaRN scaling, layers that
differ (windows, heads). Families with experts have oracles of their own (oracles/). Written from the published formulas,
one screen each, so that it can be checked by reading.

    reference.py MODEL logits --tokens 1,2,3 [--top 20] [--npz FILE]   teacher-forced log-probabilities of each next token
    reference.py MODEL greedy --tokens 1,2,3 --steps 32                the greedy path, the margin of each step
    reference.py MODEL nll    --tokens ... [--window 512]              mean negative log-likelihood, windows on their own

Tokens come from --tokens (comma-separated), --tokens-file (a JSON list) or --text / --text-file (needs `tokenizers`).
The result is JSON on standard output.
"""

import argparse
import json
import math
import os
import sys

import numpy as np
from gguf import GGUFReader, dequantize

PAIRS_OF_NEIGHBOURS = {"llama": True, "qwen2": False, "qwen3": False, "gemma3": False}  # (2i, 2i+1), else (i, i + half)


class Layer:
    """What the metadata says of one layer; Reference adds `frequencies` and `magnitude`."""

    def __init__(self, heads, kv_heads, head_dim, rope_dim, scale, window):
        self.heads, self.kv_heads, self.head_dim, self.rope_dim = heads, kv_heads, head_dim, rope_dim
        self.scale, self.window = scale, window  # window: 0 = all positions


class Config:
    """What the metadata says."""

    def __init__(self, fields):
        def get(name, default=None):
            if name not in fields:
                if default is None:
                    raise KeyError(name)
                return default
            return fields[name].contents()

        self.arch = get("general.architecture")
        if self.arch not in PAIRS_OF_NEIGHBOURS:
            raise ValueError(f"no reference for architecture {self.arch}")

        def own(name, default=None):
            return get(f"{self.arch}.{name}", default)

        self.own = own
        self.width = own("embedding_length")
        self.eps = own("attention.layer_norm_rms_epsilon")
        self.context = own("context_length")
        for key in ("attn_logit_softcapping", "final_logit_softcapping", "expert_count"):
            if own(key, 0):
                raise ValueError(f"no reference for {key}")
        self.neighbours = PAIRS_OF_NEIGHBOURS[self.arch]
        self.qk_norm = self.arch in ("qwen3", "gemma3")
        is_gemma = self.arch == "gemma3"
        self.gelu = self.post_norms = is_gemma
        self.embedding_scale = math.sqrt(self.width) if is_gemma else 1.0
        self.window_base = own("rope.freq_base_swa", 10000.0 if is_gemma else 0.0)  # 0: as the other layers
        self.layers = self.read_layers(own("block_count"))

    def read_layers(self, count):
        own = self.own

        def each(name, default=None):
            value = own(name, default)
            return list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value] * count

        heads = each("attention.head_count")
        kv_heads = each("attention.head_count_kv", heads)
        window = own("attention.sliding_window", 0)
        pattern = own("attention.sliding_window_pattern", 6 if self.arch == "gemma3" and window else 1)
        if not isinstance(pattern, (list, tuple, np.ndarray)):  # every nth layer is full, 0: none is
            pattern = [pattern == 0 or layer % pattern < pattern - 1 for layer in range(count)]
        layers = []
        for layer in range(count):
            head_dim = own("attention.key_length", self.width // heads[0])
            rope_dim = own("rope.dimension_count", head_dim)
            if pattern[layer]:
                own_dim = own("attention.key_length_swa", head_dim)
                rope_dim = own("rope.dimension_count_swa", rope_dim if own_dim == head_dim else own_dim)
                head_dim = own_dim
            by_width = self.arch == "gemma3" and count == 62  # 27B
            scale = own("attention.scale", 1 / math.sqrt(self.width / heads[layer] if by_width else head_dim))
            layers.append(Layer(heads[layer], kv_heads[layer], head_dim, rope_dim, scale, window if pattern[layer] else 0))
        return layers


def rope_table(config, layer, divisors):
    """Radians per position for each pair of a layer, and the factor on cos and sin."""
    own, dim = config.own, layer.rope_dim
    if layer.window and config.window_base:
        return config.window_base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim), 1.0
    frequencies = own("rope.freq_base", 10000.0) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    if divisors is not None:
        frequencies = frequencies / divisors
    factor = own("rope.scaling.factor", own("rope.scale_linear", 0.0)) or 1.0
    kind = own("rope.scaling.type", "linear" if factor != 1.0 else "none")
    if kind == "none":
        return frequencies, 1.0
    if kind == "linear":
        return frequencies / factor, 1.0
    original = own("rope.scaling.original_context_length", config.context)
    if kind == "llama3":
        low, high = own("rope.scaling.low_freq_factor", 1.0), own("rope.scaling.high_freq_factor", 4.0)
        wavelengths = 2 * math.pi / frequencies
        smooth = (original / wavelengths - low) / (high - low)
        between = (1 - smooth) * frequencies / factor + smooth * frequencies
        scaled = np.where(wavelengths > original / low, frequencies / factor, between)
        return np.where(wavelengths < original / high, frequencies, scaled), 1.0
    if kind == "yarn":
        base = own("rope.freq_base", 10000.0)

        def pair_of(turns):
            return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

        low = max(math.floor(pair_of(own("rope.scaling.yarn_beta_fast", 32.0))), 0)
        high = min(math.ceil(pair_of(own("rope.scaling.yarn_beta_slow", 1.0))), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
        magnitude = own("rope.scaling.yarn_attn_factor", 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
        return frequencies / factor * ramp + frequencies * (1 - ramp), magnitude
    raise ValueError(f"no reference for rope scaling {kind}")


class Reference:
    """One model; dequantised weights are kept in memory as float32."""

    def __init__(self, path):
        self.path = path
        self.reader = GGUFReader(path)
        self.config = Config(self.reader.fields)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.weights = {}
        divisors = self.weight("rope_freqs.weight")
        divisors = None if divisors is None else divisors.astype(np.float64)
        for layer in self.config.layers:
            layer.frequencies, layer.magnitude = rope_table(self.config, layer, divisors)

    def weight(self, name):
        """float32 [rows, columns] or [columns]; None when the file has no such tensor."""
        if name not in self.weights:
            tensor = self.tensors.get(name)
            if tensor is None:
                return None
            values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
            self.weights[name] = np.ascontiguousarray(values.reshape(tuple(int(n) for n in tensor.shape[::-1])))
        return self.weights[name]

    def linear(self, x, name):
        out = x @ self.weight(name + ".weight").T
        bias = self.weight(name + ".bias")
        return out if bias is None else out + bias

    def norm(self, x, name):
        scale = 1 / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(self.config.eps))
        return x * scale * self.weight(name + ".weight")

    def rotate(self, x, layer, positions):
        """RoPE on x [tokens, heads, head_dim]; numbers beyond rope_dim stay."""
        angles = positions[:, None] * layer.frequencies[None, :]
        cos = (np.cos(angles) * layer.magnitude).astype(np.float32)[:, None, :]
        sin = (np.sin(angles) * layer.magnitude).astype(np.float32)[:, None, :]
        dim = layer.rope_dim
        first, second = (np.s_[0:dim:2], np.s_[1:dim:2]) if self.config.neighbours else (np.s_[:dim // 2], np.s_[dim // 2:dim])
        a, b = x[..., first].copy(), x[..., second].copy()
        out = x.copy()
        out[..., first] = a * cos - b * sin
        out[..., second] = b * cos + a * sin
        return out

    def attention(self, x, layer, positions, cache):
        prefix, spec = f"blk.{layer}.", self.config.layers[layer]
        q = self.linear(x, prefix + "attn_q").reshape(len(x), spec.heads, spec.head_dim)
        k = self.linear(x, prefix + "attn_k").reshape(len(x), spec.kv_heads, spec.head_dim)
        v = self.linear(x, prefix + "attn_v").reshape(len(x), spec.kv_heads, spec.head_dim)
        if self.config.qk_norm:
            q, k = self.norm(q, prefix + "attn_q_norm"), self.norm(k, prefix + "attn_k_norm")
        q, k = self.rotate(q, spec, positions), self.rotate(k, spec, positions)
        if cache[layer] is not None:
            k, v = np.concatenate([cache[layer][0], k]), np.concatenate([cache[layer][1], v])
        cache[layer] = (k, v)
        group = spec.heads // spec.kv_heads
        keys = np.arange(len(k))[None, :]
        is_hidden = keys > positions[:, None]
        if spec.window:
            is_hidden |= keys <= positions[:, None] - spec.window
        hidden = np.where(is_hidden, np.float32(-np.inf), np.float32(0))
        out = np.empty_like(q)
        for head in range(spec.heads):
            scores = q[:, head] @ k[:, head // group].T * np.float32(spec.scale) + hidden
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = (scores / scores.sum(axis=1, keepdims=True)) @ v[:, head // group]
        return self.behind(self.linear(out.reshape(len(x), -1), prefix + "attn_output"), prefix + "post_attention_norm")

    def behind(self, out, name):
        """What a part adds to the stream: normed where the architecture has a norm behind it."""
        return self.norm(out, name) if self.config.post_norms else out

    def feed_forward(self, x, layer):
        prefix = f"blk.{layer}."
        gate = self.linear(x, prefix + "ffn_gate")
        if self.config.gelu:  # its tanh form
            gate = gate * np.float32(0.5) * (1 + np.tanh(np.float32(math.sqrt(2 / math.pi)) * (gate + np.float32(0.044715) * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))  # SiLU
        return self.behind(self.linear(gate * self.linear(x, prefix + "ffn_up"), prefix + "ffn_down"), prefix + "post_ffw_norm")

    def hidden(self, tokens, cache):
        """The final normalised activations [tokens, width]; `cache` (a list, one entry a layer) grows."""
        begin = 0 if cache[0] is None else len(cache[0][0])
        positions = np.arange(begin, begin + len(tokens), dtype=np.float64)
        x = self.weight("token_embd.weight")[np.asarray(tokens)] * np.float32(self.config.embedding_scale)
        for layer in range(len(self.config.layers)):
            x = x + self.attention(self.norm(x, f"blk.{layer}.attn_norm"), layer, positions, cache)
            x = x + self.feed_forward(self.norm(x, f"blk.{layer}.ffn_norm"), layer)
        return self.norm(x, "output_norm")

    def head(self, x):
        own = self.weight("output.weight")
        return x @ (self.weight("token_embd.weight") if own is None else own).T

    def new_cache(self):
        return [None] * len(self.config.layers)

    def logits(self, tokens):
        """[tokens, vocabulary]: row i is over the token after tokens[i]."""
        with np.errstate(over="ignore"):
            return self.head(self.hidden(tokens, self.new_cache()))

    def next_logprobs(self, tokens, rows=256):
        """float64: the log-probability of each of tokens[1:] behind those before it; the head in pieces of `rows`."""
        found = [np.empty(0)]
        if len(tokens) < 2:
            return found[0]
        with np.errstate(over="ignore"):
            hidden = self.hidden(tokens[:-1], self.new_cache())
            for begin in range(0, len(hidden), rows):
                logits = self.head(hidden[begin:begin + rows])
                following = tokens[1 + begin:1 + begin + len(logits)]
                found.append(logits[np.arange(len(logits)), following] - log_sum_exp(logits)[:, 0])
        return np.concatenate(found)

    def greedy(self, tokens, steps):
        """`steps` tokens of the greedy path, and for each the best 5 (id, logit); ties go to the lower id."""
        cache, path, best = self.new_cache(), [], []
        feed = list(tokens)
        with np.errstate(over="ignore"):
            for _ in range(steps):
                logits = self.head(self.hidden(feed, cache)[-1:])[0]
                order = np.argsort(-logits, kind="stable")[:5]
                best.append([(int(i), float(logits[i])) for i in order])
                path.append(int(order[0]))
                feed = [path[-1]]
        return path, best

    def nll(self, tokens, window=512):
        """Mean over all predicted tokens; each window starts from nothing, its first token is not predicted."""
        total, count = 0.0, 0
        for begin in range(0, len(tokens), window):
            part = tokens[begin:begin + window]
            if len(part) < 2:
                break
            logits = self.logits(part[:-1])
            chosen = logits[np.arange(len(part) - 1), part[1:]].astype(np.float64)
            total += float((log_sum_exp(logits)[:, 0] - chosen).sum())
            count += len(part) - 1
        return total / count, count


def log_sum_exp(logits):
    """float64 [rows, 1]; single exponentials in float32, their sum in float64."""
    largest = logits.max(axis=-1, keepdims=True)
    return largest + np.log(np.exp(logits - largest).sum(axis=-1, keepdims=True, dtype=np.float64))


def log_softmax(logits):
    return logits - log_sum_exp(logits)


def tokenizer_of(path):
    """Hugging Face's tokenizer for a byte-level BPE file."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "text"))
    import hf_compare

    return hf_compare.hugging_face(hf_compare.from_gguf(path))


def tokens_of(arguments):
    if arguments.tokens:
        return [int(token) for token in arguments.tokens.split(",")]
    if arguments.tokens_file:
        with open(arguments.tokens_file, encoding="utf-8") as file:
            return json.load(file)
    text = arguments.text
    if arguments.text_file:
        with open(arguments.text_file, encoding="utf-8") as file:
            text = file.read()
    if text is None:
        raise SystemExit("one of --tokens, --tokens-file, --text, --text-file is needed")
    return tokenizer_of(arguments.model).encode(text, add_special_tokens=False).ids


def logits_report(model, tokens, top, npz):
    logits = model.logits(tokens)
    if npz:
        np.savez(npz, tokens=np.asarray(tokens, np.int32), logits=logits)
    logprobs = log_softmax(logits)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :top]
    return {
        "tokens": tokens,
        "next_logprobs": [float(logprobs[i, token]) for i, token in enumerate(tokens[1:])],
        "top": [[[int(t), float(logprobs[i, t])] for t in order[i]] for i in range(len(tokens))],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("what", choices=["logits", "greedy", "nll"])
    parser.add_argument("--tokens")
    parser.add_argument("--tokens-file")
    parser.add_argument("--text")
    parser.add_argument("--text-file")
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--npz", help="where to write all logits")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--window", type=int, default=512)
    arguments = parser.parse_args()

    model = Reference(arguments.model)
    tokens = tokens_of(arguments)
    if arguments.what == "logits":
        report = logits_report(model, tokens, arguments.top, arguments.npz)
    elif arguments.what == "greedy":
        path, best = model.greedy(tokens, arguments.steps)
        margins = [step[0][1] - step[1][1] for step in best]
        report = {"prompt": tokens, "tokens": path, "margins": margins, "top": best}
    else:
        mean, count = model.nll(tokens, arguments.window)
        report = {"nll": mean, "predicted": count, "window": arguments.window}
    json.dump(report, sys.stdout)
    print()


if __name__ == "__main__":
    main()
