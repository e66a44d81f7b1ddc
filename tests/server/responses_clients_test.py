"""/v1/responses as OpenAI's own client and Codex use it, with a model that says a script (scripted_server.py).

    responses_clients_test.py PACED_SERVER

Needs openai; openai-agents and pydantic-ai are counted skips where they are missing.
"""

import asyncio
import importlib.util
import json
import sys
import urllib.error
import urllib.request

import scripted_clients_test
from scripted_clients_test import CITIES, LAST, PARAMETERS, QUESTION, WEATHER
from scripted_server import call, passes

PROGRAM = sys.argv[1]
THOUGHT = "<think>\nIn turn.\n</think>\n\n"
ANSWERS = [THOUGHT + call("weather", city=city) for city in CITIES] + [THOUGHT + LAST]
TOOL = {"type": "function", "name": "weather", "description": "of a city", "parameters": PARAMETERS, "strict": True}

# Shows thoughts of the past, so that the prompt's length says whether they came back.
TEMPLATE = """{% for tool in tools or [] %}{{ tool | tojson }}
{% endfor %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content or '' }}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
"""

# As Codex asks; what it sends with a history of its own is added to `input`.
CODEX = {
    "model": "paced", "instructions": "You are a coding agent.", "store": False, "stream": True, "tool_choice": "auto",
    "parallel_tool_calls": True, "prompt_cache_key": "0198f2c1-aa", "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "medium", "summary": "auto"}, "text": {"verbosity": "low"},
    "tools": [
        {"type": "function", "name": "shell", "description": "Runs a command.", "strict": False,
         "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}},
                                                         "workdir": {"type": "string"}},
                        "required": ["command"], "additionalProperties": False}},
        {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {
            "type": "grammar", "syntax": "lark", "definition":
                'start: "*** Begin Patch" LF line+ "*** End Patch" LF?\nline: /[^*\\n][^\\n]*/ LF\n%import common.LF'}},
        {"type": "web_search", "external_web_access": True, "search_content_types": ["text", "image"]},
        {"type": "image_generation", "output_format": "png"},
        {"type": "local_shell"}, {"type": "tool_search"},
        {"type": "namespace", "name": "mcp__docs", "description": "A server of documents.", "tools": [
            {"type": "function", "name": "fetch", "description": "Fetches one.", "strict": False,
             "parameters": {"type": "object", "properties": {"id": {"type": "string"}}}}]}]}
PATCH = "*** Begin Patch\n+a\n*** End Patch\n"


def client_of(url):
    import openai
    return openai.OpenAI(base_url=url, api_key="x", max_retries=0)


def loop(ask):
    """An agent's loop: the items of each answer go back as they came. ask(input) -> response"""
    items, asked = [QUESTION], []
    for _ in range(8):
        response = ask(items)
        calls = [item for item in response.output if item.type == "function_call"]
        assert response.status == "completed" and response.usage.output_tokens_details.reasoning_tokens > 0, response
        assert response.output[0].type == "reasoning" and response.output[0].content[0].text == "In turn.", response
        if not calls:
            assert response.output_text == LAST, response.output_text
            break
        items += [item.to_dict() for item in response.output]
        for made in calls:
            asked.append(json.loads(made.arguments)["city"])
            items.append({"type": "function_call_output", "call_id": made.call_id, "output": WEATHER[asked[-1]]})
    assert asked == CITIES, asked


def with_openai(url):
    """Whole answers, raw streams and the stream helper, which checks the order of events and the identity of items."""
    client = client_of(url)

    def whole(items):
        return client.responses.create(model="paced", input=items, tools=[TOOL])

    def helped(items):
        numbers = []
        with client.responses.stream(model="paced", input=items, tools=[TOOL]) as events:
            for event in events:
                numbers.append(event.sequence_number)
            response = events.get_final_response()
        assert numbers == list(range(len(numbers))), numbers
        return response

    def streamed(items):
        texts, response = {}, None
        for event in client.responses.create(model="paced", input=items, tools=[TOOL], stream=True):
            if event.type.endswith(".delta"):
                texts[event.item_id] = texts.get(event.item_id, "") + event.delta
            if event.type == "response.completed":
                response = event.response
        for item in response.output:
            said = item.arguments if item.type == "function_call" else item.content[0].text
            assert said == texts[item.id], (said, texts)
        return response

    for ask in (whole, helped, streamed):
        loop(ask)


def with_structure(url):
    import pydantic

    class City(pydantic.BaseModel):
        name: str

    client = client_of(url)
    parsed = client.responses.parse(model="paced", input="Which city?", text_format=City)
    assert parsed.output_parsed == City(name="Rome"), parsed
    with client.responses.stream(model="paced", input="Which city?", text_format=City) as events:
        assert events.get_final_response().output_parsed == City(name="Rome")


def post(url, body, path="/responses"):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=60)


def codex_turn(url, items):
    """What Codex reads of a stream: data alone; items count when they are done, and the stream must be completed."""
    items_done, usage, added = [], None, 0
    with post(url, {**CODEX, "input": items}) as reply:
        ignored = reply.headers["x-llmrt-ignored"]
        for line in reply.read().decode().splitlines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line[6:])
            assert usage is None, "an event behind response.completed"
            added += event["type"] == "response.output_item.added"
            if event["type"] == "response.output_item.done":
                items_done.append(event["item"])
            if event["type"] == "response.completed":
                usage = event["response"]["usage"]
    assert usage and added == len(items_done), (usage, added, items_done)
    return items_done, usage, ignored


def with_codex(url):
    items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Sandbox: read-only."}]},
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Edit a."}]}]
    kinds = []
    for turn in range(4):
        made, usage, ignored = codex_turn(url, items)
        assert ignored == "tools.web_search, tools.image_generation, tools.local_shell, tools.tool_search", ignored
        if turn > 0:
            assert usage["input_tokens_details"]["cached_tokens"] > 0, usage
        outputs = []
        for item in made:
            kinds.append(item["type"])
            # As Codex sends it back: no id, no status; a thought as what was sealed.
            back = {key: value for key, value in item.items() if key not in ("id", "status")}
            if item["type"] == "reasoning":
                assert item["content"] == [{"type": "reasoning_text", "text": "In turn."}], item
                back.pop("content")
            items.append(back)
            if item["type"] == "function_call" and item["name"] == "shell":
                assert json.loads(item["arguments"]) == {"command": ["ls"]} and "namespace" not in item, item
                outputs.append({"type": "function_call_output", "call_id": item["call_id"], "output": "a\nb"})
            elif item["type"] == "function_call":
                assert (item["namespace"], item["name"]) == ("mcp__docs", "fetch"), item
                outputs.append({"type": "function_call_output", "call_id": item["call_id"], "output": [
                    {"type": "input_text", "text": "a text"}]})
            elif item["type"] == "custom_tool_call":
                assert (item["name"], item["input"]) == ("apply_patch", PATCH), item
                outputs.append({"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Done."})
        items += outputs
    assert kinds == ["reasoning", "function_call", "function_call", "reasoning", "custom_tool_call", "reasoning", "message",
                     "reasoning", "message"], kinds

    def num_tokens(history):
        body = {key: value for key, value in CODEX.items() if key not in ("stream", "include")}
        with post(url, {**body, "input": history}, "/responses/input_tokens") as reply:
            return json.loads(reply.read())["input_tokens"]

    # A thought that was sealed here is part of the prompt; one of another service is skipped.
    foreign = [{**item, "encrypted_content": "gAAAAABo" + "x" * 40} if item["type"] == "reasoning" else item for item in items]
    without = [item for item in items if item["type"] != "reasoning"]
    assert num_tokens(items) > num_tokens(without) == num_tokens(foreign)
    with urllib.request.urlopen(url + "/models", timeout=60) as reply:
        assert json.loads(reply.read())["models"] == []


def with_errors(url):
    import openai
    client = client_of(url)
    try:
        client.responses.create(model="paced", input="a " * 40000)
        raise AssertionError("a prompt that does not fit")
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded" and "maximum context length is" in error.message, error
        assert error.param == "input", error.param
    for field, value in (("previous_response_id", "resp_1"), ("background", True), ("conversation", "conv_1")):
        try:
            client.responses.create(model="paced", input="a", **{field: value})
            raise AssertionError(field)
        except openai.BadRequestError as error:
            assert error.param == field, error
    for act in (client.responses.retrieve, client.responses.delete):
        try:
            act("resp_1")
            raise AssertionError("a response that is not stored")
        except openai.NotFoundError as error:
            assert error.param == "response_id", error
    cut = client.responses.create(model="paced", input="a", max_output_tokens=3)
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", cut
    probe = client.responses.create(model="paced", input="", max_output_tokens=1)
    assert probe.usage.output_tokens == 1, probe
    with post(url, {"input": "a"}, "/responses/input_tokens") as reply:
        assert json.loads(reply.read())["input_tokens"] == cut.usage.input_tokens


def with_agents(url):
    from agents import Agent, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI
    set_tracing_disabled(True)
    asked = []

    @function_tool
    def weather(city: str) -> str:
        asked.append(city)
        return WEATHER[city]

    agent = Agent(name="a", instructions="Be brief.", tools=[weather],
                  model=OpenAIResponsesModel("paced", AsyncOpenAI(base_url=url, api_key="x")))

    async def both():  # in one loop: connections of the client belong to it
        answer = await Runner.run(agent, QUESTION["content"])
        assert answer.final_output == LAST and asked == CITIES, (answer.final_output, asked)
        asked.clear()
        result = Runner.run_streamed(agent, QUESTION["content"])
        async for _ in result.stream_events():
            pass
        assert result.final_output == LAST and asked == CITIES, (result.final_output, asked)
    asyncio.run(both())


def with_pydantic_ai(url):
    scripted_clients_test.with_pydantic_ai(url, "OpenAIResponsesModel")


PATCHING = [THOUGHT + call("shell", command=["ls"]) + "\n" + call("mcp__docs__fetch", id="1"),
            THOUGHT + call("apply_patch", input=PATCH), THOUGHT + "Done.", THOUGHT + "Done."]
CASES = [("openai", with_openai, ANSWERS), ("openai", with_structure, ['{"name": "Rome"}']), ("openai", with_codex, PATCHING),
         ("openai", with_errors, ["Hello there, all of you."]), ("agents", with_agents, ANSWERS),
         ("pydantic_ai", with_pydantic_ai, ANSWERS)]


def main():
    if not importlib.util.find_spec("openai"):
        print("skipped: expected Python with openai")
        return 77
    failed = skipped = 0
    names = set(sys.argv[2:])  # of packages; all without
    for needs, run, answers in CASES:
        if names and needs not in names:
            continue
        if not importlib.util.find_spec(needs):
            print(f"skipped {run.__name__}: no {needs}")
            skipped += 1
            continue
        failed += not passes(PROGRAM, f"{needs}, {run.__name__}", run, answers, template=TEMPLATE)
    print(f"{skipped} skipped, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
