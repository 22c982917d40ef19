"""Two Lua interpreters that run Argo CD's scripts: a real one of this machine, and the one that Argo CD is built with.

The real one is `lua5.4` or `lua` on the PATH, or what `LLMSERVICE_LUA` names. Where there is none, Debian's package is
unpacked into the user's cache; nothing is installed, and no rights are needed.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from llmservice_testing.builders import Json
from llmservice_testing.controlplane.binaries import cache_root, filling
from llmservice_testing.controlplane.progress import Task
from llmservice_testing.gitops import program

VARIABLE: Final = "LLMSERVICE_LUA"
PACKAGE: Final = "lua5.4"
_NAMES: Final = ("lua5.4", "lua", "lua5.3", "lua5.1", "luajit")
_RUNNER: Final = Path(__file__).with_name("run.lua")
_TIMEOUT_SECONDS: Final = 10.0
_DOWNLOAD_TIMEOUT_SECONDS: Final = 120.0


class LuaNotFoundError(Exception):
    """There is no Lua on this machine and none could be had; the message says why and what to do."""


class LuaError(Exception):
    """A script failed; the message is Lua's."""


class Interpreter(Protocol):
    """Runs scripts as Argo CD runs those that are not given Lua's standard libraries."""

    def run(self, script: Path, obj: Json) -> Json:
        """What the script returns for the object `obj`. Raises LuaError."""


class RealLua:
    """Lua itself."""

    def __init__(self, executable: Path) -> None:
        self._executable = executable

    def run(self, script: Path, obj: Json) -> Json:
        """What the script returns for the object `obj`. Raises LuaError."""
        ended = subprocess.run(
            [self._executable, _RUNNER, script],
            input=f"return {_literal(obj)}",
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        if ended.returncode != 0:
            raise LuaError(ended.stderr.strip())
        result: Json = json.loads(ended.stdout)
        return result


class GopherLua:
    """The interpreter of Argo CD, in the program `executable` (`program.ensure_built`)."""

    def __init__(self, executable: Path) -> None:
        self._executable = executable

    def run(self, script: Path, obj: Json) -> Json:
        """What the script returns for the object `obj`. Raises LuaError."""
        try:
            result: Json = program.run(self._executable, ["lua", f"--script={script}"], json.dumps(obj))
        except program.GitOpsError as error:
            raise LuaError(str(error)) from error
        return result


def find_lua(environment: Mapping[str, str] = os.environ) -> Path:
    """A Lua that runs here; fetched into the cache where there is none.

    Raises:
        LuaNotFoundError: none was found, and the package could not be had.
    """
    if configured := environment.get(VARIABLE):
        if not os.access(configured, os.X_OK):
            raise LuaNotFoundError(f"{VARIABLE} is {configured!r}, which is not a program that can be run")
        return Path(configured)
    for name in _NAMES:
        if found := shutil.which(name, path=environment.get("PATH")):
            return Path(found)
    return _unpacked(cache_root(environment).parent / PACKAGE)


def _unpacked(folder: Path) -> Path:
    executable = folder / PACKAGE
    if not executable.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filling(folder) as scratch:
            if not executable.exists():  # another process may have done it while we waited for the lock
                with Task(f"Getting Debian's package {PACKAGE}, once"):
                    _unpack(scratch)
    return executable


def _unpack(scratch: Path) -> None:
    """Leaves just the interpreter in the folder."""
    work = scratch / "work"
    work.mkdir()
    _must(["apt-get", "download", PACKAGE], work)
    (package,) = work.glob("*.deb")
    _must(["dpkg-deb", "--extract", str(package), "."], work)
    (work / "usr" / "bin" / PACKAGE).rename(scratch / PACKAGE)
    shutil.rmtree(work)
    _must([str(scratch / PACKAGE), "-v"], scratch)  # its libraries must be there too


def _must(command: Sequence[str], folder: Path) -> None:
    advice = f"Install Lua 5.1 or newer (apt-get install {PACKAGE}), or name one in {VARIABLE}"
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LuaNotFoundError(f"There is no Lua, and {command[0]} failed: {error}. {advice}") from error
    if ended.returncode != 0:
        raise LuaNotFoundError(f"There is no Lua, and {' '.join(command)} failed: {ended.stderr.strip()}. {advice}")


def _literal(value: object) -> str:
    """A JSON value as Lua writes it. None is nil, which a table does not hold."""
    match value:
        case None:
            return "nil"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return '"' + "".join(f"\\{byte:03d}" for byte in value.encode()) + '"'
        case dict():
            return "{" + ",".join(f"[{_literal(key)}]={_literal(item)}" for key, item in value.items()) + "}"
        case list():
            return "{" + ",".join(_literal(item) for item in value) + "}"
        case _:
            raise TypeError(f"{value!r} is no JSON")
