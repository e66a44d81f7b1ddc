"""`llmrt batch` and `llmrt serve --policy` with a real model: answers as over HTTP, interrupted batches, denied texts.
Environment: LLMRT_PROGRAM (the binary), LLMRT_TEST_MODEL (SmolLM2-135M-Instruct as GGUF), LLMRT_TEST_DEVICE (auto).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

PROGRAM, MODEL = os.environ["LLMRT_PROGRAM"], os.environ["LLMRT_TEST_MODEL"]
DEVICE = os.environ.get("LLMRT_TEST_DEVICE", "auto")


def request(custom_id, url, body):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def batch(source, target, *options):
    return subprocess.run([PROGRAM, "batch", source, target, "-m", MODEL, "--device", DEVICE, *options],
                          capture_output=True, text=True, timeout=300)


def read(path):
    with open(path, encoding="utf-8") as file:
        return {line["custom_id"]: line["response"] for line in map(json.loads, file)}


def check_batches(folder):
    source, target = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
    prompt = {"prompt": "The capital of France is", "max_tokens": 6, "temperature": 0}
    chat = {"messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 6, "temperature": 0}
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    lines = [request(f"p{i}", "/v1/completions", prompt) for i in range(3)]
    lines.append(request("two", "/v1/completions", prompt | {"prompt": ["One, two,", "A, B,"]}))
    lines.append(request("chat", "/v1/chat/completions", chat))
    lines.append(request("schema", "/v1/chat/completions", chat | {
        "max_tokens": 20, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}))
    lines.append(request("wrong", "/v1/chat/completions", {"messages": 5}))
    lines.append(request("stream", "/v1/completions", prompt | {"stream": True}))
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)

    done = batch(source, target)
    assert done.returncode == 0, done.stderr
    answers = read(target)
    assert set(answers) == {line["custom_id"] for line in lines}
    assert {id for id, answer in answers.items() if answer["status_code"] != 200} == {"wrong", "stream"}
    texts = {answers[f"p{i}"]["body"]["choices"][0]["text"] for i in range(3)}
    assert len(texts) == 1 and "Paris" in texts.pop()
    assert [choice["index"] for choice in answers["two"]["body"]["choices"]] == [0, 1]
    assert answers["chat"]["body"]["choices"][0]["message"]["content"]
    assert json.loads(answers["schema"]["body"]["choices"][0]["message"]["content"])["a"] in (1, 2)
    assert "stream" in answers["stream"]["body"]["error"]["param"]
    assert re.search(r"8 of 8 requests answered, 2 of them with an error", done.stderr)

    # As if it had been killed while it wrote: nothing is lost, asked twice, or left half.
    with open(target, "rb") as file:
        whole = file.read()
    with open(target, "wb") as file:
        file.write(whole[:len(whole) * 2 // 3])
    kept = whole[:len(whole) * 2 // 3].count(b"\n")
    again = batch(source, target)
    assert again.returncode == 0, again.stderr
    assert f"{8 - kept} of {8 - kept} requests answered" in again.stderr, again.stderr
    with open(target, encoding="utf-8") as file:
        assert sorted(json.loads(line)["custom_id"] for line in file) == sorted(answers)
    assert read(target)["p0"]["body"]["choices"] == answers["p0"]["body"]["choices"]
    nothing = batch(source, target)
    assert nothing.returncode == 0 and "nothing is left" in nothing.stderr

    for text, problem in (("{", "line 1"), (json.dumps(lines[0]) + "\n" + json.dumps(lines[0]), "line 2"),
                          (json.dumps(request("a", "/v1/models", {})), "url")):
        with open(source, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        refused = batch(source, os.path.join(folder, "none.jsonl"))
        assert refused.returncode == 2 and problem in refused.stderr, refused.stderr


def check_policy(folder):
    policy = os.path.join(folder, "policy.json")
    with open(policy, "w", encoding="utf-8") as file:
        json.dump({"strings": ["no such text"], "expressions": ["p[a-z]ris"], "ignore_case": True}, file)
    server = subprocess.Popen([PROGRAM, "serve", MODEL, "--device", DEVICE, "--port", "0", "--policy", policy],
                              stderr=subprocess.PIPE, text=True)
    try:
        url = next(match[1] for line in server.stderr if (match := re.search(r" on (http://[0-9.:]+)", line)))

        def complete(**fields):
            body = {"prompt": "The capital of France is", "max_tokens": 6, "temperature": 0} | fields
            wanted = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                            {"Content-Type": "application/json"})
            with urllib.request.urlopen(wanted, timeout=120) as answer:
                return answer.read().decode()

        choice = json.loads(complete())["choices"][0]
        assert choice["text"] == " " and choice["finish_reason"] == "content_filter", choice
        streamed = complete(stream=True)
        assert "Par" not in streamed and "content_filter" in streamed
    finally:
        server.terminate()
        assert server.wait(60) == 0
    with open(policy, "w", encoding="utf-8") as file:
        file.write('{"strings": [""]}')
    refused = subprocess.run([PROGRAM, "serve", MODEL, "--policy", policy], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "--policy" in refused.stderr, refused.stderr


with tempfile.TemporaryDirectory() as temporary:
    begin = time.monotonic()
    check_batches(temporary)
    check_policy(temporary)
    print(f"passed in {time.monotonic() - begin:.1f} s")
    sys.exit(0)
