"""`python -m ottla_spark.stop`: asks the runner in this container to stop, and returns when it has.

Where Spark starts the runner (spark-submit), the container's first process is the JVM, and what Kubernetes asks it to stop ends batches half-done. As the
container's preStop hook, this lets the batch in flight end first.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path


def runners() -> Iterator[int]:
    """Ids of the processes that run a pipeline."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile, or is somebody else's
            continue
        python = Path(os.fsdecode(arguments[0])).name.startswith("python")
        if python and any(it.endswith(b"ottla_spark/__main__.py") for it in arguments[1:3]):
            yield int(folder.name)


def stop(process: int) -> None:
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        ended.poll()
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


if __name__ == "__main__":
    for found in runners():
        stop(found)
