"""The audit log: denied operations and changes, with their principals, as lines of one JSON object
each.

The queue of lines is bounded. Lines above the bound are dropped and counted, and the count is
written when there is room again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

logger = logging.getLogger(__name__)

MAX_QUEUED_LINES: Final = 10_000
"""Lines that wait to be written to a file: a few megabytes."""
MAX_LOGGED_LINES: Final = 1_000
"""Lines of one second in the broker's log, which is written while clients wait."""


class AuditedResource(msgspec.Struct, frozen=True):
    """`type`: Kafka's name, such as TOPIC."""

    type: str
    name: str


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """`time`: RFC 3339, UTC. `request`: Kafka's name of the API; of the schema registry, method and
    path. `operation`: that of an access rule, such as WRITE, or another one, such as LOGIN.
    `result`: `denied`, `done`, or the error code for which a change was not done.
    """

    time: str
    principal: str
    host: str
    listener: str
    client_id: str | None
    request: str
    correlation_id: int
    operation: str
    resource: AuditedResource
    result: str


class DroppedLines(msgspec.Struct, frozen=True, rename="camel"):
    """The line in place of dropped ones. `dropped_lines`: their number."""

    dropped_lines: int


class AuditLog(Protocol):
    """`dropped`: lines that were not written, since the broker started."""

    @property
    def dropped(self) -> int: ...

    def record(self, event: AuditEvent) -> None: ...

    async def close(self) -> None:
        """Returns when all recorded events are written."""
        ...


class BrokerLogAudit:
    """Lines in the broker's own log, at INFO of this module's logger. `now_s`: the loop's clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.dropped = 0
        self._now_s = now_s
        self._second = 0
        self._line_count = 0
        self._unreported = 0

    def record(self, event: AuditEvent) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        if (second := int(self._now_s())) != self._second:
            self._second, self._line_count = second, 0
            self._report()
        if self._line_count >= MAX_LOGGED_LINES:
            self.dropped += 1
            self._unreported += 1
            return
        self._line_count += 1
        logger.info(msgspec.json.encode(event).decode())

    async def close(self) -> None:
        self._report()

    def _report(self) -> None:
        if self._unreported:
            logger.info(msgspec.json.encode(DroppedLines(self._unreported)).decode())
            self._unreported = 0


class BothAudits:
    """Records each event in two audit logs."""

    def __init__(self, first: AuditLog, second: AuditLog) -> None:
        self._first = first
        self._second = second

    @property
    def dropped(self) -> int:
        return self._first.dropped + self._second.dropped

    def record(self, event: AuditEvent) -> None:
        self._first.record(event)
        self._second.record(event)

    async def close(self) -> None:
        await self._second.close()
        await self._first.close()


class FileAudit:
    """Lines at the end of a file, which is opened for each write, so that it may be rotated.

    `append`: writes to the file. Its calls do not overlap.
    """

    def __init__(self, append: Callable[[bytes], Awaitable[None]]) -> None:
        self.dropped = 0
        self._append = append
        self._lines: list[bytes] = []
        self._unreported = 0
        self._writing: asyncio.Task[None] | None = None

    def record(self, event: AuditEvent) -> None:
        if len(self._lines) >= MAX_QUEUED_LINES:
            self.dropped += 1
            self._unreported += 1
            return
        self._lines.append(msgspec.json.encode(event))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        while self._writing is not None:
            await self._writing

    async def _write(self) -> None:
        try:
            while self._lines or self._unreported:
                lines, self._lines = self._lines, []
                if self._unreported:
                    lines.append(msgspec.json.encode(DroppedLines(self._unreported)))
                    self._unreported = 0
                try:
                    await self._append(b"".join(line + b"\n" for line in lines))
                except OSError as reason:
                    self.dropped += len(lines)
                    logger.error("cannot write %d lines of the audit log (audit.log.path): %s", len(lines), reason)
        finally:
            self._writing = None
