"""The console's requests to brokers, for facts that are not in the metadata image, such as sizes
and offsets.

The console connects with the login of brokers. So each function that returns facts of a topic or a
group is called only after the user's rights are checked.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.broker import Broker
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.wire.client import Client, raise_for_error
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, build_list_offsets
from ottla_broker.wire.roll_report import ROLL_RESOURCE, StoredRoll, read_roll

CLIENT_ID: Final = "console"
TIMEOUT_S: Final = 5.0
"""How long a page waits for a broker before it shows the responses of the others."""
FETCH_TIMEOUT_S: Final = 30.0
UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Answers:
    """`by_broker`: the responses. `failures`: sentences about brokers that did not respond."""

    by_broker: Mapping[int, Any] = field(default_factory=dict)
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker. `used_bytes`: used space of its file system."""

    broker: int
    path: str
    total_bytes: int
    usable_bytes: int
    failed: bool

    @property
    def used_bytes(self) -> int:
        return self.total_bytes - self.usable_bytes if self.total_bytes >= 0 else UNKNOWN


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """`end`: the high watermark. −1: unknown."""

    start: int = UNKNOWN
    end: int = UNKNOWN

    @property
    def records(self) -> int:
        """An upper bound: compaction and transactions leave gaps between offsets."""
        return self.end - self.start if min(self.start, self.end) >= 0 else UNKNOWN


class ClusterRequests:
    """Keeps connections to the brokers while their addresses and the login between them stay."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._client: Client | None = None
        self._made_for: object = None
        self._tasks = BackgroundTasks()

    @property
    def client(self) -> Client:
        """Raises BROKER_NOT_AVAILABLE while the broker starts."""
        made_for = (self._addresses(), self._broker.channels.security)
        if self._client is None or self._made_for != made_for:
            if self._client is not None:
                self._tasks.start(self._client.close())
            self._client = Client(made_for[0], client_id=CLIENT_ID, timeout_s=TIMEOUT_S, security=made_for[1])
            self._made_for = made_for
        return self._client

    @asynccontextmanager
    async def new_client(self) -> AsyncIterator[Client]:
        """A client with connections of its own: what others ask would wait behind fetches."""
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

    async def send_to_brokers(self, requests: Mapping[int, Any]) -> Answers:
        """Sends each broker its request, all at once."""
        answers = await asyncio.gather(
            *(self.client.send(request, broker=broker) for broker, request in requests.items()), return_exceptions=True
        )
        found, failures = {}, []
        for broker, answer in zip(requests, answers, strict=True):
            if isinstance(answer, OSError | TimeoutError | KafkaError):
                failures.append(f"Broker {broker} does not respond: {answer or 'timeout'}.")
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[broker] = answer
        return Answers(found, tuple(failures))

    async def log_dirs(self) -> tuple[list[LogDirDescription], tuple[str, ...]]:
        """The log directories of all unfenced brokers, and who did not respond."""
        request = DescribeLogDirsRequest(topics=())
        answers = await self.send_to_brokers({one.id: request for one in self._broker.image.unfenced_brokers()})
        dirs = [
            LogDirDescription(broker, one.log_dir, int(one.total_bytes), int(one.usable_bytes), bool(one.error_code))
            for broker, response in answers.by_broker.items()
            for one in response.results
        ]
        return dirs, answers.failures

    async def replica_sizes(
        self, topic: str, states: Mapping[int, PartitionRecord]
    ) -> tuple[dict[tuple[int, int], int], tuple[str, ...]]:
        """Bytes of each replica by partition and broker."""
        unfenced = {one.id for one in self._broker.image.unfenced_brokers()}
        held: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for index, state in states.items():
            for broker in unfenced.intersection(state.replicas):
                held[broker].append((topic, index))
        sizes, failures = await self.replica_bytes(held)
        return {(index, broker): size for (broker, _, index), size in sizes.items()}, failures

    async def replica_bytes(
        self, replicas: Mapping[int, Collection[tuple[str, int]]]
    ) -> tuple[dict[tuple[int, str, int], int], tuple[str, ...]]:
        """Bytes of replicas, by broker, topic and partition, of the brokers that respond."""
        answers = await self.send_to_brokers({broker: describe_replicas(held) for broker, held in replicas.items()})
        sizes = {
            (broker, topic, index): size
            for broker, response in answers.by_broker.items()
            for (topic, index), size in read_sizes(response).items()
        }
        return sizes, answers.failures

    async def roll(self) -> StoredRoll | None:
        """The rolling restart that the operator has reported to the controller. None also if the
        controller is of a version without such reports. Raises KafkaError, OSError.
        """
        resource = DescribeConfigsResource(resource_type=i8(ROLL_RESOURCE), resource_name="", configuration_keys=None)
        response = await self.client.send_to_controller(DescribeConfigsRequest(resources=(resource,)))
        (result,) = response.results
        return None if result.error_code is ErrorCode.invalid_request else read_roll(result.configs)

    async def partition_offsets(
        self, topic: str, indexes: Iterable[int]
    ) -> tuple[dict[int, PartitionOffsets], tuple[str, ...]]:
        """Start and end of each partition, as its leader has them."""
        partitions = [(topic, index) for index in indexes]
        starts, ends = await asyncio.gather(
            self._list_offsets(partitions, EARLIEST_TIMESTAMP), self._list_offsets(partitions, LATEST_TIMESTAMP)
        )
        offsets = {
            one[1]: PartitionOffsets(starts[0].get(one, UNKNOWN), ends[0].get(one, UNKNOWN)) for one in partitions
        }
        return offsets, ends[1]

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """High watermarks of partitions of any topics; without those of brokers that do not
        respond.
        """
        return (await self._list_offsets(partitions, LATEST_TIMESTAMP))[0]

    async def offsets_at(self, partitions: Iterable[tuple[str, int]], timestamp: int) -> dict[tuple[str, int], int]:
        """The first offset at or after a time (ms), or EARLIEST_ or LATEST_TIMESTAMP; −1 where no
        record is as new. Without those of brokers that do not respond.
        """
        return (await self._list_offsets(partitions, timestamp))[0]

    async def _list_offsets(
        self, partitions: Iterable[tuple[str, int]], timestamp: int
    ) -> tuple[dict[tuple[str, int], int], tuple[str, ...]]:
        """Of the partitions that have a leader which responds."""
        led: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for topic, index in partitions:
            known = self._broker.image.topics.get(topic)
            state = None if known is None else known.partitions.get(index)
            if state is not None and state.leader != NO_LEADER:
                led[state.leader].append((topic, index))
        answers = await self.send_to_brokers(
            {leader: build_list_offsets(of_leader, timestamp) for leader, of_leader in led.items()}
        )
        found = {
            (str(listed.name), int(one.partition_index)): int(one.offset)
            for response in answers.by_broker.values()
            for listed in response.topics
            for one in listed.partitions
            if one.error_code is ErrorCode.none
        }
        return found, answers.failures


def describe_replicas(partitions: Iterable[tuple[str, int]]) -> DescribeLogDirsRequest:
    by_topic: dict[str, list[i32]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(i32(index))
    return DescribeLogDirsRequest(
        topics=tuple(
            DescribableLogDirTopic(topic=TopicName(topic), partitions=tuple(indexes))
            for topic, indexes in by_topic.items()
        )
    )


def read_sizes(response: DescribeLogDirsResponse) -> dict[tuple[str, int], int]:
    """Bytes by topic and partition, without replicas that move to another directory. Raises
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


def first_failures(*failures: Collection[str]) -> list[str]:
    """Each sentence once, in their order."""
    return list(dict.fromkeys(sentence for of_one in failures for sentence in of_one))
