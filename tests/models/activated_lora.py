#!/usr/bin/env python3
"""Adapters that count from their invocation on (aLoRA), as served, against the numpy reference.

    activated_lora.py PROGRAM [--device auto]

Small random models of make_model.py, each with an adapter of random numbers on every matrix of its layers, once with
invocation tokens and once without. The server cuts prompts into chunks of 32 tokens; KV blocks have 16.
  starts     log-probabilities of prompts whose invocation stands at borders of blocks and chunks, at the beginning,
             twice, in pieces or not at all: largest difference 0.1, mean 0.02; and they are not those of the model or
             of the adapter for the whole prompt
  identity   how many tokens are found in the prefix cache, by the model, the adapter and others, and what is answered
  batches    rows of all kinds at once, bit for bit what each is alone (batch-invariant)
Prints one line each; exits with 1 when any bound is broken.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile

import numpy as np
from gguf import GGUFWriter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import http_accuracy  # noqa: E402
import reference  # noqa: E402

MODELS = ["llama3", "qwen3-mixed"]  # RoPE over neighbours and over halves; windows
INVOCATION, RANK, ALPHA = [7, 11, 13], 6, 12
BLOCK, CHUNK = 16, 32
MATRICES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]


class Adapted(reference.Reference):
    """A model with an adapter from position `start` on; None: without."""

    def __init__(self, path, random):
        super().__init__(path)
        self.pairs, self.start, self.positions = {}, None, None
        for layer in range(len(self.config.layers)):
            for matrix in MATRICES:
                name = f"blk.{layer}.{matrix}"
                rows, columns = self.weight(name + ".weight").shape
                a = random.normal(0, columns**-0.5, (RANK, columns)).astype(np.float32)
                b = random.normal(0, 0.4 * RANK**-0.5, (rows, RANK)).astype(np.float32)
                self.pairs[name] = (a, b)

    def from_position(self, start):
        self.start = start
        return self

    def hidden(self, tokens, cache):
        begin = 0 if cache[0] is None else len(cache[0][0])
        self.positions = np.arange(begin, begin + len(tokens))
        return super().hidden(tokens, cache)

    def linear(self, x, name):
        out = super().linear(x, name)
        if self.start is None or name not in self.pairs:
            return out
        a, b = self.pairs[name]
        return out + np.where(self.positions[:, None] >= self.start, (x @ a.T) @ b.T * np.float32(ALPHA / RANK), 0)

    def save(self, path, invocation):
        writer = GGUFWriter(path, self.config.arch)
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", float(ALPHA))
        if invocation:
            writer.add_array("adapter.alora.invocation_tokens", invocation)
        for name, (a, b) in self.pairs.items():
            writer.add_tensor(name + ".weight.lora_a", a)
            writer.add_tensor(name + ".weight.lora_b", b)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


class Server(http_accuracy.Server):
    def ask(self, name, tokens, **fields):
        """The answer's tokens, their log-probabilities and how many tokens of the prompt were known."""
        body = {"prompt": tokens, "temperature": 0, "logprobs": 1, "return_token_ids": True, "ignore_eos": True,
                "max_tokens": 6, **fields}
        answer = self.request(body, name)
        choice = answer["choices"][0]
        return (choice["token_ids"], choice["logprobs"]["token_logprobs"],
                answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    def prompt_logprobs_of(self, name, tokens):
        choice = self.request({"prompt": tokens, "max_tokens": 0, "echo": True, "logprobs": 1}, name)["choices"][0]
        return np.array(choice["logprobs"]["token_logprobs"][1:], np.float64)


class Checks:
    def __init__(self):
        self.broken = []

    def check(self, what, is_true, found):
        print(("ok      " if is_true else "FAILED  ") + what + ("" if is_true else f": {found}"), flush=True)
        if not is_true:
            self.broken.append(what)


class Prompts:
    """Random tokens without the first of the invocation, so that it stands where it is put."""

    def __init__(self, vocabulary, random):
        self.vocabulary, self.random = vocabulary, random

    def plain(self, length):
        tokens = self.random.integers(0, self.vocabulary, length)
        tokens[tokens == INVOCATION[0]] = INVOCATION[0] + 1
        return tokens.tolist()

    def invoked(self, length, *starts):
        tokens = self.plain(length)
        for start in starts:
            tokens[start:start + len(INVOCATION)] = INVOCATION
        return tokens


def check_starts(checks, server, model, prompts):
    cases = {f"at {start}": ((start,), start) for start in (0, 1, 15, 16, 17, 31, 32, 33, 50, 77)}
    cases["twice"] = ((3, 41), 41)
    cases["nowhere"] = ((), None)
    differences, apart = [], []
    for what, (places, start) in cases.items():
        tokens = prompts.invoked(80, *places)
        if what == "nowhere":
            tokens[20:22] = INVOCATION[:2]
        served = server.prompt_logprobs_of("activated", tokens)
        differences.append(np.abs(served - model.from_position(start).next_logprobs(tokens)))
        if differences[-1].max() > 0.1:
            checks.check(f"invocation {what}", False, f"largest difference {differences[-1].max():.3f}")
        # The same prompt by the model and by the adapter for all of it.
        if start is not None and start < 70:
            apart.append(np.abs(served - model.from_position(None).next_logprobs(tokens))[start:].max())
        if start:
            apart.append(np.abs(served - model.from_position(0).next_logprobs(tokens)).max())
    differences = np.concatenate(differences)
    largest, mean = differences.max(), differences.mean()
    checks.check(f"starts: {len(differences)} tokens, largest difference {largest:.4f}, mean {mean:.5f}",
                 largest <= 0.1 and mean <= 0.02, "expected at most 0.1 and 0.02")
    checks.check(f"starts: {min(apart):.2f} or more from the model and from the adapter for all", min(apart) > 0.3,
                 apart)


def check_answer(checks, what, answer, model, tokens, cached):
    """Along the reference's greedy path, up to a near tie."""
    path, best = model.greedy(tokens, len(answer[0]))
    margins = [ranks[0][1] - ranks[1][1] for ranks in best]
    same = next((i for i, token in enumerate(path) if answer[0][i] != token), len(path))
    checks.check(f"{what}: the answer", same == len(path) or margins[same] < 0.1, (answer[0], path, margins))
    checks.check(f"{what}: {cached} tokens known", answer[2] == cached, answer[2])


def check_identity(checks, server, model, prompts):
    start = 70
    tokens = prompts.invoked(90, start)
    talk = tokens[:start] + prompts.plain(20)
    check_answer(checks, "the model", server.ask(server.base, talk), model.from_position(None), talk, 0)
    activated = model.from_position(start)
    check_answer(checks, "its adapter goes on", server.ask("activated", tokens), activated, tokens, 64)
    check_answer(checks, "and finds what it had", server.ask("activated", tokens), activated, tokens, 80)
    check_answer(checks, "the model has its own", server.ask(server.base, tokens), model.from_position(None), tokens,
                 64)
    check_answer(checks, "the adapter for all", server.ask("plain", tokens), model.from_position(0), tokens, 0)
    later = tokens[:76] + prompts.invoked(24, 10)
    check_answer(checks, "another invocation", server.ask("activated", later), model.from_position(86), later, 64)
    nowhere = talk[:start] + [1] + prompts.plain(20)
    check_answer(checks, "no invocation", server.ask("activated", nowhere), model.from_position(None), nowhere, 64)
    cached = server.ask("activated", tokens, adapter_scale=0.5)[2]
    checks.check("another factor: 0 tokens known", cached == 0, cached)


def check_batches(checks, server, prompts):
    asked = [(name, prompts.invoked(length, *places)) for name in ("activated", "plain", server.base)
             for length, places in ((40, (20,)), (70, (5,)), (33, (30,)), (20, ()))]
    alone = [server.ask(name, tokens, batch_invariant=True)[:2] for name, tokens in asked]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda pair: server.ask(*pair, batch_invariant=True)[:2], asked))
    different = [index for index in range(len(asked)) if alone[index] != together[index]]
    checks.check("batches: rows among others are the rows alone", not different, different)


def check_model(arguments, checks, folder, name):
    random = np.random.default_rng(5)
    model = Adapted(os.path.join(folder, f"{name}.gguf"), random)
    paths = [os.path.join(folder, f"{name}-{kind}.gguf") for kind in ("activated", "plain")]
    model.save(paths[0], INVOCATION)
    model.save(paths[1], None)
    flags = ["--name", "base", "--adapter", f"activated={paths[0]}", "--adapter", f"plain={paths[1]}"]
    server = Server(arguments, model.path, 256, [*flags, "--step-tokens", str(CHUNK), "--kv-tokens", "4096"])
    server.base = "base"
    prompts = Prompts(model.weight("token_embd.weight").shape[0], random)
    print(name)
    try:
        check_starts(checks, server, model, prompts)
        check_identity(checks, server, model, prompts)
        check_batches(checks, server, prompts)
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    arguments.kv_dtype = "f16"
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_model.py")
        subprocess.run([sys.executable, script, folder, *MODELS], check=True, stdout=subprocess.DEVNULL)
        for name in MODELS:
            check_model(arguments, checks, folder, name)
    sys.exit(1 if checks.broken else 0)


if __name__ == "__main__":
    main()
