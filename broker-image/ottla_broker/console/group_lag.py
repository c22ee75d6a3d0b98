"""The lag of groups by partition, and samples of it for the plot of a group's page."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.group_description import ListedGroup, PartitionLag, lag_by_topic
from ottla_broker.console.group_requests import GroupRequests, OffsetsByPartition
from ottla_broker.console.lag_history import SAMPLE_INTERVAL_S, LagHistory, LagSample
from ottla_broker.console.write_rate import RATE_WINDOW_S, count_written
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.wire.errors import KafkaError


class GroupLags:
    """Finds lags of groups, and samples the lag of groups whose pages are open. `tasks`: run the
    sampling.
    """

    def __init__(
        self, broker: Broker, requests: ClusterRequests, groups: GroupRequests, tasks: BackgroundTasks
    ) -> None:
        self._broker = broker
        self._requests = requests
        self._groups = groups
        self._tasks = tasks
        self._history = LagHistory()
        self._sampled: set[str] = set()

    async def find_lags(
        self,
        committed: OffsetsByPartition,
        owners: Mapping[TopicPartition, str],
        partitions: Iterable[TopicPartition],
    ) -> list[PartitionLag]:
        """The lags of the partitions, in their order, without partitions of which neither the end
        nor a committed offset is known. `owners`: client ids by partition.
        """
        wanted = list(partitions)
        began_ms = self._broker.runtime.now_ms() - RATE_WINDOW_S * 1000
        ends, before = await asyncio.gather(
            self._requests.find_end_offsets(wanted), self._requests.find_offsets_at(wanted, began_ms)
        )
        return [
            PartitionLag(
                *one,
                committed.get(one, -1),
                ends.get(one, -1),
                owners.get(one, ""),
                count_written(before.get(one), ends.get(one, -1)),
            )
            for one in wanted
            if one in ends or one in committed
        ]

    def open(self, group: ListedGroup) -> None:
        """Called when the group's page is opened: samples its lag until nobody has had the page
        open for `lag_history.KEPT_S`, or other groups take its place.
        """
        self._history.open(group.name, self._now_s())
        if group.name not in self._sampled:
            self._sampled.add(group.name)
            self._tasks.start(self._sample(group.name, group))

    def columns(self, group: str, may_describe: Callable[[str], bool]) -> dict[str, list[float]]:
        """The samples as `LagHistory.columns` returns them. Called while the group's page is
        open.
        """
        self._history.renew(group, self._now_s())
        return self._history.columns(group, may_describe)

    async def _sample(self, name: str, group: ListedGroup | None) -> None:
        """`group`: None where its coordinator is to be found again."""
        while self._history.is_sampled(name, self._now_s()):
            try:
                if group is None:
                    group, _ = await self._groups.find(name)
                committed = {} if group is None else await self._groups.find_committed_offsets(group)
                if committed:
                    ends = await self._requests.find_end_offsets(committed)
                    lags = [PartitionLag(*one, at, ends.get(one, -1)) for one, at in committed.items()]
                    self._history.add(name, LagSample(self._now_s(), lag_by_topic(lags)))
            except (KafkaError, OSError):
                group = None  # it may have moved to another coordinator
            await asyncio.sleep(SAMPLE_INTERVAL_S)
        self._sampled.discard(name)

    def _now_s(self) -> float:
        return self._broker.runtime.now_ms() / 1000
