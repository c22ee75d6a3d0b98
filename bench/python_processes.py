"""The Python processes of a pipeline's executors on this machine, and their memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_VARIABLE = b"OTTLA_SINK="  # of `ottla_spark.streaming.writer_processes`


@dataclass(frozen=True, slots=True)
class PythonProcess:
    """role: the sink that it works for, and whether it is the daemon that starts others."""

    role: str
    pss_mib: float
    rss_mib: float


def python_processes(driver: int) -> Iterator[PythonProcess]:
    """Python processes that the driver's JVM has started. `driver`: process id of the driver."""
    children = dict[int, list[int]]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(folder.name))
    left = list(children.get(driver, []))
    while left:
        process = left.pop()
        left += children.get(process, [])
        folder = Path(f"/proc/{process}")
        try:
            if "python" in (folder / "exe").readlink().name:
                yield _read(folder, has_children=process in children)
        except OSError:
            continue


def _read(folder: Path, *, has_children: bool) -> PythonProcess:
    variables = (folder / "environ").read_bytes().split(b"\0")
    names = [it.removeprefix(_VARIABLE).decode() for it in variables if it.startswith(_VARIABLE)]
    sizes = dict(re.findall(r"^(Pss|Rss): +(\d+) kB", (folder / "smaps_rollup").read_text(), re.MULTILINE))
    role = f"{'daemon' if has_children else 'writer'} {' '.join(names)}"
    return PythonProcess(role, int(sizes["Pss"]) / 1024, int(sizes["Rss"]) / 1024)
