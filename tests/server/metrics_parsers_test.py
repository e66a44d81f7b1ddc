"""/metrics of `llmrt serve` with a real model, as Prometheus' own parsers read it: both text formats, what they tell
after a few requests, and which of them a scraper gets.

Environment: LLMRT_PROGRAM (the binary), LLMRT_TEST_MODEL (SmolLM2-135M-Instruct as GGUF), LLMRT_TEST_DEVICE (auto).
promtool is used where there is one: LLMRT_PROMTOOL, or the PATH's (Debian's package prometheus).
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
KEY = "k" * 32
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
    def __init__(self, folder):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", MODEL, "--port", "0", "--name", NAME, "--device", DEVICE, "--kv-tokens", "4096",
             "--metrics-compat", "vllm", "--kv-disk", f"{folder}/disk", "--kv-disk-gib", "1", "--files-dir",
             f"{folder}/files", "--adapters-dir", folder],  # every metric is there
            env={**os.environ, "LLMRT_API_KEY": KEY}, stderr=subprocess.PIPE, text=True)
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
                                         headers={"Authorization": f"Bearer {KEY}"})
        if accept:
            request.add_header("Accept", accept)
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.headers["Content-Type"], response.read().decode()

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                response.read()
                return response.status
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(str(tmp_path_factory.mktemp("server")))
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


# What vLLM 0.33 has: type, labels beside model_name and engine, bounds.
TIMES = {
    "time_to_first_token_seconds": "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 "
                                   "80.0 160.0 640.0 2560.0",
    "inter_token_latency_seconds": "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0",
    "e2e_request_latency_seconds": "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 "
                                   "960.0 1920.0 7680.0",
    "request_prompt_tokens": "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0 2000.0",  # the context is 2,048 or more
}
TIMES["request_time_per_output_token_seconds"] = TIMES["inter_token_latency_seconds"]
TIMES["request_generation_tokens"] = TIMES["request_prompt_tokens"]
for stage in ("queue", "prefill", "decode"):
    TIMES[f"request_{stage}_time_seconds"] = TIMES["e2e_request_latency_seconds"]
CACHE_LABELS = {"block_size", "num_gpu_blocks", "num_cpu_blocks", "cache_dtype"}
VLLM = {name: ("histogram", {"le"}) for name in TIMES} | {
    "num_requests_running": ("gauge", set()), "num_requests_waiting": ("gauge", set()),
    "kv_cache_usage_perc": ("gauge", set()), "cache_config_info": ("gauge", CACHE_LABELS),
    "num_preemptions": ("counter", set()), "prompt_tokens": ("counter", set()),
    "prompt_tokens_by_source": ("counter", {"source"}), "prompt_tokens_cached": ("counter", set()),
    "prefix_cache_queries": ("counter", set()), "prefix_cache_hits": ("counter", set()),
    "generation_tokens": ("counter", set()), "request_success": ("counter", {"finished_reason"}),
    "lora_requests_info": ("gauge", {"max_lora", "running_lora_adapters", "waiting_lora_adapters"}),
    # Older names that routers still read.
    "gpu_cache_usage_perc": ("gauge", set()), "cpu_cache_usage_perc": ("gauge", set()),
    "gpu_prefix_cache_hit_rate": ("gauge", set()), "gpu_prefix_cache_hits": ("counter", set()),
    "gpu_prefix_cache_queries": ("counter", set())}


@pytest.mark.parametrize("parse, accept", [(parse_text, None), (parse_openmetrics, ACCEPT_3)])
def test_vllm_names(server, parse, accept):
    samples, families = read(parse(server.metrics(accept)[1]))
    told = {name[5:]: family for name, family in families.items() if name.startswith("vllm:")}
    assert told.keys() == VLLM.keys()
    for name, family in told.items():
        kind, labels = VLLM[name]
        assert family.type == kind, name
        for sample in family.samples:
            own = labels if kind != "histogram" or sample.name.endswith("_bucket") else set()
            if name == "lora_requests_info":  # as vLLM has it
                assert sample.labels.keys() == own
                continue
            assert sample.labels.keys() == {"model_name", "engine"} | own, sample
            assert (sample.labels["model_name"], sample.labels["engine"]) == (NAME, "0")
    for name, bounds in TIMES.items():
        found = [sample.labels["le"] for sample in told[name].samples if sample.name.endswith("_bucket")]
        if name.endswith("_tokens"):
            found = found[:11] + found[-1:]
        assert found == bounds.split() + ["+Inf"], name


def test_vllm_figures(server):
    samples, families = read(parse_text(server.metrics()[1]))

    def vllm(name, **labels):
        return value(samples, "vllm:" + name, model_name=NAME, engine="0", **labels)

    assert (vllm("num_requests_running"), vllm("num_requests_waiting"), vllm("kv_cache_usage_perc")) == (0, 0, 0)
    assert vllm("generation_tokens_total") == value(samples, "llmrt_generated_tokens_total") == 3 + 3 + 2
    sources = ("local_compute", "local_cache_hit", "external_kv_transfer")
    assert sum(vllm("prompt_tokens_by_source_total", source=source) for source in sources) == \
        vllm("prompt_tokens_total") == value(samples, "llmrt_prompt_tokens_total")
    assert vllm("request_success_total", finished_reason="length") == 3
    for own, theirs in (("time_to_first_token", "time_to_first_token"), ("request_latency", "e2e_request_latency"),
                        ("inter_token_latency", "inter_token_latency"), ("request_queue_time", "request_queue_time")):
        for part in ("sum", "count"):
            assert vllm(f"{theirs}_seconds_{part}") == value(samples, f"llmrt_{own}_seconds_{part}")
        for le in ("1.0", "10.0"):  # bounds that both have
            assert vllm(f"{theirs}_seconds_bucket", le=le) == value(samples, f"llmrt_{own}_seconds_bucket", le=le)

    # As llm-d's router reads it: three gauges, and two labels that are numbers.
    for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc", "cache_config_info"):
        assert families["vllm:" + name].type == "gauge" and len(families["vllm:" + name].samples) == 1
    cache = families["vllm:cache_config_info"].samples[0]
    assert cache.value == 1
    assert int(cache.labels["block_size"]) * int(cache.labels["num_gpu_blocks"]) == 4096


@pytest.mark.parametrize("section, prefix", [("Metrics", "(?:llmrt|process)_"), ("vLLM's names", "vllm:")])
def test_documented(server, section, prefix):
    path = os.path.join(os.path.dirname(__file__), "../../docs/observability.md")
    with open(path, encoding="utf-8") as file:
        text = file.read().split(f"\n## {section}\n")[1].split("\n## ")[0]
    named = set(re.findall(rf"`({prefix}\w+)(?:\{{[^}}]*\}})?`", text))
    told = set(re.findall(rf"^# TYPE ({prefix}\S+)", server.metrics()[1], re.M))
    assert told == named and told


def test_promtool(server):
    promtool = os.environ.get("LLMRT_PROMTOOL") or shutil.which("promtool")
    if not promtool:
        pytest.skip("promtool is not installed")
    own = "".join(line for line in server.metrics()[1].splitlines(True) if "vllm:" not in line)  # which it dislikes
    told = subprocess.run([promtool, "check", "metrics"], input=own, capture_output=True, text=True)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
