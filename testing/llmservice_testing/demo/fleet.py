"""What the demo puts into the cluster: pods, each with an engine at its address, and one LLMService."""

from dataclasses import dataclass
from typing import Final

from llmservice_testing.builders import PodBuilder, make_pod
from llmservice_testing.demo.engines import Engine
from llmservice_testing.demo.request import OpenRequest

NAMESPACE: Final = "default"
NAME: Final = "qwen"
RESYNC_SECONDS: Final = 2


@dataclass
class Member:
    """A pod of the fleet, its engine, and the request that it is busy with, if any."""

    pod: PodBuilder
    engine: Engine
    request: OpenRequest | None = None


def member(number: int, engine: Engine) -> Member:
    """A pod without an address yet."""
    return Member(make_pod(f"{NAME}-{number}").labels(app=NAME).port(engine.port), engine)


def manifest(port: int) -> str:
    """The LLMService as a user would write it."""
    return f"""\
apiVersion: llmservice.io/v1alpha1
kind: LLMService
metadata:
  name: {NAME}
spec:
  generation: running
  selector:
    matchLabels:
      app: {NAME}
  engine:
    ports: [{port}]
  pause:
    mode: keep        # requests in flight are frozen, and go on after the resume
  resyncSeconds: {RESYNC_SECONDS}
"""
