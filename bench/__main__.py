"""`python -m bench`: measure, and print tables."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import fanout, hot, machine, rest, sdk, single, stage, table
from bench.engines import simulated
from bench.fanout import FanOut
from bench.report import Run
from bench.stage import Stage
from bench.subject import operating
from llmservice.client import FleetError
from llmservice_testing.cluster import WaitTimeoutError
from llmservice_testing.controlplane import AssetsNotFoundError, ServerNotReadyError
from llmservice_testing.vllm import EngineNotReadyError, InstallationError
from llmservice_testing.vllm.installation import DEFAULT_VERSION, EXECUTABLE_VARIABLE, Layout


def main() -> int:
    arguments = _arguments()
    try:
        with stage.standing() as standing:
            if arguments.profile:
                table.show(hot.measure(standing, max(arguments.sizes)))
            elif arguments.client:
                table.show(sdk.measure(standing, arguments.sizes, arguments.rounds))
            else:
                run = _run(standing, arguments.sizes, arguments.rounds, real=arguments.real)
                table.show(run.tables())
                if arguments.json is not None:
                    arguments.json.write_text(json.dumps(run.json(), indent=2) + "\n")
    except (
        AssetsNotFoundError,
        EngineNotReadyError,
        FleetError,
        InstallationError,
        ServerNotReadyError,
        WaitTimeoutError,
    ) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _run(standing: Stage, sizes: Sequence[int], rounds: int, *, real: bool) -> Run:
    described = machine.describe(standing.cluster)
    one = single.measure(standing, rounds, real=real)
    fan_outs: list[FanOut] = []
    for size in sizes:
        with simulated(standing, size) as engines, operating(standing, f"bench-{size}", engines.addresses) as subject:
            fan_outs.append(fanout.measure(subject, engines, rounds))
            if size == max(sizes):
                settled = rest.measure(subject, engines)
    return Run(described, rounds, one, fan_outs, settled)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures the operator against what people use instead, in one run. See docs/benchmarks.md.",
    )
    parser.add_argument("--sizes", type=_sizes, default=[100, 1000], metavar="N,N", help="of fleets (100,1000)")
    parser.add_argument("--rounds", type=_positive, default=5, metavar="N", help="a pause and a resume each (5)")
    parser.add_argument(
        "--real",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="measure one engine on a real vLLM (installed if need be: 6 GB); default: if it is installed",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there, too")
    parser.add_argument("--profile", action="store_true", help="say instead where the operator's time goes")
    parser.add_argument("--client", action="store_true", help="measure instead the client of docs/sdk.md")
    arguments = parser.parse_args()
    if arguments.real is None:
        arguments.real = _is_vllm_installed()
    return arguments


def _sizes(text: str) -> list[int]:
    return sorted({_positive(part) for part in text.split(",")})


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number


def _is_vllm_installed() -> bool:
    return EXECUTABLE_VARIABLE in os.environ or Layout.of(DEFAULT_VERSION).marker.exists()


if __name__ == "__main__":
    sys.exit(main())
