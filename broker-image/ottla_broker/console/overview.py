"""The overview: health, brokers, disks, reassignments, and the throughput of this broker."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from aiohttp import web

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import ClusterRequests, LogDir
from ottla_broker.console.health import assess_health
from ottla_broker.console.partition_census import CensusTaker, PartitionCensus
from ottla_broker.console.requests import PageRequest
from ottla_broker.console.throughput import SAMPLE_INTERVAL_S, ThroughputHistory, add_up
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource
from ottla_broker.security.client_quota_manager import ClientQuotaManager
from ottla_broker.server import Server
from ottla_broker.wire.api_keys import ApiKey

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """`state`: in session, shutting down, or not in session (fenced)."""

    id: int
    address: str
    rack: str
    state: str
    is_controller: bool
    leaders: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Reassignment:
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
    """Users with their client ids, and addresses: throttled since the broker started, and those
    that are over a quota now.
    """

    all: int
    now: int

    @classmethod
    def of(cls, quotas: ClientQuotaManager) -> "ThrottledClients":
        over_s: dict[tuple[str, str], float] = {}
        for (_, user, client_id), _, _, seconds in quotas.describe_throttled():
            over_s[user, client_id] = max(seconds, over_s.get((user, client_id), 0.0))
        return cls(len(over_s), sum(one > 0 for one in over_s.values()))


class Overview:
    def __init__(self, broker: Broker, server: Server, requests: ClusterRequests) -> None:
        self._broker = broker
        self._server = server
        self._requests = requests
        self._census = CensusTaker(broker.image, self._min_insync)
        self._history = ThroughputHistory()
        self._tasks = BackgroundTasks(broker.unrecoverable_errors.append)

    def start(self) -> None:
        self._tasks.start(self._sample())

    async def close(self) -> None:
        await self._tasks.cancel()

    async def show(self, page: PageRequest) -> web.Response:
        """Names topics only to users who may describe them, and counts only to those who may
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
            throttled=self._find_throttled(page),
            brokers=list(describe_brokers(self._broker, census, config.inter_broker_listener)),
            reassignments=[
                Reassignment.of(topic, state)
                for topic, state in census.reassigned
                if page.user.may(Operation.describe, Resource.topic(topic))
            ],
            may_describe=lambda topic: page.user.may(Operation.describe, Resource.topic(topic)),
        )

    async def show_log_dirs(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_LOG_DIRS)
        log_dirs, failures = await self._requests.log_dirs()
        return page.render("log_dirs.html", log_dirs=sorted(log_dirs, key=_by_broker), failures=failures)

    async def throughput(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_CLUSTER)
        return web.json_response(self._history.columns())

    async def _sample(self) -> None:
        while True:
            traffic = [partition.traffic for partition in self._broker.partitions]
            totals = add_up(traffic, self._server.dispatcher.request_counts)
            self._history.add(self._broker.runtime.now_ms() / 1000, totals)
            await asyncio.sleep(SAMPLE_INTERVAL_S)

    def _find_throttled(self, page: PageRequest) -> ThrottledClients | None:
        """None for users who may not describe quotas."""
        if not page.user.may(Operation.describe_configs, CLUSTER):
            return None
        return ThrottledClients.of(self._broker.client_quotas)

    def _min_insync(self, topic: str) -> int:
        return self._broker.config.log_config(self._broker.image.topic_config(topic)).min_insync_replicas


def find_own_problems(broker: Broker) -> list[str]:
    reasons = [] if broker.ready else ["it is starting or stopping"]
    reasons += [f"log directory {one.path} failed: {one.failure}" for one in broker.log_dirs if one.failure is not None]
    return reasons + broker.unrecoverable_errors


def describe_brokers(broker: Broker, census: PartitionCensus, listener: str) -> Iterator[BrokerRow]:
    for id_, one in sorted(broker.image.brokers.items()):
        endpoint = one.endpoints.get(listener)
        state = "not in session" if one.fenced else "shutting down" if one.shutting_down else "in session"
        yield BrokerRow(
            id_,
            "" if endpoint is None else f"{endpoint.host}:{endpoint.port}",
            one.rack or "",
            state,
            id_ == broker.controller_id,
            census.leaders[id_],
            census.replicas[id_],
        )


def _by_broker(log_dir: LogDir) -> tuple[int, str]:
    return log_dir.broker, log_dir.path
