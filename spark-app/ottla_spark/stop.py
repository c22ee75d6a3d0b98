"""`python -m ottla_spark.stop`: stops the runner in this container gracefully and waits for its
end.

With spark-submit, the container's first process is the JVM, which aborts the batch in flight on
SIGTERM. As preStop hook, this command lets the batch complete first.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path


def find_runners() -> Iterator[int]:
    """Process ids of the runners."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            continue
        python = Path(os.fsdecode(arguments[0])).name.startswith("python")
        if python and any(it.endswith(b"ottla_spark/__main__.py") for it in arguments[1:3]):
            yield int(folder.name)


def stop_runner(process: int) -> None:
    """Sends SIGTERM and waits for the process to end."""
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
    for runner in find_runners():
        stop_runner(runner)
