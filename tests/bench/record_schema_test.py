#!/usr/bin/env python3
"""Records of llmrt-bench keep to docs/bench.schema.json: record_schema_test.py PROGRAM SCHEMA

Runs a command that needs no device. Exit code 77 = skipped.
"""

import json
import os
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: expected Python with jsonschema")
    sys.exit(77)

PROGRAM, SCHEMA = sys.argv[1:]
validator = jsonschema.Draft202012Validator(json.load(open(SCHEMA)))


def record_of(folder, *arguments):
    path = os.path.join(folder, "record.json")
    run = subprocess.run([PROGRAM, *arguments, "--json", path], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{arguments[0]}: expected exit code 0, found {run.returncode}: {run.stderr}")
    record = json.load(open(path))
    errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(record)]
    assert not errors, errors
    assert record["command"] == arguments[0] and record["arguments"][1:-2] == list(arguments)
    assert record["is_complete"] and record["ended_at"] >= record["begun_at"] and record["rows"]
    return record


jsonschema.Draft202012Validator.check_schema(validator.schema)
with tempfile.TemporaryDirectory() as folder:
    record = record_of(folder, "batching", "--lengths", "3,8,2,5")
    assert [row["test"] for row in record["rows"]] == ["continuous", "static", "dynamic"]
    for name in record:
        cut = {key: value for key, value in record.items() if key != name}
        assert not validator.is_valid(cut), f"a record without {name} is taken"
    record["rows"][0]["values"]["steps"]["value"] = "many"
    assert not validator.is_valid(record)
print("records are as the schema says")
