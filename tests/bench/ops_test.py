#!/usr/bin/env python3
"""`llmrt-bench ops` on a real device, from outside: ops_test.py PROGRAM SCHEMA

The record keeps to the schema and its figures to each other, every kernel is right or says why it was not compared, and
bad flags are refused with what was expected. Exit code 77 = skipped.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: expected Python with jsonschema")
    sys.exit(77)

PROGRAM, SCHEMA = sys.argv[1:]
STEPS = ["decode x2 of 3 tokens", "decode x2, 2 adapters", "prompt 16"]


def ops(*arguments):
    return subprocess.run([PROGRAM, "ops", *arguments], capture_output=True, text=True)


def near(a, b):
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def check_record(record):
    jsonschema.Draft202012Validator(json.load(open(SCHEMA))).validate(record)
    assert record["is_complete"] and record["command"] == "ops"
    rows = {row["test"]: row for row in record["rows"]}
    assert {"limit: read", "limit: write", "limit: copy"} <= rows.keys(), rows.keys()
    for step in STEPS:
        kernels = [row for test, row in rows.items() if test.startswith(step + ": ")]
        names = {row["details"]["kernel"] for row in kernels}
        assert {"matmul qkv", "matmul head", "paged_attention", "sample", "filter"} <= names, names
        assert ({"adapter_shrink qkv", "adapter_expand down"} <= names) == ("adapters" in step), names
        assert near(sum(row["details"]["of_step"] for row in kernels), 1)
        sum_ms = 0
        for row in kernels:
            details, values = row["details"], row["values"]
            assert len(values["time"]["samples"]) == 2
            us = values["time"]["value"]
            assert near(us, statistics.median(values["time"]["samples"]))
            sum_ms += us * details["count"] / 1e3
            assert near(values["lost"]["value"], max(0, us - details["floor_us"]) * details["count"] / 1e3)
            if us > 0:
                assert near(values["bandwidth"]["value"], details["bytes"] / us / 1e3)
            assert not details["is_wrong"] and details["compared"], details
            if details["error"] is None:
                assert details["kernel"] in ("update_rows", "adapter_shrink head"), details
            else:
                assert details["error"] <= details["error_bound"], details
        assert near(rows[step]["details"]["sum_ms"], sum_ms)
        assert len(rows[step]["values"]["time"]["samples"]) == 2


def refused(found, *arguments):
    run = ops(*arguments)
    assert run.returncode != 0 and found in run.stdout + run.stderr, (arguments, run)


refused("--rows", "--rows", "0")
refused("--runs", "--runs", "none")
refused("--tokens", "--tokens", "9")
refused("expected f16", "--kv", "f12")
for text in ("4", "4:", ":1", "2:3", "70:65", "5000:1", "4:1x"):
    refused("expected ROWS:ADAPTERS", "-m", "synthetic:smollm2-135m:q4_1", "--adapted", text)
refused("no such synthetic shape", "-m", "synthetic:none:q4_0")
refused("--json", "-m", "synthetic:smollm2-135m:q4_1", "--json", "/nowhere/x")
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "ops.json")
    run = ops("-m", "synthetic:smollm2-135m:q4_1", "-r", "2", "--tokens", "3", "-p", "16", "--adapted", "2:2",
              "--adapter-rank", "8", "--depth", "16", "--runs", "2", "--json", path)
    if "found none" in run.stderr or "no device" in run.stderr:
        print("skipped:", run.stderr)
        sys.exit(77)
    assert run.returncode == 0, run
    check_record(json.load(open(path)))
    for line in ["furthest from their limit", "decode x2 of 3 tokens, ", "  5. ", "Not compared with the reference"]:
        assert line in run.stdout, (line, run.stdout)
print("ops measures what it says")
