"""The operator as a process: everything that ``llmservice operator`` starts, and how it ends."""

import asyncio
import gc
import logging
import os
import platform
import signal
import time
from importlib.metadata import version

from llmservice import endpoints
from llmservice.engines.transports import Transports
from llmservice.handlers import Watcher
from llmservice.kube import schema
from llmservice.kube.client import Kubernetes
from llmservice.kube.events import EventRecorder
from llmservice.metrics import Metrics
from llmservice.runtime.environment import Environment
from llmservice.runtime.operator import Operator
from llmservice.settings import OperatorSettings

logger = logging.getLogger(__name__)


def run(settings: OperatorSettings, namespaces: tuple[str, ...] | None) -> None:
    """Until SIGTERM or Ctrl-C. Raises KubernetesError where there is no way to an API server."""
    # A fan-out to a thousand engines makes many objects that live for milliseconds. With Python's thresholds the collector
    # searches the whole heap several times meanwhile, which costs a third of the time (docs/benchmarks.md).
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    asyncio.run(_operate(settings, namespaces))


async def _operate(settings: OperatorSettings, namespaces: tuple[str, ...] | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    kubernetes = await Kubernetes.connect()
    transports = Transports()
    try:
        work = asyncio.create_task(_work(settings, namespaces, kubernetes, transports))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not work.done():
            logger.info("Stopping; engines stay as they are")
            work.cancel()
        await asyncio.gather(work, return_exceptions=stop.is_set())
    finally:
        await transports.aclose()
        await kubernetes.close()


async def _work(
    settings: OperatorSettings, namespaces: tuple[str, ...] | None, kubernetes: Kubernetes, transports: Transports
) -> None:
    metrics = Metrics()
    events = EventRecorder(kubernetes, os.environ.get("POD_NAME", platform.node()))
    environment = Environment(kubernetes, events, transports, metrics, time.monotonic, time.time)
    operator = Operator(environment, namespaces)
    metrics.observe(operator)
    watcher = Watcher(namespaces, on_change=operator.record, on_delete=operator.forget)
    gate = schema.Gate(kubernetes)

    async def lack() -> str:
        return gate.why or ("" if operator.knows_all else "the LLMServices were not listed yet")

    scrape = {"/metrics": endpoints.metrics(metrics.registry)}
    probes = {"/healthz": endpoints.probe(watcher.lack), "/readyz": endpoints.probe(lack)}
    async with (
        endpoints.serving(settings.metrics_address, scrape),
        endpoints.serving(settings.health_address, probes),
        asyncio.TaskGroup() as group,
    ):
        await gate.wait()
        watcher.start()
        served = ", ".join(namespaces) if namespaces is not None else "all"
        logger.info("Started", extra={"version": version("llmservice"), "namespaces": served})
        group.create_task(events.run())
        try:
            await operator.run()
        finally:
            await watcher.stop()
