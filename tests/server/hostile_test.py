"""Clients that mean harm against the real server and engine, while a polite client measures what it gets.

    hostile_test.py [--all] [--seed N] [--only NAME,...] [--list] [--rounds N] [--program FILE] [--vocabulary bpe|spm]
    hostile_test.py --promises      what must never be refused, and what the prefix cache may tell
    hostile_test.py --memory        resident memory before, during and after the worst request of each kind

The server is paced_server (paced_server.cpp): its device takes a set time a step, so that a slow answer is the server's
fault. Each attack of hostile_attacks.py runs for a second (--all: longer) with random sizes, names and nesting by the
printed seed, growing. Meanwhile a polite client sends 20 short requests a second. Judged of each attack:

- the polite client's p99 is at most 3 times its own on the quiet server, plus 20 ms, in the best of six rounds; all
  its answers are right; /health is 200;
- resident memory's peak is at most the idle server's, the server's bound (--client-memory-mib) and an allowance;
- nothing is answered with 500, nothing is logged as an error, the server is up;
- within 10 s of the attack's end no request is running, waiting or streaming, nothing is computed any more, and short
  requests are answered; a server for which that is not so ends with two SIGTERM.

On a busy machine: attackers run at the lowest priority in one or two processes with pauses; the quiet p99 is measured
while as many processes of that priority do the same kind of work without a server (making and parsing JSON); before
each repeated round it is measured again and counts if it is worse, up to twice the first. A server built with a
sanitizer is judged by everything but time and memory.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import sys
import time
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from hostile_attacks import ATTACKS, Net  # noqa: E402
from hostile_client import (  # noqa: E402
    CHAT, MIB, TEXT, Polite, Server, close, connect, dumps, percentile, read_answer, request_bytes)

# The server's own bound on what clients make it hold (less than the default, so that attacks reach it), and what comes
# on top: a few large requests being worked on, the prefix cache's keys, what the allocator keeps.
CLIENT_MEMORY_MIB = 384
ALLOWANCE_MIB = 256
QUIET_WITHIN_S = 10
P99_FACTOR, P99_EXTRA_MS = 3, 20


# ---- attackers ------------------------------------------------------------------------------------------------------


def attacker(kind, made, port, seed, seconds, results):
    """A process: strikes until the time is up, then tells what came back."""
    os.nice(19)
    rng = random.Random(seed)
    net = Net(port)

    async def one(begin):
        while True:
            level = min(1.0, (time.monotonic() - begin) / seconds)
            try:
                await made.strike(net, rng, level)
                net.count("strikes")
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
                net.count(type(error).__name__)
            await asyncio.sleep(kind.pause_s)

    async def all_of_them():
        tasks = [asyncio.create_task(one(time.monotonic())) for _ in range(kind.tasks)]
        await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            if task.done() and task.exception():
                net.count(f"a fault of the test: {task.exception()!r}")
            task.cancel()

    asyncio.run(all_of_them())
    results.put((net.counts, net.faults))
    results.close()
    results.join_thread()
    os._exit(0)


def burner(end):
    """What an attacker costs the machine, without a server."""
    os.nice(19)
    rng = random.Random(1)
    while time.monotonic() < end:
        json.loads(dumps({str(rng.random()): [i] for i in range(2000)}))
        time.sleep(0.01)
    os._exit(0)


FORK = multiprocessing.get_context("fork")


# ---- one run --------------------------------------------------------------------------------------------------------


class Trial:
    def __init__(self, options):
        self.options = options
        self.flags = ["--vocabulary", options.vocabulary, "--client-memory-mib", str(CLIENT_MEMORY_MIB)]
        self.failed = []
        self.judged_by_figures = not options.sanitized
        self.quiet_within_s = 60 if options.sanitized else QUIET_WITHIN_S
        self.start()

    def start(self):
        self.server = Server(self.options.program, *self.flags)
        self.polite = Polite(self.server.port)
        asyncio.run(self.polite.learn())
        self.idle_mib = self.server.memory_mib()[0]

    def restart(self):
        """A new server; the old one has to end by two signals, whatever it does."""
        if self.server.is_up():
            code = self.server.end(num_signals=2)
            if isinstance(code, str):
                self.failed.append(f"the server's end: {code}")
                print(f"         it ended {code}", flush=True)
        right = self.polite.right
        self.start()
        if self.polite.right != right:
            self.failed.append("a new server gives other answers")

    def measure_quiet(self, seconds):
        end = time.monotonic() + seconds
        burners = [FORK.Process(target=burner, args=(end,)) for _ in range(2)]
        for process in burners:
            process.start()
        latencies, faults = asyncio.run(self.polite.measure(seconds))
        for process in burners:
            process.join()
        if faults:
            raise RuntimeError(f"the quiet server: {faults}")
        return percentile(latencies, 0.99), percentile(latencies, 0.5)

    def round(self, kind, made, seconds, seed):
        """Latencies and faults of the polite client, counts and faults of the attackers, the most memory."""
        self.server.forget_peak()
        results = FORK.Queue()
        workers = [FORK.Process(target=attacker, args=(kind, made, self.server.port, seed + i, seconds + 0.2, results))
                   for i in range(kind.processes)]
        for worker in workers:
            worker.start()
        time.sleep(0.1)
        latencies, faults = asyncio.run(self.polite.measure(seconds))
        counts, wrong = {}, []
        for worker in workers:
            try:
                found, faults_of_one = results.get(timeout=30)
            except Exception:  # noqa: BLE001: the queue's Empty, or a worker that died
                faults_of_one, found = ["an attacker did not come back"], {}
            wrong += faults_of_one
            for what, count in found.items():
                counts[what] = counts.get(what, 0) + count
        for worker in workers:
            worker.join(5)
            if worker.is_alive():
                worker.kill()
        return latencies, faults, counts, wrong

    def recover(self):
        """None once all that the attack began is over and polite requests are answered; else what is not so."""
        end = time.monotonic() + self.quiet_within_s
        left = self.server.wait_quiet(self.quiet_within_s)
        if left:
            return f"left after {self.quiet_within_s} s: {left}"
        while True:
            _, faults = asyncio.run(self.polite.measure(0.2))
            if not faults:
                return None
            if time.monotonic() > end:
                return f"{self.quiet_within_s} s later: {faults[0]}"

    def run(self, kind):
        seconds = self.options.seconds
        seed = self.options.seed * 1000 + zlib.crc32(kind.name().encode()) % 1000  # the same with --only
        made = kind()
        made.prepare(random.Random(seed), self.options.program)
        quiet_ms = self.quiet_ms
        best = None
        peak_mib = 0
        problems = []
        counts = {}
        for number in range(self.options.rounds):
            if number > 0:
                quiet_ms = max(quiet_ms, min(self.measure_quiet(1)[0], 2 * self.quiet_ms))
            latencies, faults, counts, wrong = self.round(kind, made, seconds, seed)
            p99 = percentile(latencies, 0.99)
            limit = P99_FACTOR * quiet_ms + P99_EXTRA_MS
            late = [f"polite p99 {p99:.0f} ms, at most {limit:.0f}"] if self.judged_by_figures and p99 > limit else []
            lost = [f"polite: {len(faults)} of {len(latencies)}: {faults[0]}"] if faults else []
            after = []
            if not self.server.is_up():
                after.append(f"the server ended: {self.server.process.returncode}: {self.server.log()[-500:]}")
            else:
                left = self.recover()
                if left:
                    after.append(left)
                peak_mib = max(peak_mib, self.server.memory_mib()[1])
            if best is None or p99 < best[0]:
                best = (p99, late + lost)
            problems += after + wrong
            if after or not best[1]:
                break
        problems += best[1]
        limit_mib = self.idle_mib + CLIENT_MEMORY_MIB + ALLOWANCE_MIB
        if self.judged_by_figures and peak_mib > limit_mib:
            problems.append(f"memory {peak_mib:.0f} MiB, at most {limit_mib:.0f}")
        problems += [f"logged: {line[:200]}" for line in self.server.new_errors()[:2]]
        problems += [what for what in counts if what.startswith("a fault of the test")]
        now_mib = self.server.memory_mib()[0] if self.server.is_up() else 0
        told = " ".join(f"{what}:{count}" for what, count in sorted(counts.items()))
        print(f"{'FAILED' if problems else 'ok':6} {kind.name():24} p99 {best[0]:5.0f} ms  peak {peak_mib:5.0f} MiB  "
              f"after {now_mib:4.0f} MiB  rounds {number + 1}  {told}", flush=True)
        for problem in problems:
            print(f"         {problem}", flush=True)
        if problems:
            self.failed.append(kind.name())
            if after or now_mib > self.idle_mib + ALLOWANCE_MIB:
                self.restart()

    def whole(self, kinds):
        self.quiet_ms, median = self.measure_quiet(self.options.quiet_s)
        print(f"quiet: p50 {median:.0f} ms, p99 {self.quiet_ms:.0f} ms; idle {self.idle_mib:.0f} MiB", flush=True)
        for kind in kinds:
            self.run(kind)
        answer = self.server.get("/health")
        if answer.status != 200:
            self.failed.append(f"/health at the end: {answer.status}")
        code = self.server.end()
        if code != 0:
            self.failed.append(f"the server's end: {code}")
        return self.failed


def is_sanitized(program):
    with open(program, "rb") as file:
        data = file.read()
    return b"__asan_init" in data or b"__tsan_init" in data


# ---- promises -------------------------------------------------------------------------------------------------------


def cached_tokens(answer):
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def check(failed, is_right, text):
    print(f"{'ok' if is_right else 'FAILED':6} {text}", flush=True)
    if not is_right:
        failed.append(text)


def cache_tells_nothing(options, failed):
    """A victim's prompt, and an attacker who knows how it begins and guesses the next token."""
    rng = random.Random(options.seed)
    block = 16
    server = Server(options.program, "--step-ms", "0.5", "--token-us", "0")

    def words(n):
        return [rng.randrange(300, 6000) for _ in range(n)]

    def send(prompts, **extra):
        return server.post(TEXT, {"prompt": prompts, "max_tokens": 1, "temperature": 0, **extra})

    victim = words(90)
    check(failed, cached_tokens(send(victim)) == 0, "cache: a prompt that nobody sent tells nothing")
    check(failed, cached_tokens(send(victim)) == 80, "cache: one's own prompt again tells its whole blocks, 80 of 90")
    check(failed, cached_tokens(send(victim[:50] + words(9))) == 48, "cache: a common beginning tells its whole blocks")

    # 10,000 guesses, the right one among them, for places all over a block.
    begin, told = time.monotonic(), {}
    num_probes = 0
    for known in (18, 25, 30, 40, 66):
        guesses = rng.sample([token for token in range(300, 6000) if token != victim[known]], 1999) + [victim[known]]
        rng.shuffle(guesses)
        for first in range(0, len(guesses), 128):
            batch = guesses[first:first + 128]
            per_probe = cached_tokens(send([victim[:known] + [guess, 7] for guess in batch])) / len(batch)
            told.setdefault(known, set()).add((per_probe, victim[known] in batch))
            num_probes += len(batch)
    for known, figures in sorted(told.items()):
        right = {figure for figure, has_right in figures if has_right}
        wrong = {figure for figure, has_right in figures if not has_right}
        check(failed, right == wrong == {known // block * block},
              f"cache: {known} known tokens and a guess: with the right one {sorted(right)}, without {sorted(wrong)}")
    print(f"       {num_probes} probes in {time.monotonic() - begin:.1f} s")

    # The answer, which is cached as well.
    answer = send(victim, max_tokens=60, return_token_ids=True, ignore_eos=True).json()["choices"][0]["token_ids"]
    whole = victim + answer
    probes = {is_right: cached_tokens(send(whole[:100] + [whole[100] if is_right else whole[100] ^ 1, 7]))
              for is_right in (True, False)}
    check(failed, probes[True] == probes[False], f"cache: a guess of another's answer tells nothing: {probes}")
    # A salt of one's own.
    secret = words(40)
    send(secret, cache_salt="mine")
    check(failed, cached_tokens(send(secret)) == 0, "cache: a salted prompt is not found without the salt")
    check(failed, cached_tokens(send(secret, cache_salt="other")) == 0, "cache: nor with another salt")
    check(failed, cached_tokens(send(secret, cache_salt="mine")) >= 32, "cache: but with its own")
    server.end()


def never_refused(options, failed):
    """Large and honest: on a quiet server each of these is answered, whole."""
    server = Server(options.program, "--step-ms", "0.5", "--token-us", "0.2")

    def choices(path, body):
        begin = time.monotonic()
        answer = server.post(path, body, timeout_s=60)
        took = time.monotonic() - begin
        if answer.status != 200:
            print(f"       {answer.status}: {answer.body[:300]!r}")
            return [], took
        print(f"       {len(answer.body) / MIB:.1f} MiB in {took:.1f} s, peak {server.memory_mib()[1]:.0f} MiB")
        return answer.json()["choices"], took

    message = {"messages": [{"role": "user", "content": "hi"}], "ignore_eos": True}
    found, _ = choices(CHAT, {**message, "n": 128, "max_tokens": 64})
    check(failed, len(found) == 128, "never refused: n = 128")
    found, _ = choices(CHAT, {**message, "logprobs": True, "top_logprobs": 20, "max_tokens": 4096})
    tokens = found[0]["logprobs"]["content"] if found else []
    check(failed, len(tokens) == 4096 and all(len(token["top_logprobs"]) == 20 for token in tokens),
          "never refused: 20 alternatives over 4,096 tokens")
    prompts = [[300 + (i * k) % 5000 for k in range(2000)] for i in range(1, 129)]
    found, _ = choices(TEXT, {"prompt": prompts, "max_tokens": 1, "echo": True, "logprobs": 1, "ignore_eos": True})
    check(failed, len(found) == 128 and all(len(choice["logprobs"]["tokens"]) == 2001 for choice in found),
          "never refused: 128 prompts of 2,000 tokens with echo and log-probabilities")
    code = server.end()
    check(failed, code == 0, f"the server's end: {code}")


def stalls_are_noticed(options, failed):
    """Who stops in the middle of a header, a body or an answer, or reads a few bytes a second, loses the connection."""
    server = Server(options.program, "--step-ms", "0.5", "--token-us", "0", "--idle-s", "2", "--header-s", "2",
                    "--body-s", "3", "--write-s", "2")
    within_s = 60 if options.sanitized else 12
    large = dumps({"messages": [{"role": "user", "content": "hi"}], "n": 32, "max_tokens": 1000, "ignore_eos": True,
                   "logprobs": True, "top_logprobs": 20})
    whole = request_bytes(CHAT, large)
    stream = request_bytes(CHAT, large[:-1] + b',"stream":true}')
    begun = request_bytes(CHAT, b"").replace(b"Content-Length: 0", b"Content-Length: 100")
    cases = {  # what is sent at first, then each quarter of a second, and how many bytes are read in it at most
        "an idle connection": (b"", b"", 0),
        "half a header": (whole[:30], b"", 0),
        "a header by the byte": (whole[:20], b"x", 0),
        "half a body": (begun + b"{", b"", 0),
        "a body by the byte": (begun + b"{", b" ", 0),
        "an answer that nobody reads": (whole, b"", 0),
        "a stream that nobody reads": (stream, b"", 0),
        "a stream read at some KB a second": (stream, b"", 1 << 16),
        "a stream that nobody reads, with a byte behind the request": (stream + b"G", b"", 0),
    }

    async def until_noticed(first, then, num_read):
        """Seconds until the server has let go of the connection; the client never does."""
        reader, writer = await connect(server.port, receive_bytes=4096)
        writer.transport.pause_reading()
        plain = writer.get_extra_info("socket")._sock
        port = plain.getsockname()[1]
        writer.write(first)
        begin = time.monotonic()
        await asyncio.sleep(0.2)
        try:
            while server.holds(port) and time.monotonic() < begin + within_s:
                await asyncio.sleep(0.25)
                if then:
                    writer.write(then)
                if num_read:
                    plain.recv(num_read)
        except OSError:
            pass
        noticed = not server.holds(port)
        close(writer)
        return time.monotonic() - begin if noticed else None

    async def all_cases():
        return await asyncio.gather(*[until_noticed(*case) for case in cases.values()])

    for what, took in zip(cases, asyncio.run(all_cases())):
        check(failed, took is not None, f"noticed: {what}" + (f", after {took:.1f} s" if took else f" in {within_s} s"))
    left = server.wait_quiet(QUIET_WITHIN_S)
    check(failed, left is None, f"noticed: nothing is left ({left})")
    code = server.end()
    check(failed, code == 0, f"the server's end: {code}")


# ---- memory ---------------------------------------------------------------------------------------------------------


def memory_cases(rng):
    """(what, how many at once, what each sends, whether it reads the answer, seconds until it leaves or None)"""
    message = {"messages": [{"role": "user", "content": "hi"}]}
    kept = {"prompt": [5], "n": 128, "max_tokens": 4000,
            "bad_words": [[rng.randrange(6000) for _ in range(8)] for _ in range(1024)],
            "logit_bias": {str(token): 1 for token in rng.sample(range(6000), 1024)},
            "stop": ["".join(rng.choices("abcdef", k=256)) for _ in range(4)]}
    alternatives = {**message, "n": 128, "max_tokens": 500, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
    long_stream = {**message, "max_tokens": 3000, "ignore_eos": True, "stream": True}
    fill = "x" * (15 * MIB // 2)
    prompts = [[300 + (i * k) % 5000 for k in range(2000)] for i in range(1, 129)]
    half = request_bytes(CHAT).replace(b"Content-Length: 0", b"Content-Length: %d" % (8 * MIB))
    small_values = (b'{"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"metadata":[' +
                    b"{}," * (5 * MIB // 2) + b"0]}")

    def post(path, body):
        return request_bytes(path, body if isinstance(body, bytes) else dumps(body))

    return [
        ("n 128 x 500 tokens, 20 alternatives", 2, post(CHAT, alternatives), True, None),
        ("the same as streams", 2, post(CHAT, {**alternatives, "stream": True}), True, None),
        ("the same, unread, 20 times", 20, post(CHAT, {**alternatives, "n": 16}), False, 6),
        ("60 x n 128 with bias, bad words, stops", 60, post(TEXT, kept), True, 4),
        ("20 streams with 7.5 MiB in user", 20, post(CHAT, {**long_stream, "user": fill}), True, 4),
        ("20 streams with 7.5 MiB in an unknown field", 20, post(CHAT, {**long_stream, "x_y": fill}), True, 4),
        ("128 x 2,000 tokens, echo, log-probabilities", 1,
         post(TEXT, {"prompt": prompts, "max_tokens": 1, "echo": True, "logprobs": 5}), True, None),
        ("7.5 MiB of small values x 8", 8, post(CHAT, small_values), True, None),
        ("200 bodies half sent, 6 MiB each", 200, half + b'{"user":"' + b"x" * (6 * MIB), True, 3),
        ("2,000 headers half sent, 15 KiB each", 2000, b"GET /health HTTP/1.1\r\nx: " + b"y" * 15_000, True, 3),
        ("400 answers of /tokenize, unread", 400,
         post("/tokenize", {"prompt": "eto " * 30_000, "return_token_strs": True}), False, 8),
    ]


def measure_memory(options, failed):
    rng = random.Random(options.seed)
    print(f"bound: before + {CLIENT_MEMORY_MIB} + {ALLOWANCE_MIB} MiB")
    print(f"{'MiB':46} {'before':>7} {'peak':>7} {'after':>7} {'s':>6}  answers")
    for what, at_once, data, reads, seconds in memory_cases(rng):
        server = Server(options.program, "--step-ms", "1", "--token-us", "0.5", "--client-memory-mib",
                        str(CLIENT_MEMORY_MIB))
        server.post(CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4})
        before = server.memory_mib()[0]
        server.forget_peak()
        begin = time.monotonic()
        counts = asyncio.run(at_once_for(server.port, at_once, data, reads, seconds))
        took = time.monotonic() - begin
        left = server.wait_quiet(QUIET_WITHIN_S)
        time.sleep(0.5)
        after, peak = server.memory_mib()
        told = " ".join(f"{name}:{count}" for name, count in sorted(counts.items()))
        print(f"{what:46} {before:7.0f} {peak:7.0f} {after:7.0f} {took:6.1f}  {told}{f' left: {left}' if left else ''}",
              flush=True)
        if left:
            failed.append(f"{what}: left: {left}")
        if not options.sanitized and peak > before + CLIENT_MEMORY_MIB + ALLOWANCE_MIB:
            failed.append(f"{what}: peak {peak:.0f} MiB")
        if not options.sanitized and after > before + ALLOWANCE_MIB:
            failed.append(f"{what}: kept {after:.0f} MiB")
        code = server.end(num_signals=2)
        if isinstance(code, str):
            failed.append(f"{what}: the server's end: {code}")


async def at_once_for(port, at_once, data, reads, seconds):
    net = Net(port)

    async def one():
        reader, writer = await connect(port, receive_bytes=None if reads else 4096)
        if not reads:
            writer.transport.pause_reading()
        try:
            writer.write(data)
            await writer.drain()
            if not reads:
                await asyncio.sleep(seconds + 1)
            net.count(str((await read_answer(reader)).status))
        except (OSError, asyncio.IncompleteReadError):
            net.count("closed")
        finally:
            close(writer)

    tasks = [asyncio.create_task(one()) for _ in range(at_once)]
    await asyncio.wait(tasks, timeout=seconds or 300)
    for task in tasks:
        if not task.done():
            net.count("cut off")
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return net.counts


# ---- the program ----------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--program", default=os.environ.get(
        "LLMRT_PACED_SERVER", os.path.join(here, "../../build/release/tests/paced_server")))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--all", action="store_true", help="longer, and all rounds of growth")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=None, help="of each attack")
    parser.add_argument("--vocabulary", default=None, choices=["bpe", "spm"])
    parser.add_argument("--promises", action="store_true")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    if options.list:
        for kind in ATTACKS:
            print(f"{kind.name():24} {(kind.__doc__ or '').strip()}")
        return 0
    if not os.access(options.program, os.X_OK):
        print(f"error: {options.program}: expected the program paced_server, found nothing that can be run")
        return 1
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 31)
    options.vocabulary_asked = options.vocabulary is not None
    options.vocabulary = options.vocabulary or ("spm" if options.seed % 4 == 0 else "bpe")
    options.seconds = options.seconds or (4 if options.all else 0.6)
    options.quiet_s = 10 if options.all else 4
    options.sanitized = is_sanitized(options.program)
    if options.sanitized:
        print("built with a sanitizer: time and memory are not judged", flush=True)
        Polite.PATIENCE_S = Server.PATIENCE_S = 60
    print(f"seed {options.seed} (again: --seed {options.seed}), vocabulary {options.vocabulary}", flush=True)
    failed = []
    if options.memory:
        measure_memory(options, failed)
    elif options.promises:
        cache_tells_nothing(options, failed)
        never_refused(options, failed)
        stalls_are_noticed(options, failed)
    else:
        wanted = [name for name in options.only.split(",") if name]
        kinds = [kind for kind in ATTACKS if not wanted or kind.name() in wanted]
        unknown = set(wanted) - {kind.name() for kind in kinds}
        if unknown:
            print(f"error: --only: expected names as --list tells, found {', '.join(sorted(unknown))}")
            return 2
        failed = Trial(options).whole(kinds)
        if options.all and not options.vocabulary_asked:
            options.vocabulary = "spm" if options.vocabulary == "bpe" else "bpe"
            print(f"vocabulary {options.vocabulary}: attacks on texts alone")
            failed += Trial(options).whole([kind for kind in kinds if kind.reads_text])
    print(f"FAILED: {len(failed)}: {', '.join(failed)}" if failed else "passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
