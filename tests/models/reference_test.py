#!/usr/bin/env python3
"""Aim: the reference is one function of the file, and the random models can tell a wrong engine from a right one.

Method: on every model of make_model.py, decoding token by token with the cache must equal the teacher-forced pass, and
each thing that an engine could get wrong (RoPE pairing, scaling, magnitude, biases, q/k norms, head) is got wrong here on
purpose: the logits must move by far more than the 0.1 that engines are allowed.

That the formulas themselves are right was shown against llama.cpp b9190 with every weight in float32: 158 tokens, largest
difference of a log-probability 2e-4 on qwen3, qwen2, llama3, llama-yarn and llama-linear (whole-head rotation there, as it
has no other).
"""

import os
import sys
import tempfile

try:
    import numpy as np

    import make_model
    import reference
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(4)

TOKENS = [(i * 37) % 400 + 7 for i in range(90)]
MOVES = 0.5  # largest change of a log-probability that each mistake must at least cause


def logprobs(model):
    return reference.log_softmax(model.logits(TOKENS))


def cached_logprobs(model):
    cache, rows = model.new_cache(), []
    for begin in range(0, len(TOKENS), 7):  # chunks, as an engine may cut a prompt
        rows.append(model.head(model.hidden(TOKENS[begin:begin + 7], cache)))
    return reference.log_softmax(np.concatenate(rows))


def mistakes(model):
    """(what, a function that makes the mistake) for everything that this model has."""
    def other_pairing():
        model.config.neighbours = not model.config.neighbours

    layers = model.config.layers

    def plain_frequencies():
        for layer in layers:
            layer.frequencies = model.config.own("rope.freq_base") ** (-np.arange(0, layer.rope_dim, 2) / layer.rope_dim)

    def no_magnitude():
        for layer in layers:
            layer.magnitude = 1.0

    def whole_rotation():
        for layer in layers:
            layer.rope_dim = layer.head_dim
        plain_frequencies()

    def no_window():
        for layer in layers:
            layer.window = 0

    def window_one_short():
        for layer in layers:
            layer.window = max(layer.window - 1, 0)

    def set_weights(suffix, value):
        def change():
            for name in [name for name in model.tensors if name.endswith(suffix)]:
                model.weights[name] = np.full_like(model.weight(name), value)
        return change

    def shifted_kv_heads():
        for index, layer in enumerate(layers):
            layer.kv_heads, shared = layer.heads, layer.heads // layer.kv_heads
            for name in [name for name in model.tensors if name.startswith(f"blk.{index}.attn_k.") or name.startswith(f"blk.{index}.attn_v.")]:
                heads = model.weight(name)
                model.weights[name] = np.concatenate([heads] * shared)  # k and v of head h % kv_heads, not h // group

    def without(what, value):
        return lambda: setattr(model.config, what, value)

    def no_window_base():
        for layer in layers:
            layer.frequencies = reference.rope_table(model.config, full, None)[0]

    def scaled_windows():
        for layer in layers:
            if layer.window:
                layer.frequencies = layer.frequencies / model.config.own("rope.scaling.factor")

    def every_third_full():
        for index, layer in enumerate(layers):
            layer.window = 0 if index % 3 == 2 else full_windows

    def tied_head():
        model.weights["output.weight"] = model.weight("token_embd.weight")

    names = list(model.tensors)
    found = [("the other RoPE pairing", other_pairing)]
    if any(layer.kv_heads not in (1, layer.heads) for layer in layers):
        found.append(("k and v heads in the wrong order", shifted_kv_heads))
    if "rope_freqs.weight" in names or model.config.own("rope.scaling.type", "none") != "none":
        found.append(("no RoPE scaling", plain_frequencies))
    if any(layer.window for layer in layers):
        found += [("no window", no_window), ("a window that is one position short", window_one_short)]
    if model.config.own("rope.freq_base_swa", 0.0):
        found.append(("one RoPE base for all layers", plain_frequencies))
    full = next((layer for layer in layers if not layer.window), None)
    full_windows = max(layer.window for layer in layers)
    if model.config.arch == "gemma3":
        found += [("embeddings as they are", without("embedding_scale", 1.0)), ("SiLU", without("gelu", False)),
                  ("no norms behind parts", without("post_norms", False)), ("the base of full layers in all", no_window_base),
                  ("scaled windows", scaled_windows), ("every third layer full", every_third_full),
                  ("scores by the width", lambda: [setattr(layer, "scale", layer.scale * 0.7) for layer in layers])]
    if layers[0].magnitude != 1.0:
        found.append(("no YaRN magnitude", no_magnitude))
    if layers[0].rope_dim != layers[0].head_dim:
        found.append(("rotation of the whole head", whole_rotation))
    if "output.weight" in names:
        found.append(("a tied head", tied_head))
    for suffix, value in ((".attn_q_norm.weight", 1), (".attn_q.bias", 0), (".attn_v.bias", 0), (".attn_output.bias", 0), (".ffn_down.bias", 0)):
        if any(name.endswith(suffix) for name in names):
            found.append((f"without {suffix}", set_weights(suffix, value)))
    return found


def check(name, path):
    right = logprobs(reference.Reference(path))
    difference = np.abs(cached_logprobs(reference.Reference(path)) - right).max()
    failures = []
    if not difference < 1e-3:
        failures.append(f"{name}: chunks with a cache differ by {difference}")
    for index, (what, _) in enumerate(mistakes(reference.Reference(path))):
        model = reference.Reference(path)
        for tensor in model.tensors:
            model.weight(tensor)
        mistakes(model)[index][1]()
        moved = np.abs(logprobs(model) - right).max()
        print(f"{name}: {what}: log-probabilities move by {moved:.2f}")
        if not moved > MOVES:
            failures.append(f"{name}: {what} moves log-probabilities by {moved} only")
    path_tokens, best = reference.Reference(path).greedy(TOKENS, 8)
    forced = reference.Reference(path).logits(TOKENS + path_tokens)
    for step, token in enumerate(path_tokens):
        row = forced[len(TOKENS) - 1 + step]
        if int(row.argmax()) != token and row.max() - row[token] > 1e-3:
            failures.append(f"{name}: greedy step {step} is not the best of the teacher-forced pass")
        if abs(best[step][0][1] - row[token]) > 1e-2:
            failures.append(f"{name}: greedy step {step}: logit {best[step][0][1]}, teacher-forced {row[token]}")
    return failures


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for name in make_model.MODELS:
            path = os.path.join(folder, f"{name}.gguf")
            make_model.write(name, path)
            failures += check(name, path)
    print("\n".join(failures) or "all well")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
