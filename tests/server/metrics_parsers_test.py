"""/metrics of `llmrt serve` with a real model, as Prometheus' own parsers read it: both text formats, what they tell
after a few requests, and which of them a scraper gets.

Environment: LLMRT_PROGRAM (the binary), LLMRT_TEST_MODEL (SmolLM2-135M-Instruct as GGUF), LLMRT_TEST_DEVICE (auto).
promtool is used where it is installed (Debian's package prometheus).
"""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

PROGRAM = os.environ["LLMRT_PROGRAM"]
MODEL = os.environ["LLMRT_TEST_MODEL"]
DEVICE = os.environ.get("LLMRT_TEST_DEVICE", "auto")
NAME = 'odd "name"\\ of\na model, {le="1"} # EOF \u00e4'

TEXT, OPEN = "text/plain; version=0.0.4; charset=utf-8", "application/openmetrics-text; version=1.0.0; charset=utf-8"
# What versions of Prometheus send.
ACCEPT_3 = ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
            "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
            "text/plain;version=0.0.4;q=0.3,*/*;q=0.2")
ACCEPT_2_49 = ("application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
               "text/plain;version=0.0.4;q=0.3,*/*;q=0.2")
ACCEPT_2_42 = ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
               "text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
ACCEPT_2_30 = "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


class Server:
    def __init__(self):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", MODEL, "--port", "0", "--name", NAME, "--device", DEVICE, "--kv-tokens", "4096"],
            stderr=subprocess.PIPE, text=True)
        log = []
        for line in self.process.stderr:
            log.append(line)
            if found := re.search(r"on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        else:
            pytest.fail("the server did not start: " + "".join(log))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()  # or a full pipe stops it

    def metrics(self, accept=None):
        """Content-Type and text."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/metrics",
                                         headers={"Accept": accept} if accept else {})
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.headers["Content-Type"], response.read().decode()

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                response.read()
                return response.status
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def server():
    running = Server()
    assert running.post("/v1/completions", {"prompt": "One, two, three,", "max_tokens": 3, "n": 2}) == 200
    assert running.post("/v1/completions", {"prompt": "One", "max_tokens": 2, "stream": True}) == 200
    assert running.post("/v1/completions", {"prompt": "One", "temperature": -1}) == 400
    assert running.post("/v1/nothing", {}) == 404
    for _ in range(200):  # an answer's last byte may be read before the engine hears of it
        samples = read(parse_text(running.metrics()[1]))[0]
        if not any(value(samples, f"llmrt_requests_{state}") for state in ("running", "waiting", "streaming")):
            break
        time.sleep(0.05)
    yield running
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0


def read(families):
    """(name, labels) -> value, and family name -> family; a sample told twice is an error."""
    samples, by_name = {}, {}
    for family in families:
        assert family.name not in by_name
        by_name[family.name] = family
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples, key
            samples[key] = sample.value
    return samples, by_name


def value(samples, name, **labels):
    return samples[(name, frozenset(labels.items()))]


@pytest.mark.parametrize("accept, content_type", [
    (None, TEXT), ("*/*", TEXT), ("text/plain", TEXT), (ACCEPT_3, OPEN), (ACCEPT_2_49, OPEN), (ACCEPT_2_42, OPEN),
    (ACCEPT_2_30, TEXT), ("application/openmetrics-text", OPEN)])
def test_accept_decides_on_the_format(server, accept, content_type):
    found, text = server.metrics(accept)
    assert found == content_type
    assert text.endswith("\n# EOF\n") == (content_type == OPEN)


def test_strict_openmetrics(server):
    samples, families = read(parse_openmetrics(server.metrics(ACCEPT_3)[1]))
    for name, family in families.items():
        assert family.documentation, name
        assert not name.endswith("_total"), name
        unit = next((unit for unit in ("seconds", "bytes", "ratio") if name.endswith("_" + unit)), "")
        assert family.unit == unit, name
    info = [dict(labels) for name, labels in samples if name == "llmrt_info"]
    assert len(info) == 1 and families["llmrt"].type == "info"
    told = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True).stdout.split()[-1]
    assert info[0]["model"] == NAME and info[0]["kv_dtype"] == "f16" and info[0]["version"] == told
    assert info[0]["device"].split(":")[0] == info[0]["backend"] and info[0]["device_name"]

    for stage in ("queue", "prefill", "decode"):
        assert value(samples, f"llmrt_request_{stage}_time_seconds_count") == 3
    assert value(samples, "llmrt_request_prompt_tokens_count") == 2
    assert value(samples, "llmrt_request_generation_tokens_sum") == 3 + 3 + 2
    assert value(samples, "llmrt_http_responses_total", status="404") == 1
    assert value(samples, "llmrt_requests_refused_total", code="not_found") == 1
    assert value(samples, "llmrt_requests_refused_total", code="invalid_argument") == 1
    assert value(samples, "llmrt_connections_open") >= 1
    assert value(samples, "llmrt_kv_blocks") == 4096 / value(samples, "llmrt_kv_block_tokens")

    with open(f"/proc/{server.process.pid}/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    assert value(samples, "process_resident_memory_bytes") == pytest.approx(resident, rel=0.1)
    assert value(samples, "process_open_fds") <= value(samples, "process_max_fds")
    assert value(samples, "process_open_fds") == pytest.approx(len(os.listdir(f"/proc/{server.process.pid}/fd")), abs=2)
    assert value(samples, "process_cpu_seconds_total") > 0
    assert abs(value(samples, "process_start_time_seconds") - time.time()) < 600


def test_both_formats_tell_the_same(server):
    moving = re.compile("process_|llmrt_http_responses|llmrt_connections_open|llmrt_client_memory_bytes")
    for _ in range(10):  # the means over minutes change every 10 s: between two scrapes that are alike they did not
        text_samples, text_families = read(parse_text(server.metrics()[1]))
        open_samples, open_families = read(parse_openmetrics(server.metrics(ACCEPT_3)[1]))
        again = read(parse_text(server.metrics()[1]))[0]
        fixed = {key: number for key, number in text_samples.items() if not moving.match(key[0])}
        if fixed == {key: number for key, number in again.items() if not moving.match(key[0])}:
            break
    assert text_samples.keys() == open_samples.keys()
    assert fixed == {key: number for key, number in open_samples.items() if not moving.match(key[0])}
    for name, family in open_families.items():
        found = text_families["llmrt_info"] if family.type == "info" else text_families[name]
        assert found.type == ("gauge" if family.type == "info" else family.type), name
        assert found.documentation == family.documentation, name


def test_clients_make_no_labels(server):
    before = set(read(parse_text(server.metrics()[1]))[0])
    for i in range(20):
        server.post(f"/v1/nothing{i}", {})
        server.post("/v1/completions", {"prompt": "One", f"field_{i}": i, "temperature": -1, "user": f"user {i}"})
        server.post("/v1/completions", {"model": f"model {i}", "prompt": "One", "temperature": -1})
    new = set(read(parse_text(server.metrics()[1]))[0]) - before
    new = {key for key in new if key[0] != "llmrt_littles_law_residual_ratio"}  # comes within a minute by itself
    assert all(name in ("llmrt_requests_refused_total", "llmrt_http_responses_total") for name, _ in new)
    assert len(new) <= 5, new


def test_documented(server):
    path = os.path.join(os.path.dirname(__file__), "../../docs/observability.md")
    with open(path, encoding="utf-8") as file:
        section = file.read().split("\n## Metrics\n")[1].split("\n## ")[0]
    named = set(re.findall(r"`((?:llmrt|process)_\w+)(?:\{[^}]*\})?`", section))
    told = set(re.findall(r"^# TYPE (\S+)", server.metrics()[1], re.M))
    assert told == named


def test_promtool(server):
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed")
    told = subprocess.run([promtool, "check", "metrics"], input=server.metrics()[1], capture_output=True, text=True)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
