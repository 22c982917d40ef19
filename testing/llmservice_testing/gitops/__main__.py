"""Gets what the tests of GitOps need, before they run: `python -m llmservice_testing.gitops`."""

import sys

from llmservice_testing.controlplane.binaries import SourceError
from llmservice_testing.gitops import LuaNotFoundError, ensure_built, find_lua


def main() -> int:
    """Prints where the programs are; 1 and the reason where one cannot be had."""
    try:
        print(find_lua())
        print(ensure_built())
    except (LuaNotFoundError, SourceError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
