"""What the API server itself refuses, and in which words: the field, the value, and what must hold."""

from typing import Any

import pytest

from llmservice_testing.builders import Json, make_llmservice
from llmservice_testing.cluster import ApiError, Cluster, InvalidError

LABELS = {"matchLabels": {"app": "qwen"}}


def service(**spec: Any) -> Json:
    return make_llmservice("qwen").spec(**({"selector": LABELS} | spec)).obj()


BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no selector": ({"selector": None}, ("spec.selector", "Required")),
    "an empty selector": ({"selector": {}}, ("spec.selector", "must not be empty")),
    "an empty matchLabels": ({"selector": {"matchLabels": {}}}, ("spec.selector", "must not be empty")),
    "an empty matchExpressions": ({"selector": {"matchExpressions": []}}, ("spec.selector", "must not be empty")),
    "a label key with a space": (
        {"selector": {"matchLabels": {"my app": "x"}}},
        ("spec.selector.matchLabels", "keys must be label keys", "my app"),
    ),
    "an empty label key": ({"selector": {"matchLabels": {"": "x"}}}, ("spec.selector.matchLabels", "label keys")),
    "a label key with two slashes": ({"selector": {"matchLabels": {"a/b/c": "x"}}}, ("spec.selector", "a/b/c")),
    "a label value with a space": ({"selector": {"matchLabels": {"app": "a b"}}}, ("matchLabels.app", "a b")),
    "a label value that is too long": ({"selector": {"matchLabels": {"app": "x" * 64}}}, ("matchLabels.app", "63")),
    "an expression with a bad key": (
        {"selector": {"matchExpressions": [{"key": "-a", "operator": "Exists"}]}},
        ("matchExpressions[0].key", "-a"),
    ),
    "an expression with an unknown operator": (
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
        ("matchExpressions[0].operator", "Near"),
    ),
    "In without values": (
        {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        ("matchExpressions[0]", "values must be given", "In"),
    ),
    "Exists with values": (
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}},
        ("matchExpressions[0]", "must be absent", "Exists"),
    ),
    "an unknown generation": ({"generation": "stopped"}, ("spec.generation", "stopped", "paused")),
    "an empty generation": ({"generation": ""}, ("spec.generation", "paused")),
    "a boolean generation": ({"generation": True}, ("spec.generation", "boolean")),
    "an unknown engine": ({"engine": {"type": "tgi"}}, ("spec.engine.type", "tgi", "vllm")),
    "port 0": ({"engine": {"ports": [0]}}, ("spec.engine.ports[0]", "0")),
    "port 65536": ({"engine": {"ports": [65536]}}, ("spec.engine.ports[0]", "65536")),
    "a negative port": ({"engine": {"ports": [-1]}}, ("spec.engine.ports[0]", "-1")),
    "a port name in capitals": ({"engine": {"ports": ["UPPER"]}}, ("spec.engine.ports[0]", "UPPER")),
    "a port name that is too long": ({"engine": {"ports": ["a" * 16]}}, ("spec.engine.ports[0]", "15")),
    "an empty port name": ({"engine": {"ports": [""]}}, ("spec.engine.ports[0]",)),
    "a port number as text": ({"engine": {"ports": ["8000"]}}, ("spec.engine.ports[0]", "8000")),
    "no ports": ({"engine": {"ports": []}}, ("spec.engine.ports",)),
    "duplicate ports": ({"engine": {"ports": [8000, 8000]}}, ("spec.engine.ports[1]", "8000", "Duplicate")),
    "too many ports": ({"engine": {"ports": list(range(1, 18))}}, ("spec.engine.ports", "16")),
    "an unknown scheme": ({"engine": {"scheme": "ftp"}}, ("spec.engine.scheme", "ftp")),
    "tls with http": ({"engine": {"tls": {"serverName": "x"}}}, ("spec.engine", "tls needs scheme https", "http")),
    "a CA that is not looked at": (
        {"engine": {"scheme": "https", "tls": {"insecureSkipVerify": True, "caConfigMap": "ca"}}},
        ("spec.engine.tls", "insecureSkipVerify", "caConfigMap ca"),
    ),
    "a rootPath without a slash": ({"engine": {"rootPath": "llm"}}, ("spec.engine.rootPath", "llm")),
    "a rootPath that ends with a slash": ({"engine": {"rootPath": "/llm/"}}, ("spec.engine.rootPath", "/llm/")),
    "a rootPath with a query": ({"engine": {"rootPath": "/llm?a=b"}}, ("spec.engine.rootPath", "/llm?a=b")),
    "ray-serve without a model": (
        {"engine": {"type": "ray-serve"}},
        ("spec.engine", "model is required with type ray-serve", "without model"),
    ),
    "vllm with a model": (
        {"engine": {"model": "qwen"}},
        ("spec.engine", "must be absent with type vllm", "with model qwen"),
    ),
    "an empty model": ({"engine": {"type": "ray-serve", "model": ""}}, ("spec.engine.model",)),
    "an unknown mode": ({"pause": {"mode": "drain"}}, ("spec.pause.mode", "drain", "abort")),
    "clearCache as text": ({"pause": {"clearCache": "yes"}}, ("spec.pause.clearCache", "boolean")),
    "a pause that may take no time": ({"pause": {"timeoutSeconds": 0}}, ("spec.pause.timeoutSeconds", "0", "1")),
    "a pause that may take days": ({"pause": {"timeoutSeconds": 86401}}, ("spec.pause.timeoutSeconds", "86401")),
    "a request that may take no time": ({"requestTimeoutSeconds": 0}, ("spec.requestTimeoutSeconds", "0", "1")),
    "half a second": ({"requestTimeoutSeconds": 0.5}, ("spec.requestTimeoutSeconds", "integer")),
    "a resync without a pause": ({"resyncSeconds": 0}, ("spec.resyncSeconds", "0", "1")),
    "a resync in words": ({"resyncSeconds": "10s"}, ("spec.resyncSeconds", "string")),
}


@pytest.mark.parametrize(("spec", "words"), [pytest.param(*case, id=name) for name, case in BAD.items()])
def test_a_bad_value_is_refused_with_the_field_and_the_value(
    cluster: Cluster, namespace: str, spec: dict[str, Any], words: tuple[str, ...]
) -> None:
    body = service(**spec)
    body["spec"] = {field: value for field, value in body["spec"].items() if value is not None}
    with pytest.raises(InvalidError) as refused:
        cluster.create_llmservice(namespace, body)
    missing = [word for word in words if word not in refused.value.message]
    assert missing == [], refused.value.message


def contains(whole: Json, part: Json) -> bool:
    """Whether all that was said is there; defaults may have come in."""
    return all(
        contains(whole[field], value) if isinstance(value, dict) else whole[field] == value
        for field, value in part.items()
    )


GOOD: dict[str, dict[str, Any]] = {
    "labels with a prefix": {"selector": {"matchLabels": {"example.com/app.kubernetes_io": "A-b_c.1"}}},
    "an empty label value": {"selector": {"matchLabels": {"app": ""}}},
    "expressions alone": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}},
    "names and numbers of ports": {"engine": {"ports": [1, 65535, "http", "a-1"]}},
    "a root path": {"engine": {"rootPath": "/a/b-c.d~e_f"}},
    "an application of Ray Serve": {"engine": {"type": "ray-serve", "model": "org/model-7b", "rootPath": "/llm"}},
    "https without tls": {"engine": {"scheme": "https"}},
    "https with all of tls": {"engine": {"scheme": "https", "tls": {"caConfigMap": "ca", "serverName": "engine"}}},
    "keep with the cache dropped": {"pause": {"mode": "keep", "clearCache": True}},
    "the longest times": {"requestTimeoutSeconds": 300, "resyncSeconds": 3600, "pause": {"timeoutSeconds": 86400}},
}


@pytest.mark.parametrize("spec", [pytest.param(spec, id=name) for name, spec in GOOD.items()])
def test_what_makes_sense_is_accepted(cluster: Cluster, namespace: str, spec: dict[str, Any]) -> None:
    stored = cluster.create_llmservice(namespace, service(**spec))
    assert contains(stored["spec"], spec)


def test_what_is_left_out_gets_its_default(cluster: Cluster, namespace: str) -> None:
    stored = cluster.create_llmservice(namespace, service())
    assert stored["spec"] == {
        "selector": LABELS,
        "engine": {"type": "vllm", "ports": [8000], "scheme": "http", "rootPath": ""},
        "pause": {"mode": "abort", "timeoutSeconds": 300, "drainDelaySeconds": 0},
        "requestTimeoutSeconds": 5,
        "resyncSeconds": 10,
        "progressDeadlineSeconds": 600,
        "onMaxPaused": "warn",
        "deletionPolicy": "leave",
    }


def test_an_object_that_nobody_visited_is_in_progress(cluster: Cluster, namespace: str) -> None:
    assert cluster.create_llmservice(namespace, service())["status"]["observedGeneration"] == -1


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        pytest.param({"selector": {"matchLabels": {"app": "other"}}}, ("spec.selector", "is immutable"), id="selector"),
        pytest.param(
            {"selector": {"matchLabels": {"app": "qwen", "more": "x"}}},
            ("spec.selector", "is immutable"),
            id="narrower",
        ),
        pytest.param({"engine": {"ports": [8001]}}, ("spec.engine", "ports are immutable"), id="ports"),
        pytest.param({"engine": {"ports": [8000, 8001]}}, ("spec.engine", "ports are immutable"), id="more ports"),
        pytest.param({"engine": {"type": "sglang"}}, ("spec.engine.type", "sglang"), id="type"),
        pytest.param({"engine": None, "resyncSeconds": 5}, (), id="the default again"),
    ],
)
def test_what_would_strand_paused_engines_is_immutable(
    cluster: Cluster, namespace: str, patch: dict[str, Any], words: tuple[str, ...]
) -> None:
    cluster.create_llmservice(namespace, service())
    if not words:
        assert cluster.patch_llmservice(namespace, "qwen", {"spec": patch})["metadata"]["generation"] == 2
        return
    with pytest.raises(InvalidError) as refused:
        cluster.patch_llmservice(namespace, "qwen", {"spec": patch})
    assert [word for word in words if word not in refused.value.message] == [], refused.value.message


def test_the_model_and_the_type_are_immutable(cluster: Cluster, namespace: str) -> None:
    cluster.create_llmservice(namespace, service(engine={"type": "ray-serve", "model": "a"}))
    for engine, words in [
        ({"model": "b"}, "model is immutable"),
        ({"type": "vllm", "model": None}, "type is immutable"),
    ]:
        with pytest.raises(InvalidError, match=words):
            cluster.patch_llmservice(namespace, "qwen", {"spec": {"engine": engine}})


def test_removing_engine_does_not_slip_past_the_rule_on_ports(cluster: Cluster, namespace: str) -> None:
    """A merge patch with null brings the default back, which is another value."""
    cluster.create_llmservice(namespace, service(engine={"ports": [9000]}))
    with pytest.raises(InvalidError, match="ports are immutable"):
        cluster.patch_llmservice(namespace, "qwen", {"spec": {"engine": None}})


@pytest.mark.parametrize("path", ["generaton", "pause.drainDelay", "engine.modelName"])
def test_an_unknown_field_is_refused_where_kubectl_asks_for_it(cluster: Cluster, namespace: str, path: str) -> None:
    """Fields that have no effect yet are not there: one that is accepted and ignored would be a promise."""
    body = service()
    parent: Json = body["spec"]
    *parents, name = path.split(".")
    for step in parents:
        parent = parent.setdefault(step, {})
    parent[name] = "x"
    with pytest.raises(ApiError, match=f'unknown field "spec.{path}"'):
        cluster.request(
            "POST",
            f"/apis/llmservice.io/v1alpha1/namespaces/{namespace}/llmservices",
            body=body,
            fieldValidation="Strict",
        )


def test_an_emergency_pause_is_accepted_whatever_else_is_set(cluster: Cluster, namespace: str) -> None:
    cluster.create_llmservice(namespace, service(engine={"ports": ["http", 8001], "rootPath": "/x"}))
    assert (
        cluster.patch_llmservice(namespace, "qwen", {"spec": {"generation": "paused"}})["spec"]["generation"]
        == "paused"
    )


def test_the_status_is_a_subresource(cluster: Cluster, namespace: str) -> None:
    cluster.create_llmservice(namespace, service())
    cluster.patch_llmservice(namespace, "qwen", {"status": {"paused": True}})
    assert "paused" not in cluster.get_llmservice(namespace, "qwen")["status"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param({"targets": {"total": -1}}, "status.targets.total", id="a negative count"),
        pytest.param({"paused": "yes"}, "status.paused", id="paused as text"),
    ],
)
def test_a_bad_status_is_refused_too(cluster: Cluster, namespace: str, status: Json, words: str) -> None:
    cluster.create_llmservice(namespace, service())
    with pytest.raises(InvalidError, match=words):
        cluster.patch_llmservice(namespace, "qwen", {"status": status}, subresource="status")


def test_target_states_are_bounded(cluster: Cluster, namespace: str) -> None:
    cluster.create_llmservice(namespace, service())
    states = [{"pod": f"p-{number}", "podUID": str(number), "state": "paused"} for number in range(65)]
    with pytest.raises(InvalidError, match="targetStates"):
        cluster.patch_llmservice(namespace, "qwen", {"status": {"targetStates": states}}, subresource="status")
