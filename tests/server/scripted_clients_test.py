"""Clients' libraries from PyPI in loops of three tool calls, with a model that says a script (scripted_server.py): what
they send back must be read as the template needs it, and each answer must reach them whole, with masks and without.

    scripted_clients_test.py PACED_SERVER [NAME...]   of the clients; all without

Needs openai; of instructor, langchain-openai, litellm, llama-index-llms-openai-like, dspy, pydantic-ai-slim[openai],
openai-agents and smolagents each that is missing is a counted skip.
"""

import asyncio
import importlib.util
import json
import sys

from scripted_server import call, passes

PROGRAM = sys.argv[1]
CITIES = ["Paris", "Rome", "Oslo"]
WEATHER = {"Paris": "sun", "Rome": "rain", "Oslo": "snow"}
LAST = "Sun in Paris, rain in Rome, snow in Oslo."
CALLS = [call("weather", city=city) for city in CITIES]
QUESTION = {"role": "user", "content": "How is the weather in Paris, Rome and Oslo?"}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}


def tool(strict):
    return {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": PARAMETERS, **strict}}


def loop(ask, last=LAST):
    """The agent's loop as one writes it by hand. ask(messages) -> (content, [(id, name, arguments)])."""
    messages, asked = [QUESTION], []
    for _ in range(8):
        content, calls = ask(messages)
        if not calls:
            assert content == last, content
            break
        messages.append({"role": "assistant", "content": content, "tool_calls": [
            {"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]})
        for identity, name, arguments in calls:
            asked.append(json.loads(arguments)["city"])
            assert name == "weather"
            messages.append({"role": "tool", "tool_call_id": identity, "content": WEATHER[asked[-1]]})
    assert asked == CITIES, asked


def with_openai(url):
    import openai
    client = openai.OpenAI(base_url=url, api_key="x", max_retries=0)

    def whole(messages, **options):
        message = client.chat.completions.create(model="paced", messages=messages, **options).choices[0].message
        return message.content, [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]

    def streamed(messages, **options):
        with client.chat.completions.stream(model="paced", messages=messages, **options) as events:
            parts = [event.arguments_delta for event in events if event.type == "tool_calls.function.arguments.delta"]
            choice = events.get_final_completion().choices[0]
        calls = choice.message.tool_calls or []
        assert choice.finish_reason == ("tool_calls" if calls else "stop")
        assert "".join(parts) == "".join(c.function.arguments for c in calls)
        return choice.message.content, [(c.id, c.function.name, c.function.arguments) for c in calls]

    for ask in (whole, streamed):
        for strict in ({}, {"strict": True}):
            for more in ({}, {"tool_choice": "auto"}, {"parallel_tool_calls": False}):
                loop(lambda messages: ask(messages, tools=[tool(strict)], **more))


def with_instructor(url):
    import instructor
    import openai
    import pydantic
    tried = []

    class Weather(pydantic.BaseModel):
        city: str

        @pydantic.field_validator("city")
        @classmethod
        def is_in_norway(cls, city):
            tried.append(city)
            if city != "Oslo":
                raise ValueError("not in Norway")
            return city

    client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="x"), mode=instructor.Mode.TOOLS)
    answer = client.chat.completions.create(model="paced", messages=[QUESTION], response_model=Weather, max_retries=3)
    assert answer.city == "Oslo" and tried == CITIES, tried


def with_langchain_openai(url):
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(base_url=url, api_key="x", model="paced").bind_tools([tool({})])
    for streams in (False, True):
        messages, asked = [HumanMessage(QUESTION["content"])], []
        for _ in range(4):
            answer = model.invoke(messages)
            if streams:
                chunks = list(model.stream(messages))
                answer = sum(chunks[1:], chunks[0])
            messages.append(AIMessage(answer.content, tool_calls=answer.tool_calls))
            for made in answer.tool_calls:
                asked.append(made["args"]["city"])
                messages.append(ToolMessage(WEATHER[asked[-1]], tool_call_id=made["id"]))
        assert asked == CITIES and answer.content == LAST, (asked, answer)


def with_litellm(url):
    import litellm

    def ask(messages, provider, **options):
        answer = litellm.completion(model=f"{provider}/paced", api_base=url, api_key="x", messages=messages, tools=[tool({})], **options)
        if options.get("stream"):
            answer = litellm.stream_chunk_builder(list(answer), messages=messages)
        message = answer.choices[0].message
        return message.content, [(c.id, c.function.name, c.function.arguments) for c in message.tool_calls or []]

    for provider in ("openai", "hosted_vllm"):
        for stream in (False, True):
            loop(lambda messages: ask(messages, provider, stream=stream))


def with_pydantic_ai(url, model="OpenAIChatModel"):
    from pydantic_ai import Agent
    from pydantic_ai.models import openai
    from pydantic_ai.providers.openai import OpenAIProvider
    agent = Agent(getattr(openai, model)("paced", provider=OpenAIProvider(base_url=url, api_key="x")))
    asked = []

    @agent.tool_plain
    def weather(city: str) -> str:
        asked.append(city)
        return WEATHER[city]

    answer = agent.run_sync(QUESTION["content"])
    assert answer.output == LAST and asked == CITIES, (answer.output, asked)

    async def streamed():
        asked.clear()
        async with agent.run_stream(QUESTION["content"]) as result:
            assert await result.get_output() == LAST
    asyncio.run(streamed())
    assert asked == CITIES, asked


def with_agents(url):
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI
    set_tracing_disabled(True)
    asked = []

    @function_tool
    def weather(city: str) -> str:
        asked.append(city)
        return WEATHER[city]

    agent = Agent(name="a", tools=[weather], model=OpenAIChatCompletionsModel("paced", AsyncOpenAI(base_url=url, api_key="x")))
    answer = asyncio.run(Runner.run(agent, QUESTION["content"]))
    assert answer.final_output == LAST and asked == CITIES, (answer.final_output, asked)


def with_smolagents(url):
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool as smol_tool
    asked = []

    @smol_tool
    def weather(city: str) -> str:
        """Weather of a city.

        Args:
            city: the city
        """
        asked.append(city)
        return WEATHER[city]

    agent = ToolCallingAgent(tools=[weather], verbosity_level=0, max_steps=6,
                             model=OpenAIServerModel(model_id="paced", api_base=url, api_key="x"))
    answer = agent.run(QUESTION["content"])
    assert answer == LAST and asked == CITIES, (answer, asked)


def with_llama_index(url):
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike
    model = OpenAILike(api_base=url, api_key="x", model="paced", context_window=8192, is_chat_model=True,
                       is_function_calling_model=True)
    for streams in (False, True):
        asked = []

        def weather(city: str) -> str:
            """Weather of a city."""
            asked.append(city)
            return WEATHER[city]

        async def run():
            agent = FunctionAgent(tools=[FunctionTool.from_defaults(weather)], llm=model, streaming=streams)
            return await agent.run(QUESTION["content"])

        answer = str(asyncio.run(run()))
        assert answer == LAST and asked == CITIES, (answer, asked)


def with_dspy(url):
    import dspy

    class Model(dspy.LM):
        """Unless a list of known models has it, dspy takes a model to understand neither schemas nor tools."""
        supports_function_calling = supports_response_schema = True

    asked = []

    def weather(city: str) -> str:
        """Weather of a city."""
        asked.append(city)
        return WEATHER[city]

    class Tell(dspy.Signature):
        """Tells the weather."""
        question: str = dspy.InputField()
        tools: list[dspy.Tool] = dspy.InputField()
        calls: dspy.ToolCalls = dspy.OutputField()

    dspy.configure(lm=Model("openai/paced", api_base=url, api_key="x", cache=False),
                   adapter=dspy.ChatAdapter(use_native_function_calling=True))
    made = dspy.Predict(Tell)(question=QUESTION["content"], tools=[dspy.Tool(weather)]).calls.tool_calls
    for each in made:
        weather(**each.args)
    assert [each.name for each in made] == ["weather"] * 3 and asked == CITIES, made


def xml_call(city):
    return f"<tool_call>\n<function=weather>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"


def harmony_call(city):
    return f'<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{json.dumps({"city": city})}<|call|>'


TURNS = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}{{ message.tool_calls | tojson if message.tool_calls }}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
# Formats whose answers look otherwise: (options of the server, answers), each with a thought before all that it says.
FORMATS = {
    "hermes": ({}, ["<think>\nIn turn.\n</think>\n\n" + text for text in CALLS + [LAST]]),
    "qwen-xml": ({"chat_format": "qwen-xml", "template": TURNS + "<think>\n"},
                 ["In turn.\n</think>\n\n" + text for text in [xml_call(city) for city in CITIES] + [LAST]]),
    "harmony": ({"chat_format": "harmony", "answer_mark": "<|start|>assistant",
                 "template": "{% for message in messages %}<|start|>{{ message.role }}<|message|>{{ message.content or '' }}"
                             "{{ message.tool_calls | tojson if message.tool_calls }}<|end|>{% endfor %}<|start|>assistant",
                 "tokens": ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>"]},
                ["<|channel|>analysis<|message|>In turn.<|end|><|start|>assistant" + text for text in
                 [harmony_call(city) for city in CITIES] + [f"<|channel|>final<|message|>{LAST}<|return|>"]]),
}


def with_formats(url):
    """The official client again, thoughts told apart."""
    import openai
    client = openai.OpenAI(base_url=url, api_key="x", max_retries=0)

    def whole(messages, **options):
        choice = client.chat.completions.create(model="paced", messages=messages, **options).choices[0]
        assert choice.message.reasoning_content == "In turn.", choice
        calls = choice.message.tool_calls or []
        assert choice.finish_reason == ("tool_calls" if calls else "stop"), choice
        return choice.message.content, [(c.id, c.function.name, c.function.arguments) for c in calls]

    def streamed(messages, **options):
        content = thought = ""
        calls = {}
        for chunk in client.chat.completions.create(model="paced", messages=messages, stream=True, **options):
            for choice in chunk.choices:
                content += choice.delta.content or ""
                thought += getattr(choice.delta, "reasoning_content", None) or ""
                for part in choice.delta.tool_calls or []:
                    made = calls.setdefault(part.index, [part.id, part.function.name, ""])
                    made[2] += part.function.arguments or ""
        assert thought == "In turn.", thought
        return content or None, [tuple(made) for made in calls.values()]

    for ask in (whole, streamed):
        for strict in ({}, {"strict": True}):
            loop(lambda messages: ask(messages, tools=[tool(strict)]))


def with_boundaries(url):
    """The answer ends behind the one call that is asked for; what a turn shares with the one before is not computed again."""
    import openai
    client = openai.OpenAI(base_url=url, api_key="x", max_retries=0)
    whole = client.chat.completions.create(model="paced", messages=[QUESTION], tools=[tool({})])
    assert len(whole.choices[0].message.tool_calls) == 3 and whole.choices[0].message.content == LAST
    first = client.chat.completions.create(model="paced", messages=[QUESTION], tools=[tool({})], parallel_tool_calls=False)
    assert len(first.choices[0].message.tool_calls) == 1 and first.choices[0].finish_reason == "tool_calls"
    assert first.usage.completion_tokens < whole.usage.completion_tokens / 2
    messages, prompt_tokens = [QUESTION], 0
    for _ in range(3):
        usage = client.chat.completions.create(model="paced", messages=messages, max_tokens=40).usage
        assert usage.prompt_tokens_details.cached_tokens >= max(prompt_tokens - 16, 0)  # a block
        prompt_tokens = usage.prompt_tokens
        messages += [{"role": "assistant", "content": "Yes."}, QUESTION]  # the thought is left out, as templates do


# What the model says beside the three calls. smolagents asks for a call each time, the last is its answer's.
CLIENTS = {
    "openai": (with_openai, CALLS + [LAST]),
    "instructor": (with_instructor, [call("Weather", city=city) for city in CITIES]),
    "langchain_openai": (with_langchain_openai, CALLS + [LAST]),
    "litellm": (with_litellm, CALLS + [LAST]),
    "pydantic_ai": (with_pydantic_ai, CALLS + [LAST]),
    "agents": (with_agents, CALLS + [LAST]),
    "smolagents": (with_smolagents, CALLS + [call("final_answer", answer=LAST)]),
    "llama_index": (with_llama_index, CALLS + [LAST]),
    "dspy": (with_dspy, ["\n".join(CALLS)]),
}


def main():
    failed = skipped = 0
    names = set(sys.argv[2:]) or set(CLIENTS)
    for name, (run, answers) in CLIENTS.items():
        if name not in names:
            continue
        if not importlib.util.find_spec(name):
            skipped += 1
            print(f"SKIP {name}: not installed")
            continue
        failed += not passes(PROGRAM, name, run, answers)
    if "openai" in names and importlib.util.find_spec("openai"):
        for name, (options, answers) in FORMATS.items():
            failed += not passes(PROGRAM, f"openai, {name}", with_formats, answers, **options)
        failed += not passes(PROGRAM, "openai, boundaries", with_boundaries, ["\n".join(CALLS + [LAST])])
    print(f"{failed} failed, {skipped} skipped")
    return 77 if skipped == len(names) else int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
