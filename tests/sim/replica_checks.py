"""Invariants of the brokers' replicas and metadata, during a run and after the faults."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from ottla_broker.broker import Broker
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.metadata.image import MetadataImage
from ottla_broker.replication.partition import Partition
from tests.sim.cluster import SimulatedCluster
from tests.sim.cluster_state import metadata_log, newest_image, running_brokers
from tests.sim.history import History
from tests.sim.reader import committed_batches, latest_values
from tests.sim.trace import Trace

CHECK_S = 0.1
COMPACTED = ("__consumer_offsets", "__transaction_state")


def _no_floor(*_: object) -> None:
    return None


class ReplicaMonitor:
    """Checks every broker many times a second, and every record that a leader appends.

    A replica's high watermark never falls while its process runs, and no two brokers lead in the
    same epoch. (Clients cannot tell: a leader that has just stepped down may forward their batches
    to its successor.) `may_fall_to` returns how far a high watermark may fall because of intended
    truncation; None: not at all.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        trace: Trace,
        may_fall_to: Callable[[Broker, Partition], int | None] = _no_floor,
    ) -> None:
        self._cluster = cluster
        self._trace = trace
        self._may_fall_to = may_fall_to
        self._high_watermarks: dict[tuple[Any, ...], tuple[int, PartitionLog]] = {}
        self._leaders: dict[tuple[Any, ...], int] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self.check()

    @contextmanager
    def observe_appends(self) -> Iterator[None]:
        """Checks the leader of every append inside the block."""
        append_records, append_small_batches = Partition.append_records, Partition.append_small_batches

        def append(partition: Partition, *arguments: Any, **named: Any) -> LogAppendInfo:
            appended = append_records(partition, *arguments, **named)
            self._check_appender(partition)
            return appended

        def append_joined(partition: Partition, batches: Sequence[bytearray]) -> Sequence[int]:
            first_offsets = append_small_batches(partition, batches)
            if first_offsets:
                self._check_appender(partition)
            return first_offsets

        with (
            patch.object(Partition, "append_records", append),
            patch.object(Partition, "append_small_batches", append_joined),
        ):
            yield

    def _check_appender(self, partition: Partition) -> None:
        which = (partition.topic, partition.topic_id, partition.partition, partition.leader_epoch)
        self._check_leader(which, partition._broker_id)

    def check(self) -> None:
        for node, broker in running_brokers(self._cluster):
            for partition in broker.partitions:
                which = (partition.topic, partition.topic_id, partition.partition)
                least = self._may_fall_to(broker, partition)
                self._check_high_watermark((node.node_id, node.starts, *which), partition.log, least)
                if partition.is_leader:
                    self._check_leader((*which, partition.leader_epoch), node.node_id)
            if (log := metadata_log(broker)) is not None:
                self._check_high_watermark((node.node_id, node.starts, "metadata"), log)

    def _check_high_watermark(self, which: tuple[Any, ...], log: PartitionLog, least: int | None = None) -> None:
        now = log.high_watermark
        before, former_log = self._high_watermarks.get(which, (0, log))
        # A replica that was reassigned and assigned again has a new log.
        if former_log is log and now < (before if least is None else min(before, least)):
            self._trace.record_problem(
                f"broker {which[0]}: the high watermark of {which[2:]} fell from {before} to {now}"
            )
        self._high_watermarks[which] = now if least is None else min(now, least), log

    def _check_leader(self, which: tuple[Any, ...], node_id: int) -> None:
        first = self._leaders.setdefault(which, node_id)
        if first != node_id:
            self._trace.record_problem(
                f"brokers {first} and {node_id} both lead {which[0]}-{which[2]} in epoch {which[3]}"
            )
            self._leaders[which] = node_id


def differing_images(cluster: SimulatedCluster) -> Iterator[str]:
    """Describes differing end offsets of the brokers' metadata images, because clients may ask any
    broker.
    """
    ends = {broker.image.end_offset for _, broker in running_brokers(cluster)}
    if len(ends) > 1:
        yield f"images end at {sorted(ends)}"


def unsettled_replicas(cluster: SimulatedCluster) -> Iterator[str]:
    """Describes partitions whose replicas differ in their end or high watermark, or have records
    above the high watermark, and images that end at different offsets.
    """
    yield from differing_images(cluster)
    replicas = _replicas(cluster)
    for tp, found in replicas.items():
        states = {(partition.log.end, partition.log.high_watermark) for _, partition in found}
        if len(states) > 1 or any(end != high for end, high in states):
            yield f"replicas of {tp} have ends and high watermarks {sorted(states)}"


def _replicas(cluster: SimulatedCluster) -> dict[tuple[str, int], list[tuple[int, Partition]]]:
    found: dict[tuple[str, int], list[tuple[int, Partition]]] = {}
    for node, broker in running_brokers(cluster):
        for partition in broker.partitions:
            found.setdefault((partition.topic, partition.partition), []).append((node.node_id, partition))
    return found


def violations_at_rest(cluster: SimulatedCluster, history: History) -> Iterator[str]:
    yield from check_replicas_are_equal(cluster)
    yield from check_metadata_are_equal(cluster)
    yield from check_settings(cluster, history)


def check_replicas_are_equal(cluster: SimulatedCluster, *, trimmed: bool = False) -> Iterator[str]:
    """Compares replicas batch by batch below the high watermark. Replicas of compacted partitions
    are cleaned independently, so only their last values by key are compared.

    `trimmed`: records were deleted, so two logs are compared from the larger log start on.
    """
    for tp, found in _replicas(cluster).items():
        (first, reference), *others = found
        for node_id, partition in others:
            if tp[0] in COMPACTED:
                if latest_values(partition.log) != latest_values(reference.log):
                    yield f"replicas of {tp} on brokers {first} and {node_id} have different values"
                continue
            batches, expected = dict(committed_batches(partition.log)), dict(committed_batches(reference.log))
            start = max(partition.log.start, reference.log.start) if trimmed else 0
            if differing := sorted(
                at for at in batches.keys() | expected.keys() if batches.get(at) != expected.get(at) and at >= start
            ):
                yield f"replicas of {tp} on brokers {first} and {node_id} differ at {differing[:5]}"


def check_metadata_are_equal(cluster: SimulatedCluster) -> Iterator[str]:
    """Metadata logs are equal below both high watermarks, and images with the same end are
    equal.
    """
    logs: list[tuple[int, dict[int, bytes], int]] = []
    images: dict[int, tuple[int, MetadataImage]] = {}
    for node, broker in running_brokers(cluster):
        log = metadata_log(broker)
        if log is None:
            continue
        batches = dict(committed_batches(log))
        for other, other_batches, start in logs:
            common = max(start, log.start)
            for at in batches.keys() & other_batches.keys():
                if at >= common and batches[at] != other_batches[at]:
                    yield f"the metadata logs of brokers {other} and {node.node_id} differ at {at}"
        logs.append((node.node_id, batches, log.start))
        first, image = images.setdefault(broker.image.end_offset, (node.node_id, broker.image))
        for what in differing_fields(image, broker.image):
            yield f"the images of brokers {first} and {node.node_id} at {image.end_offset} differ in {what}"


def check_settings(cluster: SimulatedCluster, history: History) -> Iterator[str]:
    image = newest_image(cluster)
    if image is None:
        return
    for name, topic_state in history.existing_topics():
        for key, value in topic_state.settings.items():
            now = image.topic_config(name).get(key)
            if value is not None and now != value:
                yield f"{key} of topic {name} is {now}; {value} was acknowledged"


def differing_fields(one: MetadataImage, other: MetadataImage) -> list[str]:
    return [
        name
        for name in ("topics", "topic_names", "brokers", "configs", "next_producer_id")
        if getattr(one, name) != getattr(other, name)
    ]
