"""Three models with room for two on a real device (lavapipe where there is no other): every request is answered, memory
goes back when models are unloaded, and a stream of a loaded model goes on while others are loaded and unloaded. What was
measured is printed; bounds are those of a machine that is busy with other tests.

Environment: LLMRT_PROGRAM (the binary), LLMRT_TEST_DEVICE (auto).
"""
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = os.environ["LLMRT_PROGRAM"]
DEVICE = os.environ.get("LLMRT_TEST_DEVICE", "auto")
# Random weights: no files. The name of a model is its path.
MODELS = [f"synthetic:smollm2-135m:{encoding}" for encoding in ("q4_0", "q4_1", "q8_0")]
MIB = 1 << 20


class Server:
    def __init__(self, runtime):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", *MODELS, "--port", "0", "--device", DEVICE, "--context", "256", "--kv-tokens", "512",
             "--models-loaded-max", "2", "--pin", MODELS[0]],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "XDG_RUNTIME_DIR": runtime})
        self.port, log = None, []
        for line in self.process.stderr:
            log.append(line)
            if found := re.search(r"serving 3 models on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        if not self.port:
            sys.exit("".join(log))
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def resident(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) << 10

    def connect(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def ask(self, model):
        connection, response = self.connect({"model": model, "prompt": [1, 2, 3], "max_tokens": 2})
        body = json.loads(response.read())
        connection.close()
        assert response.status == 200 and body["model"] == model, body

    def gaps(self, tokens):
        connection, response = self.connect(
            {"model": MODELS[0], "prompt": [1, 2, 3], "max_tokens": tokens, "ignore_eos": True, "stream": True})
        times = [time.monotonic() for line in response if line.startswith(b"data:")]
        connection.close()
        return [after - before for before, after in zip(times, times[1:])]

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("llmrt_model_")}

    def unload(self, model):
        subprocess.run([PROGRAM, "stop", model, "--port", str(self.port)], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "XDG_RUNTIME_DIR": runtime_folder})
        deadline = time.monotonic() + 60
        while self.metrics()[f'llmrt_model_state{{model="{model}",state="unloaded"}}'] != 1:
            assert time.monotonic() < deadline, model
            time.sleep(0.05)


with tempfile.TemporaryDirectory() as runtime_folder:
    server = Server(runtime_folder)
    before = server.resident()
    for name in MODELS:
        server.ask(name)
    loaded = server.resident()
    quiet = server.gaps(30)
    is_over = threading.Event()
    errors = []

    def change_models():
        try:
            while not is_over.is_set():
                server.ask(MODELS[1])
                server.ask(MODELS[2])
        except BaseException as error:  # told below
            errors.append(error)

    changer = threading.Thread(target=change_models)
    changer.start()
    busy = server.gaps(30)
    is_over.set()
    changer.join()
    assert not errors, errors
    counts = server.metrics()
    loads = sum(value for key, value in counts.items() if key.startswith("llmrt_model_loads_total"))
    for name in MODELS:
        if counts[f'llmrt_model_state{{model="{name}",state="ready"}}']:
            server.unload(name)
    after = server.resident()
    held = sum(value for key, value in server.metrics().items() if key.startswith("llmrt_model_memory_bytes"))
    ratio = statistics.mean(busy) / statistics.mean(quiet)
    print(f"resident: {before // MIB} MiB before, {loaded // MIB} with two models, {after // MIB} after; {loads:.0f} loads")
    at = [[1e3 * statistics.quantiles(each, n=100)[share - 1] for each in (quiet, busy)] for share in (50, 99)]
    print(f"gaps: p50 {at[0][0]:.1f} ms alone and {at[0][1]:.1f} beside loads, p99 {at[1][0]:.1f} and {at[1][1]:.1f} ms")
    print(f"stream: {1e3 * statistics.mean(quiet):.1f} ms a token alone, {1e3 * statistics.mean(busy):.1f} beside loads "
          f"({ratio:.2f}x), longest {1e3 * max(quiet):.0f} and {1e3 * max(busy):.0f} ms")
    assert held == 0, held
    if loaded - before > 100 * MIB:  # the device's memory is the host's
        assert after - before < 0.2 * (loaded - before), (before, loaded, after)
    assert ratio < 4, ratio
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(60) == 0
