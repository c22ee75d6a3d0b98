"""Measures the topics of one cluster for the live view: records, bytes and lag, and what each
broker has.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla_operator.formatting import format_count, format_size
from ottla_operator.kafka import groups, log_dirs, offsets, topics
from ottla_operator.kafka.client import InvalidAddress, KafkaClient, Unreachable, connect
from ottla_operator.kafka.cluster import describe_cluster
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.reassignments import list_reassignments, measure_progress
from ottla_operator.local.live_view import BrokerRow, LiveView, State, TopicRow
from ottla_operator.reconcile.platform import BrokerAccess

MEASURE_S: Final = 1.0
EAGER_MEASURE_S: Final = 0.1  # until the first message, whose time is shown
EAGER_FOR_S: Final = 60.0
MEASURE_SIZES_S: Final = 3.0  # bytes and groups cost more, and change more slowly
RETRY_S: Final = 0.2
CONNECT_TIMEOUT_S: Final = 10.0
FIRST_MESSAGE: Final = "first message"


@dataclass(slots=True)
class TopicMetrics:
    """`access`: addresses and security to reach ready brokers. `is_managed`: whether a Topic
    resource describes the topic of this name. `measured`: set after the first measurement; records
    that existed then are not reported as the first message.
    """

    cluster: str
    view: LiveView
    access: Callable[[], BrokerAccess]
    is_managed: Callable[[str], bool]
    measured: asyncio.Event = field(default_factory=asyncio.Event)
    _ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    _previous: dict[str, int] | None = None
    """Topic → sum of its partitions' log ends, at the last measurement."""
    _previous_s: float = 0.0

    async def run(self) -> None:
        """Measures until it is cancelled."""
        loop = asyncio.get_running_loop()
        began_s = sizes_at_s = loop.time()
        while True:
            try:
                security = self.access().security
                async with self._connect() as client:
                    while self.access().security == security:  # another one after passwords were rotated
                        await self.measure(client)
                        if loop.time() >= sizes_at_s:
                            sizes_at_s = loop.time() + MEASURE_SIZES_S
                            await self.measure_sizes(client)
                        is_eager = FIRST_MESSAGE not in self.view.milestones and loop.time() < began_s + EAGER_FOR_S
                        await asyncio.sleep(EAGER_MEASURE_S if is_eager else MEASURE_S)
            except (KafkaError, Unreachable, InvalidAddress):  # brokers report what is wrong with them themselves
                await asyncio.sleep(RETRY_S)

    def _connect(self) -> AbstractAsyncContextManager[KafkaClient]:
        access = self.access()
        return connect(",".join(access.addresses), CONNECT_TIMEOUT_S, access.security)

    async def measure_for_summary(self) -> None:
        """Measures a last time before the brokers are stopped. Does nothing if none answers."""
        try:
            async with self._connect() as client:
                await self.measure(client)
                await self.measure_sizes(client)
        except (KafkaError, Unreachable, InvalidAddress):
            return

    async def measure(self, client: KafkaClient) -> None:
        """Counts records. Raises KafkaError, Unreachable."""
        found = await topics.list_topics(client)
        self._show_brokers(found)
        user_topics = [it for it in found if not it.is_internal and not it.name.startswith("__")]
        self._ends, starts = await asyncio.gather(
            offsets.list_offsets(client, user_topics, LATEST_TIMESTAMP),
            offsets.list_offsets(client, user_topics, EARLIEST_TIMESTAMP),
        )
        now_s = asyncio.get_running_loop().time()
        log_ends = self._show_topics(user_topics, self._ends, starts, now_s - self._previous_s)
        previous, self._previous, self._previous_s = self._previous, log_ends, now_s
        if previous is not None and any(end > previous.get(name, 0) for name, end in log_ends.items()):
            self.view.reach(FIRST_MESSAGE)
        self.measured.set()

    async def measure_sizes(self, client: KafkaClient) -> None:
        """Measures bytes, lags and progress of reassignments. Raises KafkaError, Unreachable."""
        described = await describe_cluster(client)
        brokers = [it.id for it in described.brokers]
        for id_, broker in self._broker_rows():
            broker.is_controller = id_ == described.controller
        for name, size in log_dirs.sum_by_topic(await log_dirs.describe_replica_sizes(client, brokers)).items():
            if (self.cluster, name) in self.view.topics:
                self.view.topics[self.cluster, name].bytes = size
        await self._show_lags(client, brokers)
        await self._show_reassignments(client)

    def _show_topics(
        self,
        described: Sequence[topics.TopicDescription],
        ends: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
        elapsed_s: float,
    ) -> dict[str, int]:
        """Updates the topics' rows. Returns each topic's sum of log ends, which grows by one with
        every record. For a topic with a partition without a leader it is the previous sum, and the
        row keeps its number of records and its rate.
        """
        existing = {it.name for it in described}
        for cluster, name in [*self.view.topics]:
            if cluster == self.cluster and name not in existing and not self.is_managed(name):
                del self.view.topics[cluster, name]
        log_ends: dict[str, int] = {}
        for topic in described:
            row = self.view.topics.setdefault((self.cluster, topic.name), TopicRow(self.cluster, topic.name))
            row.partitions = len(topic.partitions)
            if not self.is_managed(topic.name):
                row.state, row.note = State.ready, "created by a client"
            partitions = [(topic.name, it.index) for it in topic.partitions]
            previous = (self._previous or {}).get(topic.name)
            if not all(it in ends for it in partitions):
                log_ends |= {topic.name: previous} if previous is not None else {}
                continue
            log_ends[topic.name] = sum(ends[it] for it in partitions)
            row.records = sum(ends[it] - starts.get(it, 0) for it in partitions)
            if previous is not None and elapsed_s > 0:
                row.records_per_second = max(0.0, (log_ends[topic.name] - previous) / elapsed_s)
        return log_ends

    def _show_brokers(self, described: Sequence[topics.TopicDescription]) -> None:
        partitions = [it for topic in described for it in topic.partitions]
        leaders = Counter(it.leader for it in partitions)
        replicas = Counter(broker for it in partitions for broker in it.replicas)
        out_of_sync = Counter(broker for it in partitions for broker in it.replicas if broker not in it.isr)
        for id_, row in self._broker_rows():
            row.leads, row.replicas, row.out_of_sync = leaders[id_], replicas[id_], out_of_sync[id_]

    def _broker_rows(self) -> list[tuple[int, BrokerRow]]:
        rows = [(*label.rpartition("-")[::2], row) for label, row in self.view.brokers.items()]
        return [(int(id_), row) for cluster, id_, row in rows if cluster == self.cluster]

    async def _show_lags(self, client: KafkaClient, brokers: Sequence[int]) -> None:
        """Shows the largest lag of any group for each topic."""
        largest: dict[str, tuple[int, str]] = {}
        for group in await groups.list_groups(client, brokers):
            lags: Counter[str] = Counter()
            for partition, offset in (await groups.list_group_offsets(client, group.id)).items():
                if partition in self._ends:
                    lags[partition[0]] += max(0, self._ends[partition] - offset)
            for name, lag in lags.items():
                largest[name] = max(largest.get(name, (-1, "")), (lag, group.id))
        for (cluster, name), row in self.view.topics.items():
            if cluster == self.cluster:
                row.lag_records, row.lag_group = largest.get(name, (None, ""))

    async def _show_reassignments(self, client: KafkaClient) -> None:
        targets = {partition: it.target for partition, it in (await list_reassignments(client)).items()}
        if not targets:
            self.view.moving.pop(self.cluster, None)
            return
        progress = await measure_progress(client, targets)
        copied = f"{format_size(progress.copied_bytes)} of {format_size(progress.total_bytes)}"
        self.view.moving[self.cluster] = f"{format_count(progress.unfinished, 'partition')} moving, {copied} copied"
