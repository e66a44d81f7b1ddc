#!/usr/bin/env python3
"""llmrt-bench from outside: its records keep to docs/bench.schema.json, compare and report read them.

    commands_test.py PROGRAM SCHEMA             commands that need no device
    commands_test.py PROGRAM SCHEMA --device    small runs on the first usable device; agree with LLMRT_TEST_MODEL

Exit code 77 = skipped.
"""

import csv
import io
import json
import math
import os
import stat
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: expected Python with jsonschema")
    sys.exit(77)

PROGRAM, SCHEMA = sys.argv[1:3]
MODEL = "synthetic:smollm2-135m:q4_0"
validator = jsonschema.Draft202012Validator(json.load(open(SCHEMA)))


def run(*arguments, code=0):  # None: any but 0
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    is_right = done.returncode != 0 if code is None else done.returncode == code
    assert is_right, f"{arguments}: expected exit code {code}, found {done.returncode}: {done.stderr}"
    return done


def record_of(*arguments):
    done = run(*arguments, "--json", "record.json")
    record = json.load(open("record.json"))
    errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(record)]
    assert not errors, errors
    assert record["command"] == arguments[0] and record["arguments"][1:-2] == list(arguments)
    assert record["is_complete"] and record["ended_at"] >= record["begun_at"] and record["rows"]
    return record, done.stdout


def write(path, record):
    with open(path, "w") as file:
        json.dump(record, file)
    return path


def check_schema(record):
    validator.check_schema(validator.schema)
    for name in record:
        cut = {key: value for key, value in record.items() if key != name}
        assert not validator.is_valid(cut), f"a record without {name} is taken"
    wrong = json.loads(json.dumps(record))
    wrong["rows"][0]["values"]["steps"]["value"] = "many"
    assert not validator.is_valid(wrong)


def check_compare(record):
    record["rows"] = [{"test": "pp8", "device": None, "details": {}, "clocks": None,
                       "values": {"tok_s": {"value": 100, "unit": "tok/s", "samples": [99, 100, 101]}}}]
    a = write("a.json", record)
    record["rows"][0]["values"]["tok_s"] = {"value": 90, "unit": "tok/s", "samples": [89, 90, 91]}
    b = write("b.json", record)
    told = run("compare", a, b, "--price-per-hour", "3.6,1.8").stdout
    assert "0.900" in told and "10.0 % slower" in told, told
    assert "10.0000" in told and "5.5556" in told, told  # USD a million tokens
    for price in ("nan", "inf", "0", "-1", "1,nan", "1,2,3"):
        assert "--price-per-hour" in run("compare", a, b, "--price-per-hour", price, code=None).stderr, price
    assert "--fail-if-slower" in run("compare", a, b, "--fail-if-slower", "nan", code=None).stderr
    run("compare", a, b, "--fail-if-slower", "10.5")
    assert "10.0 % slower" in run("compare", a, b, "--fail-if-slower", "9.5", code=1).stderr
    run("compare", b, a, "--fail-if-slower", "0")
    values = {"tpot_p50": {"value": 0, "unit": "ms", "samples": []},
              "late_p50": {"value": 1, "unit": "ms", "samples": []}}
    record["rows"][0]["values"] = values
    zero = write("d.json", record)
    values["late_p50"]["value"] = 5
    told = run("compare", zero, write("e.json", record), "--fail-if-slower", "0").stdout
    assert "late_p50" in told and "nan" not in told, told
    for rate in (0, None, 1e-320):  # nothing came, or nobody knows: no price, and no ratio of prices
        record["rows"][0]["values"] = {"tok_s": {"value": rate, "unit": "tok/s", "samples": [None]}}
        told = run("compare", a, write("f.json", record), "--price-per-hour", "3.6").stdout
        assert "10.0000          -   B / A -" in told and "nan" not in told, told
    record["rows"][0]["values"] = {"tok_s": {"value": 90, "unit": "tok/s", "samples": []}}
    record["rows"][0]["test"] = "pp9"
    assert "found none" in run("compare", a, write("c.json", record), code=1).stderr
    record["work"]["lengths"] = [1]
    told = run("compare", a, write("c.json", record), code=1).stderr
    assert "work.lengths: [3,8,2,5] and [1]" in told, told


def check_report():
    run("report", "a.json", "b.json", "-o", "report.html")
    page = open("report.html").read()
    assert "Side by side" in page and "<script" not in page and "http:" not in page and "https:" not in page
    open("bad.json", "w").write('{"schema_version": 1, "command": 5}')
    assert "command: expected a string, found 5" in run("report", "bad.json", "-o", "none.html", code=1).stderr
    assert not os.path.exists("none.html")


def check_agree_saved(record):
    record["command"] = "agree"
    record["work"] = {"model_digest": "aa", "window": 4}
    answers = {"tokens": [5, 6], "logprobs": [-0.5, -0.25], "top": [[[5, -0.5], [7, -1.5]], [[6, -0.25], [5, -2.0]]],
               "greedy": [[[1, 0.5], [2, 0.25]]], "logits": None}
    record["rows"] = [{"test": "answers", "device": "cuda:0", "details": answers, "clocks": None,
                       "values": {"nll": {"value": 0.375, "unit": "nats", "samples": []}}}]
    a = write("a.json", record)
    answers.update(logprobs=[-0.75, -0.25], greedy=[[[1, 0.5], [9, 0.125]]])
    answers["top"][0][0][1] = -0.75
    b = write("b.json", record)
    joined, told = record_of("agree", a, b)
    assert "mean NLL 0.37500" in told and "mean NLL 0.50000" in told, told
    assert "prompt 0 step 1: token 2 by 0.2500 and token 9 by 0.1250" in told, told
    values = {name: value["value"] for name, value in joined["rows"][0]["values"].items()}
    p, q = [math.exp(-0.5), math.exp(-1.5)], [math.exp(-0.75), math.exp(-1.5)]
    kl = sum(x * math.log(x / y) for x, y in zip([*p, 1 - sum(p)], [*q, 1 - sum(q)])) / 2
    assert abs(values["mean_kl"] - kl) < 1e-6 and values["paths_that_differ"] == 1, values
    record["work"]["window"] = 8
    told = run("agree", a, write("c.json", record), code=1).stderr
    assert "a.json and c.json: expected the same text and model, found work.window: 4 and 8" in told, told
    answers["top"].pop()
    record["work"]["window"] = 4
    assert "top: expected 2 entries, found 1" in run("agree", a, write("c.json", record), code=1).stderr
    assert "at least two devices, found 1" in run("agree", a, code=1).stderr
    assert "found none" in run("agree", code=1).stderr


# One device, whose second run has a coarser cache.
def check_agree(model):
    with open("text.txt", "w") as file:
        file.write(" ".join(f"Chapter {i}. A river of {i * i} miles runs to the sea." for i in range(1, 30)))
    small = ["agree", "-m", model, "-t", "text.txt", "--tokens", "100", "--window", "64", "--prompts", "1", "-n", "4"]
    run(*small, "--json", "a.json", "--logits", "f32")
    run(*small, "--json", "b.json", "--logits", "f16")
    run(*small, "--json", "c.json", "--logits", "f16", "--kv", "int8")

    def pair(a, b):
        joined, _ = record_of("agree", a, b)
        row = joined["rows"][0]
        return row["details"]["kl_of"], {name: value["value"] for name, value in row["values"].items()}

    of, same = pair("a.json", "b.json")
    assert of == "whole" and same["mean_kl"] < 1e-4 and same["nll_a"] == same["nll_b"], same
    _, whole = pair("a.json", "c.json")
    run(*small, "--json", "d.json")
    of, listed = pair("d.json", "c.json")
    assert of == "listed" and 1e-6 < listed["mean_kl"] < whole["mean_kl"] < 0.1, (listed, whole)
    saved = json.load(open("a.json"))["rows"][0]["details"]["logits"]
    assert saved["positions"] == 98 and os.path.getsize(saved["file"]) == 98 * saved["vocab_size"] * 4
    with open(saved["file"], "r+b") as file:
        file.write(b"damaged")
    assert "digest" in run("agree", "a.json", "b.json", code=1).stderr


def check_batching():
    record, told = record_of("batching", "-m", MODEL, "-d", "auto", "--lengths", "3,8", "--prompts", "20", "--chunks",
                             "64", "--streams", "1", "--long-prompt", "150", "--blocks", "16,64", "--repeats", "1")
    rows = {(row["test"], row["device"]): row["values"] for row in record["rows"]}
    device = record["devices"][0]["id"]
    assert all(rows["chunks of 64", device][name]["value"] > 0 for name in ("ttft", "worst_itl", "plain_itl")), told
    # Chunks begin at 0, 63 and 126; f16 keys and values of 30 layers with 3 heads of 64 numbers.
    assert rows["chunks of 64", None]["kv_read_again_bytes"]["value"] == (63 + 126) * 30 * 2 * 3 * 64 * 2, told
    assert rows["blocks of 64", None]["kv_waste"]["value"] > rows["blocks of 16", None]["kv_waste"]["value"]
    assert len(rows["blocks of 16", device]["tok_s"]["samples"]) == 1
    assert "requires --model" in run("batching", "-d", "auto", code=107).stderr


def check_model():
    small = ["model", "-m", MODEL, "-p", "8", "-r", "2", "--depth", "8", "-n", "6", "--repeats", "2"]
    record, _ = record_of(*small)
    assert [row["test"] for row in record["rows"]] == ["pp8", "tg6@8 x2"]
    for row in record["rows"]:
        rates = row["values"]["tok_s"]
        assert len(rates["samples"]) == 2 and min(rates["samples"]) <= rates["value"] <= max(rates["samples"])
    rows = list(csv.DictReader(io.StringIO(run(*small, "--format", "csv").stdout)))
    assert [(row["n_prompt"], row["n_gen"], row["n_depth"], row["pl"]) for row in rows] == [("8", "0", "0", "1"),
                                                                                           ("0", "6", "8", "2")]
    rows = json.loads(run(*small, "--format", "json").stdout)
    assert all(len(row["samples_ts"]) == 2 and row["avg_ts"] > 0 for row in rows)
    assert "context" in run("model", "-m", MODEL, "-p", "1000000", code=1).stderr


def check_sweep():
    small = ["sweep", "-m", MODEL, "-r", "3", "--depth", "20", "--steps", "2"]
    record, told = record_of(*small)
    assert [row["test"] for row in record["rows"]] == ["tg2@20 x1", "tg2@20 x2", "tg2@20 x3"]
    for row in record["rows"]:
        num_rows, values = row["details"]["n_rows"], row["values"]
        assert values["ms"]["value"] == min(values["ms"]["samples"]) and len(values["ms"]["samples"]) == 2
        assert abs(values["tok_s"]["value"] * values["ms"]["value"] - 1e3 * num_rows) < 1e-6 * num_rows
    rates = [row["values"]["tok_s"]["value"] for row in record["rows"]]
    largest = max(0, *(100 * (1 - more / fewer) for fewer, more in zip(rates, rates[1:])))
    assert f"largest fall of the total by a row more: {largest:.1f} %" in told, told
    run("report", "record.json", "-o", "sweep.html")
    assert "Throughput against latency of decode" in open("sweep.html").read()
    assert "context" in run("sweep", "-m", MODEL, "--depth", "1000000", code=1).stderr


def check_pipelines():
    told = run("pipelines", "-m", MODEL, "--kv", "f16,int8", "--tokens-max", "2").stdout
    assert told.count("lists compiled") == 2 and "KV int8" in told, told
    assert "--kv: expected" in run("pipelines", "-m", MODEL, "--kv", "f7", code=1).stderr


# A program that says when its parts were over stands for llmrt: the parts are what it said.
def check_startup():
    with open("llmrt", "w") as file:
        file.write("""#!/usr/bin/env python3
import json, time
begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
at = {name: begun + ms * 1000000 for name, ms in
      dict(begun=0, model=10, device=30, weights=60, engine=100, first_token=150).items()}
print(json.dumps({"start_ns": at, "first_token_device_ms": 20}))
""")
    os.chmod("llmrt", os.stat("llmrt").st_mode | stat.S_IXUSR)
    record, _ = record_of("startup", "-m", MODEL, "--repeats", "2", "--program", "./llmrt")
    assert [row["test"] for row in record["rows"]] == ["cold", "warm"]
    for row in record["rows"]:
        found = {name: round(value["value"], 3) for name, value in row["values"].items()}
        assert 0 < found.pop("process") < found.pop("total") - 150 + 1
        assert found == dict(model=10, device=20, weights=30, engine=40, first_host=30, first_device=20), found
    assert "exit code 0" in run("startup", "-m", MODEL, "--program", "/bin/false", code=1).stderr
    record, _ = record_of("startup", "-m", MODEL, "--repeats", "1", "--caches", "warm")  # the real one
    assert all(value["value"] > 0 for value in record["rows"][0]["values"].values())
    run("report", "record.json", "-o", "start.html")
    assert "From exec to the first token" in open("start.html").read()


with tempfile.TemporaryDirectory() as folder:
    PROGRAM = os.path.abspath(PROGRAM)
    os.chdir(folder)
    if sys.argv[3:] == ["--device"]:
        if subprocess.run([os.path.join(os.path.dirname(PROGRAM), "llmrt"), "devices"], capture_output=True).returncode:
            print("skipped: no usable device")
            sys.exit(77)
        check_batching()
        check_model()
        check_sweep()
        check_pipelines()
        check_startup()
        if model := os.environ.get("LLMRT_TEST_MODEL"):
            check_agree(model)
    else:
        record, _ = record_of("batching", "--lengths", "3,8,2,5")
        assert [row["test"] for row in record["rows"]] == [
            "continuous", "static", "dynamic", "chunks of 64", "chunks of 512", "chunks of 1024", "chunks of 4096",
            "blocks of 16", "blocks of 32", "blocks of 64"]
        check_schema(record)
        check_compare(record)
        check_report()
        check_agree_saved(record)
print("as documented")
