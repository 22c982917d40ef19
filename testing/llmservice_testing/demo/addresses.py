"""Addresses of this machine for engines: every 127.x.y.z is one, so each pod gets its own, as in a cluster."""

import random
import socket
from collections.abc import Sequence
from typing import Final

from llmservice_testing.demo.errors import DemoError
from llmservice_testing.ports import free_ports

USUAL_PORT: Final = 8000
_ATTEMPTS: Final = 20


def free_addresses(count: int) -> tuple[tuple[str, ...], int]:
    """So many addresses on which one port is free, and that port: 8000 unless something listens on it everywhere.

    Raises DemoError where there are none.
    """
    for attempt in range(_ATTEMPTS):
        port = USUAL_PORT if attempt < _ATTEMPTS // 2 else free_ports(1)[0]
        network = f"127.{random.randint(10, 250)}.{random.randint(10, 250)}"  # other demos and tests may run, too
        hosts = tuple(f"{network}.{number}" for number in range(1, count + 1))
        if _are_free(hosts, port):
            return hosts, port
    raise DemoError(f"There are no {count} free addresses below 127.0.0.0/8 for engines; the demo needs Linux.")


def _are_free(hosts: Sequence[str], port: int) -> bool:
    for host in hosts:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True
