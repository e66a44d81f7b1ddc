#!/usr/bin/env python3
"""Aim: a Hugging Face folder answers as the GGUF file of the same weights does, and its tokenizer.json as Hugging Face's
own library reads it.

Method: random models of make_model.py in float32, written again as folders (make_folder.py), both served. Log-probabilities
of random prompts must be equal to 0.01 (qwen's to the bit of what the API shows: their rows lie in the same order) and every
greedy token the same; ids of texts must be those of the `tokenizers` package.

    folder_test.py PROGRAM [--device auto]
"""

import argparse
import json
import os
import random
import sys
import tempfile
import urllib.request

try:
    import numpy as np
    from tokenizers import Tokenizer

    import make_folder
    import make_model
    from http_accuracy import Server
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import strings  # found by make_model's path

# llama3: permuted rows, a head of its own, llama3 scaling, bos; qwen2: biases; qwen3: norms of q and k, a tied head.
MODELS = {"llama3": 2, "qwen2": 1, "qwen3": 1}  # how many files
CONTEXT, STEPS, TEXTS = 256, 24, 120


def post(server, path, body):
    request = urllib.request.Request(f"{server.url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def answers(server, prompts):
    logprobs = [server.prompt_logprobs(prompt) for prompt in prompts]
    greedy = [server.complete(prompt, max_tokens=STEPS, return_token_ids=True, ignore_eos=True)["token_ids"] for prompt in prompts]
    return np.concatenate(logprobs), greedy


def check_tokenizer(server, path):
    expected = Tokenizer.from_file(path)
    texts = [text for text in strings.fixed(["<|end|>"]) if len(text) < 200]
    texts = random.Random(7).sample(texts, TEXTS) + list(strings.mixed(11, TEXTS, ["<|end|>"]))
    for text in texts:
        wanted = expected.encode(text, add_special_tokens=True).ids
        found = post(server, "/tokenize", {"prompt": text, "add_special_tokens": True})["tokens"]
        if wanted != found and len(wanted) < CONTEXT:
            return [f"tokens of {text!r}: expected {wanted}, found {found}"]
    return []


def check(arguments, folder, name, files):
    make_model.MODELS[name] = dict(make_model.MODELS[name], encodings={"*": "f32"})
    file = os.path.join(folder, name + ".gguf")
    make_model.write(name, file)
    hf = os.path.join(folder, name)
    make_folder.write(file, hf, shards=files)
    numbers = np.random.default_rng(3)
    prompts = [numbers.integers(0, 500, length).tolist() for length in (2, 40, 200)]
    found, broken = [], []
    for path in (file, hf):
        server = Server(arguments, path, CONTEXT)
        try:
            found.append(answers(server, prompts))
            if path == hf:
                broken += check_tokenizer(server, os.path.join(hf, "tokenizer.json"))
        finally:
            server.stop()
    (of_file, greedy_file), (of_folder, greedy_folder) = found
    difference = np.abs(of_file - of_folder).max()
    print(f"{name}: {len(of_file)} log-probabilities, largest difference {difference:.6f}, spread {of_file.std():.2f}")
    if difference > (0.01 if name == "llama3" else 0):
        broken.append(f"log-probabilities differ by {difference}")
    if greedy_file != greedy_folder:
        broken.append(f"greedy: the file says {greedy_file}, the folder {greedy_folder}")
    return [f"{name}: {line}" for line in broken]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kv-dtype", default="f16")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broken = [line for name, files in MODELS.items() for line in check(arguments, folder, name, files)]
    print("\n".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
