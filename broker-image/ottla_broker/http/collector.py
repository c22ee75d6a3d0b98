"""Reads a broker's metrics at the moment of a scrape.

Collections that may have thousands of elements are read in slices, between which topics and groups
may come and go. A partition that is deleted meanwhile is still exposed, with its last values.
"""

import asyncio
import platform
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from typing import TypeVar

from ottla_broker import metrics
from ottla_broker.broker import Broker
from ottla_broker.coordination.classic_group import GroupState
from ottla_broker.coordination.consumer_group import ConsumerGroupState
from ottla_broker.coordination.group_type import CLASSIC, CONSUMER, SHARE, STREAMS
from ottla_broker.coordination.share_group import ShareGroupState
from ottla_broker.coordination.streams_group import StreamsGroupState
from ottla_broker.hot_paths import hot_paths_build
from ottla_broker.http.prometheus_text import format_labels
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.records import (
    NO_LEADER,
    AppendedPartitionRecord,
    MirroredPartitionRecord,
    PartitionRecord,
)
from ottla_broker.metrics import Metric, PartitionTraffic, Sample
from ottla_broker.mirroring.mirrored_partition import MirroredPartition
from ottla_broker.replication.partition import Partition
from ottla_broker.request_times import api_title
from ottla_broker.server import Server
from ottla_broker.time_slices import TimeSlices
from ottla_broker.transactions.transaction_metadata import TransactionState
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import KafkaError

T = TypeVar("T")

STARTING, RUNNING = 1, 3
PROTOCOLS = (CLASSIC, CONSUMER, STREAMS, SHARE)


Family = tuple[Metric, Iterable[Sample]]
"""A metric and its samples. A caller reads the samples before the next family: those of partitions
are computed only when they are read.
"""


async def collect_metrics(broker: Broker, server: Server, slices: TimeSlices) -> AsyncIterator[Family]:
    """One family of samples after the other."""
    hosted = list(broker.partitions)
    sliced = (
        _topics(hosted, slices),
        _replicas(broker, hosted, slices),
        _partitions(hosted, slices),
        _mirrors(broker, slices),
        _controller(broker, slices),
        _groups(broker, slices),
        _transactions(broker, slices),
        _connections(server, slices),
        broker.client_telemetry.metrics.families(broker.runtime.now_ms(), slices),
    )
    for families in sliced:
        async for family in families:
            yield family
    for collect in (_quorum, _directories, _quotas_and_audit, _client_telemetry, _tracing):
        for family in collect(broker):
            yield family
    for family in _server(server):
        yield family
    yield metrics.BUILD_INFO, [Sample((_version(), hot_paths_build(), platform.python_version()), 1)]


@cache
def _version() -> str:
    """The version of the installed distribution; "unknown" if Ottla is not installed."""
    try:
        return metadata.version("ottla")
    except metadata.PackageNotFoundError:
        return "unknown"


class QuorumRates:
    """Growth of the metadata log between two scrapes."""

    def __init__(self) -> None:
        self._last = 0.0, 0

    def collect(self, broker: Broker) -> Iterator[Family]:
        try:
            replica = broker.quorum.describe_replica()
        except KafkaError:
            return  # the metadata log is not open yet
        before_s, before = self._last
        now_s, end = asyncio.get_running_loop().time(), replica.log_end.offset
        self._last = now_s, end
        rate = max(0, end - before) / (now_s - before_s) if before_s and now_s > before_s else 0.0
        is_leader = replica.leader_id == broker.node_id
        yield single_sample(metrics.QUORUM_APPEND_RATE, rate if is_leader else 0.0)
        yield single_sample(metrics.QUORUM_FETCH_RATE, 0.0 if is_leader else rate)


def single_sample(metric: Metric, value: float) -> Family:
    return metric, [Sample((), value)]


async def _sums(
    items: Iterable[T], counted: tuple[tuple[Metric, Callable[[T], int]], ...], slices: TimeSlices
) -> AsyncIterator[Family]:
    """The sum of each function over all items."""
    totals = [0] * len(counted)
    async for batch in slices.batches(items):
        for number, (_, value) in enumerate(counted):
            totals[number] += sum(map(value, batch))
    for (metric, _), total in zip(counted, totals, strict=True):
        yield single_sample(metric, total)


_TOPIC_METRICS: tuple[tuple[Metric, Callable[[PartitionTraffic], int]], ...] = (
    (metrics.MESSAGES_IN, lambda traffic: traffic.messages_in),
    (metrics.BYTES_IN, lambda traffic: traffic.bytes_in),
    (metrics.BYTES_OUT, lambda traffic: traffic.bytes_out),
    (metrics.PRODUCE_REQUESTS, lambda traffic: traffic.produce_requests),
    (metrics.FETCH_REQUESTS, lambda traffic: traffic.fetch_requests),
    (metrics.FAILED_PRODUCE_REQUESTS, lambda traffic: traffic.failed_produce_requests),
)


async def _topics(hosted: Sequence[Partition], slices: TimeSlices) -> AsyncIterator[Family]:
    by_topic: list[Counter[str]] = [Counter() for _ in _TOPIC_METRICS]
    async for batch in slices.batches(hosted):
        for totals, (_, value) in zip(by_topic, _TOPIC_METRICS, strict=True):
            for partition in batch:
                totals[partition.topic] += value(partition.traffic)
    for totals, (metric, _) in zip(by_topic, _TOPIC_METRICS, strict=True):
        yield metric, (Sample((topic,), count) for topic, count in totals.items())


_REPLICA_METRICS: tuple[tuple[Metric, Callable[[Partition], int]], ...] = (
    (metrics.ISR_SHRINKS, lambda one: one.traffic.isr_shrinkages),
    (metrics.ISR_EXPANDS, lambda one: one.traffic.isr_expansions),
    (metrics.REPLICATION_BYTES_IN, lambda one: one.traffic.replication_in),
    (metrics.REPLICATION_BYTES_OUT, lambda one: one.traffic.replication_out),
    (metrics.OFFLINE_REPLICAS, lambda one: one.log.failure is not None),
    (metrics.LEADERS, lambda one: one.is_leader),
    (metrics.UNDER_REPLICATED, lambda one: one.is_leader and _is_under_replicated(one)),
    (metrics.UNDER_MIN_ISR, lambda one: one.is_leader and _is_under_min_isr(one)),
    (metrics.AT_MIN_ISR, lambda one: one.is_leader and _is_at_min_isr(one)),
    (metrics.REASSIGNING, lambda one: one.is_leader and bool(one.registration.adding or one.registration.removing)),
)


async def _replicas(broker: Broker, hosted: Sequence[Partition], slices: TimeSlices) -> AsyncIterator[Family]:
    yield single_sample(metrics.PARTITIONS, len(hosted))
    async for family in _sums(hosted, _REPLICA_METRICS, slices):
        yield family
    max_lag = 0
    async for batch in slices.batches(broker.replica_fetchers.lags()):
        max_lag = max(max_lag, *batch)
    yield single_sample(metrics.MAX_LAG, max_lag)
    yield single_sample(metrics.BROKER_STATE, RUNNING if broker.ready else STARTING)


_LOG_METRICS: tuple[tuple[Metric, Callable[[PartitionLog], int]], ...] = (
    (metrics.LOG_SIZE, lambda log: log.size),
    (metrics.LOG_START_OFFSET, lambda log: log.start),
    (metrics.LOG_END_OFFSET, lambda log: log.end),
    (metrics.LOG_SEGMENTS, lambda log: len(log.segments)),
    (metrics.HIGH_WATERMARK, lambda log: log.high_watermark),
)


async def _partitions(hosted: Sequence[Partition], slices: TimeSlices) -> AsyncIterator[Family]:
    """The labels are strings: thousands of tuples would trigger garbage collection, which nothing
    can interrupt.
    """
    texts: list[str] = []
    async for batch in slices.batches(hosted):
        texts += [format_labels(metrics.HIGH_WATERMARK.labels, (one.topic, str(one.partition))) for one in batch]
    for metric, read_log in _LOG_METRICS:
        yield metric, (Sample(labels, read_log(one.log)) for labels, one in zip(texts, hosted, strict=True))
    for metric, read in _PARTITION_METRICS:
        yield metric, (Sample(labels, read(one)) for labels, one in zip(texts, hosted, strict=True) if one.is_leader)


def _is_under_replicated(partition: Partition) -> bool:
    return len(partition.registration.isr) < len(partition.registration.replicas)


def _is_under_min_isr(partition: Partition) -> bool:
    return len(partition.registration.isr) < _required_isr(partition)


def _is_at_min_isr(partition: Partition) -> bool:
    return len(partition.registration.isr) == _required_isr(partition)


def _required_isr(partition: Partition) -> int:
    return min(partition.log.config.min_insync_replicas, len(partition.registration.replicas))


_PARTITION_METRICS: tuple[tuple[Metric, Callable[[Partition], int]], ...] = (
    (metrics.PARTITION_REPLICAS, lambda one: len(one.registration.replicas)),
    (metrics.PARTITION_ISR, lambda one: len(one.registration.isr)),
    (metrics.PARTITION_UNDER_MIN_ISR, lambda one: int(_is_under_min_isr(one))),
    (metrics.PARTITION_AT_MIN_ISR, lambda one: int(_is_at_min_isr(one))),
    (metrics.PARTITION_IS_PREFERRED, lambda one: int(one.registration.replicas[0] == one.registration.leader)),
)


def _quorum(broker: Broker) -> Iterator[Family]:
    try:
        replica = broker.quorum.describe_replica()
    except KafkaError:
        return  # the metadata log is not open yet
    role = "leader" if replica.leader_id == broker.node_id else "follower" if replica.leader_id >= 0 else "unattached"
    if broker.node_id not in [voter.broker for voter in replica.voters] and role == "follower":
        role = "observer"
    yield metrics.QUORUM_STATE, [Sample((role,), 1)]
    yield single_sample(metrics.QUORUM_LEADER, replica.leader_id)
    yield single_sample(metrics.QUORUM_VOTE, replica.voted_id)
    yield single_sample(metrics.QUORUM_EPOCH, replica.epoch)
    yield single_sample(metrics.QUORUM_HIGH_WATERMARK, replica.high_watermark)
    yield single_sample(metrics.QUORUM_LOG_END, replica.log_end.offset)


async def _transactions(broker: Broker, slices: TimeSlices) -> AsyncIterator[Family]:
    states: Counter[TransactionState] = Counter()
    with suppress(KafkaError):  # 0 in each state while a coordinator is loading or has no session
        async for batch in slices.batches(broker.transactions.coordinator.list_transactions()):
            states.update(one.state for _, one in batch)
    yield metrics.TRANSACTIONS, [Sample((state.name,), states[state]) for state in TransactionState]


async def _mirrors(broker: Broker, slices: TimeSlices) -> AsyncIterator[Family]:
    now_s = asyncio.get_running_loop().time()
    copies: list[tuple[tuple[str, str, str], MirroredPartition]] = []
    manager = broker.mirrors.manager
    async for batch in slices.batches(manager.mirrored_partitions() if manager is not None else ()):
        copies += [
            ((mirror.name, copy.partition.topic, str(copy.partition.partition)), copy)
            for mirror, copy in batch
            if copy.source_high_watermark >= 0
        ]
    yield metrics.MIRROR_LAG, (Sample(labels, copy.lag) for labels, copy in copies)
    yield metrics.MIRROR_LAG_SECONDS, (Sample(labels, copy.lag_s(now_s)) for labels, copy in copies)
    lag_bytes = ((labels, copy.lag_bytes) for labels, copy in copies)
    yield metrics.MIRROR_LAG_BYTES, (Sample(labels, size) for labels, size in lag_bytes if size >= 0)
    yield metrics.MIRROR_SILENCE, (Sample(labels, copy.source_silence_s(now_s)) for labels, copy in copies)
    diverged_count = 0
    async for failbacks in slices.batches(manager.failback_partitions() if manager is not None else ()):
        diverged_count += sum(one.needs_operator for one in failbacks)
    yield single_sample(metrics.MIRROR_DIVERGED, diverged_count)
    image, stopped_count = broker.image, 0
    mirrored: list[MirroredPartitionRecord | AppendedPartitionRecord] = list(image.mirrored_partitions.values())
    mirrored += image.appended_partitions.values()
    async for records in slices.batches(mirrored):
        states = (image.partition(record.topic, record.partition) for record in records if record.stopped)
        stopped_count += sum(one is not None and one.leader == broker.node_id for one in states)
    yield single_sample(metrics.MIRROR_STOPPED, stopped_count)


def _directories(broker: Broker) -> Iterator[Family]:
    failed_count = sum(directory.failure is not None for directory in broker.log_dirs)
    yield single_sample(metrics.OFFLINE_DIRECTORIES, failed_count)


def _quotas_and_audit(broker: Broker) -> Iterator[Family]:
    throttled = [(usage, one) for usage, one in broker.client_quotas.throttled.items() if one.count]
    yield single_sample(metrics.AUDIT_DROPPED, broker.audit_log.dropped)
    yield metrics.THROTTLED, (Sample(usage, one.count) for usage, one in throttled)
    yield metrics.THROTTLE_SECONDS, (Sample(usage, one.seconds) for usage, one in throttled)


def _client_telemetry(broker: Broker) -> Iterator[Family]:
    pushed = broker.client_telemetry.metrics
    yield single_sample(metrics.TELEMETRY_PUSHES, pushed.pushes)
    yield single_sample(metrics.TELEMETRY_DROPPED, pushed.dropped)


def _tracing(broker: Broker) -> Iterator[Family]:
    counts = broker.trace_counts
    yield single_sample(metrics.SPANS_EXPORTED, counts.exported_spans)
    yield single_sample(metrics.SPANS_DROPPED, counts.dropped_spans)
    yield single_sample(metrics.REQUESTS_LIMITED, counts.limited_requests)


_CLUSTER_METRICS: tuple[tuple[Metric, Callable[[PartitionRecord], int]], ...] = (
    (metrics.CLUSTER_PARTITIONS, lambda _: 1),
    (metrics.LEADERLESS, lambda partition: partition.leader == NO_LEADER),
    (metrics.NOT_PREFERRED, lambda partition: partition.leader != partition.replicas[0]),
)


async def _controller(broker: Broker, slices: TimeSlices) -> AsyncIterator[Family]:
    image = broker.image
    active = broker.controller is not None
    yield single_sample(metrics.ACTIVE_CONTROLLER, int(active))
    if not active:
        return
    fenced_count = sum(one.fenced for one in image.brokers.values())
    yield single_sample(metrics.ACTIVE_BROKERS, len(image.brokers) - fenced_count)
    yield single_sample(metrics.FENCED_BROKERS, fenced_count)
    yield single_sample(metrics.TOPICS, len(image.topics))
    partitions = (one for topic in list(image.topics.values()) for one in list(topic.partitions.values()))
    async for family in _sums(partitions, _CLUSTER_METRICS, slices):
        yield family


async def _groups(broker: Broker, slices: TimeSlices) -> AsyncIterator[Family]:
    try:
        groups = broker.group_coordinator.list_groups() if broker.ready else []
    except KafkaError:
        groups = []  # counted as 0 while a coordinator is loading or has no session
    types: Counter[str] = Counter()
    states: Counter[str] = Counter()
    by_type: Counter[tuple[str, str]] = Counter()
    async for batch in slices.batches(groups):
        types.update(group.type for group in batch)
        states.update(str(group.state) for group in batch)
        by_type.update((group.type, str(group.state)) for group in batch)
    yield metrics.GROUP_COUNT, [Sample((protocol,), types[protocol]) for protocol in PROTOCOLS]
    for metric, kind, known in (
        (metrics.CONSUMER_GROUP_COUNT, CONSUMER, ConsumerGroupState),
        (metrics.STREAMS_GROUP_COUNT, STREAMS, StreamsGroupState),
        (metrics.SHARE_GROUP_COUNT, SHARE, ShareGroupState),
    ):
        yield metric, [Sample((state.name,), by_type[kind, state.value]) for state in known]
    committed = broker.group_coordinator.committed_offsets() if groups else ()
    yield (
        metrics.GROUP_OFFSET,
        (Sample((key.group, key.topic, str(key.partition)), offset) for key, offset in committed),
    )
    yield single_sample(metrics.GROUPS, states.total())
    for metric, state in (
        (metrics.GROUPS_STABLE, GroupState.stable),
        (metrics.GROUPS_EMPTY, GroupState.empty),
        (metrics.GROUPS_PREPARING, GroupState.preparing),
        (metrics.GROUPS_COMPLETING, GroupState.completing),
        (metrics.GROUPS_DEAD, GroupState.dead),
    ):
        yield single_sample(metric, states[state])


async def _connections(server: Server, slices: TimeSlices) -> AsyncIterator[Family]:
    listeners: Counter[str] = Counter()
    waiting: Counter[str] = Counter(Produce=0)
    async for batch in slices.batches(list(server.connections)):
        listeners.update(connection.state.listener for connection in batch)
        waiting.update(api_title(request.api) for connection in batch for request in connection.waiting_requests())
    for metric in (metrics.CONNECTIONS, metrics.STRIMZI_CONNECTIONS):
        yield metric, [Sample((name,), count) for name, count in sorted(listeners.items())]
    for title in ("FetchConsumer", "FetchFollower"):
        waiting["Fetch"] += waiting.pop(title, 0)
    waiting["Rebalance"] = waiting.pop("JoinGroup", 0)
    yield metrics.WAITING, [Sample((operation,), count) for operation, count in sorted(waiting.items())]


def _server(server: Server) -> Iterator[Family]:
    served = server.dispatcher.request_counts
    counted = [key for key in ApiKey if key < metrics.API_KEY_LIMIT and served[key]]  # without Ottla's own APIs
    yield metrics.REQUESTS, [Sample((key.title,), served[key]) for key in counted]
    expiry = sorted(server.certificates.expire_at_s.items())
    yield metrics.CERTIFICATE_EXPIRY, [Sample((listener,), at_s) for listener, at_s in expiry]
    yield single_sample(metrics.CONNECTIONS_REFUSED, server.refused_connections)
    yield single_sample(metrics.REQUEST_MEMORY, server.request_memory.allocated_bytes)
    yield single_sample(metrics.RESPONSE_MEMORY, server.response_memory.allocated_bytes)
