"""What the other integration tests stand on: the control plane itself, its client, and the builders."""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmservice_testing.builders import PodBuilder, make_llmservice, make_pod
from llmservice_testing.cluster import (
    Cluster,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnreachableError,
    WaitTimeoutError,
    wait_until,
)
from llmservice_testing.controlplane import Assets, ControlPlane, ServerNotReadyError, User

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

PROBES = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: probes.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: probes, singular: probe, kind: Probe}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, properties: {size: {type: integer, maximum: 3}}}
"""


def is_running(pid: int) -> bool:
    """A process that has ended and was not waited for by its new parent yet does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def user_of(cluster: Cluster) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return str(cluster.request("POST", REVIEWS, body=review)["status"]["userInfo"]["username"])


def allowed_to_list_pods(cluster: Cluster, namespace: str) -> bool:
    """The API server learns of a new role a moment after it was stored."""
    try:
        cluster.list_pods(namespace)
    except ForbiddenError:
        return False
    return True


def conditions(stored: dict[str, dict[str, list[dict[str, str]]]]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in stored["status"]["conditions"]}


class TestLife:
    def test_it_serves_kubernetes_1_34_over_verified_tls(self, cluster: Cluster) -> None:
        assert cluster.get("/version")["gitVersion"].startswith("v1.34.")

    def test_what_was_stored_survives_a_restart_of_the_api_server(
        self, control_plane: ControlPlane, cluster: Cluster, namespace: str
    ) -> None:
        url, uid = control_plane.url, cluster.create_pod(namespace, make_pod("kept"))["metadata"]["uid"]

        control_plane.restart_apiserver(grace_seconds=20)

        assert control_plane.url == url
        assert cluster.get_pod(namespace, "kept")["metadata"]["uid"] == uid

    def test_a_stopped_api_server_is_unreachable_until_it_is_started(
        self, control_plane: ControlPlane, cluster: Cluster
    ) -> None:
        control_plane.stop_apiserver()
        try:
            with pytest.raises(UnreachableError):
                cluster.get("/version")
        finally:
            control_plane.start_apiserver()
        assert cluster.get("/version")

    def test_a_paused_api_server_answers_nothing_until_it_is_continued(self, control_plane: ControlPlane) -> None:
        with Cluster(control_plane.kubeconfig, request_timeout=0.3) as impatient:
            control_plane.pause_apiserver()
            try:
                with pytest.raises(UnreachableError):
                    impatient.get("/version")
            finally:
                control_plane.continue_apiserver()
            assert wait_until(lambda: impatient.get("/version"), 10)

    def test_stop_ends_both_servers_and_removes_what_they_stored(self, assets: Assets) -> None:
        with ControlPlane(assets=assets) as other:
            pids, logs = other.pids, other.logs
            assert [is_running(pid) for pid in pids] == [True, True]

        assert [is_running(pid) for pid in pids] == [False, False]
        assert not logs.parent.exists()

    def test_the_servers_die_with_a_parent_that_is_killed(self, assets: Assets, tmp_path: Path) -> None:
        program = (
            "import sys, time, pathlib\n"
            "from llmservice_testing.controlplane import Assets, ControlPlane\n"
            "plane = ControlPlane(assets=Assets(*map(pathlib.Path, sys.argv[1:])))\n"
            "plane.start()\n"
            "print(*plane.pids, flush=True)\n"
            "sys.stdin.read()\n"
        )
        command = [sys.executable, "-c", program, str(assets.etcd), str(assets.kube_apiserver)]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}  # nobody removes what it has stored
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as parent:
            assert parent.stdout is not None
            pids = parent.stdout.readline().split()
            parent.kill()
        assert len(pids) == 2
        wait_until(lambda: not any(is_running(int(pid)) for pid in pids), 10, what="both servers being gone")

    def test_the_servers_outlive_the_thread_that_started_them(self, control_plane: ControlPlane) -> None:
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as worker:
            worker.submit(control_plane.restart_apiserver).result()
        # Linux sends the signal for a parent's death when the forking *thread* ends, and the worker has ended by now.
        with Cluster(control_plane.kubeconfig) as cluster:
            assert cluster.get("/version")

    def test_it_listens_where_outgoing_connections_do_not_get_their_ports(self, control_plane: ControlPlane) -> None:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        assert int(control_plane.url.rpartition(":")[2]) < lowest

    def test_a_server_that_fails_is_reported_with_the_end_of_its_log(self, tmp_path: Path) -> None:
        broken = tmp_path / "etcd"
        broken.write_text("#!/bin/sh\necho 'the disk is on fire' >&2\nexit 3\n")
        broken.chmod(0o755)
        plane = ControlPlane(assets=Assets(etcd=broken, kube_apiserver=broken))

        with pytest.raises(ServerNotReadyError, match=r"etcd ended with status 3[^$]*the disk is on fire"):
            plane.start()

        assert plane.pids == ()


class TestUsers:
    def test_a_user_of_the_control_plane_has_no_rights_by_itself(
        self, control_plane: ControlPlane, cluster: Cluster, namespace: str
    ) -> None:
        with Cluster(control_plane.user_kubeconfig("nobody")) as nobody:
            assert user_of(nobody) == "nobody"
            with pytest.raises(ForbiddenError, match='User "nobody" cannot list resource "pods"'):
                nobody.list_pods(namespace)

    def test_a_role_gives_rights_to_a_service_account(
        self, control_plane: ControlPlane, cluster: Cluster, namespace: str
    ) -> None:
        rbac = "rbac.authorization.k8s.io"
        token = cluster.service_account_token(namespace, "reader")
        kubeconfig = control_plane.user_kubeconfig("reader", token=token, namespace=namespace)
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
        cluster.apply(
            {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "reader"}, "rules": [rule]},
            namespace=namespace,
        )
        cluster.apply(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "reader"},
                "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "reader"},
            },
            namespace=namespace,
        )

        with Cluster(kubeconfig) as reader:
            assert user_of(reader) == f"system:serviceaccount:{namespace}:reader"
            assert wait_until(lambda: allowed_to_list_pods(reader, namespace), 10)
            with pytest.raises(ForbiddenError):
                reader.delete_pod(namespace, "any")

    def test_two_users_of_one_name_are_refused(self) -> None:
        for users in ([User("ann"), User("ann")], [User("admin")]):
            with pytest.raises(ValueError, match="must differ"):
                ControlPlane(users=users)

    def test_a_group_gives_rights_to_its_members(self, assets: Assets) -> None:
        with (
            ControlPlane(users=[User("root", groups=("system:masters", "more"))], assets=assets) as plane,
            Cluster(plane.user_kubeconfig("root")) as root,
        ):
            assert root.list_pods("default") == []


class TestPods:
    def test_a_pod_is_created_and_given_an_address(self, cluster: Cluster, namespace: str) -> None:
        pod = make_pod("qwen-0").labels(app="qwen").ip("127.0.0.7").port(8000, name="http").ready()

        stored = cluster.create_pod(namespace, pod)

        assert stored["metadata"]["labels"] == {"app": "qwen"}
        assert stored["spec"]["containers"][0]["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]
        status = stored["status"]
        assert (status["phase"], status["podIP"], status["podIPs"]) == ("Running", "127.0.0.7", [{"ip": "127.0.0.7"}])
        assert conditions(stored)["Ready"] == "True"
        assert status["containerStatuses"][0]["ready"]
        assert [one["metadata"]["uid"] for one in cluster.list_pods(namespace)] == [stored["metadata"]["uid"]]

    def test_a_pod_without_an_address_is_pending(self, cluster: Cluster, namespace: str) -> None:
        status = cluster.create_pod(namespace, make_pod("new"))["status"]

        assert (status["phase"], status.get("podIP"), status.get("podIPs")) == ("Pending", None, None)
        assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}

    def test_a_pod_that_moves_has_its_new_address_only(self, cluster: Cluster, namespace: str) -> None:
        pod = make_pod("moving").ip("127.0.0.7")
        cluster.create_pod(namespace, pod)

        dual = cluster.set_pod_status(namespace, pod.ip("127.0.0.8", "fd00::8"))
        gone = cluster.set_pod_status(namespace, pod.no_ip())

        assert dual["status"]["podIP"] == "127.0.0.8"
        assert dual["status"]["podIPs"] == [{"ip": "127.0.0.8"}, {"ip": "fd00::8"}]
        assert (gone["status"].get("podIP"), gone["status"].get("podIPs")) == (None, None)

    def test_a_restarted_container_has_a_new_identity(self, cluster: Cluster, namespace: str) -> None:
        pod = make_pod("crashing").ip("127.0.0.7").ready()
        before = cluster.create_pod(namespace, pod)["status"]["containerStatuses"][0]

        after = cluster.set_pod_status(namespace, pod.restarted())["status"]["containerStatuses"][0]

        assert (before["restartCount"], after["restartCount"]) == (0, 1)
        assert (before["ready"], after["ready"]) == (True, False)
        assert before["containerID"] != after["containerID"]

    def test_a_condition_that_somebody_else_wrote_stays(self, cluster: Cluster, namespace: str) -> None:
        pod = make_pod("gated").readiness_gate("llmservice.io/serving").ip("127.0.0.7").ready()
        cluster.create_pod(namespace, pod)
        theirs = {"type": "llmservice.io/serving", "status": "False", "lastTransitionTime": "2026-01-02T00:00:00Z"}
        listed = cluster.get_pod(namespace, "gated")["status"]["conditions"]
        cluster.patch_pod(namespace, "gated", {"status": {"conditions": [*listed, theirs]}}, subresource="status")

        stored = cluster.set_pod_status(namespace, pod.restarted())

        assert conditions(stored)["llmservice.io/serving"] == "False"
        assert conditions(stored)["Ready"] == "False"

    def test_a_terminating_pod_stays_until_it_is_deleted(self, cluster: Cluster, namespace: str) -> None:
        cluster.create_pod(namespace, make_pod("leaving").ip("127.0.0.7").ready())

        cluster.terminate_pod(namespace, "leaving")

        assert cluster.get_pod(namespace, "leaving")["metadata"]["deletionTimestamp"]
        cluster.delete_pod(namespace, "leaving")
        with pytest.raises(NotFoundError, match='pods "leaving" not found'):
            cluster.get_pod(namespace, "leaving")


class TestBuilders:
    def test_a_builder_goes_on_without_changing_what_it_built(self) -> None:
        builder = make_pod("qwen-0").labels(app="qwen").ip("127.0.0.7")
        built = builder.obj()

        builder.labels(app="other").ip("127.0.0.8").port(9000)

        assert built["metadata"]["labels"] == {"app": "qwen"}
        assert built["status"]["podIP"] == "127.0.0.7"
        assert built["spec"]["containers"][0]["ports"] == []

    def test_one_container_that_does_not_run_makes_the_pod_unready(self) -> None:
        pod = make_pod("two").port(8000).port(15090, container="sidecar").ip("127.0.0.7").ready()
        assert conditions(pod.obj())["Ready"] == "True"

        pod.terminated(1, reason="Error", container="sidecar")

        engine, sidecar = pod.obj()["status"]["containerStatuses"]
        assert (engine["ready"], sidecar["ready"]) == (True, False)
        assert sidecar["state"]["terminated"]["exitCode"] == 1
        assert conditions(pod.obj())["Ready"] == "False"

    @pytest.mark.parametrize(
        ("pod", "state"),
        [
            (make_pod("new").ready(), "waiting"),
            (make_pod("crashing").ip("127.0.0.7").waiting().ready(), "waiting"),
            (make_pod("killed").ip("127.0.0.7").ready().terminated(), "terminated"),
            (make_pod("done").ip("127.0.0.7").ready().phase("Succeeded"), "terminated"),
            (make_pod("lost").ip("127.0.0.7").ready().phase("Failed"), "terminated"),
        ],
        ids=lambda value: value.name if isinstance(value, PodBuilder) else value,
    )
    def test_a_container_that_does_not_run_is_not_ready(self, pod: PodBuilder, state: str) -> None:
        (container,) = pod.obj()["status"]["containerStatuses"]
        assert (list(container["state"]), container["ready"], conditions(pod.obj())["Ready"]) == (
            [state],
            False,
            "False",
        )

    def test_a_container_that_waited_runs_again_as_it_was(self) -> None:
        pod = make_pod("crashing").ip("127.0.0.7")
        before = pod.obj()
        assert pod.waiting().obj() != before
        assert pod.running().obj() == before

    def test_a_readiness_gate_holds_the_pod_back(self) -> None:
        pod = make_pod("gated").readiness_gate("llmservice.io/serving").ip("127.0.0.7").ready()
        assert (conditions(pod.obj())["ContainersReady"], conditions(pod.obj())["Ready"]) == ("True", "False")

        pod.condition("llmservice.io/serving", "True")

        assert conditions(pod.obj())["Ready"] == "True"

    def test_an_llmservice_says_what_it_was_told(self) -> None:
        built = (
            make_llmservice("qwen")
            .selector(app="qwen")
            .generation("paused")
            .ports(8000, "http")
            .engine(scheme="https")
            .pause(mode="wait")
            .max_paused(60, then="resume")
            .deletion_policy("resume")
            .spec(resyncSeconds=1)
            .obj()
        )

        assert (built["apiVersion"], built["kind"]) == ("llmservice.io/v1alpha1", "LLMService")
        assert built["metadata"] == {"name": "qwen"}
        assert built["spec"] == {
            "selector": {"matchLabels": {"app": "qwen"}},
            "generation": "paused",
            "engine": {"ports": [8000, "http"], "scheme": "https"},
            "pause": {"mode": "wait"},
            "maxPausedSeconds": 60,
            "onMaxPaused": "resume",
            "deletionPolicy": "resume",
            "resyncSeconds": 1,
        }


class TestCustomResources:
    def test_a_definition_is_served_when_apply_returns_and_gone_when_delete_does(
        self, cluster: Cluster, namespace: str, tmp_path: Path
    ) -> None:
        definition = tmp_path / "probes.yaml"
        definition.write_text(PROBES)
        probe = {"apiVersion": "example.com/v1", "kind": "Probe", "metadata": {"name": "one"}, "spec": {"size": 1}}

        for _ in range(2):  # again after a deletion, too
            cluster.apply_crd(definition)
            cluster.apply(probe, namespace=namespace)
            with pytest.raises(InvalidError, match=r"spec\.size: Invalid value: 4"):
                cluster.apply(probe | {"spec": {"size": 4}}, namespace=namespace)
            cluster.delete_crd("probes.example.com")
            with pytest.raises(NotFoundError):
                cluster.get("/apis/example.com/v1")

    def test_an_llmservice_is_created_read_patched_and_deleted(self, cluster: Cluster, namespace: str) -> None:
        service = make_llmservice("qwen").selector(app="qwen").generation("paused")
        created = cluster.create_llmservice(namespace, service)
        with pytest.raises(ConflictError, match="already exists"):
            cluster.create_llmservice(namespace, service)

        patched = cluster.patch_llmservice(namespace, "qwen", {"spec": {"generation": "running"}})

        assert patched["metadata"]["generation"] == created["metadata"]["generation"] + 1
        assert cluster.get_llmservice(namespace, "qwen") == patched
        assert [one["metadata"]["name"] for one in cluster.list_llmservices(namespace)] == ["qwen"]
        cluster.delete_llmservice(namespace, "qwen")
        with pytest.raises(NotFoundError):
            cluster.get_llmservice(namespace, "qwen")

    def test_events_are_listed_in_the_order_they_were_written(self, cluster: Cluster, namespace: str) -> None:
        for name, regarding in (("written-first", "qwen"), ("then", "llama")):
            about = {"kind": "Pod", "name": regarding, "namespace": namespace}
            event = {"metadata": {"name": name}, "involvedObject": about, "reason": "Tested", "type": "Normal"}
            cluster.request("POST", f"/api/v1/namespaces/{namespace}/events", body=event)

        assert [one["metadata"]["name"] for one in cluster.list_events(namespace)] == ["written-first", "then"]
        assert [one["metadata"]["name"] for one in cluster.list_events(namespace, about="llama")] == ["then"]


class TestWaitUntil:
    def test_it_returns_the_first_true_value(self) -> None:
        values = iter([None, 0, "here"])
        assert wait_until(lambda: next(values), 5) == "here"

    def test_its_failure_names_what_was_awaited_and_shows_what_was_seen_last(self) -> None:
        with pytest.raises(
            WaitTimeoutError, match=r"0\.1 s in vain for: the fleet pausing\nlast seen: \{\n .*\"x\": 1"
        ):
            wait_until(lambda: False, 0.1, what="the fleet pausing", last=lambda: {"x": 1})
        with pytest.raises(WaitTimeoutError, match="last seen: 0"):
            wait_until(lambda: 0, 0.1)

    def test_an_outage_is_waited_through(self) -> None:
        outages = [UnreachableError("refused"), UnreachableError("cut")]

        def answer() -> str:
            if outages:
                raise outages.pop()
            return "back"

        assert wait_until(answer, 5) == "back"

    def test_any_other_error_passes_through_at_once(self) -> None:
        with pytest.raises(ZeroDivisionError):
            wait_until(lambda: 1 / 0, 60)
