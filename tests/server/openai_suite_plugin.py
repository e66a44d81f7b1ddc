"""A pytest plugin for openai_suite_test.py: requests of the client's suite without what only a mock takes. It adds the input
that a response needs, and leaves out what would be a state of the server."""

import functools

import openai.resources.responses
import openai.resources.responses.input_tokens

STATE = {"background", "background_options", "conversation", "previous_response_id", "prompt"}


def amended_response(arguments):
    kept = {name: value for name, value in arguments.items() if name not in STATE}
    return {"input": "Hello", **kept, **({"model": "gpt-6-astra"} if kept.get("model") == "model" else {})}


def amend(owner, method, amended):
    original = getattr(owner, method)

    @functools.wraps(original)
    def call(self, **arguments):
        return original(self, **amended(arguments))

    setattr(owner, method, call)


def pytest_configure():
    responses, tokens = openai.resources.responses, openai.resources.responses.input_tokens
    for owner, method in ((responses.Responses, "create"), (responses.AsyncResponses, "create"),
                          (tokens.InputTokens, "count"), (tokens.AsyncInputTokens, "count")):
        amend(owner, method, amended_response)
