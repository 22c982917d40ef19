"""What each check of `doctor` finds, and what it leaves alone: from facts alone."""

import dataclasses
from typing import Any

import pytest

from llmservice.plugin.doctor import (
    checks_answers,
    checks_around,
    checks_operator,
    checks_pods,
    checks_reach,
    checks_services,
)
from llmservice.plugin.doctor.chain import CHECKS, diagnose
from llmservice.plugin.doctor.facts import Facts, Looked, Probe, Verification
from llmservice.plugin.doctor.finding import Weight
from llmservice_testing.builders import Json

from .conftest import as_item, facts, only, pod, stored, trouble

GATE = "llmservice.io/serving"


@pytest.mark.parametrize(
    "given",
    [facts(), facts(stored("running", "running running")), facts(stored("paused", "paused starting"))],
    ids=["paused", "running", "one starts"],
)
def test_a_fleet_in_order_has_neither_problem_nor_warning(given: Facts) -> None:
    assert {one.weight for one in diagnose(given)} <= {Weight.NOTE}


def test_every_check_copes_with_an_object_that_nobody_has_ever_reported() -> None:
    service = stored(None)
    service["status"] = {}
    for check in CHECKS:
        list(check(facts(service, pods=[])))


def test_every_check_copes_with_an_application_of_ray_serve() -> None:
    service = trouble(stored("paused", "failed"), 0, "EndpointMissing", "404")
    service["spec"]["engine"] = {"type": "ray-serve", "model": "tiny"}
    causes = {one.cause for one in diagnose(facts(service, pods=[as_item(pod(0))]))}
    assert causes == {"ControlRoutesMissing", "SetBy"}


def test_every_finding_of_weight_says_how_it_was_found_and_what_to_do() -> None:
    service = trouble(
        stored("paused", "failed unreachable paused"), 0, "EndpointMissing", "GET /is_paused answered 404"
    )
    for one in diagnose(facts(service, pods=[as_item(pod(index), container={}) for index in range(3)])):
        assert one.how, one
        assert one.do or one.weight is Weight.NOTE, one


def test_problems_come_before_warnings_and_notes() -> None:
    service = trouble(stored("paused", "failed paused"), 0, "Unauthorized", "GET /is_paused answered 401")
    weights = [one.weight for one in diagnose(facts(service, pods=[as_item(pod(0), container={}), as_item(pod(1))]))]
    assert weights == sorted(weights, key=list(Weight).index)
    assert set(weights) == set(Weight)


# The resource and its operator


def test_a_field_that_an_old_definition_drops_is_named() -> None:
    found = only(checks_operator.definition_is_old, facts(schema=[{"path": "spec.pause.mode"}]))
    assert "spec.pause.mode" in found.what
    assert found.do == ("llmservice crd | kubectl apply --server-side -f -",)


def test_a_deleted_object_is_kept_by_ours_and_by_others_finalizers() -> None:
    service = stored()
    service["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["llmservice.io/resume", "a/b"]}
    ours, theirs = checks_operator.is_being_deleted(facts(service))
    assert '{"metadata":{"finalizers":["a/b"]}}' in ours.do[1]  # theirs stays
    assert "a/b" in theirs.what


@pytest.mark.parametrize(
    ("deployments", "says"),
    [
        ([], "no Deployment of the cluster has the labels"),
        (
            [
                {
                    "metadata": {"namespace": "ops", "name": "llm"},
                    "spec": {"replicas": 1, "template": {"spec": {"serviceAccountName": "robot"}}},
                    "status": {},
                }
            ],
            "deployment/llm of namespace ops: 0 of 1 ready",
        ),
    ],
)
def test_a_silent_operator_is_looked_for(deployments: list[Json], says: str) -> None:
    service = stored()
    service["metadata"]["generation"] += 1
    found = only(checks_operator.operator_is_silent, facts(service, operators=deployments))
    assert says in "\n".join(found.how)
    assert deployments == [] or "kubectl logs -n ops deployment/llm" in found.do[1]


def test_a_change_that_is_seconds_old_makes_no_operator_silent() -> None:
    service = stored()
    service["metadata"]["generation"] += 1
    for entry in service["metadata"]["managedFields"]:
        entry["time"] = "2026-01-01T00:01:58Z"
    found = only(checks_operator.operator_is_silent, facts(service))
    assert (found.cause, found.weight) == ("TooEarly", Weight.NOTE)
    asked = dataclasses.replace(facts(service), verification=Verification(False, "it did not answer"))
    assert only(checks_operator.operator_is_silent, asked).cause == "OperatorSilent"


def test_deployments_that_may_not_be_listed_are_not_called_absent() -> None:
    service = stored()
    service["metadata"]["generation"] += 1
    found = only(
        checks_operator.operator_is_silent, facts(service, operators=Looked("deployments", lack="403: forbidden"))
    )
    assert "no Deployment" not in "\n".join(found.how)


def test_an_operator_that_was_asked_and_did_not_answer_is_silent_though_its_status_is_current() -> None:
    given = dataclasses.replace(facts(), verification=Verification(False, "it did not answer"))
    assert only(checks_operator.operator_is_silent, given).weight is Weight.PROBLEM
    answered = dataclasses.replace(facts(), verification=Verification(True, "answered after 0.1 s"))
    assert list(checks_operator.operator_is_silent(answered)) == []


def test_only_the_older_of_two_claims_counts() -> None:
    other = stored()
    other["metadata"] |= {"name": "other", "uid": "0", "creationTimestamp": "2025-01-01T00:00:00Z"}
    assert "other" in only(checks_operator.pods_are_claimed, facts(siblings=[other, stored()])).what
    other["metadata"]["creationTimestamp"] = "2026-06-01T00:00:00Z"
    assert list(checks_operator.pods_are_claimed(facts(siblings=[other, stored()]))) == []


def test_a_pause_that_was_ended_or_goes_on_too_long_is_told_apart() -> None:
    ended = trouble(stored("paused", "running", maxPausedSeconds=60), 0, "PauseExpired", "too long")
    assert only(checks_operator.pause_has_expired, facts(ended)).weight is Weight.PROBLEM
    lasting = stored(maxPausedSeconds=60)
    lasting["status"]["pausedSince"] = "2026-01-01T00:00:00Z"
    for each in lasting["status"]["conditions"]:
        each["message"] = "Paused for longer than spec.maxPausedSeconds (60 s)"
    found = only(checks_operator.pause_has_expired, facts(lasting))
    assert (found.weight, "set by trainer" in found.how[0]) == (Weight.WARNING, True)


def test_without_a_wish_it_is_said_that_nothing_is_asked() -> None:
    assert only(checks_operator.nothing_is_asked, facts(stored(None))).weight is Weight.NOTE
    assert list(checks_operator.nothing_is_asked(facts())) == []


# Pods


def test_pods_that_ended_are_told_from_no_pods() -> None:
    gone = as_item(pod(0).phase("Failed"))
    assert "1, all of them terminating, Succeeded or Failed" in only(checks_pods.no_pods, facts(pods=[gone])).how[0]
    assert (
        list(checks_pods.no_pods(facts(pods=[]).__class__(facts().snapshot, 0.0, pods=Looked("pods", lack="403"))))
        == []
    )


def test_a_crash_loop_is_found_and_a_container_that_is_being_made_is_not() -> None:
    looping = as_item(pod(0).waiting("CrashLoopBackOff"))
    looping["status"]["containerStatuses"][0] |= {
        "restartCount": 4,
        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
    }
    found = only(checks_pods.pods_do_not_run, facts(pods=[looping, as_item(pod(1).waiting("ContainerCreating"))]))
    assert "CrashLoopBackOff; it last ended with OOMKilled (137)" in found.what
    assert "--previous" in found.do[0]


def test_a_pod_without_a_node_is_found() -> None:
    item = as_item(pod(0))
    item["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes have a GPU"}
    ]
    assert "0/3 nodes have a GPU" in only(checks_pods.pods_do_not_run, facts(pods=[item])).how[0]


def test_a_pod_that_the_status_does_not_know_is_found_unless_the_status_lists_only_some() -> None:
    pods = [as_item(pod(index)) for index in range(3)]
    assert "qwen-2" in only(checks_pods.operator_does_not_see_pods, facts(pods=pods)).what
    many = stored()
    many["status"]["targets"]["total"] = 65
    assert list(checks_pods.operator_does_not_see_pods(facts(many, pods=pods))) == []


@pytest.mark.parametrize(("generation", "found"), [("running", True), (None, True), ("paused", False)])
def test_a_gate_that_nobody_opened_matters_unless_the_fleet_is_to_be_paused(
    generation: str | None, found: bool
) -> None:
    given = facts(stored(generation, "running"), pods=[as_item(pod(0).readiness_gate(GATE))])
    assert bool(list(checks_pods.gate_has_no_condition(given))) is found


def test_a_gate_that_is_closed_before_a_running_engine_is_found() -> None:
    closed = as_item(pod(0).readiness_gate(GATE).condition(GATE, "False"))
    open_one = as_item(pod(1).readiness_gate(GATE).condition(GATE, "True"))
    given = facts(stored("running", "running running"), pods=[closed, open_one])
    assert only(checks_pods.gate_is_closed, given).what.startswith("qwen-0:")
    assert list(checks_pods.gate_is_closed(facts(stored("paused", "paused"), pods=[closed]))) == []


def test_a_missing_readiness_probe_is_a_problem_while_its_engine_is_unreachable_else_a_warning() -> None:
    bare = [as_item(pod(0), container={})]
    assert only(checks_pods.probe_is_missing, facts(pods=bare)).weight is Weight.WARNING
    unreachable = stored("paused", "unreachable")
    assert only(checks_pods.probe_is_missing, facts(unreachable, pods=bare)).weight is Weight.PROBLEM
    sidecar = as_item(pod(0).container("proxy"))  # its probe is not asked for
    assert list(checks_pods.probe_is_missing(facts(pods=[sidecar]))) == []


# Engines


@pytest.mark.parametrize(
    ("container", "cause"),
    [
        ({}, "DevModeOff"),
        ({"env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "0"}]}, "DevModeOff"),
        ({"env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}]}, "WrongPort"),
        ({"env": [{"name": "VLLM_SERVER_DEV_MODE", "valueFrom": {"configMapKeyRef": {}}}]}, "WrongPort"),
        ({"envFrom": [{"configMapRef": {"name": "settings"}}]}, "WrongPort"),
    ],
)
def test_a_404_is_explained_by_the_environment_of_the_container(container: Json, cause: str) -> None:
    service = trouble(stored("paused", "failed"), 0, "EndpointMissing", "GET /is_paused answered 404")
    found = only(checks_answers.control_routes_are_missing, facts(service, pods=[as_item(pod(0), container=container)]))
    assert found.cause == cause


def test_dev_mode_is_switched_on_at_what_makes_the_pods() -> None:
    service = trouble(stored("paused", "failed"), 0, "EndpointMissing", "GET /is_paused answered 404")
    item = as_item(pod(0).owner("ReplicaSet", "qwen-5d4"), container={})
    owner = {
        "metadata": {
            "name": "qwen-5d4",
            "ownerReferences": [{"kind": "Deployment", "name": "qwen", "controller": True}],
        }
    }
    found = only(checks_answers.control_routes_are_missing, facts(service, pods=[item], replicasets=[owner]))
    assert "kubectl set env deployment/qwen VLLM_SERVER_DEV_MODE=1 -c engine -n default" in found.do[0]


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("the connection to 10.0.0.1:8000 was refused", "NotListening"),
        ("GET /is_paused was not answered within 5 s", "NoAnswer"),
        ("no connection to 10.0.0.1:8000: No route to host", "NoAnswer"),
        (
            "the connection ended without an answer to GET /version (is it a service mesh that demands mTLS?)",
            "MeshOrTLS",
        ),
        ("TLS with 10.0.0.1:8000 failed: certificate verify failed", "CertificateRefused"),
        ("GET /is_paused was not answered with {'is_paused': true|false}", "Unreachable"),
    ],
)
def test_how_a_call_failed_decides_what_is_suspected(message: str, cause: str) -> None:
    service = trouble(stored("paused", "unreachable"), 0, "TargetsUnreachable", message, stalled=False)
    found = only(checks_reach.engines_are_unreachable, facts(service))
    assert found.cause == cause
    assert message in found.how[0]


@pytest.mark.parametrize(
    ("spec", "is_suspected"),
    [
        ({"podSelector": {}}, True),
        ({"podSelector": {"matchLabels": {"app": "qwen"}}, "policyTypes": ["Ingress"]}, True),
        ({"podSelector": {"matchLabels": {"app": "qwen"}}, "policyTypes": ["Egress"]}, False),
        ({"podSelector": {"matchLabels": {"app": "other"}}}, False),
    ],
)
def test_a_network_policy_is_suspected_only_if_it_selects_the_pod_and_is_about_what_comes_in(
    spec: Json, is_suspected: bool
) -> None:
    service = trouble(
        stored("paused", "unreachable"), 0, "TargetsUnreachable", "was not answered within 5 s", stalled=False
    )
    policy = {"metadata": {"name": "lockdown"}, "spec": spec}
    found = only(checks_reach.engines_are_unreachable, facts(service, policies=[policy]))
    assert (found.cause == "NetworkPolicySuspected") is is_suspected


def test_policies_that_may_not_be_listed_are_not_called_absent() -> None:
    service = trouble(
        stored("paused", "unreachable"), 0, "TargetsUnreachable", "was not answered within 5 s", stalled=False
    )
    found = only(checks_reach.engines_are_unreachable, facts(service, policies=Looked("networkpolicies", lack="403")))
    assert "networkpolicies could not be looked at" in found.how


def test_a_port_that_is_not_declared_is_suspected_only_where_it_does_not_answer() -> None:
    other = [as_item(pod(0))]
    service = trouble(
        stored("paused", "unreachable", engine={"ports": [9000]}), 0, "TargetsUnreachable", "refused", stalled=False
    )
    assert only(checks_reach.port_is_declared_by_nobody, facts(service, pods=other)).cause == "WrongPort"
    answers = facts(stored("paused", "paused", engine={"ports": [9000]}), pods=other)
    assert list(checks_reach.port_is_declared_by_nobody(answers)) == []


@pytest.mark.parametrize(
    ("items", "says"),
    [([], "does not exist"), ([{"data": {"other": ""}}], "has no key ca.crt"), ([{"data": {"ca.crt": "PEM"}}], None)],
)
def test_the_certificates_to_trust_are_looked_at(items: list[Json], says: str | None) -> None:
    service = stored(engine={"scheme": "https", "tls": {"caConfigMap": "ca"}})
    found = list(checks_reach.certificates_are_missing(facts(service, trust=items)))
    assert [says in one.what for one in found if says] == ([True] if says else [])
    assert bool(found) is (says is not None)


def test_an_engine_asleep_matters_only_where_it_should_run() -> None:
    found = only(checks_answers.engines_are_asleep, facts(stored("running", "sleeping running")))
    assert "http://127.0.0.1:8000/wake_up" in found.do[0]
    assert list(checks_answers.engines_are_asleep(facts(stored("paused", "sleeping paused")))) == []


def test_a_drain_is_told_with_the_two_ways_out_of_it() -> None:
    service = stored("paused", "pausing paused")
    service["status"]["lastPause"] = {"mode": "wait", "clearCache": True, "answered": False}
    found = only(checks_answers.drain_is_under_way, facts(service))
    assert (found.weight, len(found.do)) == (Weight.NOTE, 2)
    service["status"]["lastPause"]["answered"] = True
    assert list(checks_answers.drain_is_under_way(facts(service))) == []


@pytest.mark.parametrize(("is_paused", "is_odd"), [(True, False), (False, True), (None, False)])
def test_an_answer_from_now_is_held_against_the_status(is_paused: bool | None, is_odd: bool) -> None:
    service = stored()
    service["status"]["targetStates"][0]["url"] = "http://10.0.0.1:8000/prefix"
    probe = Probe("qwen-0", 8000, is_paused, "said", True)
    given = dataclasses.replace(facts(service), probes=(probe,))
    assert bool(list(checks_answers.engines_say_otherwise(given))) is is_odd


# Services and what else acts on the pods


def service_of(name: str = "qwen", **spec: Any) -> Json:
    """A Service of the fleet's pods."""
    return {"metadata": {"name": name}, "spec": {"selector": {"app": "qwen"}} | spec}


def slice_of(*ready: str, name: str = "qwen") -> Json:
    """Its EndpointSlice."""
    endpoints = [{"conditions": {"ready": True}, "targetRef": {"name": each}} for each in ready]
    endpoints.append({"conditions": {"ready": False}, "targetRef": {"name": "qwen-9"}})
    return {"metadata": {"labels": {"kubernetes.io/service-name": name}}, "endpoints": endpoints}


def test_a_service_for_whoever_controls_the_pods_is_left_alone() -> None:
    given = facts(services=[service_of(publishNotReadyAddresses=True)], slices=[slice_of("qwen-0")])
    assert list(checks_services.service_routes_to_paused_pods(given)) == []
    assert (
        "qwen-0"
        in only(
            checks_services.service_routes_to_paused_pods, facts(services=[service_of()], slices=[slice_of("qwen-0")])
        ).what
    )


def test_a_service_of_other_pods_is_left_alone() -> None:
    given = facts(services=[service_of(selector={"app": "x"}), service_of(selector=None)], slices=[])
    assert list(checks_services.service_has_no_endpoints(given)) == []


def test_slices_that_may_not_be_listed_are_not_called_empty() -> None:
    given = facts(services=[service_of()], slices=Looked("endpointslices", lack="403"))
    assert list(checks_services.service_has_no_endpoints(given)) == []


AUTOSCALER: Json = {
    "metadata": {"name": "hpa"},
    "spec": {"scaleTargetRef": {"kind": "StatefulSet", "name": "qwen"}, "minReplicas": 1, "maxReplicas": 4},
}


@pytest.mark.parametrize(
    ("change", "generation", "is_warned"),
    [
        ({}, "paused", True),
        ({}, "running", False),
        ({"minReplicas": 2}, "paused", False),
        ({"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}, "paused", False),
        ({"scaleTargetRef": {"kind": "StatefulSet", "name": "other"}}, "paused", False),
    ],
)
def test_case_45_an_autoscaler_is_named_only_if_it_can_shrink_this_fleet(
    change: Json, generation: str, is_warned: bool
) -> None:
    pods = [as_item(pod(index).owner("StatefulSet", "qwen")) for index in range(2)]
    state = {"paused": "paused paused", "running": "running running"}[generation]
    hpa = AUTOSCALER | {"spec": AUTOSCALER["spec"] | change}
    found = list(
        checks_around.autoscaler_will_shrink_the_fleet(facts(stored(generation, state), pods, autoscalers=[hpa]))
    )
    assert ["hpa" in one.what for one in found] == ([True] if is_warned else [])


@pytest.mark.parametrize(
    ("gate", "policy", "is_warned"),
    [("False", None, True), ("True", None, False), ("False", "AlwaysAllow", False), ("False", "IfHealthyBudget", True)],
)
def test_a_budget_is_named_only_if_it_counts_pods_behind_a_closed_gate(
    gate: str, policy: str | None, is_warned: bool
) -> None:
    item = as_item(pod(0).readiness_gate(GATE).condition(GATE, gate))
    spec: Json = {"selector": {}} | ({"unhealthyPodEvictionPolicy": policy} if policy else {})
    given = facts(stored("paused", "paused"), [item], budgets=[{"metadata": {"name": "pdb"}, "spec": spec}])
    assert bool(list(checks_around.budget_blocks_drains(given))) is is_warned


def test_what_could_not_be_looked_at_is_listed() -> None:
    given = facts(services=Looked("services", lack="403: forbidden"))
    found = only(checks_around.not_looked_at, given)
    assert (found.what, found.how) == ("could not look at services", ("403: forbidden",))
