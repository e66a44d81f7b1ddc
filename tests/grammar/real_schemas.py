#!/usr/bin/env python3
"""How many of the schemas that people publish compile strictly: those of the PyPI package check-jsonschema 0.39.0.

    real_schemas.py PROBE [--cache DIR] [--walks N] [--least N]

Run by hand, with a Python that has jsonschema. What random walks along each grammar write must be valid, and no walk may
be stuck. Fails where fewer than `least` compile.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import zipfile

import jsonschema

from schema_compare import has_key_twice

VERSION = "0.39.0"
FOLDER = "check_jsonschema/builtin_schemas/vendor/"


def schemas(cache):
    cache.mkdir(parents=True, exist_ok=True)
    if not list(cache.glob("*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", f"check-jsonschema=={VERSION}", "--no-deps", "-q", "-d",
                        str(cache)], check=True, timeout=300)
    with zipfile.ZipFile(next(cache.glob("check_jsonschema-*.whl"))) as wheel:
        for name in sorted(wheel.namelist()):
            if name.startswith(FOLDER) and name.endswith(".json"):
                yield name[len(FOLDER):], json.loads(wheel.read(name))


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
    parser.add_argument("--cache", type=pathlib.Path, default=pathlib.Path.home() / ".cache/llmrt/real-schemas")
    parser.add_argument("--walks", type=int, default=30)
    parser.add_argument("--least", type=int, default=25)
    args = parser.parse_args()
    num_all, num_compiled, num_wrong = 0, 0, 0
    for name, schema in schemas(args.cache):
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
