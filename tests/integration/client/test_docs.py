"""Every Python block of docs/sdk.md runs, and its Role is enough for them."""

import re
import signal
from pathlib import Path

import pytest
import yaml

from llmservice.client import errors
from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import Fleet, allow

PAGE = (Path(__file__).parents[3] / "docs" / "sdk.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def rights() -> list[Json]:
    (role,) = (yaml.safe_load(block) for block in blocks("yaml"))
    found: list[Json] = role["rules"]
    return found


@pytest.fixture
def as_documented(
    control_plane: ControlPlane, cluster: Cluster, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> Fleet:
    """A fleet of two, and an environment that leads to it with the documented rights."""
    fleet.grow(2)
    fleet.declare("running")
    token = cluster.service_account_token(fleet.namespace, "trainer")
    allow(cluster, fleet.namespace, f"system:serviceaccount:{fleet.namespace}:trainer", rights())
    path = control_plane.user_kubeconfig(f"docs-{fleet.namespace}", token=token, namespace=fleet.namespace)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return fleet


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("block", blocks("python"))
def test_what_the_page_shows_works(as_documented: Fleet, block: str) -> None:
    loaded: list[str] = []

    def load_weights(url: str) -> None:
        assert as_documented.all_paused()
        loaded.append(url)

    before = signal.getsignal(signal.SIGTERM)
    try:
        exec(compile(block, "docs/sdk.md", "exec"), {"load_weights": load_weights, "__name__": "page"})
    finally:
        signal.signal(signal.SIGTERM, before)
    if "load_weights" in block:
        assert set(loaded) == {engine.url for engine in as_documented.engines}
    assert not any(engine.paused for engine in as_documented.engines)


def test_the_page_draws_the_tree_that_the_module_draws() -> None:
    lines = [line.strip() for line in (errors.__doc__ or "").splitlines() if "Error " in line and "  " in line]
    assert len(lines) > 10
    for line in lines[:11]:
        assert line in PAGE
