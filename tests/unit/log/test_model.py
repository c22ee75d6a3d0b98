"""The log against a model of it, a list of batches.

Whatever is appended, truncated, deleted or flushed, and however it stops (cleanly, killed, power
lost), the log reads as the model says, and nothing that was synced is ever lost.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla_broker.log.config import LogConfig
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_snapshots import encode_producer_snapshot
from ottla_broker.log.recovery import LogCheckpoint, create_log, open_log
from ottla_broker.log.storage import Storage
from ottla_broker.wire.batch import iter_batches
from tests.unit.log.log_fixtures import NOW, TOPIC_ID, Clock, batch, marker, runtime
from tests.unit.log.memory_disk import MemoryDisk

CONFIG = LogConfig(
    segment_bytes=700, index_interval_bytes=150, message_timestamp_after_max_ms=2**40, file_delete_delay_ms=0
)
DIRECTORY = "/data/topic-0"


@dataclass
class ExpectedBatch:
    first: int
    last: int
    epoch: int
    crc: int
    producer: int = field(default=-1, compare=False)
    kind: Literal["data", "commit", "abort"] = field(default="data", compare=False)


class LogMachine(RuleBasedStateMachine):
    """Changes a log and its model alike. `model`: the batches that the log must have; `end`,
    `start`: its end and start; `written_point`: the recovery point on disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.log: PartitionLog
        self.model: list[ExpectedBatch] = []
        self.end = 0
        self.start = 0
        self.epoch = 0
        self.shortened = False
        # The recovery point in the checkpoint file.
        self.written_point = 0

    def new_storage(self) -> Storage:
        return Storage(self.disk, runtime(Clock()), self.write_recovery_point)

    @initialize()
    def make(self) -> None:
        self.storage = self.new_storage()
        self.log = create_log(self.storage, DIRECTORY, "topic", 0, TOPIC_ID, CONFIG)
        self.disk.sync_directory(DIRECTORY)

    # --- writing

    def append_as_leader(
        self,
        data: bytes,
        *,
        from_client: bool = True,
        producer: int = -1,
        kind: Literal["data", "commit", "abort"] = "data",
    ) -> None:
        done = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=NOW, from_client=from_client)
        assert done.first_offset == self.end
        self.end = done.last_offset + 1
        ((_, header),) = iter_batches(self.log.read(done.first_offset, 1, up_to=self.end))
        self.model.append(ExpectedBatch(done.first_offset, done.last_offset, self.epoch, header.crc, producer, kind))

    @rule(count=st.integers(1, 5), size=st.integers(0, 300), when=st.integers(-500, 500))
    def append(self, count: int, size: int, when: int) -> None:
        self.append_as_leader(batch(count, size=size // count, timestamp=NOW + when))

    @rule(producer=st.integers(1, 3), count=st.integers(1, 3))
    def append_in_a_transaction(self, producer: int, count: int) -> None:
        known = self.log.producers.get(producer)
        sequence = (known.last_sequence + 1) if known is not None else 0
        self.append_as_leader(batch(count, producer=(producer, 0, sequence), transactional=True), producer=producer)

    @rule(producer=st.integers(1, 3), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        self.append_as_leader(
            marker(commit, producer), from_client=False, producer=producer, kind="commit" if commit else "abort"
        )

    @rule(hole=st.integers(0, 20), count=st.integers(1, 4))
    def append_as_a_follower(self, hole: int, count: int) -> None:
        data = batch(count, base_offset=self.end + hole, epoch=self.epoch, size=20)
        done = self.log.append_as_follower(data, leader_epoch=self.epoch)
        ((_, header),) = iter_batches(data)
        self.model.append(ExpectedBatch(done.first_offset, done.last_offset, self.epoch, header.crc))
        self.end = done.last_offset + 1

    @rule()
    def another_leader(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    # --- shortening

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        to = max(self.end - back, 0)
        self.log.truncate_to(to)
        gone = [kept for kept in self.model if kept.last >= to]
        self.model = [kept for kept in self.model if kept.last < to]
        self.end = min([to, *(kept.first for kept in gone)])
        self.start = min(self.start, self.end)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.log.advance_high_watermark(self.end)
        to = self.start + int((self.end - self.start) * part)
        assert self.log.delete_records_before(to) == to
        self.start = to

    @rule()
    def drop_segments(self) -> None:
        self.log.advance_high_watermark(self.end)
        self.log.apply_retention(NOW)
        base = self.log.segments[0].base
        assert base <= self.start
        self.model = [kept for kept in self.model if kept.last >= base]

    # --- durability

    @rule()
    def sync(self) -> None:
        asyncio.run(self.log.wait_until_synced(self.end))

    @rule()
    def checkpoint(self) -> None:
        asyncio.run(self.log.checkpoint())

    @rule()
    def write_recovery_point(self) -> None:
        self.written_point = self.log.recovery_point

    def reopen(self, *, clean: bool) -> None:
        """Opens the log as another process does, after a clean shutdown or not."""
        checkpoint = LogCheckpoint(clean=clean, recovery_point=self.written_point, start=self.start)
        high_watermark, flushed = self.log.high_watermark, self.log.flush.flushed_offset
        self.storage = self.new_storage()
        self.log = open_log(self.storage, DIRECTORY, "topic", 0, CONFIG, checkpoint)
        assert self.log.failure is None, self.log.failure
        if self.log.recovery_point < self.written_point:
            self.write_recovery_point()
        assert self.log.end > max((kept.last for kept in self.model if kept.last < flushed), default=-1)
        self.model = [kept for kept in self.model if kept.last >= self.log.segments[0].base]
        self.log.advance_high_watermark(high_watermark)

    @rule()
    def stop_and_start(self) -> None:
        self.log.seal()
        asyncio.run(self.log.checkpoint())
        self.log.close()
        self.write_recovery_point()
        self.reopen(clean=True)
        self.check_end()

    @rule()
    def kill(self) -> None:
        self.reopen(clean=False)
        self.check_end()

    def check_end(self) -> None:
        """After a restart the log ends with its records, also if a truncation had left a hole at
        its end.
        """
        if self.model and self.model[-1].last + 1 == self.end:
            assert self.log.end == self.end
        self.end = self.log.end

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        self.disk.lose_power(Random(seed))
        self.reopen(clean=False)
        self.end = self.log.end
        self.model = [kept for kept in self.model if kept.last < self.end]

    # --- what must hold

    @precondition(lambda self: self.end > self.start)
    @rule(part=st.floats(0, 1), max_bytes=st.integers(1, 2_000), cold=st.booleans())
    def read_somewhere(self, part: float, max_bytes: int, cold: bool) -> None:
        offset = self.start + int((self.end - self.start) * part)
        if cold:
            self.log.clear_tail_cache()
        data = self.log.read(offset, max_bytes, up_to=self.end)
        found = [ExpectedBatch(h.base_offset, h.last_offset, h.leader_epoch, h.crc) for _, h in iter_batches(data)]
        behind = [kept for kept in self.model if kept.last >= offset]
        assert found == behind[: len(found)]
        assert bool(found) == bool(behind)
        assert len(data) <= max_bytes or len(found) == 1

    @invariant()
    def reads_as_the_model_says(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.start, self.log.end) == (self.start, self.end)
        found: list[ExpectedBatch] = []
        at = self.start
        while at < self.end and (data := self.log.read(at, 5_000, up_to=self.end)):
            found += [ExpectedBatch(h.base_offset, h.last_offset, h.leader_epoch, h.crc) for _, h in iter_batches(data)]
            at = found[-1].last + 1
        assert found == [kept for kept in self.model if kept.last >= self.start]

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        if hasattr(self, "log"):
            for kept in self.model:
                if kept.last >= self.start:
                    assert self.log.epochs.epoch_for_offset(max(kept.first, self.start)) == kept.epoch

    @invariant()
    def transactions_are_those_of_the_batches(self) -> None:
        self.shortened |= self.start > 0
        if self.shortened or not hasattr(self, "log"):
            # A transaction may have begun in records that were deleted.
            return
        began: dict[int, int] = {}
        aborted = []
        for kept in self.model:
            if kept.producer >= 0 and kept.kind == "data":
                began.setdefault(kept.producer, kept.first)
            elif kept.producer >= 0 and kept.producer in began:
                first = began.pop(kept.producer)
                if kept.kind == "abort":
                    aborted.append((kept.producer, first, kept.first, min(began.values(), default=kept.last + 1)))
        assert [tuple(entry) for segment in self.log.segments for entry in segment.transactions.entries()] == aborted
        open_ = [it.current_txn_first_offset for it in self.log.producers if it.current_txn_first_offset >= 0]
        assert sorted(open_) == sorted(began.values())

    @invariant()
    def producer_offsets_are_below_the_log_end(self) -> None:
        if hasattr(self, "log"):
            for producer in self.log.producers:
                assert producer.last_offset < self.end
                assert producer.current_txn_first_offset < self.end
            assert self.log.last_stable_offset <= self.log.high_watermark <= self.end
            encode_producer_snapshot(self.log.producers)


LogMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogAgainstItsModel = LogMachine.TestCase
