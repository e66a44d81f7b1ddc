"""One `llmrt serve` process of its own, for a Ray actor: it listens on a unix socket and ends with the actor.

If the process ends by itself once it was ready, the actor ends with it: Ray then starts the actor again and redoes what
it was doing. If it ends before, the actor's constructor fails with the last lines of its log.
"""

import ctypes
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time

PR_SET_PDEATHSIG = 1


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.unix_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.unix_path)


class Worker:
    def __init__(self, program, model, flags=(), start_s=600):
        self.folder = tempfile.TemporaryDirectory(prefix="llmrt-")
        self.socket = os.path.join(self.folder.name, "socket")
        self.log = os.path.join(self.folder.name, "log")
        self.command = [program, "serve", model, "--unix-socket", self.socket, "--drain-notice-s", "0", *flags]
        self.process = None
        self.is_ready = self.is_stopping = False
        is_started = threading.Event()
        # A thread that lives as long as the process: the signal below is sent when the thread that started it ends.
        threading.Thread(target=self._run, args=(is_started,), daemon=True).start()
        is_started.wait()
        self._wait_until_ready(time.monotonic() + start_s)

    def _run(self, is_started):
        libc = ctypes.CDLL(None)
        with open(self.log, "wb") as log:
            try:
                self.process = subprocess.Popen(
                    self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM))  # if the actor is killed
            except OSError as error:
                log.write(str(error).encode())
        is_started.set()
        if self.process:
            self.process.wait()
        if self.is_ready and not self.is_stopping:
            print(f"llmrt ended with {self.process.returncode}: {self.last_lines()}", flush=True)
            self.folder.cleanup()
            os._exit(1)

    def _wait_until_ready(self, end):
        while not self.is_ready:
            if self.process is None or self.process.poll() is not None or time.monotonic() > end:
                why = self.last_lines()
                self.stop()
                raise RuntimeError(f"llmrt did not start: {' '.join(self.command)}: {why}")
            self.is_ready = self.status("/ready") == 200
            time.sleep(0.05)

    def status(self, path):
        """The status of a GET; None: nobody answers."""
        connection = UnixConnection(self.socket)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def last_lines(self):
        return pathlib.Path(self.log).read_text(errors="replace")[-2000:]

    def stop(self, grace_s=60):
        """SIGTERM: answers under way may end within llmrt's --grace. Then SIGKILL."""
        self.is_stopping = True
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.folder.cleanup()
