"""A control plane whose API server writes down what service accounts ask of it, in its own words: its audit log.

    with AuditedControlPlane() as plane:
        mark = plane.mark()
        ...
        assert plane.rights_used("system:serviceaccount:ns:name", since=mark) == {...}

This is what RBAC decided about, so it can be compared with the rules that were granted.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from llmservice_testing.builders import Json
from llmservice_testing.controlplane import ControlPlane

_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],  # what RBAC refuses never gets beyond it, and is told with the answer
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


@dataclass(frozen=True, order=True, slots=True)
class Right:
    """One thing that a rule of RBAC can allow."""

    verb: str
    group: str
    resource: str
    """With its subresource: `pods/status`."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the API server wrote it down.

    Attributes:
        right: what it needed; None where it asked for no resource (`/openapi/v3`, discovery).
        namespace: empty where it was about all namespaces.
        status: the answer.
    """

    user: str
    path: str
    right: Right | None
    namespace: str
    status: int

    @classmethod
    def of(cls, entry: Json) -> Self:
        """From an entry of the log."""
        about = entry.get("objectRef", {})
        resource = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
        return cls(
            user=entry["user"]["username"],
            path=entry["requestURI"],
            right=Right(entry["verb"], about.get("apiGroup", ""), resource) if resource else None,
            namespace=about.get("namespace", ""),
            status=entry.get("responseStatus", {}).get("code", 0),
        )


class AuditedControlPlane(ControlPlane):
    """As every control plane, and with an audit log of what service accounts do."""

    @property
    def audit_log(self) -> Path:
        """One JSON object a line."""
        return self.logs / "audit.log"

    def mark(self) -> int:
        """The present end of the log, for `since`."""
        return self.audit_log.stat().st_size if self.audit_log.exists() else 0

    def requests(self, user: str, *, since: int = 0) -> list[Request]:
        """What a user asked so far, oldest first."""
        with self.audit_log.open("rb") as log:
            log.seek(since)
            lines = [line for line in log if line.endswith(b"\n")]  # the last may still be being written
        return [one for one in map(Request.of, map(json.loads, lines)) if one.user == user]

    def rights_used(self, user: str, *, since: int = 0) -> set[Right]:
        """Which rights that took."""
        return {one.right for one in self.requests(user, since=since) if one.right is not None}

    def _apiserver_command(self) -> list[str]:
        policy = self.logs / "audit-policy.json"
        policy.write_text(json.dumps(_POLICY))
        return [
            *super()._apiserver_command(),
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
        ]


def rights(rules: Iterable[Json]) -> set[Right]:
    """What the rules of a Role or ClusterRole allow. Raises ValueError for a wildcard, or a right to no resource."""
    found: set[Right] = set()
    for rule in rules:
        if set(rule) != {"apiGroups", "resources", "verbs"}:
            raise ValueError(f"a rule with other keys than apiGroups, resources and verbs: {rule}")
        found |= {
            Right(verb, group, resource)
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
    if any("*" in (right.verb, right.group, right.resource) for right in found):
        raise ValueError(f"a wildcard among {sorted(found)}")
    return found


def rules(granted: Iterable[Right]) -> Sequence[Json]:
    """The rights as rules of a Role, one for each."""
    return [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]} for right in sorted(granted)
    ]
