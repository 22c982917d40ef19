"""The command: from its arguments to its exit status."""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from llmservice_testing.cluster import ClusterError
from llmservice_testing.controlplane import AssetsNotFoundError, ServerNotReadyError
from llmservice_testing.controlplane.assets import UnknownSourceError
from llmservice_testing.demo.errors import DemoError
from llmservice_testing.demo.fleet import NAME, RESYNC_SECONDS
from llmservice_testing.demo.kubectl import Kubectl, check_kubectl
from llmservice_testing.demo.screen import Screen, screen_for
from llmservice_testing.demo.stage import EnginesKind, Stage, stage
from llmservice_testing.demo.story import Story
from llmservice_testing.vllm import EngineNotReadyError, InstallationError

_PROBLEMS: Final = (
    DemoError,
    ClusterError,
    AssetsNotFoundError,
    UnknownSourceError,
    ServerNotReadyError,
    InstallationError,
    EngineNotReadyError,
)
_LOG_LINES: Final = 30

_TRY: Final = """
It keeps running until Ctrl-C. In another terminal:

    export KUBECONFIG={kubeconfig}
    kubectl get llmservices -o wide --watch
    kubectl patch llmservice {name} --type merge -p '{{"spec":{{"generation":"paused"}}}}'
    kubectl wait llmservice/{name} --for=condition=Paused --timeout=30s
    curl -X POST {url}/resume     # a stray resume; corrected within {resync} s
    kubectl get llmservice {name} -o yaml
    kubectl explain llmservice.spec
    kubectl events --for llmservice/{name}
    curl -s {metrics} | grep ^llmservice
    tail -f {log}
"""
_AGAIN: Final = """
All of it was ended and removed. To keep it running and use your own kubectl:

    make demo KEEP=1{engines}

and in another terminal the line `export KUBECONFIG=...` that it prints. Real vLLM: make demo ENGINES=vllm"""


def main() -> int:
    """Runs the demo and returns its exit status: 0, 1 if something did not come true, 130 if it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m llmservice_testing.demo", description=__doc__)
    parser.add_argument("--engines", choices=("simulated", "vllm"), default="simulated")
    parser.add_argument("--keep", action="store_true", help="keep everything running afterwards, until Ctrl-C")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        _run(options.engines, keep=options.keep)
    except KeyboardInterrupt:
        print("\nInterrupted; everything that was started has been ended.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains when it exits
        return 1
    except _PROBLEMS as error:
        print(f"\nThe demo failed. {error}", file=sys.stderr)
        return 1
    return 0


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """Ends everything in order, once; the clean-up is bounded, and a second Ctrl-C would cut it short."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(kind: EnginesKind, *, keep: bool) -> None:
    check_kubectl()
    with stage(kind) as running:
        print(f"$ {running.operator.command} &\nIts log: {running.operator.process.log}", flush=True)
        with screen_for(running) as screen:
            try:
                Story(running, screen, Kubectl(screen, running.folder, running.operator.check)).tell()
            except _PROBLEMS as error:
                raise DemoError(f"{error}\n{_end_of_log(running)}") from error
            if keep:
                _keep(running, screen)
    if not keep:
        print(_AGAIN.format(engines=" ENGINES=vllm" if kind == "vllm" else ""), flush=True)


def _keep(running: Stage, screen: Screen) -> None:
    """Shows what one can do now, until Ctrl-C, which is the way to end it."""
    screen.say(
        _TRY.format(
            kubeconfig=running.kubeconfig,
            name=NAME,
            url=running.members[1].engine.url,
            resync=RESYNC_SECONDS,
            metrics=running.operator.metrics_url,
            log=running.operator.process.log,
        )
    )
    with contextlib.suppress(KeyboardInterrupt):
        screen.keep()


def _end_of_log(running: Stage) -> str:
    """The end of the operator's log, of which a copy outlives the demo."""
    process = running.operator.process
    kept = Path(tempfile.gettempdir()) / f"llmservice-demo-operator-{os.getpid()}.log"
    shutil.copyfile(process.log, kept)
    return f"The end of the operator's log, all of which is in {kept}:\n{process.log_tail(_LOG_LINES)}"
