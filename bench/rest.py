"""A settled fleet: what the operator costs while nothing happens."""

from __future__ import annotations

import re
import ssl
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

import httpx

from bench.engines import SimulatedEngines
from bench.progress import say
from bench.subject import Subject
from llmservice_testing.controlplane import ControlPlane

SECONDS: Final = 30.0
RESYNC_SECONDS: Final = 10
_SETTLE_SECONDS: Final = 15.0
"""After the change of resyncSeconds: one resync, and then some."""

_REQUESTS: Final = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_READS: Final = frozenset({"GET", "LIST", "WATCH", "CONNECT"})
_RESOURCES: Final = frozenset({"llmservices", "pods", "events"})
"""What the operator could write. The API server itself writes leases all the time."""


@dataclass(frozen=True)
class Rest:
    """What happened in `seconds`."""

    size: int
    seconds: float
    cpu_percent: float
    """Of one core."""
    resident_mib: float
    peak_mib: float
    """Since the operator's start: the fan-outs are in it."""
    reads_per_second: float
    posts: int
    api_writes: int
    """To LLMServices, pods and events, as the API server counts."""
    object_written: bool
    """Whether the LLMService's resourceVersion changed."""


def measure(subject: Subject, engines: SimulatedEngines) -> Rest:
    """Let it settle, then look for half a minute."""
    say(f"{len(engines.urls)} engines at rest, for {SECONDS:g} s")
    subject.resync_every(RESYNC_SECONDS)
    time.sleep(_SETTLE_SECONDS)
    plane = subject.stage.plane
    engines.forget_calls()
    version, writes = subject.resource_version(), api_writes(plane)
    before, began = subject.usage(), time.monotonic()
    time.sleep(SECONDS)
    after, seconds = subject.usage(), time.monotonic() - began
    calls = Counter(engines.calls())
    posts = sum(number for call, number in calls.items() if call.startswith("POST "))
    return Rest(
        size=len(engines.urls),
        seconds=seconds,
        cpu_percent=100 * (after.cpu_seconds - before.cpu_seconds) / seconds,
        resident_mib=after.resident_mib,
        peak_mib=after.peak_mib,
        reads_per_second=(calls.total() - posts) / seconds,
        posts=posts,
        api_writes=api_writes(plane) - writes,
        object_written=subject.resource_version() != version,
    )


def api_writes(plane: ControlPlane) -> int:
    """How often anybody wrote to what the operator could write to, by the API server's own count."""
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    headers = {"Authorization": f"Bearer {plane.token}"}
    with httpx.Client(verify=context, headers=headers, trust_env=False, timeout=30) as client:
        text = client.get(f"{plane.url}/metrics").raise_for_status().text
    total = 0.0
    for labels, value in _REQUESTS.findall(text):
        named = dict(_LABEL.findall(labels))
        if named["verb"] not in _READS and named["resource"] in _RESOURCES:
            total += float(value)
    return round(total)
