"""An app for one test: simulated, its proxies on addresses of their own with their pods, and the LLMService that selects
them.

    fleet = RayFleet(cluster, simulator, addresses, namespace)
    fleet.add_proxy(); fleet.add_proxy()
    fleet.declare("paused")
    fleet.wait("Paused", reason="AggregatePaused")
    assert fleet.app.paused() == [True, True]
"""

from __future__ import annotations

import itertools
import json
import socket
from dataclasses import dataclass
from typing import Any, Self

from llmservice_testing.builders import Json, PodBuilder, make_llmservice, make_pod
from llmservice_testing.cluster import Cluster, wait_until
from llmservice_testing.fleet import PATIENCE_SECONDS, Addresses, Fleet
from llmservice_testing.ray_simulator.thread import RaySimulatorThread, ThreadedApp, ThreadedProxy
from llmservice_testing.simulator import Call

PORT = 8000


@dataclass(eq=False)
class ProxyPod:
    """One pod and the proxy in it."""

    pod: PodBuilder
    proxy: ThreadedProxy

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.pod.name


class RayFleet(Fleet):
    """The proxies of one app in one namespace, and the LLMService as a user handles it."""

    def __init__(
        self,
        cluster: Cluster,
        simulator: RaySimulatorThread,
        addresses: Addresses,
        namespace: str,
        *,
        name: str = "qwen",
        app: ThreadedApp | None = None,
    ) -> None:
        """`app` None: one with two replicas of the model `tiny`."""
        self.cluster = cluster
        self.namespace = namespace
        self.name = name
        self.app = app or simulator.app()
        self.proxies: list[ProxyPod] = []
        self.members = []
        self._simulators = simulator
        self._addresses = addresses
        self._numbers = itertools.count()

    def close(self) -> None:
        """Ends the proxies."""
        for each in self.proxies:
            each.proxy.stop()

    def add_proxy(self, *, ready: bool = True, start: bool = True, app: ThreadedApp | None = None) -> ProxyPod:
        """Adds a pod with a proxy. `start` false leaves that to the test; `app` is another one than the fleet's."""
        host = self._addresses.take()
        proxy = self._simulators.proxy(host, PORT, app or self.app, start=start)
        pod = make_pod(f"{self.name}-{next(self._numbers)}").labels(app=self.name).ip(host).port(PORT)
        if ready:
            pod.ready()
        self.cluster.create_pod(self.namespace, pod)
        added = ProxyPod(pod, proxy)
        self.proxies.append(added)
        return added

    def declare(self, generation: str | None = None, **spec: Any) -> Json:
        """Creates the LLMService, for the model `tiny`. It looks at the app every second, so that a test can wait."""
        engine = {"type": "ray-serve", "model": "tiny", **spec.pop("engine", {})}
        service = make_llmservice(self.name).selector(app=self.name).spec(resyncSeconds=1, engine=engine)
        if generation is not None:
            service.generation(generation)
        return self.cluster.create_llmservice(self.namespace, service.spec(**spec))

    def posts(self) -> list[Call]:
        """The control calls to all proxies, oldest first."""
        return sorted((call for each in self.proxies for call in each.proxy.posts()), key=lambda call: call.at)

    def let_pass(self, resyncs: int = 2) -> None:
        """Returns after the app was read so many times more, through the first proxy."""
        first = self.proxies[0].proxy
        seen = sum(1 for call in first.calls if call.path == "/is_paused")
        first.asked("/is_paused", times=seen + resyncs, within=PATIENCE_SECONDS)

    def open_request(self) -> OpenAppRequest:
        """A request that one of the replicas works on, through the first proxy."""
        return OpenAppRequest(self.app, self.proxies[0].proxy)

    def target_state(self) -> Json:
        """The only entry of `status.targetStates`."""
        (entry,) = self.status()["targetStates"]
        found: Json = entry
        return found

    def wait_for_state(self, state: str, reason: str | None = None) -> Json:
        """Waits until the app is in this state and, where it is given, for this reason; returns its entry."""

        def shows(status: Json) -> bool:
            entries = status.get("targetStates", [])
            return len(entries) == 1 and entries[0]["state"] == state and reason in (None, entries[0].get("reason"))

        status = self.wait_for(shows, f"the app being {state}" + (f" for {reason}" if reason else ""))
        entry: Json = status["targetStates"][0]
        return entry


class OpenAppRequest:
    """A request that a replica works on until `end`, which is its client hanging up."""

    def __init__(self, app: ThreadedApp, proxy: ThreadedProxy) -> None:
        body = json.dumps({"model": "tiny", "max_tokens": 100_000_000}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: app\r\nContent-Length: {len(body)}\r\n\r\n"
        self._app = app
        self._socket = socket.create_connection((proxy.host, proxy.port), timeout=10)
        self._socket.sendall(head.encode() + body)
        wait_until(self.is_open, PATIENCE_SECONDS, what="a request in flight")

    def is_open(self) -> bool:
        """Whether a replica works on it."""
        return any(replica.running_requests for replica in self._app.replicas())

    def end(self) -> None:
        """Ends it; the app has nothing left of it."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
