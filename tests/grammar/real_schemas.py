#!/usr/bin/env python3
"""How many of the schemas that people publish compile strictly: those of the PyPI package check-jsonschema
(schema_sources.py).

    real_schemas.py PROBE [--walks N] [--least N]

Run by hand, with a Python that has jsonschema. What random walks along each grammar write must be valid, and no walk may
be stuck. Fails where fewer than `least` compile.
"""
import argparse
import json
import re
import subprocess
import sys

import jsonschema

import schema_sources
from schema_compare import has_key_twice


def problem(validator, text):
    if re.search("[0-9.]{15}", text):  # more than a float holds
        return None
    if has_key_twice(text):
        return "a key twice"
    error = next(validator.iter_errors(json.loads(text)), None)
    return error and error.message[:200]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("--walks", type=int, default=30)
    parser.add_argument("--least", type=int, default=25)
    args = parser.parse_args()
    num_all, num_compiled, num_wrong = 0, 0, 0
    schemas = schema_sources.real()
    if schemas is None:
        sys.exit("the schemas cannot be had from PyPI")
    for name, schema in schemas:
        line = json.dumps({"schema": schema, "instances": [], "walks": args.walks}) + "\n"
        answer = json.loads(subprocess.run([args.probe], input=line, capture_output=True, text=True, check=True).stdout)
        num_all += 1
        if not answer["compiled"]:
            print(f"{name}: {answer['message']}")
            continue
        num_compiled += 1
        validator = jsonschema.validators.validator_for(schema)(schema)
        wrong = [(text, what) for text in answer["written"] if (what := problem(validator, text))]
        wrong += [(text, "stuck") for text in answer["stuck"]]
        num_wrong += len(wrong)
        print(f"{name}: {answer['ms']:.0f} ms, {answer['symbols']} symbols, {len(answer['written'])} texts")
        for text, what in wrong[:3]:
            print(f"  WRONG: {what}: {text[:500]}")
    print(f"{num_compiled} of {num_all} compiled, {num_wrong} wrong")
    return 1 if num_wrong or num_compiled < args.least else 0


if __name__ == "__main__":
    sys.exit(main())
