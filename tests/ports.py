"""Ports for servers that tests start. None of those that the system gives to clients, or a client may have a server's port while that is restarted.

A port is its process's until that ends, whether or not a server has it at the moment: runs of tests beside each other agree on
it by a file for each port.
"""

import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

from tests.locks import locked

FIRST: Final = 12_000
RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")  # of clients
CLAIMS: Final = Path(tempfile.gettempdir()) / f"ottla-test-ports-{os.getuid()}"


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that nobody has and nobody was given: brokers of one machine have such."""
    below = int(RANGE.read_text().split()[0]) if RANGE.exists() else 32_768
    CLAIMS.mkdir(exist_ok=True)
    with locked(CLAIMS / "lock"):
        while True:
            first = random.randrange(FIRST, below - count)
            wanted = range(first, first + count)
            if all(_is_free(port) and not _is_claimed(port) for port in wanted):
                for port in wanted:
                    (CLAIMS / str(port)).write_text(str(os.getpid()))
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


def _is_claimed(port: int) -> bool:
    try:
        os.kill(int((CLAIMS / str(port)).read_text()), 0)
    except (
        FileNotFoundError,
        ProcessLookupError,
        PermissionError,
        ValueError,
    ):  # nobody; another user; one killed as it claimed it
        return False
    return True
