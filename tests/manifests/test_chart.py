"""The chart: each value does what it says, and a wrong one is refused with its name."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from llmservice_testing.audit import AuditedControlPlane
from llmservice_testing.builders import Json, make_llmservice
from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane, find_assets
from llmservice_testing.helm import Helm
from llmservice_testing.manifests import CHART, DEFINITION, ManifestError

DIGEST = "sha256:" + "0" * 64


def find(objects: list[Json], kind: str, name: str = "llmservice-operator") -> Json:
    (found,) = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def kinds(objects: list[Json]) -> list[str]:
    return sorted(one["kind"] for one in objects)


def pod(helm: Helm, values: Mapping[str, Any] | None = None) -> Json:
    found: Json = find(helm.template(values), "Deployment")["spec"]["template"]
    return found


def container(helm: Helm, values: Mapping[str, Any] | None = None) -> Json:
    (found,) = pod(helm, values)["spec"]["containers"]
    return dict(found)


# Values


def test_the_image_can_be_another_by_tag_or_digest(helm: Helm) -> None:
    assert container(helm)["image"] == "llmservice/operator:0.1.0"
    chosen = {"repository": "registry.example.com:5000/operator", "tag": "1.2.3", "pullPolicy": "Always"}
    found = container(helm, {"image": chosen})
    assert (found["image"], found["imagePullPolicy"]) == ("registry.example.com:5000/operator:1.2.3", "Always")
    assert container(helm, {"image": {"digest": DIGEST}})["image"] == f"llmservice/operator:0.1.0@{DIGEST}"


def test_several_namespaces_have_a_binding_each_and_no_cluster_wide_one(helm: Helm) -> None:
    objects = helm.template({"namespaces": ["models", "trial"]})
    bindings = [one for one in objects if one["kind"].endswith("Binding")]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in bindings] == [
        ("RoleBinding", "models"),
        ("RoleBinding", "trial"),
    ]
    (found,) = find(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert found["args"][2:] == ["--namespace=models", "--namespace=trial"]


@pytest.mark.parametrize(
    ("right", "gone"),
    [
        ("readinessGates", [("pods/status", "patch")]),
        ("deletionPolicyResume", [("llmservices", "patch"), ("namespaces", "get")]),
        ("caConfigMaps", [("configmaps", "get")]),
        ("autoscalers", [("horizontalpodautoscalers", "list")]),
    ],
)
def test_a_right_that_is_not_wanted_is_not_given(helm: Helm, right: str, gone: list[tuple[str, str]]) -> None:
    def given(values: Json) -> set[tuple[str, str]]:
        rules = find(helm.template(values), "ClusterRole")["rules"]
        return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}

    assert given({}) - given({"rights": {right: False}}) == set(gone)


def test_the_definition_is_kept_by_an_uninstallation_and_can_be_left_out(helm: Helm) -> None:
    definition = find(helm.template(), "CustomResourceDefinition", "llmservices.llmservice.io")
    assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "CustomResourceDefinition" not in kinds(helm.template({"crds": {"install": False}}))


def test_roles_of_people_can_stand_alone_or_be_left_out(helm: Helm) -> None:
    alone = find(helm.template({"peopleRoles": {"aggregate": False}}), "ClusterRole", "llmservice-edit")
    assert not [label for label in alone["metadata"]["labels"] if "aggregate" in label]
    without = helm.template({"peopleRoles": {"create": False}})
    assert [one["metadata"]["name"] for one in without if one["kind"] == "ClusterRole"] == ["llmservice-operator"]


def test_logs_and_metrics_are_as_asked(helm: Helm) -> None:
    found = container(helm, {"logFormat": "text", "logLevel": "DEBUG", "metrics": {"enabled": False}})
    assert found["args"] == [
        "operator",
        "--log-format=text",
        "--log-level=DEBUG",
        "--metrics-address=",
        "--all-namespaces",
    ]
    assert [port["name"] for port in found["ports"]] == ["health"]
    assert "Service" in kinds(helm.template({"metrics": {"service": True}}))
    monitor = find(
        helm.template({"serviceMonitor": {"enabled": True, "labels": {"release": "main"}, "interval": "30s"}}),
        "ServiceMonitor",
    )
    assert monitor["metadata"]["labels"]["release"] == "main"
    assert monitor["spec"]["endpoints"][0]["interval"] == "30s"
    rules = find(helm.template({"prometheusRule": {"enabled": True, "labels": {"release": "main"}}}), "PrometheusRule")
    assert rules["metadata"]["labels"]["release"] == "main"


def test_where_and_how_the_pod_runs_is_as_asked(helm: Helm) -> None:
    values = {
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"limits": {"memory": "1Gi"}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "priorityClassName": "system-cluster-critical",
        "podAnnotations": {"example.com/a": "b"},
        "podLabels": {"example.com/c": "d"},
        "extraEnv": [{"name": "SSL_CERT_FILE", "value": "/certificates/ca.crt"}],
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None},
        "serviceAccount": {"annotations": {"example.com/role": "reader"}},
    }
    objects = helm.template(values)
    template = find(objects, "Deployment")["spec"]["template"]
    spec = template["spec"]
    assert {name: spec[name] for name in ("imagePullSecrets", "tolerations", "affinity", "priorityClassName")} == {
        name: values[name] for name in ("imagePullSecrets", "tolerations", "affinity", "priorityClassName")
    }
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert spec["containers"][0]["env"][1:] == values["extraEnv"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert template["metadata"]["annotations"]["example.com/a"] == "b"
    assert template["metadata"]["labels"]["example.com/c"] == "d"
    assert find(objects, "ServiceAccount")["metadata"]["annotations"] == {"example.com/role": "reader"}


def test_two_releases_can_share_a_cluster(helm: Helm) -> None:
    shared = {"crds": {"install": False}, "peopleRoles": {"create": False}}
    one = helm.template({"namespaces": ["a"]}, release="one", namespace="x")
    two = helm.template({"namespaces": ["b"], **shared}, release="two", namespace="y")

    def names(objects: list[Json]) -> set[tuple[str, str, str]]:
        return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects}

    assert names(one) & names(two) == set()
    assert find(helm.template({"fullnameOverride": "pauser"}), "Deployment", "pauser")


# What is refused


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"replicas": 2}, "replicas", id="there is no number of replicas"),
        pytest.param({"image": {"name": "x"}}, "name", id="an unknown key in image"),
        pytest.param({"namespaces": "models"}, "namespaces", id="one namespace as text"),
        pytest.param({"namespaces": ["Models"]}, "namespaces", id="no name of a namespace"),
        pytest.param({"logLevel": "loud"}, "logLevel", id="no such level"),
        pytest.param({"image": {"digest": "sha256:1"}}, "digest", id="half a digest"),
        pytest.param({"serviceMonitor": {"interval": "often"}}, "interval", id="no time"),
        pytest.param({"crds": {"keep": False}}, "keep", id="the definition is always kept"),
        pytest.param({"extraEnv": {"A": "b"}}, "extraEnv", id="variables as a mapping"),
        pytest.param({"metrics": {"enabled": False, "service": True}}, "metrics.enabled", id="a Service of no metrics"),
    ],
)
def test_a_wrong_value_is_refused_and_named(helm: Helm, values: Json, words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        helm.template(values)


def test_the_linter_has_nothing_to_say(helm: Helm) -> None:
    said = helm.lint()
    assert "[WARNING]" not in said
    assert "[ERROR]" not in said


# A release


def test_a_release_is_installed_upgraded_and_removed_and_no_llmservice_is_lost(
    helm: Helm, control_plane: AuditedControlPlane, cluster: Cluster, namespace: str
) -> None:
    """The definition is another test's here, and stays that: `crds.install` is tried on an API server of its own below."""
    at = (control_plane.kubeconfig, "llmservice", namespace)
    shared: Json = {"crds": {"install": False}, "peopleRoles": {"create": False}}
    said = helm.install(*at, {**shared, "namespaces": [namespace]})
    assert f"serves the LLMServices of {namespace}." in said
    assert "kubectl wait llmservice/qwen --for=condition=Paused" in said
    assert "waits until the one of this version is served" in said
    assert helm.upgrade(*at, {**shared, "namespaces": [namespace], "logLevel": "DEBUG"})
    deployment = cluster.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/llmservice-operator")
    assert "--log-level=DEBUG" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    helm.uninstall(*at)
    assert cluster.get(f"/apis/apps/v1/namespaces/{namespace}/deployments")["items"] == []


def names_of(cluster: Cluster) -> list[str]:
    return [one["metadata"]["name"] for one in cluster.list_llmservices("default")]


def test_the_definition_is_upgraded_with_the_release_and_survives_its_removal(helm: Helm) -> None:
    with ControlPlane(assets=find_assets()) as plane, Cluster(plane.kubeconfig) as cluster:
        cluster.create_namespace("llmservice-system")
        at = (plane.kubeconfig, "llmservice", "llmservice-system")
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/llmservices.llmservice.io"
        helm.install(*at, {})
        cluster.apply_crd(DEFINITION)  # waits until it is served
        assert cluster.list_llmservices("default") == []
        cluster.create_llmservice("default", make_llmservice("qwen").selector(app="qwen").generation("running"))
        ours = cluster.get(path)["spec"]["versions"][0]["schema"]

        old = cluster.get(path)["spec"]
        del old["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["deletionPolicy"]
        cluster.merge_patch(path, {"spec": {"versions": old["versions"]}})
        helm.upgrade(*at, {"logLevel": "DEBUG"})
        assert cluster.get(path)["spec"]["versions"][0]["schema"] == ours

        assert "kept due to the resource policy" in helm.uninstall(*at)
        assert names_of(cluster) == ["qwen"]
        assert "STATUS: deployed" in helm.install(*at, {})  # it takes over what was kept
        assert names_of(cluster) == ["qwen"]


# The schema


def described(node: Json, path: str = "") -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, child in node.get("properties", {}).items():
        found |= {f"{path}{name}": child} | described(child, f"{path}{name}.")
    return found


def defaults(node: Json, path: str = "") -> set[str]:
    found: set[str] = set()
    for name, child in node.items():
        found |= {f"{path}{name}"} | (defaults(child, f"{path}{name}.") if isinstance(child, dict) else set())
    return found


def test_every_value_has_a_default_a_description_and_no_unknown_neighbour() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    known = described(schema)
    assert [path for path, node in known.items() if len(node.get("description", "")) < 5] == []
    strict = [
        path for path, node in known.items() if "properties" in node and node["additionalProperties"] is not False
    ]
    assert strict == []
    free = {path for path, node in known.items() if node.get("type") == "object" and "properties" not in node}
    outer = {path for path in defaults(values) if not any(path.startswith(f"{each}.") for each in free)}
    assert set(known) - outer == {"global", "resources.claims"}
    assert outer - set(known) == set()
