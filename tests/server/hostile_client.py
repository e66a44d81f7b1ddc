"""What hostile_test.py talks with: a server to attack, plain HTTP over raw sockets, the polite client that measures.

Nothing but the standard library: a client that sends broken HTTP has to write every byte itself.
"""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

MIB = 1 << 20


def dumps(value):
    return json.dumps(value, separators=(",", ":")).encode()


def request_bytes(path, body=b"", method="POST", headers=(), content_type="application/json"):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if method == "POST":
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    lines += headers
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Answer:
    def __init__(self, status, head, body):
        self.status, self.head, self.body = status, head, body

    def json(self):
        return json.loads(self.body)


async def read_answer(reader, has_body=True):
    """One answer: its length told, in chunks, or up to the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    if status == 100:
        return await read_answer(reader, has_body)
    lower = head.lower()
    if not has_body or status == 204:
        return Answer(status, head, b"")
    if b"transfer-encoding: chunked" in lower:
        parts = []
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            chunk = await reader.readexactly(size + 2)
            if size == 0:
                return Answer(status, head, b"".join(parts))
            parts.append(chunk[:-2])
    length = re.search(rb"\r\ncontent-length: *(\d+)", lower)
    body = await (reader.readexactly(int(length.group(1))) if length else reader.read(-1))
    return Answer(status, head, body)


def stream_text(body):
    """The text of all chunks of a stream, and whether it ended as it should."""
    text = ""
    for line in body.split(b"\n"):
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:]).get("choices", []):
                text += choice.get("text") or choice.get("delta", {}).get("content") or ""
    return text, b"data: [DONE]" in body


async def connect(port, receive_bytes=None):
    """A connection as streams. `receive_bytes`: how little its receive buffer holds."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if receive_bytes:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    try:
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=made, limit=1 << 18)
    except BaseException:
        made.close()
        raise


def close(writer):
    """At once, whatever waits to be sent."""
    writer.transport.abort()


async def ask(port, path, body=b"", method="POST", headers=(), timeout_s=60):
    """One request on a connection of its own."""
    if not isinstance(body, bytes):
        body = dumps(body)

    async def exchange():
        reader, writer = await connect(port)
        try:
            writer.write(request_bytes(path, body, method, headers))
            return await read_answer(reader, method != "HEAD")
        finally:
            close(writer)

    return await asyncio.wait_for(exchange(), timeout_s)


# ---- the server -----------------------------------------------------------------------------------------------------


class Server:
    """paced_server with flags, its log in a file. Memory as Linux counts it."""

    PATIENCE_S = 5

    def __init__(self, program, *flags):
        self.log_file = tempfile.NamedTemporaryFile(prefix="hostile_", suffix=".log", delete=False)
        self.process = subprocess.Popen([program, *flags], stdout=subprocess.PIPE, stderr=self.log_file, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("listening "):
            raise RuntimeError(f"{program}: expected 'listening PORT', found {line!r}: {self.log()}")
        self.port = int(line.split()[1])
        self.pid = self.process.pid
        self.log_read = 0
        self.idle_files = self.num_files()

    def log(self):
        with open(self.log_file.name, errors="replace") as file:
            return file.read()

    def new_errors(self):
        """Lines of the log at level error since the last call."""
        text = self.log()
        new, self.log_read = text[self.log_read:], len(text)
        lines = [line for line in new.splitlines() if re.match(r"\S+ \S+ error\b", line)]
        return lines + [line for line in new.splitlines() if "Sanitizer" in line or "runtime error:" in line]

    def is_up(self):
        return self.process.poll() is None

    def memory_mib(self):
        """(now, most since forget_peak)"""
        with open(f"/proc/{self.pid}/status") as file:
            text = file.read()
        return tuple(int(re.search(rf"{name}:\s*(\d+) kB", text).group(1)) / 1024 for name in ("VmRSS", "VmHWM"))

    def forget_peak(self):
        try:
            with open(f"/proc/{self.pid}/clear_refs", "w") as file:
                file.write("5")
        except OSError:
            pass  # then the peak is of the server's whole life: a stricter test

    def get(self, path, timeout_s=5, headers=()):
        return asyncio.run(ask(self.port, path, method="GET", headers=headers, timeout_s=timeout_s))

    def post(self, path, body, timeout_s=60, headers=()):
        return asyncio.run(ask(self.port, path, body, headers=headers, timeout_s=timeout_s))

    def open_requests(self):
        """Running, waiting and streaming, of all engines, as /metrics tells."""
        text = self.get("/metrics").body.decode()
        names = ("running", "waiting", "streaming")
        found = [re.findall(rf"^llmrt_requests_{name}(?:{{[^}}]*}})? (\d+)", text, re.M) for name in names]
        assert all(found), text
        return [sum(map(int, numbers)) for numbers in found]

    def num_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def holds(self, client_port):
        """Whether it still has the connection to that port open (one that it closed has no inode any more)."""
        with open("/proc/net/tcp") as file:
            for line in file.readlines()[1:]:
                parts = line.split()
                ports = [int(address.split(":")[1], 16) for address in parts[1:3]]
                if ports == [self.port, client_port]:
                    return parts[9] != "0"
        return False

    def is_working(self):
        """Whether threads of it want to run all the time: with no request left none does. A busy machine may let them
        wait, and so it is not the time they get that counts."""
        for _ in range(5):
            states = ""
            for thread in os.listdir(f"/proc/{self.pid}/task"):
                try:
                    with open(f"/proc/{self.pid}/task/{thread}/stat") as file:
                        states += file.read().rsplit(")", 1)[1].split()[0]
                except OSError:
                    pass  # it ended
            if "R" not in states:
                return False
            time.sleep(0.02)
        return True

    def wait_quiet(self, limit_s):
        """None once no request is left, nothing is computed and connections are gone; else what is left."""
        end = time.monotonic() + limit_s
        while True:
            try:
                found = dict(zip(("running", "waiting", "streaming"), self.open_requests()))
                if not any(found.values()):
                    found = f"{self.num_files() - self.idle_files} connections"
                    if self.num_files() <= self.idle_files + 2:
                        if not self.is_working():
                            return None
                        found = "no request, but it computes"
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
                found = "no answer to /metrics"
            if time.monotonic() > end or not self.is_up():
                return found
            time.sleep(0.03)

    def end(self, num_signals=1):
        """How it ended: 0 after SIGTERM, else its code; the log is removed."""
        for _ in range(num_signals):
            if self.is_up():
                self.process.send_signal(signal.SIGTERM)
                time.sleep(0.3 if num_signals > 1 else 0)
        try:
            code = self.process.wait(self.PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = f"not within {self.PATIENCE_S} s of {num_signals} SIGTERM"
        self.process.stdout.close()
        os.unlink(self.log_file.name)
        return code


# ---- the polite client ----------------------------------------------------------------------------------------------

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"


def polite_requests():
    """Short ones, each with the one right answer at temperature 0: (path, body, streamed)."""
    requests = []
    for i in range(8):
        body = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}
        if i % 4 == 2:
            path = TEXT
            body["prompt"] = f"Of all that is told of number {i}, this is true:"
        else:
            path = CHAT
            body["messages"] = [{"role": "system", "content": "Be brief."},
                                {"role": "user", "content": f"What is {i} plus {i + 1}?"}]
        if i % 2:
            body["stream"] = True
        if i % 4 == 3:
            body["frequency_penalty"] = 0.1
        requests.append((path, dumps(body), i % 2 == 1))
    return requests


class Polite:
    """Sends 20 requests a second whether or not the ones before are answered, every other one on a new connection."""

    PER_S = 20
    PATIENCE_S = 3

    def __init__(self, port):
        self.port = port
        self.requests = polite_requests()
        self.right = [None] * len(self.requests)
        self.kept = []

    async def one(self, index):
        """(latency in ms, what was wrong or None)"""
        path, body, streamed = self.requests[index % len(self.requests)]
        begin = time.monotonic()
        wrong = None
        keeps = index % 2 == 0
        used = []

        async def exchange():
            used.append(self.kept.pop() if keeps and self.kept else await connect(self.port))
            reader, writer = used[0]
            writer.write(request_bytes(path, body))
            return await read_answer(reader)

        try:
            answer = await asyncio.wait_for(exchange(), self.PATIENCE_S)
            latency_ms = (time.monotonic() - begin) * 1e3
            if answer.status != 200:
                wrong = f"status {answer.status}: {answer.body[:200]!r}"
            else:
                wrong = self.judge(index % len(self.requests), answer, streamed)
        except asyncio.TimeoutError:
            latency_ms = self.PATIENCE_S * 1e3
            wrong = f"no answer within {self.PATIENCE_S} s"
        except (OSError, asyncio.IncompleteReadError) as error:
            latency_ms = (time.monotonic() - begin) * 1e3
            wrong = f"a broken connection: {error!r}"
        for reader, writer in used:
            if keeps and not wrong:
                self.kept.append((reader, writer))
            else:
                close(writer)
        return latency_ms, wrong

    def judge(self, index, answer, streamed):
        if streamed:
            text, ended = stream_text(answer.body)
            if not ended:
                return "a stream without an end"
        else:
            choice = answer.json()["choices"][0]
            text = choice["text"] if "text" in choice else choice["message"]["content"]
        if self.right[index] is None:
            self.right[index] = text
        return None if text == self.right[index] else f"another answer: {text!r} for {self.right[index]!r}"

    async def health(self):
        try:
            answer = await ask(self.port, "/health", method="GET", timeout_s=self.PATIENCE_S)
            return None if answer.status == 200 else f"/health: {answer.status}"
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            return f"/health: no answer within {self.PATIENCE_S} s"

    async def measure(self, seconds):
        """(latencies in ms, faults) of the requests that begin within that time."""
        self.kept = []
        begin = time.monotonic()
        tasks, probes = [], []
        for index in range(max(4, round(seconds * self.PER_S))):
            await asyncio.sleep(max(0, begin + index / self.PER_S - time.monotonic()))
            tasks.append(asyncio.create_task(self.one(index)))
            if index % 10 == 5:
                probes.append(asyncio.create_task(self.health()))
        found = await asyncio.gather(*tasks)
        faults = [wrong for _, wrong in found if wrong] + [wrong for wrong in await asyncio.gather(*probes) if wrong]
        for _, writer in self.kept:
            close(writer)
        self.kept = []
        return [latency_ms for latency_ms, _ in found], faults

    async def learn(self):
        """The right answers, one request at a time: nobody else may be there."""
        for index in range(2 * len(self.requests)):
            _, wrong = await self.one(index)
            if wrong:
                raise RuntimeError(f"the quiet server: {wrong}")
        for _, writer in self.kept:
            close(writer)
        self.kept = []


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
