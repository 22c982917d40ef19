"""Which LLMService owns a pod that several select: the oldest, computed alike by every operator from the objects alone."""

from collections.abc import Iterable, Mapping

from llmservice.api import LabelSelector, LLMService


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether a pod with these labels is selected, by Kubernetes' rules: a missing label satisfies NotIn and
    DoesNotExist."""
    if any(labels.get(key) != value for key, value in (selector.match_labels or {}).items()):
        return False
    for requirement in selector.match_expressions or ():
        value, values = labels.get(requirement.key), requirement.values or ()
        match requirement.operator:
            case "In":
                holds = value is not None and value in values
            case "NotIn":
                holds = value is None or value not in values
            case "Exists":
                holds = value is not None
            case "DoesNotExist":
                holds = value is None
        if not holds:
            return False
    return True


def to_query(selector: LabelSelector) -> str:
    """The selector as the API server takes it in ``labelSelector``."""
    parts = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    for requirement in selector.match_expressions or ():
        values = ",".join(requirement.values or ())
        match requirement.operator:
            case "In":
                parts.append(f"{requirement.key} in ({values})")
            case "NotIn":
                parts.append(f"{requirement.key} notin ({values})")
            case "Exists":
                parts.append(requirement.key)
            case "DoesNotExist":
                parts.append(f"!{requirement.key}")
    return ",".join(parts)


def older_claims(service: LLMService, others: Iterable[LLMService]) -> tuple[LLMService, ...]:
    """The LLMServices of the same namespace that go before ``service`` where both select a pod, oldest first."""
    mine = (service.metadata.creation_timestamp, service.metadata.uid)
    namesakes = (other for other in others if other.metadata.namespace == service.metadata.namespace)
    older = [other for other in namesakes if (other.metadata.creation_timestamp, other.metadata.uid) < mine]
    return tuple(sorted(older, key=lambda other: (other.metadata.creation_timestamp, other.metadata.uid)))


def owner_among(claims: Iterable[LLMService], labels: Mapping[str, str]) -> LLMService | None:
    """The first of ``claims`` that selects a pod with these labels."""
    return next((claim for claim in claims if selects(claim.spec.selector, labels)), None)
