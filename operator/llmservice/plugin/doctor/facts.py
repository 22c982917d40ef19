"""Everything that the checks look at: read once, and never changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llmservice.api import Condition, ConditionType, LabelSelector, LLMService, TargetStatus
from llmservice.client.snapshot import Snapshot
from llmservice.domain import ownership
from llmservice.domain.fleet import Pod
from llmservice.kube.pods import to_pod

Item = Mapping[str, Any]

OPERATOR_LABELS = "app.kubernetes.io/name=llmservice,app.kubernetes.io/component=operator"
"""What the manifests and the chart give the operator's Deployment."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The answer to one question to the API server."""

    resource: str
    """What was asked for, as ``kubectl get`` names it."""
    items: tuple[Item, ...] = ()
    lack: str = ""
    """Why it could not be looked at: rights, or no answer. Then ``items`` are empty and say nothing."""
    is_served: bool = True
    """False where this cluster has no such resource, which is as good as none."""

    @property
    def is_known(self) -> bool:
        """Whether ``items`` are all there are."""
        return not self.lack


@dataclass(frozen=True, slots=True)
class Probe:
    """What an engine said to ``GET /is_paused`` through the API server."""

    pod: str
    port: int
    is_paused: bool | None
    """None where it gave no such answer."""
    words: str
    """The answer, or why there is none."""
    is_from_engine: bool
    """Whether something in the pod answered; otherwise the API server did not get there, or may not."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of asking the operator for a fresh read."""

    answered: bool
    words: str


@dataclass(frozen=True)
class Facts:
    """About one fleet."""

    snapshot: Snapshot
    now: float
    """Seconds since the epoch."""
    flags: str = ""
    """How a further command says the same cluster."""
    siblings: Looked = Looked("llmservices.llmservice.io")
    """All LLMServices of the namespace."""
    pods: Looked = Looked("pods")
    """Those that ``spec.selector`` selects."""
    others: Looked = Looked("pods")
    """Some other pods of the namespace; looked for where none is selected."""
    services: Looked = Looked("services")
    slices: Looked = Looked("endpointslices.discovery.k8s.io")
    policies: Looked = Looked("networkpolicies.networking.k8s.io")
    autoscalers: Looked = Looked("horizontalpodautoscalers.autoscaling")
    budgets: Looked = Looked("poddisruptionbudgets.policy")
    replicasets: Looked = Looked("replicasets.apps")
    operators: Looked = Looked("deployments.apps (of the operator, in all namespaces)")
    schema: Looked = Looked("the served schema")
    """Its items are the fields that it lacks: ``{"path": ...}``."""
    trust: Looked | None = None
    """The ConfigMap of ``spec.engine.tls.caConfigMap``; None where none is named."""
    probes: tuple[Probe, ...] = ()
    unprobed: str = ""
    """Why no engine at all could be asked; empty where some were, or nobody wanted it."""
    verification: Verification | None = None

    @property
    def service(self) -> LLMService:
        """The fleet's LLMService."""
        return self.snapshot.service

    @property
    def name(self) -> str:
        """Of the LLMService."""
        return self.service.metadata.name

    @property
    def where(self) -> str:
        """``-n NAMESPACE`` and how to reach the cluster, for commands."""
        return f"-n {self.service.metadata.namespace}{self.flags}"

    @property
    def path(self) -> str:
        """The LLMService, as kubectl names it."""
        return f"llmservice/{self.name}"

    @cached_property
    def members(self) -> tuple[tuple[Pod, Item], ...]:
        """The selected pods that count, as the operator sees them, and as they are."""
        found = [(to_pod(item), item) for item in self.pods.items]
        return tuple(sorted(((pod, item) for pod, item in found if pod.counts), key=lambda pair: pair[0].name))

    @property
    def targets(self) -> tuple[TargetStatus, ...]:
        """The engines that the status lists, if it is about the present spec."""
        return self.service.status.target_states if self.snapshot.is_current else ()

    @property
    def stalled(self) -> Condition | None:
        """The condition, where it is true of the present spec."""
        found = self.snapshot.condition(ConditionType.STALLED)
        return found if found is not None and found.status == "True" else None

    @property
    def is_ready(self) -> bool:
        """Whether the fleet is as asked, by the operator's word."""
        found = self.snapshot.condition(ConditionType.READY)
        return self.snapshot.is_current and found is not None and found.status == "True"

    @property
    def is_paused(self) -> bool:
        """Whether every expected engine was read as paused under the present spec."""
        found = self.snapshot.condition(ConditionType.PAUSED)
        return self.snapshot.is_current and found is not None and found.status == "True"

    def raw_pod(self, name: str) -> Item | None:
        """The selected pod of this name."""
        return next((item for item in self.pods.items if item["metadata"]["name"] == name), None)

    def matching(self, labels: Mapping[str, str] | None) -> list[Pod]:
        """The members that have all these labels: what a Service of that selector selects."""
        return [pod for pod, _ in self.members if labels and all(pod.labels.get(k) == v for k, v in labels.items())]

    def selected_by(self, selector: Item | None) -> list[Pod]:
        """The members that a LabelSelector (JSON) selects; none where it is null, all where it is empty."""
        if selector is None:
            return []
        chosen = LabelSelector.model_validate(selector)
        return [pod for pod, _ in self.members if ownership.selects(chosen, pod.labels)]

    @cached_property
    def owners(self) -> frozenset[tuple[str, str]]:
        """What controls the members, by kind and name, up to the Deployment of a ReplicaSet."""
        return frozenset(owner for _, item in self.members for owner in self.owners_of(item))

    def owners_of(self, item: Item) -> set[tuple[str, str]]:
        """What controls one of them."""
        found: set[tuple[str, str]] = set()
        for owner in _controllers(item):
            found.add(owner)
            if owner[0] == "ReplicaSet":
                sets = [each for each in self.replicasets.items if each["metadata"]["name"] == owner[1]]
                found.update(above for each in sets for above in _controllers(each))
        return found

    @property
    def workload(self) -> str | None:
        """What a person edits to change the pods, as kubectl names it; None where nothing owns them."""
        for kind in ("Deployment", "StatefulSet", "LeaderWorkerSet", "DaemonSet", "ReplicaSet"):
            for name in sorted(name for each, name in self.owners if each == kind):
                return f"{kind.lower()}/{name}"
        return None

    @property
    def operator(self) -> tuple[str, str, str]:
        """Namespace, Deployment and service account of the operator: as found, else as the manifests name them."""
        for item in self.operators.items:
            account = item["spec"]["template"]["spec"].get("serviceAccountName", "default")
            return str(item["metadata"]["namespace"]), str(item["metadata"]["name"]), str(account)
        return "llmservice-system", "llmservice-operator", "llmservice-operator"

    @property
    def account(self) -> str:
        """The operator's service account, as ``kubectl auth can-i --as`` takes it."""
        namespace, _, account = self.operator
        return f"system:serviceaccount:{namespace}:{account}"

    @property
    def unseen(self) -> tuple[Looked, ...]:
        """What could not be looked at."""
        asked = (
            self.siblings,
            self.pods,
            self.services,
            self.slices,
            self.policies,
            self.autoscalers,
            self.budgets,
            self.replicasets,
            self.operators,
            self.schema,
            *((self.trust,) if self.trust is not None else ()),
        )
        return tuple(each for each in asked if not each.is_known)


def _controllers(item: Item) -> list[tuple[str, str]]:
    owners = item["metadata"].get("ownerReferences") or ()
    return [(str(each["kind"]), str(each["name"])) for each in owners if each.get("controller")]
