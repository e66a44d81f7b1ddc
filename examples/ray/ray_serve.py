#!/usr/bin/env python3
"""Several llmrt processes behind one address, as a Ray Serve application.

    ray_serve.py --model model.gguf --replicas 4 [--gpus-per-replica 1] [--port 8000] [-- flags of llmrt serve]

Each replica starts an llmrt process of its own; /v1/* is passed through, streams as they come. Ray Serve sends a
request to the less busy of two replicas. It replaces a replica whose process has ended or whose /health is no longer
200, and on SIGTERM or Ctrl-C it lets answers under way end first.
"""

import argparse
import asyncio
import signal
import threading

import aiohttp
import ray
from ray import serve
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

import worker

# Of this connection, not of what is sent over it.
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}


def passed(headers):
    return {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}


class Llmrt:
    def __init__(self, program, model, flags, start_s, grace_s):
        self.worker = worker.Worker(program, model, ["--grace", str(grace_s), *flags], start_s)
        self.grace_s = grace_s
        self.session = None

    async def __call__(self, request: Request):
        if self.session is None:
            # As they came: compressed bodies stay so.
            self.session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(self.worker.socket, limit=0),
                                                 timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False)
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        try:
            upstream = await self.session.request(request.method, f"http://localhost{path}", data=await request.body(),
                                                  headers=passed(request.headers))
        except ClientDisconnect:
            return Response(status_code=499)
        except aiohttp.ClientError as error:
            return JSONResponse({"error": {"message": f"the worker is gone: {error}", "type": "server_error",
                                           "param": None, "code": "worker_gone"}}, status_code=502)

        async def pieces():
            try:
                async for piece in upstream.content.iter_any():
                    yield piece
            finally:
                upstream.close()  # the client has gone: llmrt computes no further

        return StreamingResponse(pieces(), status_code=upstream.status, headers=passed(upstream.headers))

    async def check_health(self):
        """Of Ray Serve: raises where this replica should be replaced."""
        status = await asyncio.to_thread(self.worker.status, "/health")
        if status != 200:
            raise RuntimeError(f"llmrt's /health: {status}")

    def __del__(self):  # called when no request is under way
        self.worker.stop(self.grace_s + 5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="as llmrt serve takes it; a path on every node")
    parser.add_argument("--program", default="llmrt", help="llmrt, on every node")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--gpus-per-replica", type=float, default=0, help="that Ray reserves, and shows to llmrt alone")
    parser.add_argument("--cpus-per-replica", type=float, default=1)
    parser.add_argument("--in-flight", type=int, default=256, help="requests that a replica has at a time; others wait")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--grace", type=int, default=30, help="seconds that answers under way have at the end")
    parser.add_argument("--start-s", type=float, default=600, help="seconds that a replica may take to load the model")
    parser.add_argument("flags", nargs="*", metavar="FLAG", help="behind --: more flags of llmrt serve")
    options = parser.parse_args()
    ray.cloudpickle.register_pickle_by_value(worker)  # so that other nodes need no copy of it
    serve.start(http_options={"host": options.host, "port": options.port})
    deployment = serve.deployment(
        Llmrt, num_replicas=options.replicas, max_ongoing_requests=options.in_flight,
        health_check_period_s=5, health_check_timeout_s=30, graceful_shutdown_timeout_s=options.grace,
        ray_actor_options={"num_cpus": options.cpus_per_replica, "num_gpus": options.gpus_per_replica})
    serve.run(deployment.bind(options.program, options.model, options.flags, options.start_s, options.grace),
              name="llmrt", route_prefix="/v1")
    print(f"serving http://{options.host}:{options.port}/v1", flush=True)
    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_over.set())
    is_over.wait()
    serve.delete("llmrt")  # its replicas end when their answers are over; shutdown() alone would cut the connections
    serve.shutdown()


if __name__ == "__main__":
    main()
