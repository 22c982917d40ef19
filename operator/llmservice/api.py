"""The resource ``llmservices.llmservice.io/v1alpha1``: the one source of ``crds/`` and of what code reads and writes.

Field names are the API's own camelCase; attributes are snake_case. Every description ends up in ``kubectl explain``, so
it says what the field does, its unit, its default and what removing it does.

``metadata.generation`` and ``spec.generation`` are two things with one name. In code the first is always
``object_generation`` or ``observed_generation``, the second is ``desired``.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AliasGenerator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP = "llmservice.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "LLMService"
PLURAL = "llmservices"
CRD_NAME = f"{PLURAL}.{GROUP}"

FINALIZER = f"{GROUP}/resume"
"""Keeps an LLMService with deletionPolicy resume until its engines run again."""
VERIFY_ANNOTATION = f"{GROUP}/verify-requested-at"
"""Any new value asks for a full fresh read, which ``status.lastHandledVerify`` answers with the same value."""
READINESS_GATE = f"{GROUP}/serving"
"""The readiness gate of pods that leave their Service while paused."""

MAX_TARGET_STATES = 64
"""How many targets ``status.targetStates`` lists: enough to act on, small enough for etcd with a fleet of thousands."""

_LABEL_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = f"^([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL_NAME}$"
_LABEL_VALUE = f"^({_LABEL_NAME})?$"
_PORT_NAME = "^([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$"


def _rule(rule: str, message: str, *, quoting: str | None = None, path: str | None = None) -> dict[str, str]:
    """One CEL rule: what must hold, its message and, where ``quoting`` is given, the value that broke it."""
    validation = {"rule": rule, "message": message}
    if quoting is not None:
        validation["messageExpression"] = f"{message!r} + ', got ' + {quoting}"
    if path is not None:
        validation["fieldPath"] = path
    return validation


def _schema(**extensions: Any) -> dict[str, Any]:
    """Kubernetes' own schema keywords, e.g. ``_schema(list_type="atomic")`` for ``x-kubernetes-list-type``."""
    return {f"x-kubernetes-{key.replace('_', '-')}": value for key, value in extensions.items()}


class Desired(StrEnum):
    """What ``spec.generation`` asks for.

    ``paused``: no engine of the fleet generates tokens; what runs and what waits is treated as ``spec.pause.mode`` says.
    ``running``: every engine generates; pauses made by others are undone.
    """

    PAUSED = "paused"
    RUNNING = "running"


class EngineType(StrEnum):
    """Which control routes the pods speak: ``vllm``, each pod's own engine; ``ray-serve``, the control plane of a Ray Serve
    LLM application, which speaks for all its replicas."""

    VLLM = "vllm"
    RAY_SERVE = "ray-serve"


class Scheme(StrEnum):
    """How engines are addressed."""

    HTTP = "http"
    HTTPS = "https"


class PauseMode(StrEnum):
    """What happens to requests in flight when a pause starts; vLLM's own words.

    ``abort``: running requests end at once with what they have; ``wait``: they are finished first;
    ``keep``: they are frozen and go on after the resume.
    """

    ABORT = "abort"
    WAIT = "wait"
    KEEP = "keep"


class OnMaxPaused(StrEnum):
    """What happens to a fleet that stays paused longer than ``maxPausedSeconds``.

    ``warn``: it stays paused; an Event, a metric and Ready's message say so. ``resume``: it is resumed and stays resumed
    until the object's generation changes.
    """

    WARN = "warn"
    RESUME = "resume"


class DeletionPolicy(StrEnum):
    """What happens to paused engines when the LLMService is deleted.

    ``leave``: they stay as they are. ``resume``: they are resumed first; a finalizer holds the object so long.
    """

    LEAVE = "leave"
    RESUME = "resume"


class ConditionType(StrEnum):
    """The types of ``status.conditions``. Ready and Paused are always there, the others only while true."""

    READY = "Ready"
    PAUSED = "Paused"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"


class Reason(StrEnum):
    """Every reason a condition, a target or an Event can carry."""

    IN_DESIRED_STATE = "InDesiredState"
    """Ready: every expected target was read back as desired."""
    OBSERVING = "Observing"
    """Ready: ``spec.generation`` is absent; states are reported and no control call is made."""
    NO_PODS = "NoPods"
    """Ready, Paused: a complete list of the selected pods is empty."""
    PROGRESSING = "Progressing"
    """Ready, Reconciling: calls are under way."""
    PROGRESSING_WITH_RETRY = "ProgressingWithRetry"
    """Reconciling: the last call to a target failed and is tried again."""
    TARGETS_UNREACHABLE = "TargetsUnreachable"
    """Ready, Paused: a target that may well be generating gives no valid answer."""

    ALL_PAUSED = "AllPaused"
    """Paused=True: every expected target was read as paused (or asleep)."""
    AGGREGATE_PAUSED = "AggregatePaused"
    """Paused=True on Ray Serve: a pause was answered for the present proxies and replicas, and the application says since
    that it is paused, which is true as soon as one replica is."""
    ALL_RUNNING = "AllRunning"
    """Paused=False: every expected target was read as running."""
    TARGETS_STARTING = "TargetsStarting"
    """Paused=Unknown: no target is past its start."""
    INCONSISTENT = "Inconsistent"
    """Paused=Unknown: the ranks of one engine disagree."""
    MIXED = "Mixed"
    """Paused=Unknown: some targets are paused, some are not, or a pause or resume is under way."""

    PODS_CLAIMED = "PodsClaimed"
    """Stalled: an older LLMService selects some of the same pods and owns them."""
    ENDPOINT_MISSING = "EndpointMissing"
    """Stalled: a pod answers 404; vLLM shows the control routes only with VLLM_SERVER_DEV_MODE=1."""
    PORT_MISSING = "PortMissing"
    """Stalled: no container of a pod has a port of the name in ``spec.engine.ports``."""
    MODEL_NOT_FOUND = "ModelNotFound"
    """Stalled: the Ray Serve application has no model of the id in ``spec.engine.model``."""
    UNAUTHORIZED = "Unauthorized"
    """Stalled: a pod answers 401 or 403."""
    UNSUPPORTED_MODE = "UnsupportedMode"
    """Stalled: this engine's version cannot do ``spec.pause.mode``, or cannot prove that it did; nothing was sent."""
    ENGINE_ERROR = "EngineError"
    """Stalled: a pod refuses a call with a permanent error, or dies of it."""
    ENGINE_DIED = "EngineDied"
    """A target's reason where the condition says EngineError: the engine died twice within 30 s of a control call and is
    left alone until the spec or the pod changes."""
    TARGETS_SLEEPING = "TargetsSleeping"
    """Stalled: running is wanted and an engine is asleep; it has to be woken first."""

    PAUSE_EXPIRED = "PauseExpired"
    """Stalled: the fleet was paused longer than ``maxPausedSeconds`` and was resumed, against ``spec.generation``."""
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    """Stalled: the fleet is not as desired since ``progressDeadlineSeconds``. It is still tried."""


STALLED_REASONS = (
    Reason.PODS_CLAIMED,
    Reason.ENDPOINT_MISSING,
    Reason.PORT_MISSING,
    Reason.MODEL_NOT_FOUND,
    Reason.UNAUTHORIZED,
    Reason.UNSUPPORTED_MODE,
    Reason.ENGINE_ERROR,
    Reason.TARGETS_SLEEPING,
    Reason.PAUSE_EXPIRED,
    Reason.PROGRESS_DEADLINE_EXCEEDED,
)
"""What needs a person, most pressing first: the first that applies is the condition's reason."""


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=AliasGenerator(alias=to_camel),
        populate_by_name=True,
        use_attribute_docstrings=True,
    )


class LabelSelectorRequirement(_Model):
    """A requirement on one label of a pod."""

    model_config = ConfigDict(
        json_schema_extra=_schema(
            validations=[
                _rule(
                    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 "
                    ": !has(self.values) || size(self.values) == 0",
                    "values must be given with In and NotIn, and must be absent with Exists and DoesNotExist",
                    quoting="'operator ' + self.operator",
                )
            ]
        )
    )

    key: Annotated[str, Field(max_length=317, pattern=_LABEL_KEY)]
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label's value relates to values."""
    values: Annotated[
        tuple[Annotated[str, Field(max_length=63, pattern=_LABEL_VALUE)], ...] | None,
        Field(max_length=32, json_schema_extra=_schema(list_type="atomic")),
    ] = None
    """The values that In and NotIn compare with; none for Exists and DoesNotExist."""


class LabelSelector(_Model):
    """Which pods of the same namespace belong to the fleet, whoever owns them. All parts must match. Required, not empty,
    immutable: a changed selection would strand engines that are paused."""

    model_config = ConfigDict(
        json_schema_extra=_schema(
            map_type="atomic",
            validations=[
                _rule(
                    "(has(self.matchLabels) && size(self.matchLabels) > 0) "
                    "|| (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
                    "must not be empty: an empty selector would take every pod of the namespace",
                ),
                _rule(
                    "self == oldSelf",
                    "is immutable, because engines that are paused would be left behind: "
                    "delete this LLMService and create another",
                ),
            ],
        )
    )

    match_labels: Annotated[
        Mapping[str, Annotated[str, Field(max_length=63, pattern=_LABEL_VALUE)]] | None,
        Field(
            max_length=32,
            json_schema_extra=_schema(
                validations=[
                    _rule(
                        f"self.all(key, key.matches({_LABEL_KEY!r}))",
                        "keys must be label keys ([prefix/]name)",
                        quoting=f"self.filter(key, !key.matches({_LABEL_KEY!r}))[0]",
                    )
                ]
            ),
        ),
    ] = None
    """Labels that a pod must carry, with exactly these values."""
    match_expressions: Annotated[
        tuple[LabelSelectorRequirement, ...] | None,
        Field(max_length=32, json_schema_extra=_schema(list_type="atomic")),
    ] = None
    """Further requirements on a pod's labels."""


class TLS(_Model):
    """How an engine's certificate is checked with scheme https. Absent: by the operator's own trust store, against the
    address of the pod."""

    model_config = ConfigDict(
        json_schema_extra=_schema(
            validations=[
                _rule(
                    "!(has(self.insecureSkipVerify) && self.insecureSkipVerify && has(self.caConfigMap))",
                    "insecureSkipVerify checks nothing, so caConfigMap must be absent with it",
                    quoting="'caConfigMap ' + self.caConfigMap",
                )
            ]
        )
    )

    ca_config_map: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """Name of a ConfigMap of the same namespace whose key ca.crt holds the PEM certificates to trust. It is read again
    when it changes. Absent: the operator's own trust store."""
    server_name: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """The name that the certificate must carry, also sent as SNI. Absent: the certificate must carry the pod's address."""
    insecure_skip_verify: bool = False
    """Accept any certificate. Whoever can place himself between operator and engine can then answer for it.
    Default false."""


PortNumber = Annotated[int, Field(ge=1, le=65535)]
PortName = Annotated[str, Field(max_length=15, pattern=_PORT_NAME)]


class Engine(_Model):
    """What runs in the pods and where it answers. Absent: vLLM over plain HTTP on port 8000."""

    model_config = ConfigDict(
        json_schema_extra=_schema(
            validations=[
                _rule(
                    "!has(self.tls) || self.scheme == 'https'",
                    "tls needs scheme https",
                    quoting="'scheme ' + self.scheme",
                ),
                _rule("self.type == oldSelf.type", "type is immutable", quoting="self.type"),
                _rule(
                    "self.ports == oldSelf.ports",
                    "ports are immutable, because engines that are paused would be left behind: "
                    "delete this LLMService and create another",
                ),
                _rule(
                    "self.type == 'ray-serve' ? has(self.model) : !has(self.model)",
                    "model is required with type ray-serve, and must be absent with type vllm",
                    quoting="'type ' + self.type + (has(self.model) ? ' with model ' + self.model : ' without model')",
                ),
                _rule(
                    "has(self.model) == has(oldSelf.model) && (!has(self.model) || self.model == oldSelf.model)",
                    "model is immutable, because a model that is paused would be left behind: "
                    "delete this LLMService and create another",
                ),
            ]
        )
    )

    type: EngineType = EngineType.VLLM
    """Which control routes the pods speak. vllm: vLLM 0.12 or later with VLLM_SERVER_DEV_MODE=1, with its Python or its
    Rust frontend. ray-serve: a Ray Serve LLM application built with the DevIngress; the selected pods run Ray's proxies
    (with KubeRay the head, or every node), and any one of them speaks for the whole application. Immutable. Default
    vllm."""
    ports: Annotated[
        tuple[PortNumber | PortName, ...],
        Field(min_length=1, max_length=16, json_schema_extra=_schema(list_type="set")),
    ] = (8000,)
    """Where an engine of the pod answers: numbers or names of container ports. Several ports are several engines in one
    pod (vLLM's multi-port data parallel). Immutable. Default [8000]."""
    scheme: Scheme = Scheme.HTTP
    """http or https. Default http."""
    tls: TLS | None = None
    """How certificates are checked. Only with scheme https. Absent: by the operator's own trust store."""
    root_path: Annotated[str, Field(max_length=253, pattern="^(/[A-Za-z0-9._~-]+)*$")] = ""
    """The prefix of all routes: vLLM's --root-path, or the route prefix of the Ray Serve application. Default empty."""
    model: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """The id of the model to pause, as the application lists it under /v1/models. Required with type ray-serve, absent with
    type vllm. Immutable."""


class Pause(_Model):
    """How a pause is made. Changes apply to the next pause and never touch an engine that is already paused. Absent: the
    defaults below."""

    mode: PauseMode = PauseMode.ABORT
    """What happens to requests in flight. abort: they end at once with what they have. wait: running ones are finished
    first. keep: they are frozen and go on after the resume; a pod that is deleted meanwhile loses them without an answer.
    Requests that arrive while paused wait in the engine, or are refused with 503 by vLLM 0.33 and later (not with keep).
    Default abort."""
    clear_cache: bool | None = None
    """Whether the pause drops the prefix and KV caches. Absent: true for abort and wait, false for keep, where true would
    make every frozen request be computed again."""
    timeout_seconds: Annotated[int, Field(ge=1, le=86400)] = 300
    """Seconds one pause call may take; with mode wait this is the time to drain. After it the engine is asked what it
    did. Default 300."""
    drain_delay_seconds: Annotated[int, Field(ge=0, le=3600)] = 0
    """Seconds between leaving the Service and the pause, for pods with the readiness gate llmservice.io/serving, so that
    clients notice first. Without the gate it has no effect. Default 0."""


class LLMServiceSpec(_Model):
    """What should be."""

    generation: Desired | None = None
    """Whether the fleet generates tokens. paused: every engine is paused, also pods that appear later. running: every
    engine runs, and pauses made by others are undone, so leave the field out if something else calls the engines'
    /pause. Absent: states are only observed. Removing it leaves every engine as it is. No default."""
    selector: LabelSelector
    engine: Annotated[
        Engine, Field(json_schema_extra={"default": {"type": "vllm", "ports": [8000], "scheme": "http"}})
    ] = Engine()
    pause: Annotated[Pause, Field(json_schema_extra={"default": {"mode": "abort", "timeoutSeconds": 300}})] = Pause()
    request_timeout_seconds: Annotated[int, Field(ge=1, le=300)] = 5
    """Seconds any call but a pause may take. Default 5."""
    resync_seconds: Annotated[int, Field(ge=1, le=3600)] = 10
    """Seconds between two reads of an engine when nothing changes: an engine that somebody else resumed is noticed within
    this time. Default 10."""
    progress_deadline_seconds: Annotated[int, Field(ge=1, le=86400)] = 600
    """Seconds after which a fleet that is still not as desired is reported as Stalled with ProgressDeadlineExceeded. It is
    tried further, and what is paused stays paused. Default 600."""
    max_paused_seconds: Annotated[int | None, Field(ge=1, le=2147483647)] = None
    """Seconds a pause may last, counted from the first engine that is confirmed paused and anew for each change of spec.
    Then onMaxPaused applies, so that a trainer that died does not hold GPUs for ever. Absent: no limit."""
    on_max_paused: OnMaxPaused = OnMaxPaused.WARN
    """What happens then. warn: an Event, a metric and the Ready message say so. resume: the fleet is resumed, is reported
    as Stalled with PauseExpired, and stays resumed until the spec changes. Default warn."""
    deletion_policy: DeletionPolicy = DeletionPolicy.LEAVE
    """What happens to paused engines when this object is deleted. leave: they stay paused. resume: they are resumed first,
    for at most 60 seconds; a finalizer holds the object so long, which needs a running operator. Default leave."""


Count = Annotated[int, Field(ge=0, json_schema_extra={"format": "int32"})]


class TargetCounts(_Model):
    """How many targets (engine endpoints) are in which state. The states exclude each other."""

    total: Count = 0
    """All targets, those that are starting too."""
    paused: Count = 0
    """Read back as paused."""
    running: Count = 0
    """Read back as running."""
    pausing: Count = 0
    """A pause call is under way, or its drain is not confirmed yet."""
    resuming: Count = 0
    """A resume call is under way."""
    starting: Count = 0
    """Not past their start; they are not waited for and are paused at first contact."""
    sleeping: Count = 0
    """Asleep (vLLM's sleep mode): they cannot generate and are not called."""
    unreachable: Count = 0
    """No valid answer; they may well be generating."""
    failed: Count = 0
    """They refuse to tell their state, disagree within themselves, have no such port, or died of a call."""


class TargetStatus(_Model):
    """One target and what was last learned of it."""

    pod: str
    """The pod's name."""
    pod_uid: Annotated[str, Field(alias="podUID")]
    """The pod's UID: a later pod of the same name is another target."""
    url: str | None = None
    """Where the engine answers. Absent where the pod has no address or no such port."""
    state: str
    """paused, running, pausing, resuming, starting, sleeping, unreachable, failed, or unread before the first answer."""
    version: str | None = None
    """The engine's version as it says."""
    reason: str | None = None
    """Why it is not as it should be, in one word."""
    message: str | None = None
    """The same in a sentence, with the engine's own words."""


class LastPause(_Model):
    """How the present pause was asked. Pods that appear meanwhile are paused in the same way."""

    mode: PauseMode
    """The mode that was sent."""
    clear_cache: bool
    """Whether the caches were to be dropped."""
    answered: bool
    """False while a pause with mode wait is not answered by every engine: requests may still be draining."""


class Condition(_Model):
    """One aspect of the present state, as Kubernetes defines conditions."""

    type: Annotated[str, Field(max_length=316)]
    """Ready, Paused, Reconciling or Stalled."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    observed_generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
    """The metadata.generation that this condition is about."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the status last changed."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Why, in one word."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, in a sentence for people."""


class LLMServiceStatus(_Model):
    """What was last seen by a live operator."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] = -1
    """The metadata.generation that this status is about; -1 before the first visit."""
    paused: bool | None = None
    """True: every expected target was read as paused. False: every one was read as running. Absent when mixed or unknown.
    To wait for it use kubectl wait --for=condition=Paused, which also looks at the generation."""
    targets: TargetCounts | None = None
    target_states: Annotated[
        tuple[TargetStatus, ...],
        Field(max_length=MAX_TARGET_STATES, json_schema_extra=_schema(list_type="atomic")),
    ] = ()
    """At most 64 targets: failed ones first, then others that are not as they should be, then the rest."""
    last_pause: LastPause | None = None
    paused_replicas: str | None = None
    """Ray Serve only: a digest of the proxies and replicas for which the present pause was answered. When they are other
    ones the pause is asserted again. Absent while the fleet is not paused."""
    paused_since: Annotated[str | None, Field(json_schema_extra={"format": "date-time"})] = None
    """When the first target was confirmed paused under the present spec: the clock of maxPausedSeconds."""
    paused_since_generation: Annotated[int | None, Field(json_schema_extra={"format": "int64"})] = None
    """The metadata.generation that pausedSince counts for."""
    progressing_since: Annotated[str | None, Field(json_schema_extra={"format": "date-time"})] = None
    """Since when the fleet is not as desired: the clock of progressDeadlineSeconds. Absent at rest."""
    progressing_since_generation: Annotated[int | None, Field(json_schema_extra={"format": "int64"})] = None
    """The metadata.generation that progressingSince counts for."""
    last_handled_verify: str | None = None
    """The last value of the annotation llmservice.io/verify-requested-at after which every target was read afresh."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(max_length=8, json_schema_extra=_schema(list_type="map", list_map_keys=["type"])),
    ] = ()
    """Ready: the fleet is as spec.generation asks. Paused: what was read. Reconciling and Stalled (a person is needed) only
    while true."""


class Metadata(_Model):
    """The part of ``metadata`` that is read."""

    name: str
    namespace: str
    uid: str
    resource_version: str
    creation_timestamp: str
    object_generation: Annotated[int, Field(alias="generation")]
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    owner_references: tuple[Mapping[str, Any], ...] = ()


class LLMService(_Model):
    """Declares whether a fleet of LLM engines generates tokens, and reports whether it does."""

    metadata: Metadata
    spec: LLMServiceSpec
    status: LLMServiceStatus = LLMServiceStatus()

    @property
    def key(self) -> str:
        """``namespace/name``, for people."""
        return f"{self.metadata.namespace}/{self.metadata.name}"
