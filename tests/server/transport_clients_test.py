"""A real server process and engine: TLS by Python's own client, keys and certificates read again on SIGHUP, the unix
socket, and a stream that is throttled: its text, and the others'.

    transport_clients_test.py PACED_SERVER
"""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hostile_client import CHAT, TEXT, Server, dumps, request_bytes  # noqa: E402

FAILED = []


def check(is_right, text):
    print(f"{'ok' if is_right else 'FAILED':6} {text}", flush=True)
    if not is_right:
        FAILED.append(text)


def exchange(stream, data):
    stream.sendall(data)
    answer = b""
    while True:
        try:
            part = stream.recv(65536)
        except ConnectionResetError:
            part = b""
        if not part:
            return answer
        answer += part


def request(path, body=b"", method="GET", key=None):
    headers = ["Connection: close"] + ([f"Authorization: Bearer {key}"] if key else [])
    return request_bytes(path, body, method, headers)


def status(answer):
    return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def certificate(folder, name):
    files = [os.path.join(folder, f"{name}.{end}") for end in ("crt", "key")]
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                           "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                           "-out", files[0], "-keyout", files[1]], capture_output=True)
    return files if made.returncode == 0 else None


def wait_log(server, text):
    end = time.monotonic() + 10
    while text not in server.log() and time.monotonic() < end:
        time.sleep(0.02)
    return text in server.log()


# ---- TLS, keys, SIGHUP, the unix socket -----------------------------------------------------------------------------


def connects(program, folder):
    files = certificate(folder, "first")
    second = certificate(folder, "second")
    key_file, path = os.path.join(folder, "keys"), os.path.join(folder, "socket")
    if not files or not second:
        print("skipped: expected the program openssl")
        return
    with open(key_file, "w") as file:
        file.write("alice secret-of-alice-0123\n")
    server = Server(program, "--tls-cert", files[0], "--tls-key", files[1], "--api-key-file", key_file,
                    "--unix-socket", path)

    def over_tls(data, trusted=files[0]):
        context = ssl.create_default_context(cafile=trusted)  # checks name and certificate
        with socket.create_connection(("localhost", server.port)) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as stream:
                return exchange(stream, data), stream.version()

    answer, version = over_tls(request("/v1/models", key="secret-of-alice-0123"))
    check(status(answer) == 200 and version == "TLSv1.3", f"a verified TLS client is answered: {version}")
    answer, _ = over_tls(request("/v1/models"))
    check(status(answer) == 401, "without a key: 401")
    body = dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 20})
    answer, _ = over_tls(request(CHAT, body, "POST", "secret-of-alice-0123"))
    check(b"data: [DONE]" in answer and answer.endswith(b"0\r\n\r\n"), "a stream over TLS ends as it should")
    with socket.create_connection(("localhost", server.port)) as plain:
        answer = exchange(plain, request("/v1/models"))
    check(status(answer) == 400 and b"plain_http" in answer, "plain HTTP is told that this port speaks TLS")
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        answer = exchange(stream, request("/v1/models", key="secret-of-alice-0123"))
    check(status(answer) == 200, "the unix socket speaks without TLS")

    os.replace(second[0], files[0])
    os.replace(second[1], files[1])
    with open(key_file, "w") as file:
        file.write("bob secret-of-bob-012345\n")
    server.process.send_signal(signal.SIGHUP)
    check(wait_log(server, "API keys: 1 read from "), "SIGHUP reads keys again")
    answer, _ = over_tls(request("/v1/models", key="secret-of-bob-012345"))
    check(status(answer) == 200, "the new certificate and the new key")
    answer, _ = over_tls(request("/v1/models", key="secret-of-alice-0123"))
    check(status(answer) == 401, "the old key is gone")
    with open(key_file, "w") as file:
        file.write("broken\n")
    server.process.send_signal(signal.SIGHUP)
    check(wait_log(server, "still those from before"), "a bad key file is told")
    answer, _ = over_tls(request("/v1/models", key="secret-of-bob-012345"))
    check(status(answer) == 200, "and changes nothing")
    log = server.log()
    check("secret-of" not in log and "with a wrong key of 20 bytes" in log, "no secret is in the log")
    check(server.end() == 0 and not os.path.exists(path), "the server ends in order, and its socket's file is gone")


# ---- streams --------------------------------------------------------------------------------------------------------


class Stream:
    """A stream that is read by `pace` bytes a second (None: at once), from `begin_s` on."""

    def __init__(self, port, body, pace=None, begin_s=0.0):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("localhost", port))
        self.body, self.pace, self.begin_s = body, pace, begin_s
        self.answer, self.times = b"", []
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        self.socket.sendall(request(TEXT, dumps(self.body), "POST"))
        time.sleep(self.begin_s)
        while True:
            part = self.socket.recv(65536 if self.pace is None else max(1, self.pace // 20))
            if not part:
                break
            self.answer += part
            self.times.append(time.monotonic())
            if self.pace is not None:
                time.sleep(0.05)
        self.socket.close()

    def tokens(self):
        self.thread.join()
        ids = []
        for line in self.answer.split(b"\n"):
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    ids += choice.get("token_ids") or []
        return ids if b"data: [DONE]" in self.answer else None


def metric(server, name):
    found = re.search(rf"^{re.escape(name)} (\S+)", server.get("/metrics").body.decode(), re.M)
    return float(found.group(1)) if found else None


def throttles(program):
    server = Server(program, "--slow-clients", "throttle", "--stream-buffer-kib", "16", "--send-buffer-bytes", "4096",
                    "--step-ms", "1", "--token-us", "0", "--write-s", "3")

    def body(seed):
        return {"prompt": [400 + seed, 401, 402], "max_tokens": 600, "seed": seed, "stream": True, "ignore_eos": True,
                "return_token_ids": True, "logprobs": 5, "batch_invariant": False}

    alone = [Stream(server.port, body(seed)).tokens() for seed in range(3)]
    check(all(ids is not None and len(ids) == 600 for ids in alone), "three streams alone are whole")
    paused = metric(server, 'llmrt_slow_clients_total{outcome="throttled"}')
    steps = metric(server, "llmrt_generated_tokens_total")
    slow = Stream(server.port, body(0), pace=100_000, begin_s=2)  # nothing for 2 s, then slowly
    time.sleep(1)
    generated = metric(server, "llmrt_generated_tokens_total") - steps
    check(0 < generated < 550, f"a row whose client reads nothing rests: {generated:.0f} of 600 tokens in 1 s")
    fast = [Stream(server.port, body(seed)) for seed in (1, 2)]
    check([stream.tokens() for stream in fast] == alone[1:], "the others' tokens are the same")
    check(slow.tokens() == alone[0], "its own tokens are the same, too, once it has read")
    before = slow.times[-1] - max(stream.times[-1] for stream in fast)
    check(before > 0, f"and the others did not wait for it: they ended {before:.1f} s before")
    check(metric(server, 'llmrt_slow_clients_total{outcome="throttled"}') > paused, "pauses are counted")

    never = Stream(server.port, body(0), begin_s=4)  # longer than --write-s
    end = time.monotonic() + 15
    while metric(server, 'llmrt_requests_finished_total{reason="disconnected"}') == 0 and time.monotonic() < end:
        time.sleep(0.2)
    check(metric(server, 'llmrt_requests_finished_total{reason="disconnected"}') == 1, "one that never reads is given up")
    check(metric(server, 'llmrt_slow_clients_total{outcome="stalled"}') == 1, "as stalled")
    check(metric(server, 'llmrt_requests_finished_total{reason="cancelled"}') == 0, "and not as cancelled")
    never.thread.join()
    check(server.wait_quiet(10) is None, "nothing is left")
    check(server.end() == 0, "the server ends in order")


def main():
    with tempfile.TemporaryDirectory() as folder:
        connects(sys.argv[1], folder)
    throttles(sys.argv[1])
    print(f"FAILED: {len(FAILED)}: {', '.join(FAILED)}" if FAILED else "passed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
