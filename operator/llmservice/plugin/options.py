"""What the commands share on their command lines. Light: imported also for ``--help`` and completion."""

import re
from dataclasses import dataclass
from enum import StrEnum

import typer

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
_LONGEST_SECONDS = 30 * 86400.0
_KINDS = ("llmservice", "llmservices", "llms", "llmservice.llmservice.io", "llmservices.llmservice.io")


class Mode(StrEnum):
    """The same words as ``llmservice.api.PauseMode``, which takes a third of a second to import."""

    ABORT = "abort"
    WAIT = "wait"
    KEEP = "keep"


class Output(StrEnum):
    """What is printed."""

    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    WIDE = "wide"


class DryRun(StrEnum):
    """Whether, and by whom, a change is only tried."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class Where:
    """Which cluster, and which part of it."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    """None: the one of the context."""
    all_namespaces: bool = False

    @property
    def flags(self) -> str:
        """How a further command says the same cluster; empty, or with a space before it."""
        given = [("--kubeconfig", self.kubeconfig), ("--context", self.context)]
        return "".join(f" {flag}={value}" for flag, value in given if value is not None)


@dataclass(frozen=True, slots=True)
class Which:
    """Which fleets of that part."""

    names: tuple[str, ...] = ()
    selector: str | None = None
    """A label selector over the LLMServices themselves."""
    every: bool = False


def which(names: list[str] | None, selector: str | None, *, every: bool, where: Where, is_change: bool) -> Which:
    """Raises typer.BadParameter where it is not clear which fleets are meant."""
    given = tuple(dict.fromkeys(_bare(name) for name in names or ()))
    if len([each for each in (given, selector, every) if each]) > 1:
        raise typer.BadParameter("give NAME..., -l SELECTOR or --all, only one of them")
    if given and where.all_namespaces:
        raise typer.BadParameter(f"-A is for all fleets; name {given[0]} with its namespace: -n NAMESPACE {given[0]}")
    if where.namespace is not None and where.all_namespaces:
        raise typer.BadParameter("give either -n or -A")
    if is_change and not (given or selector or every):
        raise typer.BadParameter("say which fleets: NAME..., -l SELECTOR, or --all")
    return Which(given, selector, every)


def seconds(value: str) -> float:
    """``5m``, ``1h30m``, ``90s`` or ``90`` in seconds. Raises typer.BadParameter."""
    found = _DURATION.fullmatch(value.strip())
    if found is None or not any(found.groups()):
        raise typer.BadParameter(f"must be a duration such as 90s, 5m or 1h30m, got {value!r}")
    hours, minutes, rest = (float(part or 0) for part in found.groups())
    total = hours * 3600 + minutes * 60 + rest
    if not 0 < total <= _LONGEST_SECONDS:
        raise typer.BadParameter(f"must be more than 0 and at most 720h, got {value!r}")
    return total


def _bare(name: str) -> str:
    """``qwen`` of ``llmservice.llmservice.io/qwen``, which is what ``-o name`` prints."""
    kind, slash, bare = name.rpartition("/")
    if slash and kind not in _KINDS:
        raise typer.BadParameter(f"{kind!r} is not an LLMService, got {name!r}: give NAME or llmservice/NAME")
    if not bare:
        raise typer.BadParameter(f"the name is empty, got {name!r}")
    return bare
