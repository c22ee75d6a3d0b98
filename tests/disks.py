"""A small disk of a test's own, which can be filled to its last byte. Only root may mount one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.jars import unavailable


@contextmanager
def small_disk(place: Path, mebibytes: int) -> Iterator[Path]:
    """Mounts an empty disk in memory at `place`, a folder that is made if need be. Without root: see `unavailable`."""
    if os.geteuid() != 0:
        unavailable("only root may mount a disk of its own")
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "ottla-test", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Takes every byte that is left on the disk of `path`."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 65536) == 65536:
                pass
        except OSError:
            return
