"""Agents' libraries from PyPI against `llmrt serve` with a small real model: what they send, and whether they can use what
comes back. The model is too small to choose well; that its answers parse is the grammar's work.

Environment: LLMRT_PROGRAM, LLMRT_TEST_MODEL, LLMRT_TEST_DEVICE (auto). Needs instructor, langchain-openai, litellm,
llama-index-llms-openai-like, dspy, pydantic-ai-slim[openai], openai-agents and smolagents; one that is missing is a counted
skip, and with none of them the test skips itself (exit code 77). tools/clients installs them all.
"""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
from typing import Literal

MODEL = os.environ["LLMRT_TEST_MODEL"]
QUESTION = [{"role": "user", "content": "How will the weather in Paris be?"}]


def serve():
    process = subprocess.Popen(
        [os.environ["LLMRT_PROGRAM"], "serve", MODEL, "--port", "0", "--name", "smol", "--chat-format", "hermes", "--device",
         os.environ.get("LLMRT_TEST_DEVICE", "auto"), "--kv-tokens", "8192"], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if found := re.search(r"on (http://127\.0\.0\.1:\d+)", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return process, found.group(1) + "/v1"
    sys.exit("the server did not start")


def weather_type():
    import pydantic

    class Weather(pydantic.BaseModel):
        """The weather of a city."""
        city: Literal["Paris", "Rome"]
        days: int = pydantic.Field(ge=1, le=9)

    return Weather


def with_instructor(url, Weather):
    import instructor
    import openai
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="x"), mode=mode)
        answer = client.chat.completions.create(model="smol", response_model=Weather, messages=QUESTION, max_tokens=200,
                                                temperature=0)
        assert isinstance(answer, Weather)


def with_langchain_openai(url, Weather):
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(base_url=url, api_key="x", model="smol", max_tokens=200)
    for method in ("function_calling", "json_schema"):
        assert isinstance(model.with_structured_output(Weather, method=method).invoke("weather?"), Weather)
    assert model.bind_tools([Weather], tool_choice="any").invoke("weather?").tool_calls[0]["name"] == "Weather"


def with_litellm(url, Weather):
    import litellm
    arguments = dict(api_base=url, api_key="x", max_tokens=200, messages=QUESTION)
    tool = {"type": "function", "function": {"name": "Weather", "parameters": Weather.model_json_schema()}}
    answer = litellm.completion(model="openai/smol", tools=[tool], tool_choice="required", parallel_tool_calls=False, **arguments)
    Weather(**json.loads(answer.choices[0].message.tool_calls[0].function.arguments))
    answer = litellm.completion(model="hosted_vllm/smol", response_format=Weather, **arguments)
    Weather(**json.loads(answer.choices[0].message.content))


def with_pydantic_ai(url, Weather):
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel("smol", provider=OpenAIProvider(base_url=url, api_key="x"))
    for output in (Weather, NativeOutput(Weather)):
        answer = Agent(model, output_type=output, model_settings={"max_tokens": 200}).run_sync("weather?")
        assert isinstance(answer.output, Weather)


def with_agents(url, Weather):
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI
    set_tracing_disabled(True)
    cities = []

    @function_tool
    def weather(city: Literal["Paris", "Rome"], days: int) -> str:
        cities.append(city)
        return "sunny"

    agent = Agent(name="a", tools=[weather], model=OpenAIChatCompletionsModel("smol", AsyncOpenAI(base_url=url, api_key="x")),
                  model_settings=ModelSettings(tool_choice="required", max_tokens=150, parallel_tool_calls=False))
    Runner.run_sync(agent, "weather?", max_turns=4)
    assert cities


def with_smolagents(url, Weather):
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    @tool
    def weather(city: str) -> str:
        """Weather of a city.

        Args:
            city: the city
        """
        return "sunny in " + city

    agent = ToolCallingAgent(tools=[weather], verbosity_level=0, max_steps=2,
                             model=OpenAIServerModel(model_id="smol", api_base=url, api_key="x", max_tokens=120))
    agent.run("weather in Paris?")
    assert any(getattr(step, "tool_calls", None) for step in agent.memory.steps)


def with_llama_index(url, Weather):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike
    options = dict(api_base=url, api_key="x", model="smol", max_tokens=200, context_window=2048, is_chat_model=True)
    model = OpenAILike(**options, is_function_calling_model=True)
    message = [ChatMessage(role="user", content="weather?")]
    assert isinstance(model.as_structured_llm(Weather).chat(message).raw, Weather)
    assert isinstance(model.as_structured_llm(Weather).complete("weather?").raw, Weather)
    whole = OpenAILike(**{**options, "max_tokens": 12}, temperature=0)
    streamed = "".join(part.delta or "" for part in whole.stream_chat(message))
    assert streamed == whole.chat(message).message.content


def with_dspy(url, Weather):
    import dspy

    class Model(dspy.LM):
        """Unless a list of known models has it, dspy takes a model to understand neither schemas nor tools."""
        supports_function_calling = supports_response_schema = True

    dspy.configure(lm=Model("openai/smol", api_base=url, api_key="x", max_tokens=200, cache=False), adapter=dspy.JSONAdapter())

    class Tell(dspy.Signature):
        """Tells the weather."""
        question: str = dspy.InputField()
        weather: Weather = dspy.OutputField()

    assert isinstance(dspy.Predict(Tell)(question="weather?").weather, Weather)


CLIENTS = {"instructor": with_instructor, "langchain_openai": with_langchain_openai, "litellm": with_litellm,
           "pydantic_ai": with_pydantic_ai, "agents": with_agents, "smolagents": with_smolagents,
           "llama_index": with_llama_index, "dspy": with_dspy}


def main():
    names = sys.argv[1:] or list(CLIENTS)
    there = [name for name in names if importlib.util.find_spec(name)]
    for name in sorted(set(names) - set(there)):
        print(f"SKIP {name}: not installed")
    if not there:
        sys.exit(77)
    process, url = serve()
    failed = 0
    for name in there:
        try:
            CLIENTS[name](url, weather_type())
            print(f"passed {name}")
        except Exception as error:  # each client has its own
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}")
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    print(f"{len(there) - failed} passed, {failed} failed, {len(names) - len(there)} skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
