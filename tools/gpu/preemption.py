#!/usr/bin/env python3
"""What preemption costs, by swapping and by computing again, on one trace of requests that overload the KV pool.

    preemption.py PROGRAM MODEL --kv-tokens N [--device cuda:0] [--requests 48] [--prompts 64,2048] [--output 256]
                  [--host-gib 16] [--policies recompute,swap,preempt] [--json FILE]

Starts `PROGRAM serve MODEL` once for each policy, sends all requests at once (token ids, prompts of the given lengths in
turn, seeded) and prints, for each policy, the seconds until the last answer, the tokens a second, how many requests
yielded and how many of them were swapped, and the blocks that moved. MODEL may be synthetic:<shape>:<encoding>.
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time

PORT = 18412


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--kv-tokens", type=int, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--prompts", default="64,2048")
    parser.add_argument("--output", type=int, default=256)
    parser.add_argument("--host-gib", type=float, default=16)
    parser.add_argument("--policies", default="recompute,swap,preempt")
    parser.add_argument("--json")
    return parser.parse_args()


def get(path):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
    connection.request("GET", path)
    return connection.getresponse().read().decode()


def wait_for_start(server):
    begin = time.monotonic()
    while time.monotonic() - begin < 120:
        try:
            get("/health")
            return time.monotonic() - begin
        except OSError:
            if server.poll() is not None:
                sys.exit(f"the server ended with {server.returncode}")
            time.sleep(0.02)
    sys.exit("the server did not start in 120 s")


def ask(index, lengths, num_output, failures):
    source = random.Random(index)
    body = {
        "model": "m",
        "prompt": [source.randrange(1000, 30000) for _ in range(lengths[index % len(lengths)])],
        "max_tokens": num_output,
        "ignore_eos": True,
        "temperature": 0,
    }
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=600)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 200 or answer["usage"]["completion_tokens"] != num_output:
        failures.append(f"request {index}: {response.status} {answer}")


def metrics():
    return {m[1]: float(m[2]) for m in re.finditer(r"^llmrt_(\w+) (\S+)$", get("/metrics"), re.M)}


def run(args, policy):
    command = [args.program, "serve", args.model, "--name", "m", "--device", args.device, "--port", str(PORT)]
    command += ["--kv-tokens", str(args.kv_tokens), "--reserve-output", "0", "--prefix-cache", "off"]
    command += ["--on-exhaustion", policy, "--kv-host-gib", str(args.host_gib), "--log-level", "error"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    start_s = wait_for_start(server)
    lengths = [int(n) for n in args.prompts.split(",")]
    failures = []
    threads = [
        threading.Thread(target=ask, args=(i, lengths, args.output, failures)) for i in range(args.requests)
    ]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    counted = metrics()
    server.terminate()
    server.wait()
    if failures:
        sys.exit(failures[0])
    return {
        "policy": policy,
        "start_s": start_s,
        "seconds": seconds,
        "tokens_s": args.requests * args.output / seconds,
        "preemptions": counted["preemptions_total"],
        "swapped": counted["preemptions_swapped_total"],
        "stored": counted["kv_blocks_stored_total"],
        "loaded": counted["kv_blocks_loaded_total"],
        "steps": counted["steps_total"],
        "device_s": counted["device_seconds_total"],
    }


def main():
    args = parse_arguments()
    rows = [run(args, policy) for policy in args.policies.split(",")]
    columns = list(rows[0])
    print(f"{args.model} on {args.device}: {args.requests} requests, prompts {args.prompts}, {args.output} new tokens, "
          f"a pool of {args.kv_tokens} tokens")
    print(" ".join(f"{name:>12}" for name in columns))
    for row in rows:
        cells = (row[name] for name in columns)
        print(" ".join(f"{c:>12}" if isinstance(c, str) else f"{c:>12.2f}".replace(".00", "") for c in cells))
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"arguments": vars(args), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
