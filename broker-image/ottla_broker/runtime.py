"""What a broker takes from the world: wall time, chance and threads.

Everything that is not a pure function of its input goes through here (or through `log.disk`, for files, and asyncio's
transports, for sockets), so that a whole cluster can run in one process on virtual time and replay from a seed.
Monotonic time is the event loop's: `asyncio.get_running_loop().time()`.
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
    """Linux's name of the time since it was started; nothing where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(slots=True)
class Runtime:
    """`now_ms`: milliseconds since the epoch. `random`: the only source of chance. `executor`: where blocking calls run;
    None means the loop's default pool. `boot`: what names the time since the machine was started, in whose memory unsynced writes are; an empty
    name: nobody knows whether some were lost."""

    now_ms: Callable[[], int] = _wall_clock_ms
    random: Random = field(default_factory=SystemRandom)
    executor: Executor | None = None
    boot_id: Callable[[], str] = str

    async def run_in_thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a blocking call (fsync, compaction, deletion) off the protocol's thread."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, lambda: call(*args, **kwargs))

    def new_uuid(self) -> uuid.UUID:
        """A random (version 4) UUID. Kafka reserves those whose text form starts with a dash; so they are passed over."""
        while True:
            made = uuid.UUID(int=self.random.getrandbits(128), version=4)
            if not uuid_text(made).startswith("-"):
                return made


def uuid_text(value: uuid.UUID) -> str:
    """Kafka's text form of an id: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> uuid.UUID:
    """The inverse of `uuid_text`; ValueError when the text is not 16 bytes of base64."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
