"""Several devices behind one endpoint: two Vulkan devices, then one beside the float64 reference. Each gets its share,
devices are lost under load and come back, and no answer changes.

    fleet_serve_test.py LLMRT_FLEET [--lose-every S] [--requests N]

The defaults are the short form; the long one is --lose-every 20 --requests 600. LLMRT_TEST_MODEL is a small model.
"""

import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MODEL = os.environ.get("LLMRT_TEST_MODEL", "")
TEXT = ("Once upon a time there was a river that nobody had crossed . The people of the valley told each other why , "
        "and each of them had another reason for it").split()


class Program:
    def __init__(self, program, devices, lose_every=0.0, *flags):
        self.folder = tempfile.TemporaryDirectory()
        self.trace, self.decisions = (os.path.join(self.folder.name, name) for name in ("trace", "decisions"))
        environment = {**os.environ, "LLMRT_LOSE_EVERY_S": str(lose_every)}
        self.process = subprocess.Popen(
            [program, "serve", MODEL, "--port", "0", "--name", "smol", "--device", devices, "--context", "512",
             "--kv-tokens", "4096", "--sequences", "8", "--reopen-s", "0.3", "--request-trace", self.trace,
             "--placement-log", self.decisions, "--ttft-slo-ms", "100", "--tpot-slo-ms", "10", *flags],
            stderr=subprocess.PIPE, text=True, env=environment)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        else:
            raise AssertionError("the server did not start: " + "".join(self.log))
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return answer.read().decode()

    def ask(self, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read())

    def workers(self):
        """The figures of each device, by name."""
        found = {}
        for name, worker, value in re.findall(r'^llmrt_worker_(\w+){worker="([^"]+)"} (\S+)', self.get("/metrics"), re.M):
            found.setdefault(worker, {})[name] = float(value)
        return found

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=60) == 0, "".join(self.log[-20:])


def bodies(count, max_tokens):
    """Greedy ones and drawn ones, some with several choices; all in the mode in which neighbours change no bit."""
    for i in range(count):
        words = [TEXT[(i * 7 + k * (1 + i % 3)) % len(TEXT)] for k in range(6 + i % 20)]
        yield {"prompt": " ".join(words), "max_tokens": max_tokens, "temperature": 0 if i % 2 else 0.8, "seed": i,
               "n": 2 if i % 5 == 0 else 1, "ignore_eos": True, "batch_invariant": True, "logprobs": 2}


def answer_all(server, asked, side_by_side):
    with concurrent.futures.ThreadPoolExecutor(side_by_side) as pool:
        return list(pool.map(server.ask, asked))


def first_difference(choice, expected):
    pairs = zip(choice["logprobs"]["tokens"], expected["logprobs"]["tokens"])
    return next((i for i, (a, b) in enumerate(pairs) if a != b), None)


def check_texts(asked, answers, expected, margin):
    """Each token as on one device alone; where another kind of device has rounded otherwise (`margin` > 0), up to where
    two tokens are as good as equal. Returns how many choices were cut there."""
    cut = 0
    for body, answer, alone in zip(asked, answers, expected):
        assert len(answer["choices"]) == body["n"], answer
        for choice, right in zip(answer["choices"], alone["choices"]):
            assert choice["finish_reason"] == "length", choice
            assert len(choice["logprobs"]["tokens"]) == body["max_tokens"]
            place = first_difference(choice, right)
            if place is None:
                continue
            best = sorted(right["logprobs"]["top_logprobs"][place].values(), reverse=True)
            assert margin and body["temperature"] == 0 and best[0] - best[1] < margin, (place, choice, right)
            cut += 1
    return cut


def check_pair(options):
    """Two alike: the same bits, whoever answers and whatever is lost on the way."""
    asked = list(bodies(options.requests, max_tokens=24))
    alone = Program(options.program, "vulkan:0")
    expected = answer_all(alone, asked, 8)
    alone.end()
    server = Program(options.program, "vulkan:0,vulkan:0", options.lose_every)
    begin = time.monotonic()
    answers = answer_all(server, asked, 12)
    took = time.monotonic() - begin
    check_texts(asked, answers, expected, margin=0)
    workers = server.workers()
    print(f"two alike: {len(asked)} requests in {took:.0f} s: {workers}", flush=True)
    placed = {name: figures["placed_total"] for name, figures in workers.items()}
    assert set(placed) == {"vulkan:0", "vulkan:0#2"}, placed
    assert min(placed.values()) >= 0.3 * sum(placed.values()), placed
    assert sum(figures["losses_total"] for figures in workers.values()) >= 2, workers
    assert sum(figures["moved_in_total"] for figures in workers.values()) >= 1, workers
    assert set(json.loads(server.get("/health"))["workers"]) == set(workers)
    # Nothing is left behind, and what was recorded says who did what.
    wait_until(lambda: quiet(server), "the engines are empty")
    server.end()
    choices = sum(body["n"] for body in asked)
    with open(server.trace, encoding="utf-8") as file:
        by_worker = [json.loads(line)["worker_id"] for line in file]
    assert set(by_worker) == set(workers) and len(by_worker) >= choices, (len(by_worker), choices)
    with open(server.decisions, encoding="utf-8") as file:
        decisions = [json.loads(line) for line in file]
    assert sum(each["why"] == "placed" for each in decisions) >= len(asked)
    assert any(each["why"].startswith("moved from ") for each in decisions)
    assert all(len(each["workers"]) == 2 and each["worker"] in workers for each in decisions)


def quiet(server):
    text = server.get("/metrics")
    return all(float(value) == 0 for value in
               re.findall(r"^llmrt_requests_(?:running|waiting|streaming){[^}]*} (\S+)", text, re.M))


def wait_until(is_it, what, limit_s=60):
    end = time.monotonic() + limit_s
    while not is_it():
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(0.2)


def check_mixed(options):
    """Two that are not alike: a request goes where it comes less late, and both are used."""
    asked = list(bodies(max(options.requests // 4, 12), max_tokens=5))
    asked = [body for body in asked if body["temperature"] == 0]
    alone = Program(options.program, "vulkan:0")
    expected = answer_all(alone, asked, 8)
    alone.end()
    server = Program(options.program, "vulkan:0,reference:0", 0.0, "--placement", "least-load")
    answers = answer_all(server, asked, 8)
    cut = check_texts(asked, answers, expected, margin=0.05)
    workers = server.workers()
    print(f"unlike: {len(asked)} requests, {cut} choices cut at two tokens alike: {workers}", flush=True)
    placed = {name: figures["placed_total"] for name, figures in workers.items()}
    assert min(placed.values()) >= 0.3 * sum(placed.values()), placed
    server.end()


def check_hand_over(options, devices, count, max_tokens, margin):
    """One device computes prompts, the other one goes on from their blocks: greedy texts are those of one device alone, up
    to where two tokens are as good as equal."""
    asked = [{"prompt": " ".join(TEXT[(i * 5 + k) % len(TEXT)] for k in range(60 + 7 * i)), "max_tokens": max_tokens,
              "temperature": 0, "n": 1, "ignore_eos": True, "logprobs": 2} for i in range(count)]
    alone = Program(options.program, "vulkan:0")
    expected = answer_all(alone, asked, 4)
    alone.end()
    server = Program(options.program, devices, 0.0, "--roles", "prefill,decode", "--hand-over-gib", "0.25")
    answers = answer_all(server, asked, 4)
    cut = check_texts(asked, answers, expected, margin)
    first, second = devices.split(",")[0], devices.split(",")[1].replace(devices.split(",")[0], "vulkan:0#2")
    workers = server.workers()
    assert workers[second]["handed_in_total"] == len(asked), workers
    text = server.get("/metrics")
    taken = sum(map(float, re.findall(r"^llmrt_hand_over_blocks_taken_total(?:{[^}]*})? (\S+)", text, re.M)))
    hits = dict(re.findall(r'^llmrt_prefix_cache_hits_total{worker="([^"]+)"} (\S+)', text, re.M))
    prompts = dict(re.findall(r'^llmrt_prompt_tokens_total{worker="([^"]+)"} (\S+)', text, re.M))
    print(f"{first} to {second}: {taken:.0f} blocks, {hits[second]} of {prompts[second]} prompt tokens handed over, {cut} "
          "answers cut at two tokens alike", flush=True)
    # All full blocks, which is all but 15 tokens of a prompt and the first token of an answer.
    assert float(hits[second]) >= float(prompts[second]) - 16 * len(asked) > 0
    assert taken > 0 and f'reason="handed_over"}} {len(asked)}' in text
    wait_until(lambda: quiet(server), "the engines are empty")
    server.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--lose-every", type=float, default=1.5)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--only", choices=("pair", "mixed", "hand-over"))
    options = parser.parse_args()
    if not MODEL:
        print("skipped: expected LLMRT_TEST_MODEL")
        sys.exit(77)
    if options.only in (None, "pair"):
        check_pair(options)
    if options.only in (None, "mixed"):
        check_mixed(options)
    if options.only in (None, "hand-over"):
        check_hand_over(options, "vulkan:0,vulkan:0", count=6, max_tokens=8, margin=0.05)
        check_hand_over(options, "vulkan:0,reference:0", count=2, max_tokens=3, margin=0.05)
        check_hand_over(options, "reference:0,vulkan:0", count=2, max_tokens=6, margin=0.05)


if __name__ == "__main__":
    main()
