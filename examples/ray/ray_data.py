#!/usr/bin/env python3
"""Answers a file of requests with several llmrt workers on a Ray cluster.

    ray_data.py IN.jsonl OUT.jsonl --model model.gguf --workers 4 [--gpus-per-worker 1] [-- flags of llmrt serve]

Lines are those of OpenAI's Batch API, as `llmrt batch` reads and writes them (docs/batch.md). IN may be a folder, or a
path that Ray Data reads (s3://...); OUT is a file here. Each actor starts an llmrt process of its own. If that process
dies, Ray starts the actor again and redoes the lines that it had. Each custom_id is written once; a run that was
stopped goes on with the same command.
"""

import argparse
import asyncio
import json
import os
import sys

import aiohttp
import ray

import worker

CALLS = 4  # tasks of an actor at a time: while one waits for its longest answer the others keep the device busy


class Answers:
    """An actor: lines to answers, but for those that are answered already."""

    def __init__(self, done, program, model, flags, start_s):
        self.done = ray.get(done)
        self.worker = worker.Worker(program, model, flags, start_s)

    def __call__(self, batch):
        lines = [json.loads(text) for text in batch["text"]]
        answers = asyncio.run(self.answer_all([line for line in lines if line["custom_id"] not in self.done]))
        return {"custom_id": [line["custom_id"] for line in answers], "line": [json.dumps(line) for line in answers]}

    def __del__(self):  # at the end of the data
        self.worker.stop()

    async def answer_all(self, lines):
        connector = aiohttp.UnixConnector(self.worker.socket, limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
            return await asyncio.gather(*(self.answer(session, line) for line in lines))

    async def answer(self, session, line):
        path = line.get("url", "/v1/chat/completions")
        while True:
            try:
                async with session.post(f"http://localhost{path}", json=line["body"],
                                        headers={"x-request-class": "batch"}) as reply:
                    text = await reply.text()
                    if reply.status in (429, 503):  # no room now
                        await asyncio.sleep(float(reply.headers.get("Retry-After", 1)))
                        continue
            except aiohttp.ClientError:
                # The process died, and this one ends with it; or it closed the connection, and is asked again.
                await asyncio.sleep(0.5)
                continue
            return {"custom_id": line["custom_id"], "error": None,
                    "response": {"status_code": reply.status, "body": json.loads(text)}}


def answered(path):
    """The custom ids that are in OUT; a line that was being written when a run was stopped is cut off."""
    if not os.path.exists(path):
        return set()
    with open(path, "rb+") as file:
        data = file.read()
        end = data.rfind(b"\n") + 1
        file.truncate(end)
    return {json.loads(line)["custom_id"] for line in data[:end].splitlines()}


def run(options):
    """Answers what OUT lacks. How many answers came, and how many were written."""
    done = answered(options.output)
    # A block is what is redone when a worker dies.
    lines = ray.data.read_text(options.input).repartition(target_num_rows_per_block=max(1, options.in_flight // CALLS))
    answers = lines.map_batches(
        Answers, batch_size=None, num_gpus=options.gpus_per_worker, num_cpus=options.cpus_per_worker,
        fn_constructor_args=(ray.put(done), options.program, options.model, options.flags, options.start_s),
        compute=ray.data.ActorPoolStrategy(size=options.workers, max_concurrent_calls_per_actor=CALLS,
                                           max_tasks_in_flight_per_actor=CALLS + 1, enable_true_multi_threading=True))
    came = written = 0
    with open(options.output, "a", encoding="utf-8") as file:
        for answer in answers.iter_rows():
            came += 1
            if answer["custom_id"] in done:  # the same id twice in IN, or a task that Ray has run twice
                continue
            done.add(answer["custom_id"])
            file.write(answer["line"] + "\n")
            file.flush()
            written += 1
    return came, written


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", metavar="IN")
    parser.add_argument("output", metavar="OUT")
    parser.add_argument("--model", required=True, help="as llmrt serve takes it; a path on every node")
    parser.add_argument("--program", default="llmrt", help="llmrt, on every node")
    parser.add_argument("--workers", type=int, default=1, help="llmrt processes in the cluster")
    parser.add_argument("--gpus-per-worker", type=float, default=0, help="that Ray reserves, and shows to llmrt alone")
    parser.add_argument("--cpus-per-worker", type=float, default=1)
    parser.add_argument("--in-flight", type=int, default=256, help="requests that a worker has at a time")
    parser.add_argument("--start-s", type=float, default=600, help="seconds that a worker may take to load the model")
    parser.add_argument("flags", nargs="*", metavar="FLAG", help="behind --: more flags of llmrt serve")
    options = parser.parse_args()
    ray.cloudpickle.register_pickle_by_value(worker)  # so that other nodes need no copy of it
    ray.init(log_to_driver=False)
    came, written = run(options)
    print(f"{written} answers written, {came - written} came twice", file=sys.stderr)


if __name__ == "__main__":
    main()
