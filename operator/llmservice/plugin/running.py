"""Runs one command to its exit status: errors in one line, Ctrl-C and SIGTERM as an end that is explained."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import typer

from llmservice.client.errors import (
    ChangedByOthersError,
    ConfigurationError,
    FleetError,
    NotFoundError,
    PausedOtherwiseError,
    RefusedError,
    StalledError,
    TimedOutError,
    UnavailableError,
)
from llmservice.plugin.exits import Exit

_EXITS: tuple[tuple[type[FleetError], Exit], ...] = (
    (TimedOutError, Exit.TIMED_OUT),
    (StalledError, Exit.NEEDS_PERSON),
    (ChangedByOthersError, Exit.CHANGED),
    (PausedOtherwiseError, Exit.CHANGED),
    (NotFoundError, Exit.NOT_FOUND),
    (RefusedError, Exit.REFUSED),
    (UnavailableError, Exit.UNAVAILABLE),
    (ConfigurationError, Exit.UNAVAILABLE),
)


def exit_of(error: FleetError) -> Exit:
    """The exit status that tells what happened."""
    return next((end for kind, end in _EXITS if isinstance(error, kind)), Exit.ERROR)


def run(command: Callable[[], Coroutine[Any, Any, Exit]]) -> NoReturn:
    """Ends the process. ``command`` is cancelled by Ctrl-C and SIGTERM, once, and may still say something then; a second
    Ctrl-C ends it at once."""
    terminated: list[int] = []

    async def until_told() -> Exit:
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            terminated.append(signal.SIGTERM)
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        return await command()

    try:
        end = asyncio.run(until_told())
    except FleetError as error:
        complain(str(error))
        end = exit_of(error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        end = Exit.TERMINATED if terminated else Exit.INTERRUPTED
    except BrokenPipeError:  # the reader has seen enough, as `| head` does
        with contextlib.suppress(OSError):
            sys.stdout.close()
        end = Exit.ERROR
    raise typer.Exit(end)


def complain(message: str) -> None:
    """One line on standard error."""
    typer.echo(f"kubectl llm: {message}", err=True)
