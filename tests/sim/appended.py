"""What must be true of topics to which the records of a source are appended: each is there once, in the source's order, and says where it lay there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ottla_broker.metadata.records import AppendedSourceRecord
from ottla_broker.mirroring.source_positions import SEQUENCE_BITS
from ottla_broker.requests.mirror_status import PartitionStatus, appended_partition_status
from ottla_broker.wire.records import iter_records
from tests.sim.checks import Contents
from tests.sim.cluster import SimulatedCluster
from tests.sim.copies import Led, led
from tests.sim.history import Place
from tests.sim.reader import below_high_watermark
from tests.sim.standing import newest_image


@dataclass(frozen=True, slots=True)
class Fed:
    """A partition and one source of it, as its leader and the metadata tell. `led` None: nobody leads it just now."""

    place: Place
    source: AppendedSourceRecord
    led: Led | None
    status: PartitionStatus | None


def fed_by(cluster: SimulatedCluster, mirror: str, now_s: float) -> list[Fed]:
    """What this mirror appends to, or did until it ended."""
    image, found = newest_image(cluster), led(cluster)
    if image is None:
        return []
    return [
        _fed((name, index), source, found.get((name, index)), now_s)
        for topic_id, sources in image.appended_sources.items()
        if (name := image.topic_names.get(topic_id)) is not None
        for source in sources.values()
        if source.mirror == mirror
        for index in sorted(image.topics[name].partitions)
        if index < source.partitions
    ]


def _fed(place: Place, source: AppendedSourceRecord, at: Led | None, now_s: float) -> Fed:
    told = None
    if at is not None and (topic := at.broker.image.topics.get(place[0])) is not None:
        known = at.broker.image.appended_sources.get(topic.id, {}).get(source.source_id)
        told = appended_partition_status(at.broker, topic, source, at.partition, now_s) if known == source else None
    return Fed(place, source, at, told)


def not_appended(source: SimulatedCluster, fed: list[Fed], *, may_stop: bool) -> Iterator[str]:
    """What has not come yet, and what stands still without a reason. `may_stop`: where the source has parted from what was copied."""
    there = led(source)
    for one in fed:
        original, told = there.get((one.source.source_topic, one.place[1])), one.status
        if told is None or original is None:
            yield f"nobody tells how {one.place} is fed"
        elif told.state == "Stopped":
            if not may_stop or not told.why:
                yield f"nothing is appended to {one.place}: {told.why!r}"
        elif told.state != "Replicating" or told.end < original.log.high_watermark:
            yield f"of what is appended to {one.place} all below {told.end} is there, of {original.log.high_watermark}: {told}"


def appended_are_there_once_and_in_order(
    contents: Contents, starts: Mapping[Place, int], fed: list[Fed], *, keeps: bool
) -> Iterator[str]:
    """`contents`, `starts`: of the source, in the end; `keeps`: it has lost nothing but what it let go below its start."""
    for one in fed:
        if one.led is None:
            continue
        seen: dict[bytes, int] = {}
        last, positions = -1, dict[int, bytes]()
        for at, position, value in _appended(one):
            if value in seen:
                yield f"doubled: {value[:40]!r} is at {one.place} offsets {seen[value]} and {at}, from the source"
            seen[value] = at
            if keeps and position <= last:
                yield f"out of order: {one.place} offset {at} is of the source's {position}, and follows {last}"
            last = position
            positions[position] = value
        if keeps and positions:
            yield from _is_part_of(one.place, contents.get(one.place, {}), starts.get(one.place, 0), positions)


def _appended(fed: Fed) -> Iterator[tuple[int, int, bytes]]:
    """Offset here, offset at the source, and what the record holds."""
    assert fed.led is not None
    for _, batch in below_high_watermark(fed.led.log):
        for header, record in iter_records(batch):
            if header.producer_id == fed.source.producer_id and not header.is_control:
                position = (header.producer_epoch << SEQUENCE_BITS) + header.base_sequence
                yield record.offset, position + record.offset - header.base_offset, record.value or b""


def _is_part_of(place: Place, there: Mapping[int, bytes], start: int, positions: Mapping[int, bytes]) -> Iterator[str]:
    """Without a gap from where it begins to where it ends."""
    first, last = min(positions), max(positions)
    if missed := [at for at in there if max(first, start) <= at <= last and at not in positions]:
        yield f"lost: {place} has records of the source's {first} to {last}, but for {missed[:5]}"
    if wrong := [at for at, value in positions.items() if at in there and there[at] != value]:
        yield f"mixed: what {place} has of the source's {wrong[:5]} is something else there"
