"""The command line as a newcomer types it: help, typing errors, the names of other programs, numbers that are none.

Nothing here loads a model.
"""
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
import unittest
from collections import Counter
from fcntl import ioctl

PROGRAM = os.environ["LLMRT_PROGRAM"]
# A program with a sanitizer takes 0.2 to 0.4 s of processor time to start: each of its options gets one bad number, and
# each bad number comes at options of each kind. A plain program gets all of them at every option.
SANITIZED = bool(os.environ.get("LLMRT_PROGRAM_SANITIZED"))
COMMANDS = ["devices", "inspect", "tokenize", "complete", "chat", "serve", "ps", "stop", "list", "explain", "trace", "synthesize", "replay"]
NOWHERE = "/nowhere/model.gguf"


def run(*arguments, **environment):
    variables = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    return subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          env={**variables, **environment}, check=False)


def help_of(*arguments, **environment):
    done = run(*arguments, **environment)
    assert done.returncode == 0 and not done.stderr, (arguments, done)
    return done.stdout


def option_names(text):
    return set(re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", text))


class CommandLineTest(unittest.TestCase):
    def refused(self, arguments, *texts, code=2):
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), (arguments, done.stderr))
        self.assertTrue(done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, (arguments, done.stderr))
        for text in texts:
            self.assertIn(text, done.stderr)

    def test_without_arguments_it_teaches(self):
        done = run()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(len(re.findall(r"(?m)^  llmrt (devices|chat|serve)", done.stderr)), 3)
        self.assertLess(done.stderr.count("\n"), 12)

    def test_help_by_every_name(self):
        self.assertEqual(help_of("help"), help_of("--help"))
        self.assertEqual(help_of("help", "serve"), help_of("serve", "--help"))
        self.assertEqual(help_of("help", "trace", "summarize"), help_of("trace", "summarize", "-h"))
        self.assertEqual(help_of("version"), help_of("--version"))
        self.refused(["help", "sevre"], "did you mean llmrt serve?")

    def test_help_wraps(self):
        for command in COMMANDS:
            for flag in ("--help", "--help-all"):
                for columns in (60, 80, 120):
                    text = help_of(command, flag, COLUMNS=str(columns))
                    for line in text.splitlines():
                        # What is one word, and command lines to copy, cannot be broken.
                        if line.startswith("  llmrt") or " " not in line.strip():
                            continue
                        self.assertLessEqual(len(line), max(columns, 80 if line.startswith("  ") else 0), line)
        self.assertLessEqual(max(map(len, help_of("serve", "--help").splitlines())), 100)  # no terminal
        self.assertGreater(max(map(len, help_of("serve", "--help").splitlines())), 90)

    def test_help_wraps_at_the_terminals_width(self):
        main, side = pty.openpty()
        ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
        variables = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        with subprocess.Popen([PROGRAM, "devices", "--help"], stdout=side, env=variables) as program:
            os.close(side)
            text = b""
            while True:
                try:
                    data = os.read(main, 4096)
                except OSError:
                    break
                if not data:
                    break
                text += data
            self.assertEqual(program.wait(), 0)
        os.close(main)
        widest = max(map(len, text.decode().splitlines()))
        self.assertTrue(60 < widest <= 70, widest)

    def test_rare_options_are_behind_help_all(self):
        everything = option_names(help_of("serve", "--help"))
        for command in ("chat", "complete"):
            short, whole = help_of(command, "--help"), help_of(command, "--help-all")
            self.assertNotIn("--chunk-tokens", short)
            self.assertIn("--device", short)
            self.assertRegex(short, rf"llmrt {command} --help-all shows \d+ more options")
            self.assertNotIn("--help-all", whole)
            self.assertLess(len(option_names(short)), len(option_names(whole)))
            self.assertIn("--chunk-tokens", whole)
            self.assertFalse({"--chunk-tokens", "--kv-host-gib", "--no-overlap"} - option_names(whole))
        self.assertFalse({"--chunk-tokens", "--kv-host-gib", "--no-overlap", "--port"} - everything)
        self.assertTrue(all(f"llmrt {command} " in help_of("--help-all") for command in COMMANDS))

    def test_commands_that_are_none(self):
        self.refused(["run", "llama3"], "llmrt chat MODEL")
        self.refused(["pull", "llama3"], "download a GGUF file")
        self.refused(["ls"], "llmrt list")
        self.refused(["status"], "llmrt ps")
        self.refused(["bench"], "llmrt-bench")
        self.refused(["chta", "x"], "did you mean llmrt chat?")
        self.refused(["insp", "x"], "did you mean llmrt inspect?")
        self.refused(["model.gguf"], "llmrt chat model.gguf")
        self.refused(["frobnicate"], "expected devices, list")
        self.refused(["x" * 100_000], "unknown command")
        self.refused(["trace", "sumarize"], "did you mean llmrt trace summarize?")
        self.refused(["trace"], "expected a command (summarize)")

    def test_options_that_are_none(self):
        for given, hint in {"--temprature": "did you mean --temperature?", "--max-token": "did you mean --max-tokens?",
                            "-ngl": "leave it out", "--n-gpu-layers": "leave it out", "-n": "llmrt calls it --max-tokens",
                            "--n-predict": "llmrt calls it --max-tokens", "-p": "llmrt calls it --prompt",
                            "-t": "leave it out", "--threads": "leave it out", "-hf": "download the GGUF file",
                            "--temp": "llmrt calls it --temperature", "-fa": "leave it out",
                            "--max-model-len": "llmrt calls it --context", "--port": "llmrt serve has --port",
                            "--xyz": "llmrt chat --help lists the options"}.items():
            self.refused(["chat", NOWHERE, given, "1"], f"unknown option: {given}", hint)
        self.refused(["chat", NOWHERE, "--temprature=1"], "unknown option: --temprature: did you mean --temperature?")
        self.refused(["-m", NOWHERE], "llmrt chat -m")
        self.refused(["serve", NOWHERE, "--max-num-seqs", "4"], "llmrt calls it --sequences")
        self.refused(["chat", NOWHERE, "--" + "x" * 100_000], "unknown option")
        # What stands where a value belongs is one.
        self.refused(["chat", NOWHERE, "--system", "--temprature"], NOWHERE, code=3)

    def test_names_that_llmrt_bench_has(self):
        for arguments in (["chat", "-m", NOWHERE], ["chat", "--model", NOWHERE, "-d", "vulkan:0", "-c", "512"],
                          ["serve", "--ctx-size", "512", "-m", NOWHERE], ["complete", "-m", NOWHERE, "a text"],
                          ["complete", "a text", "-m", NOWHERE], ["complete", "a text", f"--model={NOWHERE}"],
                          ["tokenize", "a text", "-m", NOWHERE], ["explain", "-m", NOWHERE],
                          ["inspect", "-m", NOWHERE]):
            self.refused(arguments, f"cannot open file: {NOWHERE}", code=3)
        self.refused(["chat", "-m", NOWHERE, NOWHERE], "unexpected argument: " + NOWHERE)

    def test_numbers_that_are_none(self):
        self.refused(["serve", NOWHERE, "--port", "99999"], "--port: expected 0 to 65535, found 99999")
        self.refused(["serve", NOWHERE, "--port", "80x"], "--port: expected 0 to 65535, found 80x")
        self.refused(["serve", NOWHERE, "--port", ""], "--port: expected 0 to 65535, found nothing")
        self.refused(["serve", NOWHERE, "--port"], "--port: expected N, found nothing")
        self.refused(["serve", NOWHERE, "--port", "1", "--port", "2"], "--port: expected N, found it more than once")
        self.refused(["serve", NOWHERE, "--port", "0010"], NOWHERE, code=3)
        self.refused(["serve", NOWHERE, "--tpot-target-ms", "nan"], "expected 0.1 to 1e+06, found nan")
        self.refused(["serve", NOWHERE, "--kv-dtype", "f17"], "expected f16, bf16", "found f17")
        kinds = {"N", "MS", "S", "SHARE", "T", "K", "P", "R", "GIB", "X", "N,...", "ID,...", "N|hard_cap"}
        num_tried, of_kind = 0, Counter()
        for command in COMMANDS:
            text = help_of(command, "--help-all", COLUMNS="120")
            for name, kind in re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)(?:, --[\w-]+)? (\S+)", text):
                if kind not in kinds:
                    continue
                num_tried += 1
                values = ["80x", "1e", "--1"]
                if kind in ("N", "K", "N,...", "ID,..."):
                    values.append("99999999999999999999999")
                if SANITIZED:
                    of_kind[kind] += 1
                    values = [values[of_kind[kind] % len(values)]]
                for value in values:
                    self.refused([command, "x", name, value], f"{name}: expected ", f"found {value}")
        self.assertGreater(num_tried, 60)

    def test_what_excludes_each_other(self):
        self.refused(["complete", NOWHERE, "text", "--file", "x"], "expected --prompt or --file, found both")
        self.refused(["explain", NOWHERE, "--memory", "--tokens", "1"], "--memory", "--tokens", "found both")
        self.refused(["explain", "--sharing", "--json"], "--sharing", "--json", "found both")
        self.refused(["explain", NOWHERE, "--memory", "--program"], "--memory", "--program", "found both")
        self.refused(["explain", NOWHERE, "--program"], "--program: expected --device with it, found nothing")
        self.refused(["tokenize", NOWHERE, "--ids", "1", "--no-bos"], "--ids", "--no-bos", "found both")
        self.refused(["chat"], "MODEL: expected", "found nothing")
        self.refused(["explain"], "MODEL: expected", "found nothing")
        model = "synthetic:smollm2-135m:q4_0"
        self.refused(["complete", model, "--ids", "1", "--batch-wait-ms", "5"], "--batching dynamic", "found continuous")
        self.refused(["complete", model, "--ids", "1", "--chunk-tokens", "600", "--step-tokens", "512"],
                     "--chunk-tokens: expected at most --step-tokens (512), found 600")

    def test_traces_that_cannot_be_written_are_told_first(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("--sample-trace", "--request-trace"):
                for path in ("/nowhere/trace", folder):
                    self.refused(["serve", NOWHERE, name, path], f"{name}: expected a file that can be written", code=1)
                self.refused(["serve", NOWHERE, name, f"{folder}/trace"], NOWHERE, code=3)
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
