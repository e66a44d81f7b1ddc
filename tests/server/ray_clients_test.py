"""examples/ray with servers on devices of set step times: 1,000 lines over three workers, of which one is killed in the
middle; a run that was stopped; and Ray Serve with streams, a killed replica and a graceful end.

    ray_clients_test.py PACED_SERVER [NAME...]   of ray_data, ray_serve; "ray" or nothing: both

Exit code 77 is a skip: this Python has no Ray (ray[data,serve]). tools/clients ray installs it.
"""

import contextlib
import http.client
import importlib.util
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/ray"
PROGRAM = os.path.abspath(sys.argv[1])
NUM_LINES = 1000


class Cluster:
    """A folder with `llmrt`, which is a paced server here, and the pids of all that were started as it."""

    def __init__(self, folder, step_ms):
        self.folder = pathlib.Path(folder)
        self.program, self.started = self.folder / "llmrt", self.folder / "pids"
        self.started.touch()
        self.program.write_text(f'#!/bin/sh\necho $$ >> {self.started}\nshift 2\n'
                                f'exec {PROGRAM} --step-ms {step_ms} "$@"\n')
        self.program.chmod(0o755)

    def pids(self):
        return [int(line) for line in self.started.read_text().split()]

    def command(self, script, *more):
        return [sys.executable, EXAMPLES / script, *map(str, more), "--model", "paced", "--program", str(self.program)]

    def environment(self):
        return {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def texts(path):
    """By custom id. Each is there once, and its line was answered."""
    found = {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        assert line["response"]["status_code"] == 200, line
        assert line["custom_id"] not in found, f"{line['custom_id']} is there twice"
        found[line["custom_id"]] = line["response"]["body"]["choices"][0]["text"]
    return found


def with_ray_data(folder):
    cluster = Cluster(folder, step_ms=50)
    questions = cluster.folder / "in.jsonl"
    questions.write_text("".join(json.dumps(
        {"custom_id": f"line-{i}", "method": "POST", "url": "/v1/completions",
         "body": {"prompt": f"number {i}:", "max_tokens": 24, "temperature": 0, "seed": 1, "ignore_eos": True}}) + "\n"
        for i in range(NUM_LINES)))

    def run(out, during=None):
        begin, num_before = time.monotonic(), len(cluster.pids())
        with open(cluster.folder / f"{out.stem}.log", "w", encoding="utf-8") as log:
            command = cluster.command("ray_data.py", questions, out, "--workers", 3, "--cpus-per-worker", 0.2,
                                      "--in-flight", 64)
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=cluster.environment())
            try:
                if during:
                    during(out, cluster.pids)
                code = process.wait(300)
            finally:
                process.kill()
        told = pathlib.Path(log.name).read_text()
        assert code == 0, told[-4000:]
        summary = next(line for line in told.splitlines() if "answers written" in line)
        print(f"  {out.stem}: {summary}, {time.monotonic() - begin:.1f} s, "
              f"{len(cluster.pids()) - num_before} processes", flush=True)
        return texts(out)

    plain = run(cluster.folder / "plain.jsonl")
    assert len(plain) == NUM_LINES and len(cluster.pids()) == 3, (len(plain), cluster.pids())
    assert len(set(plain.values())) == NUM_LINES

    def kill_one(out, pids):
        wait_for("a third of the answers", lambda: count_lines(out) > NUM_LINES // 3, 120)
        os.kill(pids()[3], signal.SIGKILL)
        num_written = count_lines(out)
        print(f"  killed a worker when {num_written} lines were written", flush=True)
        assert num_written < NUM_LINES * 3 // 4, "too late: most were written"

    killed = run(cluster.folder / "killed.jsonl", kill_one)
    assert killed == plain, f"{len(killed)} lines"
    assert len(cluster.pids()) == 7, "the killed one was not started again"

    # As if stopped while a line was written.
    resumed = cluster.folder / "resumed.jsonl"
    lines = (cluster.folder / "killed.jsonl").read_text().splitlines(keepends=True)
    resumed.write_text("".join(lines[:-40]) + lines[-40][:50])
    assert run(resumed) == plain
    wait_for("the end of all processes", lambda: not any(map(is_alive, cluster.pids())))


def with_ray_serve(folder):
    cluster = Cluster(folder, step_ms=20)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    log = open(cluster.folder / "serve.log", "w+", encoding="utf-8")
    command = cluster.command("ray_serve.py", "--replicas", 2, "--cpus-per-replica", 0.2, "--port", port)
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=cluster.environment())

    def ask(path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                           {"Content-Type": "application/json"})
        return connection.getresponse()

    def question(i, **more):
        return {"prompt": f"number {i}:", "max_tokens": 24, "temperature": 0, "ignore_eos": True, **more}

    try:
        wait_for("two replicas", lambda: process.poll() is not None or "serving http" in
                 (cluster.folder / "serve.log").read_text(), 400)
        assert process.poll() is None, (cluster.folder / "serve.log").read_text()[-4000:]
        assert json.load(ask("/v1/models"))["data"][0]["id"] == "paced"
        refused = ask("/v1/completions", {"prompt": "a", "temperature": -1})
        assert refused.status == 400 and json.load(refused)["error"]["param"] == "temperature"
        plain = [json.load(ask("/v1/completions", question(i)))["choices"][0]["text"] for i in range(8)]

        answer, reads = ask("/v1/completions", question(0, max_tokens=100, stream=True)), 0
        while answer.read1(65536):
            reads += 1
        assert reads > 10, f"a stream came in {reads} pieces"

        first, second = cluster.pids()
        os.kill(first, signal.SIGKILL)
        failed, asked, end = 0, 0, time.monotonic() + 120
        while len(cluster.pids()) < 3 or asked < 40:
            answer = ask("/v1/completions", question(asked % 8))
            if answer.status == 200:
                assert json.load(answer)["choices"][0]["text"] == plain[asked % 8]
            failed += answer.status != 200
            asked += 1
            assert time.monotonic() < end, "the replica was not replaced"
        print(f"  after the kill {asked - failed} of {asked} requests were answered, one after the other", flush=True)
        assert failed <= 3 and is_alive(second), f"{failed} of {asked} failed"

        # The end waits for a stream.
        answer = ask("/v1/completions", question(0, max_tokens=200, stream=True))
        text = answer.read1(65536)
        process.send_signal(signal.SIGTERM)
        while piece := answer.read1(65536):
            text += piece
        assert text.endswith(b"data: [DONE]\n\n"), text[-200:]
        assert process.wait(60) == 0
        wait_for("the end of all processes", lambda: not any(map(is_alive, cluster.pids())))
    except Exception:
        print((cluster.folder / "serve.log").read_text()[-4000:])
        raise
    finally:
        process.kill()
        log.close()


@contextlib.contextmanager
def ray_cluster():
    """One for all tests, under a token of its own: it may listen on more than the loopback address."""
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    # On a busy machine Ray's own limits are too short.
    os.environ.update(RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S="120", RAY_agent_register_timeout_ms="180000",
                      RAY_worker_register_timeout_seconds="300")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        command = [pathlib.Path(sys.executable).parent / "ray", "start", "--head", "--block", "--port", str(port),
                   "--node-ip-address", "127.0.0.1", "--num-cpus", "4", "--include-dashboard", "false",
                   "--object-store-memory", "200000000", "--temp-dir", folder, "--disable-usage-stats"]
        head = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            def is_up():
                assert head.poll() is None, "ray start ended"
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    return True
                return False
            wait_for("ray start", is_up, 120)
            os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
            import ray

            def has_node():
                assert head.poll() is None, "ray start ended"
                with contextlib.suppress(ConnectionError):
                    ray.init(log_to_driver=False)
                    ray.shutdown()
                    return True
                return False
            wait_for("a node of Ray's", has_node, 180)
            yield
        finally:
            head.send_signal(signal.SIGTERM)
            head.wait(60)


TESTS = {"ray_data": with_ray_data, "ray_serve": with_ray_serve}


def main():
    if not importlib.util.find_spec("ray") or not importlib.util.find_spec("aiohttp"):
        print("skipped: expected Python with ray[data,serve]")
        return 77
    names = [name for name in sys.argv[2:] if name != "ray"] or list(TESTS)
    failed = 0
    with ray_cluster():
        for name in names:
            with tempfile.TemporaryDirectory(prefix="llmrt-ray-") as folder:
                try:
                    TESTS[name](folder)
                    print(f"passed ray: {name}", flush=True)
                except Exception:
                    failed += 1
                    print(f"FAILED ray: {name}")
                    traceback.print_exc(limit=-4, file=sys.stdout)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
