"""`python -m llmservice_testing.vllm`: install vLLM on a CPU, or serve the tiny model with it."""

import argparse
import signal
import sys

from llmservice_testing.vllm.install import InstallationError, ensure_installed, plan_of, write_requirements
from llmservice_testing.vllm.installation import DEFAULT_VERSION
from llmservice_testing.vllm.server import EngineNotReadyError, RealEngine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m llmservice_testing.vllm", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="install it into the user's cache, if it is not there")
    lock = commands.add_parser("lock", help="resolve the committed requirements of a version anew")
    lock.add_argument("--version", default=DEFAULT_VERSION)
    serve = commands.add_parser(
        "serve", help="serve the tiny model until interrupted; further arguments go to `vllm serve`"
    )
    serve.add_argument("--frontend", choices=("python", "rust"), default="python")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    arguments, extra = parser.parse_known_args()
    if extra and arguments.command != "serve":
        parser.error(f"unknown arguments: {' '.join(extra)}")
    try:
        match arguments.command:
            case "install":
                print(ensure_installed().executable)
            case "lock":
                print(write_requirements(plan_of(arguments.version)))
            case "serve":
                _serve(RealEngine(arguments.frontend, host=arguments.host, port=arguments.port, extra_args=extra))
    except (InstallationError, EngineNotReadyError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _serve(engine: RealEngine) -> None:
    """Serve until SIGINT or SIGTERM."""
    signals = {signal.SIGINT, signal.SIGTERM}
    print(f"Starting; log={engine.log}", flush=True)
    with engine:
        # Not before: a child inherits the mask, and the engine would not hear SIGTERM.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        print(f"Ready; url={engine.url} frontend={engine.frontend}", flush=True)
        signal.sigwait(signals)


if __name__ == "__main__":
    sys.exit(main())
