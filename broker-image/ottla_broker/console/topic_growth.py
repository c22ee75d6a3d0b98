"""How fast a topic grows now, how fast it grew an hour ago, and what was written meanwhile."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ottla_broker.broker import Broker
from ottla_broker.console.cluster_requests import UNKNOWN, ClusterRequests, PartitionOffsets, merge_failures, sum_known
from ottla_broker.console.requests import PageRequest
from ottla_broker.console.topics import TopicPages, size_of
from ottla_broker.console.write_rate import RATE_WINDOW_S, count_written
from ottla_broker.metadata.image import TopicImage

HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class TopicGrowth:
    """`now` and `hour_ago`: offsets per second in the RATE_WINDOW_S that end now and an hour ago.
    `in_hour`: offsets of the last hour. `record_bytes`: average size of a record in the leaders'
    logs. −1: unknown.
    """

    now: float
    hour_ago: float
    in_hour: int
    record_bytes: float

    def bytes_of(self, records: float) -> int:
        """An estimate of the size of as many records; −1: unknown."""
        return UNKNOWN if min(records, self.record_bytes) < 0 else round(records * self.record_bytes)


def measure_growth(
    offsets: Mapping[int, PartitionOffsets],
    ten_minutes_ago: Mapping[int, int],
    hour_ago: Mapping[int, int],
    before_that: Mapping[int, int],
    size: int,
) -> TopicGrowth:
    """`ten_minutes_ago`, `hour_ago`, `before_that` (RATE_WINDOW_S before `hour_ago`): by partition,
    the first offset since that time; −1 if nothing was written since. `size`: bytes of the leaders'
    logs. A figure is unknown if it is unknown for any partition.
    """

    def total(at: Mapping[int, int]) -> int:
        return sum_known(count_written(at.get(index), one.end) for index, one in offsets.items())

    in_window, in_hour, in_longer = total(ten_minutes_ago), total(hour_ago), total(before_that)
    records = sum_known(one.records for one in offsets.values())
    return TopicGrowth(
        UNKNOWN if in_window < 0 else in_window / RATE_WINDOW_S,
        UNKNOWN if min(in_hour, in_longer) < 0 else max(0, in_longer - in_hour) / RATE_WINDOW_S,
        in_hour,
        UNKNOWN if size < 0 or records <= 0 else size / records,
    )


class TopicGrowthPages:
    def __init__(self, broker: Broker, requests: ClusterRequests, topics: TopicPages) -> None:
        self._broker = broker
        self._requests = requests
        self._topics = topics

    async def show(self, page: PageRequest) -> web.Response:
        """A part of the topic's page. Bytes need DESCRIBE on the cluster, as sizes do."""
        topic = self._topics.find_topic(page)
        (
            (offsets, offset_failures),
            (sizes, size_failures),
            ten_minutes_ago,
            hour_ago,
            before_that,
        ) = await asyncio.gather(
            self._requests.find_partition_offsets(topic.name, topic.partitions),
            self._topics.find_sizes(page, topic.name, topic.partitions),
            self._offsets_ago(topic, RATE_WINDOW_S),
            self._offsets_ago(topic, HOUR_S),
            self._offsets_ago(topic, HOUR_S + RATE_WINDOW_S),
        )
        size = sum_known(size_of(index, state, sizes) for index, state in topic.partitions.items())
        growth = measure_growth(offsets, ten_minutes_ago, hour_ago, before_that, size)
        return page.render("topic_growth.html", growth=growth, failures=merge_failures(offset_failures, size_failures))

    async def _offsets_ago(self, topic: TopicImage, ago_s: int) -> dict[int, int]:
        """The first offset of each partition since `ago_s` seconds ago; −1 if nothing was written.
        Partitions for which it is unknown are left out.
        """
        at_ms = self._broker.runtime.now_ms() - ago_s * 1000
        found = await self._requests.find_offsets_at(((topic.name, index) for index in topic.partitions), at_ms)
        return {index: offset for (_, index), offset in found.items()}
