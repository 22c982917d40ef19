"""Completion, by a shell or by kubectl. What cannot be looked up quickly is not offered, and nothing is said about it."""

import asyncio
import contextlib
import io
import os
import sys
from collections.abc import Coroutine
from typing import Any

import typer

from llmservice.plugin.options import Where

_LOOK_SECONDS = 3.0
_NO_FILES = ":4"
"""What kubectl (cobra) takes as: offer no names of files."""


def fleets(ctx: typer.Context) -> list[str]:
    """The names of the LLMServices that may be meant."""
    given = ctx.params
    where = Where(given.get("kubeconfig"), given.get("context"), given.get("namespace"), False)
    named = set(given.get("names") or ())
    return [name for name in _looked_up(_names(where, None)) if name not in named]


def namespaces(ctx: typer.Context) -> list[str]:
    """The namespaces of the cluster."""
    where = Where(ctx.params.get("kubeconfig"), ctx.params.get("context"))
    return _looked_up(_names(where, "/api/v1/namespaces"))


def contexts(ctx: typer.Context) -> list[str]:
    """The contexts of the kubeconfig."""
    from kubernetes.aio.config import ConfigException, list_kube_config_contexts

    with contextlib.suppress(ConfigException, OSError):
        found, _ = list_kube_config_contexts(ctx.params.get("kubeconfig"))  # type: ignore[no-untyped-call]
        return [str(each["name"]) for each in found]
    return []


def main() -> None:
    """``kubectl_complete-llm``: kubectl runs it with the words after ``kubectl llm``, the last of them unfinished."""
    from llmservice.plugin.app import app

    os.environ["_KUBECTL_LLM_COMPLETE"] = (
        "complete_fish"  # a line for each, with its help after a tab: as kubectl wants it
    )
    os.environ["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    os.environ["_TYPER_COMPLETE_ARGS"] = " ".join(["kubectl-llm", *sys.argv[1:]])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        app(prog_name="kubectl-llm", args=[])
    typer.echo(printed.getvalue(), nl=False)
    typer.echo(_NO_FILES)


def _looked_up(names: Coroutine[Any, Any, list[str]]) -> list[str]:
    from llmservice.client.errors import FleetError
    from llmservice.kube.client import KubernetesError

    async def bounded() -> list[str]:
        async with asyncio.timeout(_LOOK_SECONDS):
            return await names

    with contextlib.suppress(FleetError, KubernetesError, TimeoutError):
        return asyncio.run(bounded())
    return []


async def _names(where: Where, path: str | None) -> list[str]:
    from llmservice.plugin.connection import connected

    async with connected(where) as cluster:
        items, _ = await cluster.kubernetes.list(path or cluster.collection)
    return sorted(str(item["metadata"]["name"]) for item in items)
