#!/usr/bin/env python3
"""Answers drawn under masks of a real vocabulary, at temperature 1.5: each ends, and the package jsonschema finds it
valid, formats included. And masks against trying every token of the vocabulary.

    mask_walks.py PROBE [VOCABULARY.gguf] [--source suite|hypothesis|real] [--schemas N] [--walks N] [--tokens N]
                  [--brute-states N] [--lenient] [--seed N] [--verbose]

PROBE is mask_probe; without a vocabulary, that of $LLMRT_TEST_MODEL. Skips itself (exit code 4) where jsonschema, the
vocabulary or the schemas are missing. Fails on any answer that is invalid or meets a dead end, and on any wrong mask.
With the package regress, patterns are read as ECMAScript has them; else as Python has them, and the suite's groups
about the difference are left out. Answers with a name twice in an object are counted apart when they are invalid.
"""
import argparse
import collections
import copy
import decimal
import json
import os
import random
import re
import sys

try:
    import jsonschema
except ImportError:
    print("SKIP: no Python package jsonschema")
    sys.exit(4)

import mask_times
import schema_sources

try:
    import regress  # expressions as ECMAScript has them
except ImportError:
    regress = None

decimal.getcontext().prec = 10_000  # a multiple is told exactly
RELATIVE_POINTER = re.compile(r"(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)")
CUT_SHARE_MAX = 0.01  # of answers to which no end was found in time


def read(text):
    """The value, and whether an object in it has a name twice."""
    twins = []

    def pairs(given):
        made = dict(given)
        if len(made) != len(given):
            twins.append(True)
        return made

    return json.loads(text, object_pairs_hook=pairs, parse_float=decimal.Decimal), bool(twins)


def search(pattern, text):
    return regress.Regex(pattern, "u").find(text) is not None


def check_pattern(validator, pattern, instance, schema):
    if validator.is_type(instance, "string") and not search(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


def check_pattern_properties(validator, patterns, instance, schema):
    if validator.is_type(instance, "object"):
        for pattern, part in patterns.items():
            for name, value in instance.items():
                if search(pattern, name):
                    yield from validator.descend(value, part, path=name, schema_path=pattern)


def validator_of(schema):
    schema = json.loads(json.dumps(schema), parse_float=decimal.Decimal)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    formats = copy.deepcopy(kind.FORMAT_CHECKER)
    if "relative-json-pointer" in formats.checkers:  # the package takes 805 for a number with a leading zero
        formats.checkers["relative-json-pointer"] = (
            lambda text: not isinstance(text, str) or bool(RELATIVE_POINTER.fullmatch(text)), ())
    if regress:
        kind = jsonschema.validators.extend(
            kind, {"pattern": check_pattern, "patternProperties": check_pattern_properties})
    return kind(schema, format_checker=formats)


def judge(validator, text):
    try:
        value, has_twins = read(text)
    except ValueError:
        return "no JSON"
    try:
        error = next(validator.iter_errors(value), None)
    except Exception as stumble:  # a reference that cannot be had; a mistake of the package
        return f"not judged: {type(stumble).__name__}"
    if error is None:
        return "valid"
    return "invalid, with a name twice" if has_twins else f"invalid: {error.validator}: {str(error.message)[:200]}"


def choose(args):
    if args.source == "hypothesis":
        return schema_sources.hypothesis(args.schemas, args.seed)
    schemas = getattr(schema_sources, args.source)()
    if schemas and not regress:
        schemas = [(name, schema) for name, schema in schemas if "ecmascript-regex" not in name]
    if schemas and len(schemas) > args.schemas:
        schemas = random.Random(args.seed).sample(schemas, args.schemas)
    return schemas


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("vocabulary", nargs="?", default=os.environ.get("LLMRT_TEST_MODEL"))
    parser.add_argument("--source", choices=["suite", "hypothesis", "real"], default="suite")
    parser.add_argument("--schemas", type=int, default=270)
    parser.add_argument("--walks", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--brute-states", type=int, default=5, help="of a schema")
    parser.add_argument("--lenient", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    if not args.vocabulary:
        print("SKIP: expected a vocabulary, or LLMRT_TEST_MODEL")
        return 4
    schemas = choose(args)
    if schemas is None:
        print(f"SKIP: the source {args.source} is not there and pip cannot download it")
        return 4
    probe = mask_times.Probe(args.probe, args.vocabulary)
    counts, problems = collections.Counter(), []
    for i, (name, schema) in enumerate(schemas):
        answer = probe.ask({"schema": schema, "lenient": args.lenient, "walks": args.walks, "tokens_max": args.tokens,
                            "brute_states": args.brute_states, "seed": args.seed * 1000 + i})
        if not answer["compiled"]:
            counts["schemas refused"] += 1
            continue
        counts["schemas compiled"] += 1
        counts["masks held against all tokens"] += answer["brute"]
        problems += [f"{name}: wrong mask: {wrong}" for wrong in answer["wrong"]]
        validator = validator_of(schema)
        for each in answer["answers"]:
            verdict = judge(validator, each["text"]) if each["end"] == "whole" else each["end"]
            counts["answers: " + verdict.split(": ")[0]] += 1
            if args.verbose and verdict.startswith(("cut", "not judged", "invalid, with")):
                print(f"{verdict}: {name}: {json.dumps(schema)[:200]}")
            if each["end"] == "dead" or verdict.startswith(("invalid:", "no JSON")):
                problems.append(f"{name}: {verdict}: {each['text'][:300]}: {json.dumps(schema)[:300]}")
    for problem in problems:
        print("WRONG:", problem)
    print(f"{args.vocabulary}: {probe.about['tokens']} tokens; seed {args.seed}")
    for name, count in sorted(counts.items()):
        print(f"{count:7} {name}")
    num_answers = args.walks * counts["schemas compiled"]
    is_enough = counts["schemas compiled"] > 0 and counts["answers: cut"] <= CUT_SHARE_MAX * num_answers
    print(f"{len(problems)} wrong")
    return 1 if problems or not is_enough else 0


if __name__ == "__main__":
    sys.exit(main())
