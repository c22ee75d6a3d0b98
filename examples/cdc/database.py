"""A PostgreSQL server for the example, from Debian's package `postgresql`, with logical decoding.

Its only user has no password: the server listens on 127.0.0.1, and holds what the example
generates.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PORT: Final = 5433
USER: Final = "shop"
# REPLICA IDENTITY FULL: a change has all columns, also long texts that it leaves as they are.
TABLE: Final = """
CREATE TABLE IF NOT EXISTS orders (
    id integer PRIMARY KEY, customer text NOT NULL, status text NOT NULL, amount numeric(10, 2) NOT NULL, note text,
    changed timestamptz NOT NULL);
ALTER TABLE orders REPLICA IDENTITY FULL;
"""
_UNPRIVILEGED: Final = "nobody"
"""The server refuses to run as root."""


class NotInstalled(Exception):
    """A program that the example needs is not installed. The text says how to install it."""


@dataclass(frozen=True, slots=True)
class Database:
    """A running server."""

    port: int = PORT

    def run(self, statements: Iterable[str]) -> str:
        """Runs SQL and returns the rows as psql prints them. Raises RuntimeError."""
        command = [
            *(str(find_programs() / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"),
            *("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres"),
        ]
        environment = {**os.environ, "PGCLIENTENCODING": "UTF8", "PGTZ": "UTC"}
        sql = "\n".join(statements)
        done = subprocess.run(command, input=sql, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout


@contextmanager
def database(folder: Path, port: int = PORT) -> Iterator[Database]:
    """Runs a server with its data in the folder, and the table of orders in it. Raises NotInstalled
    and RuntimeError.
    """
    programs, user, data = find_programs(), _UNPRIVILEGED if os.geteuid() == 0 else None, folder / "data"
    folder.mkdir(parents=True, exist_ok=True)
    if user is not None:
        shutil.chown(folder, user)
    if not data.exists():
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8"]
        _run([*initdb, "--locale=C.UTF-8", "--no-sync"], folder, user)
    listening = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
    control = [str(programs / "pg_ctl"), "-D", str(data), "-w"]
    _run([*control, "-l", str(folder / "log"), "-o", f"{listening} -c wal_level=logical", "start"], folder, user)
    try:
        server = Database(port)
        server.run([TABLE])
        yield server
    finally:
        _run([*control, "-m", "fast", "stop"], folder, user)


def find_programs() -> Path:
    """Folder of initdb, pg_ctl and psql: on the PATH, or where Debian's package has them. Raises
    NotInstalled.
    """
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else []
    for folder in [*found, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]:
        if (folder / "initdb").exists() and (folder / "psql").exists():
            return folder
    raise NotInstalled("no PostgreSQL server: install Debian's package postgresql")


def _run(command: list[str], folder: Path, user: str | None) -> None:
    # The server inherits standard output: with a pipe, the call would wait for the server's end.
    output = folder / "output"
    with output.open("w") as file:
        done = subprocess.run(
            command, cwd=folder, user=user, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {output.read_text()}")
