"""What must be true of the brokers themselves: while they run, and when everything has come to rest."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla_broker.broker import Broker
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.replication.partition import Partition
from tests.sim.cluster import SimulatedCluster
from tests.sim.history import History
from tests.sim.reader import below_high_watermark, latest_by_key
from tests.sim.standing import metadata_log, newest_image, running
from tests.sim.trace import Trace

LOOK_S = 0.1
COMPACTED = "__consumer_offsets"


def _never(*_: object) -> None:
    return None


class Watch:
    """Looks at every broker many times a second, and at every record that a leader appends. A high watermark never falls in one life of a replica,
    and nobody leads an epoch that somebody else leads, or led. (A client cannot tell: a leader that has just stepped down may bring
    what comes to its successor.) `may_fall_to`: as far as a high watermark may fall all the same, of what is cut on purpose."""

    def __init__(
        self, cluster: SimulatedCluster, trace: Trace, may_fall_to: Callable[[Broker, Partition], int | None] = _never
    ) -> None:
        self._cluster = cluster
        self._trace = trace
        self._may_fall_to = may_fall_to
        self._high_watermarks: dict[tuple[Any, ...], tuple[int, PartitionLog]] = {}
        self._leaders: dict[tuple[Any, ...], int] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    @contextmanager
    def appends(self) -> Iterator[None]:
        """Inside of it who appends as a leader is looked at."""
        properly = Partition.append_records

        def append(partition: Partition, *arguments: Any, **named: Any) -> LogAppendInfo:
            appended = properly(partition, *arguments, **named)
            which = (partition.topic, partition.topic_id, partition.partition, partition.leader_epoch)
            self._look_at_leader(which, partition._broker_id)
            return appended

        with patch.object(Partition, "append_records", append):
            yield

    def look(self) -> None:
        for node, broker in running(self._cluster):
            for partition in broker.partitions:
                which = (partition.topic, partition.topic_id, partition.partition)
                least = self._may_fall_to(broker, partition)
                self._look_at_high_watermark((node.node_id, node.lives, *which), partition.log, least)
                if partition.is_leader:
                    self._look_at_leader((*which, partition.leader_epoch), node.node_id)
            if (log := metadata_log(broker)) is not None:
                self._look_at_high_watermark((node.node_id, node.lives, "metadata"), log)

    def _look_at_high_watermark(self, which: tuple[Any, ...], log: PartitionLog, least: int | None = None) -> None:
        now = log.high_watermark
        before, of = self._high_watermarks.get(which, (0, log))
        if of is log and now < (
            before if least is None else min(before, least)
        ):  # a replica that was moved away and comes back begins anew
            self._trace.problem(f"broker {which[0]}: the high watermark of {which[2:]} fell from {before} to {now}")
        self._high_watermarks[which] = now if least is None else min(now, least), log

    def _look_at_leader(self, which: tuple[Any, ...], node_id: int) -> None:
        first = self._leaders.setdefault(which, node_id)
        if first != node_id:
            self._trace.problem(f"brokers {first} and {node_id} both lead {which[0]}-{which[2]} in epoch {which[3]}")
            self._leaders[which] = node_id


def images_apart(cluster: SimulatedCluster) -> Iterator[str]:
    """Brokers that have not heard of what others have; clients may ask any of them."""
    ends = {broker.image.end_offset for _, broker in running(cluster)}
    if len(ends) > 1:
        yield f"images end at {sorted(ends)}"


def at_rest(cluster: SimulatedCluster) -> Iterator[str]:
    """What is still moving: replicas whose high watermark or end is not their leader's, and images behind the newest."""
    yield from images_apart(cluster)
    replicas = _replicas(cluster)
    for place, found in replicas.items():
        states = {(partition.log.end, partition.log.high_watermark) for _, partition in found}
        if len(states) > 1 or any(end != high for end, high in states):
            yield f"replicas of {place} end and are committed at {sorted(states)}"


def _replicas(cluster: SimulatedCluster) -> dict[tuple[str, int], list[tuple[int, Partition]]]:
    found: dict[tuple[str, int], list[tuple[int, Partition]]] = {}
    for node, broker in running(cluster):
        for partition in broker.partitions:
            found.setdefault((partition.topic, partition.partition), []).append((node.node_id, partition))
    return found


def broken_at_rest(cluster: SimulatedCluster, history: History) -> Iterator[str]:
    yield from replicas_are_equal(cluster)
    yield from metadata_are_equal(cluster)
    yield from settings_are_as_acknowledged(history, cluster)


def replicas_are_equal(cluster: SimulatedCluster, *, trimmed: bool = False) -> Iterator[str]:
    """Batch by batch below the high watermark, and above every replica's start where records were deleted (`trimmed`); of compacted partitions, whose replicas are cleaned each on its own, what they say in the end."""
    for place, found in _replicas(cluster).items():
        (first, reference), *others = found
        for node_id, partition in others:
            if place[0] == COMPACTED:
                if latest_by_key(partition.log) != latest_by_key(reference.log):
                    yield f"replicas of {place} on brokers {first} and {node_id} do not say the same"
                continue
            here, there = dict(below_high_watermark(partition.log)), dict(below_high_watermark(reference.log))
            start = max(partition.log.start, reference.log.start) if trimmed else 0
            if differing := sorted(
                at for at in here.keys() | there.keys() if here.get(at) != there.get(at) and at >= start
            ):
                yield f"replicas of {place} on brokers {first} and {node_id} differ at {differing[:5]}"


def metadata_are_equal(cluster: SimulatedCluster) -> Iterator[str]:
    """Below what each knows to be committed the logs hold the same, and images of the same end are the same."""
    logs: list[tuple[int, dict[int, bytes], int]] = []
    images: dict[int, tuple[int, MetadataImage]] = {}
    for node, broker in running(cluster):
        log = metadata_log(broker)
        if log is None:
            continue
        here = dict(below_high_watermark(log))
        for other, there, start in logs:
            common = max(start, log.start)
            for at in here.keys() & there.keys():
                if at >= common and here[at] != there[at]:
                    yield f"the metadata logs of brokers {other} and {node.node_id} differ at {at}"
        logs.append((node.node_id, here, log.start))
        first, image = images.setdefault(broker.image.end_offset, (node.node_id, broker.image))
        for what in differences(image, broker.image):
            yield f"the images of brokers {first} and {node.node_id} at {image.end_offset} differ in {what}"


def settings_are_as_acknowledged(history: History, cluster: SimulatedCluster) -> Iterator[str]:
    image = newest_image(cluster)
    if image is None:
        return
    for name, fate in history.living():
        for key, value in fate.settings.items():
            now = image.topic_config(name).get(key)
            if value is not None and now != value:
                yield f"{key} of topic {name} is {now}; {value} was acknowledged"


def differences(one: MetadataImage, other: MetadataImage) -> list[str]:
    return [
        name
        for name in ("topics", "topic_names", "brokers", "configs", "next_producer_id")
        if getattr(one, name) != getattr(other, name)
    ]
