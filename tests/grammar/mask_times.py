#!/usr/bin/env python3
"""How long the masks of a real vocabulary take: schemas compiled, walks under each with a fresh grammar, the thread's
own time.

    mask_times.py PROBE VOCABULARY.gguf [--source hypothesis|real|suite] [--schemas N] [--walks N] [--tokens N]
                  [--lenient] [--follow] [--seed N] [--verbose]

PROBE is mask_probe. Vocabularies of many models come with the sdist of llama-cpp-python on PyPI
(vendor/llama.cpp/models/ggml-vocab-*.gguf).
"""
import argparse
import collections
import json
import subprocess
import sys

import schema_sources


class Probe:
    def __init__(self, program, vocabulary):
        self.process = subprocess.Popen([program, vocabulary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = json.loads(self.process.stdout.readline() or "null")

    def ask(self, order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def row(name, values, unit, shares):
    figures = "  ".join(f"p{100 * share:g} {percentile(values, share):.3g}" for share in shares)
    return f"{name:44} {len(values):7}  {figures}  max {max(values, default=0):.3g} {unit}"


def read_schemas(args):
    if args.source == "hypothesis":
        return schema_sources.hypothesis(args.schemas, args.seed)
    return getattr(schema_sources, args.source)()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("vocabulary")
    parser.add_argument("--source", choices=["hypothesis", "real", "suite"], default="hypothesis")
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--walks", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lenient", action="store_true")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    schemas = read_schemas(args)
    if schemas is None:
        print(f"SKIP: the source {args.source} is not there and pip cannot download it")
        return 4
    probe = Probe(args.probe, args.vocabulary)
    print(f"{args.vocabulary}: {probe.about['tokens']} tokens, {probe.about['load_ms']:.0f} ms to load, "
          f"{probe.about['bytes'] / 2**20:.1f} MiB")
    compile_ms, first_ms, made_us, step_us, held, slow = [], [], [], [], [], []
    refusals, ends = [], collections.Counter()
    for i, (name, schema) in enumerate(schemas[:args.schemas]):
        answer = probe.ask({"schema": schema, "lenient": args.lenient, "walks": args.walks, "tokens_max": args.tokens,
                            "follow": args.follow, "seed": args.seed * 1000 + i})
        if not answer["compiled"]:
            refusals.append((name, f"{answer['code']}: {answer['message']}"))
            continue
        compile_ms.append(answer["compile_ms"])
        first_ms.append(answer["first_ms"])
        made_us += answer["made_us"]
        step_us += answer["step_us"]
        held.append(answer["bytes"] / 2**20)
        ends.update(each["end"] for each in answer["answers"])
        slow.append((max(answer["made_us"], default=0), answer["first_ms"], name, json.dumps(schema)[:160]))
        dead = [each["text"] for each in answer["answers"] if each["end"] == "dead"]
        if dead:
            print(f"dead end: {name}: {dead[0]}")
    print(f"{len(held)} schemas compiled, {len(refusals)} refused; answers: {dict(ends)}")
    for reason, count in collections.Counter(reason.split(": expected")[0] for _, reason in refusals).most_common(12):
        print(f"  refused {count}: {reason[:150]}")
    print(row("schema to network", compile_ms, "ms", (0.5, 0.99)))
    print(row("schema to first mask", first_ms, "ms", (0.5, 0.99)))
    print(row("first mask alone", [b - a for a, b in zip(compile_ms, first_ms)], "ms", (0.5, 0.99)))
    print(row("masks that were made", made_us, "us", (0.5, 0.99, 0.999)))
    print(row("all steps: token taken, mask there", step_us, "us", (0.5, 0.99, 0.999)))
    print(row("held by a grammar at the end", held, "MiB", (0.5, 0.99)))
    if args.verbose:
        for name, reason in refusals:
            print(f"refused: {name}: {reason}")
        for worst, first, name, schema in sorted(slow, reverse=True)[:15]:
            print(f"slow mask: {worst:.0f} us: {name}: {schema}")
        for worst, first, name, schema in sorted(slow, key=lambda each: -each[1])[:15]:
            print(f"slow first: {first:.1f} ms: {name}: {schema}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
