"""The command ``llmservice``: the operator, and the commands of ``kubectl llm``.

What runs the operator is imported when it runs, as it takes seconds to import.
"""

from importlib.metadata import version
from typing import Annotated

import typer
from pydantic import ValidationError

from llmservice import logs
from llmservice.plugin.app import app as plugin

app = typer.Typer(
    name="llmservice",
    help="Pause and resume token generation on fleets of LLM engines, declared in Kubernetes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(plugin)  # llmservice pause, and so on


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
    from llmservice import operating
    from llmservice.kube.client import KubernetesError
    from llmservice.settings import OperatorSettings

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
    try:
        operating.run(settings, tuple(namespace) if namespace else None)
    except KubernetesError as error:
        typer.echo(f"llmservice: {error}", err=True)
        raise typer.Exit(1) from error


@app.command("crd")
def print_crd() -> None:
    """Print the CustomResourceDefinition, for kubectl apply --server-side -f -."""
    from llmservice import crd

    typer.echo(crd.to_yaml(), nl=False)


@app.command("version")
def print_version() -> None:
    """Print the version."""
    typer.echo(version("llmservice"))
