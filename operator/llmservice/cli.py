"""The command ``llmservice``."""

import asyncio
import gc
import logging
import os
import platform
import signal
import time
from importlib.metadata import version
from typing import Annotated

import typer
from pydantic import ValidationError

from llmservice import crd, endpoints, logs
from llmservice.engines.transports import Transports
from llmservice.handlers import Watcher
from llmservice.kube import schema
from llmservice.kube.client import Kubernetes, KubernetesError
from llmservice.kube.events import EventRecorder
from llmservice.metrics import Metrics
from llmservice.runtime.environment import Environment
from llmservice.runtime.operator import Operator
from llmservice.settings import OperatorSettings

logger = logging.getLogger(__name__)

app = typer.Typer(
    name="llmservice",
    help="Pause and resume token generation on fleets of LLM engines, declared in Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.command("operator")
def run_operator(
    namespace: Annotated[
        list[str] | None, typer.Option(help="Serve the LLMServices of this namespace. Repeat it for several.")
    ] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", help="Serve all namespaces.")] = False,
    log_format: Annotated[logs.LogFormat | None, typer.Option(help="Default text.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR. Default INFO.")] = None,
    metrics_address: Annotated[
        str | None, typer.Option(help="host:port of /metrics, or empty for none. Default :9090, on every address.")
    ] = None,
    health_address: Annotated[
        str | None,
        typer.Option(help="host:port of /healthz and /readyz, or empty for none. Default :8080, on every address."),
    ] = None,
) -> None:
    """Run the operator until it is told to stop (SIGTERM or Ctrl-C).

    It reaches the API server by its pod's service account, or by KUBECONFIG. What has a default can be given as an
    environment variable, too: LLMSERVICE_LOG_FORMAT and so on.
    """
    if bool(namespace) == all_namespaces:
        raise typer.BadParameter("give either --namespace NAME (repeat it for several) or --all-namespaces")
    flags = {
        "log_format": log_format,
        "log_level": log_level.upper() if log_level is not None else None,
        "metrics_address": metrics_address,
        "health_address": health_address,
    }
    try:
        settings = OperatorSettings(**{name: value for name, value in flags.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        option = "--" + str(first["loc"][0]).replace("_", "-")
        raise typer.BadParameter(f"{first['msg']}, got {first['input']!r}", param_hint=option) from error
    logs.configure(settings.log_format, settings.log_level)
    # A fan-out to a thousand engines makes many objects that live for milliseconds. With Python's thresholds the collector
    # searches the whole heap several times meanwhile, which costs a third of the time (docs/benchmarks.md).
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    try:
        asyncio.run(_operate(settings, tuple(namespace) if namespace else None))
    except KubernetesError as error:
        typer.echo(f"llmservice: {error}", err=True)
        raise typer.Exit(1) from error


@app.command("crd")
def print_crd() -> None:
    """Print the CustomResourceDefinition, for kubectl apply --server-side -f -."""
    typer.echo(crd.to_yaml(), nl=False)


@app.command("version")
def print_version() -> None:
    """Print the version."""
    typer.echo(version("llmservice"))


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
