"""Ports of this machine for servers that tests start.

Who draws a port and binds it a moment later may lose it in between; who keeps one over a restart of a server leaves it
unbound meanwhile. So each process draws from a block of ports that is its own while it lives.
"""

import functools
import itertools
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LOWEST: Final = 10_000
_BLOCK: Final = 500


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which nothing listens, and that no other process gets from here. Raises OSError where there are
    too few.

    They are below the range that the kernel gives to outgoing connections. A port from within that range can be taken by a
    client while the API server is away: one that retries long enough against the closed port even connects to itself, and
    the restart fails.
    """
    found: list[int] = []
    for port in itertools.islice(_own_ports(), _BLOCK):
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} of {_BLOCK} ports are free")


@functools.cache
def _own_ports() -> Iterator[int]:
    """The ports of this process, over and over: one that was given out comes again as late as possible."""
    ephemeral_start = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    end = ephemeral_start if ephemeral_start > _LOWEST + 2 * _BLOCK else 32_768
    firsts = range(_LOWEST, end - _BLOCK + 1, _BLOCK)
    for first in random.sample(firsts, k=len(firsts)):
        with socket.socket(socket.AF_UNIX) as claim:
            try:
                claim.bind(f"\0llmservice-ports-{first}")  # a name that is no file, and goes with who holds it
            except OSError:
                continue
            claim.detach()  # it stays open until this process ends, however it ends
        return itertools.cycle(range(first, first + _BLOCK))
    raise OSError(f"each of {len(firsts)} blocks of ports is claimed by another process")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
