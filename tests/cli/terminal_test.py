"""`llmrt chat` in a terminal, and what a shell behind it gets to see: nothing that was typed or pasted into the chat.

The program runs on a device that answers with a set text and writes down what the model was given (scripted_device.cpp),
with a model whose tokens are bytes. Each test plays the user at a pseudo-terminal.
"""
import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PROGRAM = os.environ["LLMRT_PROGRAM"]
PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"
CTRL_C, CTRL_D, CTRL_Z = b"\x03", b"\x04", b"\x1a"
BELL = "\x07"


def write_model(path):
    """A decoder of one layer whose token i is byte i, as GGUF; every weight is zero."""
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def pair(key, kind, payload):
        return text(key) + struct.pack("<I", kind) + payload

    def u32(key, value):
        return pair(key, 4, struct.pack("<I", value))

    def strings(key, values):
        return pair(key, 9, struct.pack("<IQ", 8, len(values)) + b"".join(text(value) for value in values))

    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    byte_tokens = [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]
    space_t = byte_tokens[0x20] + "t"
    tokens = byte_tokens + [space_t, "<end>"]
    size, vocabulary = 64, len(tokens)
    pairs = [
        pair("general.architecture", 8, text("llama")),
        u32("llama.block_count", 1), u32("llama.context_length", 32768), u32("llama.embedding_length", size),
        u32("llama.feed_forward_length", size), u32("llama.attention.head_count", 1),
        u32("llama.attention.head_count_kv", 1), u32("llama.rope.dimension_count", size), u32("llama.vocab_size", vocabulary),
        pair("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
        pair("llama.rope.freq_base", 6, struct.pack("<f", 1e4)),
        pair("tokenizer.ggml.model", 8, text("gpt2")), pair("tokenizer.ggml.pre", 8, text("gpt-2")),
        strings("tokenizer.ggml.tokens", tokens), strings("tokenizer.ggml.merges", [byte_tokens[0x20] + " t"]),
        pair("tokenizer.ggml.token_type", 9,
             struct.pack("<IQ", 5, vocabulary) + struct.pack(f"<{vocabulary}i", *[1] * (vocabulary - 1), 3)),
        u32("tokenizer.ggml.bos_token_id", vocabulary - 1), u32("tokenizer.ggml.eos_token_id", vocabulary - 1),
        pair("tokenizer.ggml.add_bos_token", 7, b"\0"),
        pair("tokenizer.chat_template", 8,
             text("{% for m in messages %}({{ m.role }}:{{ m.content }}){% endfor %}")),
    ]
    square = (size, size)
    tensors = {"token_embd.weight": (size, vocabulary), "output_norm.weight": (size,)}
    for name, shape in {"attn_norm": (size,), "attn_q": square, "attn_k": square, "attn_v": square,
                        "attn_output": square, "ffn_norm": (size,), "ffn_gate": square, "ffn_up": square,
                        "ffn_down": square}.items():
        tensors[f"blk.0.{name}.weight"] = shape
    infos, offset = b"", 0
    for name, shape in tensors.items():
        infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        infos += struct.pack("<IQ", 0, offset)
        offset += 4 * (shape[0] * (shape[1] if len(shape) > 1 else 1))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + infos
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % 32) + bytes(offset))


def read_prompts(path):
    """What the model was given, an entry for each answer."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().split("\0")[:-1]


class Session:
    """A shell on a terminal: it runs the chat, then prints every line that is left for it."""

    def __init__(self, folder, arguments="", answer="Fine.", columns=80, term="xterm", typed_before=b"", **settings):
        self.prompts_path = os.path.join(folder, "prompts")
        if os.path.exists(self.prompts_path):
            os.remove(self.prompts_path)
        command = f"{shlex.quote(PROGRAM)} chat {shlex.quote(folder)}/model.gguf --prefix-cache off --kv-tokens 40000 "
        if typed_before:
            command = "sleep 0.3; " + command
        script = f'trap : INT; {command}{arguments}; echo "[rc $?]"; stty -a | grep -q -e -icanon && echo raw || echo lines; cat'
        environment = {**os.environ, "TERM": term, "SCRIPTED_PROMPTS": self.prompts_path, "SCRIPTED_ANSWER": answer,
                       **settings}
        environment.pop("COLUMNS", None)
        # Under the address sanitizer crashes are the program's own to handle here, too.
        own = "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:handle_sigfpe=0"
        environment["ASAN_OPTIONS"] = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), own]))
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
            os.execvpe("sh", ["sh", "-c", script], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.output = ""
        self.send(typed_before)

    def read(self, seconds):
        ready, _, _ = select.select([self.terminal], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.terminal, 65536)
        except OSError:
            return False
        self.output += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, pattern, seconds=10):
        """Everything up to the pattern is used up."""
        end = time.time() + seconds
        while True:
            found = re.search(pattern, self.output)
            if found:
                before, self.output = self.output[: found.end()], self.output[found.end():]
                return before
            if time.time() > end:
                raise AssertionError(f"expected {pattern!r}, found {self.output!r}")
            self.read(0.1)

    def send(self, data):
        data = data.encode() if isinstance(data, str) else data
        end = time.time() + 10
        while data:
            if time.time() > end:
                raise AssertionError(f"expected the terminal to take all keys, {len(data)} are left")
            _, writable, _ = select.select([], [self.terminal], [], 0.02)
            if writable:
                data = data[os.write(self.terminal, data[:1024]):]
            self.read(0)

    def prompt(self):
        return self.wait_for(r"> (\r\x1b\[2C)?")

    def chat_pid(self):
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True, check=True)
        return int(found.stdout.split()[0])

    def given(self):
        return read_prompts(self.prompts_path)

    def ended(self, code):
        """The exit code, the terminal as it was, and nothing left to run for the shell."""
        self.wait_for(rf"\[rc {code}\]\r\n")
        self.wait_for("lines\r\n")
        self.send("the shell's own line\n")
        left = self.wait_for("the shell's own line\r\nthe shell's own line\r\n")  # echoed by the driver, then by cat
        if left != "the shell's own line\r\nthe shell's own line\r\n":
            raise AssertionError(f"expected nothing for the shell, found {left!r}")

    def close(self):
        try:
            os.kill(self.pid, signal.SIGHUP)
        except ProcessLookupError:
            pass
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


class TerminalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        write_model(os.path.join(cls.folder.name, "model.gguf"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def session(self, arguments="", **options):
        session = Session(self.folder.name, arguments, **options)
        self.addCleanup(session.close)
        return session

    def test_a_paste_with_empty_lines_is_one_turn(self):
        chat = self.session()
        chat.prompt()
        chat.send(PASTE_BEGIN + b"first\r\recho stolen; rm -rf x\r/bye\rlast" + PASTE_END)
        chat.wait_for("last")
        chat.send("\r")
        chat.wait_for("Fine")
        chat.prompt()
        self.assertEqual(chat.given(), ["(user:first\n\necho stolen; rm -rf x\n/bye\nlast)"])
        chat.send(CTRL_D)
        chat.ended(0)

    def test_lines_typed_one_by_one_are_turns_and_an_empty_one_is_none(self):
        chat = self.session(answer="Yes.")
        chat.prompt()
        chat.send("one\r\r   \rtwo\r")
        for _ in range(2):
            chat.wait_for("Yes")
        chat.prompt()
        self.assertEqual(chat.given(), ["(user:one)", "(user:one)(assistant:Yes.)(user:two)"])
        chat.send("/exit\r")
        chat.ended(0)

    def test_a_long_line_arrives_whole(self):
        words = " ".join(f"word{i}" for i in range(700))
        self.assertGreater(len(words), 4095 + 1000)
        for begin, end in ((b"", b""), (PASTE_BEGIN, PASTE_END)):
            chat = self.session()
            chat.prompt()
            chat.send(begin + words.encode() + end + b"\r")
            chat.wait_for("Fine")
            self.assertEqual(chat.given(), [f"(user:{words})"])
            chat.send(CTRL_D)
            chat.ended(0)

    def test_slash_commands_never_reach_the_model(self):
        chat = self.session("--system Brief.")
        chat.prompt()
        chat.send("/help\r")
        chat.wait_for("/clear .*forget the conversation")
        chat.send("/nonsense now\r")
        chat.wait_for("no such command: /nonsense now; nothing was sent")
        chat.wait_for("/bye")
        chat.send("/bye bye\r")
        chat.wait_for("no such command: /bye bye")
        chat.send("//etc\r")
        chat.wait_for("Fine")
        chat.send("/clear\r")
        chat.wait_for("forgotten")
        chat.send("/set system Long.\r")
        chat.wait_for("is set")
        chat.send("again\r")
        chat.wait_for("Fine")
        self.assertEqual(chat.given(), ["(system:Brief.)(user:/etc)", "(system:Long.)(user:again)"])
        chat.send("/bye\r")
        chat.ended(0)

    def test_keys_edit_and_never_reach_the_model(self):
        chat = self.session(answer="Yes.")
        chat.prompt()
        chat.send("hallo\x1b[D\x1b[D\x1b[D\x7fe\x1b[F\x1b[15~ w\xf6\x7f\xe4\r".encode("utf-8"))
        chat.wait_for("Yes")
        chat.prompt()
        chat.send("\x1b[A!\r")
        chat.wait_for("Yes")
        self.assertEqual(chat.given()[0], "(user:hello w\xe4)")
        self.assertTrue(chat.given()[1].endswith("(user:hello w\xe4!)"))
        chat.send(CTRL_D)
        chat.ended(0)

    def test_keys_typed_during_an_answer_are_the_next_turn(self):
        chat = self.session(answer="abcdefghij.", SCRIPTED_STEP_MS="50")
        chat.prompt()
        chat.send("one\r")
        chat.wait_for("abc")
        chat.send("two\r")
        shown = chat.wait_for(r"j\.\r\n")
        self.assertNotIn("two", shown)
        chat.wait_for("> two")
        chat.wait_for(r"j\.\r\n")
        self.assertTrue(chat.given()[1].endswith("(user:two)"))
        chat.send(CTRL_D)
        chat.ended(0)

    def test_ctrl_c_stops_an_answer_then_clears_the_prompt_then_ends(self):
        chat = self.session(answer="ab" * 5000, SCRIPTED_STEP_MS="10")
        chat.prompt()
        chat.send("one\r")
        chat.wait_for("abab")
        chat.send(CTRL_C)
        chat.prompt()
        chat.send("half a line")
        chat.wait_for("half a line")
        chat.send(CTRL_C)
        chat.prompt()
        chat.send("x")
        chat.wait_for("> x")
        chat.send("\x7f")
        chat.prompt()
        chat.send(CTRL_C)
        chat.wait_for("Ctrl-C again")
        chat.send(CTRL_C)
        chat.ended(130)
        self.assertEqual(len(chat.given()), 1)

    def test_what_is_typed_behind_the_end_never_reaches_the_shell(self):
        for last, code in ((b"/bye\r", 0), (CTRL_D, 0)):
            chat = self.session()
            chat.prompt()
            chat.send(last + b"echo stolen\r" * 2000)  # comes while the program ends, and is more than a driver keeps
            chat.ended(code)

    def test_signals_restore_the_terminal_and_drop_the_input(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGSEGV):
            with self.subTest(number=number):
                chat = self.session(answer="ab" * 5000, SCRIPTED_STEP_MS="10")
                chat.prompt()
                chat.send("one\r")
                chat.wait_for("abab")
                chat.send("echo stolen\r\recho again\r")
                os.kill(chat.chat_pid(), number)
                chat.ended(128 + number)

    def test_an_output_that_ends_restores_the_terminal(self):
        chat = self.session("| head -c 4", answer="ab" * 500, SCRIPTED_STEP_MS="5")
        chat.prompt()
        chat.send("one\r")
        chat.wait_for("abab")
        chat.send("echo stolen\r")
        chat.ended(0)

    def test_two_interrupts_in_a_step_restore_the_terminal(self):
        chat = self.session(SCRIPTED_STEP_MS="3000")
        chat.prompt()
        chat.send("one\r")
        time.sleep(0.3)
        chat.send(CTRL_C)
        time.sleep(0.1)
        chat.send(CTRL_C)
        chat.send("echo stolen\r")
        chat.ended(130)

    def test_errors_and_crashes_restore_the_terminal(self):
        for arguments, settings, code in (("--context 99999999", {}, 2), ("--bad-word ''", {}, 2),
                                          ("", {"SCRIPTED_ABORTS": "1"}, 134)):
            with self.subTest(arguments=arguments):
                chat = self.session(arguments, typed_before=b"one\recho stolen\recho again\r", **settings)
                chat.ended(code)

    def test_suspended_the_terminal_is_the_shells_and_back_it_is_the_chats(self):
        chat = self.session()
        chat.prompt()
        pid = chat.chat_pid()
        os.kill(pid, signal.SIGTSTP)
        chat.wait_for(re.escape("\x1b[?2004l"))
        end = time.time() + 10
        while not termios.tcgetattr(chat.terminal)[3] & termios.ICANON and time.time() < end:
            time.sleep(0.02)
        self.assertTrue(termios.tcgetattr(chat.terminal)[3] & termios.ICANON)
        os.kill(pid, signal.SIGCONT)
        chat.wait_for(re.escape("\x1b[?2004h"))
        chat.prompt()
        chat.send("back\r")
        chat.wait_for("Fine")
        self.assertEqual(chat.given(), ["(user:back)"])
        chat.send(CTRL_D)
        chat.ended(0)

    def test_words_wrap_and_an_answer_cannot_steer_the_terminal(self):
        chat = self.session(answer="The quick brown fox jumps over the lazy dog" + "\x1b]0;title" + BELL, columns=20)
        chat.prompt()
        chat.send("one\r")
        text = chat.wait_for("title.*\r\n")
        self.assertNotIn("\x1b]0", text)
        self.assertNotIn(BELL, text)
        shown = re.sub(r"\S+\x1b\[(\d+)D\x1b\[K", "", text)
        self.assertIn("fox\r\njumps", re.sub(r" *\r\n", "\r\n", shown))
        chat.send(CTRL_D)
        chat.ended(0)

    def test_a_cut_character_is_not_shown(self):
        chat = self.session("--max-tokens 4", answer="ab\u20ac")
        chat.prompt()
        chat.send("one\r")
        text = chat.wait_for("2 bytes are left out")
        self.assertIn("ab\r\n", text)
        self.assertNotIn("\ufffd", text)
        chat.send("two\r")
        chat.wait_for("2 bytes are left out")
        self.assertEqual(chat.given()[1], "(user:one)(assistant:ab)(user:two)")
        chat.send(CTRL_D)
        chat.ended(0)

    def test_a_terminal_without_escape_sequences_refuses_what_its_driver_cuts(self):
        chat = self.session(term="dumb")
        chat.wait_for("> ")
        chat.send("hello\n")
        chat.wait_for("Fine")
        chat.send("w" * 5000 + "\n")
        chat.wait_for("nothing was sent")
        self.assertEqual(chat.given(), ["(user:hello)"])
        chat.send(CTRL_D)
        chat.wait_for(r"\[rc 0\]")

    def run_piped(self, arguments, text, **settings):
        prompts = os.path.join(self.folder.name, "piped")
        if os.path.exists(prompts):
            os.remove(prompts)
        environment = {**os.environ, "SCRIPTED_PROMPTS": prompts, "SCRIPTED_ANSWER": "Fine.", **settings}
        engine = [] if arguments[0] == "tokenize" else ["--kv-tokens", "40000", "--step-tokens", "512"]
        done = subprocess.run([PROGRAM, *arguments, *engine], input=text, capture_output=True, text=True, env=environment,
                              timeout=60, check=False)
        return done, read_prompts(prompts)

    def test_lines_of_a_pipe_are_turns(self):
        model = os.path.join(self.folder.name, "model.gguf")
        done, given = self.run_piped(["chat", model, "--prefix-cache", "off"], "one\n\n//two\n/clear\nthree")
        self.assertEqual(given, ["(user:one)", "(user:one)(assistant:Fine.)(user:/two)", "(user:three)"])
        self.assertEqual(done.stdout, "Fine.\nFine.\nFine.\n")
        self.assertEqual(done.returncode, 0)
        done, given = self.run_piped(["chat", model, "--prefix-cache", "off"], "/what\none\n")
        self.assertEqual((done.returncode, given), (1, ["(user:one)"]))
        words = " ".join(f"word{i}" for i in range(1000))
        done, given = self.run_piped(["chat", model], words + "\n")
        self.assertEqual(given, [f"(user:{words})"])

    def test_complete_reads_a_pipe(self):
        model = os.path.join(self.folder.name, "model.gguf")
        for arguments in (["complete", model], ["complete", "-m", model], ["complete", model, "--file", "-"]):
            done, given = self.run_piped(arguments, "Once upon\na time\n")
            self.assertEqual((done.returncode, given, done.stdout), (0, ["Once upon\na time\n"], "Fine.\n"), done.stderr)
        for arguments in (["complete", model, "text"], ["complete", "text", "-m", model],
                          ["complete", model, "--prompt", "text"]):
            done, given = self.run_piped(arguments, "not this")
            self.assertEqual((done.returncode, given), (0, ["text"]), done.stderr)
        done = subprocess.run([PROGRAM, "complete", model], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a text to continue (as an argument, with --file, or piped in)", done.stderr)
        done, _ = self.run_piped(["tokenize", model], "ab")
        self.assertIn("2 tokens", done.stdout)

    def test_a_trace_that_cannot_be_written_is_told_before_weights_load(self):
        model = os.path.join(self.folder.name, "model.gguf")
        done, given = self.run_piped(["complete", model, "x", "-v", "--sample-trace", "/nowhere/trace"], "")
        self.assertEqual((done.returncode, given), (1, []))
        self.assertIn("--sample-trace: expected a file that can be written", done.stderr)
        self.assertNotIn("loading weights", done.stderr)


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit(0)
    unittest.main(verbosity=1)
