#!/usr/bin/env python3
"""tools/gpu/outside_clock.py, the check of `llmrt-bench model` from outside.

    outside_clock_test.py BENCH             beside a server whose delays are known
    outside_clock_test.py BENCH --device    beside `llmrt-bench model` on the first usable device

Exit code 77 = skipped.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from fake_openai_server import ITL_S, TTFT_S

BENCH = pathlib.Path(sys.argv[1]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
CLOCK = HERE.parents[1] / "tools/gpu/outside_clock.py"
MODEL = "synthetic:smollm2-135m:q4_0"


def run_clock(program, *arguments, code=0):
    done = subprocess.run([sys.executable, CLOCK, program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: expected {code}, found {done.returncode}: {done.stdout}{done.stderr}"
    return done


def write_record(path, figures, **changes):
    record = {
        "command": "model",
        "settings": {"model": "fake", "step_tokens": 64, "batch_invariant": True},
        "work": {"prompts": [600], "rows": [1, 4], "depth": 32, "output": 12, "kv_dtype": "int8"},
        "devices": [{"id": "cuda:0"}],
        "rows": [{"device": "cuda:0", "test": "limit read", "values": {"rate": {"value": 4170, "unit": "GB/s"}}}] +
                [{"device": "cuda:0", "test": test, "values": {"tok_s": {"value": value}}}
                 for test, value in figures.items()],
    }
    path.write_text(json.dumps({**record, **changes}))
    return path


# Stands for llmrt: a server that says what it was started with, and answers as fake_openai_server's `model` does.
def write_program(path, model="steady"):
    path.write_text(f"""#!{sys.executable}
import json, sys, threading
sys.path.insert(0, {str(HERE)!r})
from fake_openai_server import Server
class Fake(Server):
    def answer(self, answer, model, number):
        return super().answer(answer, {model!r}, number)
json.dump(sys.argv[1:], open("arguments.json", "w"))
print("info    serving clock on", Fake().url, file=sys.stderr, flush=True)
threading.Event().wait()
""")
    path.chmod(0o755)
    return path


def check_figures(folder):
    program, record, told = write_program(folder / "llmrt"), folder / "record.json", folder / "told.json"
    right = {"pp600": 600 / TTFT_S, "tg12@32 x1": 1 / ITL_S, "tg12@32 x4": 4 / ITL_S}
    run_clock(program, "--model-json", write_record(record, right), "--tolerance", 25, "--repeats", 2, "--json", told)
    rows = json.loads(told.read_text())["rows"]
    assert [row["test"] for row in rows] == list(right) and all(len(row["samples"]) == 2 for row in rows), rows
    arguments = json.loads((folder / "arguments.json").read_text())
    flags = dict(zip(arguments[2:-1:2], arguments[3:-1:2]))
    assert arguments[:2] == ["serve", "fake"] and arguments[-1] == "--batch-invariant", arguments
    wanted = {"--device": "cuda:0", "--kv-dtype": "int8", "--prefix-cache": "off", "--context": "602",
              "--step-tokens": "64", "--chunk-tokens": "64"}
    assert wanted.items() <= flags.items(), flags

    wrong = {**right, "tg12@32 x4": 2 * right["tg12@32 x4"]}
    del wrong["pp600"]
    write_record(record, wrong)
    found = run_clock(program, "--model-json", record, "--tolerance", 25, "--repeats", 1, code=1).stderr
    assert "cuda:0 tg12@32 x4: off by" in found and "expected at most 25 %" in found, found
    assert "cuda:0 pp600: no figure" in found and "x1: off" not in found, found
    run_clock(program, "-m", "fake", "-p", 8, "-r", 2, "-n", 3, "--repeats", 1)


def check_hostile(folder):
    def refused(*arguments, code=1):
        return run_clock("/bin/false", *arguments, "--repeats", 1, code=code).stderr

    def failed(model):
        program = write_program(folder / model, model)
        return run_clock(program, "-m", "fake", "-p", 8, "-r", 2, "-n", 4, "--repeats", 1, code=1).stderr

    assert "expected 4 tokens, found 3 and a usage of 3" in failed("early")
    assert "found 0 and a usage of 0" in (told := failed("status_503")) and "so busy" in told, told
    assert "expected 1 tokens, found 2 and a usage of 0" in failed("cut_stream")
    record = folder / "bad.json"
    assert "expected a server" in refused("-m", "fake")
    assert "expected --model-json or --model" in refused(code=2)
    assert "expected numbers from 1" in refused("-m", "fake", "-r", "1,0", code=2)
    assert "tolerance: expected at least 0, found nan" in refused("-m", "fake", "--tolerance", "nan", code=2)
    assert "No such file" in refused("--model-json", record)
    assert "no figures" in refused("--model-json", write_record(record, {}))
    assert "found one of 'ops'" in refused("--model-json", write_record(record, {}, command="ops"))
    assert "found -1" in refused("--model-json", write_record(record, {"pp1": 1}, work={"prompts": [-1]}))
    record.write_text("[1]")
    assert "expected a record of llmrt-bench model" in refused("--model-json", record)


def check_device():
    program = BENCH.parent / "llmrt"
    if subprocess.run([program, "devices"], capture_output=True).returncode:
        print("skipped: no usable device")
        sys.exit(77)
    for _ in range(3):  # the machine may be busier in one half of a try
        subprocess.run([BENCH, "model", "-m", MODEL, "-p", "32", "-r", "3", "--depth", "8", "-n", "10", "--repeats",
                        "2", "--json", "record.json"], check=True, capture_output=True)
        done = subprocess.run([sys.executable, CLOCK, program, "--model-json", "record.json", "--tolerance", "40"],
                              capture_output=True, text=True)
        print(done.stdout, done.stderr)
        if done.returncode == 0:
            return
    sys.exit(1)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    if sys.argv[2:] == ["--device"]:
        check_device()
    else:
        check_figures(pathlib.Path(folder))
        check_hostile(pathlib.Path(folder))
print("as documented")
