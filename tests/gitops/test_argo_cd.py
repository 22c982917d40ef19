"""Who owns `spec.generation` under Argo CD, and what its buttons and its waves do.

Argo CD applies with kubectl's own code, client-side or (with ServerSideApply=true) server-side, under the field manager
argocd-controller; so does this.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Kubectl
from llmservice_testing.gitops import Interpreter
from llmservice_testing.simulator import Fault

from .argo_cd import DISCOVERY, HEALTH, action
from .repository import llmservice

Sync = Callable[[Json], None]


@pytest.fixture(params=["client-side", "server-side"])
def sync(request: pytest.FixtureRequest, fleet: Fleet, kubectl: Kubectl, tmp_path: Path) -> Sync:
    """A sync of one LLMService, with a fleet of two engines, in either way."""
    return syncing(fleet, kubectl, tmp_path, server_side=request.param == "server-side")


@pytest.fixture
def default_sync(fleet: Fleet, kubectl: Kubectl, tmp_path: Path) -> Sync:
    """As Argo CD does it where nothing else is asked for."""
    return syncing(fleet, kubectl, tmp_path, server_side=False)


def syncing(fleet: Fleet, kubectl: Kubectl, folder: Path, *, server_side: bool) -> Sync:
    fleet.grow(2)
    flags = ["--server-side", "--force-conflicts"] if server_side else []

    def apply(manifest: Json) -> None:
        file = folder / "manifest.json"
        file.write_text(json.dumps(manifest))
        kubectl("apply", "--field-manager=argocd-controller", *flags, f"--filename={file}")

    return apply


def patch(kubectl: Kubectl, generation: str) -> None:
    """What a person types."""
    words = json.dumps({"spec": {"generation": generation}})
    kubectl("patch", "llmservice", "qwen", "--type=merge", f"--patch={words}")


def press(fleet: Fleet, interpreter: Interpreter, name: str) -> Json:
    """A resource action, as argocd-server does it: the script, and a merge patch of what it changed."""
    live = fleet.get()
    assert not interpreter.run(DISCOVERY, live)[name]["disabled"]
    return fleet.patch(generation=interpreter.run(action(name), live)["spec"]["generation"])


def generation(fleet: Fleet) -> str | None:
    """What the object asks for."""
    found: str | None = fleet.get()["spec"].get("generation")
    return found


def settled(fleet: Fleet, *, paused: bool) -> bool:
    """Whether all engines came to be so, once the operator is done."""
    fleet.wait("Paused", "True" if paused else "False")
    return all(engine.paused is paused for engine in fleet.engines)


def test_what_git_says_is_enforced_against_a_patch_by_hand(sync: Sync, fleet: Fleet, kubectl: Kubectl) -> None:
    sync(llmservice("argo-cd", "git-owns"))
    assert settled(fleet, paused=False)
    patch(kubectl, "paused")
    assert settled(fleet, paused=True)
    sync(llmservice("argo-cd", "git-owns"))
    assert settled(fleet, paused=False)


def test_what_git_does_not_say_is_left_to_people_and_the_rest_stays_gits(
    sync: Sync, fleet: Fleet, kubectl: Kubectl
) -> None:
    sync(llmservice("argo-cd", "people-own"))
    patch(kubectl, "paused")
    sync(llmservice("argo-cd", "people-own", maxPausedSeconds=7200))
    assert fleet.get()["spec"]["maxPausedSeconds"] == 7200
    assert settled(fleet, paused=True)
    fleet.want("running")  # a trainer, through the API
    sync(llmservice("argo-cd", "people-own", maxPausedSeconds=7200))
    assert settled(fleet, paused=False)


def test_taken_out_of_git_the_field_goes_and_the_engines_are_left_as_they_are(sync: Sync, fleet: Fleet) -> None:
    sync(llmservice("argo-cd", "people-own", generation="paused"))
    assert settled(fleet, paused=True)
    sync(llmservice("argo-cd", "people-own"))
    assert generation(fleet) is None
    service = fleet.wait("Ready", reason="Observing")
    assert "2 targets paused, and nobody will resume them" in service["status"]["conditions"][0]["message"]
    fleet.let_pass(2)
    assert fleet.all_paused()


def test_a_label_that_git_drops_is_dropped_also_after_the_operator_has_written_its_status(
    sync: Sync, fleet: Fleet
) -> None:
    manifest = llmservice("argo-cd", "git-owns")
    manifest["metadata"]["labels"] = {"team": "chat"}
    sync(manifest)
    assert settled(fleet, paused=False)
    sync(llmservice("argo-cd", "git-owns"))
    assert "team" not in fleet.get()["metadata"].get("labels", {})


def test_a_difference_that_is_respected_stays_and_the_rest_is_gits(sync: Sync, fleet: Fleet, kubectl: Kubectl) -> None:
    """With RespectIgnoreDifferences=true Argo CD puts the live value into what it applies."""

    def respectful(manifest: Json) -> Json:
        return {**manifest, "spec": {**manifest["spec"], "generation": generation(fleet)}}

    sync(llmservice("argo-cd", "git-creates"))
    assert settled(fleet, paused=False)
    patch(kubectl, "paused")
    sync(respectful(llmservice("argo-cd", "git-creates", maxPausedSeconds=7200)))
    assert fleet.get()["spec"]["maxPausedSeconds"] == 7200
    assert settled(fleet, paused=True)


def test_the_buttons_pause_and_resume_and_a_sync_leaves_that_where_git_does_not_say(
    default_sync: Sync, fleet: Fleet, interpreter: Interpreter
) -> None:
    default_sync(llmservice("argo-cd", "people-own"))
    for name, paused in (("pause", True), ("resume", False)):
        press(fleet, interpreter, name)
        default_sync(llmservice("argo-cd", "people-own"))
        assert settled(fleet, paused=paused)


def test_a_wave_goes_on_only_when_every_engine_is_paused_in_truth(
    default_sync: Sync, fleet: Fleet, interpreter: Interpreter
) -> None:
    """Argo CD starts the next wave when the health of this one is Healthy, and polls it until then."""
    default_sync(llmservice("argo-cd", "git-owns"))
    assert settled(fleet, paused=False)
    fleet.engines[0].faults.script("/pause", Fault.slow(before=1.0))
    default_sync(llmservice("argo-cd", "git-owns", generation="paused"))
    seen: list[str] = []

    def is_healthy() -> bool:
        seen.append(interpreter.run(HEALTH, fleet.get())["status"])
        return seen[-1] == "Healthy"

    wait_until(is_healthy, PATIENCE_SECONDS, what="the wave being healthy")
    assert fleet.all_paused()
    assert set(seen[:-1]) == {"Progressing"}
