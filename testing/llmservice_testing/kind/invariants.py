"""What must never be seen, whatever a test does: watched from outside, all the time.

R18  `status.paused: true` while an engine that should be paused generates. From outside one cannot see what the operator
     has read, so an engine that has just come up is given a little time; an engine that has been up for longer is not.
R19  an observedGeneration that goes back, or that is ahead of the object's generation.
"""

import threading
from types import TracebackType
from typing import Final, Self

from llmservice_testing.builders import Json
from llmservice_testing.cluster import ApiError, Cluster, UnreachableError
from llmservice_testing.kind.pods import PodEngine, container_is_ready, seconds_up

_EVERY_SECONDS: Final = 0.25
_YOUNG_SECONDS: Final = 5.0
"""A new engine may run for a moment under a status that was true without it; times have a resolution of a second."""


class Invariants:
    """Watches the LLMServices of some namespaces in a thread of its own, as a context manager.

    `violations` says what was seen, and `looks` how often a status that says paused was held against the engines.
    """

    def __init__(self, cluster: Cluster, namespaces: list[str]) -> None:
        self.violations: list[str] = []
        self.looks = 0
        self._cluster = cluster
        self._namespaces = namespaces
        self._observed: dict[str, int] = {}
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="invariants", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def check(self) -> None:
        """Raises AssertionError where something was seen that must not be, or where the watch itself failed."""
        if self._failure is not None:
            raise AssertionError(f"the watcher of invariants failed: {self._failure!r}") from self._failure
        assert not self.violations, "\n".join(self.violations)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_SECONDS):
            try:
                for namespace in self._namespaces:
                    self._look_at(namespace)
            except (ApiError, UnreachableError):
                continue  # it cannot be seen while the API server, an engine or the definition is away
            except Exception as error:  # noqa: BLE001  # told by `check`
                self._failure = error
                return

    def _look_at(self, namespace: str) -> None:
        for service in self._cluster.list_llmservices(namespace):
            self._check_generations(service)
            if service.get("status", {}).get("paused") is True:
                self._check_engines(namespace, service)

    def _check_generations(self, service: Json) -> None:
        metadata, observed = service["metadata"], service.get("status", {}).get("observedGeneration", -1)
        before = self._observed.get(metadata["uid"], -1)
        self._observed[metadata["uid"]] = observed
        if observed < before:
            self._tell(service, f"observedGeneration went back from {before} to {observed} (R19)")
        if observed > metadata["generation"]:
            self._tell(service, f"observedGeneration {observed} is ahead of generation {metadata['generation']} (R19)")

    def _check_engines(self, namespace: str, service: Json) -> None:
        selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"]["matchLabels"].items())
        pods = self._cluster.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)["items"]
        generating = [pod for pod in pods if self._is_expected(pod) and not self._is_paused(pod)]
        if not generating:
            self.looks += 1
            return
        now = self._cluster.get_llmservice(namespace, service["metadata"]["name"])
        # It said so before and after the engine was asked, so it said so meanwhile.
        if now["metadata"]["resourceVersion"] == service["metadata"]["resourceVersion"]:
            names = ", ".join(pod["metadata"]["name"] for pod in generating)
            self._tell(service, f"status.paused is true while these engines generate: {names} (R18)")

    def _is_expected(self, pod: Json) -> bool:
        staying = "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Running"
        return staying and container_is_ready(pod) and seconds_up(pod) > _YOUNG_SECONDS

    def _is_paused(self, pod: Json) -> bool:
        """An engine that cannot be asked proves nothing."""
        try:
            return PodEngine(self._cluster, pod).is_paused()
        except (ApiError, UnreachableError):
            return True

    def _tell(self, service: Json, what: str) -> None:
        self.violations.append(f"{service['metadata']['namespace']}/{service['metadata']['name']}: {what}")
