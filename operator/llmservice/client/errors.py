"""What can go wrong between a wish and its confirmation, and what each says about the fleet.

    FleetError                    the fleet may not be as asked; the message says what to do
    ├── ConfigurationError        no way to an API server: no kubeconfig, no such context
    ├── RefusedError              the API server refused for good; carries its HTTP status
    │   ├── NotFoundError         there is no such LLMService, or it was deleted meanwhile
    │   └── ForbiddenError        the rights are missing
    ├── UnavailableError          the API server did not answer within the time given; it was asked again and again
    ├── TimedOutError             the operator is at work and not done (also a TimeoutError)
    │   └── OperatorSilentError   the operator gave no answer to this change at all: does it run?
    ├── StalledError              a person is needed; carries the condition's reason and message
    ├── PausedOtherwiseError      paused already, in another way than asked
    └── ChangedByOthersError      somebody else changed what was asked for; says who

Trying again may help after UnavailableError, TimedOutError and OperatorSilentError, and after nothing else.
"""

from collections.abc import Iterable


class FleetError(Exception):
    """The fleet may not be as asked.

    ``fleet`` is its ``namespace/name``, empty where it is not known yet."""

    def __init__(self, message: str, *, fleet: str = "") -> None:
        super().__init__(f"{fleet}: {message}" if fleet else message)
        self.fleet = fleet


class ConfigurationError(FleetError):
    """There is no usable way to an API server."""


class RefusedError(FleetError):
    """The API server refused a request, and would again. ``status`` is the HTTP status."""

    def __init__(self, message: str, *, fleet: str, status: int) -> None:
        super().__init__(message, fleet=fleet)
        self.status = status


class NotFoundError(RefusedError):
    """There is no such LLMService, it is being deleted, or it was deleted (and perhaps created anew) meanwhile."""

    def __init__(self, message: str, *, fleet: str) -> None:
        super().__init__(message, fleet=fleet, status=404)


class ForbiddenError(RefusedError):
    """The API server does not know who asks (401), or does not let them (403)."""


class UnavailableError(FleetError):
    """The API server gave no usable answer until the time was over."""


class TimedOutError(FleetError, TimeoutError):
    """The operator answered to this change, and the fleet was not as asked when the time was over."""


class OperatorSilentError(TimedOutError):
    """Nothing in the status answers to this change: the operator does not run, does not serve this namespace, or cannot
    write."""


class StalledError(FleetError):
    """The operator says that a person is needed.

    ``reason`` is one of ``llmservice.api.STALLED_REASONS``; ``message`` names the first pod concerned."""

    def __init__(self, reason: str, message: str, *, fleet: str) -> None:
        super().__init__(f"Stalled, {reason}: {message}", fleet=fleet)
        self.reason = reason
        self.message = message


class PausedOtherwiseError(FleetError):
    """The fleet is paused, but not in the way that was asked for, and asking again does not change that: what an ``abort``
    ended does not come back. ``asked`` and ``found`` are such as ``mode keep``."""

    def __init__(self, asked: str, found: str, *, fleet: str) -> None:
        super().__init__(
            f"paused with {found} already, and {asked} was asked for: resume it first, or ask for what it is",
            fleet=fleet,
        )
        self.asked = asked
        self.found = found


class ChangedByOthersError(FleetError):
    """Somebody else changed what was asked for, so nothing can be said about the time since.

    ``field`` is the field that changed; ``managers`` are the names of the field managers that own it now, as
    ``kubectl get --show-managed-fields`` shows them; empty where the API server does not tell."""

    def __init__(self, field: str, now: str, managers: Iterable[str], *, fleet: str) -> None:
        self.field = field
        self.managers = tuple(sorted(managers))
        by = " and ".join(self.managers) or "somebody"
        super().__init__(f"{field} was changed by {by} meanwhile, and is {now} now", fleet=fleet)
