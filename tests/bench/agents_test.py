#!/usr/bin/env python3
"""Aim: talks of agents with a hybrid model find nearly all of their prompts in the prefix cache, and answer sooner for it.

Method: a tiny model with recurrent layers (tests/models/oracles, its head changed so that answers are letters, which come
back as the same tokens) is served, and `llmrt-bench serve --workload agents` is run against it. From the second turn on the
share of cached tokens must be at least 98 %, and the time to the first token at most 15 % of that without a cache. A token is
a byte here, so a word of the workload is some 5 tokens.

    agents_test.py LLMRT LLMRT_BENCH [--whole] [--device auto] [--model FILE ...]

ctest takes 2,000 tokens in front, 2 turns and wider bounds. --whole takes 14,000, and 20 turns of 80 tokens in and 400 out;
docs/load.md has what it measured. --model: another one (any GGUF with a chat format), with what is in front as so many words,
and no bound on its figures.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import types

try:
    import numpy as np

    models = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models")
    sys.path[:0] = [models, os.path.join(models, "oracles")]
    import containers
    import weights
    from http_accuracy import Server
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TEMPLATE = "{% for m in messages %}<|x300|>{{ m.role }}\n{{ m.content }}<|x301|>\n{% endfor %}{{ '<|x300|>assistant\n' }}"
LETTERS = "abcdefgijklmnopqrsuvwxyz"  # t and h would be one token when they come back
# Share of cached tokens, and TTFT as a share of that without a cache. A turn computes what is new and up to 63 tokens before
# it, which are more of a short prompt.
BOUNDS, WHOLE_BOUNDS = (0.9, 0.6), (0.98, 0.15)


def write_model(path):
    fixture, _ = weights.load("qwen35")
    model = containers.gguf_of("qwen35", fixture)
    model.keys["tokenizer.chat_template"] = TEMPLATE
    model.keys["qwen35.context_length"] = 1 << 17
    if "output.weight" not in model.tensors:
        model.tensors["output.weight"] = model.tensors["token_embd.weight"]
    ids = [containers.TOKENS.index(letter) for letter in LETTERS]
    head = np.zeros_like(model.tensors["output.weight"])  # others have the logit 0, below the best letter's
    head[ids] = model.tensors["output.weight"][ids]
    model.tensors["output.weight"] = head
    containers.write_gguf(model, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("bench")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--model")
    parser.add_argument("--users", type=int, default=1)
    parser.add_argument("--turns", type=int)
    parser.add_argument("--system-tokens", type=int)
    parser.add_argument("-p", type=int, default=80)
    parser.add_argument("-n", type=int)
    arguments, options = parser.parse_known_args()
    turns = arguments.turns or (20 if arguments.whole else 2)
    output = arguments.n or (400 if arguments.whole else 64)
    words_of = 1 if arguments.model else 5.2  # tokens
    system = arguments.system_tokens or int((14000 if arguments.whole else 2000) / words_of)
    context = int(1.3 * (words_of * system + turns * (arguments.p + output + 64))) + 512
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model
        if path is None:
            path = os.path.join(folder, "letters.gguf")
            write_model(path)
        started = types.SimpleNamespace(program=arguments.program, device=arguments.device, kv_dtype="f16")
        server = Server(started, path, context, ["--kv-tokens", str(3 * arguments.users * context), *options])
        try:
            told = os.path.join(folder, "agents.json")
            subprocess.run([arguments.bench, "serve", "--url", server.url, "--workload", "agents", "--json", told, "--users",
                            str(arguments.users), "--turns", str(turns), "--system-tokens", str(system), "-p",
                            str(max(1, int(arguments.p / words_of))), "-n", str(output)], check=True)
        finally:
            server.stop()
        with open(told) as f:
            rows = [row["details"]["agents"] for row in json.load(f)["rows"]]
    if arguments.model:
        return
    share, ttft = WHOLE_BOUNDS if arguments.whole else BOUNDS
    broken = [f"turn {row['turn']}: expected {share} of the prompt cached and {ttft} of the cold TTFT, found {row['cached_share']}"
              f" and {row['ttft_ms'] / row['cold_ttft_ms']:.3f}" for row in rows[1:]
              if not (row["cached_share"] or 0) >= share or row["ttft_ms"] > ttft * row["cold_ttft_ms"]]
    print("\n".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
