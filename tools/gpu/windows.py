#!/usr/bin/env python3
"""A long prompt on a model with window layers: what each KV group's pool holds at most, and whether freeing the blocks
behind windows changes a token. Standard library only.

    windows.py PROGRAM MODEL [--device cuda:0] [--prompt 131072] [--output 64] [--seed 1] [--json FILE]

Starts `PROGRAM serve MODEL` twice, with --window-blocks free and keep, sends the same prompt of random ids to each (batch-
invariant, so that equal means bit by bit), prints seconds, peak blocks by KV group, and how many tokens and
log-probabilities are equal. Exits with 1 when one differs, or when the window layers held more than their window and the
chunks of two steps. A file whose context is shorter than the prompt is copied with a longer one in its metadata: what
the model says there is not what it was trained for, but the two runs can be compared.
"""

import argparse
import http.client
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time


def with_context(path, wanted, folder):
    """The file, or a copy whose <architecture>.context_length is at least `wanted`."""
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    found = re.search(rb"\.context_length\x04\x00\x00\x00(....)", head, re.S)  # 4: a 32-bit unsigned integer
    if not found:
        sys.exit(f"{path}: expected <architecture>.context_length in its first 64 KiB, found none")
    if struct.unpack("<I", found[1])[0] >= wanted:
        return path
    copy = os.path.join(folder, os.path.basename(path))
    shutil.copyfile(path, copy)
    with open(copy, "r+b") as file:
        file.seek(found.start(1))
        file.write(struct.pack("<I", wanted))
    return copy


class Server:
    def __init__(self, args, model, windows, context):
        self.begin = time.monotonic()
        command = [args.program, "serve", model, "--name", "m", "--device", args.device, "--port", "0"]
        command += ["--context", str(context), "--sequences", "4", "--prefix-cache", "off", "--window-blocks", windows]
        command += ["--kv-tokens", str(math.ceil(context / 16) * 16), "--step-tokens", str(args.step)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        log = []
        for line in self.process.stderr:
            log.append(line)
            if found := re.search(r"on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        sys.exit("the server did not start:\n" + "".join(log))

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        if response.status != 200:
            sys.exit(f"{path}: expected status 200, found {response.status}: {text[:500]}")
        return text

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def run(args, model, windows, prompt, context):
    server = Server(args, model, windows, context)
    try:
        body = {"prompt": prompt, "max_tokens": args.output, "temperature": 0, "ignore_eos": True, "logprobs": 1,
                "return_token_ids": True, "batch_invariant": True}
        begin = time.monotonic()
        choice = json.loads(server.ask("POST", "/v1/completions", body))["choices"][0]
        seconds = time.monotonic() - begin
        peaks = {int(m[1]): {"window": int(m[2]), "peak": int(float(m[3]))} for m in re.finditer(
            r'^llmrt_kv_group_blocks_used_most\{group="(\d+)",window="(\d+)"\} (\S+)$', server.ask("GET", "/metrics"), re.M)}
    finally:
        server.stop()
    print(f"{windows}: started in {begin - server.begin:.1f} s, {len(prompt)} prompt and {args.output} output tokens in "
          f"{seconds:.1f} s")
    for group, figures in sorted(peaks.items()):
        print(f"  group {group}, window {figures['window'] or 'all'}: at most {figures['peak']} blocks")
    return {"seconds": seconds, "groups": peaks, "tokens": choice["token_ids"],
            "logprobs": choice["logprobs"]["token_logprobs"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--prompt", type=int, default=131072)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--step", type=int, default=2048, help="tokens of a step")
    parser.add_argument("--ids", type=int, default=262000, help="prompts are drawn from ids below this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    source = random.Random(args.seed)
    prompt = [source.randrange(args.ids) for _ in range(args.prompt)]
    context = args.prompt + args.output
    with tempfile.TemporaryDirectory() as folder:
        model = with_context(args.model, context, folder)
        freed, kept = (run(args, model, windows, prompt, context) for windows in ("free", "keep"))
    equal = sum(a == b for a, b in zip(freed["tokens"], kept["tokens"]))
    same = sum(a == b for a, b in zip(freed["logprobs"], kept["logprobs"]))
    print(f"tokens: {equal} of {args.output} equal; log-probabilities: {same} of {args.output} equal")
    broken = equal < args.output or same < args.output
    for group, figures in freed["groups"].items():
        if figures["window"] == 0:
            continue
        most = math.ceil((figures["window"] - 1) / 16) + 1 + 2 * math.ceil(args.step / 16)
        print(f"group {group}: at most {figures['peak']} blocks of {most} that its window and two steps hold; "
              f"kept: {kept['groups'][group]['peak']}")
        broken |= figures["peak"] > most
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"free": freed, "keep": kept, "prompt": args.prompt}, file)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
