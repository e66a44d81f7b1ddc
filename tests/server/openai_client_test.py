"""The official `openai` package against `llmrt serve` with a real model: what users of it will do.

Environment: LLMRT_PROGRAM (the binary), LLMRT_TEST_MODEL (SmolLM2-135M-Instruct as GGUF), LLMRT_TEST_DEVICE (auto).
"""

import concurrent.futures
import json
import math
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from typing import Literal

import openai
import pydantic
import pytest

from served_program import DEVICE, MODEL, PROGRAM, ServedProgram

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a city", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
MESSAGES = [{"role": "user", "content": "Name the capital of France."}]


class Server(ServedProgram):
    def __init__(self, *flags):
        super().__init__(*flags)
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none", max_retries=0,
                                    timeout=120)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
            return response.read().decode()

    def post(self, path, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def metric(self, name):
        return float(re.search(rf"^llmrt_{name} (\S+)$", self.get("/metrics"), re.M).group(1))

    def wait_idle(self):
        for _ in range(200):
            if self.metric("kv_blocks_free") == self.metric("kv_blocks") and self.metric("requests_running") == 0:
                return
            time.sleep(0.05)
        pytest.fail("blocks or requests are left: " + self.get("/metrics"))


@pytest.fixture(scope="module")
def trace_path(tmp_path_factory):
    return str(tmp_path_factory.mktemp("trace") / "trace.jsonl")


@pytest.fixture(scope="module")
def server(trace_path):
    running = Server("--sample-trace", trace_path)
    yield running
    running.wait_idle()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0
    with open(trace_path) as trace:  # every request of the tests above
        lines = [json.loads(line) for line in trace]
    requests = {line["request"] for line in lines if line["type"] == "request"}
    assert requests and requests == {line["request"] for line in lines if line["type"] == "end"}


def test_request_trace_has_a_line_for_each_choice(tmp_path):
    path = tmp_path / "trace.jsonl"
    running = Server("--request-trace", str(path), "--worker-id", "w7")
    streamed = list(running.client.chat.completions.create(model="smol", messages=MESSAGES, max_tokens=8, stream=True))
    whole = running.client.completions.create(model="smol", prompt="One, two,", max_tokens=4, n=2)
    running.wait_idle()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0

    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["request_id"] for record in records] == [streamed[0].id, whole.id, whole.id]
    first = records[0]
    assert first["model"] == "smol" and first["worker_id"] == "w7" and first["finish_reason"] in ("length", "eos")
    assert first["queue_ms"] + first["prefill_ms"] == pytest.approx(first["ttft_ms"], abs=0.01)
    assert first["client_tpot_ms"] is not None and first["stream_ms"] is not None
    assert [record["branch"] for record in records[1:]] in ([0, 1], [1, 0])
    for record in records[1:]:
        assert record["output_tokens"] == 4 and record["tpot_ms"] > 0 and record["client_tpot_ms"] is None

    told = subprocess.run([PROGRAM, "trace", "summarize", str(path)], capture_output=True, text=True)
    assert told.returncode == 0 and re.search(r"^dominant stage: (queue|prefill|decode)$", told.stdout, re.M), told
    told = subprocess.run([PROGRAM, "trace", "summarize", "--json", str(path)], capture_output=True, text=True)
    assert json.loads(told.stdout)["requests"] == 3
    with path.open("a") as file:
        file.write("{}\n")
    told = subprocess.run([PROGRAM, "trace", "summarize", str(path)], capture_output=True, text=True)
    assert told.returncode == 1 and "line 4: written_unix_ms: expected a whole number of at least 0" in told.stderr


def test_chat(server):
    answer = server.client.chat.completions.create(model="smol", messages=MESSAGES, temperature=0, max_tokens=16)
    choice = answer.choices[0]
    assert "Paris" in choice.message.content
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens <= 16


def test_a_stream_says_the_same_as_a_whole_answer(server):
    arguments = dict(model="smol", messages=MESSAGES, temperature=0, max_tokens=24)
    whole = server.client.chat.completions.create(**arguments)
    chunks = list(server.client.chat.completions.create(**arguments, stream=True,
                                                        stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices == []
    usage = chunks[-1].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens  # the same prompt a second time
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    reasons = [chunk.choices[0].finish_reason for chunk in chunks[:-1]]
    assert reasons[-1] == whole.choices[0].finish_reason and set(reasons[:-1]) == {None}


def test_seeds(server):
    def text(seed):
        return server.client.completions.create(model="smol", prompt="Once upon a time", max_tokens=12, temperature=1,
                                                seed=seed).choices[0].text
    assert text(1) == text(1)
    assert len({text(seed) for seed in range(4)}) > 1


def test_choices(server):
    arguments = dict(model="smol", prompt="Once upon a time", max_tokens=12, temperature=1, seed=3)
    alone = server.client.completions.create(**arguments)
    answer = server.client.completions.create(**arguments, n=4)
    texts = [choice.text for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len(set(texts)) > 1 and texts[0] == alone.choices[0].text
    assert answer.usage.prompt_tokens == alone.usage.prompt_tokens
    assert answer.usage.completion_tokens <= 48
    streamed = [""] * 4
    for chunk in server.client.completions.create(**arguments, n=4, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == texts
    chat = server.client.chat.completions.create(model="smol", messages=MESSAGES, temperature=0, max_tokens=8, n=3)
    assert len({choice.message.content for choice in chat.choices}) == 1 and len(chat.choices) == 3


def test_best_of(server):
    arguments = dict(model="smol", prompt="Once upon a time", max_tokens=8, temperature=1, seed=3, logprobs=0)
    every = server.client.completions.create(**arguments, n=4).choices
    means = [sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs) for choice in every]
    best = server.client.completions.create(**arguments, n=2, best_of=4)
    in_order = sorted(range(4), key=lambda i: -means[i])
    assert [choice.text for choice in best.choices] == [every[i].text for i in in_order[:2]]
    assert best.usage.completion_tokens > 16
    with pytest.raises(openai.BadRequestError):
        server.client.completions.create(**arguments, best_of=4, stream=True)


def test_beam_search(server):
    arguments = dict(model="smol", prompt="The capital of France is", max_tokens=6)
    greedy = server.client.completions.create(**arguments, temperature=0).choices[0].text
    one = server.client.completions.create(**arguments, extra_body={"use_beam_search": True})
    assert [choice.text for choice in one.choices] == [greedy]  # a single beam takes the best token each time
    four = server.client.completions.create(**arguments, n=3, best_of=4, extra_body={"use_beam_search": True})
    texts = [choice.text for choice in four.choices]
    assert len(set(texts)) == 3 and four.usage.completion_tokens <= 24

    def logprob(text):
        scored = server.client.completions.create(model="smol", prompt=arguments["prompt"] + text, max_tokens=0,
                                                  echo=True, logprobs=0).choices[0].logprobs
        begin = sum(offset < len(arguments["prompt"]) for offset in scored.text_offset)
        return sum(scored.token_logprobs[begin:])
    assert logprob(texts[0]) >= logprob(greedy) - 0.1  # the best of four beams is not behind the greedy text
    with pytest.raises(openai.BadRequestError):
        server.client.completions.create(**arguments, stop="x", extra_body={"use_beam_search": True})


def test_logprobs_concatenate_to_the_text(server):
    answer = server.client.chat.completions.create(model="smol", messages=MESSAGES, temperature=0, max_tokens=8,
                                                   logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    spelled = b"".join(bytes(token.bytes) for token in content).decode()
    assert spelled == answer.choices[0].message.content + "<|im_end|>"  # special tokens are spelled in the lists alone
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert math.isclose(token.top_logprobs[0].logprob, token.logprob, abs_tol=1e-5)  # greedy takes the best


def test_prompt_logprobs(server):
    answer = server.client.completions.create(model="smol", prompt="The capital of France is Paris", max_tokens=0,
                                              echo=True, logprobs=1)
    choice = answer.choices[0]
    assert choice.text == "The capital of France is Paris"
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value < 0 for value in choice.logprobs.token_logprobs[1:])
    assert choice.logprobs.token_logprobs[-1] > -5  # Paris is likely here
    assert answer.usage.completion_tokens == 0


def test_token_ids_and_text_are_the_same_prompt(server):
    prompt = "def add(a, b):\n    return"
    ids = server.post("/tokenize", {"prompt": prompt})[1]["tokens"]
    assert server.post("/detokenize", {"tokens": ids})[1]["prompt"] == prompt
    arguments = dict(model="smol", temperature=0, max_tokens=8, extra_body={"return_token_ids": True})
    by_text = server.client.completions.create(prompt=prompt, **arguments).choices[0]
    by_ids = server.client.completions.create(prompt=ids, **arguments).choices[0]
    assert by_text.text == by_ids.text
    assert by_text.prompt_token_ids == ids and by_text.token_ids == by_ids.token_ids


def test_stop_strings_end_the_text(server):
    arguments = dict(model="smol", prompt="1 2 3 4 5 6", temperature=0, max_tokens=30)
    free = server.client.completions.create(**arguments).choices[0].text
    stop = free[7:10]
    stopped = server.client.completions.create(**arguments, stop=stop).choices[0]
    assert stopped.text == free[:free.index(stop)] and stopped.finish_reason == "stop"


def test_min_tokens_and_ignore_eos(server):
    arguments = dict(model="smol", messages=MESSAGES, temperature=0, max_tokens=40)
    assert server.client.chat.completions.create(**arguments).choices[0].finish_reason == "stop"
    for extra in ({"min_tokens": 40}, {"ignore_eos": True}):
        answer = server.client.chat.completions.create(**arguments, extra_body=extra)
        assert answer.usage.completion_tokens == 40 and answer.choices[0].finish_reason == "length"


def test_logit_bias(server):
    ids = server.post("/tokenize", {"prompt": " banana"})[1]["tokens"]
    answer = server.client.completions.create(model="smol", prompt="I like", max_tokens=3, temperature=0,
                                              logit_bias={str(ids[0]): 100}, extra_body={"return_token_ids": True})
    assert answer.choices[0].token_ids == [ids[0]] * 3


def test_bad_words(server):
    arguments = dict(model="smol", prompt="The capital of France is", max_tokens=8, temperature=0)
    assert "Paris" in server.client.completions.create(**arguments).choices[0].text
    answer = server.client.completions.create(**arguments, extra_body={"bad_words": ["Paris"]}).choices[0].text
    assert answer and "Paris" not in answer
    ids = server.post("/tokenize", {"prompt": " Paris"})[1]["tokens"]
    answer = server.client.completions.create(**arguments, extra_body={"bad_words": [ids]},
                                              logit_bias={str(ids[-1]): 100} if len(ids) == 1 else None)
    assert "Paris" not in answer.choices[0].text


def test_no_repeated_ngrams(server):
    arguments = dict(model="smol", prompt="one two three one two three one two", max_tokens=40, temperature=0)

    def repeats(extra):
        extra |= {"return_token_ids": True, "ignore_eos": True}
        choice = server.client.completions.create(**arguments, extra_body=extra).choices[0]
        ids = choice.prompt_token_ids + choice.token_ids
        grams = [tuple(ids[i:i + 3]) for i in range(len(choice.prompt_token_ids) - 2, len(ids) - 2)]
        return [gram for at, gram in enumerate(grams, len(choice.prompt_token_ids) - 2)
                if gram in {tuple(ids[i:i + 3]) for i in range(at)}]

    assert repeats({})
    assert not repeats({"no_repeat_ngram_size": 3})


def test_processed_logprobs(server):
    arguments = dict(model="smol", prompt="The", max_tokens=6, temperature=0.7, top_p=0.8, seed=5, logprobs=20)
    raw = server.client.completions.create(**arguments).choices[0]
    processed = server.client.completions.create(**arguments, extra_body={"logprobs_mode": "processed"}).choices[0]
    assert processed.text == raw.text
    for raw_top, top, chosen in zip(raw.logprobs.top_logprobs, processed.logprobs.top_logprobs,
                                    processed.logprobs.token_logprobs):
        assert chosen in top.values()
        assert sum(map(math.exp, top.values())) <= 1 + 1e-4
        if len(top) < 20:  # all that may be drawn
            assert sum(map(math.exp, top.values())) == pytest.approx(1, abs=1e-3)
        # The order is the raw one, and sharper: (raw_a - raw_b) / T.
        (a, raw_a), (b, raw_b) = sorted(raw_top.items(), key=lambda item: -item[1])[:2]
        if b in top:
            assert top[a] - top[b] == pytest.approx((raw_a - raw_b) / 0.7, abs=2e-3)


def test_request_ids(server):
    answers = [server.client.chat.completions.create(model="smol", messages=MESSAGES, max_tokens=1) for _ in range(2)]
    ids = [answer._request_id for answer in answers]
    assert all(ids) and ids[0] != ids[1] and answers[0].id != answers[1].id
    raw = server.client.models.with_raw_response.list(extra_headers={"x-request-id": "mine-7"})
    assert raw.headers["x-request-id"] == "mine-7" and raw.headers["date"].endswith(" GMT")
    with pytest.raises(openai.APIStatusError) as caught:
        server.client.chat.completions.create(model="other", messages=MESSAGES)
    assert caught.value.request_id


def test_models(server):
    assert [model.id for model in server.client.models.list()] == ["smol"]
    assert server.client.models.retrieve("smol").max_model_len > 0
    with pytest.raises(openai.NotFoundError):
        server.client.models.retrieve("other")


@pytest.mark.parametrize("arguments, code", [
    ({"n": 129}, "invalid_argument"), ({"temperature": -1}, "invalid_argument"), ({"extra_body": {"temprature": 1}}, "unknown_field"),
    ({"model": "other"}, "model_not_found"), ({"tools": TOOLS}, "unsupported"),
    ({"tools": TOOLS, "tool_choice": "required"}, "unsupported"),
    ({"extra_body": {"regex": "a"}}, "unsupported"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"not": {"uniqueItems": True}}}}},
     "unsupported_schema"),
    ({"extra_body": {"repeat_penalty": 1.1}}, "unsupported"), ({"reasoning_effort": 5}, "invalid_argument"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]}, "unsupported"),
])
def test_errors(server, arguments, code):
    with pytest.raises(openai.APIStatusError) as caught:
        server.client.chat.completions.create(**{"model": "smol", "messages": MESSAGES, **arguments})
    assert caught.value.status_code == (404 if code == "model_not_found" else 400)
    assert caught.value.code == code


# ---- structure and tools ----

class Capital(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    country: Literal["France", "Spain", "Italy"]
    city: str = pydantic.Field(max_length=20)
    inhabitants: int = pydantic.Field(ge=0, le=99_999_999)
    rivers: list[Literal["Seine", "Tiber", "Manzanares"]] = pydantic.Field(max_length=2)


def test_parsed_answers(server):
    for temperature in (0, 1.5):
        answer = server.client.chat.completions.parse(
            model="smol", messages=MESSAGES, temperature=temperature, max_tokens=200, response_format=Capital)
        assert answer.choices[0].finish_reason == "stop"
        assert isinstance(answer.choices[0].message.parsed, Capital)
    with server.client.chat.completions.stream(
            model="smol", messages=MESSAGES, max_tokens=200, response_format=Capital) as stream:
        kinds = {event.type for event in stream}
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Capital)
    assert {"content.delta", "content.done", "chunk"} <= kinds


def test_many_structures_at_once(server):
    """Each its own schema, batched, n > 1: as alone, and all valid."""
    def ask(i):
        schema = {"type": "object", "properties": {f"key{i}": {"type": "integer", "minimum": i, "maximum": i + 9},
                                                   "word": {"type": "string", "pattern": "^[a-z]{3,8}$"}},
                  "required": [f"key{i}", "word"], "additionalProperties": False}
        answer = server.client.chat.completions.create(
            model="smol", messages=MESSAGES, temperature=1.2, seed=i, n=2, max_tokens=120,
            response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
        return [choice.message.content for choice in answer.choices]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(8)))
    for i, answers in enumerate(together):
        for answer in map(json.loads, answers):
            assert i <= answer[f"key{i}"] <= i + 9 and re.fullmatch("[a-z]{3,8}", answer["word"])
    assert ask(3) == together[3]


@pytest.fixture(scope="module")
def agent():
    running = Server("--chat-format", "hermes")
    yield running
    running.process.send_signal(signal.SIGINT)
    running.process.wait(timeout=60)


class Weather(pydantic.BaseModel):
    """The weather of a city."""
    city: Literal["Paris", "Rome"]
    days: int = pydantic.Field(ge=1, le=9)


def test_required_calls(agent):
    tools = [openai.pydantic_function_tool(Weather)]
    answer = agent.client.chat.completions.parse(
        model="smol", messages=MESSAGES, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=100)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and len(choice.message.tool_calls) == 1
    assert isinstance(choice.message.tool_calls[0].function.parsed_arguments, Weather)
    with agent.client.chat.completions.stream(
            model="smol", messages=MESSAGES, tools=tools, max_tokens=100,
            tool_choice={"type": "function", "function": {"name": "Weather"}}) as stream:
        kinds = [event.type for event in stream]
        last = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds and "tool_calls.function.arguments.done" in kinds
    assert last.finish_reason == "stop" and isinstance(last.message.tool_calls[0].function.parsed_arguments, Weather)


def test_budgets_of_thoughts_and_warnings(agent):
    thought = MESSAGES + [{"role": "assistant", "content": "<think>\nLet me"}]
    arguments = dict(model="smol", messages=thought, max_tokens=40, n=2, seed=1)
    extra = {"continue_final_message": True, "thinking_token_budget": 5, "structured_outputs": {"regex": "[0-9]{3}"}}
    answer = agent.client.chat.completions.create(**arguments, extra_body=extra)
    for choice in answer.choices:
        assert choice.message.reasoning_content and re.fullmatch("[0-9]{3}", choice.message.content)
    end = len(agent.post("/tokenize", {"prompt": "</think>", "add_special_tokens": False})[1]["tokens"])
    assert answer.usage.completion_tokens_details.reasoning_tokens <= 2 * (5 + end)
    schema = {"type": "object", "properties": {"a": {"type": "boolean", "nullable": True}}, "required": ["a"],
              "additionalProperties": False}
    arguments = dict(model="smol", messages=MESSAGES, max_tokens=40, temperature=0, response_format={
        "type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    whole = agent.client.chat.completions.create(**arguments)
    assert [warning["param"] for warning in whole.warnings] == ["response_format"]
    *others, last = agent.client.chat.completions.create(**arguments, stream=True)
    assert last.warnings == whole.warnings and not any(hasattr(chunk, "warnings") for chunk in others)


def test_a_loop_of_calls(agent):
    messages = list(MESSAGES)
    for _ in range(3):
        message = agent.client.chat.completions.create(
            model="smol", messages=messages, tools=[openai.pydantic_function_tool(Weather)], tool_choice="required",
            parallel_tool_calls=False, max_tokens=100).choices[0].message
        call = message.tool_calls[0]
        assert call.function.name == "Weather" and Weather(**json.loads(call.function.arguments))
        messages += [message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    none = agent.client.chat.completions.create(model="smol", messages=messages, tools=TOOLS, tool_choice="none",
                                                max_tokens=20).choices[0]
    assert not none.message.tool_calls and none.finish_reason in ("stop", "length")


def test_an_agents_history(server):
    arguments = dict(model="smol", temperature=0, max_tokens=8)
    first = server.client.chat.completions.create(messages=MESSAGES, **arguments).choices[0].message
    history = MESSAGES + [
        first, {"role": "user", "content": "And the weather?"},
        {"role": "assistant", "content": None, "reasoning_content": "I look it up.", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "sunny"},
                                                               {"type": "image_url", "image_url": {"url": "data:,"}}]}]
    for tools in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": []}):
        answer = server.client.chat.completions.create(messages=history, **arguments, **tools)
        assert answer.choices[0].finish_reason in ("stop", "length")


def test_what_other_clients_send(server):
    arguments = dict(model="smol", messages=MESSAGES, temperature=0, max_tokens=4)
    plain = server.client.chat.completions.create(**arguments).choices[0].message.content
    for extra in ({"reasoning_effort": "low", "verbosity": "low", "service_tier": "scale"},
                  {"prediction": {"type": "content", "content": "x"}, "stream_options": {"include_usage": True}},
                  {"extra_body": {"include_reasoning": True, "request_id": "1", "vllm_xargs": None, "mm_payload": None}},
                  {"extra_body": {"repeat_penalty": 1.0, "cache_prompt": True, "keep_alive": "5m", "options": {}}},
                  {"extra_body": {"no_stop_trim": False, "separate_reasoning": True, "stream_reasoning": True,
                                  "return_hidden_states": False}},
                  {"top_p": 0}, {"stop": ""}, {"stop": [f"@{i}@" for i in range(64)]}):
        answer = server.client.chat.completions.create(**arguments, **extra)
        assert answer.choices[0].message.content == plain
    whole = server.client.chat.completions.create(**{**arguments, "max_tokens": -1}).choices[0]
    assert whole.finish_reason == "stop" and whole.message.content.startswith(plain)


def test_a_stop_string_that_is_a_special_token(server):
    answer = server.client.completions.create(model="smol", prompt="x", max_tokens=4, temperature=0, stop="<|im_start|>",
                                              logit_bias={"1": 100})
    assert answer.choices[0].finish_reason == "stop" and answer.usage.completion_tokens == 1


def test_headers_say_what_was_ignored_or_cut(server):
    raw = server.client.chat.completions.with_raw_response.create(model="smol", messages=MESSAGES, max_tokens=2,
                                                                  extra_body={"nobody_knows": 1})
    assert raw.headers["x-llmrt-ignored"] == "nobody_knows" and "x-llmrt-max-tokens" not in raw.headers
    used = raw.parse().usage.prompt_tokens
    # A stream, which is closed at once: the answer itself would take as long as the context.
    raw = server.client.chat.completions.with_raw_response.create(model="smol", messages=MESSAGES, stream=True,
                                                                  max_tokens=10_000_000)
    raw.http_response.close()
    assert int(raw.headers["x-llmrt-max-tokens"]) == json.loads(server.get("/v1/models"))["data"][0]["max_model_len"] - used


def test_hostile_bodies_leave_the_server_alive(server):
    assert server.post("/v1/completions", b"{")[0] == 400
    assert server.post("/v1/completions", b'{"prompt": "\xff\xfe"}')[0] == 400
    assert server.post("/v1/completions", {"prompt": ""})[0] == 400
    assert server.post("/v1/completions", b"[" * 100000)[0] == 400
    long = server.post("/v1/completions", {"prompt": "word " * 20000})
    assert long[0] == 400 and long[1]["error"]["code"] == "context_length_exceeded"
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # a TLS hello
        raw.shutdown(socket.SHUT_WR)
        raw.recv(1000)
    assert json.loads(server.get("/health")) == {"status": "ok", "saturated": []}


def test_streams_at_once_with_disconnects(server):
    """Half of the clients go away in the middle; the others get what they would have got alone."""
    arguments = dict(model="smol", temperature=0, max_tokens=16, extra_body={"return_token_ids": True})
    prompts = [f"The number {i} is" for i in range(8)]
    results = {}

    def run(i):
        stream = server.client.completions.create(prompt=prompts[i], stream=True, **arguments)
        text = ""
        for count, chunk in enumerate(stream):
            text += chunk.choices[0].text
            if i % 2 == 0 and count == 3:
                stream.close()
                return
        results[i] = text

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [1, 3, 5, 7]
    server.wait_idle()


def test_a_sample_trace_draws_again(tmp_path):
    path = tmp_path / "trace.jsonl"
    subprocess.run([PROGRAM, "complete", MODEL, "Once upon a time", "--device", DEVICE, "--context", "256",
                    "--max-tokens", "12", "--seed", "3", "--temperature", "0.9", "--repetition-penalty", "1.2",
                    "--sample-trace", path], check=True, capture_output=True, timeout=120)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["type"] for line in lines] == ["header", "request"] + ["token"] * 12 + ["end"]
    assert lines[1]["processors"] == ["penalties", "temperature"] and lines[1]["method"] == "sampled"
    assert all(line["support"] > 1 and line["margin"] > 0 for line in lines[2:-1])

    def replay(*flags):
        run = subprocess.run([PROGRAM, "replay", path, "--device", DEVICE, "--context", "256", "--json", *flags],
                             capture_output=True, text=True, timeout=120)
        return run.returncode, run.stdout and json.loads(run.stdout), run.stderr

    code, branch, _ = replay("--no-overlap", "--chunk-tokens", "2")
    assert code == 0 and branch["tokens"] == 12 and branch["diverged"] == 0

    lines[6]["token"] += 1
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, branch, _ = replay()
    assert code == 1 and branch["tokens"] == 12
    assert branch["first"]["position"] == 4 and branch["first"]["drawn"] == lines[6]["token"] - 1
    assert branch["first"]["recorded_margin"] == pytest.approx(branch["first"]["drawn_margin"], rel=1e-4)

    lines[0]["model_digest"] = "0" * 64
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, _, error = replay()
    assert code == 2 and "another model" in error


def test_a_sample_trace_of_structured_answers_draws_again(tmp_path):
    path = tmp_path / "trace.jsonl"
    running = Server("--sample-trace", str(path), "--chat-format", "hermes")
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}},
              "required": ["city", "days"], "additionalProperties": False}
    arguments = dict(model="smol", messages=MESSAGES, temperature=1, seed=5, max_tokens=40)
    running.client.chat.completions.create(**arguments, n=2, response_format={
        "type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}})
    running.client.chat.completions.create(**arguments, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    running.client.chat.completions.create(**arguments, extra_body={"thinking_token_budget": 4})
    running.client.completions.create(model="smol", prompt="One", max_tokens=12, extra_body={"guided_regex": "[a-z ]{20,}"})
    running.wait_idle()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(30) == 0

    def replay():
        run = subprocess.run([PROGRAM, "replay", path, "--device", DEVICE, "--context", "512", "--json"],
                             capture_output=True, text=True, timeout=120)
        return run.returncode, [json.loads(line) for line in run.stdout.splitlines()], run.stderr

    code, branches, errors = replay()
    assert code == 0 and len(branches) == 5 and not any(branch["error"] for branch in branches), (branches, errors)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    masked = {line["request"] for line in lines if line["type"] == "token" and "mask" in line}
    assert len(masked) >= 4  # a budget masks nothing where the model does not think

    told = next(line for line in lines if line["type"] == "request")["grammar"]
    told["content"]["schema"]["properties"]["city"]["maxLength"] = 3
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, branches, _ = replay()
    assert code == 1 and branches[0]["other_masks"] > 0
    told["content"]["dialect"] = "latin"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, branches, errors = replay()
    assert code == 1 and "content.dialect: expected one of json_object" in errors, errors


def test_a_port_in_use_and_a_missing_device_and_a_bad_file():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        run = subprocess.run([PROGRAM, "serve", MODEL, "--port", port, "--device", DEVICE], capture_output=True, text=True,
                             timeout=120)
        assert run.returncode == 1 and f"cannot listen: 127.0.0.1:{port}" in run.stderr
    run = subprocess.run([PROGRAM, "serve", MODEL, "--device", "cuda:99", "--port", "0"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 4 and "cuda:99" in run.stderr
    run = subprocess.run([PROGRAM, "serve", __file__, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 3 and "error: " in run.stderr
