"""Prometheus' /metrics, answered in the operator's own event loop, so that a scrape never sees a fleet half changed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from llmservice.metrics import Metrics


@asynccontextmanager
async def serving(metrics: Metrics, address: str) -> AsyncIterator[None]:
    """Serve ``metrics`` at ``address`` (host:port; empty: nowhere) within the block. Raises OSError if it is taken."""
    if not address:
        yield
        return

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/metrics", scrape)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        host, _, port = address.rpartition(":")
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        yield
    finally:
        await runner.cleanup()
