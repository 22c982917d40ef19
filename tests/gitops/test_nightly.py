"""The samples that hold a fleet every night: by a CronJob with least rights, and by two commits."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from llmservice_testing.builders import Json
from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane
from llmservice_testing.fleet import Fleet, Kubectl
from llmservice_testing.gitops import GitOps
from llmservice_testing.simulator import Fault

from .repository import SAMPLES, build, in_namespace, llmservice

CRONJOB: Final = SAMPLES / "nightly" / "cronjob"
SCRIPT: Final = SAMPLES / "nightly" / "commits" / "set-generation.sh"


@pytest.fixture
def rollout(fleet: Fleet) -> Fleet:
    """The fleet that the sample holds, with two engines."""
    fleet.name = "rollout"
    fleet.grow(2)
    return fleet


@pytest.fixture
def night_watch(control_plane: ControlPlane, cluster: Cluster, namespace: str, tmp_path: Path) -> Kubectl:
    """Kubectl as the CronJob's pod has it: with the token of its service account, and the sample's rights."""
    for manifest in build(CRONJOB):
        if manifest["kind"] == "RoleBinding":
            manifest["subjects"][0]["namespace"] = namespace
        cluster.apply(in_namespace(manifest, namespace), namespace=namespace)
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    token = cluster.service_account_token(namespace, "nightly-hold")
    user = config["contexts"][0]["context"]["user"]
    config["users"] = [{"name": user, "user": {"token": token}}]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    return Kubectl(kubeconfig, namespace)


def commands(cronjob: str) -> list[list[str]]:
    """What its containers run, in their order."""
    (job,) = [one for one in build(CRONJOB) if one["kind"] == "CronJob" and one["metadata"]["name"] == cronjob]
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return [container["args"] for container in pod["initContainers"] + pod["containers"]]


def test_the_cronjobs_hold_and_release_the_fleet_and_flux_lets_them(
    rollout: Fleet, night_watch: Kubectl, gitops: GitOps
) -> None:
    manifest = in_namespace(llmservice("flux", "people-own", name="rollout"), rollout.namespace)
    del manifest["metadata"]["annotations"]  # the name of the field manager is enough
    for cronjob, paused in (("nightly-hold", True), ("nightly-release", False)):
        gitops.flux_apply([manifest])
        for arguments in commands(cronjob):
            night_watch(*arguments)
        assert {engine.paused for engine in rollout.engines} == {paused}
        assert gitops.flux_apply([manifest]) == {"rollout": "unchanged"}
        assert rollout.get()["spec"]["generation"] == ("paused" if paused else "running")


@pytest.mark.parametrize(
    "arguments",
    [
        ["patch", "llmservice", "chat", "--type=merge", '--patch={"spec":{"generation":"paused"}}'],
        ["delete", "llmservice", "rollout"],
        ["get", "llmservices"],
        ["get", "pods"],
        [
            "patch",
            "llmservice",
            "rollout",
            "--subresource=status",
            "--type=merge",
            '--patch={"status":{"paused":true}}',
        ],
    ],
    ids=lambda arguments: " ".join(arguments[:3]),
)
def test_the_cronjobs_may_do_nothing_else(rollout: Fleet, night_watch: Kubectl, arguments: list[str]) -> None:
    rollout.declare("running")
    refused = night_watch(*arguments, check=False)
    assert refused.returncode != 0
    assert "forbidden" in refused.stderr


@pytest.mark.parametrize("verb", ["get", "list", "patch"])
def test_each_of_its_rights_is_needed(
    rollout: Fleet, night_watch: Kubectl, cluster: Cluster, namespace: str, verb: str
) -> None:
    rollout.declare("running")
    rollout.engines[0].faults.script("/pause", Fault.slow(before=1.0))  # there is something to wait for
    (role,) = [one for one in build(CRONJOB) if one["kind"] == "Role"]
    role["rules"][0]["verbs"].remove(verb)
    cluster.apply(in_namespace(role, namespace), namespace=namespace)
    done = [night_watch(*arguments, check=False) for arguments in _hold()]
    assert any(one.returncode != 0 and "forbidden" in one.stderr for one in done)


def _hold() -> list[list[str]]:
    """The commands, with less patience."""
    return [[part.replace("--timeout=30m", "--timeout=3s") for part in command] for command in commands("nightly-hold")]


# Commits


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """A clone of a repository with the Flux fleets, and git in it."""
    environment = os.environ | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "ci",
        "GIT_AUTHOR_EMAIL": "ci@example.com",
        "GIT_COMMITTER_NAME": "ci",
        "GIT_COMMITTER_EMAIL": "ci@example.com",
    }
    clone = tmp_path / "clone"

    def run(*command: str, check: bool = True) -> str:
        folder = clone if clone.exists() else tmp_path
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=30, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    run("git", "init", "--quiet", "--bare", "--initial-branch=main", "origin")
    run("git", "clone", "--quiet", "origin", "clone")
    run("git", "checkout", "--quiet", "-B", "main")
    run("cp", "-r", str(SAMPLES / "flux" / "fleets"), ".")
    run("git", "add", ".")
    run("git", "commit", "--quiet", "--message", "Fleets")
    run("git", "push", "--quiet", "--set-upstream", "origin", "main")
    return run


def test_two_commits_hold_and_release_the_fleet(
    fleet: Fleet, gitops: GitOps, git: Callable[..., str], tmp_path: Path
) -> None:
    fleet.name = "chat"
    fleet.grow(2)
    file = "fleets/git-owns/llmservice.yaml"

    def sync() -> Json:
        (manifest,) = build(tmp_path / "clone" / "fleets" / "git-owns")
        gitops.flux_apply([in_namespace(manifest, fleet.namespace)])
        return fleet.get()

    sync()
    for desired, paused in (("paused", True), ("running", False)):
        git(str(SCRIPT), desired, file)
        assert git("git", "log", "-1", "--format=%s", "origin/main").strip() == f"Set generation of {file} to {desired}"
        sync()
        fleet.wait("Paused", str(paused))
        assert {engine.paused for engine in fleet.engines} == {paused}
    assert "says running already" in git(str(SCRIPT), "running", file)
    assert git("git", "rev-list", "--count", "origin/main").strip() == "3"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["off", "fleets/git-owns/llmservice.yaml"], "must be paused or running, not 'off'"),
        (["paused", "fleets/people-own/llmservice.yaml"], "must have exactly one line"),
    ],
)
def test_the_script_refuses_what_it_would_do_wrong(git: Callable[..., str], arguments: list[str], words: str) -> None:
    assert words in git(str(SCRIPT), *arguments, check=False)
    assert git("git", "status", "--porcelain") == ""
    assert git("git", "rev-list", "--count", "HEAD").strip() == "1"
