"""A small file system of a test's own, which the test can fill completely. Mounting it
needs root.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.jars import skip_or_fail_in_ci


@contextmanager
def mount_small_disk(place: Path, mebibytes: int) -> Iterator[Path]:
    """Mounts an empty tmpfs at `place`, which is created if missing. Skips the test, or fails in
    CI, without root.
    """
    if os.geteuid() != 0:
        skip_or_fail_in_ci("mounting a tmpfs needs root")
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "ottla-test", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill_disk(path: Path) -> None:
    """Writes to `path` until its file system is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 65536) == 65536:
                pass
        except OSError:
            return
