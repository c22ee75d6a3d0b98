"""Invariants of mirrored topics and their sources, read from the brokers' logs and status after the
faults.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ottla_broker.broker import Broker
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.mirror_plans import NO_OFFSET, mirrored_partition
from ottla_broker.metadata.records import MirroredPartitionRecord, MirroredTopicRecord
from ottla_broker.mirroring.failback_truncation import FOLDER, UNFINISHED
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.mirror_status import PartitionStatus, mirrored_partition_status
from ottla_broker.wire.records import iter_records
from tests.sim.checks import Contents, Topic
from tests.sim.cluster import FOLDER as DATA
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_state import newest_image, running_brokers
from tests.sim.history import History, TopicPartition
from tests.sim.log_history import AFTER_LEADER_EPOCH, Batch, LogHistory
from tests.sim.reader import WRITTEN_BY_BROKERS, committed_batches


@dataclass(frozen=True, slots=True)
class LeaderReplica:
    """A partition at its leader."""

    broker: Broker
    partition: Partition

    @property
    def log(self) -> PartitionLog:
        return self.partition.log


@dataclass(frozen=True, slots=True)
class MirroredReplica:
    """A mirrored partition, according to its leader and the metadata. `leader` is None if there is
    none, `status` also if the leader does not know the mirror.
    """

    topic_partition: TopicPartition
    topic: MirroredTopicRecord
    record: MirroredPartitionRecord
    leader: LeaderReplica | None
    status: PartitionStatus | None


def leader_replicas(cluster: SimulatedCluster) -> dict[TopicPartition, LeaderReplica]:
    """Leaders of all partitions, without internal topics."""
    return {
        (partition.topic, partition.partition): LeaderReplica(broker, partition)
        for _, broker in running_brokers(cluster)
        for partition in broker.partitions
        if partition.is_leader and not partition.topic.startswith(WRITTEN_BY_BROKERS)
    }


def highest_watermark(cluster: SimulatedCluster, tp: TopicPartition) -> int:
    """The highest high watermark of the partition's replicas on running brokers; 0 without any."""
    partitions = (broker.partitions.get(*tp) for _, broker in running_brokers(cluster))
    return max((partition.log.high_watermark for partition in partitions if partition is not None), default=0)


def mirrored_replicas(cluster: SimulatedCluster, mirror: str, now_s: float) -> list[MirroredReplica]:
    """Partitions that this mirror copies, or copied until their failover."""
    image, found = newest_image(cluster), leader_replicas(cluster)
    if image is None:
        return []
    return [
        _mirrored_replica(image, name, topic, index, found.get((name, index)), now_s)
        for topic_id, topic in image.mirrored_topics.items()
        if topic.mirror == mirror and (name := image.topic_names.get(topic_id)) is not None
        for index in sorted(image.topics[name].partitions)
    ]


def _mirrored_replica(
    image: MetadataImage, name: str, topic: MirroredTopicRecord, index: int, at: LeaderReplica | None, now_s: float
) -> MirroredReplica:
    status = None
    if at is not None and at.broker.image.mirrored_topics.get(topic.topic) == topic:
        status = mirrored_partition_status(at.broker, at.broker.image.topics[name], topic, at.partition, now_s)
    return MirroredReplica((name, index), topic, mirrored_partition(image, topic.topic, index), at, status)


def high_watermark_floor(broker: Broker, partition: Partition) -> int | None:
    """The offset to which a high watermark may be truncated; None if it may not fall.

    A topic with records of its own is truncated to become a copy. The high watermark of an empty
    copy is not final: it is the source's log start, which followers do not know yet and which may
    be inside of a batch.
    """
    log = partition.log
    if partition.topic_id in broker.image.mirrored_topics and log.high_watermark == log.start:
        return 0
    known = mirrored_partition(broker.image, partition.topic_id, partition.partition)
    return None if known.joined == NO_OFFSET else known.joined


# --- progress of copying


def unfinished_copies(
    source: SimulatedCluster,
    target: SimulatedCluster,
    mirror: str,
    now_s: float,
    *,
    may_stop: bool,
    loses_records: bool = False,
) -> Iterator[str]:
    """Describes copies that lack records of their source or have stopped without a reason.

    A copy of a recreated topic, or of a source that `loses_records`, may stop if it says why and
    the mirror does not resync (`may_stop`).
    """
    originals, image = leader_replicas(source), newest_image(source)
    if image is None:
        yield "no broker of the source is running"
        return
    for copy in mirrored_replicas(target, mirror, now_s):
        original = originals.get((copy.topic.source_topic, copy.topic_partition[1]))
        topic = image.topics.get(copy.topic.source_topic)
        status = copy.status
        if status is None or copy.leader is None:
            yield f"no status of the copy {copy.topic_partition}"
        elif topic is None:
            if not (status.why or status.state == "Stopped"):
                yield f"the copy {copy.topic_partition}, whose source was deleted, is {status.state} without a reason"
        elif status.state == "Stopped":
            diverged = loses_records or topic.id != copy.topic.source_id
            if not (may_stop and diverged and status.why):
                yield f"the copy {copy.topic_partition} is stopped: {status.why!r}"
        elif topic.id != copy.topic.source_id:
            yield f"the copy {copy.topic_partition} is of a recreated topic and is {status.state}"
        elif original is None or status.state != "Replicating":
            yield f"the copy {copy.topic_partition} is {status.state}: {status.why!r}"
        elif not _is_caught_up(copy, original.log):
            yield (
                f"the copy {copy.topic_partition} has {_log_range(copy.leader.log)}, its source "
                f"{_log_range(original.log)}; {status}"
            )


def _is_caught_up(copy: MirroredReplica, original: PartitionLog) -> bool:
    """True if both logs have the same range. The log of an adopted topic, which existed before the
    mirror, may start later than the source's.
    """
    start, end = _log_range(copy.leader.log)  # type: ignore[union-attr]
    first, last = _log_range(original)
    return end == last and (start == first or (copy.topic.adopted and start > first))


def _log_range(log: PartitionLog) -> tuple[int, int]:
    return log.start, log.high_watermark


# --- contents


def batches_of(log: PartitionLog, below: int | None) -> list[Batch]:
    """Batches below the high watermark and this offset (None: no other limit), without the fields
    that each cluster sets itself.
    """
    return [
        (base, batch[AFTER_LEADER_EPOCH:]) for base, batch in committed_batches(log) if below is None or base < below
    ]


def check_copies_are_logs_of_source(
    target: SimulatedCluster, mirror: str, log_history: LogHistory, now_s: float
) -> Iterator[str]:
    """Copies, also stopped ones, equal a log of their source up to their failover. Copies that
    adopted a former log of their own are left out.
    """
    for copy in mirrored_replicas(target, mirror, now_s):
        if copy.topic.adopted or copy.leader is None:
            continue
        if copy.topic.failed_over and copy.record.end < 0:
            yield f"mixed: {copy.topic_partition} has failed over without a recorded offset"
            continue
        log = batches_of(copy.leader.log, copy.record.end if copy.topic.failed_over else None)
        if why := log_history.describe_mismatch(copy.topic.source_id, copy.topic_partition[1], log):
            yield f"mixed: the copy {copy.topic_partition} equals no log of its source: {why}"


def check_copies_equal_source(
    source: SimulatedCluster, target: SimulatedCluster, mirror: str, now_s: float, *, from_source: bool = False
) -> Iterator[str]:
    """Active copies equal their source.

    Copies that have failed over equal it up to their failover if the source still has those records
    (`from_source`).
    """
    originals = leader_replicas(source)
    for copy in mirrored_replicas(target, mirror, now_s):
        original = originals.get((copy.topic.source_topic, copy.topic_partition[1]))
        if original is None or copy.leader is None or copy.record.stopped:
            continue
        if original.partition.topic_id != copy.topic.source_id or (copy.topic.failed_over and not from_source):
            continue
        below = copy.record.end if copy.topic.failed_over else None
        start = max(original.log.start, copy.leader.log.start)
        one, other = (
            {base: batch for base, batch in batches_of(log, below) if base >= start}
            for log in (original.log, copy.leader.log)
        )
        if differing := sorted(base for base in one.keys() | other.keys() if one.get(base) != other.get(base)):
            yield f"differs: the copy {copy.topic_partition} and its source at {differing[:5]}, below {below}"


def check_own_records(history: History, target: SimulatedCluster, mirror: str, now_s: float) -> Iterator[str]:
    """No producer's record was accepted below the failover offset of a copy."""
    ends = {
        (copy.topic_partition, copy.topic.topic): copy.record.end
        for copy in mirrored_replicas(target, mirror, now_s)
        if not copy.topic.adopted
    }
    for ack in history.acks:
        if (end := ends.get((ack.topic_partition, ack.topic_id))) is not None and not 0 <= end <= ack.offset:
            yield (
                f"accepted: {ack.values[0][:40]!r} was acknowledged at {ack.topic_partition} offset "
                f"{ack.offset}; the copy failed over at {end}"
            )


def read_contents(
    cluster: SimulatedCluster,
) -> tuple[dict[TopicPartition, dict[int, bytes]], dict[str, Topic], dict[TopicPartition, int]]:
    """Records that consumers can read, according to the leaders' logs; topics; log start
    offsets.
    """
    image = newest_image(cluster)
    found = leader_replicas(cluster)
    contents = {
        tp: {
            record.offset: record.value or b""
            for _, batch in committed_batches(one.log)
            for header, record in iter_records(batch)
            if record.offset >= one.log.start and not header.is_control
        }
        for tp, one in found.items()
    }
    topics = {} if image is None else {name: Topic(one.id, len(one.partitions)) for name, one in image.topics.items()}
    return contents, topics, {tp: one.log.start for tp, one in found.items()}


def without_deleted_records(history: History, starts: Mapping[TopicPartition, int]) -> History:
    """The history without acknowledgements of records whose deletion was requested, and without
    reads below the log starts.
    """
    gone = {tp: max(start, history.deletion_requests.get(tp, 0)) for tp, start in starts.items()}
    kept = replace(history, acks=[ack for ack in history.acks if ack.offset >= gone.get(ack.topic_partition, 0)])
    kept.consumed = {
        group: {
            tp: {at: value for at, value in records.items() if at >= starts.get(tp, 0)}
            for tp, records in topic_partitions.items()
        }
        for group, topic_partitions in history.consumed.items()
    }
    return kept


def saved_records(cluster: SimulatedCluster) -> set[bytes]:
    """Values of truncated records that were saved in files beside the logs."""
    found: set[bytes] = set()
    for broker in cluster:
        disk = broker.disk
        for partition in disk.list(DATA):
            if not disk.exists(beside := f"{DATA}/{partition}/{FOLDER}"):
                continue
            for stretch in disk.list(beside):
                if not stretch.endswith(UNFINISHED):
                    for file in disk.list(f"{beside}/{stretch}"):
                        data = disk.read_file(f"{beside}/{stretch}/{file}")
                        found |= {record.value or b"" for _, record in iter_records(data)}
    return found


def check_records_are_kept_or_saved(history: History, contents: Contents, saved: set[bytes]) -> Iterator[str]:
    """Checks that after a failback acknowledged records of the old source are in the log or in
    saved files.
    """
    for ack in history.acks:
        for offset, value in enumerate(ack.values, ack.offset):
            if contents.get(ack.topic_partition, {}).get(offset) != value and value not in saved:
                yield (
                    f"lost: {value[:40]!r}, acknowledged at {ack.topic_partition} offset {offset}, was "
                    "truncated and not saved"
                )
