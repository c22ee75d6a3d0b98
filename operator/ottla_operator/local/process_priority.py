"""Priority of processes that give way to others.

Linux with autogroups (sched(7)) first divides processors between sessions, each by a nice value of
its own that is 0 at first. The nice value of a process only counts within its session. So a process
in a session of its own needs both. Within a CPU cgroup, and on systems without autogroups, only the
nice value of the process counts.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_NICENESS: Final = 19
_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.1
"""Linux refuses a second change within this time, of whichever session, unless root makes it."""


def lower_priority(pid: int, niceness: int) -> None:
    """Adds to the nice value of a process. If it leads a session, the session gets the same value.
    A process that has exited is ignored. Blocks for at most half a second.
    """
    with suppress(ProcessLookupError):
        value = min(MAX_NICENESS, os.getpriority(os.PRIO_PROCESS, pid) + niceness)
        os.setpriority(os.PRIO_PROCESS, pid, value)
        if os.getsid(pid) == pid:
            _set_session_niceness(pid, value)


def _set_session_niceness(leader: int, value: int) -> None:
    for _ in range(_ATTEMPTS):
        try:
            Path(f"/proc/{leader}/autogroup").write_text(str(value))
            return
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        except OSError:  # no autogroups, or /proc cannot be written in this container
            return
