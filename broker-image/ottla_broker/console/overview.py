"""The overview: health, brokers, elections, reassignments, restarts, disks, and the throughput
and latency of this broker.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.console.broker_history import OBSERVE_INTERVAL_S, BrokerHistory, BrokerState
from ottla_broker.console.cluster_requests import ClusterRequests, Failures
from ottla_broker.console.health import assess_health
from ottla_broker.console.partition_census import CensusTaker, PartitionCensus
from ottla_broker.console.requests import PageRequest
from ottla_broker.console.restarts import SILENT_S, describe_restarts, describe_roll
from ottla_broker.console.throughput import FIRST_INTERVAL_S, SAMPLE_INTERVAL_S, ThroughputHistory, sum_totals
from ottla_broker.console.topics import may_describe_topic
from ottla_broker.console.waiting_partitions import WaitingPartition, describe_waiting
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource
from ottla_broker.security.client_quota_manager import ClientQuotaManager
from ottla_broker.server import Server
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.errors import KafkaError


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """`leaders`: number of partitions that the broker leads. `replicas`: number of its replicas."""

    id: int
    address: str
    rack: str
    state: BrokerState
    is_controller: bool
    leaders: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Reassignment:
    """`catching_up`: the brokers of `adding` that are not in sync yet."""

    topic: str
    partition: int
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    catching_up: tuple[int, ...]

    @classmethod
    def of(cls, topic: str, state: PartitionRecord) -> "Reassignment":
        catching_up = tuple(one for one in state.adding if one not in state.isr)
        return cls(topic, state.partition, state.adding, state.removing, catching_up)


@dataclass(frozen=True, slots=True)
class ThrottledClients:
    """Number of clients, by user or address and client id, that this broker has throttled since it
    started, and of those that are over a quota now.
    """

    since_start: int
    now: int

    @classmethod
    def of(cls, quotas: ClientQuotaManager) -> "ThrottledClients":
        over_s: dict[tuple[str, str], float] = {}
        for (_, user, client_id), _, _, seconds in quotas.describe_throttled():
            over_s[user, client_id] = max(seconds, over_s.get((user, client_id), 0.0))
        return cls(len(over_s), sum(one > 0 for one in over_s.values()))


class Overview:
    """The overview and the parts that it loads. `start` begins to sample throughput and to observe
    brokers.
    """

    def __init__(self, broker: Broker, server: Server, requests: ClusterRequests) -> None:
        self._broker = broker
        self._server = server
        self._requests = requests
        self._census = CensusTaker(broker.image, self._min_insync)
        self._history = ThroughputHistory()
        self._brokers = BrokerHistory()
        self._tasks = BackgroundTasks(broker.unrecoverable_errors.append)

    def start(self) -> None:
        self._tasks.start(self._sample())
        self._tasks.start(self._observe_brokers())

    async def close(self) -> None:
        await self._tasks.cancel()

    async def show(self, page: PageRequest) -> web.Response:
        """Names topics only to users who may describe them, and shows counts only to those who may
        describe the cluster.
        """
        if not page.user.may(Operation.describe, CLUSTER):
            return page.render("overview_denied.html")
        census = await self._census.current()
        image, config = self._broker.image, self._broker.config
        controller = self._broker.controller_id
        health = assess_health(list(image.brokers.values()), controller, census, find_own_problems(self._broker))
        return page.render(
            "overview_parts.html" if page.wants_fragment else "overview.html",
            health=health,
            census=census,
            throttled=self._count_throttled(page),
            brokers=list(describe_brokers(self._broker, self._brokers, census, config.inter_broker_listener)),
            elections=list(self._describe_elections(page, census)),
            reassignments=[
                Reassignment.of(topic, state)
                for topic, state in census.reassigned
                if page.user.may(Operation.describe, Resource.topic(topic))
            ],
            may_describe=partial(may_describe_topic, page),
        )

    async def show_restarts(self, page: PageRequest) -> web.Response:
        """Restarts of brokers, and the rolling restart that the operator has reported. The part is
        empty if no restart is in progress and no request for the facts has failed.
        """
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_CLUSTER)
        census = await self._census.current()
        bytes_behind, failures = await self._find_bytes_behind(census)
        roll = None
        try:
            roll = await self._requests.find_roll()
        except (KafkaError, OSError) as reason:
            failures = (*failures, f"The controller does not respond: {reason or 'timeout'}.")
        now_s = asyncio.get_running_loop().time()
        return page.render(
            "restarts.html",
            restarts=describe_restarts(self._broker.image.brokers, self._brokers, census, bytes_behind, now_s),
            roll=roll,
            roll_sentences=[] if roll is None else list(describe_roll(roll.report, partial(may_describe_topic, page))),
            silent_s=SILENT_S,
            failures=failures,
        )

    async def show_log_dirs(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_LOG_DIRS)
        log_dirs, failures = await self._requests.find_log_dirs()
        return page.render(
            "log_dirs.html", log_dirs=sorted(log_dirs, key=lambda it: (it.broker, it.path)), failures=failures
        )

    async def throughput(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_CLUSTER)
        return web.json_response(self._history.columns())

    async def _sample(self) -> None:
        interval_s = FIRST_INTERVAL_S  # so that the plots of a broker that has just started are not empty
        while True:
            traffic = [partition.traffic for partition in self._broker.partitions]
            dispatcher = self._server.dispatcher
            totals = sum_totals(traffic, dispatcher.request_counts, dispatcher.request_times.by_api)
            self._history.add(self._broker.runtime.now_ms() / 1000, totals)
            await asyncio.sleep(interval_s)
            interval_s = SAMPLE_INTERVAL_S

    async def _observe_brokers(self) -> None:
        while True:
            self._brokers.observe(self._broker.image.brokers.values(), asyncio.get_running_loop().time())
            await asyncio.sleep(OBSERVE_INTERVAL_S)

    async def _find_bytes_behind(self, census: PartitionCensus) -> tuple[dict[int, int], Failures]:
        """By unfenced broker, how many bytes shorter its replicas are than their leaders, as far as
        the census names them. Replicas are left out if either size is unknown.
        """
        image = self._broker.image
        unfenced = {one.id for one in image.unfenced_brokers()}
        requested: dict[int, set[TopicPartition]] = defaultdict(set)
        pairs: list[tuple[int, int, TopicPartition]] = []
        for broker in unfenced & census.behind_named.keys():
            for topic, index in census.behind_named[broker]:
                state = image.topics[topic].partitions.get(index) if topic in image.topics else None
                if state is not None and state.leader in unfenced:
                    pairs.append((broker, state.leader, (topic, index)))
                    requested[broker].add((topic, index))
                    requested[state.leader].add((topic, index))
        sizes, failures = await self._requests.find_replica_bytes(requested)
        behind: Counter[int] = Counter()
        for broker, leader, partition in pairs:
            own, whole = sizes.get((broker, *partition)), sizes.get((leader, *partition))
            if own is not None and whole is not None:
                behind[broker] += max(0, whole - own)
        return dict(behind), failures

    def _describe_elections(self, page: PageRequest, census: PartitionCensus) -> Iterator[WaitingPartition]:
        """The partitions without a leader that the census names, and the brokers that their
        elections wait for.
        """
        image = self._broker.image
        for topic, index in census.offline:
            state = image.topics[topic].partitions.get(index) if topic in image.topics else None
            if state is not None and state.leader == NO_LEADER and may_describe_topic(page, topic):
                yield describe_waiting(topic, state, image.brokers)

    def _count_throttled(self, page: PageRequest) -> ThrottledClients | None:
        """None for users who may not describe quotas."""
        if not page.user.may(Operation.describe_configs, CLUSTER):
            return None
        return ThrottledClients.of(self._broker.client_quotas)

    def _min_insync(self, topic: str) -> int:
        return self._broker.config.log_config(self._broker.image.topic_config(topic)).min_insync_replicas


def find_own_problems(broker: Broker) -> list[str]:
    """Reasons why this broker is not ready."""
    reasons = [] if broker.ready else ["it is starting or stopping"]
    reasons += [f"log directory {one.path} failed: {one.failure}" for one in broker.log_dirs if one.failure is not None]
    return reasons + broker.unrecoverable_errors


def describe_brokers(
    broker: Broker, history: BrokerHistory, census: PartitionCensus, listener: str
) -> Iterator[BrokerRow]:
    for id_, one in sorted(broker.image.brokers.items()):
        endpoint = one.endpoints.get(listener)
        yield BrokerRow(
            id_,
            "" if endpoint is None else f"{endpoint.host}:{endpoint.port}",
            one.rack or "",
            history.phase(id_).state,
            id_ == broker.controller_id,
            census.leaders[id_],
            census.replicas[id_],
        )
