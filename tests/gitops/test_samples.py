"""The sample repositories are whole: they build, the API server takes them, and what refers to something finds it."""

from pathlib import Path
from typing import Final

import pytest

from llmservice_testing.cluster import Cluster

from .repository import SAMPLES, build

FLEETS: Final = sorted((SAMPLES).glob("*/fleets/*"))


def named(folder: Path) -> str:
    return str(folder.relative_to(SAMPLES))


@pytest.mark.parametrize("folder", FLEETS, ids=named)
def test_the_api_server_takes_every_field_of_a_fleet(cluster: Cluster, folder: Path) -> None:
    (manifest,) = build(folder)
    path = "/apis/llmservice.io/v1alpha1/namespaces/default/llmservices"
    cluster.request("POST", path, body=manifest, fieldValidation="Strict", dryRun="All")


def test_every_fleet_is_synced_by_somebody() -> None:
    flux = [one["spec"]["path"] for one in build(SAMPLES / "flux" / "clusters" / "production") if "path" in one["spec"]]
    argo = [
        one["spec"]["source"]["path"] for one in build(SAMPLES / "argo-cd" / "applications") if "source" in one["spec"]
    ]
    assert sorted(flux) == sorted(f"./fleets/{folder.name}" for folder in FLEETS if "flux" in folder.parts)
    assert sorted(argo) == sorted(f"fleets/{folder.name}" for folder in FLEETS if "argo-cd" in folder.parts)


def test_both_tools_get_the_same_fleets() -> None:
    def spec(tool: str, pattern: str) -> object:
        return build(SAMPLES / tool / "fleets" / pattern)[0]["spec"]

    for pattern in ("git-owns", "people-own", "git-creates"):
        assert spec("flux", pattern) == spec("argo-cd", pattern)


def test_only_the_pattern_whose_people_own_it_leaves_generation_out() -> None:
    without = {folder.name for folder in FLEETS if "generation" not in build(folder)[0]["spec"]}
    assert without == {"people-own"}
