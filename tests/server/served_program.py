"""`llmrt serve` with a real model, as tests from outside start it.

Environment: LLMRT_PROGRAM (the binary), LLMRT_TEST_MODEL (SmolLM2-135M-Instruct as GGUF), LLMRT_TEST_DEVICE (auto).
"""

import os
import re
import subprocess
import threading

PROGRAM = os.environ["LLMRT_PROGRAM"]
MODEL = os.environ.get("LLMRT_TEST_MODEL", "")
DEVICE = os.environ.get("LLMRT_TEST_DEVICE", "auto")


class ServedProgram:
    """A server of the model as "smol", on a port of its own; `log` grows while it runs."""

    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", MODEL, "--port", "0", "--name", "smol", "--device", DEVICE, "--kv-tokens", "8192",
             *flags],
            stderr=subprocess.PIPE, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        else:
            raise AssertionError("the server did not start: " + "".join(self.log))
        threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True).start()
