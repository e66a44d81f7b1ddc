"""Many connections for some time, on a device whose steps take a set time: most idle, some streaming, clients that leave
whenever they like. Judged: no error, memory that does not grow, books that balance, SIGTERM in the middle of it.

    load_test.py PACED_SERVER [--minutes M] [--idle N] [--streams N] [--cancels N] [--seed S] [--workers N]
                 [--lose-every-s S]

The defaults are the short form; the long one is --minutes 10 --idle 10000 --streams 256 --cancels 100000.
"""

import argparse
import asyncio
import random
import re
import resource
import signal
import time

from hostile_client import Server, ask, close, connect, dumps, read_answer, request_bytes

class Load:
    def __init__(self, port, options, rng):
        self.port, self.options, self.rng = port, options, rng
        self.counts = {"whole": 0, "left": 0, "cancelled": 0, "idle": 0, "faults": 0}
        self.faults = []
        self.ends = False

    def fault(self, text):
        self.counts["faults"] += 1
        if len(self.faults) < 5:
            self.faults.append(text)

    def body(self, max_tokens):
        prompt = "".join(self.rng.choice("abcdefgh ") for _ in range(self.rng.choice((8, 60, 300))))
        return dumps({"prompt": prompt, "max_tokens": max_tokens, "stream": True, "ignore_eos": True})

    async def idle(self):
        """A connection that asks once and then stays, for a random time."""
        while not self.ends:
            try:
                reader, writer = await connect(self.port)
            except OSError as error:
                self.fault(f"connect: {error}")
                await asyncio.sleep(0.1)
                continue
            self.counts["idle"] += 1
            try:
                writer.write(request_bytes("/live", method="GET"))
                if (await read_answer(reader)).status != 200:
                    self.fault("/live is not 200")
                end = time.monotonic() + self.rng.uniform(20, 200)
                while not self.ends and time.monotonic() < end:
                    await asyncio.sleep(1)
            except (OSError, asyncio.IncompleteReadError) as error:
                if not self.ends:
                    self.fault(f"idle: {error!r}")
            finally:
                close(writer)

    async def stream(self):
        """One stream after the other; a third of them leaves in the middle."""
        while not self.ends:
            max_tokens = self.rng.randint(4, 64)
            leaves_at = self.rng.randint(0, max_tokens * 100) if self.rng.random() < 1 / 3 else None
            await self.one_stream(max_tokens, leaves_at, "left")

    async def one_stream(self, max_tokens, leaves_at, name):
        try:
            reader, writer = await connect(self.port)
        except OSError as error:
            return self.fault(f"connect: {error}")
        received = b""
        try:
            writer.write(request_bytes("/v1/completions", self.body(max_tokens)))
            while not received.endswith(b"\r\n0\r\n\r\n"):
                if leaves_at is not None and len(received) >= leaves_at:
                    self.counts[name] += 1
                    return None
                more = await reader.read(65536)
                if not more:
                    break
                received += more
            if self.ends:
                return None
            if not received.startswith(b"HTTP/1.1 200 ") or b"data: [DONE]" not in received or b'"error"' in received:
                return self.fault(f"a stream ended with {received[-200:]!r}")
            self.counts["whole"] += 1
        except OSError as error:
            if not self.ends:
                self.fault(f"stream: {error!r}")
        finally:
            close(writer)
        return None

    async def cancel_many(self, total):
        """Requests that are left at once, or after some bytes."""
        left = iter(range(total))

        async def worker():
            for _ in left:
                await self.one_stream(64, self.rng.choice((0, 0, 1, 200, 2000)), "cancelled")

        await asyncio.gather(*(worker() for _ in range(self.options.streams)))


def blocks_in_use(server):
    """Of the KV pool, as /metrics tells."""
    text = server.get("/metrics", timeout_s=60).body.decode()
    total, free = (sum(map(float, re.findall(rf"^llmrt_{name}(?:{{[^}}]*}})? (\S+)", text, re.M)))
                   for name in ("kv_blocks", "kv_blocks_free"))
    assert total > 0
    return total - free


async def drive(load, options, server):
    tasks = []
    for _ in range(options.idle):
        tasks.append(asyncio.create_task(load.idle()))
        if len(tasks) % 200 == 0:
            await asyncio.sleep(0.05)
    tasks += [asyncio.create_task(load.stream()) for _ in range(options.streams)]
    begin = time.monotonic()
    memory = []
    while (elapsed := time.monotonic() - begin) < options.minutes * 60:
        await asyncio.sleep(min(5.0, options.minutes * 6))
        memory.append(server.memory_mib()[0])
        answer = await ask(load.port, "/health", method="GET", timeout_s=30)
        if answer.status != 200:
            load.fault(f"/health is {answer.status}: {answer.body[:200]!r}")
        if len(memory) % 12 == 0:
            print(f"{elapsed:.0f} s: {memory[-1]:.0f} MiB, {load.counts}", flush=True)
    return tasks, memory


async def run(server, options):
    load = Load(server.port, options, random.Random(options.seed))
    tasks, memory = await drive(load, options, server)
    # SIGTERM while all of it runs: streams may end, idle connections are closed, and the process goes in order.
    begin = time.monotonic()
    load.ends = True
    server.process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(server.process.wait, 60)
    ended_s = time.monotonic() - begin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return load, memory, code, ended_s


async def run_cancels(server, options):
    load = Load(server.port, options, random.Random(options.seed + 1))
    await load.cancel_many(options.cancels)
    return load


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--minutes", type=float, default=0.15)
    parser.add_argument("--idle", type=int, default=500)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--cancels", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lose-every-s", type=float, default=0)
    options = parser.parse_args()
    print(options, flush=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    server = Server(options.program, "--connections", str(options.idle + 4 * options.streams + 100), "--step-ms", "4",
                    "--grace", "20", "--idle-s", "600", "--kv-tokens", "65536", "--workers", str(options.workers),
                    "--lose-every-s", str(options.lose_every_s))
    assert blocks_in_use(server) == 0
    cancels = asyncio.run(run_cancels(server, options))
    left = server.wait_quiet(60)
    leaked = blocks_in_use(server)
    print(f"cancels: {cancels.counts}; {leaked:.0f} blocks in use behind them; {left or 'nothing left'}", flush=True)
    assert not left and leaked == 0
    load, memory, code, ended_s = asyncio.run(run(server, options))
    middle, end = memory[len(memory) // 2], memory[-1]
    print(f"load: {load.counts}; memory {memory[0]:.0f}, {middle:.0f}, {end:.0f} MiB; SIGTERM: {ended_s:.1f} s, code {code}")
    assert not cancels.faults and not load.faults, cancels.faults + load.faults
    assert end < middle * 1.1 + 16, memory
    assert code == 0 and ended_s < 30, (code, ended_s)
    errors = server.new_errors()
    losses = [line for line in errors if "the test has taken the device away" in line]
    assert errors == losses and (len(losses) >= 6) == (options.lose_every_s > 0), server.log()[-2000:]
    assert load.counts["whole"] > options.streams and load.counts["left"] > 0


if __name__ == "__main__":
    main()
