"""Ports of the schema registries whose Clusters name no port.

Several `ottla up` may start at the same time, each with brokers that would listen on 8081: a lock
file says which of them may.
"""

import contextlib
import fcntl
import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Final

from ottla_operator.local import processes

PACKAGES: Final = ("fastavro", "jsonschema_rs", "google.protobuf", "proto_schema_parser")
"""Packages of the extra ottla[registry]."""
_claimed: dict[int, int] = {}
"""Port → the open lock file that this process has for it."""


def has_registry_extra() -> bool:
    """True if what the registry needs is installed here, where brokers run too."""
    return all(map(_is_installed, PACKAGES))


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def claim_port(port: int) -> int:
    """The port, unless a program listens on it or another `ottla up` has claimed it; else another
    free one.
    """
    is_ours = port in _claimed or _lock(port)
    return port if is_ours and processes.find_port_conflict(port) is None else processes.find_free_port()


def _lock(port: int) -> bool:
    """Locks the port's file until this process ends. False if that fails."""
    path = Path(tempfile.gettempdir()) / f"ottla-registry-{os.getuid()}-{port}.lock"
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        _claimed[port] = fd
        return True
    return False
