"""`python -m llmservice_testing.demo`: see `app`."""

import signal
import sys


def run() -> int:
    """Runs the demo and returns its exit status."""
    # Importing takes a second, and until something was started Ctrl-C may simply end us: no clean-up, no traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from llmservice_testing.demo.app import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
