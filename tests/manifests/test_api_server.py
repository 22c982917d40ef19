"""A real API server takes every manifest, and its admission of restricted pods lets the operator in."""

import copy
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster, ForbiddenError, wait_until
from llmservice_testing.controlplane import ControlPlane, find_assets
from llmservice_testing.helm import Helm
from llmservice_testing.manifests import INSTALL, MANIFESTS, documents, kustomize
from llmservice_testing.operator_process import OperatorProcess

OF_OTHERS = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus Operator, which this API server does not serve."""


def dry_run(cluster: Cluster, one: Json) -> None:
    """What `kubectl apply --server-side --dry-run=server` asks, and unknown fields are errors."""
    version, kind, metadata = one["apiVersion"], one["kind"], one["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    (served,) = [each for each in cluster.get(root)["resources"] if each["kind"] == kind and "/" not in each["name"]]
    folder = f"{root}/namespaces/{metadata['namespace']}" if served["namespaced"] else root
    cluster.request(
        "PATCH",
        f"{folder}/{served['name']}/{metadata['name']}",
        body=one,
        content_type="application/apply-patch+yaml",
        fieldManager="kubectl",
        force="true",
        dryRun="All",
        fieldValidation="Strict",
    )


@pytest.fixture(scope="module", autouse=True)
def namespaces(cluster: Cluster) -> None:
    """Those that the manifests name; a dry run needs them."""
    for name in ("llmservice-system", "models"):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


@pytest.mark.parametrize("folder", ["overlays/cluster", "overlays/namespaced", "overlays/monitoring", "samples"])
def test_the_api_server_takes_every_object_of(folder: str, cluster: Cluster) -> None:
    objects = kustomize(MANIFESTS / folder)
    assert len(objects) >= 8
    for one in objects:
        if one["kind"] not in OF_OTHERS:
            dry_run(cluster, one)


def test_the_api_server_takes_every_object_of_the_chart(cluster: Cluster, helm: Helm) -> None:
    for values in (
        {},
        {"namespaces": ["models"], "metrics": {"service": True}, "podSecurityContext": {"runAsUser": None}},
    ):
        for one in helm.template(values):
            dry_run(cluster, one)


def test_a_misspelt_field_would_be_found(cluster: Cluster) -> None:
    (deployment,) = [one for one in documents(INSTALL) if one["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["resource"] = {}
    with pytest.raises(Exception, match="resource"):
        dry_run(cluster, deployment)


def test_install_yaml_is_all_that_a_user_needs(tmp_path: Path) -> None:
    """On a cluster that has nothing; and twice, because an upgrade is the same command."""
    with ControlPlane(assets=find_assets()) as plane, Cluster(plane.kubeconfig) as cluster:
        environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig)}
        command = ["kubectl", "apply", "--server-side", "-f", str(INSTALL)]
        for _ in range(2):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stderr) == (0, "")
            assert len(done.stdout.splitlines()) == len(documents(INSTALL))
        token = cluster.service_account_token("llmservice-system", "llmservice-operator")
        with OperatorProcess(plane.user_kubeconfig("operator", token=token), tmp_path):
            wait_until(lambda: cluster.list_llmservices("default") == [], 30, what="LLMServices being served")


def operator_pod() -> Json:
    (deployment,) = [one for one in documents(INSTALL) if one["kind"] == "Deployment"]
    template = copy.deepcopy(deployment["spec"]["template"])
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": "operator"}}


def create(cluster: Cluster, pod: Json) -> None:
    cluster.request("POST", "/api/v1/namespaces/llmservice-system/pods", body=pod, dryRun="All")


def run_as_root(pod: Json) -> None:
    pod["spec"]["securityContext"]["runAsNonRoot"] = False


def keep_capabilities(pod: Json) -> None:
    del pod["spec"]["containers"][0]["securityContext"]["capabilities"]


def gain_privileges(pod: Json) -> None:
    del pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"]


def call_anything(pod: Json) -> None:
    del pod["spec"]["securityContext"]["seccompProfile"]


@pytest.mark.parametrize("weaken", [run_as_root, keep_capabilities, gain_privileges, call_anything])
def test_the_namespace_admits_the_operator_and_nothing_less_restricted(
    weaken: Callable[[Json], None], cluster: Cluster
) -> None:
    cluster.apply(next(one for one in documents(INSTALL) if one["kind"] == "Namespace"))
    pod = operator_pod()
    create(cluster, pod)
    weaken(pod)
    with pytest.raises(ForbiddenError, match="restricted"):
        create(cluster, pod)


def test_the_operator_writes_no_files() -> None:
    """Not asked for by the restricted profile."""
    (container,) = operator_pod()["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "volumeMounts" not in container


def test_only_the_operators_pod_gets_a_token() -> None:
    (account,) = [one for one in documents(INSTALL) if one["kind"] == "ServiceAccount"]
    assert account["automountServiceAccountToken"] is False
    assert operator_pod()["spec"]["automountServiceAccountToken"] is True
