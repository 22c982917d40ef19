"""SkyRL's client in a process of its own: `trainer_child.py FOLDER`, where FOLDER holds the package.

The first line of standard input is a JSON list of engine URLs, answered with `{}`; each further one is `pause` or `resume`,
answered with `{"wall": seconds, "cpu": seconds}` once the client says that it is done. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import typing

import typing_extensions


async def serve(folder: str) -> None:
    sys.path.insert(0, folder)
    # SkyRL asks for Python 3.12 because pydantic wants its TypedDict; this is the same one.
    typing.TypedDict = typing_extensions.TypedDict
    from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import (  # type: ignore[import-not-found]
        RemoteInferenceClient,
    )

    urls = json.loads(await _line())
    client = RemoteInferenceClient(proxy_url=urls[0], server_urls=urls, data_parallel_size=1)
    print("{}", flush=True)
    while action := (await _line()).strip():
        began, used = time.perf_counter(), time.process_time()
        if action == "pause":
            await client.pause("abort", clear_cache=True)
        else:
            await client.resume()
        print(json.dumps({"wall": time.perf_counter() - began, "cpu": time.process_time() - used}), flush=True)
    await client.teardown()


async def _line() -> str:
    return await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
