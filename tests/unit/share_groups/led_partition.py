"""A partition that this broker leads, with a log of equal batches, for tests of share groups."""

from typing import Any

from ottla_broker.share_groups.dead_letters import DeadLetterConfig, DeadLetters
from ottla_broker.wire.records import Record, encode_batch

BATCH_COUNT, VALUE = 2_000, bytes(1_000)


class FakeLog:
    """Batches of one record. `bytes_read`: by each call."""

    start = 0
    end = BATCH_COUNT

    def __init__(self) -> None:
        self._batch = encode_batch([Record(0, None, VALUE)])
        self.bytes_read: list[int] = []

    def size_from(self, offset: int) -> int:
        return (self.end - offset) * len(self._batch)

    def read(self, offset: int, max_bytes: int, *, up_to: int, at_least_one: bool) -> bytes:
        count = min(max(max_bytes // len(self._batch), 1), up_to - offset)
        data = b"".join((offset + at).to_bytes(8) + self._batch[8:] for at in range(count))
        self.bytes_read.append(len(data))
        return data


class NoDeadLetters:
    def config_of(self, group_id: str) -> DeadLetterConfig:
        return DeadLetterConfig()

    async def write(self, group_id: str, source: Any, letters: DeadLetters) -> None:
        raise AssertionError("the group has no dead-letter topic")


class FakePartition:
    """A partition that this broker leads."""

    leader_epoch = 0
    is_leader = True

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.read_waiters: Any = set()

    def readable_end(self, isolation: int) -> int:
        return self.log.end
