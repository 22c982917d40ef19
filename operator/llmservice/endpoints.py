"""What the operator answers over HTTP: Prometheus' /metrics, and /healthz and /readyz for the kubelet's probes.

All are answered in the operator's own event loop, so that a scrape never sees a fleet half changed and a loop that hangs is
seen as what it is. They are there from the very start: an operator that waits for its CustomResourceDefinition lives.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

Answer = Callable[[web.Request], Awaitable[web.Response]]


def metrics(registry: CollectorRegistry) -> Answer:
    """Every metric of ``registry`` in Prometheus' text format."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return answer


def probe(lack: Callable[[], Awaitable[str]]) -> Answer:
    """200, or 503 with what ``lack()`` says is missing; an empty string says that nothing is."""

    async def answer(_: web.Request) -> web.Response:
        missing = await lack()
        return web.Response(text=f"{missing or 'ok'}\n", status=503 if missing else 200)

    return answer


@asynccontextmanager
async def serving(address: str, answers: Mapping[str, Answer]) -> AsyncIterator[None]:
    """Serve ``answers`` by path at ``address`` (host:port, or :port for every address; empty: nowhere) within the block.
    Raises OSError if it is taken."""
    if not address:
        yield
        return
    application = web.Application()
    for path, answer in answers.items():
        application.router.add_get(path, answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        host, _, port = address.rpartition(":")
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
        yield
    finally:
        await runner.cleanup()
