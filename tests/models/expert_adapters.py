#!/usr/bin/env python3
"""Adapters on experts, as served, against models with the same products merged into their weights.

    expert_adapters.py PROGRAM [--device auto] [--families a,b]

PROGRAM serves models of tests/models/oracles with experts, each with one random adapter on all matrices, experts
included, as a PEFT folder (per expert or one tensor for all, as the family has it) and as a GGUF file.
  prompts    log-probabilities of prompts by the adapter are those of the merged model, and not those of the model:
             on the float64 reference all within 0.01, else 95 of 100 within 0.1, as rounded numbers may choose other
             experts
  batches    rows of the adapter and of the model at once, bit for bit what each is alone (batch-invariant)
Prints one line each; exits with 1 when any bound is broken. Needs numpy and gguf.
"""

import argparse
import concurrent.futures
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "adapter")]
try:
    import adapter_weights
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import http_accuracy  # noqa: E402

# A tensor of each expert; of all with a shared expert in the stack; gates and other halves in turn; without gates.
FAMILIES = ["qwen3moe", "qwen35moe", "gpt-oss", "nemotron_h_moe-latent"]
# Their rows' states are rounded where a step ends, so they are not compared bit for bit.
RECURRENT = ["qwen35moe", "nemotron_h_moe-latent"]
STRENGTH = 0.25


class Server(http_accuracy.Server):
    def logprobs(self, name, tokens, **fields):
        body = {"prompt": tokens, "max_tokens": 0, "echo": True, "logprobs": 1, **fields}
        return np.array(self.request(body, name)["choices"][0]["logprobs"]["token_logprobs"][1:], np.float64)

    def answer(self, name, tokens):
        body = {"prompt": tokens, "max_tokens": 4, "temperature": 0, "logprobs": 1, "return_token_ids": True,
                "ignore_eos": True, "batch_invariant": True}
        choice = self.request(body, name)["choices"][0]
        return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def start(arguments, path, *options):
    return Server(arguments, path, 256, ["--kv-tokens", "2048", "--drain-notice-s", "0", "--step-tokens", "32",
                                         "--name", "base", *options])


def check_family(arguments, family, folder):
    """Lines of what is broken."""
    fixture, tensors, merged, pairs, stacks = adapter_weights.adapted(family, STRENGTH)
    kind = "folder" if family == "gpt-oss" else "gguf"
    base = adapter_weights.write_models(family, fixture, tensors, os.path.join(folder, "base"), [kind])[kind]
    goal = adapter_weights.write_models(family, fixture, merged, os.path.join(folder, "goal"), [kind])[kind]
    peft = adapter_weights.write_released(os.path.join(folder, "peft"), fixture["config"], pairs, stacks)
    gguf = adapter_weights.write_gguf_adapter(os.path.join(folder, "a.gguf"), family, fixture["config"],
                                              adapter_weights.ALPHA, pairs, stacks)
    random = np.random.default_rng(3)
    prompts = [random.integers(0, 256, length).tolist() for length in (1 + 70, 5)]
    server = start(arguments, goal)
    expected = [server.logprobs("base", prompt) for prompt in prompts]
    server.stop()
    server, broken = start(arguments, base, "--adapter", f"peft={peft}", "--adapter", f"gguf={gguf}"), []
    try:
        apart = min(np.abs(server.logprobs("base", prompt) - goal_of).max()
                    for prompt, goal_of in zip(prompts, expected))
        for name in ("peft", "gguf"):
            found = np.concatenate([np.abs(server.logprobs(name, prompt) - goal_of)
                                    for prompt, goal_of in zip(prompts, expected)])
            near = np.quantile(found, 1 if arguments.device.startswith("reference") else 0.95)
            bound = 0.01 if arguments.device.startswith("reference") else 0.1
            print(f"{family} {name}: {len(found)} tokens, {near:.5f} from the merged model, {apart:.2f} from the model",
                  flush=True)
            if not near <= bound or not apart > 10 * bound:
                broken.append(f"{family} {name}: expected at most {bound} from the merged model and more from the model")
        asked = [(name, prompt) for prompt in (prompts[1], prompts[0][:33], prompts[0][:20])
                 for name in ("peft", "base", "gguf")]
        if family in RECURRENT:
            return broken
        alone = [server.answer(*each) for each in asked]
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            together = list(pool.map(lambda each: server.answer(*each), asked))
        different = [index for index in range(len(asked)) if alone[index] != together[index]]
        if different:
            broken.append(f"{family}: rows among others are not the rows alone: {different}")
    finally:
        server.stop()
    return broken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--families", default=",".join(FAMILIES))
    arguments = parser.parse_args()
    arguments.kv_dtype = "f16"
    broken = []
    for family in arguments.families.split(","):
        with tempfile.TemporaryDirectory() as folder:
            broken += check_family(arguments, family, folder)
    print("\n".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
