"""`python -m llmservice_testing.ray`: install Ray with vLLM on a CPU, or serve the tiny model with it."""

import argparse
import signal
import sys

from llmservice_testing.ray.install import PLAN, ensure_installed
from llmservice_testing.ray.server import AppNotReadyError, RealApp
from llmservice_testing.vllm.install import InstallationError, write_requirements


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m llmservice_testing.ray", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="install it into the user's cache, if it is not there")
    commands.add_parser("lock", help="resolve the committed requirements anew")
    serve = commands.add_parser("serve", help="serve the tiny model until interrupted")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--replicas", type=int, default=2)
    arguments = parser.parse_args()
    try:
        match arguments.command:
            case "install":
                print(ensure_installed().python)
            case "lock":
                print(write_requirements(PLAN))
            case "serve":
                _serve(RealApp(host=arguments.host, port=arguments.port, replicas=arguments.replicas))
    except (InstallationError, AppNotReadyError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _serve(app: RealApp) -> None:
    """Serve until SIGINT or SIGTERM."""
    signals = {signal.SIGINT, signal.SIGTERM}
    print(f"Starting; log={app.log}", flush=True)
    with app:
        # Not before: a child inherits the mask, and Ray would not hear SIGTERM.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        print(f"Ready; url={app.url}", flush=True)
        signal.sigwait(signals)


if __name__ == "__main__":
    sys.exit(main())
