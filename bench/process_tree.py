"""Runs a command and prints the processor seconds of it and of everything that it has started, as
the last line of standard output.

    python -m bench.process_tree COMMAND…

Spark's JVM is not waited for by the Python program that has started it. So this process adopts
orphans (prctl(2), PR_SET_CHILD_SUBREAPER), and waits for all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36


def main() -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    process = subprocess.Popen(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(used.ru_utime + used.ru_stime, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
