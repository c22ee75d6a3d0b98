"""A partition with three replicas, without sockets, to which two sources are appended. Leaders
change, replicas crash and are wiped or truncated, records are deleted from the log start, and every
leader continues mirroring.
"""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from msgspec.structs import replace

from ottla_broker.config import MIRROR_OFFSETS
from ottla_broker.log.config import LogConfig
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.recovery import LogCheckpoint, create_log, open_log
from ottla_broker.log.storage import Storage
from ottla_broker.metadata.image import MIRROR_RESOURCE, MetadataImage, TopicImage
from ottla_broker.metadata.records import AppendedPartitionRecord, AppendedSourceRecord, PartitionRecord
from ottla_broker.mirroring.appended_retention import AppendedRetention
from ottla_broker.mirroring.mirror_manager import desired_partitions
from ottla_broker.mirroring.mirrored_partition import FetchOutcome, MirroredPartition, process_partition_data
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partition_follower import last_record_epoch, move_into_leader_range
from ottla_broker.wire.batch import BatchHeader, iter_batches
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_response import FetchResponsePartition
from ottla_broker.wire.records import Record, decode_batch, encode_batch
from tests.unit.log.log_fixtures import Clock, runtime
from tests.unit.log.memory_disk import MemoryDisk
from tests.unit.replication.leader_partition import TOPIC, FakeClusterView

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=200)
MIRRORS = {"east": 1 << 62, "west": (1 << 62) + 7}  # producer ids of the sources
ALL = 1 << 20


@dataclass
class SourceLog:
    """A source partition with plain batches, committed and aborted transactions of two producers,
    and offset gaps. Record values are `<name> <number>`.
    """

    name: str
    random: Random
    log: list[bytes] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer, first offset, offset of its marker
    committed: list[bytes] = field(default_factory=list)
    end: int = 0
    epoch: int = 0

    def write(self) -> None:
        """Writes one batch, one transaction, two overlapping ones, or an offset gap."""
        kind = self.random.choice(["plain", "plain", "committed", "aborted", "both", "hole"])
        self.epoch += self.random.random() < 0.1
        if kind == "hole":
            self.end += self.random.randint(1, 5)
        elif kind == "plain":
            self.committed += self._batch(-1)
        elif kind == "both":  # two overlapping transactions
            first = self.end
            self.committed += self._batch(50)
            self._batch(51)
            self.committed += self._batch(50)
            self.aborted.append((51, first, self.end))
            self._marker(51, commit=False)
            self._marker(50, commit=True)
        else:
            first, values = self.end, self._batch(50) + self._batch(50)
            if kind == "committed":
                self.committed += values
            else:
                self.aborted.append((50, first, self.end))
            self._marker(50, commit=kind == "committed")

    def _batch(self, producer: int) -> list[bytes]:
        """Writes a batch, in a transaction unless the producer is −1. Returns its values."""
        first, count = self.end, self.random.randint(1, 4)
        values = [f"{self.name} {first + number}".encode() for number in range(count)]
        records = [Record(1000 + first, b"k", value) for value in values]
        self.log.append(
            encode_batch(
                records,
                base_offset=first,
                leader_epoch=self.epoch,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=first if producer >= 0 else -1,
                transactional=producer >= 0,
            )
        )
        self.end += count
        return values

    def _marker(self, producer: int, *, commit: bool) -> None:
        self.log.append(
            encode_end_transaction_marker(
                commit,
                0,
                producer_id=producer,
                producer_epoch=0,
                timestamp_ms=1,
                base_offset=self.end,
                leader_epoch=self.epoch,
            )
        )
        self.end += 1

    def respond(self, offset: int, max_batches: int, topic: UUID) -> FetchResponsePartition:
        """The response to a read_committed consumer."""
        found = [batch for batch in self.log if last_of(batch) >= offset][:max_batches]
        upper = last_of(found[-1]) if found else offset
        aborted = [(one, first) for one, first, marker in self.aborted if first <= upper and marker >= offset]
        return FetchResponsePartition(
            topic, 0, ErrorCode.none, self.end, -1, 0, memoryview(bytearray(b"".join(found))), aborted
        )


def last_of(batch: bytes) -> int:
    ((_, header),) = iter_batches(batch)
    return header.last_offset


@dataclass
class Replica:
    partition: Partition
    storage: Storage
    directory: str


class AppendedMirrorWorld:
    """`state`: metadata of the partition. `ids`: of the source topics. `wiped`: the replica whose
    disk was wiped last; 0 if it has caught up. `stale`: mirrored partitions of former fetchers.
    `own_records`: how many records producers of this cluster wrote.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sources = {name: SourceLog(name, self.random) for name in MIRRORS}
        self.ids = {name: UUID(int=100 + at) for at, name in enumerate(MIRRORS)}
        self.state = PartitionRecord(TOPIC, 0, (1, 2, 3), (1, 2, 3), 1, leader_epoch=1, partition_epoch=1)
        self.image = MetadataImage(topics={"t": TopicImage("t", TOPIC, {0: self.state})}, topic_names={TOPIC: "t"})
        for name, producer_id in MIRRORS.items():
            self.image.configs[MIRROR_RESOURCE, name] = {"bootstrap.servers": "h:1", MIRROR_OFFSETS.name: "Appended"}
            source = AppendedSourceRecord(TOPIC, self.ids[name], name, "t", producer_id, 1)
            self.image.appended_sources.setdefault(TOPIC, {})[self.ids[name]] = source
        self.disk = MemoryDisk()
        self.replicas = {number: self._create_replica(number) for number in (1, 2, 3)}
        self.retention = AppendedRetention(self.image, None, None, lambda: 1)  # type: ignore[arg-type]
        self.mirrored: dict[str, MirroredPartition] = {}
        # Of fetchers that are to stop and have not stopped yet.
        self.stale: list[tuple[str, MirroredPartition]] = []
        self.deleted: dict[int, bytes] = {}  # deleted records by offset
        self.wiped = 0
        self.own_records = 0
        self._start_mirroring()

    def _create_replica(self, number: int) -> Replica:
        directory = f"/{number}-{self.random.getrandbits(40)}/t-0"
        storage = Storage(self.disk, runtime(Clock()))
        log = create_log(storage, directory, "t", 0, TOPIC, SMALL)
        return Replica(self._partition(log, number), storage, directory)

    def _partition(self, log: PartitionLog, number: int) -> Partition:
        peers = FakeClusterView(joinable={})
        return Partition("t", TOPIC, 0, log, self.state, number, lambda: 1, peers, peers.propose)

    @property
    def leader(self) -> Partition:
        return self.replicas[self.state.leader].partition

    # --- steps

    def write(self) -> None:
        self.sources[self.random.choice(list(MIRRORS))].write()

    def write_here(self) -> None:
        """A producer of this cluster writes to the topic."""
        self.own_records += 1
        self.leader.append_records(encode_batch([Record(1, b"k", f"ours {self.own_records}".encode())]), acks=1)

    def mirror(self, name: str | None = None, mirrored: MirroredPartition | None = None, max_batches: int = 0) -> bool:
        """Fetches once from a source. Returns True if the position advanced. `name`: any if
        None. `mirrored`: the present fetcher's if None. `max_batches`: from 1 to 6 if 0.
        """
        name = name or self.random.choice(list(MIRRORS))
        mirrored = mirrored or self.mirrored[name]
        mirrored.requested_offset = mirrored.position
        data = self.sources[name].respond(
            mirrored.requested_offset, max_batches or self.random.randint(1, 6), self.ids[name]
        )
        while (outcome := process_partition_data(mirrored, copy_response(data), 1.0)) is FetchOutcome.new_epochs:
            mirrored.source_epochs = mirrored.unrecorded_epochs
            record = AppendedPartitionRecord(TOPIC, self.ids[name], 0, mirrored.unrecorded_epochs)
            self.image.appended_partitions[TOPIC, self.ids[name], 0] = record
        assert outcome in (FetchOutcome.unchanged, FetchOutcome.advanced), mirrored.reason
        return outcome is FetchOutcome.advanced

    def mirror_by_stale_fetcher(self) -> None:
        """A fetcher that has been stopped still processes a response."""
        late = [(name, mirrored) for name, mirrored in self.stale if mirrored.is_leader]
        if late:
            self.mirror(*self.random.choice(late))

    def change_settings(self) -> None:
        """The mirrors' settings change: new fetchers start before the old ones have stopped."""
        self.stale += self.mirrored.items()
        self.mirrored = desired_partitions(self.image, self.leader)

    def replicate(self, number: int = 0) -> None:
        """A follower, this one or any (0), fetches once from the leader. A wiped one rejoins the
        ISR when it has caught up.
        """
        number = number or self.random.choice([one for one in self.replicas if one != self.state.leader])
        follower, leader = self.replicas[number].partition, self.leader
        log = leader.log
        offset, last_epoch = follower.log.end, last_record_epoch(follower.log)
        if not log.start <= offset <= log.end:
            move_into_leader_range(follower.log, log.start, log.end)
            return
        diverging = None
        if last_epoch >= 0:
            epoch, end = log.epochs.end_offset_for(last_epoch, log.end)
            if 0 <= epoch < last_epoch or 0 <= end < offset:
                diverging = epoch, end
        if diverging is None:
            leader.leader.record_fetch(number, number * 10, offset, follower.log.start)
        records = b"" if diverging else log.read(offset, self.random.choice([1, 300, ALL]), up_to=log.end)
        view = memoryview(bytearray(records))
        follower.follower.process(
            FetchResponsePartition(
                TOPIC, 0, ErrorCode.none, log.high_watermark, -1, log.start, view, diverging=diverging
            )
        )
        if number == self.wiped and follower.log.end >= max(log.high_watermark, leader.leader.epoch_start_offset):
            leader.leader.record_fetch(number, number * 10, follower.log.end, follower.log.start)
            self.wiped = 0
            self._commit(isr=(1, 2, 3))

    def elect(self) -> None:
        """Another in-sync replica becomes the leader; uncommitted records of the old leader are
        lost.
        """
        isr = [number for number in self.state.isr if number != self.state.leader]
        self._commit(leader=self.random.choice(isr), leader_epoch=self.state.leader_epoch + 1)
        self._start_mirroring()

    def crash(self) -> None:
        """A process is killed and restarts with the content of its files."""
        number = self.random.choice(list(self.replicas))
        if number == self.state.leader:
            self.elect()
        replica = self.replicas[number]
        start = replica.partition.log.start
        replica.storage.files.close_all()
        storage = Storage(self.disk, runtime(Clock()))
        log = open_log(storage, replica.directory, "t", 0, SMALL, LogCheckpoint(start=start))
        again = self._partition(log, number)
        self.replicas[number] = Replica(again, storage, replica.directory)

    def wipe(self) -> None:
        """A follower gets an empty disk and leaves the ISR until it has caught up. Nothing happens
        while another one catches up.
        """
        if self.wiped:
            return
        self.wiped = self.random.choice([one for one in self.replicas if one != self.state.leader])
        self._commit(isr=tuple(one for one in self.state.isr if one != self.wiped))
        self.replicas[self.wiped] = self._create_replica(self.wiped)

    def delete_records(self) -> None:
        """Deletes records as retention and DeleteRecords do; gives up if the ISR is too slow."""
        log = self.leader.log
        starts = [base for base in log.segments.bases if log.start < base <= log.high_watermark]
        if not starts:
            return
        start = self.random.choice(starts)
        needed = max(self.retention.ensure_position_above(self.leader, one, start) for one in MIRRORS.values())
        for number in self.replicas:
            if number != self.state.leader and self.random.random() < 0.9:
                self.replicate(number)
                self.replicate(number)
        if log.high_watermark > needed:
            self.deleted |= values_of(self.leader, log.start, start)
            log.delete_records_before(start)
            log.apply_retention(1)

    def _commit(self, **changes: object) -> None:
        self.state = replace(self.state, partition_epoch=self.state.partition_epoch + 1, **changes)
        for replica in self.replicas.values():
            replica.partition.update_registration(self.state)

    def _start_mirroring(self) -> None:
        self.mirrored = desired_partitions(self.image, self.leader)

    # --- invariants

    def settle(self) -> None:
        """Mirrors and replicates everything."""
        for name in MIRRORS:
            while self.mirror(name, max_batches=ALL):
                pass
        for _ in range(40):
            for number in self.replicas:
                if number != self.state.leader:
                    self.replicate(number)

    def check(self) -> None:
        """Raises AssertionError unless every replica has the committed records of each source once
        and in order.
        """
        for number, replica in self.replicas.items():
            log = replica.partition.log
            assert log.end == self.leader.log.end, number
            found = {at: value for at, value in self.deleted.items() if at < log.start}
            found |= values_of(replica.partition, log.start, log.end)
            for name, source in self.sources.items():
                mine = [value for at, value in sorted(found.items()) if value.startswith(name.encode())]
                assert mine == source.committed, (number, name)


def copy_response(data: FetchResponsePartition) -> FetchResponsePartition:
    """A new copy of a response, because processing it changes the bytes in place."""
    return FetchResponsePartition(
        data.topic, 0, data.error, data.high_watermark, -1, 0, memoryview(bytearray(data.records)), data.aborted
    )


def values_of(partition: Partition, start: int, end: int) -> dict[int, bytes]:
    """Values of all data records from `start` to `end` by offset. No batch may be transactional."""
    found: dict[int, bytes] = {}
    at = start
    while at < end:
        data = bytes(partition.log.read(at, ALL, up_to=end))
        assert data, (at, end)
        for position, header in iter_batches(data):
            found |= _values_of_batch(data, header, position, start)
            at = header.next_offset
    return found


def _values_of_batch(data: bytes, header: BatchHeader, at: int, start: int) -> dict[int, bytes]:
    if header.is_control:
        return {}
    assert not header.is_transactional
    return {one.offset: one.value or b"" for one in decode_batch(data, header, at) if one.offset >= start}
