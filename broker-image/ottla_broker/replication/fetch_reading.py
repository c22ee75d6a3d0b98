"""Reads one partition for a fetch: consumers read committed records; followers, and a tool that
compares replicas, read to the log's end."""

from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.replication.fetch_sessions import CachedPartition, FetchSession
from ottla_broker.replication.not_yet import NotYet
from ottla_broker.replication.partition import READ_COMMITTED, Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.replication.throttle import Throttle, is_throttled
from ottla_broker.wire.batch import Buffer, iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import NO_EPOCH, FetchRequestPartition
from ottla_broker.wire.fetch_response import FetchResponsePartition

UNKNOWN: Final = -1
"""In place of a high watermark that a client must not see, because an earlier leader may have
returned a higher one."""


class Reader(Protocol):
    """The limits of what one kind of fetcher may read."""

    def before_read(self) -> None:
        """Called before partitions are read. The reads that follow must change no partition."""
        ...

    def find(self, cached: CachedPartition) -> Partition:
        """Finds the partition. Raises NotYet; KafkaError with the partition's error."""
        ...

    def read(self, cached: CachedPartition, max_bytes: int, *, first: bool) -> FetchResponsePartition:
        """Reads the partition for the fetcher, with at most `max_bytes` of records; `first`: return
        one batch even if it is larger. Raises NotYet; KafkaError with the partition's error.
        """
        ...

    def is_due(self, cached: CachedPartition, data: FetchResponsePartition) -> bool:
        """True if `data` must be sent at once although it has no records."""
        ...

    def has_records_behind(self, cached: CachedPartition, records: Buffer) -> bool:
        """True if the fetcher may read more than `records`, which were read from the partition."""
        ...

    def count_sent(self, partition: Partition, size: int) -> None: ...


class UnauthorizedReader:
    """For a client that fetches as a follower without the right to: every partition has the error
    TOPIC_AUTHORIZATION_FAILED, as in Kafka."""

    def before_read(self) -> None:
        pass

    def find(self, cached: CachedPartition) -> Partition:
        raise KafkaError(ErrorCode.topic_authorization_failed)

    def read(self, cached: CachedPartition, max_bytes: int, *, first: bool) -> FetchResponsePartition:
        raise KafkaError(ErrorCode.topic_authorization_failed)

    def is_due(self, cached: CachedPartition, data: FetchResponsePartition) -> bool:
        return True

    def has_records_behind(self, cached: CachedPartition, records: Buffer) -> bool:
        return False

    def count_sent(self, partition: Partition, size: int) -> None:
        pass


@dataclass(eq=False)
class ReplicaReader:
    """A follower reads to the log's end. With each offset it says how far its own log goes, unless
    the epoch of its last record shows that the logs diverge below it (rule 2). Followers outside of
    the ISR are throttled (KIP-73)."""

    _partitions: Partitions
    _session: FetchSession
    _throttle: Throttle

    def before_read(self) -> None:
        """Records all new positions before any partition is read. A position may commit records,
        and their producers may append more in the same turn of the loop, which the reads then
        return.
        """
        for cached in tuple(self._session.changed):
            if cached.position_recorded:
                continue
            try:
                self._record_position(cached, self._current(cached))
            except KafkaError:  # raised again by `read`
                continue

    def read(self, cached: CachedPartition, max_bytes: int, *, first: bool) -> FetchResponsePartition:
        request, partition = cached.request, self._current(cached)
        log = partition.log
        diverging = None if cached.position_recorded else self._record_position(cached, partition)
        data = FetchResponsePartition(
            request.topic,
            request.partition,
            ErrorCode.none,
            log.high_watermark,
            -1,
            log.start,
        )
        cached.has_more = False
        if diverging is not None:
            data.diverging = diverging
        elif request.offset < log.end:
            if (max_bytes > 0 or first) and not (
                self._is_throttled(partition) and self._throttle.throttle_time_s() > 0
            ):
                size = min(max_bytes, request.max_bytes)
                data.records = log.read(request.offset, size, up_to=log.end, at_least_one=first)
            cached.has_more = not data.records
        return data

    def is_due(self, cached: CachedPartition, data: FetchResponsePartition) -> bool:
        """True if the logs diverge. If the fetcher waits for the high watermark, True also for a
        new high watermark or log start, and for the first result after an error. Other fetchers
        learn of these with their next response.
        """
        if data.diverging is not None:
            return True
        if (
            data.records
            or cached.has_more
            or not (self._session.sends_high_watermark_at_once or cached.awaits_commit())
        ):
            return False
        return data.high_watermark != cached.high_watermark or data.log_start != cached.log_start or cached.error_sent

    def has_records_behind(self, cached: CachedPartition, records: Buffer) -> bool:
        return cached.partition is not None and end_offset(records) < cached.partition.log.end

    def count_sent(self, partition: Partition, size: int) -> None:
        partition.traffic.replication_out += size
        if self._is_throttled(partition):
            self._throttle.record_bytes(size)

    def find(self, cached: CachedPartition) -> Partition:
        request = cached.request
        if self._session.replica_epoch < 0 or not isinstance(request.topic, UUID):
            raise KafkaError(ErrorCode.not_leader_or_follower, "followers send their broker epoch and topic ids")
        name = self._partitions.topic_name(request.topic)
        cached.set_partition(self._partitions.get(name, request.partition))
        try:
            return self._partitions.leader(name, request.partition, epoch=request.leader_epoch, topic_id=request.topic)
        except KafkaError as reason:
            if reason.code is ErrorCode.unknown_leader_epoch:
                raise NotYet(reason.code, reason.message) from None  # the metadata with that epoch are on their way
            raise

    def _current(self, cached: CachedPartition) -> Partition:
        """The partition of the session if that is still current, otherwise what `find` returns."""
        partition = cached.partition
        if (
            partition is None
            or partition.leader_epoch != cached.request.leader_epoch
            or not partition.is_leader
            or partition.log.failure is not None
        ):
            return self.find(cached)
        return partition

    def _record_position(self, cached: CachedPartition, partition: Partition) -> tuple[int, int] | None:
        """Returns where the logs diverge. If they do not, records the offset as the follower's log
        end and returns None. Raises OFFSET_OUT_OF_RANGE, or NOT_LEADER_OR_FOLLOWER for a broker
        without a replica."""
        request, log, session = cached.request, partition.log, self._session
        if request.last_fetched_epoch != log.epochs.latest_epoch() or request.offset > log.end:
            diverging = diverging_epoch(log, request)
            if diverging is not None:
                return diverging
        if not log.start <= request.offset <= log.end:
            raise KafkaError(ErrorCode.offset_out_of_range)
        leader = partition.leader
        leader.record_fetch(session.replica, session.replica_epoch, request.offset, request.log_start)
        leader.followers.set_position(session.replica, cached)
        cached.position_recorded = True
        return None

    def _is_throttled(self, partition: Partition) -> bool:
        entries = partition.log.config.leader_replication_throttled_replicas
        replica = self._session.replica
        return is_throttled(entries, partition.partition, replica) and replica not in partition.registration.isr


def read_committed_records(
    partition: Partition, cached: CachedPartition, isolation: int, max_bytes: int, *, first: bool
) -> FetchResponsePartition:
    """Reads up to the high watermark, or to the last stable offset. Raises OFFSET_OUT_OF_RANGE, or
    OFFSET_NOT_AVAILABLE if a new leader or a follower does not know whether the offset is
    committed."""
    log, request = partition.log, cached.request
    offset = request.offset
    cached.has_more = False
    if request.last_fetched_epoch != NO_EPOCH and (diverging := diverging_epoch(log, request)) is not None:
        data = response_without_records(partition, request)
        data.diverging = diverging
        return data
    watermark, is_watermark_known = log.high_watermark, partition.has_reached_epoch_start
    if not log.start <= offset <= watermark:
        _check_range(partition, offset)
    stable = log.last_stable_offset
    is_read_committed = isolation == READ_COMMITTED
    end = stable if is_read_committed else watermark
    if is_watermark_known:
        data = FetchResponsePartition(request.topic, request.partition, ErrorCode.none, watermark, stable, log.start)
    elif offset < watermark:
        # The previous leader may have returned a higher one, and a high watermark never falls.
        data = FetchResponsePartition(request.topic, request.partition, ErrorCode.none, UNKNOWN, UNKNOWN, log.start)
    else:
        raise NotYet(ErrorCode.offset_not_available, "the new leader does not know yet whether the offset is committed")
    if offset < end:
        if max_bytes > 0 or first:
            data.records = log.read(offset, max_bytes, up_to=end, at_least_one=first)
            if is_read_committed:
                data.aborted = [(one.producer_id, one.first_offset) for one in log.aborted_transactions(offset, end)]
        cached.has_more = not data.records
    if is_read_committed and data.aborted is None:
        data.aborted = ()
    return data


def read_to_log_end(
    partition: Partition, cached: CachedPartition, max_bytes: int, *, first: bool
) -> FetchResponsePartition:
    """Reads up to the log's end, for a tool that compares replicas. Raises OFFSET_OUT_OF_RANGE."""
    log, request = partition.log, cached.request
    if not log.start <= request.offset <= log.end:
        raise KafkaError(ErrorCode.offset_out_of_range)
    data = FetchResponsePartition(
        request.topic, request.partition, ErrorCode.none, log.high_watermark, log.last_stable_offset, log.start
    )
    if request.offset < log.end and (max_bytes > 0 or first):
        data.records = log.read(request.offset, max_bytes, up_to=log.end, at_least_one=first)
    cached.has_more = request.offset < log.end and not data.records
    return data


def end_offset(records: Buffer) -> int:
    """The offset after the last of these whole batches; −1 for none."""
    return max((header.next_offset for _, header in iter_batches(records)), default=-1)


def response_without_records(partition: Partition, request: FetchRequestPartition) -> FetchResponsePartition:
    """The partition's offsets for the fetcher; UNKNOWN while a new leader may know an older high
    watermark than its predecessor."""
    log = partition.log
    watermark, stable = UNKNOWN, UNKNOWN
    if partition.has_reached_epoch_start:
        watermark, stable = log.high_watermark, log.last_stable_offset
    return FetchResponsePartition(request.topic, request.partition, ErrorCode.none, watermark, stable, log.start)


def _check_range(partition: Partition, offset: int) -> None:
    """Raises OFFSET_OUT_OF_RANGE or NotYet for an offset outside of the committed records of this
    replica. A leader raises nothing up to its log end, because these records will be committed.
    """
    log = partition.log
    if offset < log.start or (partition.is_leader and offset > log.end):
        raise KafkaError(ErrorCode.offset_out_of_range)
    if not partition.is_leader:  # a follower does not know how far the leader's log goes
        raise NotYet(ErrorCode.offset_not_available, "this follower does not know yet whether the offset is committed")


def diverging_epoch(log: PartitionLog, request: FetchRequestPartition) -> tuple[int, int] | None:
    """(epoch, end) where the fetcher's log diverges from ours: our largest epoch that is no newer
    than its last, and where that ends. None if it does not diverge, or the fetcher names no epoch.
    Raises OFFSET_OUT_OF_RANGE when its last epoch is newer than all of ours, or we have none."""
    last = request.last_fetched_epoch
    if last == NO_EPOCH:
        return None
    epoch, end = log.epochs.end_offset_for(last, log.end)
    if epoch == NO_EPOCH:
        raise KafkaError(ErrorCode.offset_out_of_range)
    return (epoch, end) if epoch < last or end < request.offset else None
