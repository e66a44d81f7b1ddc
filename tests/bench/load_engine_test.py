"""llmrt-bench serve and capacity on an engine in process, with a real model.

Environment: LLMRT_BENCH (the binary), LLMRT_TEST_MODEL (SmolLM2-135M-Instruct as GGUF), LLMRT_TEST_DEVICE (auto).
"""

import csv
import json
import os
import pathlib
import subprocess

import jsonschema

BENCH = os.environ["LLMRT_BENCH"]
ENGINE = ["-m", os.environ["LLMRT_TEST_MODEL"], "-d", os.environ.get("LLMRT_TEST_DEVICE", "auto")]
SCHEMA = json.loads((pathlib.Path(__file__).parents[2] / "docs/bench.schema.json").read_text())


def bench(command, path, *arguments):
    told = subprocess.run([BENCH, command, *ENGINE, "--json", path, *map(str, arguments)], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    record = json.loads(path.read_text())
    jsonschema.validate(record, SCHEMA)
    return record


def test_serve_reads_prompts_and_forces_lengths(tmp_path):
    record = bench("serve", tmp_path / "record", "--requests", 4, "-p", 24, "-n", 6, "-c", 2, "--context", 256,
                   "--sequences", 4, "--warmup", 1)
    requests = record["rows"][0]["details"]["requests"]
    # As many tokens as words.
    assert [(request["prompt_tokens"], request["output_tokens"]) for request in requests] == [(24, 6)] * 4
    assert all(0 < request["ttft_ms"] < request["e2e_ms"] and len(request["itl_ms"]) == 5 for request in requests)


def test_serve_with_adapters_of_its_own(tmp_path):
    record = bench("serve", tmp_path / "record", "--requests", 6, "-p", 24, "-n", 4, "-c", 3, "--context", 256,
                   "--sequences", 4, "--warmup", 1, "--adapters", 3, "--zipf", 0.5, "--adapter-rank", 4,
                   "--adapter-slots", 2)
    details = record["rows"][0]["details"]
    assert details["completed"] == 6 and sum(entry["completed"] for entry in details["adapters"]) == 6


def test_serve_tells_what_the_engine_refuses(tmp_path):
    work = tmp_path / "work.jsonl"
    work.write_text('{"prompt_tokens": 8, "output_tokens": 2}\n{"prompt_tokens": 500, "output_tokens": 2}\n')
    record = bench("serve", tmp_path / "record", "--workload", work, "--context", 256, "--sequences", 4,
                   "--warmup", 1)
    details = record["rows"][0]["details"]
    assert details["completed"] == 1 and details["failures"] == {"refused": 1}
    assert "256" in details["requests"][1]["failure_detail"]


def test_capacity_writes_an_envelope(tmp_path):
    path = tmp_path / "envelope.csv"
    record = bench("capacity", tmp_path / "record", "--adapters", "2:1", "--adapter-rank", 4, "--prompts", "max,300", "--outputs", 3, "--context", 16, "--sequences",
                   4, "--trial-s", 1, "--requests-min", 4, "--trials-max", 3, "--burst-s", 1, "--slo-ttft-ms", 600,
                   "--slo-tpot-ms", 3000, "--out", path)
    first, second = csv.DictReader(path.open())
    assert first["prompt_tokens"] == "13" and first["adapter"] == "2:1" and second["verdict"] == "does_not_fit"
    assert "the context has 16" in second["note"] and second["highest_rate_per_s"] == ""
    if first["verdict"] == "met":
        assert 0 < float(first["highest_rate_per_s"]) < float(first["beyond_rate_per_s"])
        assert int(first["burst_requests"]) >= 4
    else:  # the machine is that slow
        assert first["verdict"] == "missed_alone"
    assert len(record["rows"]) + len(record["missing"]) == 2
