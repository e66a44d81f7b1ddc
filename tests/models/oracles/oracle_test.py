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
# Largest and mean difference, and the share of numbers that may differ by more. The reference backend has float32
# activations, and keys and values in float16. Devices may have activations in float16, where two experts that are almost
# equally good may change places: that token's numbers jump. README.md has what was measured.
BOUND, DEVICE_BOUND = (0.012, 0.0025, 0), (0.04, 0.006, 0.02)
CHUNKED, SHORT = ["--step-tokens", "40"], ["--step-tokens", "7"]
# Whole prompts have latents expanded, their first steps of 40 tokens too, and the others, as rows that decode, absorbed.
ABSORBED = ["--latent-prompts", "absorbed"]
LATENT = ["deepseek2", "glm4-moe-lite"]
RECURRENT = ["lfm2", "lfm2moe", "qwen35", "qwen35moe", "qwen3next", "granitehybrid", "granitehybrid-experts",
             "nemotron_h", "nemotron_h_moe", "nemotron_h_moe-latent"]  # in steps of 7 tokens too

CONTAINERS = [
    *[(family, container) for family in ("llama", "qwen2", "qwen3", "gemma3", "qwen3moe", "mixtral", "lfm2", "qwen35",
                                         "qwen35moe", "qwen3next", "granitehybrid", "lfm2moe",
                                         "granitehybrid-experts", "nemotron_h", "nemotron_h_moe",
                                         "nemotron_h_moe-latent", "deepseek2", "glm4-moe-lite")
      for container in ("gguf", "folder")],
    ("deepseek2", "gguf-joined"), ("gpt-oss-rounded", "gguf"), ("gpt-oss-rounded", "gguf-mxfp4"), ("gpt-oss", "folder"), ("gpt-oss", "folder-mxfp4")]


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
    """One fixture against answers; keeps how far each number is from it."""

    def __init__(self, family, bounds):
        self.fixture, self.arrays = weights.load(family)
        self.bounds, self.parts, self.broken = bounds, [], []

    def numbers(self, what, expected, found):
        difference = np.abs(np.asarray(expected, np.float64) - np.asarray(found, np.float64))
        self.parts.append((what, np.nan_to_num(np.atleast_1d(difference), nan=np.inf)))

    def best(self, what, logits, shown):
        """The alternatives of one position, a dict of names to log-probabilities."""
        expected = log_softmax(logits)
        ids = [IDS[name] for name in shown]
        self.numbers(what, expected[ids], list(shown.values()))
        # A better token than the worst shown is not left out; if it is, it lost at least so much.
        lowest = sorted(shown.values(), reverse=True)[TOP - 1]  # the chosen token stands behind them
        left_out = [i for i in np.flatnonzero(expected > lowest) if i not in ids]
        self.numbers(f"{what}: tokens {left_out} are not among the best", expected[left_out], lowest)

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
            if right != found:  # one of two logits is off by half of the margin
                return self.numbers(f"{what}: step {step}: token {found} for {right}", margins[step] / 2, 0)
            self.numbers(f"{what}: step {step}", self.arrays[f"greedy_logprobs_{index}"][step], logprobs[step])

    def conclude(self, what):
        """Fills `broken`; a line that says how large the differences are."""
        largest_allowed, mean_allowed, share_allowed = self.bounds
        every = np.concatenate([part for _, part in self.parts])
        share = (every > largest_allowed).mean()
        if share > share_allowed:
            worst = sorted(((part.max(initial=0), place) for place, part in self.parts), reverse=True)[:3]
            self.broken += [f"{place}: expected a difference of at most {largest_allowed}, found {difference:.4f}"
                            for difference, place in worst]
        if not every.mean() <= mean_allowed:
            self.broken.append(f"{what}: expected a mean difference of at most {mean_allowed}, found {every.mean():.5f}")
        return (f"{every.size} log-probabilities, largest difference {every.max():.4f}, mean {every.mean():.5f}, "
                f"{100 * share:.2f} % beyond {largest_allowed}")


def complete(server, prompts, **fields):
    return server.request({"prompt": prompts, "temperature": 0, "ignore_eos": True, "return_token_ids": True,
                           "logprobs": TOP, **fields})


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
        model = containers.gguf_of(family, fixture, is_mxfp4)
        if container.endswith("joined"):
            containers.joined_heads(model, fixture["config"]["num_attention_heads"])
        containers.write_gguf(model, path)
    else:
        containers.write_folder(fixture, path, is_mxfp4)


def start(arguments, path, options):
    """A server, or the text of what it said instead."""
    try:
        return Server(arguments, path, CONTEXT, ["--kv-tokens", "2048", "--drain-notice-s", "0", *options])
    except SystemExit as refused:
        return str(refused)


def check_container(arguments, family, container, path, bounds):
    """Lines of what is broken. A GGUF file on the reference is asked in whole prompts too."""
    write(family, container, path)
    is_whole = container == "gguf" and arguments.device == "reference:0"
    for options in (([[], CHUNKED] if is_whole else [CHUNKED]) + [SHORT] * (is_whole and family in RECURRENT) +
                    [ABSORBED] * (is_whole and family in LATENT)):
        what = f"{family} {container} on {arguments.device}" + (f" with {' '.join(options)}" if options else "")
        began = time.monotonic()
        server = start(arguments, path, options)
        if isinstance(server, str):
            return [f"{what}: {server}"]
        comparison = Comparison(family, bounds)
        try:
            check_alone(server, comparison, what)
            check_together(server, comparison, what)
        finally:
            server.stop()
        print(f"{what}: {comparison.conclude(what)}, {time.monotonic() - began:.1f} s")
        if comparison.broken:
            return comparison.broken
    return []


def check_mistake(arguments, family, container, mistake, change, folder):
    """A model that is wrong in this way must not pass."""
    what = f"{family} {container} with a mistake: {mistake}"
    path = os.path.join(folder, f"{family}-{container}-{mistake}")
    fixture, _ = weights.load(family)
    if change is None:  # a device that is wrong
        arguments = types.SimpleNamespace(**{**vars(arguments), "device": container})
        containers.write_gguf(containers.gguf_of(family, fixture), path)
    elif container.startswith("gguf"):
        model = containers.gguf_of(family, fixture, container.endswith("mxfp4"))
        change(model)
        containers.write_gguf(model, path)
    else:
        containers.write_folder(fixture, path, container.endswith("mxfp4"), **change)
    server = start(arguments, path, CHUNKED if change is None else [])
    if isinstance(server, str):
        print(f"{what}: the model is unsupported")
        return [] if mistake in mistakes.MAY_BE_REFUSED and "unsupported" in server else [f"{what}: expected an answer, found {server}"]
    comparison = Comparison(family, BOUND)
    try:
        check_alone(server, comparison, what)
        if change is None:
            check_together(server, comparison, what)
    finally:
        server.stop()
    print(f"{what}: {comparison.conclude(what)}")
    return [] if comparison.broken else [f"{what}: expected differences beyond {BOUND}"]


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
        for family, container in CONTAINERS:
            if arguments.only not in (None, family):
                continue
            path = os.path.join(folder, f"{family}-{container}")
            broken += check_container(reference, family, container, path, BOUND)
            if container.startswith("gguf") and container != "gguf-joined" and not arguments.no_device:
                broken += check_container(device, family, container, path + "-device", DEVICE_BOUND)
        for family, container, mistake, change in [] if arguments.no_mistakes else mistakes.MISTAKES:
            if arguments.only in (None, family):
                broken += check_mistake(reference, family, container, mistake, change, folder)
    print("\n".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
