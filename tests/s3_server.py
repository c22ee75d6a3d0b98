"""An S3 server for tests: versitygw, built from its Go module.

`python -m tests.s3_server` builds it once; tests only look it up.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs

from tests import go_programs
from tests.daemons import Daemon
from tests.jars import skip_or_fail_in_ci
from tests.ports import LOOPBACK, free_port
from tests.waiting import eventually

SOURCE = Path(__file__).parent / "go_s3_server"
NAME = "versitygw"
BUILD_COMMAND = "make s3-server"
ACCESS_KEY, SECRET_KEY = "tester", "se/cret+key"
BUCKET = "lake"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server with the bucket `BUCKET`, whose objects are files in `folder`."""

    endpoint: str
    folder: Path

    def file_system(self) -> pyarrow.fs.S3FileSystem:
        """PyArrow's client; its paths begin with the bucket."""
        return pyarrow.fs.S3FileSystem(
            access_key=ACCESS_KEY, secret_key=SECRET_KEY, endpoint_override=self.endpoint, region="us-east-1"
        )

    def iceberg_properties(self) -> dict[str, str]:
        """Properties of PyIceberg's clients."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.region": "us-east-1",
        }

    def files(self, prefix: str) -> set[str]:
        """Paths of the objects below the folder `prefix` of the bucket. They do not begin with the
        bucket's name.
        """
        selector = pyarrow.fs.FileSelector(f"{BUCKET}/{prefix}", recursive=True, allow_not_found=True)
        found = self.file_system().get_file_info(selector)
        return {it.path.removeprefix(f"{BUCKET}/") for it in found if it.is_file}


def cache_folder() -> Path:
    """The folder with the program built from this source."""
    return go_programs.cache_folder(SOURCE, NAME, go_programs.required_version(SOURCE, "versity/versitygw"))


def build() -> Path:
    """Builds the server if it is not built yet. Raises ProgramUnavailable."""
    return go_programs.build_program(SOURCE, cache_folder(), NAME, "a minute or two")


@contextmanager
def run_s3_server(folder: Path, host: str = LOOPBACK) -> Iterator[S3Server]:
    """Runs a server at the address `host` that keeps its objects in the folder. Skips the test, or
    fails in CI, if the program is missing.
    """
    program = cache_folder() / NAME
    if not program.exists():
        skip_or_fail_in_ci(f"no S3 server: `{BUILD_COMMAND}` builds it once, in a minute or two")
    objects, metadata = folder / "objects", folder / "metadata"
    (objects / BUCKET).mkdir(parents=True)
    metadata.mkdir()
    port = free_port()
    command: list[str | Path] = [program, f"{host}:{port}", objects, metadata]
    credentials = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    server = Daemon(command, folder / "versitygw.log", credentials)
    server.start()
    try:
        eventually(lambda: _is_listening(host, port), message=lambda: server.log.read_text())
        yield S3Server(f"http://{host}:{port}", objects / BUCKET)
    finally:
        server.stop()


def _is_listening(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


if __name__ == "__main__":
    sys.exit(go_programs.run_builds([build]))
