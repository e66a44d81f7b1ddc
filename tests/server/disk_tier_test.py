"""A server with a disk tier that is killed and starts again: at least 90 % of a prompt of some 1,500 tokens is read,
the first token comes in a quarter of the time at most, and the text is the same. Before that with files that are
spoilt; and beside another server.

Environment: LLMRT_PROGRAM (the binary), LLMRT_TEST_MODEL (SmolLM2-135M-Instruct as GGUF), LLMRT_TEST_DEVICE (auto).
"""
import glob
import http.client
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM, MODEL = os.environ["LLMRT_PROGRAM"], os.environ["LLMRT_TEST_MODEL"]
DEVICE = os.environ.get("LLMRT_TEST_DEVICE", "auto")
BLOCK_TOKENS = 16
WORDS = "river stone lantern quiet orchard winter copper bridge story garden window thunder market silver".split()


def options(folder, gib="1"):
    return [MODEL, "--port", "0", "--device", DEVICE, "--context", "2048", "--kv-tokens", "4096", "--kv-disk", folder,
            "--kv-disk-gib", gib]


class Server:
    def __init__(self, folder):
        self.process = subprocess.Popen([PROGRAM, "serve", *options(folder)], stderr=subprocess.PIPE, text=True)
        self.port, log = None, []
        for line in self.process.stderr:
            log.append(line)
            if found := re.search(r"serving .* on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        if not self.port:
            sys.exit("".join(log))
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def ask(self, prompt, **more):
        """Text, prompt tokens, cached tokens, seconds to the first token."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}} | more
        begin, first, text, usage = time.monotonic(), None, "", None
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                first = first or time.monotonic() - begin
                text += choice["text"]
        connection.close()
        return text, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], first

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        values = {}
        for line in lines:
            if line.startswith("llmrt_"):
                name, value = line.rsplit(" ", 1)
                values[re.sub(r'model="[^"]*",?', "", name).replace("{}", "")] = float(value)
        return values

    def wait_for(self, holds, what):
        deadline = time.monotonic() + 60
        while not holds(self.metrics()):
            assert time.monotonic() < deadline, (what, {k: v for k, v in self.metrics().items() if "disk" in k})
            time.sleep(0.05)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0


def wait_for_writes(server, num_prompt):
    server.wait_for(lambda m: m["llmrt_kv_disk_blocks"] >= num_prompt // BLOCK_TOKENS and
                    m["llmrt_kv_disk_queue"] == 0, "writes")


def unusable(metrics):
    return sum(value for name, value in metrics.items() if name.startswith("llmrt_kv_disk_unusable_total"))


def prompt_of(seed, num_words=60):
    dice = random.Random(seed)
    return " ".join(dice.choice(WORDS) for _ in range(num_words))


LONG = prompt_of(1, 1450)


def check_restart(folder):
    server = Server(folder)
    server.ask("warm up")
    text, num_prompt, cached, cold = server.ask(LONG)
    assert 1300 < num_prompt < 1900 and cached == 0, (num_prompt, cached)
    again = server.ask(LONG)[0]
    assert again == text
    salted = server.ask(prompt_of(2), cache_salt="a secret")[0]
    wait_for_writes(server, num_prompt)
    assert server.metrics()["llmrt_kv_disk_blocks"] <= num_prompt // BLOCK_TOKENS + 2, "a salted prompt is on the disk"
    config = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    config.request("GET", "/config")
    assert folder in config.getresponse().read().decode()
    # Another server cannot use the files at the same time, and says so.
    second = subprocess.run([PROGRAM, "serve", *options(folder)], capture_output=True, text=True, timeout=120)
    assert second.returncode != 0 and "another program" in second.stderr and folder in second.stderr, second.stderr
    server.kill()

    for path in glob.glob(os.path.join(folder, "*", "*")):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600, path
    server = Server(folder)
    server.ask("warm up")
    warm_text, _, cached, warm = server.ask(LONG)
    metrics = server.metrics()
    print(f"{num_prompt} tokens; {cached} cached after kill -9 ({100 * cached / num_prompt:.1f} %); "
          f"first token cold {cold * 1e3:.0f} ms, from disk {warm * 1e3:.0f} ms: {100 * warm / cold:.1f} %")
    assert warm_text == text, (warm_text, text)
    assert cached >= 0.9 * num_prompt, (cached, num_prompt)
    assert warm <= 0.25 * cold, (warm, cold)
    assert metrics["llmrt_prefix_cache_disk_hits_total"] >= cached - BLOCK_TOKENS, metrics
    salted_again = server.ask(prompt_of(2), cache_salt="a secret")
    assert salted_again[0] == salted and salted_again[2] == 0, salted_again
    server.stop()


def spoil(folder, change):
    paths = glob.glob(os.path.join(folder, "*", "*.kv"))
    assert paths
    for path in paths:
        with open(path, "r+b") as file:
            change(file, os.path.getsize(path))


def fill(folder):
    server = Server(folder)
    text, num_prompt, _, _ = server.ask(prompt_of(1))
    wait_for_writes(server, num_prompt)
    server.stop()
    return text


def check_spoilt(folder):
    """Whatever is done to the files, the answer is right, and what was done is counted."""
    text = fill(folder)

    def flip(file, size):
        for offset in range(1000, size, 100_000):  # in every block
            file.seek(offset)
            byte = file.read(1)
            file.seek(offset)
            file.write(bytes([byte[0] ^ 16]))

    def head(file, _):
        file.write(b"not a segment")

    for change in (flip, lambda file, size: file.truncate(size // 2 + 7), head, lambda file, _: file.truncate(3)):
        spoil(folder, change)
        server = Server(folder)
        answer, num_prompt, cached, _ = server.ask(prompt_of(1))
        assert answer == text and cached < num_prompt, (answer, text)
        assert unusable(server.metrics()) > 0
        wait_for_writes(server, num_prompt)
        server.stop()
    server = Server(folder)
    answer, num_prompt, cached, _ = server.ask(prompt_of(1))
    assert answer == text and cached >= num_prompt - 2 * BLOCK_TOKENS, (answer, cached)
    server.stop()


with tempfile.TemporaryDirectory() as home:
    check_spoilt(os.path.join(home, "spoilt"))
    check_restart(os.path.join(home, "kv"))
    bad = subprocess.run([PROGRAM, "serve", MODEL, "--kv-disk", home], capture_output=True, text=True, timeout=60)
    assert bad.returncode != 0 and "--kv-disk-gib" in bad.stderr, bad.stderr
