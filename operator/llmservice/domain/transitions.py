"""Which Kubernetes Events go with a change of status. They are drawn from what was stored and what is stored next, so that
a restarted operator neither repeats nor forgets one, and nothing is said at rest."""

from dataclasses import dataclass
from enum import StrEnum

from llmservice.api import ConditionType, Desired, LLMServiceStatus, TargetCounts
from llmservice.domain.status import PAUSED_TOO_LONG, condition


class EventReason(StrEnum):
    """The reasons of all Events."""

    PAUSE_STARTED = "PauseStarted"
    PAUSED = "Paused"
    RESUME_STARTED = "ResumeStarted"
    RESUMED = "Resumed"
    DRIFT_CORRECTED = "DriftCorrected"
    """Engines that were as desired had changed, and were brought back."""
    TARGETS_UNREACHABLE = "TargetsUnreachable"
    STALLED = "Stalled"
    LEFT_PAUSED = "LeftPaused"
    """``spec.generation`` was removed while engines were paused: nobody will resume them."""
    LEFT_SELECTION = "LeftSelection"
    """A live pod is no longer selected; its engine was left as it is."""
    PAUSED_TOO_LONG = "PausedTooLong"
    """The pause lasts longer than ``maxPausedSeconds``, and goes on."""
    AUTOSCALER_SHRINKS = "AutoscalerShrinks"
    """A pause began, and a HorizontalPodAutoscaler may take its pods away."""
    VERSION_ASSUMED = "VersionAssumed"
    """An engine's version is missing, unknown or too old, and is treated as the newest known."""


@dataclass(frozen=True, slots=True)
class Event:
    """One Kubernetes Event on the LLMService."""

    reason: EventReason
    message: str
    warning: bool = False


def transitions(before: LLMServiceStatus, after: LLMServiceStatus, effective: Desired | None) -> tuple[Event, ...]:
    """The Events that accompany the write of ``after`` where ``before`` was stored."""
    return tuple(event for check in _CHECKS if (event := check(before, after, effective)) is not None)


def _pause_started(before: LLMServiceStatus, after: LLMServiceStatus, _: Desired | None) -> Event | None:
    if (
        before.last_pause is not None
        or after.last_pause is None
        or (after.targets is not None and not after.targets.total)
    ):
        return None
    how = f"mode {after.last_pause.mode}, clearCache {str(after.last_pause.clear_cache).lower()}"
    return Event(EventReason.PAUSE_STARTED, f"Pausing with {how}")


def _paused(before: LLMServiceStatus, after: LLMServiceStatus, effective: Desired | None) -> Event | None:
    if effective is not Desired.PAUSED or _paused_is(before) == "True" or _paused_is(after) != "True":
        return None
    return Event(EventReason.PAUSED, _message(after, ConditionType.READY))


def _resume_started(before: LLMServiceStatus, after: LLMServiceStatus, effective: Desired | None) -> Event | None:
    if effective is not Desired.RUNNING or before.last_pause is None or after.last_pause is not None:
        return None
    return Event(EventReason.RESUME_STARTED, "Resuming")


def _resumed(before: LLMServiceStatus, after: LLMServiceStatus, effective: Desired | None) -> Event | None:
    if effective is not Desired.RUNNING or not _was_paused(before) or _paused_is(after) != "False":
        return None
    return Event(EventReason.RESUMED, _message(after, ConditionType.READY))


def _left_paused(before: LLMServiceStatus, after: LLMServiceStatus, effective: Desired | None) -> Event | None:
    left = after.targets.paused if after.targets is not None else 0
    if effective is not None or before.last_pause is None or not left:
        return None
    return Event(EventReason.LEFT_PAUSED, _message(after, ConditionType.READY), warning=True)


def _targets_unreachable(before: LLMServiceStatus, after: LLMServiceStatus, _: Desired | None) -> Event | None:
    had = before.targets.unreachable if before.targets is not None else 0
    has = after.targets.unreachable if after.targets is not None else 0
    if had or not has:
        return None
    names = [f"{entry.pod} ({entry.message})" for entry in after.target_states if entry.state == "unreachable"][:3]
    return Event(EventReason.TARGETS_UNREACHABLE, f"{has} unreachable: " + ", ".join(names), warning=True)


def _stalled(before: LLMServiceStatus, after: LLMServiceStatus, _: Desired | None) -> Event | None:
    earlier, now = condition(before, ConditionType.STALLED), condition(after, ConditionType.STALLED)
    if now is None or (earlier is not None and earlier.reason == now.reason):
        return None
    return Event(EventReason.STALLED, f"{now.reason}: {now.message}", warning=True)


def _paused_too_long(before: LLMServiceStatus, after: LLMServiceStatus, _: Desired | None) -> Event | None:
    said = _message(before, ConditionType.READY)
    if before.observed_generation == after.observed_generation and PAUSED_TOO_LONG in said:
        return None
    if PAUSED_TOO_LONG not in _message(after, ConditionType.READY):
        return None
    return Event(EventReason.PAUSED_TOO_LONG, _message(after, ConditionType.READY), warning=True)


_CHECKS = (
    _pause_started,
    _resume_started,
    _targets_unreachable,
    _stalled,
    _left_paused,
    _paused,
    _paused_too_long,
    _resumed,
)


def _paused_is(status: LLMServiceStatus) -> str | None:
    found = condition(status, ConditionType.PAUSED)
    return found.status if found is not None else None


def _was_paused(status: LLMServiceStatus) -> bool:
    """Whether there was anything to resume: a rollout of a running fleet is no resume."""
    targets = status.targets or TargetCounts()
    return status.last_pause is not None or targets.paused + targets.pausing + targets.resuming > 0


def _message(status: LLMServiceStatus, kind: ConditionType) -> str:
    found = condition(status, kind)
    return found.message if found is not None else ""
