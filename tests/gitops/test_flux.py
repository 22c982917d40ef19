"""Who owns `spec.generation` under Flux: its own code applies the samples, and a person patches with kubectl."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.fleet import Fleet, Kubectl
from llmservice_testing.gitops import GitOps, GitOpsError
from llmservice_testing.simulator import Fault, Options

from .repository import in_namespace, llmservice

IGNORE_GENERATION = ("/spec/generation",)


class Flux:
    """A Kustomization that reconciles one LLMService into the test's namespace."""

    def __init__(self, gitops: GitOps, fleet: Fleet) -> None:
        self._gitops = gitops
        self._fleet = fleet

    def sync(self, manifest: Json, *, ignore: Sequence[str] = (), override_managers: Sequence[str] = ()) -> str:
        """One reconciliation; says what was done."""
        manifests = [in_namespace(manifest, self._fleet.namespace)]
        done = self._gitops.flux_apply(manifests, ignore=ignore, override_managers=override_managers)
        return done[manifest["metadata"]["name"]]

    def wait(self, manifest: Json, *, timeout: float = 30) -> None:
        """Waits as `wait: true` does."""
        self._gitops.flux_wait([in_namespace(manifest, self._fleet.namespace)], timeout=timeout)


@pytest.fixture
def flux(gitops: GitOps, fleet: Fleet) -> Flux:
    """Flux, with a fleet of two engines."""
    fleet.grow(2)
    return Flux(gitops, fleet)


def patch(kubectl: Kubectl, generation: str, *flags: str) -> None:
    """What a person types."""
    words = json.dumps({"spec": {"generation": generation}})
    kubectl("patch", "llmservice", "qwen", "--type=merge", f"--patch={words}", *flags)


def generation(fleet: Fleet) -> str | None:
    """What the object asks for."""
    found: str | None = fleet.get()["spec"].get("generation")
    return found


def settled(fleet: Fleet, *, paused: bool) -> bool:
    """Whether all engines came to be so, once the operator is done."""
    fleet.wait("Paused", "True" if paused else "False")
    return all(engine.paused is paused for engine in fleet.engines)


# Git owns it


def test_what_git_says_is_enforced_against_a_patch_by_hand(flux: Flux, fleet: Fleet, kubectl: Kubectl) -> None:
    manifest = llmservice("flux", "git-owns")
    assert flux.sync(manifest) == "created"
    assert settled(fleet, paused=False)
    patch(kubectl, "paused")
    assert settled(fleet, paused=True)
    assert flux.sync(manifest) == "configured"
    assert generation(fleet) == "running"
    assert settled(fleet, paused=False)


def test_a_commit_pauses_and_a_sync_without_one_writes_nothing(flux: Flux, fleet: Fleet) -> None:
    flux.sync(llmservice("flux", "git-owns"))
    assert flux.sync(llmservice("flux", "git-owns", generation="paused")) == "configured"
    assert settled(fleet, paused=True)
    before = fleet.get()["metadata"]["resourceVersion"]
    assert flux.sync(llmservice("flux", "git-owns", generation="paused")) == "unchanged"
    assert fleet.get()["metadata"]["resourceVersion"] == before


def test_a_commit_that_changes_what_is_immutable_fails_in_words_and_changes_nothing(flux: Flux, fleet: Fleet) -> None:
    flux.sync(llmservice("flux", "git-owns"))
    with pytest.raises(GitOpsError, match="delete this LLMService and create another"):
        flux.sync(llmservice("flux", "git-owns", selector={"matchLabels": {"app": "other"}}, generation="paused"))
    assert generation(fleet) == "running"


@pytest.mark.parametrize("flag", ["--field-manager=flux-client-side-apply", "--field-manager=trainer"])
def test_no_field_manager_and_no_merge_protects_a_patch_from_what_git_says(
    flux: Flux, fleet: Fleet, kubectl: Kubectl, flag: str
) -> None:
    manifest = llmservice("flux", "people-own", generation="running")  # with the annotation ssa: Merge
    flux.sync(manifest)
    patch(kubectl, "paused", flag)
    assert flux.sync(manifest) == "configured"
    assert generation(fleet) == "running"


def test_a_label_that_git_drops_is_dropped_also_after_the_operator_has_written_its_status(
    flux: Flux, fleet: Fleet
) -> None:
    """The operator's writes must leave it to Flux which labels and annotations are Flux's."""
    manifest = llmservice("flux", "git-owns")
    manifest["metadata"]["labels"] = {"team": "chat"}
    manifest["metadata"]["annotations"] = {"example.com/note": "x"}
    flux.sync(manifest)
    assert settled(fleet, paused=False)
    assert flux.sync(llmservice("flux", "git-owns")) == "configured"
    metadata = fleet.get()["metadata"]
    assert "team" not in metadata["labels"]
    assert "example.com/note" not in metadata.get("annotations", {})


# The trap


def without_merge() -> Json:
    """`spec.generation` is not in git, and that is all that was thought of."""
    manifest = llmservice("flux", "people-own")
    del manifest["metadata"]["annotations"]
    return manifest


def test_trap_flux_removes_what_kubectl_has_set_though_git_does_not_say_it(
    flux: Flux, fleet: Fleet, kubectl: Kubectl
) -> None:
    flux.sync(without_merge())
    patch(kubectl, "paused")
    assert settled(fleet, paused=True)
    flux.sync(without_merge())
    assert generation(fleet) is None
    service = fleet.wait("Ready", reason="Observing")
    assert fleet.all_paused()  # nobody resumes them, and the status says so
    assert "2 targets paused, and nobody will resume them" in service["status"]["conditions"][0]["message"]


def test_trap_any_field_manager_that_begins_with_kubectl_falls_into_it(
    flux: Flux, fleet: Fleet, kubectl: Kubectl
) -> None:
    flux.sync(without_merge())
    patch(kubectl, "paused", "--field-manager=kubectl-hold")
    flux.sync(without_merge())
    assert generation(fleet) is None


def test_trap_ignoring_the_field_does_not_help_where_git_does_not_have_it(
    flux: Flux, fleet: Fleet, kubectl: Kubectl
) -> None:
    flux.sync(without_merge(), ignore=IGNORE_GENERATION)
    patch(kubectl, "paused")
    flux.sync(without_merge(), ignore=IGNORE_GENERATION)
    assert generation(fleet) is None


def test_trap_a_verify_annotation_by_kubectl_goes_with_the_next_sync_and_its_answer_stays(
    flux: Flux, fleet: Fleet, kubectl: Kubectl
) -> None:
    flux.sync(without_merge())
    kubectl("annotate", "llmservice", "qwen", "llmservice.io/verify-requested-at=step-1")
    fleet.wait_for(lambda status: status.get("lastHandledVerify") == "step-1", "the answer")
    flux.sync(without_merge())
    assert "llmservice.io/verify-requested-at" not in fleet.get()["metadata"].get("annotations", {})
    fleet.let_pass(2)
    assert fleet.status()["lastHandledVerify"] == "step-1"


# The ways out


def test_way_out_merge_leaves_what_kubectl_has_set_and_git_goes_on_to_own_the_rest(
    flux: Flux, fleet: Fleet, kubectl: Kubectl
) -> None:
    flux.sync(llmservice("flux", "people-own"))
    patch(kubectl, "paused")
    assert flux.sync(llmservice("flux", "people-own")) == "unchanged"
    assert flux.sync(llmservice("flux", "people-own", maxPausedSeconds=7200)) == "configured"
    assert generation(fleet) == "paused"
    assert fleet.get()["spec"]["maxPausedSeconds"] == 7200
    assert settled(fleet, paused=True)
    patch(kubectl, "running")
    flux.sync(llmservice("flux", "people-own", maxPausedSeconds=7200))
    assert settled(fleet, paused=False)


@pytest.mark.parametrize("name", ["flux-client-side-apply", "nightly-hold"])
def test_way_out_a_field_manager_of_another_name(flux: Flux, fleet: Fleet, kubectl: Kubectl, name: str) -> None:
    flux.sync(without_merge())
    patch(kubectl, "paused", f"--field-manager={name}")
    assert flux.sync(without_merge()) == "unchanged"
    assert generation(fleet) == "paused"


def test_way_out_a_verify_annotation_under_another_name(flux: Flux, fleet: Fleet, kubectl: Kubectl) -> None:
    flux.sync(without_merge())
    kubectl("annotate", "llmservice", "qwen", "llmservice.io/verify-requested-at=step-1", "--field-manager=trainer")
    fleet.wait_for(lambda status: status.get("lastHandledVerify") == "step-1", "the answer")
    assert flux.sync(without_merge()) == "unchanged"
    assert fleet.get()["metadata"]["annotations"]["llmservice.io/verify-requested-at"] == "step-1"


def test_way_out_a_trainer_that_calls_the_api_itself_is_left_alone(flux: Flux, fleet: Fleet) -> None:
    flux.sync(without_merge())
    fleet.want("paused")
    assert flux.sync(without_merge()) == "unchanged"
    assert generation(fleet) == "paused"
    (owner,) = [
        entry["manager"]
        for entry in fleet.get()["metadata"]["managedFields"]
        if "f:generation" in entry["fieldsV1"].get("f:spec", {})
    ]
    assert not owner.startswith("kubectl")


def test_a_manager_that_flux_is_told_to_override_is_treated_as_kubectl(flux: Flux, fleet: Fleet) -> None:
    flux.sync(without_merge())
    fleet.want("paused")
    flux.sync(without_merge(), override_managers=["python-httpx"])
    assert generation(fleet) is None


def test_way_out_git_creates_it_and_ignores_it_from_then_on(flux: Flux, fleet: Fleet, kubectl: Kubectl) -> None:
    manifest = llmservice("flux", "git-creates")
    flux.sync(manifest, ignore=IGNORE_GENERATION)
    assert settled(fleet, paused=False)
    patch(kubectl, "paused")
    for _ in range(2):
        flux.sync(manifest, ignore=IGNORE_GENERATION)
        assert generation(fleet) == "paused"
    assert flux.sync(llmservice("flux", "git-creates", maxPausedSeconds=7200), ignore=IGNORE_GENERATION) == "configured"
    assert (generation(fleet), fleet.get()["spec"]["maxPausedSeconds"]) == ("paused", 7200)
    fleet.want("running")
    flux.sync(llmservice("flux", "git-creates", generation="paused"), ignore=IGNORE_GENERATION)
    assert settled(fleet, paused=False)  # a commit that changes it has no effect


def test_if_not_present_leaves_everything_of_the_object_alone(flux: Flux, fleet: Fleet, kubectl: Kubectl) -> None:
    def manifest(max_paused: int | None = None) -> Json:
        made = llmservice("flux", "git-creates", maxPausedSeconds=max_paused)
        made["metadata"]["annotations"] = {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}
        return made

    assert flux.sync(manifest()) == "created"
    patch(kubectl, "paused")
    assert flux.sync(manifest(max_paused=7200)) == "skipped"
    assert generation(fleet) == "paused"
    assert "maxPausedSeconds" not in fleet.get()["spec"]


def test_a_person_can_keep_flux_away_for_a_while(flux: Flux, fleet: Fleet, kubectl: Kubectl) -> None:
    manifest = llmservice("flux", "git-owns")
    flux.sync(manifest)
    kubectl("annotate", "llmservice", "qwen", "kustomize.toolkit.fluxcd.io/reconcile=disabled")
    patch(kubectl, "paused")
    assert flux.sync(manifest) == "skipped"
    assert settled(fleet, paused=True)
    kubectl("annotate", "llmservice", "qwen", "kustomize.toolkit.fluxcd.io/reconcile-")
    assert flux.sync(manifest) == "configured"
    assert settled(fleet, paused=False)


# From one owner to another


def test_taken_out_of_git_the_field_goes_and_the_engines_are_left_as_they_are(flux: Flux, fleet: Fleet) -> None:
    flux.sync(llmservice("flux", "people-own", generation="paused"))
    assert settled(fleet, paused=True)
    flux.sync(llmservice("flux", "people-own"))
    assert generation(fleet) is None
    fleet.wait("Ready", reason="Observing")
    fleet.let_pass(2)
    assert fleet.all_paused()


def test_who_claims_the_same_value_first_keeps_it_when_git_lets_go(
    flux: Flux, fleet: Fleet, kubectl: Kubectl, tmp_path: Path
) -> None:
    flux.sync(llmservice("flux", "people-own", generation="paused"))
    assert settled(fleet, paused=True)
    before = fleet.get()["metadata"]["generation"]
    claim = tmp_path / "claim.yaml"
    claim.write_text(
        "apiVersion: llmservice.io/v1alpha1\nkind: LLMService\nmetadata: {name: qwen}\nspec: {generation: paused}\n"
    )
    kubectl("apply", "--server-side", "--field-manager=people", f"--filename={claim}")
    flux.sync(llmservice("flux", "people-own"))
    assert generation(fleet) == "paused"
    assert fleet.get()["metadata"]["generation"] == before  # nothing had changed, so no engine was called


# Waiting


def test_wait_is_over_when_every_engine_is_paused_in_truth_and_not_before(flux: Flux, fleet: Fleet) -> None:
    flux.sync(llmservice("flux", "git-owns"))
    flux.wait(llmservice("flux", "git-owns"))
    for engine in fleet.engines:
        engine.faults.script("/pause", Fault.slow(before=1.0))
    paused = llmservice("flux", "git-owns", generation="paused")
    flux.sync(paused)
    flux.wait(paused)
    assert fleet.all_paused()


def test_wait_fails_at_once_where_a_person_is_needed_and_says_so(flux: Flux, fleet: Fleet) -> None:
    broken = fleet.add(options=Options(dev_mode=False))
    manifest = llmservice("flux", "git-owns", generation="paused")
    flux.sync(manifest)
    with pytest.raises(GitOpsError, match="failed early due to stalled resources") as failure:
        flux.wait(manifest)
    assert f"LLMService/{fleet.namespace}/qwen status: 'Failed'" in str(failure.value)
    assert broken.name in fleet.wait("Stalled")["status"]["conditions"][0]["message"]


def test_wait_goes_on_while_an_engine_does_not_answer(flux: Flux, fleet: Fleet) -> None:
    fleet.add(start=False)
    manifest = llmservice("flux", "git-owns", generation="paused")
    flux.sync(manifest)
    fleet.wait("Ready", "False", "TargetsUnreachable")
    with pytest.raises(GitOpsError, match=r"timeout waiting for.*InProgress"):
        flux.wait(manifest, timeout=2)
    (late,) = [member for member in fleet.members if not member.engine.is_up]
    late.engine.start()
    flux.wait(manifest)
    assert fleet.all_paused()
