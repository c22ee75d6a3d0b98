"""The environment of a broker: wall time, randomness and threads.

Everything that is not a pure function of its input goes through here, through `log.disk` (files) or
through asyncio's transports (sockets), so that a whole cluster can run in one process on virtual
time and be replayed from a seed. Monotonic time is the event loop's:
`asyncio.get_running_loop().time()`.
"""

import asyncio
import base64
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def machine_boot_id() -> str:
    """Linux's boot id, which is new after each start of the machine; empty on other systems."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(slots=True)
class Runtime:
    """`now_ms`: milliseconds since 1970. `random`: the source of all randomness but that of
    secrets, salts and nonces. `executor`: the threads in which blocking calls run; None means the
    loop's default pool. `boot_id`: identifies the present run of the machine, in whose memory
    unsynced writes are; an empty id means that some of those may be lost. `processing_clock`:
    seconds, from any start; it measures how long requests keep the loop's thread.
    """

    now_ms: Callable[[], int] = _wall_clock_ms
    random: Random = field(default_factory=SystemRandom)
    executor: Executor | None = None
    boot_id: Callable[[], str] = str
    processing_clock: Callable[[], float] = time.perf_counter

    async def run_in_thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a blocking call (fsync, compaction, deletion) off the event loop's thread."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, lambda: call(*args, **kwargs))

    def new_uuid(self) -> uuid.UUID:
        """A random (version 4) UUID whose text does not start with a dash, as Kafka requires."""
        while True:
            made = uuid.UUID(int=self.random.getrandbits(128), version=4)
            if not uuid_text(made).startswith("-"):
                return made


def uuid_text(value: uuid.UUID) -> str:
    """Kafka's text form of an id: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> uuid.UUID:
    """The inverse of `uuid_text`. Raises ValueError when the text is not 16 bytes of base64."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
