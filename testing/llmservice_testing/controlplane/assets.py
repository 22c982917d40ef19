"""Finds the programs of a control plane: where they are already, or else where they can be had.

The sources are tried in this order, and the first that works is taken:

1. `assets`: the folder that `KUBEBUILDER_ASSETS` names, as in every project that uses envtest;
2. `cache`: what 3 or 4 left in the user's cache folder;
3. `download`: the archive of the Kubernetes project (`download.py`), a minute or less;
4. `build`: from the Go modules (`build.py`), minutes, but it needs nothing except Go and a module proxy.

`LLMSERVICE_CONTROLPLANE` set to one of these names allows that source alone. `download` and `build` then still use what
they themselves have left in the cache; each has a folder of its own there.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from llmservice_testing.controlplane.binaries import Assets, SourceError, cache_root, filling
from llmservice_testing.controlplane.build import VERSION as BUILT_VERSION
from llmservice_testing.controlplane.build import build
from llmservice_testing.controlplane.download import VERSION as DOWNLOADED_VERSION
from llmservice_testing.controlplane.download import download, envtest_archive

SWITCH: Final = "LLMSERVICE_CONTROLPLANE"
ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"

_ADVICE: Final = f"""\
Any one of these helps:
  - set {ASSETS_VARIABLE} to a folder with etcd and kube-apiserver (`setup-envtest use -p path` prints one);
  - let this machine reach github.com, for the archive of kubernetes-sigs/controller-tools;
  - install Go 1.25 or newer and let it reach a Go module proxy (see `go help goproxy`).
Then `python -m llmservice_testing.controlplane --assets-only` gets the programs, once."""


@dataclasses.dataclass(frozen=True)
class Source:
    """One way to the programs. `find` raises SourceError where it leads nowhere."""

    name: str
    find: Callable[[], Assets]


class AssetsNotFoundError(Exception):
    """No source gave the programs. The message lists what was tried, why each failed, and what to do."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        tried = "\n".join(f"  - {name}: {_indented(reason)}" for name, reason in failures.items())
        super().__init__(f"There is no etcd and kube-apiserver to test with. Tried:\n{tried}\n{_ADVICE}")
        self.failures = dict(failures)


class UnknownSourceError(Exception):
    """`LLMSERVICE_CONTROLPLANE` names no source."""


def find_assets(environment: Mapping[str, str] | None = None) -> Assets:
    """Finds the programs, which may take minutes the first time; progress is told on standard error.

    `environment` None: this process's. Raises AssetsNotFoundError or UnknownSourceError.
    """
    environment = os.environ if environment is None else environment
    return first_that_works(allowed(sources(environment), environment.get(SWITCH, "")))


def sources(environment: Mapping[str, str]) -> list[Source]:
    """Every source, in the order of trying."""
    built = cache_root(environment) / f"v{BUILT_VERSION}"
    downloaded = cache_root(environment) / f"v{DOWNLOADED_VERSION}-envtest"
    return [
        Source("assets", lambda: _from_variable(environment.get(ASSETS_VARIABLE, ""))),
        Source("cache", lambda: _from_folders([built, downloaded])),
        Source("download", lambda: from_cache_or(downloaded, lambda folder: download(envtest_archive(), folder))),
        Source("build", lambda: from_cache_or(built, build)),
    ]


def allowed(every: Sequence[Source], switch: str) -> Sequence[Source]:
    """The sources that the switch allows; empty allows all. Raises UnknownSourceError."""
    chosen = [source for source in every if switch in ("", source.name)]
    if not chosen:
        names = ", ".join(source.name for source in every)
        raise UnknownSourceError(f"{SWITCH} is {switch!r}; it must be one of {names}, or unset")
    return chosen


def first_that_works(candidates: Sequence[Source]) -> Assets:
    """Tries one source after the other. Raises AssetsNotFoundError with the reason of each."""
    failures: dict[str, str] = {}
    for source in candidates:
        try:
            return source.find()
        except SourceError as error:
            failures[source.name] = str(error)
    raise AssetsNotFoundError(failures)


def from_cache_or(folder: Path, obtain: Callable[[Path], None]) -> Assets:
    """The programs in a folder of the cache; where they are not there, `obtain` fills it. Raises SourceError."""
    try:
        with filling(folder) as scratch:
            if not _is_complete(folder):  # another process may have filled it while we waited for the lock
                obtain(scratch)
    except OSError as error:
        raise SourceError(f"{folder} cannot be filled: {error}") from error
    return Assets.in_folder(folder)


def _from_variable(value: str) -> Assets:
    if not value:
        raise SourceError(f"{ASSETS_VARIABLE} is not set")
    return Assets.in_folder(Path(value))


def _from_folders(folders: Sequence[Path]) -> Assets:
    reasons = []
    for folder in folders:
        try:
            return Assets.in_folder(folder)
        except SourceError as error:
            reasons.append(str(error))
    raise SourceError("; ".join(reasons))


def _is_complete(folder: Path) -> bool:
    try:
        Assets.in_folder(folder)
    except SourceError:
        return False
    return True


def _indented(reason: str) -> str:
    return reason.replace("\n", "\n      ")
