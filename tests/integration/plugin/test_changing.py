"""`kubectl llm pause` and `resume`: what they bring about, and how they end when it cannot be."""

import shlex
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import PATIENCE_SECONDS, Fleet, Kubectl, allow
from llmservice_testing.simulator import Fault, Options

from .conftest import KubectlPlugin, Plugin

OK, USAGE, TIMED_OUT, NEEDS_PERSON, CHANGED, NOT_FOUND, REFUSED, UNAVAILABLE, INTERRUPTED = 0, 2, 3, 4, 5, 6, 7, 8, 130


def spec_of(fleet: Fleet) -> object:
    """What of an object counts as a change of what is wanted."""
    return fleet.get()["spec"]


# With an operator


@pytest.mark.usefixtures("operator")
def test_pause_ends_when_every_engine_is_paused_and_resume_when_every_engine_runs(fleet: Fleet, llm: Plugin) -> None:
    fleet.grow(3)
    fleet.declare("running")
    said = llm.ok("pause", "qwen", "--mode=keep", "--keep-cache")
    assert fleet.all_paused()
    assert said == "llmservice.llmservice.io/qwen paused: 3 targets confirmed, mode keep, clearCache false\n"
    assert {call.query for call in fleet.posts()} == {"mode=keep&clear_cache=false"}
    said = llm.ok("resume", "qwen")
    assert not any(engine.paused for engine in fleet.engines)
    assert said == "llmservice.llmservice.io/qwen resumed: 3 targets confirmed\n"


@pytest.mark.usefixtures("operator")
def test_a_fleet_that_is_paused_already_is_read_afresh_before_that_is_said(fleet: Fleet, llm: Plugin) -> None:
    fleet.paused(2, resyncSeconds=3600)
    before = fleet.get()["metadata"]["generation"]
    fleet.engines[0].resume()  # the status still says that it is paused
    said = llm.ok("pause", "qwen")
    assert fleet.all_paused()
    assert "paused already: 2 targets confirmed" in said
    assert fleet.get()["metadata"]["generation"] == before


@pytest.mark.usefixtures("operator")
def test_several_fleets_are_changed_at_once_by_name_by_selector_and_all(
    make_fleet: Callable[..., Fleet], llm: Plugin
) -> None:
    fleets = {name: make_fleet(name=name) for name in ("red", "green", "blue")}
    for fleet in fleets.values():
        fleet.add()
        fleet.declare("running")
    for name in ("red", "blue"):
        fleet = fleets[name]
        fleet.cluster.patch_llmservice(fleet.namespace, name, {"metadata": {"labels": {"team": "a"}}})

    assert llm.ok("pause", "-l", "team=a", "-o", "name").split() == [
        "llmservice.llmservice.io/blue",
        "llmservice.llmservice.io/red",
    ]
    assert {name: fleet.all_paused() for name, fleet in fleets.items()} == {"red": True, "blue": True, "green": False}
    llm.ok("resume", "llmservice.llmservice.io/red", "blue")
    assert not any(fleet.all_paused() for fleet in fleets.values())
    llm.ok("pause", "--all")
    assert all(fleet.all_paused() for fleet in fleets.values())


@pytest.mark.usefixtures("operator")
def test_what_is_stalled_ends_with_4_and_says_what_stands_and_how_to_undo_it(fleet: Fleet, llm: Plugin) -> None:
    fleet.add()
    fleet.add(options=Options(dev_mode=False))
    fleet.declare("running")
    done = llm("pause", "qwen")
    assert done.status == NEEDS_PERSON
    assert "Stalled, EndpointMissing: qwen-1" in done.errors
    assert "spec.generation was set to paused, it was running before" in done.errors
    assert f"kubectl llm resume qwen -n {fleet.namespace}" in done.errors
    assert done.output == ""


@pytest.mark.usefixtures("operator")
def test_another_mode_than_that_of_the_present_pause_ends_with_5_and_calls_nobody(fleet: Fleet, llm: Plugin) -> None:
    fleet.paused(1)
    before = spec_of(fleet)
    done = llm("pause", "qwen", "--mode=keep")
    assert done.status == CHANGED
    assert "paused with mode abort already, and mode keep was asked for" in done.errors
    assert spec_of(fleet) == before


@pytest.mark.usefixtures("operator")
def test_of_several_each_has_its_end_and_the_status_is_that_of_the_failure(fleet: Fleet, llm: Plugin) -> None:
    fleet.add()
    fleet.declare("running")
    done = llm("pause", "qwen", "missing")
    assert done.status == NOT_FOUND
    assert "qwen paused" in done.output
    assert "missing: there is no such LLMService" in done.errors
    assert fleet.all_paused()


@pytest.mark.usefixtures("operator")
def test_progress_goes_to_standard_error_and_quiet_leaves_it_out(fleet: Fleet, llm: Plugin) -> None:
    member = fleet.add()
    fleet.declare("running")
    member.engine.faults.script("/pause", Fault.slow(before=1.0))
    done = llm("pause", "qwen")
    assert f"{fleet.namespace}/qwen: waiting for paused: " in done.errors
    assert "waiting" not in done.output
    member.engine.faults.script("/resume", Fault.slow(before=1.0))
    assert llm("resume", "qwen", "--quiet").errors == ""


@pytest.mark.usefixtures("operator")
def test_ctrl_c_says_what_was_changed_how_it_was_last_seen_and_how_to_undo_it(
    fleet: Fleet, kubectl_llm: KubectlPlugin
) -> None:
    member = fleet.add()
    fleet.declare("running")
    fleet.wait("Ready")
    member.engine.faults.script("/pause", Fault.slow(before=PATIENCE_SECONDS))
    running = kubectl_llm.start("pause", "qwen")
    fleet.wait_for_targets(total=1, pausing=1)
    done = running.interrupt()
    said = done.errors
    assert done.status == INTERRUPTED
    assert "Interrupted." in said
    assert f"{fleet.namespace}/qwen: spec.generation was set to paused, it was running before" in said
    assert "last seen: 1 pausing of 1" in said
    assert f"to undo it: kubectl llm resume qwen -n {fleet.namespace}\n" in said
    assert "Traceback" not in said


# Without one


@pytest.mark.usefixtures("without_operator")
def test_what_nobody_confirms_ends_with_3_and_the_undo_that_it_names_restores_the_spec(
    fleet: Fleet, llm: Plugin, kubectl: Kubectl
) -> None:
    fleet.declare()
    before = spec_of(fleet)
    done = llm("pause", "qwen", "--mode=keep", "--keep-cache", "--timeout=0.5")
    assert done.status == TIMED_OUT
    assert "the operator did not answer to this change" in done.errors
    assert "it was absent before" in done.errors
    assert spec_of(fleet) != before
    undo = done.errors.partition("to undo it: ")[2].splitlines()[0]
    program, *words = shlex.split(undo)
    assert program == "kubectl"
    kubectl(*words)
    assert spec_of(fleet) == before


@pytest.mark.usefixtures("without_operator")
def test_no_wait_ends_as_soon_as_it_is_stored(fleet: Fleet, llm: Plugin) -> None:
    fleet.declare("running")
    assert llm.ok("pause", "qwen", "--no-wait") == "llmservice.llmservice.io/qwen pause requested\n"
    assert fleet.get()["spec"]["generation"] == "paused"
    assert llm.ok("pause", "qwen", "--no-wait").endswith("paused already; fresh read requested\n")
    assert llm.ok("resume", "qwen", "--no-wait") == "llmservice.llmservice.io/qwen resume requested\n"
    assert fleet.get()["spec"]["generation"] == "running"


@pytest.mark.usefixtures("without_operator")
@pytest.mark.parametrize("by", ["client", "server"])
def test_a_dry_run_says_what_would_be_and_changes_nothing(fleet: Fleet, llm: Plugin, by: str) -> None:
    fleet.declare("running")
    before = fleet.get()
    assert llm.ok("pause", "qwen", f"--dry-run={by}") == f"llmservice.llmservice.io/qwen paused ({by} dry run)\n"
    would_be = yaml.safe_load(llm.ok("pause", "qwen", "--mode=wait", f"--dry-run={by}", "-o", "yaml"))
    assert (would_be["spec"]["generation"], would_be["spec"]["pause"]["mode"]) == ("paused", "wait")
    assert llm.ok("resume", "qwen", f"--dry-run={by}").endswith(f"unchanged ({by} dry run)\n")
    assert fleet.get() == before


@pytest.mark.usefixtures("without_operator")
def test_who_changes_it_meanwhile_is_named_and_it_ends_with_5(fleet: Fleet, llm: Plugin) -> None:
    fleet.declare("running")

    def interfere() -> None:
        wait_until(
            lambda: fleet.get()["spec"]["generation"] == "paused", PATIENCE_SECONDS, what="the pause being stored"
        )
        path = f"/apis/llmservice.io/v1alpha1/namespaces/{fleet.namespace}/llmservices/qwen"
        fleet.cluster.request(
            "PATCH",
            path,
            body={"spec": {"generation": "running"}},
            content_type="application/merge-patch+json",
            fieldManager="another",
        )

    other = threading.Thread(target=interfere)
    other.start()
    done = llm("pause", "qwen", f"--timeout={PATIENCE_SECONDS:g}s")
    other.join()
    assert done.status == CHANGED
    assert "spec.generation was changed by another meanwhile, and is running now" in done.errors


@pytest.mark.usefixtures("without_operator")
def test_the_field_manager_is_the_plugin_unless_another_is_named(fleet: Fleet, llm: Plugin) -> None:
    fleet.declare("running")
    llm.ok("pause", "qwen", "--no-wait")
    assert "kubectl-llm, " in llm.ok("status", "qwen")
    llm.ok("resume", "qwen", "--no-wait", "--field-manager=nightly")
    said = llm.ok("status", "qwen")
    assert "nightly, " in said
    assert "kubectl-llm" not in said


@pytest.mark.usefixtures("without_operator")
def test_several_objects_are_a_list_and_one_is_itself(make_fleet: Callable[..., Fleet], llm: Plugin) -> None:
    for name in ("one", "two"):
        make_fleet(name=name).declare("running")
    listed = yaml.safe_load(llm.ok("pause", "--all", "--no-wait", "-o", "yaml"))
    assert (listed["kind"], [item["metadata"]["name"] for item in listed["items"]]) == ("List", ["one", "two"])
    alone = yaml.safe_load(llm.ok("pause", "one", "--no-wait", "-o", "json"))
    assert (alone["kind"], alone["spec"]["generation"]) == ("LLMService", "paused")
    assert "managedFields" not in alone["metadata"]


def test_what_is_not_there_ends_with_6(fleet: Fleet, llm: Plugin) -> None:
    assert llm("pause", "qwen").status == NOT_FOUND
    nothing = llm("pause", "--all")
    assert (nothing.status, nothing.output) == (NOT_FOUND, "")
    assert f"no LLMService is there in namespace {fleet.namespace}" in nothing.errors
    assert llm("resume", "-l", "team=a").status == NOT_FOUND


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["pause"], "say which fleets"),
        (["pause", "qwen", "--all"], "only one of them"),
        (["pause", "qwen", "-A"], "name qwen with its namespace"),
        (["pause", "qwen", "--timeout=soon"], "must be a duration such as 90s, 5m or 1h30m, got 'soon'"),
        (["pause", "qwen", "--mode=gently"], "gently"),
        (["pause", "pod/qwen"], "'pod' is not an LLMService"),
        (["status", "-w", "-o", "json"], "cannot be watched"),
        (["doctor", "qwen", "-o", "wide"], "got -o wide"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_is_right(llm: Plugin, words: list[str], says: str) -> None:
    done = llm(*words)
    assert done.status == USAGE
    assert says in " ".join(done.errors.split())


def test_missing_rights_end_with_7_and_nothing_is_changed(
    fleet: Fleet, make_llm: Callable[..., Plugin], control_plane: ControlPlane, cluster: Cluster
) -> None:
    fleet.declare("running")
    nobody = make_llm(control_plane.user_kubeconfig("nobody"))
    assert nobody("pause", "qwen").status == REFUSED
    view = {"apiGroups": ["llmservice.io"], "resources": ["llmservices"], "verbs": ["get", "list", "watch"]}
    allow(cluster, fleet.namespace, "nobody", [view])
    assert nobody.ok("status", "qwen")
    done = nobody("pause", "qwen")
    assert done.status == REFUSED
    assert 'cannot patch resource "llmservices"' in done.errors
    assert fleet.get()["spec"]["generation"] == "running"


@pytest.mark.usefixtures("operator")
def test_rights_on_one_object_are_enough_for_it(
    fleet: Fleet, make_llm: Callable[..., Plugin], control_plane: ControlPlane, cluster: Cluster
) -> None:
    fleet.add()
    fleet.declare("running")
    verbs = ["get", "list", "watch", "patch"]
    rule = {"apiGroups": ["llmservice.io"], "resources": ["llmservices"], "resourceNames": ["qwen"], "verbs": verbs}
    allow(cluster, fleet.namespace, "nobody", [rule])
    nobody = make_llm(control_plane.user_kubeconfig("nobody"))
    assert "qwen" in nobody.ok("status", "qwen")
    nobody.ok("pause", "qwen")
    assert fleet.all_paused()
    assert nobody("status").status == REFUSED


def test_no_api_server_ends_with_8_and_says_so(llm: Plugin, make_llm: Callable[..., Plugin], tmp_path: Path) -> None:
    done = make_llm(tmp_path / "none")("status")
    assert done.status == UNAVAILABLE
    assert f"there is no file {tmp_path / 'none'}" in done.errors
    config = yaml.safe_load(llm.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "away").write_text(yaml.safe_dump(config))
    away = make_llm(tmp_path / "away")
    assert away("status").status == UNAVAILABLE
    done = away("pause", "qwen", "--timeout=1s")
    assert done.status == UNAVAILABLE
    assert "the API server gave no usable answer" in done.errors


def test_a_context_that_does_not_exist_is_named(llm: Plugin) -> None:
    done = llm("status", "--context=nowhere")
    assert done.status == UNAVAILABLE
    assert "nowhere" in done.errors
