"""`llmrt serve` with adapters on a real model: by flag and loaded while it runs, mixed in one batch, reloaded under one
name, more of them than slots, and what must be refused.

Environment: LLMRT_PROGRAM (the binary), LLMRT_TEST_MODEL (SmolLM2-135M-Instruct as GGUF), LLMRT_TEST_DEVICE (auto).
"""

import array
import concurrent.futures
import json
import pathlib
import random
import re
import signal
import struct
import sys
import tempfile
import time
import urllib.error
import urllib.request

from served_program import MODEL, ServedProgram

KEY, TEAM_KEY = "a-secret-of-some-length", "the-secret-of-another-team"
LAYERS, WIDTH, KV_WIDTH, FFN = 30, 576, 192, 1536
SHAPES = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.v_proj": (KV_WIDTH, WIDTH), "mlp.down_proj": (WIDTH, FFN)}
PROMPT = "Once upon a time there was a lighthouse keeper who"
failures = []


def check(what, is_true, found=""):
    print(("ok      " if is_true else "FAILED  ") + what + ("" if is_true else f": found {found}"), flush=True)
    if not is_true:
        failures.append(what)


def write_adapter(folder, seed, rank=4, strength=1.0, modules=tuple(SHAPES), width_error=0):
    """A PEFT folder of random numbers."""
    rng = random.Random(seed)
    tensors, data = {}, bytearray()
    for layer in range(LAYERS):
        for module in modules:
            rows, columns = SHAPES[module]
            for half, shape in (("A", (rank, columns + width_error)), ("B", (rows, rank))):
                deviation = (1 / columns if half == "A" else strength / rank) ** 0.5
                numbers = array.array("f", (rng.gauss(0, deviation) for _ in range(shape[0] * shape[1])))
                begin = len(data)
                data += numbers.tobytes()
                tensors[f"base_model.model.model.layers.{layer}.{module}.lora_{half}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none", "fan_in_fan_out": False,
        "target_modules": [module.split(".")[-1] for module in modules], "task_type": "CAUSAL_LM"}))


class Server(ServedProgram):
    def call(self, path, body=None, key=KEY):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}",
                                         None if body is None else json.dumps(body).encode(),
                                         {"Content-Type": "application/json", "Authorization": "Bearer " + key})
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                text = response.read().decode()
                return response.status, json.loads(text) if text.startswith("{") else text
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def complete(self, model, prompt=PROMPT, **fields):
        status, answer = self.call("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 16,
                                                       "temperature": 0, "logprobs": 1, **fields})
        if status != 200:
            return status, answer
        choice = answer["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"], answer["usage"]

    def metric(self, name):
        return float(re.search(rf"^llmrt_{re.escape(name)} (\S+)$", self.call("/metrics")[1], re.M).group(1))

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)


def load(server, name, path):
    return server.call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})


def run(place):
    inside, outside = place / "adapters", place / "elsewhere"
    for number, name in enumerate(("a", "b", "c")):
        write_adapter(inside / name, seed=number)
    write_adapter(inside / "wide", seed=9, rank=128, modules=("self_attn.v_proj",))
    write_adapter(inside / "wrong", seed=10, width_error=8)
    write_adapter(outside / "d", seed=11)
    (inside / "link").symlink_to(outside / "d")
    (place / "keys").write_text(f"ops {KEY}\nteam {TEAM_KEY} adapters=second,other\n")
    server = Server("--api-key-file", str(place / "keys"), "--adapter", f"first={inside / 'a'}", "--adapters-dir",
                    str(inside), "--adapter-slots", "2", "--metrics-compat", "vllm")

    base, first = server.complete("smol"), server.complete("first")
    check("an adapter by flag answers", len(first) == 3, first)
    check("and changes the answer", first[0] != base[0], first[0])
    off = server.complete("first", adapter_scale=0)
    check("of which nothing is left at scale 0", abs(off[1][0] - base[1][0]) < 0.02 and off[0][:8] == base[0][:8],
          (off, base))
    half = server.complete("first", adapter_scale=0.5)
    check("and something between at scale 0.5", abs(half[1][0] - base[1][0]) > 0.02, (half[1][0], base[1][0]))

    status, told = load(server, "second", "b")
    check("one is loaded while the server runs", status == 200 and told["parent"] == "smol" and told["rank"] == 4, told)
    status, told = server.call("/v1/models")
    cards = {card["id"]: card.get("parent") for card in told["data"]}
    check("lists name them with their parent", cards == {"smol": None, "first": "smol", "second": "smol"}, cards)
    status, card = server.call("/v1/models/second")
    check("so does the card of one", card.get("parent") == "smol", card)
    members = {"id", "object", "created", "owned_by", "state"}  # that the served document has of a model's card
    check("cards have what a model's has", all(members <= each.keys() for each in [*told["data"], card]), told)
    check("another adapter, another answer", server.complete("second")[0] not in (base[0], first[0]))

    asked = {"prompt": PROMPT, "max_tokens": 1}
    statuses = [server.call("/v1/completions", {"model": name, **asked}, TEAM_KEY)[0] for name in ("second", "first", "smol")]
    check("a key names its adapters alone, and the model", statuses == [200, 404, 200], statuses)

    # The same rows alone and among others, more adapters than slots.
    load(server, "third", "c")
    names = ["smol", "first", "second", "third"]
    prompts = [f"{PROMPT} {word}" for word in ("sang", "slept", "wrote")]
    asked = [(name, prompt) for prompt in prompts for name in names]
    alone = {pair: server.complete(*pair, batch_invariant=True)[:2] for pair in asked}
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        together = dict(zip(asked, pool.map(lambda pair: server.complete(*pair, batch_invariant=True)[:2], asked)))
    different = [pair for pair in asked if alone[pair] != together[pair]]
    check("a row among others is the row alone, bit for bit", not different, different)
    check("adapters made room for each other", server.metric("adapter_evictions_total") >= 2,
          server.metric("adapter_evictions_total"))
    check("none is held at the end", server.metric("adapter_rows") == 0)
    names = ["requests", "prompt_tokens", "generated_tokens"]
    counts = lambda: [server.metric(f'adapter_{name}_total{{adapter="first"}}') for name in names]
    before, usage = counts(), server.complete("first")[2]
    added = [after - count for after, count in zip(counts(), before)]
    check("requests and tokens are counted by name",
          added == [1, usage["prompt_tokens"], usage["completion_tokens"]], (added, usage))
    status, text = server.call("/metrics")
    info = re.search(r'^vllm:lora_requests_info\{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""\} (\d+)$',
                     text, re.M)
    check("vLLM's name for adapters tells the slots, who runs, who waits and the time",
          info and abs(int(info.group(1)) - time.time()) < 60, text[-300:])

    # Blocks of the prefix cache belong to one content.
    long_prompt = "In the harbour" + " they lived on the rocks" * 20
    cold = server.complete("second", long_prompt)
    check("a prompt is cold for an adapter that has not seen it",
          cold[2]["prompt_tokens_details"]["cached_tokens"] == 0, cold[2])
    warm = server.complete("second", long_prompt)
    check("and warm the second time", warm[2]["prompt_tokens_details"]["cached_tokens"] >= 32 and warm[0] == cold[0], warm)
    status, told = load(server, "second", "c")
    check("a name that is taken is not replaced", status == 400, told)
    check("it is unloaded", server.call("/v1/unload_lora_adapter", {"lora_name": "second"})[0] == 200)
    check("and gone", server.complete("second")[0] == 404, server.complete("second"))
    load(server, "second", "c")
    again = server.complete("second", long_prompt)
    check("other bytes under the same name find nothing of the old ones",
          again[2]["prompt_tokens_details"]["cached_tokens"] == 0 and again[0] != cold[0], again)
    same = server.complete("third", long_prompt)
    check("the same bytes under another name share blocks",
          same[2]["prompt_tokens_details"]["cached_tokens"] >= 32 and same[0] == again[0], same)

    # Chats, streams and drafts with an adapter.
    status, chat = server.call("/v1/chat/completions", {"model": "first", "max_tokens": 8, "temperature": 0, "messages": [
        {"role": "user", "content": "Say hello."}], "response_format": {"type": "json_object"}})
    check("a chat with a grammar answers", status == 200 and chat["model"], chat)
    drafted = server.complete("first", speculative={"mode": "ngram"}, batch_invariant=True)[:2]
    plain = server.complete("first", batch_invariant=True)[:2]
    check("drafts change nothing", drafted == plain, (drafted, plain))

    for name, body, expected in [
            ("what lies outside the folder", {"lora_name": "x", "lora_path": "../elsewhere/d"}, 404),
            ("an absolute path outside", {"lora_name": "x", "lora_path": str(outside / "d")}, 404),
            ("a link that leads outside", {"lora_name": "x", "lora_path": "link"}, 404),
            ("nothing", {"lora_name": "x", "lora_path": "nowhere"}, 404),
            ("the folder itself", {"lora_name": "x", "lora_path": "."}, 404),
            ("another shape", {"lora_name": "x", "lora_path": "wrong"}, 400),
            ("a rank above the most", {"lora_name": "x", "lora_path": "wide"}, 400),
            ("the model's own name", {"lora_name": "smol", "lora_path": "a"}, 400),
            ("no name", {"lora_path": "a"}, 400), ("no path", {"lora_name": "x"}, 400)]:
        status, told = server.call("/v1/load_lora_adapter", body)
        check(f"{name} is refused", status == expected and str(inside) not in json.dumps(told), (status, told))
    status, told = server.call("/v1/unload_lora_adapter", {"lora_name": "x"})
    check("nothing of it stays", status == 404, told)
    status, told = server.complete("smol", adapter_scale=2)[:2]
    check("a scale needs an adapter", status == 400, told)
    check("the server ends in order", server.stop() == 0, server.log[-3:])


if __name__ == "__main__":
    if not MODEL:
        print("skipped: expected LLMRT_TEST_MODEL")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        run(pathlib.Path(folder).resolve())
    sys.exit(bool(failures))
