"""Stock HTTP clients against `llmrt serve` as a program: curl with an offer of HTTP/2, the JDK's HttpClient, node's
fetch, Python's http.client; and what the program does while it starts and ends.

Environment: LLMRT_PROGRAM (the binary), LLMRT_TEST_DEVICE (auto). A client that is not installed is a counted skip.
"""

import atexit
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

PROGRAM = os.environ["LLMRT_PROGRAM"]
DEVICE = os.environ.get("LLMRT_TEST_DEVICE", "auto")
HERE = pathlib.Path(__file__).parent
SHAPE = "synthetic:smollm2-135m:q4_0"


class Server:
    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", SHAPE, "--port", "0", "--device", DEVICE, "--context", "256", "--kv-tokens", "2048", *flags],
            stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        self.log = ""
        for line in self.process.stderr:
            self.log += line
            found = re.search(r"serving \S+ on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                self.url = f"http://127.0.0.1:{self.port}"
                return
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGINT)  # without notice
        self.log += self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, self.log

    def get(self, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path, headers=headers)
        return connection.getresponse()


def curl(*arguments):
    return subprocess.run(["curl", "-sS", "-m", "60", *arguments], capture_output=True, text=True, check=True).stdout


def curl_offers_http2(server):
    if "HTTP2" not in curl("--version"):
        return "a curl with HTTP/2"
    out = curl("--http2", "-i", f"{server.url}/v1/models", "-H", "x-request-id: from-curl")
    assert out.startswith("HTTP/1.1 200 OK\n") and "x-request-id: from-curl\n" in out, out
    out = curl("--http2", f"{server.url}/v1/completions", "-H", "Content-Type: application/json",
               "-d", '{"prompt": [1], "max_tokens": 2}')
    assert json.loads(out)["usage"]["completion_tokens"] == 2
    known = subprocess.run(["curl", "-sS", "-m", "20", "--http2-prior-knowledge", f"{server.url}/health"],
                           capture_output=True, text=True)
    assert known.returncode != 0
    plain = curl("-i", f"{server.url}/v1/completions", "-d", "{}")
    assert " 415 " in plain and "-H 'Content-Type: application/json'" in plain, plain


def curl_through_a_proxy_form(server):
    """With -x the target comes in absolute form."""
    out = curl("-x", server.url, "http://localhost/health")
    assert json.loads(out)["status"] == "ok"
    assert "host_not_allowed" in curl("-x", server.url, "http://evil.example/v1/models")


def jdk_client(server):
    if not shutil.which("javac"):
        return "a JDK"
    run = subprocess.run(["java", "-Xmx128m", str(HERE / "JdkClient.java"), server.url], capture_output=True, text=True,
                         timeout=300)
    assert run.stdout.split("\n") == ["200 HTTP_1_1", "200 HTTP_1_1 true"] * 3 + [""], run.stdout + run.stderr


def node_fetch(server):
    if not shutil.which("node"):
        return "node"
    script = """
      const answer = await fetch(process.argv[1] + '/v1/completions?api-version=1', {method: 'POST',
        headers: {'Content-Type': 'application/json'}, body: '{"prompt": [1], "max_tokens": 3, "stream": true}'});
      let text = '';
      for await (const part of answer.body) text += Buffer.from(part);
      console.log(answer.status, answer.headers.has('x-request-id'), text.trim().endsWith('[DONE]'));
      console.log((await fetch(process.argv[1] + '/models/')).status);"""
    run = subprocess.run(["node", "--input-type=module", "-e", script, server.url], capture_output=True, text=True,
                         timeout=120)
    assert run.stdout == "200 true true\n200\n", run.stdout + run.stderr


def browser_preflight(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("OPTIONS", "/v1/chat/completions", headers={
        "Origin": "http://app.example", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type", "Sec-Fetch-Mode": "cors"})
    answer = connection.getresponse()
    assert answer.status == 204 and answer.read() == b""
    assert answer.headers["Access-Control-Allow-Origin"] == "http://app.example"
    connection.request("GET", "/v1/models", headers={"Origin": "http://app.example"})  # the same connection
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["Access-Control-Allow-Origin"] == "http://app.example"
    answer.read()


def python_keeps_alive(server):
    connection = http.client.HTTPConnection("localhost", server.port, timeout=30)
    for _ in range(3):
        connection.request("GET", "/health", headers={"Connection": "keep-alive"})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["Date"]
        answer.read()


def a_port_in_use_is_told_before_weights_load():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        run = subprocess.run([PROGRAM, "serve", SHAPE, "--port", port, "--device", DEVICE], capture_output=True, text=True,
                             timeout=120)
    assert run.returncode == 1 and f"cannot listen: 127.0.0.1:{port}" in run.stderr, run.stderr
    assert "loading weights" not in run.stderr and "device:" not in run.stderr, run.stderr


def flags_are_checked():
    for flags, text in ((("--allowed-origins", "a.example"), "expected origins as http://localhost:3000"),
                        (("--allowed-hosts", "a.example:80"), "expected names without scheme and port"),
                        (("--idle-s", "0"), "--idle-s")):
        run = subprocess.run([PROGRAM, "serve", SHAPE, *flags], capture_output=True, text=True, timeout=60)
        assert run.returncode == 2 and text in run.stderr + run.stdout, run.stderr


def each_line_of_a_json_log_is_an_object():
    server = Server("--log-format", "json")
    assert server.get("/none").status == 404
    server.stop()
    lines = [json.loads(line) for line in server.log.splitlines()]
    assert all({"time", "level", "message"} <= line.keys() for line in lines), server.log
    told = " ".join(line["message"] for line in lines)
    for text in ("device: ", "loading weights: ", "KV pool: ", "serving ", "404 not_found", "stopped"):
        assert text in told, server.log


def sigterm_is_told_before_the_port_closes():
    server = Server("--drain-notice-s", "2")
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert server.get("/ready").status == 503 and server.get("/health").status == 503
    assert server.get("/live").status == 200
    server.log += server.process.communicate(timeout=60)[1]
    assert server.process.returncode == 0 and time.monotonic() - begin > 1.9, server.log


def main():
    server = Server("--allowed-origins", "http://app.example", "--host", "127.0.0.1,localhost")
    if not hasattr(server, "port"):
        print("skipped: expected a device: " + server.log)
        return 77
    skipped = []
    for test in (curl_offers_http2, curl_through_a_proxy_form, jdk_client, node_fetch, browser_preflight,
                 python_keeps_alive):
        missing = test(server)
        if missing:
            skipped.append(test.__name__)
        print(f"{test.__name__}: {'skipped: expected ' + missing if missing else 'passed'}", flush=True)
    server.stop()
    assert not re.search(r" error ", server.log), server.log
    for test in (a_port_in_use_is_told_before_weights_load, flags_are_checked, each_line_of_a_json_log_is_an_object,
                 sigterm_is_told_before_the_port_closes):
        test()
        print(f"{test.__name__}: passed", flush=True)
    print(f"{len(skipped)} skipped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
