"""The overlays and the chart install the same objects."""

import copy

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.helm import Helm
from llmservice_testing.manifests import MANIFESTS, kustomize

_OF_HELM = {"helm.sh/chart", "helm.sh/resource-policy", "app.kubernetes.io/managed-by"}
"""Labels and annotations that say who installed it."""

OVERLAYS: dict[str, Json] = {
    "cluster": {},
    "namespaced": {"namespaces": ["models"]},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
}
"""For each overlay, the values that say the same."""


def normalised(objects: list[Json]) -> dict[tuple[str, str, str], Json]:
    """By kind, namespace and name; without what says who installed them, and without the namespace, which helm makes
    itself (--create-namespace) and does not label."""
    found: dict[tuple[str, str, str], Json] = {}
    for one in copy.deepcopy(objects):
        if one["kind"] == "Namespace":
            continue
        metadata: Json = one["metadata"]
        for kind in ("labels", "annotations"):
            kept = {key: value for key, value in metadata.get(kind, {}).items() if key not in _OF_HELM}
            metadata[kind] = kept
        key = (one["kind"], metadata.get("namespace", ""), metadata["name"])
        assert key not in found, f"{key} is there twice"
        found[key] = one
    return found


def test_every_overlay_is_compared() -> None:
    assert {path.name for path in (MANIFESTS / "overlays").iterdir()} == set(OVERLAYS)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_and_the_chart_install_the_same(overlay: str, helm: Helm) -> None:
    ours = normalised(kustomize(MANIFESTS / "overlays" / overlay))
    theirs = normalised(helm.template(OVERLAYS[overlay]))
    assert theirs.keys() == ours.keys()
    for key, one in ours.items():
        assert theirs[key] == one, key
