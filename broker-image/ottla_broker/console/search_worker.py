"""`python -m ottla_broker.console.search_worker`: reads the records of one search, beside the
broker, which serves its clients meanwhile.

Requests and responses (`search_messages`) are on standard input and output. The process may use a
bounded amount of memory and yields to others. The broker ends it with the search, and when a
request takes too long.
"""

import os
import resource
import sys
import time
from pathlib import Path
from typing import Final

MAX_MEMORY_BYTES: Final = 768 << 20
"""Limit of the worker's data segment: a batch may decompress to 128 MB, of which records are
copies."""
NICENESS: Final = 10
AUTOGROUP: Final = Path("/proc/self/autogroup")
ATTEMPTS: Final = 5
RETRY_PAUSE_S: Final = 0.1
"""Linux takes one change of an autogroup each 0.1 s."""


def main() -> None:
    lower_priority()
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    # Imported at this priority: its libraries take half a second of a processor.
    from ottla_broker.console.record_scanner import serve

    serve(sys.stdin.buffer, sys.stdout.buffer)


def lower_priority() -> None:
    """Linux shares processors between sessions first (autogroups, sched(7)): within the broker's
    session the worker would use up the broker's share where other programs keep all processors
    busy, at any niceness. So the broker starts it in a session of its own, which is nice itself. In
    a container, whose processes are one control group, there are no autogroups.
    """
    os.nice(NICENESS)
    if os.getsid(0) != os.getpid():
        return
    for _ in range(ATTEMPTS):
        try:
            AUTOGROUP.write_text(str(NICENESS))
        except BlockingIOError:
            time.sleep(RETRY_PAUSE_S)
        except OSError:  # no autogroups
            return
        else:
            return


if __name__ == "__main__":
    main()
