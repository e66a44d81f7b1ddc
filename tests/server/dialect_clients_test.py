"""The official `anthropic` and `ollama` packages: loops of tool calls with a model that says a script, conversations as
Claude Code sends them, and a real model.

    dialect_clients_test.py PACED_SERVER      with scripts (scripted_server.py)
    dialect_clients_test.py --model           the program LLMRT_PROGRAM with LLMRT_TEST_MODEL (SmolLM2-135M-Instruct)

A package that is missing is a counted skip.
"""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import traceback
import urllib.error
import urllib.request

from scripted_clients_test import CITIES, LAST, PARAMETERS, QUESTION, WEATHER
from scripted_server import TEMPLATE, call, passes

TOOL = {"name": "weather", "description": "of a city", "input_schema": PARAMETERS}
BLOCK_TOKENS = 16


def anthropic_client(base):
    import anthropic
    return anthropic.Anthropic(base_url=base, api_key="x", max_retries=0)


def ollama_client(base):
    import ollama
    return ollama.Client(host=base)


def prompt_tokens(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


# ---- scripts -------------------------------------------------------------------------------------------------------

def messages_loop(ask):
    """The agent's loop: what the answer holds goes back as it is."""
    messages, asked = [QUESTION], []
    for _ in range(8):
        answer = ask(messages)
        calls = [block for block in answer.content if block.type == "tool_use"]
        assert answer.stop_reason == ("tool_use" if calls else "end_turn"), answer
        if not calls:
            assert [block.text for block in answer.content if block.type == "text"] == [LAST], answer
            break
        messages.append({"role": "assistant", "content": answer.content})
        asked += [made.input["city"] for made in calls]
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": made.id, "content": WEATHER[made.input["city"]]} for made in calls]})
    assert asked == CITIES, asked


def with_anthropic(base):
    client = anthropic_client(base)

    def whole(messages, **options):
        return client.messages.create(model="paced", max_tokens=400, messages=messages, **options)

    def streamed(messages, **options):
        with client.messages.stream(model="paced", max_tokens=400, messages=messages, **options) as events:
            kinds = [event.type for event in events]
            answer = events.get_final_message()
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds
        return answer

    for ask in (whole, streamed):
        for strict in ({}, {"strict": True}):
            for more in ({}, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
                         {"thinking": {"type": "adaptive"}}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}):
                messages_loop(lambda messages: ask(messages, tools=[{**TOOL, **strict}], **more))
    counted = client.messages.count_tokens(model="paced", messages=[QUESTION], tools=[TOOL], thinking={"type": "adaptive"})
    answer = whole([QUESTION], tools=[TOOL], thinking={"type": "adaptive"})
    assert counted.input_tokens == prompt_tokens(answer.usage), (counted, answer.usage)


def with_thoughts(base):
    """Thinking blocks come apart, signed, and go back as they came."""
    client = anthropic_client(base)
    for stream in (False, True):
        def ask(messages):
            arguments = dict(model="paced", max_tokens=400, messages=messages, tools=[TOOL], thinking={"type": "adaptive"})
            if not stream:
                answer = client.messages.create(**arguments)
            else:
                with client.messages.stream(**arguments) as events:
                    answer = events.get_final_message()
            thought = answer.content[0]
            assert thought.type == "thinking" and thought.thinking == "In turn." and len(thought.signature) == 64, answer
            return answer
        messages_loop(ask)


def with_broken_calls(base):
    """A call that is no JSON is a text in a whole answer."""
    client = anthropic_client(base)
    answer = client.messages.create(model="paced", messages=[QUESTION], tools=[TOOL], max_tokens=400)
    assert answer.stop_reason == "end_turn" and answer.content[0].type == "text" and "Rome}" in answer.content[0].text, answer


def with_cut_calls(base):
    """Wherever the limit cuts a call, the client reads what is there."""
    client = anthropic_client(base)
    kinds = set()
    for limit in range(1, 40, 3):
        arguments = dict(model="paced", messages=[QUESTION], tools=[TOOL], max_tokens=limit)
        with client.messages.stream(**arguments) as events:
            cut = events.get_final_message()
        assert cut.stop_reason == "max_tokens" and len(cut.content) == 1, cut
        assert client.messages.create(**arguments).stop_reason == "max_tokens"
        kinds.add(cut.content[0].type)
    assert kinds == {"text", "tool_use"}, kinds


class ClaudeCode:
    """Requests in the public shape of Claude Code's: a header line that is new in every call, betas, cache_control on
    blocks, context_management, adaptive thinking, system messages between the others."""

    def __init__(self, base):
        self.client = anthropic_client(base)
        self.number = 0
        self.messages = [{"role": "user", "content": [
            {"type": "text", "text": "<system-reminder>\nToday is Monday.\n</system-reminder>"}, {"type": "text", "text": QUESTION["content"]}]}]

    def ask(self, **more):
        self.number += 1
        for message in self.messages:
            for block in message["content"] if isinstance(message["content"], list) else []:
                block.pop("cache_control", None)
        last = self.messages[-1]["content"]
        if isinstance(last, list):
            last[-1]["cache_control"] = {"type": "ephemeral"}
        answer = self.client.beta.messages.create(
            model="paced", max_tokens=400, messages=self.messages, thinking={"type": "adaptive"},
            betas=["claude-code-20250219", "interleaved-thinking-2025-05-14", "mid-conversation-system-2026-04-07"],
            system=[{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.154; cc_entrypoint=cli; cch={self.number:05x};"},
                    {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "Answer in few words. " * 8, "cache_control": {"type": "ephemeral"}}],
            tools=[TOOL, {"name": "read", "description": "a file", "input_schema": {"type": "object", "properties": {
                "path": {"type": "string"}}}, "cache_control": {"type": "ephemeral"}},
                {"type": "web_search_20250305", "name": "web_search"}],
            metadata={"user_id": json.dumps({"device": "a/b c", "session": "ü"})},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            output_config={"effort": "medium"}, **more)
        blocks = [block.to_dict() for block in answer.content]
        self.messages.append({"role": "assistant", "content": blocks})
        results = [{"type": "tool_result", "tool_use_id": block["id"], "content": [{"type": "text", "text": WEATHER[block["input"]["city"]]}]}
                   for block in blocks if block["type"] == "tool_use"]
        if results:
            self.messages.append({"role": "user", "content": results})
            self.messages.append({"role": "system", "content": f"Tokens left: {9000 - 7 * self.number}"})
        return answer


def with_claude_code(base):
    agent = ClaudeCode(base)
    before = 0
    for number in range(4):
        usage = agent.ask().usage
        if before:
            assert usage.cache_read_input_tokens >= before - BLOCK_TOKENS, (number, before, usage)
        before = prompt_tokens(usage)


def with_kept_headers(base):
    """The other way round: with the line in the prompt nothing behind it is found again."""
    agent = ClaudeCode(base)
    first = prompt_tokens(agent.ask().usage)
    usage = agent.ask().usage
    assert usage.cache_read_input_tokens < 0.75 * first, (first, usage)  # the tools, which stand before it


def with_ollama(base):
    client = ollama_client(base)
    tool = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": PARAMETERS}}
    for stream in (False, True):
        messages, asked = [QUESTION], []
        for _ in range(8):
            answer = client.chat(model="paced:latest", messages=messages, tools=[tool], stream=stream)
            if stream:
                parts = list(answer)
                assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
                content = "".join(part.message.content or "" for part in parts)
                calls = [made for part in parts for made in part.message.tool_calls or []]
                answer = parts[-1]
            else:
                content, calls = answer.message.content, answer.message.tool_calls or []
            assert answer.done_reason == "stop" and answer.eval_count > 0 and answer.total_duration > 0, answer
            if not calls:
                assert content == LAST, content
                break
            messages.append({"role": "assistant", "content": content, "tool_calls": [made.model_dump() for made in calls]})
            for made in calls:
                asked.append(made.function.arguments["city"])
                messages.append({"role": "tool", "content": WEATHER[asked[-1]], "tool_name": made.function.name})
        assert asked == CITIES, asked
    shown = client.show("paced")
    assert "tools" in shown.capabilities and any(name.endswith(".context_length") for name in shown.modelinfo), shown


def with_ollama_thoughts(base):
    client = ollama_client(base)
    whole = client.chat(model="paced", messages=[QUESTION], think=True)
    parts = list(client.chat(model="paced", messages=[QUESTION], think=True, stream=True))
    assert whole.message.thinking == "In turn." == "".join(part.message.thinking or "" for part in parts), whole
    assert whole.message.content == LAST == "".join(part.message.content or "" for part in parts), whole
    said = client.generate(model="paced", prompt=QUESTION["content"], think=True)
    assert said.thinking == "In turn." and said.response == LAST, said


# A template that shows a system message in the first place alone.
FIRST_SYSTEM = "{%- for message in messages %}{% if message.role == 'system' and not loop.first %}" \
               "{{ raise_exception('System message must be at the beginning.') }}{% endif %}{% endfor %}" + TEMPLATE
CALLS = [call("weather", city=city) for city in CITIES]
THOUGHT = "<think>\nIn turn.\n</think>\n\n"
SCRIPTS = [
    ("anthropic", with_anthropic, CALLS + [LAST], {}),
    ("anthropic", with_thoughts, [THOUGHT + text for text in CALLS + [LAST]], {}),
    ("anthropic", with_broken_calls, ['<tool_call>\n{"name": "weather", "arguments": {"city": Rome}}\n</tool_call>'], {}),
    ("anthropic", with_cut_calls, [CALLS[0]], {}),
    ("anthropic", with_claude_code, CALLS + [LAST], {}),
    ("anthropic", with_claude_code, CALLS + [LAST], {"template": FIRST_SYSTEM}),
    ("anthropic", with_kept_headers, CALLS + [LAST], {"flags": ["--keep-client-headers"]}),
    ("ollama", with_ollama, CALLS + [LAST], {}),
    ("ollama", with_ollama_thoughts, [THOUGHT + LAST], {}),
]


def scripted():
    failed = skipped = 0
    for name, run, answers, options in SCRIPTS:
        if not importlib.util.find_spec(name):
            skipped += 1
            print(f"SKIP {name}, {run.__name__}: not installed")
        else:
            failed += not passes(sys.argv[1], f"{name}, {run.__name__}", lambda url, run=run: run(url.removesuffix("/v1")), answers,
                                 **options)
    print(f"{failed} failed, {skipped} skipped")
    return 77 if skipped == len(SCRIPTS) else int(failed > 0)


# ---- a real model --------------------------------------------------------------------------------------------------

CAPITAL = [{"role": "user", "content": "Name the capital of France."}]


def refusal(run):
    try:
        run()
    except Exception as error:
        return error
    raise AssertionError("expected a refusal")


def real_anthropic(base):
    client = anthropic_client(base)
    arguments = dict(model="smol", messages=CAPITAL, max_tokens=24, extra_body={"temperature": 0})
    whole = client.messages.create(**arguments)
    assert "Paris" in whole.content[0].text, whole
    with client.messages.stream(**arguments) as events:
        streamed = events.get_final_message()
    assert streamed.content[0].text == whole.content[0].text and streamed.stop_reason == whole.stop_reason
    assert prompt_tokens(streamed.usage) == prompt_tokens(whole.usage)
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model="smol", messages=CAPITAL)
    assert counted.input_tokens == prompt_tokens(whole.usage), (counted, whole.usage)
    beta = client.beta.messages.count_tokens(model="smol", messages=CAPITAL, betas=["nobody-knows-2099-01-01"])
    assert beta.input_tokens == counted.input_tokens

    stopped = client.messages.create(**{**arguments, "stop_sequences": ["Paris"]})
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "Paris", stopped
    prefilled = client.messages.create(**{**arguments, "messages": CAPITAL + [{"role": "assistant", "content": "The capital of France is"}]})
    assert prefilled.content[0].text.lstrip().startswith("Paris"), prefilled
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"], "additionalProperties": False}
    held = client.messages.create(**{**arguments, "max_tokens": 60}, output_config={"format": {"type": "json_schema", "schema": schema}})
    assert isinstance(json.loads(held.content[0].text)["city"], str), held

    import anthropic
    error = refusal(lambda: client.messages.create(**{**arguments, "messages": [{"role": "user", "content": "word " * 9000}]}))
    assert isinstance(error, anthropic.BadRequestError) and re.search(r"prompt is too long: \d+ tokens > \d+ maximum", str(error)), error
    assert error.body["error"]["type"] == "invalid_request_error" and error.request_id == error.body["request_id"], error.body
    error = refusal(lambda: client.messages.create(**{**arguments, "model": "other"}))
    assert isinstance(error, anthropic.NotFoundError), error


def real_ollama(base):
    import ollama
    client = ollama_client(base)
    options = {"temperature": 0, "num_predict": 24, "num_ctx": 2048}
    whole = client.chat(model="smol", messages=CAPITAL, options=options)
    assert "Paris" in whole.message.content, whole
    parts = list(client.chat(model="smol:latest", messages=CAPITAL, options=options, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert parts[-1].prompt_eval_count == whole.prompt_eval_count > 0 and parts[-1].eval_duration > 0
    said = client.generate(model="smol", prompt=CAPITAL[0]["content"], options=options)
    assert said.response == whole.message.content, said
    raw = client.generate(model="smol", prompt="One, two, three,", raw=True, options={"temperature": 0, "num_predict": 4})
    assert "four" in raw.response and raw.prompt_eval_count < whole.prompt_eval_count, raw
    held = client.chat(model="smol", messages=CAPITAL, format={"type": "object", "properties": {"city": {
        "type": "string", "maxLength": 12}}, "required": ["city"], "additionalProperties": False}, options={**options, "num_predict": 60})
    assert isinstance(json.loads(held.message.content)["city"], str), held
    assert client.list().models[0].model == "smol:latest" and client.ps().models[0].context_length > 0
    shown = client.show("smol")
    assert shown.capabilities == ["completion"] and shown.details.family == "llama" and "im_start" in shown.template, shown
    assert client.generate(model="smol").done_reason == "load"
    error = refusal(lambda: client.chat(model="other", messages=CAPITAL))
    assert isinstance(error, ollama.ResponseError) and error.status_code == 404, error
    error = refusal(lambda: client.generate(model="smol", prompt="a", suffix="b"))
    assert error.status_code == 400 and "suffix" in error.error, error
    with urllib.request.urlopen(base + "/", timeout=10) as response:
        assert response.read() == b"Ollama is running"


def real():
    if not os.environ.get("LLMRT_TEST_MODEL"):
        print("skipped: expected LLMRT_TEST_MODEL")
        return 77
    runs = {name: run for name, run in (("anthropic", real_anthropic), ("ollama", real_ollama)) if importlib.util.find_spec(name)}
    if not runs:
        print("skipped: expected Python with anthropic or ollama")
        return 77
    process = subprocess.Popen([os.environ["LLMRT_PROGRAM"], "serve", os.environ["LLMRT_TEST_MODEL"], "--port", "0", "--name", "smol",
                                "--device", os.environ.get("LLMRT_TEST_DEVICE", "auto"), "--kv-tokens", "8192"],
                               stderr=subprocess.PIPE, text=True)
    log = []
    for line in process.stderr:
        log.append(line)
        if found := re.search(r"on (http://127\.0\.0\.1:\d+)", line):
            break
    else:
        print("the server did not start:", "".join(log))
        return 1
    threading.Thread(target=lambda: log.extend(process.stderr), daemon=True).start()
    failed = 0
    for name, run in runs.items():
        try:
            run(found.group(1))
            print(f"passed {name}")
        except Exception:
            failed += 1
            print(f"FAILED {name}:")
            traceback.print_exc(limit=-4, file=sys.stdout)
    process.send_signal(signal.SIGTERM)
    failed += process.wait(60) != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(real() if sys.argv[1] == "--model" else scripted())
