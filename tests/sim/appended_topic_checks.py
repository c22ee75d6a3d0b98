"""Invariants of topics to which a source's records are appended: each record once, in order, with
its source offset.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ottla_broker.metadata.records import AppendedSourceRecord
from ottla_broker.mirroring.source_positions import SEQUENCE_BITS
from ottla_broker.requests.mirror_status import PartitionStatus, appended_partition_status
from ottla_broker.wire.records import iter_records
from tests.sim.checks import Contents
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_state import newest_image
from tests.sim.history import TopicPartition
from tests.sim.mirror_checks import LeaderReplica, leader_replicas
from tests.sim.reader import committed_batches


@dataclass(frozen=True, slots=True)
class AppendedPartition:
    """A partition and one of its sources, according to its leader and the metadata. `leader` is
    None if the partition has none, `status` also if the leader does not know the source.
    """

    topic_partition: TopicPartition
    source: AppendedSourceRecord
    leader: LeaderReplica | None
    status: PartitionStatus | None


def appended_partitions(cluster: SimulatedCluster, mirror: str, now_s: float) -> list[AppendedPartition]:
    """Partitions to which this mirror appends, or appended until its end. Empty if no broker
    runs.
    """
    image, found = newest_image(cluster), leader_replicas(cluster)
    if image is None:
        return []
    return [
        _appended_partition((name, index), source, found.get((name, index)), now_s)
        for topic_id, sources in image.appended_sources.items()
        if (name := image.topic_names.get(topic_id)) is not None
        for source in sources.values()
        if source.mirror == mirror
        for index in sorted(image.topics[name].partitions)
        if index < source.partitions
    ]


def _appended_partition(
    tp: TopicPartition, source: AppendedSourceRecord, at: LeaderReplica | None, now_s: float
) -> AppendedPartition:
    status = None
    if at is not None and (topic := at.broker.image.topics.get(tp[0])) is not None:
        known = at.broker.image.appended_sources.get(topic.id, {}).get(source.source_id)
        status = appended_partition_status(at.broker, topic, source, at.partition, now_s) if known == source else None
    return AppendedPartition(tp, source, at, status)


def missing_records(source: SimulatedCluster, appended: list[AppendedPartition], *, may_stop: bool) -> Iterator[str]:
    """Describes partitions that lack records of their source or no longer append them.

    `may_stop`: the source has diverged from what was copied, so appending may stop with a reason.
    """
    originals = leader_replicas(source)
    for one in appended:
        original, status = originals.get((one.source.source_topic, one.topic_partition[1])), one.status
        if status is None or original is None:
            yield f"no status of the source of {one.topic_partition}"
        elif status.state == "Stopped":
            if not may_stop or not status.why:
                yield f"appending to {one.topic_partition} has stopped: {status.why!r}"
        elif status.state != "Replicating" or status.end < original.log.high_watermark:
            yield (
                f"{one.topic_partition} has the source's records below {status.end} of "
                f"{original.log.high_watermark}: {status}"
            )


def check_appended_once_in_order(
    contents: Contents, starts: Mapping[TopicPartition, int], appended: list[AppendedPartition], *, keeps_records: bool
) -> Iterator[str]:
    """`contents` and `starts`: records and log starts of the source at the end. `keeps_records`:
    the source lost only records below its log starts.
    """
    for one in appended:
        if one.leader is None:
            continue
        seen: dict[bytes, int] = {}
        last, positions = -1, dict[int, bytes]()
        for at, position, value in _appended_records(one):
            if value in seen:
                yield (
                    f"duplicate: {value[:40]!r} is at {one.topic_partition} offsets {seen[value]} and {at}, from "
                    "the source"
                )
            seen[value] = at
            if keeps_records and position <= last:
                yield f"out of order: {one.topic_partition} offset {at} has source offset {position} and follows {last}"
            last = position
            positions[position] = value
        if keeps_records and positions:
            yield from _check_is_contiguous(
                one.topic_partition,
                contents.get(one.topic_partition, {}),
                starts.get(one.topic_partition, 0),
                positions,
            )


def _appended_records(partition: AppendedPartition) -> Iterator[tuple[int, int, bytes]]:
    """Offset, source offset and value of each appended record."""
    assert partition.leader is not None
    for _, batch in committed_batches(partition.leader.log):
        for header, record in iter_records(batch):
            if header.producer_id == partition.source.producer_id and not header.is_control:
                position = (header.producer_epoch << SEQUENCE_BITS) + header.base_sequence
                yield record.offset, position + record.offset - header.base_offset, record.value or b""


def _check_is_contiguous(
    tp: TopicPartition, source_records: Mapping[int, bytes], start: int, positions: Mapping[int, bytes]
) -> Iterator[str]:
    """Checks that the records are a part of the source's log without gaps."""
    first, last = min(positions), max(positions)
    if missed := [at for at in source_records if max(first, start) <= at <= last and at not in positions]:
        yield f"lost: {tp} has the source's offsets {first} to {last} without {missed[:5]}"
    if wrong := [at for at, value in positions.items() if at in source_records and source_records[at] != value]:
        yield f"mixed: records of {tp} with source offsets {wrong[:5]} differ from the source"
