"""The pages of the cluster: partitions that wait, the metadata quorum, the simulated departure of a
broker, and the metadata log.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from typing import Final
from uuid import UUID

from aiohttp import web
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse, ReplicaState
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla_broker.broker import Broker
from ottla_broker.config import (
    TOPIC_FLUSH_MESSAGES,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
)
from ottla_broker.console.cluster_requests import ClusterRequests
from ottla_broker.console.departure import Departure, assess_partition
from ottla_broker.console.metadata_records import decode_rows
from ottla_broker.console.requests import PageError, PageRequest
from ottla_broker.console.topics import may_describe_topic
from ottla_broker.console.waiting_partitions import WaitingPartition, describe_waiting, is_waiting
from ottla_broker.metadata.broker_plans import election_candidates
from ottla_broker.metadata.election import TopicElectionRules
from ottla_broker.metadata.metadata_fetch import CONSUMER_REPLICA_ID, MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.records import METADATA_TOPIC, PartitionRecord
from ottla_broker.security.authorizer import CLUSTER, Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.client import raise_for_error

MAX_WAITING: Final = 100
"""Partitions that are listed; all are counted."""
PARTITIONS_PER_SLICE: Final = 50
"""Partitions that a slice visits before other tasks may run: at most 1 ms."""
METADATA_RECORDS: Final = 50
"""Records of the metadata log on a page, of at most METADATA_BYTES."""
METADATA_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class QuorumRow:
    """A replica of the metadata log. `lag`: records behind the end of the leader's log.
    `last_fetch_ms`: milliseconds since 1970. −1: unknown.
    """

    broker: int
    role: str
    end: int
    lag: int
    last_fetch_ms: int


class ClusterPages:
    """Users need DESCRIBE on the cluster, and see the topics that they may describe. The page of
    the metadata log needs READ on its topic instead, and names every topic.
    """

    def __init__(self, broker: Broker, requests: ClusterRequests) -> None:
        self._broker = broker
        self._requests = requests

    async def show(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_CLUSTER)
        count, waiting = await self._find_waiting(page)
        return page.render(
            "cluster.html", waiting=waiting, waiting_count=count, brokers=sorted(self._broker.image.brokers)
        )

    async def show_quorum(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_QUORUM)
        partition = PartitionData(partition_index=i32(0))
        topic = TopicData(topic_name=TopicName(METADATA_TOPIC), partitions=(partition,))
        response: DescribeQuorumResponse = await self._requests.client.send(DescribeQuorumRequest(topics=(topic,)))
        raise_for_error(response.error_code, response.error_message or response.error_code.name)
        ((quorum,),) = (one.partitions for one in response.topics)
        raise_for_error(quorum.error_code, quorum.error_message or quorum.error_code.name)
        leader = next((one for one in quorum.current_voters if one.replica_id == quorum.leader_id), None)
        end = -1 if leader is None else int(leader.log_end_offset)
        rows = [
            describe_replica(one, role, end)
            for role, replicas in (("voter", quorum.current_voters), ("observer", quorum.observers))
            for one in replicas
        ]
        return page.render("quorum.html", quorum=quorum, rows=rows)

    async def show_departure(self, page: PageRequest) -> web.Response:
        page.user.check(Operation.describe, CLUSTER, ApiKey.DESCRIBE_CLUSTER)
        broker, image = page.integer("broker", -1), self._broker.image
        if broker not in image.brokers:
            raise PageError(404, f"There is no broker {broker}; brokers: {', '.join(map(str, sorted(image.brokers)))}.")
        departure = await self._simulate(broker)
        named = {
            kind: [one for one in affected if may_describe_topic(page, one.topic)]
            for kind, affected in departure.named.items()
        }
        return page.render("departure.html", departure=departure, named=named, brokers=sorted(image.brokers))

    async def show_metadata(self, page: PageRequest) -> web.Response:
        """Committed records of this broker's copy of the metadata log. Secrets are masked, as for
        every consumer of it.
        """
        page.user.check(Operation.read, Resource.topic(METADATA_TOPIC), ApiKey.FETCH)
        status = await self._fetch_metadata(0, 1)
        start, end = status.log_start_offset, status.high_watermark
        first = min(max(page.integer("offset", end - METADATA_RECORDS), start), end)
        fetched = await self._fetch_metadata(first, METADATA_BYTES)
        rows = await self._broker.runtime.run_in_thread(decode_rows, fetched.records, first, METADATA_RECORDS)
        return page.render(
            "metadata.html",
            rows=rows,
            start=start,
            end=end,
            first=first,
            next_offset=rows[-1].offset + 1 if rows else end,
            previous=max(start, first - METADATA_RECORDS),
            name_topic=self._name_topic,
        )

    async def _find_waiting(self, page: PageRequest) -> tuple[int, list[WaitingPartition]]:
        """The number of partitions that wait, and the first MAX_WAITING of them."""
        image, count = self._broker.image, 0
        found: list[WaitingPartition] = []
        async for topic, state in iter_partitions(self._broker):
            if is_waiting(state) and may_describe_topic(page, topic):
                count += 1
                if len(found) < MAX_WAITING:
                    found.append(describe_waiting(topic, state, image.brokers))
        return count, found

    async def _simulate(self, broker: int) -> Departure:
        departure = Departure(broker)
        candidates, rules_of = election_candidates(self._broker.image).without(broker), cache(self._election_rules)
        async for topic, state in iter_partitions(self._broker):
            if broker in state.replicas:
                departure.add(assess_partition(topic, state, broker, candidates, rules_of(topic)))
        return departure

    def _election_rules(self, topic: str) -> TopicElectionRules:
        config, overrides = self._broker.config, self._broker.image.topic_config(topic)
        return TopicElectionRules(
            config.topic_value(TOPIC_MIN_INSYNC_REPLICAS, overrides),
            config.topic_value(TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE, overrides),
            acks_are_synced=config.topic_value(TOPIC_FLUSH_MESSAGES, overrides) == 1,
        )

    async def _fetch_metadata(self, offset: int, max_bytes: int) -> MetadataFetchResponse:
        request = MetadataFetchRequest(
            CONSUMER_REPLICA_ID, None, -1, EpochAndOffset(-1, offset), max_bytes=max_bytes, max_wait_ms=0
        )
        return await self._broker.quorum.handle_fetch(request)

    def _name_topic(self, topic_id: str) -> str:
        """Empty for a topic that does not exist any more."""
        return self._broker.image.topic_names.get(UUID(topic_id), "") if topic_id else ""


async def iter_partitions(broker: Broker) -> AsyncIterator[tuple[str, PartitionRecord]]:
    """All partitions with their topics. Other tasks run in between and may change the image."""
    number = 0
    for name, topic in list(broker.image.topics.items()):
        for state in list(topic.partitions.values()):
            yield name, state
            number += 1
            if number % PARTITIONS_PER_SLICE == 0:
                await asyncio.sleep(0)


def describe_replica(replica: ReplicaState, role: str, leader_end: int) -> QuorumRow:
    end = int(replica.log_end_offset)
    lag = max(0, leader_end - end) if min(end, leader_end) >= 0 else -1
    return QuorumRow(int(replica.replica_id), role, end, lag, int(replica.last_fetch_timestamp))
