"""schemathesis over the served OpenAPI document: what it makes of the schemas of each operation, right and wrong, with the
server and the engine behind a device of set times. No answer may be a fault of the server's (5xx), and each must have a
status, a type and a form that the document tells.

    openapi_fuzz_test.py PACED_SERVER [--examples N] [--operation PATH_REGEX] [--workers N] [--seed S]

The default is the short form; the long one is --examples 500. Needs schemathesis. Bodies are made without regard to how
long an answer gets, so the context is short: that bounds a request. The file it prints at a failure has the requests.
"""

import argparse
import base64
import collections
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from hostile_client import Server

# A deadline that a client sets is answered with 504 where it passes: the one 5xx that is right, and told apart below.
CONFIG = '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", "504"]\n'
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def command(server, options, report):
    out = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(report.parent / "schemathesis.toml"), "run",
           f"http://127.0.0.1:{server.port}/openapi.json", "--no-color", "--checks", CHECKS,
           "--phases", "examples,coverage,fuzzing", "--max-examples", str(options.examples), "--workers", str(options.workers),
           "--seed", str(options.seed), "--request-timeout", "30", "--suppress-health-check", "all", "--continue-on-failure",
           "--no-shrink", "--generation-database", "none", "--warnings", "off", "--report", "ndjson",
           "--report-ndjson-path", str(report)]
    if options.operation:
        out += ["--include-path-regex", options.operation]
    return out


def count(report):
    """Requests by operation, answers by status, and what is wrong with those of 504."""
    cases, statuses, wrong = collections.Counter(), collections.Counter(), []
    for line in report.open():
        event = json.loads(line).get("ScenarioFinished")
        for interaction in (event or {}).get("recorder", {}).get("interactions", {}).values():
            status = (interaction.get("response") or {}).get("status_code", "none")
            cases[event["recorder"]["label"]] += 1
            statuses[status] += 1
            if status in (504, "none"):
                body = base64.b64decode(((interaction["request"].get("body") or {}).get("$base64", "")))
                if status != 504 or b'"deadline_ms"' not in body:
                    wrong.append(f"{status} for {interaction['request']['uri']}: {body[:500]}")
    return cases, statuses, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--examples", type=int, default=50)
    parser.add_argument("--operation")
    parser.add_argument("--workers", type=int, default=1)  # more of them trip over CPython 3.11's ast.parse
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not importlib.util.find_spec("schemathesis"):
        print("skipped: expected Python with schemathesis")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "schemathesis.toml").write_text(CONFIG)
    report = folder / "events.ndjson"
    server = Server(options.program, "--step-ms", "0.2", "--token-us", "0", "--context", "256", "--files-dir",
                    str(folder / "files"))
    begin = time.monotonic()
    code = subprocess.run(command(server, options, report), cwd=folder, check=False).returncode
    cases, statuses, wrong = count(report)
    paths = server.get("/openapi.json").json()["paths"]
    num_operations = sum(len(operations) for operations in paths.values()) - 1  # the document itself is not asked for again
    print(f"{time.monotonic() - begin:.0f} s; {len(cases)} of {num_operations} operations, {sum(cases.values())} requests, "
          f"at least {min(cases.values())} each; statuses {dict(sorted(statuses.items(), key=str))}")
    left = server.wait_quiet(60)
    errors = server.new_errors()
    server.end()
    assert code == 0, f"schemathesis ended with {code}; its events: {report}"
    assert options.operation or len(cases) == num_operations
    assert statuses.total() > 0 and not wrong and not left and not errors, (wrong[:3], left, errors)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
