"""Ports for servers that tests start.

They lie outside the range that the system gives to clients: a client must not get a server's port
while that server restarts. A port belongs to a test process until the process exits, whether or not
a server listens on it. Test runs on one machine coordinate by one claim file per port.
"""

import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

from tests.locks import file_lock

LOOPBACK: Final = "127.0.0.1"
FIRST_PORT: Final = 12_000
EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")  # the kernel gives these ports to clients
CLAIMS_FOLDER: Final = Path(tempfile.gettempdir()) / f"ottla-test-ports-{os.getuid()}"


def first_of_free_ports(count: int) -> int:
    """Claims `count` consecutive ports that are free and not claimed, for the brokers of one
    machine. Returns the first of them.
    """
    below = int(EPHEMERAL_RANGE.read_text().split()[0]) if EPHEMERAL_RANGE.exists() else 32_768
    CLAIMS_FOLDER.mkdir(exist_ok=True)
    with file_lock(CLAIMS_FOLDER / "lock"):
        while True:
            first = random.randrange(FIRST_PORT, below - count)
            wanted = range(first, first + count)
            if all(_is_free(port) and not _is_claimed(port) for port in wanted):
                for port in wanted:
                    (CLAIMS_FOLDER / str(port)).write_text(str(os.getpid()))
                return first


def free_port() -> int:
    return first_of_free_ports(1)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _is_claimed(port: int) -> bool:
    try:
        os.kill(int((CLAIMS_FOLDER / str(port)).read_text()), 0)
    # No claim, an owner that has exited, an owner's process id that another user's process now has,
    # or a claim file without content.
    except (FileNotFoundError, ProcessLookupError, PermissionError, ValueError):
        return False
    return True
