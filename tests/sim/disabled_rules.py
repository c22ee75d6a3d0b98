"""Rules of one broker, each disabled on purpose: the checks must detect it.

`RULES` has the patches by name. They exist only here.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from ottla_broker.coordination.journal import READ_BYTES, JournalWriter, PartitionJournal, Write
from ottla_broker.log import flush, log_dir, recovery
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import Record
from tests.sim.cluster_clients import TOPIC

WRITE_DELAY_S = 0.2


@contextmanager
def acks_before_sync() -> Iterator[None]:
    """With flush.messages=1 an acknowledgement does not wait for the device (rule 17)."""
    with patch.object(Partition, "acks_wait_for_sync", property(lambda partition: False)):
        yield


@contextmanager
def no_duplicate_detection() -> Iterator[None]:
    """A batch that is sent again is appended again (rule 8)."""
    with patch.object(ProducerStates, "check_batch", lambda *_, **__: None):
        yield


@contextmanager
def producer_state_lost_on_restart() -> Iterator[None]:
    """Sequence numbers do not survive a restart (rule 8)."""
    with patch.object(recovery, "rebuild_producer_states", lambda *_: ProducerStates()):
        yield


@contextmanager
def recovery_drops_last_batch() -> Iterator[None]:
    """A complete and flushed batch is truncated after a crash."""
    original = recovery.open_log

    def open_log(*arguments: Any) -> PartitionLog:
        log = original(*arguments)
        if log.topic == TOPIC and not arguments[-1].clean and log.end > log.start:
            log.truncate_to(log.end - 1)
        return log

    with patch.object(log_dir, "open_log", open_log):
        yield


@contextmanager
def commits_acknowledged_before_write() -> Iterator[None]:
    """The coordinator responds first and writes a little later (rule 10)."""
    original = JournalWriter.write_records

    def write_records(
        writes: JournalWriter, records: Sequence[Record], *, apply: Callable[[], None] | None = None
    ) -> Write:
        loop = asyncio.get_running_loop()
        if apply is not None:
            apply()
        write = Write(loop=loop)
        write.complete(ErrorCode.none)
        loop.call_later(WRITE_DELAY_S, original, writes, records)
        return write

    with patch.object(JournalWriter, "write_records", write_records):
        yield


@contextmanager
def coordinators_load_without_waiting() -> Iterator[None]:
    """A coordinator loads its log only up to the high watermark that it knows (rule 10).

    It neither waits until it knows what was acknowledged before, by itself or its predecessor, nor
    loads beyond that. Either half alone is harmless: after waiting, everything is below the high
    watermark, and loading the whole log needs no wait.
    """

    async def wait_until_recovered(_: PartitionJournal) -> None:
        return None

    def read(journal: PartitionJournal) -> Iterator[Any]:
        log = journal._partition.log
        offset = log.start
        while offset < log.high_watermark:
            data = log.read(offset, READ_BYTES, up_to=log.high_watermark)
            if not data:
                return
            yield data
            for _, header in iter_batches(data):
                offset = header.next_offset

    with (
        patch.object(PartitionJournal, "wait_until_recovered", wait_until_recovered),
        patch.object(PartitionJournal, "read", read),
    ):
        yield


@contextmanager
def new_directories_not_synced() -> Iterator[None]:
    """The directory entry of a new partition is not synced."""
    with patch.object(flush, "directories_to_sync", lambda log: (log.directory,)):
        yield


RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        acks_before_sync,
        no_duplicate_detection,
        producer_state_lost_on_restart,
        recovery_drops_last_batch,
        commits_acknowledged_before_write,
        coordinators_load_without_waiting,
        new_directories_not_synced,
    )
}
