#!/usr/bin/env python3
"""The figures of `llmrt-bench model` once more, from outside: over HTTP, by the clock of this process alone.

    outside_clock.py LLMRT --model-json FILE              the tests of a record, beside its figures
    outside_clock.py LLMRT -m MODEL -d DEVICE [-r 1,8]    no record: this clock's figures alone

For each device starts `LLMRT serve` with the record's model, KV dtype, context and step sizes, without a prefix cache,
and streams answers to random token ids, a warm-up and --repeats rounds of each test. The exit status is 1 when a median
is off by more than --tolerance percent, when the record lacks a test, or when this process was too busy to be a clock.

tgN@D xR: R requests at once, from the last one's first token to the first one's last, the tokens that came between.
ppN: from sending a request for one token until it is here: besides what `model` times, the request's way through
loopback, HTTP and JSON, its wait for the engine to wake, and the chunk's way back.
"busy" is the share of the time that this process computed; near 100 % it would be the limit itself.
"""

import argparse
import bisect
import json
import random
import re
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

BUSY_MAX = 0.5
SILENCE_S = 120  # a server says something every 15 s
TOKEN = re.compile(rb'"token_ids": ?\[\d')
USAGE = re.compile(rb'"completion_tokens": ?(\d+)')


def lengths(text):
    values = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    if min(values) < 1:
        raise argparse.ArgumentTypeError(f"expected numbers from 1, as 512,2048, found {text}")
    return values


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", metavar="LLMRT")
    parser.add_argument("--model-json", metavar="FILE", help="what llmrt-bench model --json wrote: says what the "
                                                             "options below do not")
    parser.add_argument("-m", "--model")
    parser.add_argument("-d", "--device", action="append", help="repeat for several")
    parser.add_argument("-p", "--prompts", type=lengths, help="lengths: 512,2048")
    parser.add_argument("-r", "--rows", type=lengths, help="1,8")
    parser.add_argument("--depth", type=int, help="prompt tokens of each row: 512")
    parser.add_argument("-n", "--output", type=int, help="tokens of each row: 128")
    parser.add_argument("--kv", help="dtype: f16")
    parser.add_argument("--repeats", type=int, default=3, help="rounds that count: %(default)s")
    parser.add_argument("--tolerance", type=float, default=5, help="percent: %(default)s")
    parser.add_argument("--start-timeout-s", type=float, default=300, help="of the server: %(default)s")
    parser.add_argument("--json", metavar="FILE", help="also write all figures")
    args = parser.parse_args()
    args.step_tokens, args.batch_invariant, figures = 2048, False, {}
    default = {"device": ["auto"], "prompts": [512, 2048], "rows": [1, 8], "depth": 512, "output": 128, "kv": "f16"}
    if args.model_json:
        default, figures = read_record(args.model_json)
        args.step_tokens, args.batch_invariant = default.pop("step_tokens"), default.pop("batch_invariant")
    for name, value in default.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if not args.model:
        parser.error("expected --model-json or --model, found neither")
    for name, least in ("depth", 1), ("output", 2), ("repeats", 1), ("tolerance", 0), ("start_timeout_s", 1):
        if not getattr(args, name) >= least:  # nor NaN
            parser.error(f"--{name.replace('_', '-')}: expected at least {least}, found {getattr(args, name)}")
    return args, figures


def read_record(path):
    """How `model` was run, and its tok/s by device and test."""
    try:
        with open(path) as file:
            record = json.load(file)
        if record["command"] != "model":
            sys.exit(f"{path}: expected a record of llmrt-bench model, found one of {record['command']!r}")
        work, settings = record["work"], record["settings"]
        figures = {(row["device"], row["test"]): float(row["values"]["tok_s"]["value"])
                   for row in record["rows"] if not row["test"].startswith("limit ")}
        figures = {key: value for key, value in figures.items() if value > 0}
        if not figures:
            raise ValueError("no figures")
        run = {
            "model": str(settings["model"]),
            "device": [str(device["id"]) for device in record["devices"]],
            "prompts": lengths(",".join(map(str, work["prompts"]))),
            "rows": lengths(",".join(map(str, work["rows"]))),
            "depth": int(work["depth"]),
            "output": int(work["output"]),
            "kv": str(work["kv_dtype"]),
            "step_tokens": int(settings["step_tokens"]),
            "batch_invariant": bool(settings["batch_invariant"]),
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, argparse.ArgumentTypeError) as error:
        sys.exit(f"{path}: expected a record of llmrt-bench model, found: {type(error).__name__}: {error}")
    return run, figures


class Server:
    def __init__(self, args, device):
        sequences = max([256, *args.rows])  # as `model` sizes its engine, here and below
        context = max([args.depth + args.output + 1, *(prompt + 2 for prompt in args.prompts)])
        wanted = sequences * (args.depth + args.output + 16)
        flags = {"device": device, "name": "clock", "port": 0, "kv-dtype": args.kv, "prefix-cache": "off",
                 "context": context, "sequences": sequences, "kv-tokens": max(wanted + wanted // 32, 2 * context),
                 "step-tokens": args.step_tokens, "chunk-tokens": args.step_tokens}
        command = [args.program, "serve", args.model] + [str(part) for name, value in flags.items()
                                                         for part in (f"--{name}", value)]
        command += ["--batch-invariant"] if args.batch_invariant else []
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.PIPE, text=True, errors="replace")
        except OSError as error:
            sys.exit(f"{args.program}: expected a program that can be started, found: {error}")
        self.log, self.port, self.told = [], None, threading.Event()
        threading.Thread(target=self.read_log, daemon=True).start()
        try:
            self.told.wait(args.start_timeout_s)
            if self.port is None:
                sys.exit(f"{' '.join(command)}\n"
                         f"expected a server within {args.start_timeout_s:g} s, found:\n{self.tail()}")
            self.wait_idle()
        except BaseException:
            self.stop()
            raise

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r" on http://\S+:(\d+)\s*$", line):
                self.port = int(found[1])
                self.told.set()
        self.told.set()

    def tail(self):
        return "".join(self.log[-10:])

    def wait_idle(self):
        """An idle server compiles and records its steps ahead, and a request would wait for that."""
        end_s = time.monotonic() + 60
        before = self.cpu_ticks()
        while time.monotonic() < end_s:
            time.sleep(0.5)
            now = self.cpu_ticks()
            if now - before <= 3:  # of 50
                return
            before = now
        print("the server was still busy after 60 s", file=sys.stderr)

    def cpu_ticks(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Answer:
    """One streamed answer on a connection of its own: when each token came."""

    def __init__(self, port, prompt_tokens, output_tokens):
        ids = [random.randrange(100, 30000) for _ in range(prompt_tokens)]
        body = json.dumps({"model": "clock", "prompt": ids, "max_tokens": output_tokens, "ignore_eos": True,
                           "stream": True, "stream_options": {"include_usage": True},
                           "return_token_ids": True}).encode()
        self.request = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)) + body
        self.output_tokens, self.begin_s, self.times_s, self.rest, self.all = output_tokens, 0, [], b"", []
        self.socket = socket.create_connection(("127.0.0.1", port), SILENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self):
        self.begin_s = time.perf_counter()
        self.socket.sendall(self.request)

    def read(self):
        """False at the end."""
        data = self.socket.recv(1 << 16)
        now_s = time.perf_counter()
        self.all.append(data)
        whole, separator, self.rest = (self.rest + data).rpartition(b"\n\n")
        if separator:
            self.times_s += [now_s] * len(TOKEN.findall(whole))
        return bool(data) and self.all[0].startswith(b"HTTP/1.1 200") and b"data: [DONE]" not in whole

    def check(self):
        text = b"".join(self.all)
        usage = USAGE.findall(text)
        found = (len(self.times_s), int(usage[-1]) if usage else 0)
        if found != (self.output_tokens, self.output_tokens):
            sys.exit(f"expected {self.output_tokens} tokens, found {found[0]} and a usage of {found[1]} in an answer "
                     f"that ends with: {text[-400:].decode(errors='replace')}")


class Round:
    """Requests that are sent at once, and all that came back."""

    def __init__(self, port, num_requests, prompt_tokens, output_tokens):
        self.answers = [Answer(port, prompt_tokens, output_tokens) for _ in range(num_requests)]
        self.cpu_s = [(time.perf_counter(), time.process_time())]
        with selectors.DefaultSelector() as selector:
            for answer in self.answers:
                answer.send()
                selector.register(answer.socket, selectors.EVENT_READ, answer)
            while selector.get_map():
                ready = selector.select(SILENCE_S)
                if not ready:
                    sys.exit(f"expected an answer, found silence for {SILENCE_S} s")
                for key, _ in ready:
                    if not key.data.read():
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                self.cpu_s.append((time.perf_counter(), time.process_time()))
        for answer in self.answers:
            answer.check()

    def busy(self, begin_s, end_s):
        first, last = (min(bisect.bisect(self.cpu_s, (at_s,)), len(self.cpu_s) - 1) for at_s in (begin_s, end_s))
        (from_s, from_cpu_s), (to_s, to_cpu_s) = self.cpu_s[first - 1], self.cpu_s[last]
        return (to_cpu_s - from_cpu_s) / (to_s - from_s)

    def prompt(self, prompt_tokens):
        answer = self.answers[0]
        seconds = answer.times_s[0] - answer.begin_s
        return prompt_tokens / seconds, self.busy(answer.begin_s, answer.times_s[0])

    def decode(self):
        last = max(self.answers, key=lambda answer: answer.times_s[0])
        begin_s, end_s = last.times_s[0], min(answer.times_s[-1] for answer in self.answers)
        # The tokens of a step come one behind the other; half a step later they are here. `model` gives them one time.
        gaps_s = [b - a for a, b in zip(last.times_s, last.times_s[1:])]
        half_s = statistics.median(gaps_s) / 2
        tokens = sum(begin_s + half_s < at_s <= end_s + half_s for answer in self.answers for at_s in answer.times_s)
        if end_s <= begin_s or tokens == 0:
            sys.exit("expected all rows to decode at once, found that the first had ended before the last one's first "
                     "token: ask for more with --output")
        return tokens / (end_s - begin_s), self.busy(begin_s, end_s)


def tests_of(args):
    """Name, and what a round of it measures: tokens a second, busy."""
    for prompt in args.prompts:
        yield f"pp{prompt}", lambda port, n=prompt: Round(port, 1, n, 1).prompt(n)
    for rows in args.rows:
        yield (f"tg{args.output}@{args.depth} x{rows}",
               lambda port, n=rows: Round(port, n, args.depth, args.output).decode())


def measure(args, device, figures):
    server = Server(args, device)
    try:
        for name, measure_round in tests_of(args):
            print(f"{device} {name}", file=sys.stderr)
            measure_round(server.port)
            samples, busy = zip(*(measure_round(server.port) for _ in range(args.repeats)))
            yield {"device": device, "test": name, "model": figures.get((device, name)),
                   "outside": statistics.median(samples), "samples": samples, "busy": max(busy)}
    except OSError as error:
        sys.exit(f"expected an answer, found: {error}; the server's log ends with:\n{server.tail()}")
    finally:
        server.stop()


def fault_of(row, args):
    if row["busy"] > BUSY_MAX:
        return f"this clock was busy for {100 * row['busy']:.0f} % of the time"
    if row["model"] is None:
        return f"no figure in {args.model_json}" if args.model_json else None
    off = 100 * abs(row["outside"] / row["model"] - 1)
    return f"off by {off:.1f} %, expected at most {args.tolerance:g} %" if off > args.tolerance else None


def print_row(row):
    model, difference = "-", "-"
    if row["model"] is not None:
        model, difference = f"{row['model']:.2f}", f"{100 * (row['outside'] / row['model'] - 1):+.2f}"
    spread = f"{min(row['samples']):.2f} - {max(row['samples']):.2f}"
    print(f"| {row['device']:<8} | {row['test']:<16} | {model:>11} | {row['outside']:>13.2f} | {spread:>19} | "
          f"{difference:>12} | {100 * row['busy']:>6.1f} |", flush=True)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that the server ends, too
    args, figures = parse_arguments()
    random.seed(1)
    print(f"{args.model}, KV {args.kv}\n\n"
          "| device   | test             | model tok/s | outside tok/s |           min - max | difference % | busy % |\n"
          "|----------|------------------|------------:|--------------:|--------------------:|-------------:|-------:|")
    rows = []
    for device in args.device:
        for row in measure(args, device, figures):
            rows.append(row)
            print_row(row)
    faults = [f"{row['device']} {row['test']}: {fault}" for row in rows if (fault := fault_of(row, args))]
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"arguments": vars(args), "rows": rows, "faults": faults}, file, indent=1)
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
