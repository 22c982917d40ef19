"""What a user types, and what is answered."""

import json

import pytest

from llmservice_testing.fleet import Fleet, Kubectl
from llmservice_testing.simulator import Options

STRUCTURES = (
    "llmservices",
    "llmservices.spec",
    "llmservices.spec.selector",
    "llmservices.spec.selector.matchExpressions",
    "llmservices.spec.engine",
    "llmservices.spec.engine.tls",
    "llmservices.spec.pause",
    "llmservices.status",
    "llmservices.status.targets",
    "llmservices.status.targetStates",
    "llmservices.status.lastPause",
    "llmservices.status.conditions",
)


def table(text: str) -> list[dict[str, str]]:
    """Rows by column; an empty cell shifts nothing, because columns begin where their title does."""
    head, *rows = text.splitlines()
    titles = head.split()
    starts = [head.index(title) for title in titles]
    ends = [*starts[1:], None]
    return [
        {title: row[start:end].strip() for title, start, end in zip(titles, starts, ends, strict=True)} for row in rows
    ]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_explain_describes_every_field(fleet: Fleet, kubectl: Kubectl, structure: str) -> None:
    text = kubectl("explain", structure).stdout
    # apiVersion, kind and metadata are described by Kubernetes itself.
    assert "<no description>" not in text
    assert "<empty>" not in text


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("generation", ("paused", "running", "Removing it", "No default")),
        ("resyncSeconds", ("Seconds", "Default 10")),
        ("pause.mode", ("abort", "wait", "keep", "Default abort")),
        ("engine.ports", ("Default [8000]", "Immutable")),
    ],
)
def test_explain_says_what_a_field_does(fleet: Fleet, kubectl: Kubectl, field: str, words: tuple[str, ...]) -> None:
    text = " ".join(kubectl("explain", f"llmservices.spec.{field}").stdout.split())
    assert [word for word in words if word not in text] == []


@pytest.mark.usefixtures("operator")
def test_get_shows_the_columns(fleet: Fleet, kubectl: Kubectl) -> None:
    fleet.add(ready=False, start=False)
    fleet.paused(2)
    titles = ["NAME", "DESIRED", "PAUSED", "READY", "TARGETS", "PAUSEDTARGETS", "AGE"]
    (row,) = table(kubectl("get", "llms").stdout)
    assert list(row) == titles
    assert {title: row[title] for title in titles[:-1]} == {
        "NAME": "qwen",
        "DESIRED": "paused",
        "PAUSED": "true",
        "READY": "True",
        "TARGETS": "3",
        "PAUSEDTARGETS": "2",
    }
    (wide,) = table(kubectl("get", "llms", "-o", "wide").stdout)
    assert wide["REASON"] == "InDesiredState"
    assert kubectl("get", "llm").stdout.split()[7] == "qwen"  # the category
    assert kubectl("get", "llmservices.llmservice.io", "-o", "name").stdout.strip() == "llmservice.llmservice.io/qwen"


@pytest.mark.usefixtures("operator")
def test_describe_shows_conditions_and_events(fleet: Fleet, kubectl: Kubectl) -> None:
    fleet.paused(2)
    fleet.wait_for_event("Paused")
    text = kubectl("describe", "llmservice", "qwen").stdout
    assert "InDesiredState" in text
    assert "PauseStarted" in text


@pytest.mark.usefixtures("operator")
def test_wait_is_safe_right_after_a_patch(fleet: Fleet, kubectl: Kubectl) -> None:
    """The condition of the old generation does not count: kubectl looks at observedGeneration."""
    fleet.paused(3)
    for generation, condition, paused in (
        ("running", "Paused=False", False),
        ("paused", "Paused", True),
        ("running", "Paused=False", False),
    ):
        kubectl("patch", "llmservice", "qwen", "--type=merge", "-p", json.dumps({"spec": {"generation": generation}}))
        kubectl("wait", "llmservice/qwen", f"--for=condition={condition}", "--timeout=60s")
        assert {engine.paused for engine in fleet.engines} == {paused}


@pytest.mark.usefixtures("operator")
def test_wait_for_stalled_tells_a_script_that_a_person_is_needed(fleet: Fleet, kubectl: Kubectl) -> None:
    fleet.add(options=Options(dev_mode=False))
    fleet.declare("paused")
    kubectl("wait", "llmservice/qwen", "--for=condition=Stalled", "--timeout=60s")
    waited = kubectl("wait", "llmservice/qwen", "--for=condition=Paused", "--timeout=1s", check=False)
    assert waited.returncode != 0


def test_a_bad_patch_is_refused_in_words(fleet: Fleet, kubectl: Kubectl) -> None:
    fleet.declare()
    refused = kubectl("patch", "llmservice", "qwen", "--type=merge", "-p", '{"spec":{"generation":"off"}}', check=False)
    assert refused.returncode != 0
    assert "spec.generation" in refused.stderr
    assert '"off"' in refused.stderr


@pytest.mark.usefixtures("operator")
def test_apply_and_edit_of_the_whole_object_work(fleet: Fleet, kubectl: Kubectl) -> None:
    """What `kubectl get -o yaml` gives can be put back: neither defaults nor status hinder it."""
    fleet.paused(1)
    service = json.loads(kubectl("get", "llmservice", "qwen", "-o", "json").stdout)
    service["spec"]["generation"] = "running"
    replaced = fleet.cluster.request(
        "PUT", f"/apis/llmservice.io/v1alpha1/namespaces/{fleet.namespace}/llmservices/qwen", body=service
    )
    assert replaced["metadata"]["generation"] == 2
    fleet.wait("Paused", "False")
