"""llmrt-bench serve against a server whose delays and faults are known.

Environment: LLMRT_BENCH (the binary).
"""

import json
import os
import pathlib
import subprocess

import jsonschema
import pytest

from fake_openai_server import ADAPTERS, EARLY_TOKENS, FAULTS, ITL_S, SLOW_TTFT_S, TTFT_S, Server

BENCH = os.environ["LLMRT_BENCH"]
SCHEMA = json.loads((pathlib.Path(__file__).parents[2] / "docs/bench.schema.json").read_text())
SLACK_MS = 15  # of this machine, whose cores are shared


@pytest.fixture()
def server():
    return Server()


def bench(*arguments, code=0):
    told = subprocess.run([BENCH, "serve", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert told.returncode == code, told.stdout + told.stderr
    return told


def run(server, tmp_path, *arguments, model="steady"):
    path = tmp_path / "record.json"
    told = bench("--url", server.url, "--model-name", model, "--json", path, "--warmup", 1, *arguments)
    record = json.loads(path.read_text())
    jsonschema.validate(record, SCHEMA)
    assert record["is_complete"] and len(record["rows"]) == 1
    row = record["rows"][0]
    return {name: value["value"] for name, value in row["values"].items()}, row["details"], told.stdout


def test_delays_are_measured_as_they_are(server, tmp_path):
    values, details, _ = run(server, tmp_path, "--requests", 12, "-n", 6, "-c", 4)
    assert 0 <= values["ttft_p50"] - 1e3 * TTFT_S < SLACK_MS
    assert abs(values["itl_p50"] - 1e3 * ITL_S) < SLACK_MS and abs(values["tpot_p50"] - 1e3 * ITL_S) < SLACK_MS
    assert 0 <= values["e2e_p50"] - 1e3 * (TTFT_S + 5 * ITL_S) < 2 * SLACK_MS
    assert details["completed"] == details["counted_by_server"] == 12 and details["failures"] == {}
    assert values["output_tok_s"] == pytest.approx(12 * 6 / details["seconds"])
    for request in details["requests"]:
        assert request["output_tokens"] == 6 and request["prompt_tokens"] == 7 and len(request["itl_ms"]) == 5
    assert server.num_connections == 4 + 1 - 1  # kept from one request to the next, the warm-up's too


def test_chat_counts_no_empty_chunk(server, tmp_path):
    values, details, _ = run(server, tmp_path, "--requests", 4, "-n", 4, "-c", 4, "--chat")
    assert 0 <= values["ttft_p50"] - 1e3 * TTFT_S < SLACK_MS
    assert all(len(request["itl_ms"]) == 3 for request in details["requests"])
    assert server.bodies[-1]["messages"][0]["role"] == "user"


def test_agents_repeat_what_was_said_and_are_compared_with_new_prompts(server, tmp_path):
    path = tmp_path / "agents.json"
    arguments = ["--url", server.url, "--json", path, "--workload", "agents", "--users", 3, "--turns", 3, "--system-tokens",
                 150, "-p", 8, "-n", 2]
    told = bench(*arguments, "--model-name", "caching").stdout
    record = json.loads(path.read_text())
    jsonschema.validate(record, SCHEMA)
    turns = [row["details"]["agents"] for row in record["rows"]]
    assert [turn["hits"] for turn in turns] == [0, 3, 3] and [turn["told"] for turn in turns] == [3, 3, 3]
    assert turns[0]["cached_share"] == 0 and turns[2]["cached_share"] == pytest.approx(5 / 7)
    assert all(abs(turn["cold_ttft_ms"] - 1e3 * TTFT_S) < SLACK_MS for turn in turns)
    assert abs(turns[2]["ttft_ms"] - 1e3 * TTFT_S / 3) < SLACK_MS
    assert "71.4 %" in told and "3 of 3" in told
    asked = [body["messages"] for body in server.bodies if body["messages"][0]["role"] == "system"]
    assert len(asked) == 2 * 3 * 3
    talks = [messages for messages in asked if len(messages) == 6 and messages[2]["content"] == " time" * 2]
    assert len(talks) == 3 and len({messages[0]["content"] for messages in talks}) == 1
    assert [message["role"] for message in talks[0]] == ["system", "user", "assistant", "user", "assistant", "user"]
    others = [messages for messages in asked if len(messages) == 6 and messages not in talks]
    assert len({messages[0]["content"] for messages in others + talks[:1]}) == 4
    told = bench(*arguments, "--model-name", "steady").stdout  # does not say what it had
    assert "does not say how many tokens" in told


def test_goodput_counts_who_met_the_objectives(server, tmp_path):
    limit_ms = 1e3 * (TTFT_S + SLOW_TTFT_S) / 2
    values, details, out = run(server, tmp_path, "--requests", 10, "-n", 2, "-c", 10, "--slo-ttft-ms", limit_ms,
                               model="slow")
    assert details["good"] == 5 and "goodput" in out
    assert values["goodput"] == pytest.approx(5 / details["seconds"])


def test_arrivals_do_not_wait_for_answers(server, tmp_path):
    run(server, tmp_path, "--requests", 40, "-n", 20, "--rate", 50, "--arrivals", "constant")
    arrivals_s = server.arrivals_s[1:]
    assert len(arrivals_s) == 40
    for i, arrival_s in enumerate(arrivals_s):
        assert abs(arrival_s - arrivals_s[0] - i / 50) < 0.05


@pytest.mark.parametrize("model", FAULTS)
def test_a_fault_is_typed_and_the_run_goes_on(server, tmp_path, model):
    _, details, out = run(server, tmp_path, "--requests", 6, "-n", 2, "-c", 2, "--timeout-s", 1, model=model)
    assert details["failures"] == {FAULTS[model][1]: 3} and details["completed"] == 3
    assert f"{FAULTS[model][1]}: 3" in out
    assert "\x1b" not in out  # of what the server said
    assert sum("failure_detail" in request for request in details["requests"]) == 3


def test_a_kept_connection_that_the_server_closed_is_replaced(server, tmp_path):
    _, details, out = run(server, tmp_path, "--requests", 6, "-n", 1, "-c", 2, model="closing")
    assert details["completed"] == 6 and details["sent_again"] > 0 and "sent again" in out


def test_a_server_that_answers_nobody_fails_the_run(server):
    told = bench("--url", server.url, "--model-name", "closes", "--requests", 3, "--warmup", 1, code=1)
    assert "kept connection: 1 requests" in told.stdout  # the warm-up's; it failed again on a new one
    assert "connect: 3" in told.stdout and "no request was answered" in told.stderr


def test_a_server_without_the_extra_fields_is_asked_without_them(server, tmp_path):
    _, details, out = run(server, tmp_path, "--requests", 3, "-n", 2, model="strict")
    assert details["completed"] == 3 and details["counted_by_server"] == 0
    assert "does not take ignore_eos" in out and "counted by chunks" in out


def test_answers_that_end_early_are_told(server, tmp_path):
    _, details, out = run(server, tmp_path, "--requests", 4, "-n", 5, model="early")
    assert details["stopped_early"] == 4 and details["tokens_short"] == 4 * (5 - EARLY_TOKENS)
    assert "stopped early: 4 requests" in out


def test_tokens_without_usage_are_chunks(server, tmp_path):
    _, details, out = run(server, tmp_path, "--requests", 2, "-n", 3, model="uncounted")
    assert details["counted_by_server"] == 0 and "one per chunk for 2" in out
    assert all(request["output_tokens"] == 3 for request in details["requests"])


def test_structure_is_asked_for_and_what_came_is_counted(server, tmp_path):
    work = tmp_path / "work.jsonl"
    drawn = ["--requests", 40, "-p", 20, "-n", 64, "-c", 1, "--structured", 0.4, "--tools", 0.4]
    _, details, out = run(server, tmp_path, *drawn, "--chat", "--save-workload", work, model="structured")
    bodies = server.bodies[1:]
    schemas = [body["response_format"]["json_schema"]["schema"] for body in bodies if "response_format" in body]
    tools = [body for body in bodies if "tools" in body]
    required = [body for body in tools if body["tool_choice"] == "required"]
    assert 8 <= len(schemas) <= 24 and 8 <= len(tools) <= 24 and len(required) == (len(tools) + 1) // 2
    assert len({json.dumps(schema) for schema in schemas}) == len(schemas)
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
    for body in tools:
        for tool in body["tools"]:
            jsonschema.Draft202012Validator.check_schema(tool["function"]["parameters"])
    assert all("ignore_eos" in body for body in bodies if "tools" not in body and "response_format" not in body)
    good = (len(schemas) + 1) // 2
    assert details["structure"] == {
        "schemas": len(schemas), "schemas_parsed": good, "schemas_fit_roughly": good, "tools": len(tools),
        "tools_required": len(required), "answers_with_calls": len(required), "required_without_call": 0,
        "calls": len(required), "calls_of_known_tools": len(required), "calls_parsed": len(required),
        "calls_fit_roughly": len(required)}
    assert details["finish_reasons"]["tool_calls"] == len(required) and details["stopped_early"] == 0
    assert f"schemas: {len(schemas)} answers, {good} parse as JSON" in out
    assert f"finish reasons: length {details['finish_reasons']['length']} stop" in out
    again = tmp_path / "again.jsonl"
    run(server, tmp_path, "--workload", work, "-c", 1, "--chat", "--save-workload", again, model="structured")
    assert again.read_bytes() == work.read_bytes()
    assert server.bodies[-40:] == bodies


def test_requests_name_the_adapters_that_the_server_lists(server, tmp_path):
    path, work = tmp_path / "record.json", tmp_path / "work.jsonl"
    drawn = ["--url", server.url, "--json", path, "--requests", 60, "-n", 1, "-c", 30, "--adapters", 3, "--zipf", 1.5]
    told = bench(*drawn, "--save-workload", work).stdout
    record = json.loads(path.read_text())
    jsonschema.validate(record, SCHEMA)
    numbers = [json.loads(line)["adapter"] for line in work.read_text().splitlines()]
    names = [body["model"] for body in server.bodies[2:]]  # behind two that warm up
    assert sorted(names) == sorted(ADAPTERS[number - 1] for number in numbers)
    counts = [numbers.count(number) for number in (1, 2, 3)]
    assert counts[0] > counts[1] > counts[2] > 0, counts
    adapters = record["rows"][0]["details"]["adapters"]
    assert [(entry["adapter"], entry["requests"], entry["completed"]) for entry in adapters] == [
        (number, count, count) for number, count in zip((1, 2, 3), counts)]
    assert all(entry["ttft_p50_ms"] >= 1e3 * TTFT_S for entry in adapters)
    assert f"adapters: 3 asked for by 60 requests, the most popular by {counts[0]}" in told
    bench("--url", server.url, "--workload", work, "-c", 30)
    assert sorted(body["model"] for body in server.bodies[-60:]) == sorted(names)
    found = bench("--url", server.url, "--requests", 50, "--adapters", 9, "--zipf", 0, code=1).stderr
    assert "expected 9 adapters with parent steady in /v1/models, found 4" in found


def test_structure_needs_chat(server):
    told = bench("--url", server.url, "--structured", 0.5, "--requests", 9, code=1)
    assert "expected --chat" in told.stderr
    assert "at most 1 together" in bench("--url", server.url, "--structured", 0.7, "--tools", 0.7, code=1).stderr


def test_a_server_that_is_not_there():
    assert "Connection refused" in bench("--url", "http://127.0.0.1:1", code=1).stderr
    assert "expected http://HOST" in bench("--url", "https://127.0.0.1", code=1).stderr


def test_the_same_seed_gives_the_same_file_and_the_file_the_same_requests(server, tmp_path):
    a, b, c, again = (tmp_path / name for name in ("a", "b", "c", "again"))
    drawn = ["--requests", 8, "--sharegpt-like", "--rate", 40, "--arrivals", "gamma:0.5"]
    bench(*drawn, "--save-workload", a)
    bench(*drawn, "--save-workload", b)
    bench(*drawn, "--seed", 2, "--save-workload", c)
    assert a.read_bytes() == b.read_bytes() != c.read_bytes()
    bench("--workload", a, "--save-workload", again)
    assert a.read_bytes() == again.read_bytes()
    lines = [json.loads(line) for line in a.read_text().splitlines()]
    for line in lines:
        line["output_tokens"] = 1
    a.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run(server, tmp_path, "--workload", a)
    assert sorted(body["prompt"] for body in server.bodies[1:]) == sorted(line["prompt"] for line in lines)
    gaps_s = [server.arrivals_s[1 + i] - server.arrivals_s[1] for i in range(8)]
    assert gaps_s == pytest.approx([line["arrival_s"] for line in lines], abs=0.05)


@pytest.mark.parametrize("line,expected", [
    ("{", "line 2"), ('{"output_tokens": 3}', "expected prompt or prompt_tokens"),
    ('{"prompt": "a"}', "output_tokens: expected a whole number"),
    ('{"prompt": "a", "output_tokens": -1}', "found -1"), ('{"prompt": 4, "output_tokens": 1}', "found 4"),
    ('{"prompt": "a", "output_tokens": 1, "extra": 2}', "found extra"),
    ('{"prompt": "a", "output_tokens": 1, "arrival_s": 1}', "on all lines or on none"),
    ('{"prompt": "a", "output_tokens": 1, "arrival_s": -1}', "arrival_s: expected seconds"),
])
def test_a_bad_workload_is_refused_with_its_line(tmp_path, line, expected):
    path = tmp_path / "work.jsonl"
    path.write_text('{"prompt_tokens": 3, "output_tokens": 2}\n' + line + "\n")
    told = bench("--workload", path, "--save-workload", tmp_path / "out", code=1)
    assert expected in told.stderr and "line 2" in told.stderr


@pytest.mark.parametrize("arguments,expected", [
    (["-p", "lognormal:1:1"], "lognormal:MEDIAN:SIGMA:MIN:MAX"), (["-n", "0"], "found 0"),
    (["--rate", "1e-6", "--requests", "100", "--arrivals", "constant"], "of 100 arrivals within 10000000 s"),
    (["--rate", "1", "--arrivals", "pareto:0.5"], "found pareto:0.5"),
    (["--adapters", "2", "--save-adapters", "/tmp/x"], "--save-adapters: expected -m"), (["--workload", "/nothing"], "cannot be opened"),
])
def test_bad_options_say_what_was_expected(tmp_path, arguments, expected):
    assert expected in bench(*arguments, "--save-workload", tmp_path / "out", code=1).stderr
