"""How a copy of another cluster's topic is, as entries of DescribeConfigs for resource type 102: who asks all brokers knows all.

`mirror`, `source.topic`, `failed.over` and `origins` (ids of the clusters that records come from now) tell of the topic what the metadata say; `<partition>`
is JSON (`PartitionStatus`) and is given by the broker that leads the partition, because only it knows how far the source is. Of a copy that has failed over
`<partition>.lineage` is what its source needs that is to become its copy (`mirroring.lineage.Lineage`).

Of a mirror (resource type 101) the controller tells `trouble`, why its source cannot be looked at, and `refused`, JSON of which topics here are not copied
into, and why; where there is nothing to tell they are not there.
"""

from typing import Literal

import msgspec

from ottla_broker.broker import Broker
from ottla_broker.config import PAUSED, Entry, Source
from ottla_broker.config.kinds import ConfigType
from ottla_broker.metadata.image import Image, TopicImage
from ottla_broker.metadata.mirror_plans import known_partition
from ottla_broker.metadata.records import MirroredPartition, MirroredTopic
from ottla_broker.mirroring.copying import Copy
from ottla_broker.mirroring.lineage import Lineage, copied_up_to
from ottla_broker.mirroring.links import Link, link
from ottla_broker.mirroring.origins import ORIGINS, origins_of
from ottla_broker.mirroring.source_copies import described, lineage_key
from ottla_broker.mirroring.source_epochs import NO_EPOCH
from ottla_broker.replication.partition import Partition

State = Literal["Replicating", "Joining", "Diverged", "Paused", "Stopped", "FailingOver", "FailedOver", "Unreachable"]
UNKNOWN = -1
TROUBLE, REFUSED = "trouble", "refused"
SILENT_AFTER_S = 10.0
"""Beyond the time that a fetch may wait for records: twice the longest that a copy rests after an error of the source's."""


class PartitionStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`end`: of the log here, or after a failover the offset from which on our own records follow; `source_end`: the source's high watermark when
    last seen, −1: not known, as is `lag_seconds`: for how long something has been missing here. `diverging`: offsets that are here and not at the source.
    `lag_bytes`: an estimate (`Copy.lag_bytes`); `silent_seconds`: since the source's broker answered last, records or not.
    `why`: of a state that is not as it should be."""

    state: State
    end: int
    source_end: int = UNKNOWN
    lag: int = UNKNOWN
    lag_seconds: float = UNKNOWN
    source_epoch: int = NO_EPOCH
    why: str = ""
    diverging: int = 0
    lag_bytes: int = UNKNOWN
    silent_seconds: float = UNKNOWN


def entries(broker: Broker, name: str, now_s: float) -> list[Entry]:
    """Nothing for a topic that is no copy."""
    topic = broker.image.topics.get(name)
    copy = None if topic is None else broker.image.mirrored.get(topic.id)
    if topic is None or copy is None:
        return []
    found = described(copy.mirror, copy.source_topic, copy.source_id, failed_over=copy.failed_over)
    found[ORIGINS] = ",".join(sorted(origins_of(broker.image, name)))
    for index in sorted(topic.partitions):
        if (partition := broker.partitions.get(name, index)) is not None and partition.leads:
            found[str(index)] = _json(status(broker, topic, copy, partition, now_s))
            if (told := lineage(broker.image, copy, partition)) is not None:
                found[lineage_key(index)] = _json(told)
    return [read_only_entry(key, value) for key, value in found.items()]


def troubles(broker: Broker, mirror: str) -> list[Entry]:
    """Nothing from a broker that is not the controller."""
    if broker.mirror_office is None:
        return []
    told = broker.mirror_office.troubles(mirror)
    refused = msgspec.json.encode(told.refused).decode() if told.refused else ""
    return [read_only_entry(key, value) for key, value in ((TROUBLE, told.source), (REFUSED, refused)) if value]


def lineage(image: Image, copied: MirroredTopic, partition: Partition) -> Lineage | None:
    """None while it copies, or while nobody knows where it ends or joined."""
    known = known_partition(image, partition.topic_id, partition.partition)
    if not copied.failed_over or known.end < 0 or (copied.adopted and known.joined < 0):
        return None
    epochs = tuple(partition.log.epochs.entries())
    end = copied_up_to(epochs, partition.log.end, known.end, known.end_epoch)
    return Lineage(copied.source_id, known.epochs, end, epochs)


def status(
    broker: Broker, topic: TopicImage, copied: MirroredTopic, partition: Partition, now_s: float
) -> PartitionStatus:
    """As the partition's leader knows it."""
    known = known_partition(broker.image, topic.id, partition.partition)
    end = partition.log.end
    if copied.failed_over:
        if known.end < 0:
            return PartitionStatus("FailingOver", end)
        missing = max(known.source_end - known.end, 0) if known.source_end >= 0 else UNKNOWN
        return PartitionStatus("FailedOver", known.end, known.source_end, missing, source_epoch=_newest(known))
    if known.stopped:
        return PartitionStatus("Stopped", end, source_epoch=_newest(known), why=known.stopped)
    settings = link(broker.image, copied.mirror)
    copy = broker.mirrors.copy_of(partition, copied.mirror)
    if (rejoiner := broker.mirrors.rejoiner_of(partition)) is not None:
        state: State = "Diverged" if rejoiner.stuck else "Joining"
        return PartitionStatus(state, end, why=rejoiner.why, diverging=rejoiner.diverging)
    if settings is None or settings.role == PAUSED or copy is None:
        return PartitionStatus("Paused", end, source_epoch=_newest(known))
    return live_status(copy, end, settings, broker.mirrors.trouble(copied.mirror), now_s)


def live_status(copy: Copy, end: int, settings: Link, trouble: str, now_s: float) -> PartitionStatus:
    """Of a copy that goes on, unless there is `trouble` with the source's brokers."""
    seen = copy.source_end != UNKNOWN
    trouble = copy.why or trouble or silence(copy.silent_s(now_s), settings.pace.max_wait_ms / 1000)
    return PartitionStatus(
        "Unreachable" if trouble else "Replicating",
        end,
        copy.source_end,
        copy.lag if seen else UNKNOWN,
        round(copy.behind_s(now_s), 3) if seen else UNKNOWN,
        copy.last_epoch,
        trouble,
        lag_bytes=copy.lag_bytes if seen else UNKNOWN,
        silent_seconds=round(copy.silent_s(now_s), 3),
    )


def silence(silent_s: float, waits_s: float) -> str:
    """What is wrong with a source that has not answered for so long; empty when nothing is. `waits_s`: for how long a fetch may wait for records."""
    most_s = waits_s + SILENT_AFTER_S
    return f"no broker of the source has answered for it for more than {most_s:g} seconds" if silent_s > most_s else ""


def _newest(known: MirroredPartition) -> int:
    return known.epochs[-1][0] if known.epochs else NO_EPOCH


def _json(told: msgspec.Struct) -> str:
    return msgspec.json.encode(told).decode()


def read_only_entry(name: str, value: str) -> Entry:
    return Entry(name, value, Source.DYNAMIC_MIRROR_CONFIG, (), True, False, ConfigType.STRING, "")
