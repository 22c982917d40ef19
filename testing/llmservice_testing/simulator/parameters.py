"""The parameters of a query, read as each frontend reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from llmservice_testing.simulator import answers
from llmservice_testing.simulator.scheduler import Mode
from llmservice_testing.simulator.versions import Behaviour
from llmservice_testing.simulator.wire import Reply

_MODES: Final = ("abort", "wait", "keep")
_PYTHON_BOOLEANS: Final = {
    **dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True),
    **dict.fromkeys(("false", "0", "no", "off", "f", "n"), False),
}
_RUST_BOOLEANS: Final = {"true": True, "false": False}


class BadParameterError(Exception):
    """A parameter that the engine refuses; `reply` is what it says."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.body.decode())
        self.reply = reply


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one query.

    Attributes:
        named: their text; unknown ones are there too, and never looked at.
        rust_names: the parameter that Rust's error names for this route, whichever was wrong.
    """

    behaviour: Behaviour
    named: dict[str, str]
    rust_names: str | None

    def unreadable(self, name: str, python: str, rust: str) -> BadParameterError:
        return BadParameterError(answers.unreadable_parameter(self.behaviour, name, python, rust, self.rust_names))

    def boolean(self, name: str, *, default: bool) -> bool:
        """Raises BadParameterError."""
        text = self.named.get(name)
        if text is None:
            return default
        python = self.behaviour.frontend == "python"
        value = _PYTHON_BOOLEANS.get(text.lower()) if python else _RUST_BOOLEANS.get(text)
        if value is None:
            message = "Input should be a valid boolean, unable to interpret input"
            raise self.unreadable(
                name,
                f"{{'type': 'bool_parsing', 'loc': 'query.{name}', 'msg': '{message}', 'input': '{text}'}}",
                f"{name}: provided string was not `true` or `false`",
            )
        return value

    def integer(self, name: str, *, default: int) -> int:
        """Raises BadParameterError."""
        text = self.named.get(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            message = "Input should be a valid integer, unable to parse string as an integer"
            raise self.unreadable(
                name,
                f"{{'type': 'int_parsing', 'loc': 'query.{name}', 'msg': '{message}', 'input': '{text}'}}",
                f"{name}: invalid digit found in string",
            ) from None

    def mode(self) -> Mode:
        """`abort` where none is given. Raises BadParameterError."""
        text = self.named.get("mode", "abort")
        if text not in _MODES:
            message = "Input should be 'abort', 'wait' or 'keep'"
            raise self.unreadable(
                "mode",
                f"{{'type': 'literal_error', 'loc': 'query.mode', 'msg': \"{message}\", 'input': '{text}', "
                "'ctx': {'expected': \"'abort', 'wait' or 'keep'\"}}",
                f"mode: invalid pause mode `{text}`; expected one of: abort, wait, keep",
            )
        return cast("Mode", text)
