"""`python -m llmservice_testing.simulator`: many engines in a process of their own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import resource
import signal
import sys

from llmservice_testing.simulator.admin import Admin
from llmservice_testing.simulator.life import Options
from llmservice_testing.simulator.simulator import Simulator


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m llmservice_testing.simulator",
        description="Simulates vLLM engines at consecutive addresses until it is told to stop. "
        "Prints one line that begins with 'Ready' when all of them listen.",
    )
    parser.add_argument("--engines", type=int, default=1, help="how many (default 1)")
    parser.add_argument("--first", default="127.0.0.1", help="address of the first; the others follow (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="of every engine (8000)")
    parser.add_argument("--version", default="0.32.0", help="of vLLM (0.32.0)")
    parser.add_argument("--frontend", choices=("python", "rust"), default="python")
    parser.add_argument("--tokens-per-second", type=float, default=1000.0, help="of each running request (1000)")
    parser.add_argument("--admin", metavar="HOST:PORT", help="serve the admin API there; port 0 chooses one")
    arguments = parser.parse_args()
    try:
        first = ipaddress.ip_address(arguments.first)
        addresses = [str(first + number) for number in range(arguments.engines)]
        asyncio.run(_serve(arguments, addresses))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


async def _serve(arguments: argparse.Namespace, addresses: list[str]) -> None:
    """Serve until SIGINT or SIGTERM."""
    _allow_many_sockets()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with contextlib.AsyncExitStack() as stack:
        simulator = await stack.enter_async_context(Simulator())
        options = Options(tokens_per_second=arguments.tokens_per_second)
        for address in addresses:
            await simulator.engine(
                address, arguments.port, version=arguments.version, frontend=arguments.frontend, options=options
            )
        admin = ""
        if arguments.admin is not None:
            host, _, port = arguments.admin.rpartition(":")
            admin = f" admin={(await stack.enter_async_context(Admin(simulator, host, int(port)))).url}"
        print(f"Ready; engines={len(addresses)} first={addresses[0]} last={addresses[-1]}{admin}", flush=True)
        await stopped.wait()


def _allow_many_sockets() -> None:
    """A thousand engines need a socket each, and one for each connection: lift the soft limit to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
