"""The console's requests to brokers, for facts that are not in the metadata image, such as sizes
and offsets.

The console connects with the login of brokers. So each function that returns facts of a topic or a
group is called only after the user's rights are checked.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse, DescribeConfigsResult
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, build_list_offsets
from ottla_broker.wire.roll_report import ROLL_RESOURCE, StoredRoll, read_roll

CLIENT_ID: Final = "console"
TIMEOUT_S: Final = 5.0
"""How long a page waits for a broker before it shows the responses of the others."""
FETCH_TIMEOUT_S: Final = 30.0
"""The same for clients that fetch records (`new_client`)."""
UNKNOWN: Final = -1

Failures = tuple[str, ...]
"""Sentences about brokers that did not respond, which pages show."""


@dataclass(frozen=True, slots=True)
class BrokerResponses:
    """The responses of the brokers that responded, and the failures of the others."""

    by_broker: Mapping[int, Any]
    failures: Failures


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker. `total_bytes`, `usable_bytes`: of its file system, as
    DescribeLogDirs reports them.
    """

    broker: int
    path: str
    total_bytes: int
    usable_bytes: int
    has_failed: bool

    @property
    def used_bytes(self) -> int:
        return self.total_bytes - self.usable_bytes if self.total_bytes >= 0 else UNKNOWN


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """`start`: the log start. `end`: the high watermark. −1: unknown."""

    start: int = UNKNOWN
    end: int = UNKNOWN

    @property
    def records(self) -> int:
        """An upper bound: compaction and transactions leave gaps between offsets."""
        return self.end - self.start if min(self.start, self.end) >= 0 else UNKNOWN


class ClusterRequests:
    """Keeps its connections until the brokers' addresses, or the login between brokers, change."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._client: Client | None = None
        self._made_for: object = None
        self._tasks = BackgroundTasks()

    @property
    def client(self) -> Client:
        """The client of all requests but fetches. Raises BROKER_NOT_AVAILABLE while the broker
        starts.
        """
        made_for = (self._addresses(), self._broker.channels.security)
        if self._client is None or self._made_for != made_for:
            if self._client is not None:
                self._tasks.start(self._client.close())
            self._client = Client(made_for[0], client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=made_for[1])
            self._made_for = made_for
        return self._client

    @asynccontextmanager
    async def new_client(self) -> AsyncIterator[Client]:
        """A client with connections of its own, for fetches: on shared ones the requests of other
        pages would wait behind them.
        """
        security = self._broker.channels.security
        client = Client(self._addresses(), client_id=CLIENT_ID, timeout_s=FETCH_TIMEOUT_S, security=security)
        try:
            yield client
        finally:
            await client.close()

    def _addresses(self) -> list[tuple[str, int]]:
        addresses = self._broker.image.broker_addresses(self._broker.config.inter_broker_listener)
        if not addresses:
            raise KafkaError(ErrorCode.broker_not_available, "the broker is starting")
        return addresses

    async def close(self) -> None:
        await self._tasks.cancel()
        if self._client is not None:
            await self._client.close()

    async def send_to_brokers(self, requests: Mapping[int, Any]) -> BrokerResponses:
        """Sends each broker its request, all at once. `requests`: by broker."""
        results = await asyncio.gather(
            *(self.client.send(request, broker=broker) for broker, request in requests.items()), return_exceptions=True
        )
        found, failures = {}, []
        for broker, result in zip(requests, results, strict=True):
            if isinstance(result, OSError | TimeoutError | KafkaError):
                failures.append(f"Broker {broker} does not respond: {result or 'timeout'}.")
            elif isinstance(result, BaseException):
                raise result
            else:
                found[broker] = result
        return BrokerResponses(found, tuple(failures))

    async def find_log_dirs(self) -> tuple[list[LogDirDescription], Failures]:
        """The log directories of the unfenced brokers that respond."""
        request = DescribeLogDirsRequest(topics=())
        responses = await self.send_to_brokers({one.id: request for one in self._broker.image.unfenced_brokers()})
        dirs = [
            LogDirDescription(broker, one.log_dir, int(one.total_bytes), int(one.usable_bytes), bool(one.error_code))
            for broker, response in responses.by_broker.items()
            for one in response.results
        ]
        return dirs, responses.failures

    async def find_topic_replica_bytes(
        self, topic: str, states: Mapping[int, PartitionRecord]
    ) -> tuple[dict[tuple[int, int], int], Failures]:
        """Bytes of each replica of the partitions `states`, by partition and broker, of the
        unfenced brokers that respond.
        """
        unfenced = {one.id for one in self._broker.image.unfenced_brokers()}
        held: dict[int, list[TopicPartition]] = defaultdict(list)
        for index, state in states.items():
            for broker in unfenced.intersection(state.replicas):
                held[broker].append((topic, index))
        sizes, failures = await self.find_replica_bytes(held)
        return {(index, broker): size for (broker, _, index), size in sizes.items()}, failures

    async def find_replica_bytes(
        self, replicas: Mapping[int, Collection[TopicPartition]]
    ) -> tuple[dict[tuple[int, str, int], int], Failures]:
        """Bytes of replicas by broker, topic and partition, of the brokers that respond.
        `replicas`: partitions by broker. Raises KafkaError if a broker refuses the request.
        """
        responses = await self.send_to_brokers(
            {broker: build_log_dirs_request(held) for broker, held in replicas.items()}
        )
        sizes = {
            (broker, topic, index): size
            for broker, response in responses.by_broker.items()
            for (topic, index), size in read_replica_bytes(response).items()
        }
        return sizes, responses.failures

    async def describe_at_controller(self, resource_type: int, name: str = "") -> DescribeConfigsResult:
        """The controller's description of one resource, which may have an error code. Raises
        KafkaError, OSError.
        """
        request = build_describe_configs(resource_type, [name])
        response: DescribeConfigsResponse = await self.client.send_to_controller(request)
        (result,) = response.results
        return result

    async def find_roll(self) -> StoredRoll | None:
        """The rolling restart that the operator has reported to the controller. None also if the
        controller is of a version without such reports. Raises KafkaError, OSError.
        """
        result = await self.describe_at_controller(ROLL_RESOURCE)
        return None if result.error_code is ErrorCode.invalid_request else read_roll(result.configs)

    async def find_partition_offsets(
        self, topic: str, indexes: Iterable[int]
    ) -> tuple[dict[int, PartitionOffsets], Failures]:
        """Start and end of each partition `indexes`, as its leader has them."""
        partitions = [(topic, index) for index in indexes]
        starts, ends = await asyncio.gather(
            self._list_offsets(partitions, EARLIEST_TIMESTAMP), self._list_offsets(partitions, LATEST_TIMESTAMP)
        )
        offsets = {
            one[1]: PartitionOffsets(starts[0].get(one, UNKNOWN), ends[0].get(one, UNKNOWN)) for one in partitions
        }
        return offsets, (*starts[1], *ends[1])

    async def find_end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks of partitions of any topics, without those that have no leader, or whose
        leader does not respond or returns an error.
        """
        return (await self._list_offsets(partitions, LATEST_TIMESTAMP))[0]

    async def find_offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """The first offset of each partition at or after a time (ms), or at EARLIEST_ or
        LATEST_TIMESTAMP; −1: no record is as new. Leaves out the partitions that `find_end_offsets`
        leaves out.
        """
        return (await self._list_offsets(partitions, timestamp))[0]

    async def _list_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> tuple[dict[TopicPartition, int], Failures]:
        """As `find_offsets_at`, with the failures."""
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic, index in partitions:
            known = self._broker.image.topics.get(topic)
            state = None if known is None else known.partitions.get(index)
            if state is not None and state.leader != NO_LEADER:
                led[state.leader].append((topic, index))
        responses = await self.send_to_brokers(
            {leader: build_list_offsets(of_leader, timestamp) for leader, of_leader in led.items()}
        )
        found = {
            (str(listed.name), int(one.partition_index)): int(one.offset)
            for response in responses.by_broker.values()
            for listed in response.topics
            for one in listed.partitions
            if one.error_code is ErrorCode.none
        }
        return found, responses.failures


def build_describe_configs(resource_type: int, names: Iterable[str]) -> DescribeConfigsRequest:
    """A request for all configs of the resources."""
    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=i8(resource_type), resource_name=name, configuration_keys=None)
            for name in names
        )
    )


def build_log_dirs_request(partitions: Iterable[TopicPartition]) -> DescribeLogDirsRequest:
    by_topic: dict[str, list[i32]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(i32(index))
    return DescribeLogDirsRequest(
        topics=tuple(
            DescribableLogDirTopic(topic=TopicName(topic), partitions=tuple(indexes))
            for topic, indexes in by_topic.items()
        )
    )


def read_replica_bytes(response: DescribeLogDirsResponse) -> dict[TopicPartition, int]:
    """Bytes by partition, without future replicas, which move to another directory. Raises
    KafkaError.
    """
    raise_for_error(response.error_code, "DescribeLogDirs is refused")
    return {
        (str(topic.name), int(one.partition_index)): int(one.partition_size)
        for log_dir in response.results
        for topic in log_dir.topics
        for one in topic.partitions
        if not one.is_future_key
    }


def sum_known(counts: Iterable[int]) -> int:
    """UNKNOWN if one of them is unknown."""
    found = list(counts)
    return UNKNOWN if min(found, default=0) < 0 else sum(found)


def merge_failures(*failures: Failures) -> list[str]:
    """Each sentence once, in the order of their first appearance."""
    return list(dict.fromkeys(sentence for of_one in failures for sentence in of_one))
