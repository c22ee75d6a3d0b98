"""Ports for servers that tests start. None of those that the system gives to clients, or a client may have a server's port while that is restarted."""

import random
import socket
from pathlib import Path
from typing import Final

FIRST: Final = 12_000
RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")  # of clients
_given: set[int] = set()


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody has, and that were not given away here: brokers of one machine have such."""
    below = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    while True:
        first = random.randrange(FIRST, below - count)
        wanted = set(range(first, first + count))
        if not wanted & _given and all(map(_is_free, wanted)):
            _given.update(wanted)
            return first


def free_port() -> int:
    return free_ports(1)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
