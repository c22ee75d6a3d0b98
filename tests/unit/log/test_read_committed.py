"""A read_committed consumer reads each record of a committed transaction, and each record outside
of transactions, once.

Segments of the log may end inside transactions, and the log may have been truncated, reopened after
a crash, or copied by a follower. The log is compared with a model, a list of batches.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla_broker.log.config import LogConfig
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.recovery import LogCheckpoint, create_log, open_log
from ottla_broker.log.storage import Storage
from tests.unit.log.committed_reading import read_as_consumer
from tests.unit.log.log_fixtures import NOW, TOPIC_ID, Clock, batch, marker, runtime
from tests.unit.log.memory_disk import MemoryDisk

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, message_timestamp_after_max_ms=2**40)
PRODUCERS = 3


@dataclass(frozen=True, slots=True)
class Write:
    """One batch. `producer` is −1 outside of transactions."""

    producer: int
    count: int


@dataclass(frozen=True, slots=True)
class End:
    """The marker that ends the producer's transaction."""

    producer: int
    commit: bool


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cuts off the last `count` batches, but none below the high watermark."""

    count: int


@dataclass(frozen=True, slots=True)
class Replicate:
    """The high watermark advances to the log end."""


@dataclass(frozen=True, slots=True)
class Restart:
    clean: bool


Step = Write | End | Truncate | Replicate | Restart
producers = st.integers(0, PRODUCERS - 1)
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(Write, st.integers(-1, PRODUCERS - 1), st.integers(1, 3)),
    st.builds(Write, producers, st.just(1)),
    st.builds(End, producers, st.booleans()),
    st.builds(Truncate, st.integers(1, 4)),
    st.just(Replicate()),
    st.builds(Restart, st.booleans()),
)


@dataclass(slots=True)
class Batch:
    """`transaction`: number of its transaction, or None. `ends`: for a marker, the number of the
    transaction that it ends."""

    first: int
    last: int
    transaction: int | None = None
    ends: int | None = None
    commits: bool = True


@dataclass
class Model:
    """The batches of a log and its high watermark."""

    batches: list[Batch] = field(default_factory=list)
    high_watermark: int = 0

    def open_transactions(self) -> dict[int, int]:
        """The number of each producer's open transaction. It encodes the producer and the first
        offset.
        """
        found: dict[int, int] = {}
        for one in self.batches:
            if one.ends is not None:
                found.pop(one.ends % PRODUCERS, None)
            elif one.transaction is not None:
                found[one.transaction % PRODUCERS] = one.transaction
        return found

    def last_stable_offset(self) -> int:
        """The first offset of a transaction without a marker below the high watermark; without such
        a transaction the high watermark.
        """
        ended = {one.ends for one in self.batches if one.ends is not None and one.first < self.high_watermark}
        unstable = [one.first for one in self.batches if one.transaction is not None and one.transaction not in ended]
        return min([self.high_watermark, *unstable])

    def committed(self, start: int) -> list[int]:
        """Offsets of the records that a read_committed consumer reads from `start` on."""
        stable = self.last_stable_offset()
        aborted = {one.ends for one in self.batches if not one.commits}
        return [
            offset
            for one in self.batches
            if one.ends is None and (one.transaction is None or one.transaction not in aborted)
            for offset in range(one.first, one.last + 1)
            if start <= offset < stable
        ]


class ModelledLog:
    """A log, and the model of what it must have."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.storage = Storage(self.disk, runtime(Clock()))
        self.log = create_log(self.storage, "/data/topic-0", "topic", 0, TOPIC_ID, CONFIG)
        self.model = Model()

    def take(self, step: Step) -> None:
        log, model = self.log, self.model
        match step:
            case Write(producer, count):
                self._write(producer, count)
            case End(producer, commit):
                number = model.open_transactions().get(producer)
                if number is not None:
                    done = log.append_as_leader(marker(commit, producer), leader_epoch=0, now_ms=NOW, from_client=False)
                    model.batches.append(Batch(done.first_offset, done.first_offset, ends=number, commits=commit))
            case Truncate(count):
                above = [one.first for one in model.batches if one.first >= model.high_watermark]
                if above:
                    log.truncate_to(above[-count:][0])
                    model.batches = [one for one in model.batches if one.first < log.end]
            case Replicate():
                log.advance_high_watermark(log.end)
                model.high_watermark = log.end
            case Restart(clean):
                # A new process learns the high watermark of its leader before it serves readers.
                self.take(Replicate())
                if clean:
                    log.seal()
                    asyncio.run(log.checkpoint())
                self.storage.files.close_all()
                self.storage = Storage(self.disk, runtime(Clock()))
                checkpoint = LogCheckpoint(clean, log.end if clean else 0)
                self.log = open_log(self.storage, "/data/topic-0", "topic", 0, CONFIG, checkpoint)
                self.log.advance_high_watermark(self.log.end)

    def _write(self, producer: int, count: int) -> None:
        log = self.log
        if producer < 0:
            done = log.append_as_leader(batch(count), leader_epoch=0, now_ms=NOW)
            self.model.batches.append(Batch(done.first_offset, done.last_offset))
            return
        known = log.producers.get(producer)
        sequence = 0 if known is None else known.last_sequence + 1
        data = batch(count, producer=(producer, 0, sequence), transactional=True)
        done = log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
        number = self.model.open_transactions().get(producer, done.first_offset * PRODUCERS + producer)
        self.model.batches.append(Batch(done.first_offset, done.last_offset, transaction=number))


def offsets_read(log: PartitionLog, start: int, random: Random) -> list[int]:
    return [record.offset for record in read_as_consumer(log, start, random)]


TRUNCATED_ABOVE_UNREPLICATED_MARKER = [
    *[Write(0, 1)] * 3, Replicate(), Write(0, 1), End(0, commit=False), Write(0, 1), Truncate(1)
]  # fmt: skip


@settings(max_examples=200, deadline=None)
@example(TRUNCATED_ABOVE_UNREPLICATED_MARKER, Random(0))
@given(st.lists(steps, max_size=40), st.randoms(use_true_random=False))
def test_consumers_of_committed_records_read_what_is_committed(history: list[Step], random: Random) -> None:
    one = ModelledLog()
    for step in history:
        one.take(step)
        assert one.log.last_stable_offset == one.model.last_stable_offset()
    for start in {0, *(random.randrange(one.log.end + 1) for _ in range(3))}:
        assert offsets_read(one.log, start, random) == one.model.committed(start)


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=40), st.randoms(use_true_random=False))
def test_consumers_read_the_same_records_from_a_new_replica(history: list[Step], random: Random) -> None:
    """A partition that moves is copied by a follower, in pieces of any size, and then led by it."""
    one = ModelledLog()
    for step in history:
        one.take(step)
    other = ModelledLog()
    while other.log.end < one.log.end:
        data = one.log.read(other.log.end, random.randrange(1, 600), up_to=one.log.end)
        other.log.append_as_follower(data, leader_epoch=0)
        other.log.advance_high_watermark(min(one.log.high_watermark, other.log.end))
    assert other.log.last_stable_offset == one.model.last_stable_offset()
    assert offsets_read(other.log, 0, random) == one.model.committed(0)
