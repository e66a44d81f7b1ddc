"""A server of OpenAI's protocol with known delays and known faults, for tests of load generators.

The model's name says how it answers: "steady", or one of FAULTS. The first request to a model is always answered well, as
load generators ask once to warm up; of the others every second one meets the fault.
"""

import json
import socket
import threading
import time

TTFT_S, ITL_S = 0.06, 0.02
SLOW_TTFT_S = 0.4
EARLY_TOKENS = 3
ADAPTERS = ["lora-a", "lora-b", "lora-c", "lora-d"]  # of the model "steady"; answered as it is


def event(data):
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def head(status="200 OK", content_type="text/event-stream", extra="Transfer-Encoding: chunked\r\n"):
    return f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{extra}\r\n".encode()


def instance_of(schema):
    """The shortest value of a schema, as far as the bench's own schemas go."""
    if "anyOf" in schema:
        return instance_of(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "object":
        return {name: instance_of(schema["properties"][name]) for name in schema["required"]}
    if schema["type"] == "array":
        return [instance_of(schema["items"]) for _ in range(schema["minItems"])]
    return {"string": "x", "boolean": True, "integer": schema.get("minimum"), "number": schema.get("minimum")}[
        schema["type"]]


class Answer:
    """One answer, written piece by piece to a connection."""

    def __init__(self, connection, path, body):
        self.connection, self.body, self.is_chat, self.cached_tokens = connection, body, "chat" in path, None

    def raw(self, data):
        self.connection.sendall(data)

    def chunk(self, data):
        self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    def token(self, text=" time", finish=None):
        choice = {"index": 0, "finish_reason": finish}
        choice.update({"delta": {"content": text}} if self.is_chat else {"text": text})
        if self.body.get("return_token_ids"):
            choice["token_ids"] = [7] if text else []
        self.chunk(event({"choices": [choice]}))

    def tokens(self, count, ttft_s=TTFT_S):
        if self.is_chat:
            self.chunk(event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
        begin = time.monotonic() + ttft_s
        for i in range(count):
            time.sleep(max(0, begin + i * ITL_S - time.monotonic()))
            self.token()

    def call(self, tool):
        arguments = json.dumps(instance_of(tool["function"]["parameters"]))
        first = {"index": 0, "id": "c", "type": "function", "function": {"name": tool["function"]["name"], "arguments": ""}}
        rest = [{"index": 0, "function": {"arguments": piece}} for piece in (arguments[:5], arguments[5:])]
        for call in [first, *rest]:
            self.chunk(event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}))

    def structured(self, is_broken):
        self.raw(head())
        if "response_format" in self.body:
            text = json.dumps(instance_of(self.body["response_format"]["json_schema"]["schema"]))
            self.token(text[:9])
            self.token(text[9:-1] if is_broken else text[9:])
            return self.end(2, reason="length" if is_broken else "stop")
        if self.body.get("tool_choice") != "required":
            self.token()
            return self.end(1, reason="stop")
        self.call(self.body["tools"][-1])
        return self.end(3, reason="tool_calls")

    def end(self, count, usage=True, reason="length"):
        self.token("", reason)
        if usage and self.body.get("stream_options", {}).get("include_usage"):
            usage = {"prompt_tokens": 7, "completion_tokens": count}
            if self.cached_tokens is not None:
                usage["prompt_tokens_details"] = {"cached_tokens": self.cached_tokens}
            self.chunk(event({"choices": [], "usage": usage}))
        self.chunk(event(b"[DONE]"))
        self.raw(b"0\r\n\r\n")

    def whole(self, count=None, ttft_s=TTFT_S, usage=True):
        count = count or self.body["max_tokens"]
        self.raw(head())
        self.tokens(count, ttft_s)
        self.end(count, usage)


def status_503(answer):
    body = b"so busy \x1b[2J"
    answer.raw(head("503 Service Unavailable", "text/plain", f"Content-Length: {len(body)}\r\n") + body)


def no_content_type(answer):
    answer.raw(head(content_type="text/html", extra="Content-Length: 6\r\n") + b"<html>")


def cut_stream(answer):
    answer.raw(head())
    answer.tokens(2)
    return "close"


def cut_without_done(answer):
    answer.raw(head())
    answer.tokens(2)
    answer.raw(b"0\r\n\r\n")


def garbage_json(answer):
    answer.raw(head())
    answer.tokens(1)
    answer.chunk(b'data: {"choices": [{\n\n')


def not_an_answer(answer):
    answer.raw(head())
    answer.chunk(event({"choices": 5}))


def error_event(answer):
    answer.raw(head())
    answer.tokens(1)
    answer.chunk(event({"error": {"message": "the pool is gone"}}))
    answer.raw(b"0\r\n\r\n")


def endless(answer):
    answer.raw(head())
    for _ in range(10000):
        answer.token()
    return "close"


def no_tokens(answer):
    answer.raw(head())
    answer.end(0)


def long_line(answer):
    answer.raw(head())
    answer.chunk(b"data: ")
    for _ in range(1000):
        answer.chunk(b"x" * 4096)
    return "close"


def long_header(answer):
    answer.raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 17))
    return "close"


def not_http(answer):
    answer.raw(b"SSH-2.0-OpenSSH_9.2\r\n")
    return "close"


def bad_chunk(answer):
    answer.raw(head() + b"zz\r\nhello\r\n")
    return "close"


def hangs(answer):
    answer.raw(head())
    answer.tokens(1)
    time.sleep(5)
    return "close"


FAULTS = {
    "status_503": (status_503, "status 503"), "no_content_type": (no_content_type, "bad_reply"),
    "cut_stream": (cut_stream, "cut_stream"), "cut_without_done": (cut_without_done, "cut_stream"),
    "garbage_json": (garbage_json, "bad_reply"), "not_an_answer": (not_an_answer, "bad_reply"),
    "error_event": (error_event, "error_event"), "no_tokens": (no_tokens, "no_tokens"), "endless": (endless, "too_long"),
    "long_line": (long_line, "long_line"), "long_header": (long_header, "bad_reply"), "not_http": (not_http, "bad_reply"),
    "bad_chunk": (bad_chunk, "bad_reply"), "hangs": (hangs, "timeout"),
}


class Server:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.bodies, self.arrivals_s, self.num_connections = [], [], 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.num_connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with connection, connection.makefile("rb") as lines:
            try:
                while self.serve_one(connection, lines) != "close":
                    pass
            except OSError:  # the client has gone
                pass

    def serve_one(self, connection, lines):
        start = lines.readline().decode().split()
        if not start:
            return "close"
        size = 0
        for line in iter(lines.readline, b"\r\n"):
            name, _, value = line.decode().partition(":")
            size = int(value) if name.lower() == "content-length" else size
        arrived_s = time.monotonic()
        if start[0] == "GET":
            others = [{"id": "lora-of-another", "parent": "another"}]
            adapters = [{"id": name, "parent": "steady"} for name in ADAPTERS]
            body = json.dumps({"data": [*others, {"id": "steady", "parent": None}, *adapters]}).encode()
            connection.sendall(head(content_type="application/json", extra=f"Content-Length: {len(body)}\r\n") + body)
            return None
        body = json.loads(lines.read(size))
        with self.lock:
            self.bodies.append(body)
            self.arrivals_s.append(arrived_s)
            number = sum(other["model"] == body["model"] for other in self.bodies)
        return self.answer(Answer(connection, start[1], body), body["model"], number)

    def answer(self, answer, model, number):
        if model in FAULTS and number % 2 == 0:
            return FAULTS[model][0](answer)
        if model == "closes" and number > 1:
            return "close"
        if model == "strict" and ("ignore_eos" in answer.body or "stream_options" in answer.body):
            reply = b"unknown field"
            return answer.raw(head("400 Bad Request", "text/plain", f"Content-Length: {len(reply)}\r\n") + reply)
        if model == "structured" and ("response_format" in answer.body or "tools" in answer.body):
            assert "ignore_eos" not in answer.body and "min_tokens" not in answer.body
            schemas = [body for body in self.bodies if "response_format" in body]
            return answer.structured(is_broken=answer.body in schemas and schemas.index(answer.body) % 2 == 1)
        if model == "early":
            return answer.whole(min(EARLY_TOKENS, answer.body["max_tokens"]))
        if model == "slow" and number % 2 == 0:
            return answer.whole(ttft_s=SLOW_TTFT_S)
        if model == "caching":  # 5 of 7 tokens where all but the last message was asked before, and answered
            begins = [body["messages"] for body in self.bodies if body is not answer.body]
            is_known = answer.body["messages"][:-2] in begins and answer.body["messages"][-2]["content"] == " time" * 2
            answer.cached_tokens = 5 if is_known else 0
            return answer.whole(ttft_s=TTFT_S / 3 if is_known else TTFT_S)
        if model == "closing":
            answer.whole()
            return "close"
        return answer.whole(usage=model != "uncounted")
