#!/usr/bin/env python3
"""Makes the fixtures: transformers' own classes in float32 on the CPU, with the weights of weights.py. Run by hand:

    make_oracles.py [FAMILY ...]          writes fixtures/FAMILY.json and .npz (all families without a name)
    make_oracles.py --mistakes            how far a wrong config moves transformers' log-probabilities

Needs numpy, torch and transformers (README.md says which). Of each prompt i the .npz holds
    logits_i     float32 [rows, vocabulary]: over the token behind each of the last 8 positions (a short prompt: all)
    logprobs_i   float32: of prompt tokens 1, 2, ...
    greedy_i, greedy_logprobs_i, margins_i: 16 tokens, their log-probabilities, and best minus second-best logit
"""

import argparse
import json
import math
import os
import re
import sys

import numpy as np
import torch
import transformers

import weights
from families import END, FAMILIES, WINDOW

SEED, STEPS, ROWS = 20261, 16, 8
LENGTHS = [3 * WINDOW + 7, 129, 1]


def numbers_of(family, name, shape):
    """How weights.py makes the tensor."""
    if family["arch"] == "gpt-oss" and re.search(r"experts\.(gate_up|down)_proj$", name):
        return ["mxfp4", round(math.log2(1.5 / math.sqrt(shape[1]) / 2.93))]  # 2.93: root mean square of random codes
    mean, deviation = next((mean, deviation) for pattern, mean, deviation in family["rules"] if re.search(pattern, name))
    if isinstance(deviation, str):
        deviation = float(deviation.removeprefix("gain ")) / math.sqrt(shape[-1])
    return ["normal", mean, deviation]


def build(family, **changes):
    """transformers' model with our weights, and its fixture."""
    config = {**family["config"], **changes}
    settings = transformers.AutoConfig.for_model(**json.loads(json.dumps(config)))
    settings._attn_implementation = "eager"
    settings.torch_dtype = torch.float32
    model = getattr(transformers, family["class"])(settings).float().eval()
    for part in model.modules():
        if hasattr(part, "time_step_limit"):  # nemotron_h: neither its training nor llama.cpp keeps steps above a least one
            part.time_step_limit = (0.0, float("inf"))
    state = model.state_dict()
    names = [name for name in state if not (config["tie_word_embeddings"] and name == "lm_head.weight")]
    fixture = {"seed": family.get("seed", SEED), "config": config,
               "tensors": [[name, list(state[name].shape), *numbers_of(family, name, state[name].shape)] for name in names]}
    missing, unexpected = model.load_state_dict(
        {name: torch.from_numpy(values.copy()) for name, values in weights.tensors(fixture).items()}, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model, fixture


def prompts_of():
    return [(weights.words(SEED, f"prompt of {length}", length) % END).astype(int).tolist() for length in LENGTHS]


def log_softmax(logits):
    return torch.log_softmax(torch.from_numpy(logits).double(), dim=-1).numpy()


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


def run(model, prompts):
    arrays = {}
    for index, prompt in enumerate(prompts):
        logits = logits_of(model, prompt)
        logprobs = log_softmax(logits)
        arrays[f"logits_{index}"] = logits[-ROWS:]
        arrays[f"logprobs_{index}"] = logprobs[np.arange(len(prompt) - 1), prompt[1:]].astype(np.float32)
        feed, margins, chosen = list(prompt), [], []
        for _ in range(STEPS):  # without a cache: each step is the plain forward pass
            last = logits_of(model, feed)[-1]
            second, best = np.sort(last)[-2:]
            margins.append(best - second)
            feed.append(int(np.argmax(last)))
            chosen.append(log_softmax(last)[feed[-1]])
        arrays[f"greedy_{index}"] = np.array(feed[len(prompt):], np.int32)
        arrays[f"greedy_logprobs_{index}"] = np.array(chosen, np.float32)
        arrays[f"margins_{index}"] = np.array(margins, np.float32)
    return arrays


def prompt_logprobs(model):
    prompts = [prompt for prompt in prompts_of() if len(prompt) > 1]
    return np.concatenate([log_softmax(logits_of(model, prompt))[np.arange(len(prompt) - 1), prompt[1:]] for prompt in prompts])


def distance_of_float16(model):
    """Largest and mean change of the prompts' log-probabilities where matrices read float16, as they do on most devices, and
    keys and values are float16 (here before their rotation)."""
    right = prompt_logprobs(model)
    parts = [part for part in model.modules() if isinstance(part, torch.nn.Linear) or type(part).__name__ == "GptOssExperts"]
    hooks = [part.register_forward_pre_hook(lambda _, given: (given[0].half().float(), *given[1:])) for part in parts]
    kept = [part for name, part in model.named_modules() if name.endswith(("k_proj", "v_proj"))]
    hooks += [part.register_forward_hook(lambda _, given, out: out.half().float()) for part in kept]
    difference = np.abs(prompt_logprobs(model) - right)
    for hook in hooks:
        hook.remove()
    return difference.max(), difference.mean()


def write(name, family):
    model, fixture = build(family)
    fixture["prompts"] = prompts_of()
    arrays = run(model, fixture["prompts"])
    path = os.path.join(weights.FIXTURES, name)
    np.savez_compressed(path + ".npz", **arrays)
    versions = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    made_by = f"{versions}, {family['class']}, float32, eager"
    lines = ",\n".join(json.dumps(tensor) for tensor in fixture["tensors"])
    with open(path + ".json", "w", encoding="utf-8") as file:
        file.write(f'{{"made_by": {json.dumps(made_by)}, "seed": {fixture["seed"]},\n'
                   f'"config": {json.dumps(fixture["config"])},\n"prompts": {json.dumps(fixture["prompts"])},\n"tensors": [\n{lines}]}}\n')
    logprobs = np.concatenate([arrays[f"logprobs_{i}"] for i in range(len(LENGTHS))])
    far, mean = distance_of_float16(model)
    size = sum(os.path.getsize(path + end) for end in (".npz", ".json"))
    margin = min(arrays[f"margins_{i}"].min() for i in range(len(LENGTHS)))
    print(f"{name}: {len(fixture['tensors'])} tensors, {size / 1000:.0f} KB, log-probabilities {logprobs.mean():.2f} +- "
          f"{logprobs.std():.2f}, smallest margin {margin:.4f}, float16 moves them by {far:.4f}, in the mean {mean:.5f}")


MISTAKES = [
    ("gemma3", {"sliding_window": WINDOW + 1}), ("gemma3", {"sliding_window": WINDOW - 1}),
    ("gemma3", {"rope_local_base_freq": 1e6}), ("gemma3", {"rope_scaling": None}),
    ("qwen3moe", {"norm_topk_prob": False}), ("qwen3moe", {"num_experts_per_tok": 3}),
    ("gpt-oss", {"sliding_window": WINDOW + 1}), ("gpt-oss", {"sliding_window": WINDOW - 1}),
    ("gpt-oss", {"rope_scaling": FAMILIES["gpt-oss-rounded"]["config"]["rope_scaling"]}),
    ("mixtral", {"num_experts_per_tok": 2}), ("llama", {"rope_scaling": None}),
]


def report_mistakes():
    for name, changes in MISTAKES:
        right, wrong = (prompt_logprobs(build(FAMILIES[name], **change)[0]) for change in ({}, changes))
        difference = np.abs(right - wrong)
        print(f"{name} {changes}: largest {difference.max():.4f}, mean {difference.mean():.5f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--mistakes", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    if arguments.mistakes:
        return report_mistakes()
    os.makedirs(weights.FIXTURES, exist_ok=True)
    for name in arguments.families or FAMILIES:
        write(name, FAMILIES[name])


if __name__ == "__main__":
    sys.exit(main())
