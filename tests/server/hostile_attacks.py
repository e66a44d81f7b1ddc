"""The worst requests of each kind, as a table of classes: what hostile_test.py throws at the server.

To add one: a class below whose strike() does harm once, decorated with @attack. strike() is called again and again, by
`tasks` at a time in each of `processes` processes (at the lowest priority, with pauses), until the time is up; whatever
waits then is cancelled. `level` grows from 0 to 1 over that time, `rng` is random by the printed seed. prepare() runs
once before, outside of the measured time: bodies of megabytes belong there.

An attack keeps within the rows that the server has (512): that a full server makes everybody wait is no fault. What is
judged is that the polite client is served as before, that memory stays bounded, and that nothing is left behind.
"""

import asyncio
import string
import subprocess

from hostile_client import CHAT, MIB, RESPONSES, TEXT, close, connect, dumps, read_answer, request_bytes

USER = [{"role": "user", "content": "hi"}]
CONTEXT = 32768


class Net:
    """How an attack reaches the server; counts what comes back."""

    def __init__(self, port):
        self.port = port
        self.counts = {}
        self.faults = []

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def fault(self, text):
        """An answer that is wrong whatever the load."""
        if len(self.faults) < 5:
            self.faults.append(text[:300])

    async def exchange(self, data, has_body=True):
        """Any bytes on a connection of their own; the answer, or None where the server closed without one."""
        reader, writer = await connect(self.port)
        try:
            writer.write(data)
            answer = await read_answer(reader, has_body)
        except (OSError, asyncio.IncompleteReadError):
            self.count("closed")
            return None
        finally:
            close(writer)
        self.judge(answer, data)
        return answer

    def judge(self, answer, data):
        self.count(str(answer.status))
        if answer.status == 500:
            self.fault(f"500 to {data[:120]!r}: {answer.body[:160]!r}")

    async def post(self, path, body, headers=()):
        if not isinstance(body, bytes):
            body = dumps(body)
        return await self.exchange(request_bytes(path, body, headers=headers))


ATTACKS = []


def attack(kind):
    ATTACKS.append(kind)
    return kind


class Attack:
    processes, tasks, pause_s = 1, 4, 0.01
    reads_text = False  # whether the kind of tokenizer matters

    def prepare(self, rng, program):
        pass

    async def strike(self, net, rng, level):
        raise NotImplementedError

    @classmethod
    def name(cls):
        return "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__)[1:]


def grown(items, level):
    """The items come in growing order: one of those that the level has reached."""
    return items[min(len(items) - 1, int(level * len(items)))]


def word(rng, size):
    return "".join(rng.choices(string.ascii_letters + string.digits + "_-.", k=size))


def chat(**fields):
    return {"messages": USER, "max_tokens": 1, **fields}


class Bodies(Attack):
    """Posts bodies made before, in growing order: (path, bytes)."""

    def bodies(self, rng, program):
        raise NotImplementedError

    def prepare(self, rng, program):
        self.made = [(path, body if isinstance(body, bytes) else dumps(body)) for path, body in
                     self.bodies(rng, program)]

    async def strike(self, net, rng, level):
        path, body = grown(self.made, level)
        await net.post(path, body)


# ---- hashes ---------------------------------------------------------------------------------------------------------


COLLIDING = {}


def colliding_keys(rng, program, num_keys):
    """Keys that std::hash of libstdc++ puts into one bucket; the server's own program makes them, in half a second."""
    if num_keys not in COLLIDING:
        made = subprocess.run([program, "--colliding-keys", str(num_keys), "--seed", str(rng.randrange(1 << 31))],
                              capture_output=True, text=True, check=True)
        COLLIDING[num_keys] = made.stdout.splitlines()
    return COLLIDING[num_keys]


def names(rng, n):
    """So many names, each once."""
    start = word(rng, 5)
    return [f"{start}{i}" for i in range(n)]


@attack
class HashFloodOfTemplate(Bodies):
    """A dictionary for the template whose keys share a bucket: as a value, nested, and the kwargs themselves."""

    def bodies(self, rng, program):
        bodies = []
        for num_keys in (5000, 20000):
            flood = dict.fromkeys(colliding_keys(rng, program, num_keys), 0)
            for kwargs in ({word(rng, 5): flood}, {"documents": [flood]}, {"a": {"b": [flood]}}):
                bodies.append((CHAT, chat(chat_template_kwargs=kwargs)))
            bodies.append(("/tokenize", {"messages": USER, "chat_template_kwargs": flood}))
        return bodies


@attack
class HashFloodOfFields(Bodies):
    """The same keys wherever a body has an object that the server reads."""

    def bodies(self, rng, program):
        bodies = []
        for num_keys in (5000, 20000):
            flood = dict.fromkeys(colliding_keys(rng, program, num_keys), 0)
            bodies += [
                (CHAT, chat(**flood)),
                (CHAT, chat(metadata=flood, user="x")),
                (CHAT, {"messages": [{**USER[0], **flood}], "max_tokens": 1}),
                (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", **flood}]}]}),
                (CHAT, chat(tools=[{"type": "function", "function": {
                    "name": "f", "parameters": {"type": "object", "properties": flood}}}], tool_choice="none")),
                (CHAT, chat(stream_options=flood, stream=True)),
                (CHAT, chat(response_format={"type": "json_schema", "json_schema": {"schema": flood}})),
                (TEXT, {"prompt": "x", "logit_bias": flood}),
                ("/tokenize", {"prompt": "x", **flood}),
                ("/detokenize", {"tokens": [1], **flood}),
            ]
        return bodies


# ---- JSON -----------------------------------------------------------------------------------------------------------


@attack
class DeepJson(Bodies):
    """Arrays and objects in each other, up to the depth that is allowed and far beyond, closed or not."""

    def bodies(self, rng, program):
        bodies = []
        for depth in (60, 64, 65, 1000, 100_000, 3_000_000):
            opening, closing = [], []
            for _ in range(min(depth, 1000)):
                is_array = rng.random() < 0.5
                opening.append("[" if is_array else '{"%s":' % word(rng, 1))
                closing.append("]" if is_array else "}")
            deep = "".join(opening) + "0" + "".join(reversed(closing))
            if depth > 1000:
                deep = "[" * depth + ("]" * depth if rng.random() < 0.5 else "")
            for name in ("metadata", "chat_template_kwargs", word(rng, 6)):
                inner = '{"x":%s}' % deep if name == "chat_template_kwargs" else deep
                bodies.append((CHAT, ('{"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"%s":%s}' %
                                      (name, inner)).encode()))
            bodies.append(("/tokenize", deep.encode()))
        return bodies


@attack
class WideJson(Bodies):
    """Megabytes of members, of small values, of one long key or number, of keys that come twice."""

    def bodies(self, rng, program):
        bodies = []
        for mib in (1, 4, 7):
            size = mib * MIB
            wide = [
                "[" + "0," * (size // 2) + "0]",
                "[" + "[]," * (size // 3) + "0]",
                "[" + '"",' * (size // 3) + "0]",
                "[" + "{}," * (size // 3) + "0]",
                "[" + "1e-5," * (size // 5) + "0]",
                '{"%s":0}' % ("k" * size),
                "1" * size,
                "0." + "1" * size,
                "1e" + "9" * 400,
                '"' + "\\u0041" * (size // 6) + '"',
                '"' + "\\ud83d\\ude00" * (size // 12) + '"',
                "{" + ",".join('"%s":0' % name for name in names(rng, size // 16)) + "}",
                "{" + '"a":0,' * (size // 6) + '"a":0}',
            ]
            for value in rng.sample(wide, 4):
                name = rng.choice(["metadata", "user", "logit_bias", "stop", "prompt", "messages", word(rng, 8)])
                path = rng.choice([CHAT, TEXT, "/tokenize", "/detokenize"])
                bodies.append((path, ('{"max_tokens":1,"%s":%s}' % (name, value)).encode()))
                bodies.append((CHAT, ('{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"metadata":%s}' %
                                      rng.choice(wide)).encode()))
        return bodies


@attack
class TemplateArguments(Bodies):
    """Lists, dictionaries and strings of megabytes that the template walks, turns to JSON or upper case."""

    def bodies(self, rng, program):
        bodies = []
        for scale in (1, 8, 20):
            n = scale * 5000
            pairs = dict.fromkeys(names(rng, n), 0)
            for kwargs in (
                {"documents": [0] * n * 4},
                {"documents": ["x"] * n * 4},
                {"documents": [pairs]},
                {"documents": [{}] * n},
                {"date_string": "a" * n * 40},
                {"date_string": "\u0149" * n * 10},
                {"tools": [pairs] * 3},
                {"tools": [[[i] for i in range(n)]]},
                {"tools": ["\u2028\"\\<" * n]},
                {word(rng, 4): [{name: [name]} for name in names(rng, n)]},
                pairs,
            ):
                bodies.append((rng.choice([CHAT, CHAT, "/tokenize"]), chat(chat_template_kwargs=kwargs)))
        for path, body in bodies:
            if path == "/tokenize":
                del body["max_tokens"]
        return bodies


@attack
class ManyMessages(Bodies):
    """As many messages, parts, tools and calls as a body holds."""
    reads_text = True

    def bodies(self, rng, program):
        bodies = []
        for n in (1000, 16384, 16385, 50_000):
            roles = ["user", "assistant", "system", "tool"]
            bodies += [
                (CHAT, {"messages": [{"role": roles[i % 4], "content": ""} for i in range(n)], "max_tokens": 1}),
                (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * n}],
                        "max_tokens": 1}),
                ("/tokenize", {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}] * n}),
                (CHAT, chat(tool_choice="none", tools=[
                    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
                    for name in names(rng, n)])),
                (CHAT, {"messages": USER + [{"role": "assistant", "content": None, "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}] * n}],
                    "max_tokens": 1}),
                (CHAT, {"messages": [{"role": "assistant", "content": "<think>" * n + "</think>" * n}] + USER,
                        "max_tokens": 1}),
            ]
        tool = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": dict.fromkeys(names(rng, 100_000), {"type": "string"})}}}
        bodies.append((CHAT, chat(tools=[tool], tool_choice="none")))
        return bodies


@attack
class ManyItems(Bodies):
    """As many items, turns, tools and thoughts as a response's body holds."""
    reads_text = True

    def bodies(self, rng, program):
        bodies = []
        call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
        for n in (1000, 16384, 16385, 50_000):
            kinds = [{"role": "developer", "content": "a"}, {"role": "assistant", "content": "b"}, call,
                     {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "a"}]}]
            bodies += [
                (RESPONSES, {"input": [kinds[i % 4] for i in range(n)], "max_output_tokens": 1}),
                (RESPONSES, {"input": [{"role": "system", "content": "s"}] * n, "max_output_tokens": 1}),
                (RESPONSES, {"input": [{**call, "call_id": name} for name in names(rng, n)], "max_output_tokens": 1}),
                (RESPONSES, {"input": [{"type": "reasoning", "encrypted_content": "A" * 100}] * n, "max_output_tokens": 1}),
                (RESPONSES, {"input": "a", "max_output_tokens": 1, "tool_choice": "none", "tools": [
                    {"type": "namespace", "name": name, "tools": [{"type": "custom", "name": "f"}] * 20}
                    for name in names(rng, n // 20)]}),
                (RESPONSES, {"input": "a", "max_output_tokens": 1, "tools": [{"type": "web_search"}] * n,
                             "metadata": dict.fromkeys(names(rng, min(n, 16000)), 1)}),
            ]
        return bodies


@attack
class BadText(Attack):
    """Text that is no Unicode, or not the one that JSON wants."""
    reads_text = True

    async def strike(self, net, rng, level):
        bad = rng.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\\ud800",
                          b"\\udc00x", b"\\ud83d\\u0041", b"\\u0000", b"\x00", b"\x01", b"\\x41", b"\\", b"\r\n"])
        text = b"a" * rng.randrange(1 + int(level * 100_000)) + bad + b"b" * rng.randrange(9)
        body = b'{"messages":[{"role":"user","content":"%s"}],"max_tokens":1}' % text
        wrap = rng.randrange(5)
        if wrap == 1:
            body = b"\xef\xbb\xbf" + body
        elif wrap == 2:
            body = body.decode("latin-1").encode(rng.choice(["utf-16", "utf-32", "utf-7"]))
        elif wrap == 3:
            body = body[: rng.randrange(len(body))]
        await net.post(CHAT, body)


# ---- tokens ---------------------------------------------------------------------------------------------------------


def slow_texts(rng, size):
    """What tokenisers are slow at: long runs, words without a cut, letters that normalise to several."""
    letters = "".join(rng.choices("etaoinshrdlcum", k=65536))
    return [
        " " * size, "\n" * size, "a" * size, "\t " * (size // 2), (letters * (size // len(letters) + 1))[:size],
        "'" * size, "1" * size, "\u0301" * (size // 2), "a\u0301\u0323" * (size // 5), "\u4e2d" * (size // 3),
        "\uac00" * (size // 3), "\U0001f468\u200d" * (size // 7), "<|im_start|" * (size // 11),
        "<|im_end|>" * (size // 10), "\u2581" * (size // 3), "\x00" * (size // 6), "th" * (size // 2),
        "\u1100\u1161" * (size // 6), "\u00a0" * (size // 2), "!?" * (size // 2),
    ]


@attack
class SlowText(Bodies):
    """Prompts of megabytes of what tokenisers are slow at: several in a body."""
    reads_text = True

    def bodies(self, rng, program):
        bodies = []
        for size in (100_000, 500_000, 1_900_000):
            for text in rng.sample(slow_texts(rng, size), 7):
                bodies.append((TEXT, {"prompt": [text] * 4, "max_tokens": 1}))
                bodies.append(("/tokenize", {"prompt": text}))
                bodies.append((CHAT, {"messages": [{"role": "user", "content": text}], "max_tokens": 1}))
        return [body for body in map(lambda made: (made[0], dumps(made[1])), bodies) if len(body[1]) < 8 * MIB]


@attack
class LongestPrompts(Bodies):
    """Just below and above the context, and token ids by the million."""
    reads_text = True

    def bodies(self, rng, program):
        bodies = []
        for n in (CONTEXT // 2, CONTEXT - 2, CONTEXT, 10 * CONTEXT, 1_500_000):
            bodies.append((TEXT, {"prompt": [rng.randrange(5000)] * n, "max_tokens": 1}))
            bodies.append(("/detokenize", {"tokens": [rng.randrange(5000)] * n}))
        bodies.append((TEXT, {"prompt": [[5]] * 129, "max_tokens": 1}))
        bodies.append((TEXT, {"prompt": [[5] * 10_000] * 128, "max_tokens": 30_000}))
        return bodies


@attack
class TokenizeFlood(Attack):
    """Many small /tokenize and /detokenize."""
    reads_text = True
    tasks = 16

    async def strike(self, net, rng, level):
        if rng.random() < 0.5:
            await net.post("/tokenize", {"prompt": word(rng, 1 + int(level * 4000)), "return_token_strs": True})
        else:
            await net.post("/detokenize", {"tokens": [rng.randrange(6000) for _ in range(1 + int(level * 2000))]})


# ---- the engine's work ----------------------------------------------------------------------------------------------


@attack
class ManyPrompts(Attack):
    """128 prompts of a request, with everything asked for. Longer ones to score would be load of the device: prompts of
    a class are computed in the order of their admission."""
    tasks = 2

    async def strike(self, net, rng, level):
        prompts = [[rng.randrange(256, 6000) for _ in range(1 + int(level * 20))] for _ in range(128)]
        await net.post(TEXT, {"prompt": prompts, "max_tokens": rng.choice([1, 4]), "logprobs": rng.choice([None, 5]),
                              "echo": rng.random() < 0.5, "return_token_ids": True})


@attack
class ManyAlternatives(Attack):
    """n = 128 with 20 alternatives a token: answers of tens of megabytes."""
    tasks = 2

    async def strike(self, net, rng, level):
        await net.post(CHAT, chat(n=128, max_tokens=1 + int(level * 100), ignore_eos=True, logprobs=True,
                                  top_logprobs=20, stream=rng.random() < 0.5))


@attack
class ManyChoices(Attack):
    """n = 128 of a token each, again and again."""
    tasks = 2

    async def strike(self, net, rng, level):
        await net.post(TEXT, {"prompt": word(rng, 12), "n": 128, "max_tokens": 1 + int(level * 2),
                              "seed": rng.randrange(1 << 60)})


@attack
class BiasAndBadWords(Bodies):
    """All that is kept for a choice, 128 times: bias, banned words, stop strings."""
    tasks = 2

    def bodies(self, rng, program):
        bodies = []
        for n in (8, 64, 128):
            bodies.append((TEXT, {
                "prompt": [5], "n": n, "max_tokens": 20, "ignore_eos": True,
                "bad_words": [[rng.randrange(6000) for _ in range(8)] for _ in range(1024)],
                "logit_bias": {str(t): rng.choice([-100, -1, 1]) for t in rng.sample(range(6000), 1024)},
                "stop": [word(rng, 256) for _ in range(4)]}))
        return bodies


@attack
class StopStrings(Attack):
    """Stop strings that overlap with themselves and each other, and that answers come close to."""
    reads_text = True
    tasks = 2

    async def strike(self, net, rng, level):
        num = rng.choice([4, 64, 65])
        stops = [rng.choice(["a", "ab", " t", "et", "\u00e9"]) * 128 for _ in range(num)]
        stops = [(stop[: rng.randrange(200, 255)] + rng.choice("xyz"))[:rng.randrange(1, 120)] for stop in stops]
        await net.post(CHAT, chat(n=1 + int(level * 127), max_tokens=20, stop=stops,
                                  include_stop_str_in_output=rng.random() < 0.5))


@attack
class Penalties(Attack):
    """Long answers with penalties, of which a server may have few rows; the polite client wants one too."""
    tasks = 2

    async def strike(self, net, rng, level):
        await net.post(TEXT, {"prompt": [5], "max_tokens": 2000, "ignore_eos": True, "n": rng.choice([16, 64]),
                              rng.choice(["presence_penalty", "frequency_penalty"]): 0.1, "stream": True})


@attack
class Repeats(Attack):
    """no_repeat_ngram_size and banned words over long answers; beams; best_of."""

    async def strike(self, net, rng, level):
        body = rng.choice([
            {"no_repeat_ngram_size": rng.choice([1, 2, 1024]), "n": 16},
            {"use_beam_search": True, "n": 16, "best_of": 16, "temperature": 0},
            {"best_of": 64, "n": 1},
            {"bad_words": [word(rng, 3) for _ in range(1024)], "n": 8},
            {"min_tokens": 100, "n": 32, "stop_token_ids": list(range(128))},
        ])
        prompt = [rng.randrange(256, 6000)] * (1 + int(level * 3000))
        await net.post(TEXT, {"prompt": prompt, "max_tokens": 100, **body})


@attack
class Invariance(Attack):
    """Asks for the slow kernels, or for classes that others should not have."""

    async def strike(self, net, rng, level):
        extra = rng.choice([{"batch_invariant": True}, {"request_class": "evaluation"}, {"request_class": "background"},
                            {"service_tier": "priority"}, {"service_tier": "flex"}])
        await net.post(CHAT, chat(**{"max_tokens": 50, "n": 8, **extra}))


@attack
class Deadlines(Attack):
    """Deadlines that are over, answers that never fit, numbers at the edges of their ranges."""
    tasks = 8

    async def strike(self, net, rng, level):
        extra = rng.choice([{"deadline_ms": 1}, {"deadline_ms": 0}, {"deadline_ms": 1 << 62}, {"max_tokens": 1 << 30},
                            {"max_tokens": -1}, {"max_tokens": CONTEXT, "stop": ["e"]}, {"n": 129}, {"seed": -1},
                            {"temperature": 1e-300}, {"top_p": 0}, {"min_tokens": 1 << 31},
                            {"logit_bias": {"99": 1e400}},
                            {"cache_salt": word(rng, 256)}, {"cache_salt": word(rng, 257)}, {"top_k": 1 << 62},
                            {"deadline_ms": 20, "max_tokens": 400}])
        await net.post(CHAT, chat(**{**extra, "max_tokens": extra.get("max_tokens", 2)})
                       if "logit_bias" not in extra else b'{"prompt":"x","logit_bias":{"99":1e400}}')


@attack
class CachePollution(Attack):
    """Prompts that fill the prefix cache, of thousands of shapes."""

    async def strike(self, net, rng, level):
        start = [rng.randrange(256, 6000) for _ in range(16 * rng.randrange(1, 8))]
        prompts = [start + [rng.randrange(256, 6000) for _ in range(rng.randrange(1, 40))] for _ in range(64)]
        await net.post(TEXT, {"prompt": prompts, "max_tokens": 1})


# ---- what is sent, and how ------------------------------------------------------------------------------------------


@attack
class IgnoredFields(Attack):
    """Megabytes in fields without an effect, kept as long as a long stream lasts."""
    tasks = 12
    pause_s = 0.1

    def prepare(self, rng, program):
        body = chat(max_tokens=3000, ignore_eos=True, stream=True)
        self.made = [request_bytes(CHAT, dumps({**body, name: "x" * size}))
                     for name in ("user", "metadata", "safety_identifier", word(rng, 9))
                     for size in (1000, 60_000, 7 * MIB + MIB // 2)]

    async def strike(self, net, rng, level):
        await net.exchange(rng.choice(self.made))


@attack
class HalfSentBodies(Attack):
    """Bodies of megabytes that never end, on many connections."""
    tasks = 64
    pause_s = 0.05

    async def strike(self, net, rng, level):
        reader, writer = await connect(net.port)
        try:
            size = 8 * MIB
            head = request_bytes(CHAT, b"", headers=()).replace(b"Content-Length: 0", b"Content-Length: %d" % size)
            writer.write(head + b'{"user":"')
            for _ in range(int(size * (0.3 + 0.7 * rng.random())) >> 18):
                writer.write(b"x" * (1 << 18))
                await writer.drain()
            answer = await read_answer(reader)
            net.count(str(answer.status))
        except (OSError, asyncio.IncompleteReadError):
            net.count("closed")
        finally:
            close(writer)


class Dripping(Attack):
    """Many connections on each of which a byte comes now and then."""
    tasks = 250
    pause_s = 0.05

    def data(self, rng):
        raise NotImplementedError

    async def strike(self, net, rng, level):
        reader, writer = await connect(net.port)
        try:
            data = self.data(rng)
            first = rng.randrange(len(data) // 2)
            writer.write(data[:first])
            for i in range(first, len(data)):
                await asyncio.sleep(0.05 + 0.3 * rng.random())
                writer.write(data[i:i + 1])
            net.judge(await read_answer(reader), data)
        except (OSError, asyncio.IncompleteReadError):
            net.count("closed")
        finally:
            close(writer)


@attack
class SlowHeaders(Dripping):
    def data(self, rng):
        return request_bytes(CHAT, dumps(chat()), headers=[f"x-{word(rng, 9)}: {word(rng, 200)}" for _ in range(40)])


@attack
class SlowBodies(Dripping):
    def data(self, rng):
        return request_bytes(rng.choice([CHAT, "/tokenize"]), dumps(chat(user=word(rng, 4000))))


class SlowReaders(Attack):
    """Answers that nobody reads, or a byte at a time, over a receive buffer of two pages."""
    tasks = 6
    path = CHAT

    def body(self, rng, level):
        raise NotImplementedError

    async def strike(self, net, rng, level):
        reader, writer = await connect(net.port, receive_bytes=4096)
        writer.transport.pause_reading()
        try:
            writer.write(request_bytes(self.path, dumps(self.body(rng, level))))
            for _ in range(1000):
                await asyncio.sleep(0.1)
                if rng.random() < 0.3:
                    writer.transport.resume_reading()
                    await reader.read(100)
                    writer.transport.pause_reading()
        except (OSError, RuntimeError):
            net.count("closed")
        finally:
            close(writer)


@attack
class SlowReadersOfStreams(SlowReaders):
    def body(self, rng, level):
        return chat(n=16, max_tokens=1000, ignore_eos=True, stream=True, logprobs=True, top_logprobs=20)


@attack
class SlowReadersOfAnswers(SlowReaders):
    def body(self, rng, level):
        return chat(n=32, max_tokens=20 + int(level * 100), ignore_eos=True, logprobs=True, top_logprobs=20)


@attack
class SlowReadersOfTokens(SlowReaders):
    """The same of /tokenize, whose answers are larger than the text."""
    tasks = 100
    path = "/tokenize"

    def body(self, rng, level):
        return {"prompt": word(rng, 3) * (1 + int(level * 9000)), "return_token_strs": True}


@attack
class Leavers(Attack):
    """Ask for much and leave, with or without bytes behind the request, with or without a reset."""
    tasks = 4
    pause_s = 0.03

    async def strike(self, net, rng, level):
        reader, writer = await connect(net.port)
        try:
            body = chat(n=8, max_tokens=30_000, ignore_eos=True, stream=rng.random() < 0.5)
            extra = rng.choice([b"", b"", b"G", b"\r\n", b"GET /health HTTP/1.1\r\n", request_bytes(CHAT, dumps(body)),
                                bytes(rng.randrange(256) for _ in range(rng.randrange(40_000)))])
            writer.write(request_bytes(CHAT, dumps(body)) + extra)
            await writer.drain()
            await asyncio.sleep(rng.choice([0, 0.02, 0.1]))
            if rng.random() < 0.3:
                writer.write_eof()
                await asyncio.sleep(0.05)
            if rng.random() < 0.5:
                writer.close()  # in order; else by a reset
                await writer.wait_closed()
        except OSError:
            net.count("closed")
        finally:
            close(writer)
        net.count("left")


@attack
class Pipelines(Attack):
    """Hundreds of requests on a connection before the first answer is read."""
    tasks = 4

    async def strike(self, net, rng, level):
        reader, writer = await connect(net.port)
        try:
            num = 10 + int(level * 300)
            made = [request_bytes("/health", method="GET"), request_bytes("/v1/models", method="GET"),
                    request_bytes("/tokenize", dumps({"prompt": "x"})), request_bytes("/nothing", method="GET"),
                    request_bytes(TEXT, dumps({"prompt": [5], "max_tokens": 1}))]
            sent = rng.choices(made, weights=[5, 5, 3, 3, 1], k=num)
            writer.write(b"".join(sent))
            for _ in range(rng.choice([num, num // 2])):
                net.judge(await read_answer(reader), b"a pipeline")
        except (OSError, asyncio.IncompleteReadError):
            net.count("closed")
        finally:
            close(writer)


@attack
class Connections(Attack):
    """Hundreds of connections that say nothing, or that close at once."""
    tasks = 300
    pause_s = 0.02

    async def strike(self, net, rng, level):
        reader, writer = await connect(net.port)
        net.count("opened")
        try:
            if rng.random() < 0.6:
                writer.write(rng.choice([b"", b"G", b"GET /health HTTP/1.1\r\n", b"\r\n\r\n"]))
                await asyncio.sleep(rng.random() * 2 * level)
        finally:
            close(writer)


@attack
class Headers(Attack):
    """Headers at and beyond their limits."""

    async def strike(self, net, rng, level):
        extra = rng.choice([
            [f"x-{i}: y" for i in range(rng.choice([90, 120, 3000]))],
            ["x: " + "y" * rng.choice([8000, 16_000, 17_000, int(level * MIB)])],
            ["x" * 15_000 + ": y"],
            [f"Cookie: {word(rng, 30)}={word(rng, 3000)}" for _ in range(5)],
            ["x: a\r\n b"], ["x : y"], [": y"], ["x: \x00"], ["x: \u00ff"], ["Content-Length: 5"],
            ["Transfer-Encoding: chunked"], ["Transfer-Encoding: gzip, chunked"], ["Expect: 100-continue"],
            ["Expect: " + word(rng, 30)], ["Content-Encoding: gzip"], ["Connection: " + "x," * 7000],
        ])
        await net.exchange(request_bytes(CHAT, dumps(chat()), headers=extra))


@attack
class Chunks(Attack):
    """Bodies in chunks of a byte, with extensions, wrong sizes, trailers."""

    async def strike(self, net, rng, level):
        body = dumps(chat(user="x" * int(level * 200_000)))
        size = rng.choice([1, 1, 2, 100, 65536])
        extension = rng.choice(["", "", ";a=b", ";" + "x" * 300, ';a="' + "y" * 200 + '"'])
        parts = [b"%x%s\r\n%s\r\n" % (len(body[i:i + size]), extension.encode(), body[i:i + size])
                 for i in range(0, len(body), size)]
        end = rng.choice([b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nx: y\r\n\r\n", b"", b"fffffffffffffffff\r\n", b"-1\r\n",
                          b"0x5\r\n", b"\r\n", b"0\r\n" + b"x: y\r\n" * 5000 + b"\r\n"])
        head = request_bytes(CHAT, b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        await net.exchange(head + b"".join(parts) + end)


@attack
class Targets(Attack):
    """Targets of every form, long queries, names in percent signs."""
    tasks = 8

    async def strike(self, net, rng, level):
        path = rng.choice(["/health", "/v1/models", "/v1/models/paced", CHAT, "/metrics", "/"])
        target = rng.choice([
            path + "?" + word(rng, 1 + int(level * 15_000)), path + "/" * rng.randrange(1, 2000),
            "http://localhost" + path, "http://" + word(rng, 200) + path, "*", "//" + path, "/%00", "/%2e%2e" * 900,
            "/v1/models/" + "%41" * int(1 + level * 4000), "/..%2f" * 99, path.upper(), "localhost:80", "?" + path,
            path + "#" + word(rng, 9), "/" + word(rng, 14_000), "/a b", "/\u00e9", path + "?" + "a=b&" * 3000,
        ])
        method = rng.choice(["GET", "HEAD", "POST", "OPTIONS", "CONNECT", "TRACE", "DELETE", "x" * 20, "get"])
        data = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        await net.exchange(data, has_body=method != "HEAD")


@attack
class Offers(Attack):
    """Upgrades, Host and Origin games, ids that would break out of a header, smuggled requests."""
    tasks = 8

    async def strike(self, net, rng, level):
        get = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
        name = word(rng, 9).encode()
        data = rng.choice([
            get + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
            get + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
            get + b"Upgrade: TLS/1.0, HTTP/1.1\r\n\r\n",
            get + b"Origin: http://" + name + b".example\r\nAccess-Control-Request-Method: POST\r\n\r\n",
            get + b"x-request-id: a%0d%0aset-cookie: " + name + b"\r\n\r\n",
            get + b"x-request-id: " + name * 1500 + b"\r\n\r\n",
            get + b"x-request-id: a\rset-cookie: " + name + b"\r\n\r\n",
            get + b"x-request-id: <script>" + name + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: " + name + b".example\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: localhost:99999999\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: localhost@evil\r\n\r\n",
            b"GET /health HTTP/9.9\r\nHost: a\r\n\r\n",
            b"GET /health HTTP/1.0\r\n\r\n",
            b"\r\n" * rng.randrange(1, 2000) + get + b"\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(rng.randrange(256) for _ in range(500)),
            bytes(rng.randrange(256) for _ in range(1 + int(level * 3000))),
            b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\n" + get,
        ])
        answer = await net.exchange(data)
        if answer and (b"\r\nset-cookie" in answer.head.lower() or b"\nset-cookie" in answer.head.lower()):
            net.fault(f"a header of the client's own: {answer.head!r}")


@attack
class Scrapes(Attack):
    """/metrics, /v1/models and /health in loops."""
    tasks = 8
    pause_s = 0.002

    async def strike(self, net, rng, level):
        await net.exchange(request_bytes(rng.choice(["/metrics", "/metrics", "/v1/models", "/health"]), method="GET"))


@attack
class Cancels(Attack):
    """Streams that begin and are dropped at the first token."""
    tasks = 8

    async def strike(self, net, rng, level):
        reader, writer = await connect(net.port)
        try:
            writer.write(request_bytes(CHAT, dumps(chat(n=rng.choice([1, 4]), max_tokens=1000, stream=True))))
            await reader.read(rng.choice([1, 100, 2000]))
            net.count("left")
        except OSError:
            net.count("closed")
        finally:
            close(writer)


@attack
class Everything(Attack):
    """Several of the others at once, none of them more often than by itself: what is meant for two tasks would take all
    rows of the engine with twelve, and then everybody waits, as for any long answers."""
    tasks = 12

    def prepare(self, rng, program):
        kinds = [kind for kind in ATTACKS if not issubclass(kind, (Bodies, Everything)) and kind.tasks <= 16]
        self.others = [kind() for kind in rng.sample(kinds, 5) + [rng.choice([HashFloodOfTemplate, SlowText])]]
        self.under_way = dict.fromkeys(self.others, 0)
        for other in self.others:
            other.prepare(rng, program)

    async def strike(self, net, rng, level):
        other = rng.choice([each for each in self.others if self.under_way[each] < each.tasks])
        self.under_way[other] += 1
        try:
            await other.strike(net, rng, level * 0.5)
        finally:
            self.under_way[other] -= 1
