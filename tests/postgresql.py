"""A PostgreSQL server that tests start, from Debian's package `postgresql`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.jars import skip_or_fail_in_ci
from tests.ports import LOOPBACK, free_port

USER, PASSWORD = "tester", "se cret'\""
_UNPRIVILEGED = "nobody"  # the server refuses to run as root


@dataclass(frozen=True, slots=True)
class PostgreSQL:
    """A running server with one database. programs: folder of its commands. host: its address."""

    programs: Path
    port: int
    host: str

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://{self.host}:{self.port}/postgres"

    def run(self, sql: str) -> list[tuple[str, ...]]:
        """The rows of a statement, as psql prints their values; NULL is ∅."""
        command = [
            *(str(self.programs / "psql"), "-X", "-q", "-A", "-t", "-F", "\t", "-P", "null=∅"),
            *("-v", "ON_ERROR_STOP=1", "-h", self.host, "-p", str(self.port), "-U", USER, "-d", "postgres"),
            *("-c", sql),
        ]
        environment = {**os.environ, "PGPASSWORD": PASSWORD, "PGCLIENTENCODING": "UTF8"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


@contextmanager
def run_postgresql(host: str = LOOPBACK) -> Iterator[PostgreSQL]:
    """Runs a server in a temporary folder, at the address `host`. Its user has a password. Skips
    the test, or fails in CI, if the programs are missing.
    """
    programs = find_programs()
    if programs is None:
        skip_or_fail_in_ci("no PostgreSQL server: install Debian's package postgresql (`make postgresql` as root)")
    folder = Path(tempfile.mkdtemp(prefix="ottla-postgresql-"))
    user = _UNPRIVILEGED if os.geteuid() == 0 else None
    try:
        if user:
            shutil.chown(folder, user)
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        data, port = folder / "data", free_port()
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", USER, "-A", "scram-sha-256", "-E", "UTF8"]
        _run([*initdb, "--locale=C.UTF-8", "--no-sync", f"--pwfile={password}"], folder, user)
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all all scram-sha-256\n")
        settings = f"-c listen_addresses={host} -c port={port} -c unix_socket_directories={folder} -c fsync=off"
        control = [str(programs / "pg_ctl"), "-D", str(data), "-w"]
        _run([*control, "-l", str(folder / "log"), "-o", settings, "start"], folder, user)
        try:
            yield PostgreSQL(programs, port, host)
        finally:
            _run([*control, "-m", "immediate", "stop"], folder, user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_programs() -> Path | None:
    """Folder of initdb, pg_ctl and psql: on the PATH, or where Debian's package has them."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((it for it in found if (it / "initdb").exists() and (it / "psql").exists()), None)


def _run(command: list[str], folder: Path, user: str | None) -> None:
    # The server inherits standard output: with a pipe, the call would wait for the server's end.
    with (folder / "output").open("w") as output:
        done = subprocess.run(
            command,
            cwd=folder,
            user=user,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 0, f"{command}: {(folder / 'output').read_text()}"
