"""The exit statuses of all commands: an interface, as scripts branch on them."""

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended. Of several fleets that ended differently: the status that all failures share, else ERROR."""

    OK = 0
    """As asked. Of ``doctor``: nothing is wrong. Of ``status``: it could be read, whatever it says."""
    ERROR = 1
    """Anything that has no status of its own."""
    USAGE = 2
    """The command line is wrong; nothing was sent."""
    TIMED_OUT = 3
    """Not as asked when ``--timeout`` was over. The request stands, and the operator goes on."""
    NEEDS_PERSON = 4
    """The fleet is Stalled, or ``doctor`` found a problem: waiting will not help."""
    CHANGED = 5
    """Somebody else changed what was asked for meanwhile, or the fleet is paused already in another way than asked."""
    NOT_FOUND = 6
    """There is no such LLMService, or it is being deleted, or nothing matches."""
    REFUSED = 7
    """The API server refused: rights are missing, or the request is not valid."""
    UNAVAILABLE = 8
    """No API server: none is configured, or it does not answer."""
    INTERRUPTED = 130
    """Ctrl-C. What was sent before is said, and how to undo it."""
    TERMINATED = 143
    """SIGTERM; as with Ctrl-C."""


def worst(ends: list[Exit]) -> Exit:
    """The status of several fleets together."""
    failures = {end for end in ends if end is not Exit.OK}
    if not failures:
        return Exit.OK
    return failures.pop() if len(failures) == 1 else Exit.ERROR
