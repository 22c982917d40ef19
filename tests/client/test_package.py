"""What comes along with the client."""

import subprocess
import sys

import pytest

from llmservice import client
from llmservice.client import AsyncFleet, Fleet, afleet, fleet


def imported_by(statement: str) -> set[str]:
    """The modules of a fresh interpreter after it executed a statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_it_brings_no_operator_along() -> None:
    modules = imported_by("from llmservice.client import fleet, afleet, FleetError")
    unwanted = (
        "kopf",
        "typer",
        "prometheus_client",
        "httpx",
        "llmservice.runtime",
        "llmservice.handlers",
        "llmservice.engines",
    )
    assert [name for name in unwanted if name in modules] == []
    assert "llmservice.client" in modules


def test_it_offers_what_it_says() -> None:
    assert [name for name in client.__all__ if not hasattr(client, name)] == []
    assert (fleet, afleet) == (Fleet, AsyncFleet)


@pytest.mark.parametrize("make", [Fleet, AsyncFleet])
def test_what_cannot_be_a_name_is_refused_at_once(make: type[Fleet] | type[AsyncFleet]) -> None:
    for name in ("", "a/b", "../pods", "Qwen", "a?b"):
        with pytest.raises(ValueError, match="got"):
            make(name)
        with pytest.raises(ValueError, match="got"):
            make("qwen", namespace=name)
    for manager in ("", "x" * 129, "a\nb"):
        with pytest.raises(ValueError, match="manager"):
            make("qwen", manager=manager)


def test_a_mode_that_there_is_not_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="freeze"):
        fleet("qwen").paused("freeze")  # type: ignore[arg-type]


def test_a_block_is_used_once() -> None:
    with pytest.raises(RuntimeError, match="not entered"):
        fleet("qwen").paused().__exit__(None, None, None)
