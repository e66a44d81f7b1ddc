"""/v1/files and /v1/batches as OpenAI's own client uses them, beside live traffic, over kill -9, and under attack.

    batches_test.py PACED_SERVER

Needs openai.
"""

import collections
import io
import json
import os
import re
import signal
import socket
import sys
import tempfile
import time

import openai

from hostile_client import MIB, Server, request_bytes

PROGRAM = sys.argv[1]
KEYS = "alice key-of-alice-0123456789\nbob key-of-bob-0123456789\nslow key-of-slow-0123456789 tokens-per-minute=60\n"


class Running:
    """A server on a folder that outlives it."""

    def __init__(self, folder, *flags):
        self.server = Server(PROGRAM, "--files-dir", os.path.join(folder, "files"), "--batch-in-flight", "8", *flags)

    def client(self, key="key-of-alice-0123456789"):
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key=key, max_retries=0, timeout=60)

    def kill(self):
        self.server.process.send_signal(signal.SIGKILL)
        self.server.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.server.is_up():
            self.server.process.send_signal(signal.SIGTERM)
            assert self.server.process.wait(timeout=30) == 0, self.server.log()[-2000:]
        assert not self.server.new_errors(), self.server.log()[-2000:]


def line(custom_id, url="/v1/completions", **body):
    body = {"model": "paced", "prompt": f"request {custom_id}", "max_tokens": 8, "seed": 1} | body
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}) + "\n"


def send(client, text, name="in.jsonl"):
    return client.files.create(file=(name, io.BytesIO(text.encode())), purpose="batch")


def create(client, file, endpoint="/v1/completions", **fields):
    return client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **fields)


def wait(client, batch, is_it=None, limit_s=60):
    is_it = is_it or (lambda now: now.status in ("completed", "failed", "expired", "cancelled"))
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        now = client.batches.retrieve(batch.id)
        if is_it(now):
            return now
        time.sleep(0.05)
    raise AssertionError(f"not within {limit_s} s: {now}")


def answers(client, file_id):
    return [json.loads(text) for text in client.files.content(file_id).text.splitlines()]


def refused(error, call):
    try:
        call()
    except error as found:
        return found
    raise AssertionError(f"expected {error.__name__}")


def check_life(run):
    """A batch from the file to the answers, and what each object says."""
    client = run.client()
    text = "".join(line(f"r{i}") for i in range(30)) + line("last", prompt="x") + line("bad", max_tokens=-5)
    file = send(client, text)
    assert (file.object, file.purpose, file.status, file.filename) == ("file", "batch", "processed", "in.jsonl")
    assert file.bytes == len(text) and abs(file.created_at - time.time()) < 60
    assert client.files.content(file.id).text == text
    batch = create(client, file, metadata={"night": "yes"})
    assert batch.object == "batch" and batch.status == "validating" and batch.completion_window == "24h"
    assert batch.expires_at == batch.created_at + 86400 and batch.metadata == {"night": "yes"}
    refused(openai.BadRequestError, lambda: client.files.delete(file.id))
    # Somebody who reads along is served meanwhile.
    live = client.chat.completions.create(model="paced", messages=[{"role": "user", "content": "hi"}], max_tokens=3,
                                          extra_body={"ignore_eos": True})
    assert live.usage.completion_tokens == 3
    done = wait(client, batch)
    assert done.status == "completed" and done.errors is None, done
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (32, 31, 1)
    assert done.created_at <= done.in_progress_at <= done.finalizing_at <= done.completed_at
    output = answers(client, done.output_file_id)
    assert sorted(each["custom_id"] for each in output) == sorted([f"r{i}" for i in range(30)] + ["last"])
    alone = client.completions.create(model="paced", prompt="request r7", max_tokens=8, seed=1)
    of_seven = next(each for each in output if each["custom_id"] == "r7")["response"]
    assert of_seven["status_code"] == 200 and of_seven["body"]["choices"][0]["text"] == alone.choices[0].text
    [bad] = answers(client, done.error_file_id)
    assert bad["custom_id"] == "bad" and bad["response"]["status_code"] == 400
    assert bad["response"]["body"]["error"]["param"] == "max_tokens"
    produced = client.files.retrieve(done.output_file_id)
    assert produced.purpose == "batch_output" and produced.bytes > 0
    assert client.files.delete(file.id).deleted
    refused(openai.NotFoundError, lambda: client.files.content(file.id))


def check_lists(run):
    client = run.client()
    files = [send(client, line("a"), name=f"{i}.jsonl") for i in range(5)]
    found = [file.id for file in client.files.list(limit=2, purpose="batch")]  # page by page
    assert found[:5] == [file.id for file in reversed(files)], found
    assert [file.filename for file in client.files.list(order="asc") if file in files] == [f"{i}.jsonl" for i in range(5)]
    made = [create(client, file) for file in files]
    assert [batch.id for batch in client.batches.list(limit=2)][:5] == [batch.id for batch in reversed(made)]
    page = client.batches.list(limit=1, after=made[2].id)
    assert [batch.id for batch in page.data] == [made[1].id] and page.has_more
    for batch in made:
        assert wait(client, batch).status == "completed"
    assert "limit" in str(refused(openai.BadRequestError, lambda: client.batches.list(limit=101)))
    refused(openai.BadRequestError, lambda: client.batches.list(after="batch_none"))


def check_refusals(run):
    client = run.client()
    refused(openai.BadRequestError, lambda: client.files.create(file=io.BytesIO(b"x"), purpose="fine-tune"))
    file = send(client, line("a") + "{\n" + line("a") + line("b", url="/v1/chat/completions"))
    assert "endpoint" in str(refused(openai.BadRequestError, lambda: create(client, file, "/v1/embeddings")))
    failed = wait(client, create(client, file))
    assert failed.status == "failed" and failed.failed_at and not failed.output_file_id
    told = [(error.line, error.code) for error in failed.errors.data]
    assert told == [(2, "invalid_json_line"), (3, "duplicate_custom_id"), (4, "invalid_url")], told
    refused(openai.BadRequestError, lambda: client.batches.cancel(failed.id))
    for wrong in ("..%2f..%2fetc%2fpasswd", "lock", "file-" + "0" * 32, "%00", failed.id):
        refused(openai.NotFoundError, lambda: client.files.retrieve(wrong))
    refused(openai.NotFoundError, lambda: client.batches.retrieve(file.id))


def check_cancel(run):
    client = run.client()
    file = send(client, "".join(line(f"r{i}", max_tokens=40) for i in range(400)))
    batch = create(client, file)
    wait(client, batch, lambda now: now.request_counts.completed >= 10)
    assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    done = wait(client, batch)
    assert done.status == "cancelled" and done.cancelling_at <= done.cancelled_at
    assert 10 <= done.request_counts.completed < 400
    assert len(answers(client, done.output_file_id)) == done.request_counts.completed


def check_keys(run):
    """A key sees only what is its own, and its limit holds for batches, too."""
    alice, bob = run.client(), run.client("key-of-bob-0123456789")
    file = send(alice, line("a"))
    batch = create(alice, file)
    assert wait(alice, batch).status == "completed"
    refused(openai.AuthenticationError, lambda: run.client("no-such-key").files.list())
    for call in (lambda: bob.files.retrieve(file.id), lambda: bob.files.content(file.id),
                 lambda: bob.files.delete(file.id), lambda: bob.batches.retrieve(batch.id),
                 lambda: bob.batches.cancel(batch.id), lambda: create(bob, file)):
        refused(openai.NotFoundError, call)
    assert not bob.files.list().data and not bob.batches.list().data
    assert alice.files.retrieve(file.id).id == file.id
    slow = run.client("key-of-slow-0123456789")
    create(slow, send(slow, "".join(line(f"r{i}", ignore_eos=True) for i in range(60))))
    assert wait(alice, create(alice, send(alice, "".join(line(f"r{i}") for i in range(20))))).status == "completed"
    assert tokens_of(run, "slow") < 60 + 8 * 40, "a minute's worth and what was in flight"


def tokens_of(run, key):
    """Prompt and answer tokens that the key was charged for."""
    text = run.server.get("/metrics", headers=["x-api-key: key-of-alice-0123456789"]).body.decode()
    rows = re.findall(rf'^llmrt_key_(?:prompt|generated)_tokens_total{{[^}}]*"{key}"[^}}]*}} (\S+)', text, re.M)
    assert len(rows) == 2, text
    return sum(map(float, rows))


def check_restart(folder):
    """kill -9 in the middle, twice: no line is lost, none is answered twice, and files are what they were."""
    total = 600
    with Running(folder, "--step-ms", "3") as run:
        client = run.client()
        file = send(client, "".join(line(f"r{i}", max_tokens=24, ignore_eos=True) for i in range(total)))
        batch = create(client, file, metadata={"a": "b"})
        wait(client, batch, lambda now: now.request_counts.completed >= 40)
        run.kill()
    with Running(folder, "--step-ms", "3") as run:
        client = run.client()
        wait(client, batch, lambda now: now.request_counts.completed >= 120)
        run.kill()
    with Running(folder, "--step-ms", "3") as run:
        client = run.client()
        # SIGTERM, too: lines under way end, then it goes on another time.
        wait(client, batch, lambda now: now.request_counts.completed >= 200)
    with Running(folder, "--step-ms", "3") as run:
        client = run.client()
        done = wait(client, batch)
        assert done.status == "completed" and done.metadata == {"a": "b"}, done
        assert (done.request_counts.completed, done.request_counts.failed) == (total, 0), done
        ids = collections.Counter(each["custom_id"] for each in answers(client, done.output_file_id))
        assert len(ids) == total and set(ids.values()) == {1}
        assert client.files.retrieve(file.id).bytes == file.bytes


SANITIZED = bool(os.environ.get("LLMRT_PROGRAM_SANITIZED"))


def check_memory(run):
    """A file of 35 MiB passes in both directions, and the server does not hold it."""
    client = run.client()
    filler = "x" * (7 * MIB)
    text = "".join(line(f"r{i}", user=filler) for i in range(5))
    before, _ = run.server.memory_mib()
    run.server.forget_peak()
    file = send(client, text)
    assert len(client.files.content(file.id).content) == file.bytes == len(text)
    _, peak = run.server.memory_mib()
    # A sanitizer keeps what has been freed.
    assert SANITIZED or peak < before + 24, f"{before:.0f} -> {peak:.0f} MiB for a file of {file.bytes / MIB:.0f} MiB"
    client.files.delete(file.id)
    full = refused(openai.APIStatusError, lambda: send(client, text * 2))
    assert full.status_code == 413, full
    # Nothing is left of it, once its connection has ended.
    for tries_left in range(50, -1, -1):
        try:
            assert client.files.create(file=("a", text.encode()), purpose="batch").bytes == len(text)
            break
        except openai.APIStatusError as error:
            assert error.status_code == 413 and tries_left, error
            time.sleep(0.1)


def check_attacks(run):
    """Bodies that are no uploads: each is refused with a plain error, and leaves nothing."""
    server = run.server
    key = ["x-api-key: key-of-alice-0123456789"]
    head = '--b\r\nContent-Disposition: form-data; name="{}"{}\r\n\r\n'
    good = (head.format("purpose", "") + "batch\r\n" + head.format("file", '; filename="a"') + "{}\n\r\n").encode()
    rows = [
        ("multipart/form-data; boundary=b", b"", 400),
        ("multipart/form-data; boundary=b", good, 400),
        ("multipart/form-data; boundary=b", good + b"--b-", 400),
        ("multipart/form-data; boundary=" + "b" * 71, good + b"--b--", 415),
        ("multipart/form-data", good + b"--b--", 415),
        ("application/json", b"{}", 415),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"a: b\r\n" * 5000, 400),
        ("multipart/form-data; boundary=b", good * 40 + b"--b--", 400),
        ("multipart/form-data; boundary=b", b"\r\n--b" * 100000, 400),
        ("multipart/form-data; boundary=b", b"-" * MIB, 400),
        ("multipart/form-data; boundary=b", good.replace(b"batch", b"b" * 100000) + b"--b--", 400),
    ]
    before = set(os.listdir(run.folder))
    for content_type, body, status in rows:
        answer = server_exchange(server, request_bytes("/v1/files", body, headers=key, content_type=content_type))
        assert answer.startswith(b"HTTP/1.1 %d " % status), (content_type, body[:80], answer[:200])
    origin = request_bytes("/v1/files", good + b"--b--", headers=key + ["Origin: http://evil.example"],
                           content_type="multipart/form-data; boundary=b")
    assert server_exchange(server, origin).startswith(b"HTTP/1.1 403 ")
    # What a refused body has left goes when its connection ends, maybe behind the answer.
    for _ in range(100):
        if set(os.listdir(run.folder)) <= before:
            break
        time.sleep(0.05)
    assert set(os.listdir(run.folder)) <= before
    accepted = server_exchange(server, request_bytes("/v1/files", good + b"--b--", headers=key,
                                                     content_type='Multipart/Form-Data; Boundary="b"'))
    assert accepted.startswith(b"HTTP/1.1 200 "), accepted


def server_exchange(server, data):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        try:
            connection.sendall(data)
        except OSError:
            pass
        received = b""
        while b"\r\n\r\n" not in received and (more := connection.recv(65536)):
            received += more
        return received


def main():
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        keys = os.path.join(folder, "keys")
        with open(keys, "w", encoding="utf-8") as file:
            file.write(KEYS)
        with Running(folder, "--api-key-file", keys, "--files-mib", "60", "--step-ms", "2") as run:
            run.folder = os.path.join(folder, "files")
            for check in (check_life, check_lists, check_refusals, check_cancel, check_keys, check_memory, check_attacks):
                check(run)
                print(f"{check.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        check_restart(folder)
    print(f"check_restart: {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
