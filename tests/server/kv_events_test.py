"""KV events as a router reads them: what prompts left in the prefix cache, and what of it has gone.

    kv_events_test.py PACED_SERVER
    kv_events_test.py --llmrt LLMRT         the same of the program, with models that come and go

Needs pyzmq and msgpack; without them, and without a libzmq that the server can open, it is skipped (77). Where the
system has no libzmq, the server gets that of pyzmq.
"""

import collections
import concurrent.futures
import ctypes
import glob
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    import msgpack
    import zmq
except ImportError as error:
    print(f"skipped: expected Python with pyzmq and msgpack: {error}")
    sys.exit(77)

from hostile_client import Server

PROGRAM = sys.argv[-1]
BLOCK = 16
TOPIC = b"kv@0@paced"


def has_system_library():
    try:
        ctypes.CDLL("libzmq.so.5")
        return True
    except OSError:
        return False


def lend_library(folder):
    """Links to what pyzmq brings, under the name that the server asks for. None: it brings none."""
    site = os.path.dirname(os.path.dirname(zmq.__file__))
    files = glob.glob(os.path.join(site, "pyzmq.libs", "*"))
    for path in files:
        os.symlink(path, os.path.join(folder, os.path.basename(path)))
        if os.path.basename(path).startswith("libzmq"):
            os.symlink(path, os.path.join(folder, "libzmq.so.5"))
    return folder if os.path.exists(os.path.join(folder, "libzmq.so.5")) else None


def named(event):
    """An event by the names of its fields, whichever form it has."""
    if isinstance(event, dict):
        return event.pop("type"), event
    fields = {
        "BlockStored": ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
                        "lora_name"],
        "BlockRemoved": ["block_hashes", "medium"],
        "AllBlocksCleared": [],
    }[event[0]]
    assert len(event) == len(fields) + 1, event
    return event[0], dict(zip(fields, event[1:]))


class Router:
    """Keeps what an engine has, by the text up to each block's end."""

    def __init__(self):
        self.texts = {}
        self.counts = collections.Counter()
        self.next = 0
        self.gaps = []

    def take(self, number, payload):
        if number < self.next:
            return
        if number > self.next:
            self.gaps.append(number)
        self.next = number + 1
        ts, events, rank = msgpack.unpackb(payload)
        assert abs(ts - time.time()) < 60 and rank == 0
        for i, event in enumerate(events):
            tag, fields = named(event)
            self.counts[tag] += 1
            if tag == "AllBlocksCleared":
                self.texts = {}
                if self.gaps and self.gaps[-1] == number:
                    assert i == 0, "all is told anew behind a gap"
            elif tag == "BlockRemoved":
                assert fields["medium"] == "GPU"
                for block in fields["block_hashes"]:
                    del self.texts[block]
            else:
                assert (fields["medium"], fields["block_size"]) == ("GPU", BLOCK)
                assert fields["lora_id"] is None and fields["lora_name"] is None
                hashes, tokens = fields["block_hashes"], fields["token_ids"]
                assert len(tokens) == len(hashes) * BLOCK
                parent = fields["parent_block_hash"]
                text = () if parent is None else self.texts[parent]
                for block in hashes:
                    assert 0 <= block < 1 << 64 and block not in self.texts
                    text, tokens = text + tuple(tokens[:BLOCK]), tokens[BLOCK:]
                    self.texts[block] = text

    def known(self, tokens):
        """How many first tokens of a prompt the engine has."""
        there = set(self.texts.values())
        count = 0
        while count + BLOCK <= len(tokens) and tuple(tokens[: count + BLOCK]) in there:
            count += BLOCK
        return count


class Stream:
    """A server, a router that subscribes, and one that asks for old events."""

    def __init__(self, *flags, replays=True, step_ms=0.1):
        self.folder = tempfile.TemporaryDirectory(prefix="kv_events_")
        path = self.folder.name
        events, replay = f"ipc://{path}/events", f"ipc://{path}/replay"
        more = ["--kv-events-replay", replay] if replays else []
        self.server = Server(PROGRAM, "--kv-events", events, *more, "--step-ms", str(step_ms), "--token-us", "0",
                             *flags)
        self.context = zmq.Context()
        self.live = self.context.socket(zmq.SUB)
        self.live.setsockopt(zmq.SUBSCRIBE, b"kv@")
        self.live.connect(events)
        self.old = self.context.socket(zmq.DEALER)
        self.old.connect(replay)
        self.router = Router()
        self.first = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.live.close(0)
        self.old.close(0)
        self.context.term()
        if self.server.is_up():
            self.server.process.send_signal(signal.SIGTERM)
            code = self.server.process.wait(timeout=30)
            assert kind or code == 0, self.server.log()[-2000:]
        assert kind or not self.server.new_errors(), self.server.log()[-2000:]
        self.folder.cleanup()

    def ask(self, prompt, max_tokens=1, **fields):
        """The text that is in the cache afterwards: what was drawn last was not computed."""
        body = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "return_token_ids": True} | fields
        answer = self.server.post("/v1/completions", body)
        assert answer.status == 200, answer.body
        told = json.loads(answer.body)
        return list(prompt) + told["choices"][0]["token_ids"][:-1]

    def replayed(self, first, limit_s=10):
        """[(number, payload)] of the messages that are kept."""
        self.old.send_multipart([b"", first.to_bytes(8, "big")])
        messages = []
        while True:
            assert self.old.poll(limit_s * 1000), "the end of a replay"
            empty, number, payload = self.old.recv_multipart()
            assert empty == b""
            if number == b"\xff" * 8:
                assert payload == b""
                return messages
            messages.append((int.from_bytes(number, "big"), payload))

    def pump(self, quiet_s=0.3):
        """Takes all that comes, and what came before the subscription stood."""
        while self.live.poll(quiet_s * 1000):
            topic, number, payload = self.live.recv_multipart()
            assert topic == TOPIC and len(number) == 8
            number = int.from_bytes(number, "big")
            if self.first is None:
                self.first = number
                for old in self.replayed(0) if number > 0 else []:
                    self.router.take(*old)
            self.router.take(number, payload)

    def settle(self, is_it, limit_s=20):
        end = time.monotonic() + limit_s
        self.pump()
        while not is_it() and time.monotonic() < end:
            self.pump()
        assert is_it(), (self.router.counts, len(self.router.texts), self.server.log()[-500:])

    def expect(self, text):
        whole = len(text) // BLOCK * BLOCK
        self.settle(lambda: self.router.known(text) == whole)


def tokens(seed, count):
    """Of the vocabulary's middle, which has no special ones."""
    dice = random.Random(seed)
    return [dice.randrange(20, 200) for _ in range(count)]


def test_stream(*flags):
    with Stream("--kv-tokens", str(40 * BLOCK), "--context", str(30 * BLOCK), "--sequences", "4", *flags) as stream:
        router = stream.router
        first = stream.ask(tokens(1, 100), max_tokens=14)
        assert len(first) == 113
        stream.expect(first)
        stored = router.counts["BlockStored"]
        stream.ask(first)  # all of it is there
        second = stream.ask(first + tokens(2, 50))
        stream.expect(second)
        assert router.counts["BlockStored"] > stored and router.counts["BlockRemoved"] == 0
        assert len(router.texts) == len(second) // BLOCK
        # What has a salt is told to nobody.
        stream.ask(tokens(3, 80), cache_salt="mine")
        assert not stream.live.poll(500)
        # A full pool: what is told is never more than it holds, and what went is computed anew.
        for seed in range(10, 30):
            last = stream.ask(tokens(seed, 150))
        stream.expect(last)
        assert router.counts["BlockRemoved"] > 0 and len(router.texts) <= 40
        assert router.known(second) == 0 and router.gaps == []
        told = dict(router.texts)
        again = Router()
        for number, payload in stream.replayed(0):
            again.take(number, payload)
        assert again.texts == told and again.next == router.next and again.gaps == []
        assert [number for number, _ in stream.replayed(3)] == list(range(3, router.next))
        assert stream.replayed(1 << 60) == []
        # An end in order is the end of its blocks.
        stream.server.process.send_signal(signal.SIGTERM)
        stream.settle(lambda: router.texts == {})
        assert router.counts["AllBlocksCleared"] == 1


def test_bad_requests():
    with Stream("--kv-events-kept", "4") as stream:
        first = stream.ask(tokens(1, 100))
        for frames in [[b"", b"\0" * 7], [b"x", b"\0" * 8], [b"\0" * 8], [b"", b"\0" * 8, b"", b"", b""], [b"", b""]]:
            stream.old.send_multipart(frames)
        try:
            stream.old.send_multipart([b"", b"\0" * (1 << 20)])  # larger than is read: the peer is dropped
            time.sleep(0.3)
        finally:
            stream.old.close(0)
        stream.old = stream.context.socket(zmq.DEALER)
        stream.old.connect(f"ipc://{stream.folder.name}/replay")
        for seed in range(2, 9):
            last = stream.ask(tokens(seed, 60))
            time.sleep(0.1)
        numbers = [number for number, _ in stream.replayed(0)]
        assert len(numbers) == 4 and numbers == list(range(numbers[0], numbers[0] + 4)) and numbers[0] > 0
        assert first and last


def test_overflow():
    """A queue of 5 events: most are lost, and what is told at the end is what is there."""
    with Stream("--kv-events-queue", "5", "--kv-tokens", str(200 * BLOCK), "--context", str(100 * BLOCK)) as stream:
        texts = [stream.ask(tokens(seed, 400)) for seed in range(6)]
        stream.expect(texts[-1])
        router = stream.router
        assert len(router.gaps) > 0 and router.counts["AllBlocksCleared"] >= len(router.gaps)
        for text in texts:
            assert router.known(text) == len(text) // BLOCK * BLOCK
        assert "all blocks are told anew" in stream.server.log()


def test_several():
    """Devices behind one endpoint are one: a conversation goes on where it is, and each block is told once."""
    flags = ["--workers", "3", "--kv-tokens", str(200 * BLOCK), "--context", str(60 * BLOCK), "--sequences", "4"]
    with Stream(*flags, step_ms=5) as stream, concurrent.futures.ThreadPoolExecutor(9) as pool:
        # All at once, with rows for four on each: no device can have them alone.
        texts = list(pool.map(lambda seed: stream.ask(tokens(seed, 120), max_tokens=60), range(9)))
        for text in texts:
            stream.expect(text)
        longer = list(pool.map(lambda text: stream.ask(text + tokens(100, 50)), texts))
        for text in longer:
            stream.expect(text)
        assert stream.router.gaps == [] and stream.router.counts["BlockRemoved"] == 0
        workers = re.findall(r'llmrt_worker_placed_total{[^}]*} (\d+)', stream.server.get("/metrics").body.decode())
        assert len(workers) == 3 and all(int(count) > 0 for count in workers), workers


def test_no_library():
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    command = [PROGRAM, "--kv-events", "tcp://*:*"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and re.search(r"error: ZeroMQ: expected libzmq\.so\.5 .*libzmq5", ran.stderr), ran.stderr


def test_program():
    """Each model has its topic, and what it had is cleared when it is unloaded. Tokens are bytes there."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
    os.environ.setdefault("LLMRT_PROGRAM", PROGRAM)  # which that module wants
    from terminal_test import write_model

    with tempfile.TemporaryDirectory(prefix="kv_events_") as folder:
        models = os.path.join(folder, "models")
        os.mkdir(models)
        for name in ("alpha", "beta"):
            write_model(os.path.join(models, f"{name}.gguf"))
        events, replay = f"ipc://{folder}/events", f"ipc://{folder}/replay"
        environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "SCRIPTED_ANSWER": "x" * 5000,
                       "SCRIPTED_PROMPTS": "/dev/null", "SCRIPTED_STEP_MS": "1"}
        command = [PROGRAM, "serve", "--port", "0", "--context", "512", "--kv-tokens", "2048", "--models-dir", models,
                   "--models-loaded-max", "1", "--kv-events", events, "--kv-events-replay", replay, "--worker-id", "w1"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        log = []
        port = None
        while port is None:
            log.append(process.stderr.readline())
            assert log[-1], "".join(log)
            if found := re.search(r"serving .* on http://127\.0\.0\.1:(\d+)", log[-1]):
                port = int(found.group(1))
        context = zmq.Context()
        live, old = context.socket(zmq.SUB), context.socket(zmq.DEALER)
        live.setsockopt(zmq.SUBSCRIBE, b"kv@w1@")
        live.connect(events)
        old.connect(replay)
        routers = collections.defaultdict(Router)
        is_ending = False
        # The subscription stands once the answer of the other socket is there, and a moment later.
        old.send_multipart([b"", b"\0" * 8])
        assert old.poll(10_000) and old.recv_multipart()[1] == b"\xff" * 8
        time.sleep(0.5)

        def pump(is_it):
            end = time.monotonic() + 20
            while not is_it() and time.monotonic() < end:
                if live.poll(200):
                    topic, number, payload = live.recv_multipart()
                    routers[topic].next = pump.next = int.from_bytes(number, "big")
                    routers[topic].take(pump.next, payload)
            assert is_it(), {topic: router.counts for topic, router in routers.items()}

        try:
            for name in ("alpha", "beta", "alpha"):
                prompt = [ord(letter) for letter in name * 20]
                body = json.dumps({"model": name, "prompt": prompt, "max_tokens": 1}).encode()
                request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body,
                                                 {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as answer:
                    assert json.load(answer)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
                topic = f"kv@w1@{name}".encode()
                pump(lambda: routers[topic].known(prompt) == len(prompt) // BLOCK * BLOCK)
                others = [router for other, router in routers.items() if other != topic]
                pump(lambda: all(router.texts == {} for router in others))
            process.send_signal(signal.SIGTERM)
            is_ending = True
            pump(lambda: all(router.texts == {} for router in routers.values()))
            cleared = [routers[f"kv@w1@{name}".encode()].counts["AllBlocksCleared"] for name in ("alpha", "beta")]
            assert cleared == [2, 1]
        finally:
            live.close(0)
            old.close(0)
            context.term()
            if not is_ending:
                process.kill()
            rest = process.communicate(timeout=60)[1]
        assert process.returncode == 0, rest


def main():
    library = tempfile.TemporaryDirectory(prefix="kv_events_library_")
    if not has_system_library():
        if sys.argv[1] != "--llmrt":
            test_no_library()
        folder = lend_library(library.name)
        if folder is None:
            print("skipped: expected a libzmq.so.5 (Debian: libzmq5), found none")
            sys.exit(77)
        paths = [folder, os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    tests = [(test_stream,), (test_stream, "--kv-events-map"), (test_bad_requests,), (test_overflow,),
             (test_several,)]
    for test, *arguments in [(test_program,)] if sys.argv[1] == "--llmrt" else tests:
        begin = time.monotonic()
        test(*arguments)
        print(f"{test.__name__} {' '.join(arguments)}: ok, {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
