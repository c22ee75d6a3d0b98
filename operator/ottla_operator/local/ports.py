"""Who has a port."""

import socket
from pathlib import Path

from ottla_operator.plan.broker_processes import HOST


def in_use(port: int) -> str | None:
    """A sentence when a process listens on the port; None when it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            return f"port {port} is for root only; take one above 1023"
        except OSError:
            return f"port {port} is in use{_by(port)}"
    return None


def _by(port: int) -> str:
    """` by pid 12 (java)`, where the system tells (Linux, own processes)."""
    inodes = {
        fields[9]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in _lines(table)[1:]
        if (fields := line.split())[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port
    }
    if not inodes:
        return ""
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(it.readlink()) in sockets for it in (process / "fd").iterdir()):
                return f" by pid {process.name} ({(process / 'comm').read_text().strip()})"
        except OSError:  # somebody else's process, or one that just ended
            continue
    return ""


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
