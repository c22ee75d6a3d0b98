"""What must be true of copies and their sources: when everything has come to rest, by the brokers' own logs and what they say of themselves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ottla_broker.broker import Broker
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.mirror_plans import NO_OFFSET, mirrored_partition
from ottla_broker.metadata.records import MirroredPartitionRecord, MirroredTopicRecord
from ottla_broker.mirroring.diverged_records import FOLDER, UNFINISHED
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.mirror_status import PartitionStatus, mirrored_partition_status
from ottla_broker.wire.records import iter_records
from tests.sim.ancestry import BEHIND_EPOCH, Ancestry, Batch
from tests.sim.checks import Contents, Topic
from tests.sim.cluster import FOLDER as DATA
from tests.sim.cluster import SimulatedCluster
from tests.sim.history import History, Place
from tests.sim.reader import INTERNAL, below_high_watermark
from tests.sim.standing import newest_image, running


@dataclass(frozen=True, slots=True)
class Led:
    """A partition, where it is led."""

    broker: Broker
    partition: Partition

    @property
    def log(self) -> PartitionLog:
        return self.partition.log


@dataclass(frozen=True, slots=True)
class CopyOf:
    """A partition of a copy, as its leader and the metadata tell. `led` None: nobody leads it just now."""

    place: Place
    topic: MirroredTopicRecord
    known: MirroredPartitionRecord
    led: Led | None
    status: PartitionStatus | None


def led(cluster: SimulatedCluster) -> dict[Place, Led]:
    """But for internal topics."""
    return {
        (partition.topic, partition.partition): Led(broker, partition)
        for _, broker in running(cluster)
        for partition in broker.partitions
        if partition.is_leader and not partition.topic.startswith(INTERNAL)
    }


def copies_of(cluster: SimulatedCluster, mirror: str, now_s: float) -> list[CopyOf]:
    """Of those that this mirror keeps, or kept until they failed over."""
    image, found = newest_image(cluster), led(cluster)
    if image is None:
        return []
    return [
        _copy(image, name, topic, index, found.get((name, index)), now_s)
        for topic_id, topic in image.mirrored_topics.items()
        if topic.mirror == mirror and (name := image.topic_names.get(topic_id)) is not None
        for index in sorted(image.topics[name].partitions)
    ]


def _copy(
    image: MetadataImage, name: str, topic: MirroredTopicRecord, index: int, at: Led | None, now_s: float
) -> CopyOf:
    told = None
    if at is not None and at.broker.image.mirrored_topics.get(topic.topic) == topic:
        told = mirrored_partition_status(at.broker, at.broker.image.topics[name], topic, at.partition, now_s)
    return CopyOf((name, index), topic, mirrored_partition(image, topic.topic, index), at, told)


def may_fall_to(broker: Broker, partition: Partition) -> int | None:
    """How far a high watermark may fall: to where a topic that had records of its own was cut, to become a copy. And that of a copy that holds nothing says
    nothing yet: it begins where its source's log does, which followers have not heard of, and which may be inside of a batch."""
    log = partition.log
    if partition.topic_id in broker.image.mirrored_topics and log.high_watermark == log.start:
        return 0
    known = mirrored_partition(broker.image, partition.topic_id, partition.partition)
    return None if known.joined == NO_OFFSET else known.joined


# --- whether copying has come to an end


def out_of_step(
    source: SimulatedCluster,
    target: SimulatedCluster,
    mirror: str,
    now_s: float,
    *,
    may_stop: bool,
    forgets: bool = False,
) -> Iterator[str]:
    """What a mirror has not copied yet, and what stands still without a reason. A copy of a topic that was made anew, or of a source that `forgets`, may
    stand still, if it says so and the mirror does not resync (`may_stop`)."""
    there, image = led(source), newest_image(source)
    if image is None:
        yield "no broker of the source runs"
        return
    for copy in copies_of(target, mirror, now_s):
        original = there.get((copy.topic.source_topic, copy.place[1]))
        topic = image.topics.get(copy.topic.source_topic)
        told = copy.status
        if told is None or copy.led is None:
            yield f"nobody tells how the copy {copy.place} is"
        elif topic is None:
            if not (told.why or told.state == "Stopped"):
                yield f"the copy {copy.place}, whose source is gone, is {told.state} and does not say why"
        elif told.state == "Stopped":
            parted = forgets or topic.id != copy.topic.source_id
            if not (may_stop and parted and told.why):
                yield f"the copy {copy.place} is stopped: {told.why!r}"
        elif topic.id != copy.topic.source_id:
            yield f"the copy {copy.place} is of a topic that was made anew, and is {told.state}"
        elif original is None or told.state != "Replicating":
            yield f"the copy {copy.place} is {told.state}: {told.why!r}"
        elif not _in_step(copy, original.log):
            yield f"the copy {copy.place} has {_ends(copy.led.log)}, its source {_ends(original.log)}; {told}"


def _in_step(copy: CopyOf, original: PartitionLog) -> bool:
    """What was an own log before may have let go more at its beginning than its source has."""
    start, end = _ends(copy.led.log)  # type: ignore[union-attr]
    first, last = _ends(original)
    return end == last and (start == first or (copy.topic.adopted and start > first))


def _ends(log: PartitionLog) -> tuple[int, int]:
    return log.start, log.high_watermark


# --- what is in them


def batches_of(log: PartitionLog, below: int | None = None) -> list[Batch]:
    """Below the high watermark and this offset, without what is each cluster's own."""
    return [(base, batch[BEHIND_EPOCH:]) for base, batch in below_high_watermark(log) if below is None or base < below]


def copies_are_logs_of_their_source(
    target: SimulatedCluster, mirror: str, ancestry: Ancestry, now_s: float
) -> Iterator[str]:
    """Up to where they failed over; also those that stand still."""
    for copy in copies_of(target, mirror, now_s):
        if copy.topic.adopted or copy.led is None:
            continue
        if copy.topic.failed_over and copy.known.end < 0:
            yield f"mixed: {copy.place} has failed over, and nobody knows where"
            continue
        log = batches_of(copy.led.log, copy.known.end if copy.topic.failed_over else None)
        if why := ancestry.has(copy.topic.source_id, copy.place[1], log):
            yield f"mixed: the copy {copy.place} is no log of its source: {why}"


def logs_are_one(
    source: SimulatedCluster, target: SimulatedCluster, mirror: str, now_s: float, *, from_source: bool = False
) -> Iterator[str]:
    """Copies that replicate are equal to their source; those that have failed over, up to where they did, if the source still is what was copied (`from_source`)."""
    there = led(source)
    for copy in copies_of(target, mirror, now_s):
        original = there.get((copy.topic.source_topic, copy.place[1]))
        if original is None or copy.led is None or copy.known.stopped:
            continue
        if original.partition.topic_id != copy.topic.source_id or (copy.topic.failed_over and not from_source):
            continue
        below = copy.known.end if copy.topic.failed_over else None
        start = max(original.log.start, copy.led.log.start)
        one, other = (
            {base: batch for base, batch in batches_of(log, below) if base >= start}
            for log in (original.log, copy.led.log)
        )
        if differing := sorted(base for base in one.keys() | other.keys() if one.get(base) != other.get(base)):
            yield f"not one: the copy {copy.place} and its source differ at {differing[:5]}, below {below}"


def own_records_begin_behind(history: History, target: SimulatedCluster, mirror: str, now_s: float) -> Iterator[str]:
    """Nobody's record was taken below where a copy failed over."""
    ends = {
        (copy.place, copy.topic.topic): copy.known.end
        for copy in copies_of(target, mirror, now_s)
        if not copy.topic.adopted
    }
    for ack in history.acks:
        if (end := ends.get((ack.place, ack.topic_id))) is not None and not 0 <= end <= ack.offset:
            yield f"taken: {ack.values[0][:40]!r} was acknowledged at {ack.place} offset {ack.offset}; own records begin at {end}"


def contents_of(cluster: SimulatedCluster) -> tuple[dict[Place, dict[int, bytes]], dict[str, Topic], dict[Place, int]]:
    """What consumers can read, by the leaders' logs; which topics there are, and where their logs start."""
    image = newest_image(cluster)
    found = led(cluster)
    contents = {
        place: {
            record.offset: record.value or b""
            for _, batch in below_high_watermark(one.log)
            for header, record in iter_records(batch)
            if record.offset >= one.log.start and not header.is_control
        }
        for place, one in found.items()
    }
    topics = {} if image is None else {name: Topic(one.id, len(one.partitions)) for name, one in image.topics.items()}
    return contents, topics, {place: one.log.start for place, one in found.items()}


def without_what_went(history: History, starts: Mapping[Place, int]) -> History:
    """As if nobody had seen the records whose deletion was asked for."""
    gone = {place: max(start, history.deleted.get(place, 0)) for place, start in starts.items()}
    kept = replace(history, acks=[ack for ack in history.acks if ack.offset >= gone.get(ack.place, 0)])
    kept.seen = {
        group: {
            place: {at: value for at, value in records.items() if at >= starts.get(place, 0)}
            for place, records in places.items()
        }
        for group, places in history.seen.items()
    }
    return kept


def saved_in(cluster: SimulatedCluster) -> set[bytes]:
    """What was cut off somewhere, as it lies in files beside the logs."""
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


def acknowledged_are_there_or_saved(history: History, contents: Contents, saved: set[bytes]) -> Iterator[str]:
    """After the old source has come home: what was cut off of it is not gone."""
    for ack in history.acks:
        for offset, value in enumerate(ack.values, ack.offset):
            if contents.get(ack.place, {}).get(offset) != value and value not in saved:
                yield f"lost: {value[:40]!r}, acknowledged at {ack.place} offset {offset}, was cut off and is in no file"
