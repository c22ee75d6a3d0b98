"""`python -m ottla_broker.console.search_worker`: reads the records of one search, beside the
broker, which serves its clients meanwhile.

Requests and responses (`search_messages`) are on standard input and output. The process may use a
bounded amount of memory and yields to others. The broker ends it with the search, and when a
request takes too long.
"""

import os
import resource
import sys
from typing import Final

MAX_MEMORY_BYTES: Final = 768 << 20
"""Limit of the worker's data segment: a batch may decompress to 128 MB, and its records are copied
out of it."""
NICENESS: Final = 10


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    # Imported at this priority: its libraries take half a second of a processor.
    from ottla_broker.console.record_scanner import serve

    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
