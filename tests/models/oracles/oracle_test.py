#!/usr/bin/env python3
"""Aim: the engine gives the log-probabilities that transformers gives, for each family and each container of its weights.

Method: the weights of a fixture are made again (weights.py), written as a GGUF file and as a Hugging Face folder and served,
by the program on the float64 reference backend and, one container a family, by the one on the best device. Asked are all
prompts alone, in chunks, together, and behind what the prefix cache has of them: log-probabilities of every prompt token,
of the 20 best at the last 8 positions, and greedy tokens. Then models with a mistake in them, which must be told.

    oracle_test.py REFERENCE_PROGRAM PROGRAM [--device auto] [--only NAME] [--no-mistakes] [--no-device]
"""

import argparse
import os
import re
import sys
import tempfile
import time
import types

try:
    import numpy as np

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    import containers
    import mistakes
    import weights
    from http_accuracy import Server
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

CONTEXT, STEPS, TOP = 256, 16, 20
# Largest and mean difference. Reference backend: float32 activations, keys and values in float16. Best device: activations
# may be in float16 as well. README.md has what was measured.
BOUND, DEVICE_BOUND = (0.01, 0.002), (0.04, 0.006)
CHUNKED = ["--step-tokens", "40"]

# What each container of each family must do: "equal", or "unsupported" with a message that matches. Where support lands,
# the test fails until the word is changed.
GGUF_ARCH, HF_TYPE = r"general\.architecture: expected .*, found", r"model_type: expected .*, found"
EXPECTED = {
    ("llama", "gguf"): "equal", ("llama", "folder"): "equal",
    ("qwen2", "gguf"): "equal", ("qwen2", "folder"): "equal",
    ("qwen3", "gguf"): "equal", ("qwen3", "folder"): "equal",
    ("gemma3", "gguf"): "equal", ("gemma3", "folder"): "unsupported",
    ("qwen3moe", "gguf"): "unsupported", ("qwen3moe", "folder"): "unsupported",
    ("mixtral", "gguf"): "unsupported", ("mixtral", "folder"): "unsupported",
    ("gpt-oss-rounded", "gguf"): "unsupported", ("gpt-oss-rounded", "gguf-mxfp4"): "unsupported",
    ("gpt-oss", "folder"): "unsupported", ("gpt-oss", "folder-mxfp4"): "unsupported",
}
MESSAGES = {"gguf": GGUF_ARCH, "folder": HF_TYPE, "gguf-mxfp4": GGUF_ARCH, "folder-mxfp4": HF_TYPE}
OWN_MESSAGES = {("mixtral", "gguf"): r"llama\.expert_count: mixture of experts: expected 0, found 9"}


def name_of(token):
    """As completions show it in lists of log-probabilities."""
    if token > 255:
        return containers.TOKENS[token]
    return chr(token) if token < 128 else f"bytes:\\x{token:02x}"


IDS = {name_of(token): token for token in range(len(containers.TOKENS))}


def log_softmax(logits):
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class Comparison:
    """One fixture against answers; keeps the differences and what is broken."""

    def __init__(self, family, bounds):
        self.fixture, self.arrays = weights.load(family)
        (self.bound, self.mean_bound), self.differences, self.broken = bounds, [], []

    def numbers(self, what, expected, found):
        difference = np.abs(np.asarray(expected, np.float64) - np.asarray(found, np.float64))
        if not difference.size:
            return
        worst = float(np.nan_to_num(difference, nan=np.inf).max())
        self.differences.append(difference.ravel())
        if worst > self.bound:
            self.broken.append(f"{what}: expected a difference of at most {self.bound}, found {worst:.4f}")

    def conclude(self, what):
        """Says how large the differences are."""
        all_of_them = np.concatenate(self.differences)
        largest, mean = all_of_them.max(), all_of_them.mean()
        if not mean <= self.mean_bound:
            self.broken.append(f"{what}: expected a mean difference of at most {self.mean_bound}, found {mean:.5f}")
        return f"{all_of_them.size} log-probabilities, largest difference {largest:.4f}, mean {mean:.5f}"

    def best(self, what, logits, shown):
        """The alternatives of one position, a dict of names to log-probabilities."""
        expected = log_softmax(logits)
        ids = [IDS[name] for name in shown]
        self.numbers(what, expected[ids], list(shown.values()))
        # None is left out that is better than the worst shown.
        lowest = sorted(shown.values(), reverse=True)[TOP - 1]  # the chosen token stands behind them
        if left_out := [i for i in np.flatnonzero(expected > lowest + 2 * self.bound) if i not in ids]:
            self.broken.append(f"{what}: expected tokens {left_out[:5]} among the best {len(ids)}")

    def prompt(self, what, index, lists):
        """Lists of an answer with echo, behind which nothing may stand."""
        prompt, logits = self.fixture["prompts"][index], self.arrays[f"logits_{index}"]
        self.numbers(f"{what}: prompt tokens", self.arrays[f"logprobs_{index}"], lists["token_logprobs"][1:len(prompt)])
        begin = len(prompt) - len(logits)
        for position in range(begin, min(len(prompt), len(lists["tokens"]) - 1)):
            self.best(f"{what}: position {position}", logits[position - begin], lists["top_logprobs"][position + 1])

    def greedy(self, what, index, tokens, logprobs):
        expected, margins = self.arrays[f"greedy_{index}"], self.arrays[f"margins_{index}"]
        for step, (right, found) in enumerate(zip(expected, tokens, strict=True)):
            if right != found:
                if margins[step] > 2 * self.bound:
                    self.broken.append(f"{what}: step {step}: expected token {right}, found {found}, margin {margins[step]:.4f}")
                return
            self.numbers(f"{what}: step {step}", self.arrays[f"greedy_logprobs_{index}"][step], logprobs[step])


def complete(server, prompts, **fields):
    return server.request({"prompt": prompts, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "logprobs": TOP, **fields})


def check_alone(server, comparison, what):
    """Nothing is in the cache yet: echo asks for all positions."""
    for index, prompt in enumerate(comparison.fixture["prompts"]):
        place = f"{what}, {len(prompt)} tokens"
        choice = complete(server, prompt, max_tokens=STEPS, echo=True)["choices"][0]
        lists = choice["logprobs"]
        comparison.prompt(place, index, lists)
        comparison.greedy(place, index, choice["token_ids"][-STEPS:], lists["token_logprobs"][len(prompt):])


def check_together(server, comparison, what):
    """All prompts at once: with echo, then behind what the cache has of them."""
    prompts = comparison.fixture["prompts"]
    for index, choice in enumerate(complete(server, prompts * 2, max_tokens=1, echo=True)["choices"]):
        comparison.prompt(f"{what}, together", index % len(prompts), choice["logprobs"])
    answer = complete(server, prompts, max_tokens=STEPS)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    if cached < 128:  # of 129 tokens alone
        comparison.broken.append(f"{what}: expected at least 128 cached tokens, found {cached}")
    for index, choice in enumerate(answer["choices"]):
        place = f"{what}, cached, {len(prompts[index])} tokens"
        comparison.best(place, comparison.arrays[f"logits_{index}"][-1], choice["logprobs"]["top_logprobs"][0])
        comparison.greedy(place, index, choice["token_ids"], choice["logprobs"]["token_logprobs"])


def write(family, container, path):
    fixture, _ = weights.load(family)
    is_mxfp4 = container.endswith("mxfp4")
    if container.startswith("gguf"):
        containers.write_gguf(containers.gguf_of(family, fixture, is_mxfp4), path)
    else:
        containers.write_folder(fixture, path, is_mxfp4)


def start(arguments, path, options):
    """A server, or the text of what it said instead."""
    try:
        return Server(arguments, path, CONTEXT, ["--kv-tokens", "2048", "--drain-notice-s", "0", *options])
    except SystemExit as refused:
        return str(refused)


def check_container(arguments, family, container, path, bound):
    """Lines of what is broken. A GGUF file on the reference is asked in whole prompts too."""
    write(family, container, path)
    for options in [[], CHUNKED] if container == "gguf" and arguments.device == "reference:0" else [CHUNKED]:
        what = f"{family} {container} on {arguments.device}" + (" in chunks" if options else "")
        began = time.monotonic()
        server = start(arguments, path, options)
        if EXPECTED[family, container] == "unsupported":
            message = OWN_MESSAGES.get((family, container), MESSAGES[container])
            if not isinstance(server, str):
                server.stop()
                return [f"{what}: expected unsupported, found an answer: change EXPECTED"]
            print(f"{what}: unsupported, as expected")
            return [] if re.search(message, server) else [f"{what}: expected {message!r}, found {server}"]
        if isinstance(server, str):
            return [f"{what}: {server}"]
        comparison = Comparison(family, bound)
        try:
            check_alone(server, comparison, what)
            check_together(server, comparison, what)
        finally:
            server.stop()
        print(f"{what}: {comparison.conclude(what)}, {time.monotonic() - began:.1f} s")
        if comparison.broken:
            return comparison.broken[:5] + [f"{what}: {len(comparison.broken)} comparisons broken"]
    return []


def check_mistake(arguments, family, container, mistake, change, folder):
    """A model that is wrong in this way must not pass."""
    what, path = f"{family} {container} with a mistake: {mistake}", os.path.join(folder, f"{family}-{container}-{mistake}")
    fixture, _ = weights.load(family)
    if container.startswith("gguf"):
        model = containers.gguf_of(family, fixture, container.endswith("mxfp4"))
        change(model)
        containers.write_gguf(model, path)
    else:
        containers.write_folder(fixture, path, container.endswith("mxfp4"), **change)
    server = start(arguments, path, [])
    if isinstance(server, str):
        is_expected = EXPECTED[family, container] == "unsupported" or (mistake in mistakes.MAY_BE_REFUSED and "unsupported" in server)
        print(f"{what}: the model is unsupported")
        return [] if is_expected else [f"{what}: expected an answer, found {server}"]
    comparison = Comparison(family, BOUND)
    try:
        check_alone(server, comparison, what)
    finally:
        server.stop()
    print(f"{what}: {comparison.conclude(what)}")
    return [] if comparison.broken else [f"{what}: expected a difference above {BOUND}, found none"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference_program")
    parser.add_argument("program")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", help="a family")
    parser.add_argument("--no-mistakes", action="store_true")
    parser.add_argument("--no-device", action="store_true")
    arguments = parser.parse_args()
    reference = types.SimpleNamespace(program=arguments.reference_program, device="reference:0", kv_dtype="f16")
    device = types.SimpleNamespace(program=arguments.program, device=arguments.device, kv_dtype="f16")
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        for family, container in EXPECTED:
            if arguments.only not in (None, family):
                continue
            path = os.path.join(folder, f"{family}-{container}")
            broken += check_container(reference, family, container, path, BOUND)
            if container == "gguf" and EXPECTED[family, container] == "equal" and not arguments.no_device:
                broken += check_container(device, family, container, path + "-device", DEVICE_BOUND)
        for family, container, mistake, change in [] if arguments.no_mistakes else mistakes.MISTAKES:
            if arguments.only in (None, family):
                broken += check_mistake(reference, family, container, mistake, change, folder)
    print("\n".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
