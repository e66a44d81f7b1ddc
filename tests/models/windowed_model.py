#!/usr/bin/env python3
"""A model with window layers as served, against the numpy reference and against itself: Gemma 3, real or random.

    windowed_model.py PROGRAM MODEL [PART ...] [--device auto] [--text FILE] [--text-bytes N] [--steps N]
                      [--prompts FILE] [--oracle numpy|torch]
    windowed_model.py PROGRAM --random [PART ...]     a small gemma3 of make_model.py, on random ids: seconds

MODEL is the file that `tools/quickstart --model gemma3` fetches, or any other that reference.py reads; it takes minutes on
a processor. Tokens are the server's own (tests/text/spm_compare.py --gguf checks those). `--oracle torch` asks
transformers' model (torch_reference.py) instead of the numpy one. Parts, all unless named:
  greedy     the reference's greedy paths behind prompts of different kinds, some longer than the window: a step whose
             margin is >= 0.1 must match
  logprobs   log-probabilities of the tokens of those prompts: largest difference 0.1, mean 0.02
  nll        mean negative log-likelihood of a text of several windows in one piece: within 0.003 (not --random)
  repeats    the same prompt again, its beginning, and one with another end: tokens from the prefix cache, same answers
  streams    the same answer in pieces
  batches    all prompts at once: same answers
  chunks     a server that computes prompts in small chunks: same answers
  preempts   a KV pool that cannot hold all of them, so that some yield: same answers
  keeps      a server that keeps the blocks behind windows (--window-blocks keep): same answers; and the server that
             frees them never holds more than the windows and one step of all that run at once
Answers are the same when they are equal token by token, or part where the two best log-probabilities lie within 0.05.
Prints one line each; exits with 1 when any bound is broken.
"""

import argparse
import concurrent.futures
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import http_accuracy  # noqa: E402
import reference  # noqa: E402

NEAR_TIE = 0.05  # log-probabilities of two runs of a sequence that is not batch-invariant may differ by so much
PROMPTS = {
    "short": "The old bridge over the canal was closed because",
    "code": "import os\n\n\ndef list_files(path):\n    \"\"\"Yields all files below path.\"\"\"\n    for name in",
    "German": "Das kleine Dorf liegt zwischen zwei Flüssen, und im Winter",
    "Japanese": "東京は日本の首都であり、",
    "numbers": "2, 4, 8, 16, 32, 64,",
}
LONG = {"a text of 1.5 windows": 1.5, "a text of 2.6 windows": 2.6, "a text of 4.1 windows": 4.1}  # in windows, of --text
RANDOM_LENGTHS = {"5 ids": 5, "20 ids": 20, "1.5 windows": 36, "3 windows": 72, "7 windows": 168}
BLOCK_TOKENS = 16


class Server(http_accuracy.Server):
    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=1800) as response:
            return response.read().decode()

    def tokenize(self, text):
        return json.loads(self.post("/tokenize", {"prompt": text}))["tokens"]

    def answer(self, tokens, steps, **fields):
        """Token ids, the distance of the two best log-probabilities at each, and how many prompt tokens were cached."""
        body = {"prompt": list(tokens), "temperature": 0, "max_tokens": steps, "ignore_eos": True, "logprobs": 2,
                "return_token_ids": True, **fields}
        answer = json.loads(self.post("/v1/completions", body))
        choice = answer["choices"][0]
        tops = [sorted(top.values(), reverse=True) for top in choice["logprobs"]["top_logprobs"]]
        margins = [top[0] - top[1] if len(top) > 1 else 0.0 for top in tops]
        return choice["token_ids"], margins, answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def streamed(self, tokens, steps):
        body = {"prompt": list(tokens), "temperature": 0, "max_tokens": steps, "ignore_eos": True,
                "return_token_ids": True, "stream": True}
        ids, pieces = [], 0
        for line in self.post("/v1/completions", body).splitlines():
            if line.startswith("data: {"):
                choices = json.loads(line[6:])["choices"]
                ids += choices[0].get("token_ids") or [] if choices else []
                pieces += 1
        return ids, pieces

    def metrics(self):
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as response:
            return {found[1]: float(found[2]) for found in re.finditer(r"^llmrt_(\S+) (\S+)$", response.read().decode(), re.M)}


def differences(what, expected, found):
    """Lines that say where an answer leaves the expected one, unless that is at a near tie."""
    ids, margins, _ = expected
    for step, (left, right) in enumerate(zip(ids, found)):
        if left != right:
            return [] if margins[step] < NEAR_TIE else [
                f"{what}: step {step}: expected {left}, found {right}, margin {margins[step]:.3f}"]
    return [] if len(ids) == len(found) else [f"{what}: expected {len(ids)} tokens, found {len(found)}"]


class Check:
    def __init__(self, arguments):
        self.arguments = arguments
        self.model = reference.Reference(arguments.model)
        self.window = max(layer.window for layer in self.model.config.layers)
        if self.window == 0:
            raise SystemExit("expected a model with window layers, found none")
        self.context = min(8192, self.model.config.context)
        if arguments.oracle == "torch":
            import torch_reference

            self.oracle = torch_reference.TorchReference(arguments.model)
        else:
            self.oracle = self.model
        self.server = self.start()
        self.alone = {}
        if arguments.random:
            random = np.random.default_rng(3)
            vocabulary = self.model.weight("token_embd.weight").shape[0]
            self.prompts = {name: random.integers(0, vocabulary, size).tolist() for name, size in RANDOM_LENGTHS.items()}
            return
        with open(arguments.text, encoding="utf-8") as file:
            self.text_tokens = self.server.tokenize(file.read(arguments.text_bytes))
        texts = PROMPTS
        if arguments.prompts:
            with open(arguments.prompts, encoding="utf-8") as file:
                texts = json.load(file)
        self.prompts = {name: self.server.tokenize(text) for name, text in texts.items()}
        for name, windows in LONG.items():
            size = round(windows * self.window)
            if len(self.text_tokens) < size + 1:
                raise SystemExit(f"--text: expected at least {size + 1} tokens, found {len(self.text_tokens)}")
            self.prompts[name] = self.text_tokens[:size]

    def start(self, *options, context=None):
        arguments = argparse.Namespace(program=self.arguments.program, device=self.arguments.device, kv_dtype="f16")
        return Server(arguments, self.arguments.model, context or self.context, options)

    def answer_alone(self, name):
        if name not in self.alone:
            self.alone[name] = self.server.answer(self.prompts[name], self.arguments.steps)
        return self.alone[name]

    def greedy(self):
        return http_accuracy.check_greedy(self.server, self.oracle, list(self.prompts.values()), self.arguments.steps)

    def logprobs(self):
        return http_accuracy.check_logprobs(self.server, self.oracle, list(self.prompts.values()), 0.1, 0.02)

    def nll(self):
        if self.arguments.random:
            return []
        expected = -self.oracle.next_logprobs(self.text_tokens)
        found = -self.server.prompt_logprobs(self.text_tokens)
        print(f"nll: {len(found)} tokens in one piece, reference {expected.mean():.5f}, served {found.mean():.5f}, "
              f"difference {found.mean() - expected.mean():+.5f}, of one token at most {np.abs(found - expected).max():.4f}")
        return [] if abs(found.mean() - expected.mean()) <= 0.003 else ["nll: expected a difference of at most 0.003"]

    def repeats(self):
        broken = []
        for name, prompt in self.prompts.items():
            expected = self.answer_alone(name)
            changed = [(token + 1) % 100 + 200 for token in prompt[-3:]]
            for what, tokens, least in (("again", prompt, len(prompt) - 1), ("its half", prompt[:(len(prompt) + 1) // 2], 0),
                                        ("another end", prompt[:-3] + changed, len(prompt) - 3)):
                # A salt of its own: nothing is found.
                fresh = expected if tokens is prompt else self.server.answer(tokens, self.arguments.steps,
                                                                             cache_salt=f"{name} {what}")
                ids, _, cached = self.server.answer(tokens, self.arguments.steps)
                broken += differences(f"{name}, {what}", fresh, ids)
                least = least // BLOCK_TOKENS * BLOCK_TOKENS
                if cached < least:
                    broken.append(f"{name}, {what}: expected at least {least} cached tokens of {len(tokens)}, found {cached}")
                print(f"repeats: {name}, {what}: {cached} of {len(tokens)} tokens cached, "
                      f"{same_steps(fresh[0], ids)} of {len(ids)} steps equal")
        return broken

    def streams(self):
        broken = []
        for name in self.prompts:
            ids, pieces = self.server.streamed(self.prompts[name], self.arguments.steps)
            broken += differences(f"streams: {name}", self.answer_alone(name), ids)
            if pieces < 2:
                broken.append(f"streams: {name}: expected several pieces, found {pieces}")
        print(f"streams: {len(self.prompts)} answers")
        return broken

    def at_once(self, what, server, copies=1):
        """`copies` of each prompt, none of which finds another's blocks."""
        expected = {name: self.answer_alone(name) for name in self.prompts}
        with concurrent.futures.ThreadPoolExecutor(copies * len(self.prompts)) as pool:
            answers = [(name, pool.submit(server.answer, tokens, self.arguments.steps, cache_salt=f"{what} {copy}"))
                       for copy in range(copies) for name, tokens in self.prompts.items()]
        broken, equal = [], 0
        for name, answer in answers:
            ids = answer.result()[0]
            broken += differences(f"{what}: {name}", expected[name], ids)
            equal += same_steps(expected[name][0], ids)
        print(f"{what}: {equal} of {len(answers) * self.arguments.steps} steps equal")
        return broken

    def batches(self):
        return self.at_once("batches", self.server)

    def on_other_server(self, what, *options, context=None, copies=1):
        """Lines that say what differs, and the server's metrics."""
        for name in self.prompts:
            self.answer_alone(name)
        server = self.start(*options, context=context)
        try:
            return self.at_once(what, server, copies), server.metrics()
        finally:
            server.stop()

    def chunks(self):
        return self.on_other_server("chunks", "--step-tokens", "48", "--chunk-tokens", "32")[0]

    def preempts(self):
        # Room for the longest prompt and its answer. Six copies of each fill that before they have answered.
        room = (max(len(tokens) for tokens in self.prompts.values()) + self.arguments.steps + 15) // BLOCK_TOKENS * BLOCK_TOKENS
        broken, metrics = self.on_other_server("preempts", "--kv-tokens", str(room), "--reserve-output", "1", context=room,
                                               copies=6)
        print(f"preempts: {metrics['preemptions_total']:g} preemptions")
        return broken + (["preempts: expected some, found none"] if metrics["preemptions_total"] == 0 else [])

    def keeps(self):
        options = ("--step-tokens", "64", "--prefix-cache", "off")
        kept, kept_metrics = self.on_other_server("keeps", *options, "--window-blocks", "keep")
        freed, freed_metrics = self.on_other_server("frees", *options)
        all_blocks = sum(math.ceil((len(tokens) + self.arguments.steps) / BLOCK_TOKENS) for tokens in self.prompts.values())
        in_windows = len(self.prompts) * (math.ceil((self.window - 1) / BLOCK_TOKENS) + 1) + 2 * (64 // BLOCK_TOKENS)
        used = {what: [metrics[f'kv_group_blocks_used_most{{group="{group}",window="{window}"}}']
                       for group, window in ((0, 0), (1, 0 if what == "kept" else self.window))]
                for what, metrics in (("kept", kept_metrics), ("freed", freed_metrics))}
        for what, (full, windows) in used.items():
            print(f"{what}: at most {full:g} blocks of full layers and {windows:g} of window layers in use")
        broken = kept + freed
        if used["kept"][0] != used["kept"][1]:
            broken.append(f"kept: expected as many blocks in both groups, found {used['kept']}")
        if used["freed"][1] > min(in_windows, all_blocks):
            broken.append(f"freed: expected at most {in_windows} blocks of window layers, found {used['freed'][1]:g}")
        return broken


def same_steps(left, right):
    """How many before the first that differs."""
    return next((step for step, pair in enumerate(zip(left, right)) if pair[0] != pair[1]), min(len(left), len(right)))


PARTS = ("greedy", "logprobs", "nll", "repeats", "streams", "batches", "chunks", "preempts", "keeps")


def check(arguments):
    """Lines that say which bound is broken."""
    check, broken = Check(arguments), []
    try:
        for part in arguments.parts or PARTS:
            begun = time.monotonic()
            broken += getattr(check, part)()
            print(f"({part}: {time.monotonic() - begun:.0f} s)", flush=True)
    finally:
        check.server.stop()
    return broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model", nargs="?")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--prompts", help="a JSON object of texts by name, in place of the script's own")
    parser.add_argument("--oracle", choices=["numpy", "torch"], default="numpy")
    parser.add_argument("--text-bytes", type=int, default=20000)
    arguments = parser.parse_intermixed_args()
    if arguments.random and arguments.model:
        arguments.parts.insert(0, arguments.model)
    if not arguments.random and not arguments.model:
        parser.error("MODEL: expected a file, or --random, found neither")
    for part in arguments.parts:
        if part not in PARTS:
            parser.error(f"PART: expected one of {', '.join(PARTS)}, found {part}")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.random:
            maker = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_model.py")
            subprocess.run([sys.executable, maker, folder, "gemma3"], check=True, stdout=subprocess.DEVNULL)
            arguments.model = os.path.join(folder, "gemma3.gguf")
        broken = check(arguments)
    print("\n".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
