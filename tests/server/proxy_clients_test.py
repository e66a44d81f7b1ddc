"""Programs that stand before servers or beside them, with a model that says a script (scripted_server.py): LiteLLM's proxy,
SGLang's router, vLLM's router, SMG and nginx before two servers, and aider, which edits a file. The routers lose one of
their servers in the middle of a load.

    proxy_clients_test.py PACED_SERVER [NAME...]   of the clients; all without

Each is found on the PATH (litellm, sglang-router, vllm-router, smg, nginx, aider); one that is missing is a counted skip.
tools/clients installs them all.
"""

import contextlib
import http.client
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from scripted_clients_test import CALLS, CITIES, LAST, QUESTION, WEATHER, tool
from scripted_server import ScriptedServer, passes

PROGRAM = sys.argv[1]
KEY = "sk-" + secrets.token_hex(32)  # LiteLLM's proxy does not start without one


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def ask(port, path, body=None, headers=()):
    """(status, head, body as text)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST" if body is not None else "GET", path, json.dumps(body) if body is not None else None,
                       {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}", **dict(headers)})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def post(port, path, body, **options):
    status, _, text = ask(port, path, body, **options)
    assert status == 200, (path, status, text[:500])
    return json.loads(text)


def events(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


@contextlib.contextmanager
def running(command, port, ready_path, **options):
    """A program that is ready when a path answers 200; what it printed is told where it is not."""
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, **options)
        try:
            end = time.monotonic() + 300
            while True:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if ask(port, ready_path)[0] == 200:
                        break
                if process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(pathlib.Path(log.name).read_text(errors="replace")[-3000:])
                time.sleep(0.2)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def chat_loop(port, streams=False):
    """Three calls, then the answer, as an agent asks for them."""
    messages, asked = [QUESTION], []
    for _ in range(8):
        body = {"model": "paced", "messages": messages, "tools": [tool({})], "stream": streams}
        if streams:
            status, _, text = ask(port, "/v1/chat/completions", body)
            assert status == 200 and "data: [DONE]" in text, (status, text[-500:])
            content, made = "", {}
            for event in events(text):
                for choice in event["choices"]:
                    content += choice["delta"].get("content") or ""
                    for part in choice["delta"].get("tool_calls") or []:
                        call = made.setdefault(part["index"], {"id": part.get("id"), "type": "function",
                                                               "function": {"name": part["function"].get("name"), "arguments": ""}})
                        call["function"]["arguments"] += part["function"].get("arguments") or ""
            message = {"role": "assistant", "content": content or None, "tool_calls": list(made.values())}
        else:
            message = post(port, "/v1/chat/completions", body)["choices"][0]["message"]
        if not message.get("tool_calls"):
            assert message["content"] == LAST, message
            break
        messages.append({key: message[key] for key in ("role", "content", "tool_calls")})
        for call in message["tool_calls"]:
            asked.append(json.loads(call["function"]["arguments"])["city"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": WEATHER[asked[-1]]})
    assert asked == CITIES, asked


def completions(port, model="paced"):
    body = {"model": model, "prompt": "One, two,", "max_tokens": 5, "temperature": 0}
    whole = post(port, "/v1/completions", body)
    status, _, text = ask(port, "/v1/completions", {**body, "stream": True})
    assert status == 200 and "data: [DONE]" in text
    streamed = "".join(choice["text"] for event in events(text) for choice in event["choices"])
    assert streamed == whole["choices"][0]["text"] and whole["usage"]["completion_tokens"] == 5, (streamed, whole)


def with_litellm_proxy(urls, _):
    port = free_port()
    config = {"model_list": [{"model_name": "paced", "litellm_params": {"model": f"{provider}/paced", "api_base": url, "api_key": "x"}}
                             for provider, url in zip(("openai", "hosted_vllm"), urls)],
              "litellm_settings": {"telemetry": False, "num_retries": 0}}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(config, file)  # which is YAML, too
        file.flush()
        command = ["litellm", "--config", file.name, "--host", "127.0.0.1", "--port", str(port)]
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY}
        environment.pop("DATABASE_URL", None)
        with running(command, port, "/health/liveliness", env=environment):
            assert "paced" in ask(port, "/v1/models")[2]
            for _ in range(3):
                chat_loop(port)
            chat_loop(port, streams=True)
            made = post(port, "/v1/messages", {"model": "paced", "max_tokens": 200, "messages": [QUESTION]},
                        headers={"anthropic-version": "2023-06-01"})
            assert made["type"] == "message" and made["content"], made
            made = post(port, "/v1/responses", {"model": "paced", "input": QUESTION["content"]})
            assert made["object"] == "response" and made["output"], made
            healthy = json.loads(ask(port, "/health")[2])
            assert healthy["healthy_count"] == 2 and healthy["unhealthy_count"] == 0, healthy


def lose_one(port, lose, model):
    """Eight clients ask while a server is killed. What is answered is right, and in the end all is answered."""
    body = {"model": model, "prompt": "a", "max_tokens": 300, "ignore_eos": True, "temperature": 0}
    texts, failed, lock = set(), [], threading.Lock()

    def client():
        for _ in range(15):
            status, _, text = ask(port, "/v1/completions", body)
            with lock:
                if status == 200:
                    texts.add(json.loads(text)["choices"][0]["text"])
                else:
                    failed.append(status)

    clients = [threading.Thread(target=client) for _ in range(8)]
    for thread in clients:
        thread.start()
    time.sleep(0.5)
    lose()
    assert all(thread.is_alive() for thread in clients), "the load was over before the kill"
    for thread in clients:
        thread.join()
    print(f"  {8 * 15 - len(failed)} of {8 * 15} requests were answered, one of two servers was killed", flush=True)
    assert len(texts) == 1, texts
    assert all(status >= 500 for status in failed), failed
    for _ in range(10):
        post(port, "/v1/completions", body)


def before_two(program, policies, model="paced"):
    """Runs a router before servers; in the end it loses one."""
    def with_router(urls, lose):
        workers = [url.removesuffix("/v1") for url in urls]
        for policy in policies:
            port = free_port()
            command = [*program, "--worker-urls", *workers, "--policy", policy, "--host", "127.0.0.1", "--port",
                       str(port), "--prometheus-port", str(free_port())]
            with running(command, port, "/health"):
                end = time.monotonic() + 60
                while ask(port, "/v1/completions", {"model": model, "prompt": "a", "max_tokens": 1})[0] != 200:
                    assert time.monotonic() < end  # until its workers are known to be healthy
                    time.sleep(0.2)
                chat_loop(port)
                chat_loop(port, streams=True)
                completions(port)
                assert ask(port, "/v1/models")[0] == 200
                if policy == policies[-1]:
                    lose_one(port, lose, model)
    return with_router


NGINX = """
daemon off; pid {folder}/pid; error_log stderr; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u;
  scgi_temp_path {folder}/s;
  upstream llmrt {{ {servers} keepalive 8; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://llmrt; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
      proxy_buffering off;
      proxy_next_upstream error timeout http_503 non_idempotent;
    }}
  }}
}}
"""


def with_nginx(urls, _):
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        servers = " ".join(f"server {url.removesuffix('/v1').removeprefix('http://')};" for url in urls)
        config = pathlib.Path(folder, "nginx.conf")
        config.write_text(NGINX.format(folder=folder, servers=servers, port=port))
        with running(["nginx", "-p", folder, "-e", "stderr", "-c", str(config)], port, "/health"):
            for _ in range(2):
                chat_loop(port)
            chat_loop(port, streams=True)
            completions(port)
            status, head, _ = ask(port, "/v1/models", headers={"x-request-id": "through-nginx"})
            assert status == 200 and head["x-request-id"] == "through-nginx", head
            # A stream comes as it is made, not at its end.
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 300, "ignore_eos": True,
                                                                      "stream": True}), {"Content-Type": "application/json"})
            answer, reads = connection.getresponse(), 0
            while answer.read1(65536):
                reads += 1
            connection.close()
            assert reads > 10, reads


def two_servers(run):
    """`run` with the addresses of a server and of another, and what kills the other."""
    def with_both(url):
        other = ScriptedServer(PROGRAM, CALLS + [LAST], flags=["--metrics-compat", "vllm"])
        try:
            run([url, other.url], other.process.kill)
            if other.process.poll() is None:
                denied = other.stop()
                assert not denied, denied[:3]
        finally:
            other.process.kill()
    return with_both


EDIT = """hello.py
```python
<<<<<<< SEARCH
print("hello")
=======
print("good day")
>>>>>>> REPLACE
```
"""


def with_aider(url):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "hello.py")
        file.write_text('print("hello")\n')
        for edit_format, streams in (("diff", "--stream"), ("diff", "--no-stream")):
            file.write_text('print("hello")\n')
            done = subprocess.run(
                ["aider", "--model", "openai/paced", "--openai-api-base", url, "--openai-api-key", "x", "--edit-format",
                 edit_format, streams, "--yes-always", "--no-git", "--no-show-model-warnings", "--no-check-update",
                 "--no-show-release-notes", "--analytics-disable", "--no-detect-urls", "--map-tokens", "0", "--message",
                 "Be polite.", "hello.py"],
                cwd=folder, capture_output=True, text=True, timeout=240, check=False,
                env={**os.environ, "HOME": folder, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
            assert file.read_text() == 'print("good day")\n', (done.stdout + done.stderr)[-3000:]


CLIENTS = {
    "litellm_proxy": ("litellm", two_servers(with_litellm_proxy), CALLS + [LAST]),
    "sglang_router": ("sglang-router",
                      two_servers(before_two(["sglang-router", "launch"], ["cache_aware", "power_of_two"])),
                      CALLS + [LAST]),
    "vllm_router": ("vllm-router", two_servers(before_two(["vllm-router"], ["cache_aware", "power_of_two"])),
                    CALLS + [LAST]),
    "smg": ("smg", two_servers(before_two(["smg", "launch"], ["cache_aware", "least_load"])), CALLS + [LAST]),
    "nginx": ("nginx", two_servers(with_nginx), CALLS + [LAST]),
    "aider": ("aider", with_aider, [EDIT]),
}


def main():
    failed = skipped = 0
    names = sys.argv[2:] or list(CLIENTS)
    for name in names:
        program, run, answers = CLIENTS[name]
        if not shutil.which(program):
            skipped += 1
            print(f"SKIP {name}: no {program} on the PATH")
            continue
        failed += not passes(PROGRAM, name, run, answers)
    print(f"{failed} failed, {skipped} skipped")
    return 77 if skipped == len(names) else int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
