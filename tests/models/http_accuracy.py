#!/usr/bin/env python3
"""The served model against the numpy reference, over the HTTP API: is what users get what the weights say?

    http_accuracy.py PROGRAM MODEL [--device auto] [--prompts N] [--steps N] [--text FILE] [--windows N] [--kv-dtype f16]
    http_accuracy.py PROGRAM --random-models   every file of make_model.py (the architectures without real weights here),
                                               on prompts of random ids

Three questions, each with its bound (8-bit KV has looser ones):
  greedy     along the reference's greedy path, a step whose margin is >= 0.1 must match
  logprobs   teacher-forced log-probabilities of the prompts: largest difference 0.1, mean 0.02
  nll        mean negative log-likelihood of a text in windows of 512: within 0.003
Prints one line each; exits with 1 when any bound is broken.
"""

import argparse
import atexit
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reference  # noqa: E402

PROMPTS = [
    "The old bridge over the canal was closed because",
    "import os\n\ndef list_files(path):\n    for name in",
    "Q: What is 17 + 25?\nA:",
    "Le petit village se trouve",
    "A list of fruits: apples, pears,",
    "The committee decided, after much debate, that the",
    "{\"name\": \"Ada\", \"born\": 1815, \"field\":",
    "Dragons are said to",
    "To make tea, first boil the water. Then",
    "The speed of light is about",
]


class Server:
    def __init__(self, arguments, model, context, options=()):
        self.process = subprocess.Popen(
            [arguments.program, "serve", model, "--port", "0", "--device", arguments.device, "--context", str(context),
             "--kv-dtype", arguments.kv_dtype, *options], stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.terminate)  # whatever ends the script
        log = []
        for line in self.process.stderr:
            log.append(line)
            found = re.search(r"on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.url = f"http://127.0.0.1:{found.group(1)}"
                return
        raise SystemExit("the server did not start:\n" + "".join(log))

    def request(self, body, model=None):
        """What /v1/completions answers; without a name, of the first model that is listed."""
        if model is None:
            with urllib.request.urlopen(f"{self.url}/v1/models", timeout=30) as response:
                model = json.load(response)["data"][0]["id"]
        body["model"] = model
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=1800) as response:
            return json.load(response)

    def complete(self, tokens, **fields):
        body = {"prompt": [int(token) for token in tokens], "temperature": 0, **fields}
        return self.request(body)["choices"][0]

    def prompt_logprobs(self, tokens):
        """Of tokens[1:]."""
        choice = self.complete(tokens, max_tokens=0, echo=True, logprobs=1)
        return np.array(choice["logprobs"]["token_logprobs"][1:], np.float64)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def check_greedy(server, model, prompts, steps):
    broken, followed, total = [], 0, 0
    for index, prompt in enumerate(prompts):
        path, best = model.greedy(prompt, steps)
        feed = list(prompt)
        for step in range(steps):
            # Each step is asked from the reference's own path, so one near tie does not hide the rest.
            if step == 0 or served[0] != path[step - 1]:
                served = server.complete(feed, max_tokens=steps - step, return_token_ids=True, ignore_eos=True)["token_ids"]
            else:
                served = served[1:]
            margin = best[step][0][1] - best[step][1][1]
            total += 1
            followed += served[0] == path[step]
            if served[0] != path[step] and margin >= 0.1:
                broken.append(f"prompt {index} step {step}: expected {path[step]}, found {served[0]}, margin {margin:.3f}")
            feed.append(path[step])
    print(f"greedy: {followed} of {total} steps equal, {len(broken)} broken with a margin >= 0.1")
    return broken


def check_logprobs(server, model, prompts, largest_allowed, mean_allowed):
    differences = []
    for prompt in prompts:
        differences.append(np.abs(server.prompt_logprobs(prompt) - model.next_logprobs(prompt)))
    differences = np.concatenate(differences)
    print(f"logprobs: {len(differences)} tokens, largest difference {differences.max():.4f}, mean {differences.mean():.5f}")
    if differences.max() > largest_allowed or differences.mean() > mean_allowed:
        return [f"logprobs: expected at most {largest_allowed} and {mean_allowed} in the mean"]
    return []


def check_nll(server, model, tokens, windows, allowed):
    tokens = tokens[: 512 * windows]
    expected, count = model.nll(tokens)
    served = np.concatenate([server.prompt_logprobs(tokens[i:i + 512]) for i in range(0, len(tokens), 512)
                             if len(tokens[i:i + 512]) > 1])
    found = -served.mean()
    print(f"nll: {count} tokens, reference {expected:.5f}, served {found:.5f}, difference {found - expected:+.5f}")
    return [] if abs(found - expected) <= allowed else [f"nll: expected a difference of at most {allowed}"]


def check_model(arguments, path, prompts, text):
    """Lines that say which bound is broken."""
    model = reference.Reference(path)
    loose = 5 if arguments.kv_dtype == "int8" else 1
    server = Server(arguments, path, min(1024, model.config.context))
    try:
        broken = check_logprobs(server, model, prompts, 0.1 * loose, 0.02 * loose)
        broken += check_greedy(server, model, prompts, arguments.steps)
        if text:
            broken += check_nll(server, model, text, arguments.windows, 0.003 * loose)
    finally:
        server.stop()
    return [f"{os.path.basename(path)}: {line}" for line in broken]


def check_random_models(arguments):
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_model.py"), folder],
                       check=True, stdout=subprocess.DEVNULL)
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            config = reference.Reference(path).config
            random = np.random.default_rng()
            vocabulary = reference.Reference(path).weight("token_embd.weight").shape[0]
            # Long enough to pass the lengths where scaled RoPE differs most.
            lengths = [1, 7, config.context // 2, config.context - arguments.steps - 1]
            print(name)
            prompts = [random.integers(0, vocabulary, length).tolist() for length in lengths]
            broken += check_model(arguments, path, prompts, None)
    return broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--random-models", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--kv-dtype", default="f16")
    arguments = parser.parse_args()
    if arguments.random_models:
        broken = check_random_models(arguments)
    else:
        tokenizer = reference.tokenizer_of(arguments.model)
        encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
        text = None
        if arguments.windows:
            with open(arguments.text, encoding="utf-8") as file:
                text = encode(file.read(200_000))
        broken = check_model(arguments, arguments.model, [encode(text) for text in PROMPTS[: arguments.prompts]], text)
    print("\n".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
