#!/usr/bin/env python3
"""Aim: a long text says the same to a model with recurrent layers whether its states are walked in chunks or token by token.

Method: tiny models of random weights (oracles/families.py, float32) are served twice, in
steps of 256 tokens and in steps of few, in which rows keep their last tokens in the state's ring. Both are asked for the
log-probability of every token of a random text. Bounds: BOUND for the largest difference, and the mean over the last
quarter at most three times that over the first.

    long_context.py LLMRT [--families qwen35,granitehybrid] [--tokens 2048] [--few 1] [--device auto]

docs/kernels/recurrent.md (Long rows) has what was measured.
"""

import argparse
import os
import sys
import tempfile
import time
import types

try:
    import numpy as np

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "oracles"))
    import containers
    import weights
    from http_accuracy import Server
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BOUND = 0.01


def logprobs(arguments, path, tokens, step_tokens):
    began = time.monotonic()
    started = types.SimpleNamespace(program=arguments.program, device=arguments.device, kv_dtype=arguments.kv_dtype)
    server = Server(started, path, len(tokens) + 64, ["--step-tokens", str(step_tokens), "--kv-tokens", str(len(tokens) + 64),
                                                      "--drain-notice-s", "0"])
    try:
        found = server.prompt_logprobs(tokens)
    finally:
        server.stop()
    print(f"steps of {step_tokens}: mean {found.mean():.4f}, {time.monotonic() - began:.0f} s", flush=True)
    return found


def check(arguments, family, folder):
    fixture, _ = weights.load(family)
    path = os.path.join(folder, f"{family}.gguf")
    model = containers.gguf_of(family, fixture)
    model.keys[f"{model.arch}.context_length"] = 2 * arguments.tokens
    containers.write_gguf(model, path)
    tokens = np.random.default_rng(1).integers(0, 256, arguments.tokens)
    difference = np.abs(logprobs(arguments, path, tokens, 256) - logprobs(arguments, path, tokens, arguments.few))
    quarter = len(difference) // 4
    first, last = difference[:quarter].mean(), difference[-quarter:].mean()
    print(f"{family}, {arguments.tokens} tokens on {arguments.device}: largest difference {difference.max():.2e}, mean {first:.2e} in"
          f" the first quarter, {last:.2e} in the last", flush=True)
    return difference.max() <= BOUND and last <= 3 * first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--families", default="qwen35,granitehybrid")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--few", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kv-dtype", default="f16")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        right = [check(arguments, family, folder) for family in arguments.families.split(",")]
    sys.exit(0 if all(right) else 1)


if __name__ == "__main__":
    main()
