"""Reads a broker's metrics at the moment of a scrape."""

import asyncio
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import metadata

from ottla_broker import metrics
from ottla_broker.broker import Broker
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.consumer_group import ConsumerGroup, ConsumerGroupState
from ottla_broker.coordination.share_group import ShareGroup, ShareGroupState
from ottla_broker.coordination.streams_group import StreamsGroup, StreamsGroupState
from ottla_broker.hot_paths import hot_paths_build
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.records import METADATA_TOPIC, NO_LEADER
from ottla_broker.metrics import Metric, Sample
from ottla_broker.replication.partition import Partition
from ottla_broker.request_times import api_title
from ottla_broker.server import Server
from ottla_broker.transactions.transaction_metadata import TransactionState
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import KafkaError

STARTING, RUNNING = 1, 3
PROTOCOLS = (ClassicGroup.type, ConsumerGroup.type, StreamsGroup.type, ShareGroup.type)


Family = tuple[Metric, Iterable[Sample]]
"""Read before the next family is asked for: samples of partitions are made as they are written."""


def collect_metrics(broker: Broker, server: Server) -> Iterator[Family]:
    """One family of samples after the other, so that the caller can yield to the loop between two
    of them.
    """
    for collect in (
        _topics,
        _replicas,
        _partitions,
        _mirrors,
        _controller,
        _quorum,
        _logs,
        _groups,
        _transactions,
        _quotas,
        _client_telemetry,
        _tracing,
    ):
        yield from collect(broker)
    yield from _server(server)
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


def _topics(broker: Broker) -> Iterator[Family]:
    records: Counter[str] = Counter()
    written: Counter[str] = Counter()
    read: Counter[str] = Counter()
    produces: Counter[str] = Counter()
    fetches: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for partition in broker.partitions:
        records[partition.topic] += partition.traffic.messages_in
        written[partition.topic] += partition.traffic.bytes_in
        read[partition.topic] += partition.traffic.bytes_out
        produces[partition.topic] += partition.traffic.produce_requests
        fetches[partition.topic] += partition.traffic.fetch_requests
        failed[partition.topic] += partition.traffic.failed_produce_requests
    for metric, counted in (
        (metrics.MESSAGES_IN, records),
        (metrics.BYTES_IN, written),
        (metrics.BYTES_OUT, read),
        (metrics.PRODUCE_REQUESTS, produces),
        (metrics.FETCH_REQUESTS, fetches),
        (metrics.FAILED_PRODUCE_REQUESTS, failed),
    ):
        yield metric, [Sample((topic,), count) for topic, count in sorted(counted.items())]


def _replicas(broker: Broker) -> Iterator[Family]:
    led = [partition for partition in broker.partitions if partition.is_leader]
    isr_sizes = [
        (len(p.registration.isr), min(p.log.config.min_insync_replicas, len(p.registration.replicas))) for p in led
    ]
    yield single_sample(metrics.PARTITIONS, len(broker.partitions))
    yield single_sample(metrics.LEADERS, len(led))
    yield single_sample(
        metrics.UNDER_REPLICATED, sum(len(p.registration.isr) < len(p.registration.replicas) for p in led)
    )
    yield single_sample(metrics.UNDER_MIN_ISR, sum(size < minimum for size, minimum in isr_sizes))
    yield single_sample(metrics.AT_MIN_ISR, sum(size == minimum for size, minimum in isr_sizes))
    yield single_sample(metrics.REASSIGNING, sum(bool(p.registration.adding or p.registration.removing) for p in led))
    yield single_sample(metrics.ISR_SHRINKS, sum(p.traffic.isr_shrinkages for p in broker.partitions))
    yield single_sample(metrics.ISR_EXPANDS, sum(p.traffic.isr_expansions for p in broker.partitions))
    yield single_sample(metrics.MAX_LAG, broker.replica_fetchers.max_lag)
    yield single_sample(metrics.REPLICATION_BYTES_IN, sum(p.traffic.replication_in for p in broker.partitions))
    yield single_sample(metrics.REPLICATION_BYTES_OUT, sum(p.traffic.replication_out for p in broker.partitions))
    yield single_sample(metrics.OFFLINE_REPLICAS, sum(p.log.failure is not None for p in broker.partitions))
    yield single_sample(metrics.BROKER_STATE, RUNNING if broker.ready else STARTING)


def _partitions(broker: Broker) -> Iterator[Family]:
    led = [((one.topic, str(one.partition)), one) for one in broker.partitions if one.is_leader]
    for metric, value in _PARTITION_METRICS:
        yield metric, (Sample(labels, value(partition)) for labels, partition in led)


def _required_isr(partition: Partition) -> int:
    return min(partition.log.config.min_insync_replicas, len(partition.registration.replicas))


_PARTITION_METRICS: tuple[tuple[Metric, Callable[[Partition], int]], ...] = (
    (metrics.PARTITION_REPLICAS, lambda one: len(one.registration.replicas)),
    (metrics.PARTITION_ISR, lambda one: len(one.registration.isr)),
    (metrics.PARTITION_UNDER_MIN_ISR, lambda one: int(len(one.registration.isr) < _required_isr(one))),
    (metrics.PARTITION_AT_MIN_ISR, lambda one: int(len(one.registration.isr) == _required_isr(one))),
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


def _transactions(broker: Broker) -> Iterator[Family]:
    try:
        states = Counter(one.state for _, one in broker.transactions.coordinator.list_transactions())
    except KafkaError:
        states = Counter()  # a coordinator is loading: no counts rather than wrong ones
    yield metrics.TRANSACTIONS, [Sample((state.name,), states[state]) for state in TransactionState]


def _mirrors(broker: Broker) -> Iterator[Family]:
    now_s = asyncio.get_running_loop().time()
    copies = [
        ((mirror.name, copy.partition.topic, str(copy.partition.partition)), copy)
        for mirror, copy in broker.mirrors.mirrored_partitions()
        if copy.source_high_watermark >= 0
    ]
    yield metrics.MIRROR_LAG, [Sample(labels, copy.lag) for labels, copy in copies]
    yield metrics.MIRROR_LAG_SECONDS, [Sample(labels, copy.lag_s(now_s)) for labels, copy in copies]
    lag_bytes = [(labels, size) for labels, copy in copies if (size := copy.lag_bytes) >= 0]
    yield metrics.MIRROR_LAG_BYTES, [Sample(labels, size) for labels, size in lag_bytes]
    yield metrics.MIRROR_SILENCE, [Sample(labels, copy.source_silence_s(now_s)) for labels, copy in copies]
    yield single_sample(
        metrics.MIRROR_DIVERGED, sum(one.needs_operator for one in broker.mirrors.failback_partitions())
    )
    stopped = [key for key, record in broker.image.mirrored_partitions.items() if record.stopped]
    stopped += [
        (topic, index) for (topic, _, index), record in broker.image.appended_partitions.items() if record.stopped
    ]
    led = (broker.image.partition(*key) for key in stopped)
    yield single_sample(metrics.MIRROR_STOPPED, sum(one is not None and one.leader == broker.node_id for one in led))


def _quotas(broker: Broker) -> Iterator[Family]:
    throttled = [(usage, one) for usage, one in broker.client_quotas.throttled.items() if one.count]
    yield single_sample(metrics.AUDIT_DROPPED, broker.audit_log.dropped)
    yield metrics.THROTTLED, [Sample(usage, one.count) for usage, one in throttled]
    yield metrics.THROTTLE_SECONDS, [Sample(usage, one.seconds) for usage, one in throttled]


def _client_telemetry(broker: Broker) -> Iterator[Family]:
    pushed = broker.client_telemetry.metrics
    yield single_sample(metrics.TELEMETRY_PUSHES, pushed.pushes)
    yield single_sample(metrics.TELEMETRY_DROPPED, pushed.dropped)
    yield from pushed.families(broker.runtime.now_ms())


def _tracing(broker: Broker) -> Iterator[Family]:
    counts = broker.trace_counts
    yield single_sample(metrics.SPANS_EXPORTED, counts.exported_spans)
    yield single_sample(metrics.SPANS_DROPPED, counts.dropped_spans)
    yield single_sample(metrics.REQUESTS_LIMITED, counts.limited_requests)


def _controller(broker: Broker) -> Iterator[Family]:
    image = broker.image
    active = broker.controller is not None
    yield single_sample(metrics.ACTIVE_CONTROLLER, int(active))
    if not active:
        return
    partitions = [partition for topic in image.topics.values() for partition in topic.partitions.values()]
    fenced = sum(one.fenced for one in image.brokers.values())
    yield single_sample(metrics.TOPICS, len(image.topics))
    yield single_sample(metrics.CLUSTER_PARTITIONS, len(partitions))
    yield single_sample(metrics.LEADERLESS, sum(partition.leader == NO_LEADER for partition in partitions))
    yield single_sample(
        metrics.NOT_PREFERRED, sum(partition.leader != partition.replicas[0] for partition in partitions)
    )
    yield single_sample(metrics.ACTIVE_BROKERS, len(image.brokers) - fenced)
    yield single_sample(metrics.FENCED_BROKERS, fenced)


_LOG_METRICS: tuple[tuple[Metric, Callable[[PartitionLog], int]], ...] = (
    (metrics.LOG_SIZE, lambda log: log.size),
    (metrics.LOG_START_OFFSET, lambda log: log.start),
    (metrics.LOG_END_OFFSET, lambda log: log.end),
    (metrics.LOG_SEGMENTS, lambda log: len(log.segments)),
    (metrics.HIGH_WATERMARK, lambda log: log.high_watermark),
)


def _logs(broker: Broker) -> Iterator[Family]:
    logs = [
        ((topic, str(partition)), log)
        for directory in broker.log_dirs
        for (topic, partition), log in sorted(directory.logs.items())
        if topic != METADATA_TOPIC
    ]
    for metric, value in _LOG_METRICS:
        yield metric, (Sample(labels, value(log)) for labels, log in logs)
    yield single_sample(
        metrics.OFFLINE_DIRECTORIES, sum(directory.failure is not None for directory in broker.log_dirs)
    )


def _groups(broker: Broker) -> Iterator[Family]:
    try:
        groups = broker.group_coordinator.list_groups() if broker.ready else []
    except KafkaError:
        groups = []  # a coordinator is loading: no counts rather than wrong ones
    states = Counter(group.state for group in groups)
    types = Counter(group.type for group in groups)
    yield metrics.GROUP_COUNT, [Sample((protocol,), types[protocol]) for protocol in PROTOCOLS]
    by_type = Counter((group.type, str(group.state)) for group in groups)
    for metric, kind, known in (
        (metrics.CONSUMER_GROUP_COUNT, ConsumerGroup.type, ConsumerGroupState),
        (metrics.STREAMS_GROUP_COUNT, StreamsGroup.type, StreamsGroupState),
        (metrics.SHARE_GROUP_COUNT, ShareGroup.type, ShareGroupState),
    ):
        yield metric, [Sample((state.name,), by_type[kind, state.value]) for state in known]
    committed = broker.group_coordinator.committed_offsets() if groups else ()
    yield (
        metrics.GROUP_OFFSET,
        [Sample((key.group, key.topic, str(key.partition)), offset) for key, offset in committed],
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


def _server(server: Server) -> Iterator[Family]:
    served = server.dispatcher.request_counts
    counted = [key for key in ApiKey if key < metrics.API_KEY_LIMIT and served[key]]  # Ottla's own are not
    yield metrics.REQUESTS, [Sample((key.title,), served[key]) for key in counted]
    listeners = Counter(connection.state.listener for connection in server.connections)
    for metric in (metrics.CONNECTIONS, metrics.STRIMZI_CONNECTIONS):
        yield metric, [Sample((name,), count) for name, count in sorted(listeners.items())]
    waiting = Counter(api_title(request.api) for one in server.connections for request in one.waiting_requests())
    for title in ("FetchConsumer", "FetchFollower"):
        waiting["Fetch"] += waiting.pop(title, 0)
    waiting["Rebalance"] = waiting.pop("JoinGroup", 0)
    waiting["Produce"] += 0
    yield metrics.WAITING, [Sample((operation,), count) for operation, count in sorted(waiting.items())]
    expiry = sorted(server.certificates.expire_at_s.items())
    yield metrics.CERTIFICATE_EXPIRY, [Sample((listener,), at_s) for listener, at_s in expiry]
    yield single_sample(metrics.CONNECTIONS_REFUSED, server.refused_connections)
    yield single_sample(metrics.REQUEST_MEMORY, server.requests.allocated_bytes)
    yield single_sample(metrics.RESPONSE_MEMORY, server.responses.allocated_bytes)
