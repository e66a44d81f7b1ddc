"""Talks to the text_probe program: one JSON line each way."""

import json
import os
import subprocess
import sys
import tempfile

SKIP = 4  # the exit code that ctest counts as skipped


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(SKIP)


class Probe:
    def __init__(self, program, *arguments):
        self.process = subprocess.Popen(
            [program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the probe ended with {self.process.wait()} on {json.dumps(request)[:2000]}")
        return json.loads(line)

    def encode(self, data, special=True, bos=False):
        return self.ask({"encode": data.hex(), "special": special, "bos": bos})["ids"]

    def encode_seconds(self, data):
        return self.ask({"encode": data.hex(), "special": True})["seconds"]

    def decode(self, ids, special=False):
        return bytes.fromhex(self.ask({"decode": ids, "special": special})["bytes"])

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def tokenizer_probe(program, vocabulary):
    """A probe over a vocabulary given as a dict (see text_probe.cpp)."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False, encoding="utf-8") as file:
        json.dump(vocabulary, file)
    try:
        probe = Probe(program, "tokenizer", file.name)
        probe.encode(b"")  # the file has been read
        return probe
    finally:
        os.unlink(file.name)


def gguf_fields(path, *names):
    import gguf

    fields = gguf.GGUFReader(path).fields
    return [fields[name].contents() if name in fields else None for name in names]
