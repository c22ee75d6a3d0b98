"""The audit log in a topic of the cluster (`audit.topic`), one JSON object for each record.

- The broker appends to a partition of the topic that it leads. If it leads none, it sends to the
  leader of one. Neither is a request of a client, so the log has no lines about itself.
- The topic is created when the first line is written, with `num.partitions` and
  `default.replication.factor`.
- A line counts as written when all in-sync replicas have it. Writes that fail are repeated, so a
  line may be in the topic twice.
- Before a broker stops, it writes the lines that wait. Those that it cannot write within
  CLOSE_TIMEOUT_S go to its own log. A line is dropped if MAX_WAITING_LINES wait already, or if the
  broker is stopping; the number of dropped lines is written to the topic with a later write.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ottla_broker.coordination.journal import PartitionJournal
from ottla_broker.coordination.remote_appender import WRITE_TIMEOUT_S, RemoteAppender
from ottla_broker.replication.partitions import Partitions
from ottla_broker.security.audit import AuditEvent, DroppedLines
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import Record, encode_batch

logger = logging.getLogger(__name__)

MAX_WAITING_LINES: Final = 50_000
"""About 20 MB, while no partition of the topic can be written."""
BATCH_BYTES: Final = 256 << 10
RETRY_BACKOFF_S: Final = 0.1
RETRY_BACKOFF_MAX_S: Final = 2.0
CLOSE_TIMEOUT_S: Final = 5.0


@dataclass(eq=False, repr=False)
class TopicAudit:
    """`dropped`: number of lines that were not written to the topic. `_create_topic` creates the
    topic if it is missing, and returns when this broker's metadata have it."""

    _topic: str
    _partitions: Partitions
    _create_topic: Callable[[str], Awaitable[None]]
    _remote: RemoteAppender
    _now_ms: Callable[[], int]
    dropped: int = 0
    _waiting: deque[Record] = field(default_factory=deque)
    _unreported: int = 0
    _writing: asyncio.Task[None] | None = None
    _is_closed: bool = False

    def record(self, event: AuditEvent) -> None:
        if self._is_closed or len(self._waiting) >= MAX_WAITING_LINES:
            self.dropped += 1
            self._unreported += 1
            return
        self._add(msgspec.json.encode(event))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        self._is_closed = True
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=CLOSE_TIMEOUT_S)
            self._writing.cancel()
        self.dropped += len(self._waiting)
        while self._waiting:
            logger.warning("not written to %s: %s", self._topic, (self._waiting.popleft().value or b"").decode())

    def _add(self, line: bytes) -> None:
        self._waiting.append(Record(self._now_ms(), None, line))

    async def _write(self) -> None:
        """Writes all waiting lines, which stay in the queue until they are written."""
        backoff_s = RETRY_BACKOFF_S
        try:
            while self._waiting:
                records = self._next_records()
                try:
                    async with asyncio.timeout(WRITE_TIMEOUT_S):
                        await self._append(encode_batch(records))
                except (KafkaError, OSError) as reason:  # TimeoutError is an OSError
                    if backoff_s == RETRY_BACKOFF_S:
                        logger.warning("cannot write the audit log to %s, trying again: %s", self._topic, reason)
                    await asyncio.sleep(backoff_s)
                    backoff_s = min(2 * backoff_s, RETRY_BACKOFF_MAX_S)
                    continue
                backoff_s = RETRY_BACKOFF_S
                for _ in records:
                    self._waiting.popleft()
                if self._unreported:
                    self._add(msgspec.json.encode(DroppedLines(self._unreported)))
                    self._unreported = 0
        finally:
            self._writing = None

    def _next_records(self) -> list[Record]:
        records: list[Record] = []
        size = 0
        for record in self._waiting:
            size += len(record.value or b"")
            if records and size > BATCH_BYTES:
                break
            records.append(record)
        return records

    async def _append(self, batch: bytes) -> None:
        await self._create_topic(self._topic)
        led = [one for one in self._partitions if one.topic == self._topic and one.is_leader]
        if led:
            await PartitionJournal(min(led, key=lambda it: it.log.end)).append(batch)
        else:
            await self._remote.append(self._topic, batch)
