"""The resource itself, and whether an operator looks after it."""

from collections.abc import Iterable

from llmservice import api
from llmservice.api import OnMaxPaused, Reason
from llmservice.client.snapshot import Snapshot
from llmservice.domain import ownership
from llmservice.domain.status import PAUSED_TOO_LONG
from llmservice.plugin.authorship import ago, authors, last_change, last_status_write, moment, said
from llmservice.plugin.doctor.facts import OPERATOR_LABELS, Facts
from llmservice.plugin.doctor.finding import Finding, note, problem, warning

_PATIENCE_SECONDS = 5.0
"""An operator that gave no answer for so long is called silent. Mostly it answers within a second."""

APPLY_DEFINITION = "llmservice crd | kubectl apply --server-side -f -"


def definition_is_old(facts: Facts) -> Iterable[Finding]:
    """Helm does not update definitions. The operator refuses to act on one that drops fields in silence."""
    missing = [str(item["path"]) for item in facts.schema.items]
    if missing:
        yield problem(
            "DefinitionOld",
            f"the API server drops fields that this version knows: {', '.join(missing)}. The operator does not act then",
            [f"GET /openapi/v3/apis/{api.API_VERSION}: the served schema has no {missing[0]}"],
            [APPLY_DEFINITION + facts.flags],
        )


def is_being_deleted(facts: Facts) -> Iterable[Finding]:
    """A finalizer is only taken away by whoever set it."""
    metadata = facts.service.metadata
    if metadata.deletion_timestamp is None:
        return
    how = [f"{facts.path} metadata.deletionTimestamp: {metadata.deletion_timestamp}, finalizers: {metadata.finalizers}"]
    strangers = [each for each in metadata.finalizers if each != api.FINALIZER]
    if api.FINALIZER in metadata.finalizers:
        others = [each for each in metadata.finalizers if each != api.FINALIZER]
        patch = "null" if not others else "[" + ",".join(f'"{each}"' for each in others) + "]"
        yield problem(
            "KeptByFinalizer",
            "it is being deleted, and waits for the operator to resume its engines first (for at most 60 s)",
            how,
            [
                f"See that the operator runs: kubectl get deployments -A -l {OPERATOR_LABELS}{facts.flags}",
                "Without an operator let it go by hand; the engines then stay as they are: "
                + _patch(facts, f'{{"metadata":{{"finalizers":{patch}}}}}'),
            ],
        )
    if strangers:
        yield problem(
            "KeptByFinalizer",
            f"it is being deleted, and is kept by {', '.join(strangers)}, which this operator did not set",
            how,
            ["Ask whoever set that finalizer; this operator cannot take it away"],
        )


def operator_is_silent(facts: Facts) -> Iterable[Finding]:
    """Nothing answers to the present spec, or to a request for a fresh read."""
    service = facts.service
    observed, asked = service.status.observed_generation, facts.snapshot.object_generation
    how: list[str] = []
    if not facts.snapshot.is_current:
        never = " (never visited)" if observed < 0 else ""
        how.append(f"{facts.path} status.observedGeneration: {observed}{never}, metadata.generation: {asked}")
    if facts.verification is not None and not facts.verification.answered:
        how.append(f"annotation {api.VERIFY_ANNOTATION}: {facts.verification.words}")
    if not how:
        return
    changed = last_change(facts.snapshot)
    if changed is not None and abs(facts.now - changed) < _PATIENCE_SECONDS and facts.verification is None:
        yield note(
            "TooEarly",
            f"the object was changed {ago(changed, facts.now)} ago, and the operator has not answered yet",
            how,
            [f"Ask again in some seconds: kubectl llm doctor {facts.name} {facts.where}"],
        )
        return
    namespace, deployment, _ = facts.operator
    do = [
        f"kubectl get deployments -A -l {OPERATOR_LABELS}{facts.flags}",
        f"kubectl logs -n {namespace} deployment/{deployment} --tail=50{facts.flags}",
        f"See that it serves the namespace {service.metadata.namespace}: --namespace or --all-namespaces in its arguments",
    ]
    how.extend(_deployments(facts))
    written = last_status_write(facts.snapshot)
    if written is not None:
        how.append(f"the status was last changed by {written.manager}, {ago(written.at, facts.now)} ago")
    what = "no operator answers: the status may be old"
    if not facts.snapshot.is_current:
        what = "no operator has answered to the present spec: the status is about an older one"
    yield problem("OperatorSilent", what, how, do)


def operator_is_alive(facts: Facts) -> Iterable[Finding]:
    """Only told where it was asked for."""
    if facts.verification is not None and facts.verification.answered:
        yield note(
            "OperatorAlive", "the operator answers", [f"a fresh read of every engine: {facts.verification.words}"]
        )


def pods_are_claimed(facts: Facts) -> Iterable[Finding]:
    """Of LLMServices that select the same pod the oldest owns it."""
    others = [Snapshot(item).service for item in facts.siblings.items]
    older = ownership.older_claims(facts.service, others)
    claimed = [(pod.name, owner) for pod, _ in facts.members if (owner := ownership.owner_among(older, pod.labels))]
    for owner in {each.metadata.name: each for _, each in claimed}.values():
        pods = [name for name, each in claimed if each.metadata.name == owner.metadata.name]
        yield problem(
            "PodsClaimed",
            f"{_some(pods)} belong{'s' if len(pods) == 1 else ''} to the older LLMService {owner.metadata.name}, "
            "which selects the same pods and alone may call them",
            [
                f"{facts.path} spec.selector: {ownership.to_query(facts.service.spec.selector)}",
                f"llmservice/{owner.metadata.name} spec.selector: {ownership.to_query(owner.spec.selector)}, "
                f"created {owner.metadata.creation_timestamp}, before {facts.service.metadata.creation_timestamp}",
            ],
            [
                f"If this one is not needed: kubectl delete {api.CRD_NAME} {facts.name} {facts.where}",
                "Otherwise make the selectors disjoint; as a selector is immutable, delete one and create it anew",
            ],
        )


def pause_has_expired(facts: Facts) -> Iterable[Finding]:
    """By ``maxPausedSeconds``."""
    limit = facts.service.spec.max_paused_seconds
    if facts.stalled is not None and facts.stalled.reason == Reason.PAUSE_EXPIRED:
        yield problem(
            "PauseExpired",
            f"the pause lasted longer than {limit} s and was ended by the operator, against spec.generation",
            [f"{facts.path} spec.maxPausedSeconds: {limit}, onMaxPaused: resume; condition Stalled: PauseExpired"],
            [
                f"To let it run: kubectl llm resume {facts.name} {facts.where}",
                f"To pause again: kubectl llm resume {facts.name} {facts.where}, then",
                f"kubectl llm pause {facts.name} {facts.where}",
            ],
        )
    ready = facts.snapshot.condition(api.ConditionType.READY)
    if ready is not None and PAUSED_TOO_LONG in ready.message:
        since = moment(facts.service.status.paused_since)
        yield warning(
            "PausedTooLong",
            f"it is paused for {ago(since, facts.now)}, and spec.maxPausedSeconds is {limit}: did whoever paused it die?",
            [f"{facts.path} status.pausedSince: {facts.service.status.paused_since}; {_who(facts)}"],
            [f"kubectl llm resume {facts.name} {facts.where}"],
        )
    elif limit is None and facts.is_paused and facts.service.spec.on_max_paused is OnMaxPaused.RESUME:
        yield warning(
            "NoLimit",
            "spec.onMaxPaused is resume and has no effect, as spec.maxPausedSeconds is absent",
            [f"{facts.path} spec.onMaxPaused: resume, spec.maxPausedSeconds: absent"],
            [_patch(facts, '{"spec":{"maxPausedSeconds":3600}}')],
        )


def deadline_is_over(facts: Facts) -> Iterable[Finding]:
    """It says that time is up, and its message what is in the way; the other checks say why."""
    if facts.stalled is not None and facts.stalled.reason == Reason.PROGRESS_DEADLINE_EXCEEDED:
        yield problem(
            "ProgressDeadlineExceeded",
            f"it is not as asked since {ago(moment(facts.service.status.progressing_since), facts.now)}, "
            f"longer than spec.progressDeadlineSeconds ({facts.service.spec.progress_deadline_seconds})",
            [f"condition Stalled: {facts.stalled.message}"],
            ["Mend what the other findings say; the operator goes on trying meanwhile"],
        )


def nothing_is_asked(facts: Facts) -> Iterable[Finding]:
    """Observe only."""
    if facts.service.spec.generation is None and facts.service.metadata.deletion_timestamp is None:
        yield note(
            "Observing",
            "spec.generation is absent: the engines are only observed, and neither paused nor resumed",
            [f"{facts.path} spec.generation: absent"],
            [f"kubectl llm pause {facts.name} {facts.where}", f"kubectl llm resume {facts.name} {facts.where}"],
        )


def somebody_asked(facts: Facts) -> Iterable[Finding]:
    """Who set what is asked for."""
    desired = facts.service.spec.generation
    if desired is not None:
        yield note(
            "SetBy",
            f"{desired} is asked for; {_who(facts)}",
            [f"{facts.path} metadata.managedFields: the owners of spec.generation"],
        )


def _who(facts: Facts) -> str:
    found = said(authors(facts.snapshot, "spec", "generation"), facts.now)
    return f"set by {found}" if found else "who set it is not recorded"


def _deployments(facts: Facts) -> list[str]:
    if not facts.operators.is_known:
        return []
    if not facts.operators.items:
        return [f"no Deployment of the cluster has the labels {OPERATOR_LABELS}"]
    return [
        f"deployment/{item['metadata']['name']} of namespace {item['metadata']['namespace']}: "
        f"{item.get('status', {}).get('readyReplicas', 0)} of {item.get('spec', {}).get('replicas', 1)} ready"
        for item in facts.operators.items
    ]


def _patch(facts: Facts, body: str) -> str:
    return f"kubectl patch {api.CRD_NAME} {facts.name} {facts.where} --type=merge -p '{body}'"


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"
