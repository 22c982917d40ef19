"""`examples/weight_update.py` on real engines: other weights while none generates, and a frozen request that goes on."""

import asyncio
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmservice_testing.builders import make_llmservice, make_pod
from llmservice_testing.cluster import Cluster
from llmservice_testing.controlplane import ControlPlane, find_assets
from llmservice_testing.fleet import Kubectl
from llmservice_testing.operator_process import OperatorProcess
from llmservice_testing.vllm import RealEngine
from llmservice_testing.vllm.checkpoint import write_checkpoint
from llmservice_testing.vllm.client import Completion, EngineClient
from llmservice_testing.vllm.install import ensure_installed

ROOT = Path(__file__).parents[2]
CRD = ROOT / "crds" / "llmservices.llmservice.io.yaml"
EXAMPLE = ROOT / "examples" / "weight_update.py"
ADDRESSES = ("127.0.0.183", "127.0.0.184")
LONG = 1000

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Stage:
    """Two engines with the weights of `step-1`, behind the LLMService `qwen`."""

    engines: tuple[RealEngine, ...]
    checkpoints: Path
    kubeconfig: Path

    def update(self, step: str) -> "subprocess.CompletedProcess[str]":
        """The example, as a user starts it."""
        return subprocess.run(
            [sys.executable, str(EXAMPLE), "qwen", str(self.checkpoints / step), "--namespace", "default"],
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def ask(self, path: str, body: object) -> list[Any]:
        """What each engine answers."""
        return [
            httpx.post(f"{engine.url}{path}", json=body, timeout=60, trust_env=False).raise_for_status().json()
            for engine in self.engines
        ]

    def says(self) -> set[str]:
        """What the engines make of one prompt."""
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 12, "temperature": 0}
        return {answer["choices"][0]["text"] for answer in self.ask("/v1/completions", body)}

    def checksums(self) -> list[Any]:
        """Of each engine's weights."""
        return [answer["checksums"] for answer in self.ask("/weight_checker", {"action": "checksum"})]

    def are_paused(self) -> list[bool]:
        """As the engines say."""
        urls = [f"{engine.url}/is_paused" for engine in self.engines]
        return [httpx.get(url, timeout=10, trust_env=False).json()["is_paused"] for url in urls]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("weights")
    for number in (1, 2):
        write_checkpoint(folder / f"step-{number}", seed=number)
    installation = dataclasses.replace(ensure_installed(), model=folder / "step-1")
    engines = tuple(
        RealEngine(
            host=host,
            extra_args=["--load-format", "safetensors"],
            installation=installation,
            log=folder / f"{host}.log",
        )
        for host in ADDRESSES
    )
    try:
        for engine in engines:
            engine.launch()
        for engine in engines:
            engine.wait_until_ready(within=900)
        with ControlPlane(assets=find_assets()) as plane, Cluster(plane.kubeconfig) as cluster, ExitStack() as stack:
            cluster.apply_crd(CRD)
            stack.enter_context(OperatorProcess(plane.kubeconfig, folder / "operator"))
            for number, host in enumerate(ADDRESSES):
                pod = make_pod(f"qwen-{number}").labels(app="qwen").ip(host).port(8000).ready()
                cluster.create_pod("default", pod)
            cluster.create_llmservice("default", make_llmservice("qwen").selector(app="qwen").generation("running"))
            Kubectl(plane.kubeconfig, "default")("wait", "llmservice/qwen", "--for=condition=Ready", "--timeout=60s")
            yield Stage(engines, folder, plane.kubeconfig)
    finally:
        for engine in engines:
            engine.stop()


def test_all_engines_have_the_new_weights_and_generate_again(stage: Stage) -> None:
    before, said = stage.checksums(), stage.says()
    assert before[0] == before[1]
    done = stage.update("step-2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "2 engines are paused"
    after = stage.checksums()
    assert after[0] == after[1]
    assert after != before
    assert stage.are_paused() == [False, False]
    assert stage.says() != said
    assert stage.update("step-1").returncode == 0
    assert stage.checksums() == before
    assert stage.says() == said


async def test_a_request_in_flight_is_frozen_and_goes_on_with_the_new_weights(stage: Stage) -> None:
    async with EngineClient(stage.engines[0].url) as client:
        request = client.begin_completion(LONG)
        await request.begun()
        done = await asyncio.to_thread(stage.update, "step-2")
        assert done.returncode == 0, done.stderr
        assert await request == Completion(LONG, "length")
    assert (await asyncio.to_thread(stage.update, "step-1")).returncode == 0


def test_weights_that_cannot_be_loaded_leave_the_fleet_paused_and_say_so(stage: Stage) -> None:
    done = stage.update("step-3")  # which there is not
    assert done.returncode == 2
    assert "answered 500" in done.stderr
    assert "kubectl patch llmservices.llmservice.io qwen -n default" in done.stderr
    assert stage.are_paused() == [True, True]
    done = stage.update("step-1")
    assert done.returncode == 0, "the same program takes its own pause up and ends it"
    assert stage.are_paused() == [False, False]
