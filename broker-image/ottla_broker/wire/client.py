"""A client of a cluster: knows which broker to ask, and asks it in a version it speaks.

    async with Client.connect("127.0.0.1:9092") as client:
        answer = await client.ask_controller(CreateTopicsRequest(...))     # kio's classes, of any version
        await client.produce("events", 0, encode_batch([Record(now_ms, None, b"hello")]))

What changes something is sent once: what happened to a request whose connection broke is not known, and only the caller knows whether it may be repeated.
A question that another broker can answer as well is asked of that one: a broker that is restarted breaks its connections.
A connection whose answer did not come in time is closed: answers come in order, so that all later ones would wait behind it.
Looking for brokers, leaders and coordinators is repeated, with pauses, until the time is over.
"""

import asyncio
import datetime
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v9.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from ottla_broker.wire.batch import HEADER_SIZE, parse_batch_header
from ottla_broker.wire.channel import UNSECURED, Channel, open_channel
from ottla_broker.wire.client_security import ClientSecurity
from ottla_broker.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")

PAUSE_S = 0.1
CONNECT_WITHIN_S = 5.0  # a stopped process still accepts connections, and says nothing: then another broker is asked
GROUP_KEY_TYPE = 0
LATEST_TIMESTAMP, EARLIEST_TIMESTAMP = -1, -2
RETRIABLE_ERRORS = frozenset(
    {
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
    }
)
QUESTIONS = frozenset(
    it.__api_key__
    for it in (
        DescribeClusterRequest,
        DescribeConfigsRequest,
        DescribeQuorumRequest,
        DescribeTopicPartitionsRequest,
        FindCoordinatorRequest,
        ListConfigResourcesRequest,
        ListPartitionReassignmentsRequest,
        MetadataRequest,
    )
)
"""Requests that change nothing, and that every broker, or whoever is the controller, answers alike."""


class NoBrokersAvailable(ConnectionError):
    """No broker answers at the addresses given."""


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Whole record batches as they lie in the log (the first may start before the offset asked for), and where the readable part
    ends."""

    records: bytes
    high_watermark: int
    log_start: int


class Client:
    """One per event loop. Connections are made when they are first needed and again when they broke."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        client_id: str = "ottla",
        timeout_s: float = 30.0,
        security: ClientSecurity = UNSECURED,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._secured = security
        self._addresses: dict[int, tuple[str, int]] = {}
        self._channels: dict[tuple[str, int], asyncio.Task[Channel]] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._controller = -1

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, bootstrap: str, *, client_id: str = "ottla", timeout_s: float = 30.0
    ) -> "AsyncIterator[Client]":
        """`bootstrap`: host:port pairs separated by commas. `timeout_s`: for every single call. NoBroker when none answers."""
        client = cls(parse_bootstrap_servers(bootstrap), client_id=client_id, timeout_s=timeout_s)
        try:
            await client.metadata(())
            yield client
        finally:
            await client.close()

    async def close(self) -> None:
        for opening in self._channels.values():
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().close()
            else:
                opening.cancel()
        await asyncio.gather(*self._channels.values(), return_exceptions=True)
        self._channels.clear()

    # --- any request

    async def send(self, request: Any, *, broker: int | None = None) -> Any:
        """The answer to a request, a kio class of any version, in that version. From the broker with this id, or from any.

        NoBroker, ConnectionError, TimeoutError; KafkaError UNSUPPORTED_VERSION. Codes inside of answers are the caller's to look at.
        """
        return await self._within(self._ask(request, broker))

    async def send_to_controller(self, request: Any) -> Any:
        return await self._within(self._unbroken(request, lambda: self._ask_controller(request)))

    async def send_to_coordinator(self, group: str, request: Any) -> Any:
        """Asks the broker that coordinates a consumer group."""
        return await self._within(self._ask_coordinator(group, request))

    async def send_to_leader(self, topic: str, partition: int, request: Any) -> Any:
        """Asks the broker that leads a partition. UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE."""
        return await self._within(self._ask_leader(topic, partition, request))

    async def _within(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            for channel in self._open():
                if channel.has_abandoned_request:
                    channel.close()
            raise

    async def _ask(self, request: Any, broker: int | None) -> Any:
        if broker is None:
            return await self._unbroken(request, lambda: self._ask_any(request))
        if broker not in self._addresses:
            await self._metadata(())
        if broker not in self._addresses:
            raise KafkaError(ErrorCode.broker_not_available, f"the cluster has no broker {broker}")
        return await (await self._channel(self._addresses[broker])).send(request)

    async def _ask_any(self, request: Any) -> Any:
        return await (await self._any()).send(request)

    async def _unbroken(self, request: Any, attempt: Callable[[], Awaitable[T]]) -> T:
        """Again when the connection broke under way, if the request is a question; `_within` ends it when the time is over."""
        while True:
            try:
                return await attempt()
            except NoBrokersAvailable:
                raise
            except ConnectionError:
                if request.__api_key__ not in QUESTIONS:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _ask_controller(self, request: Any) -> Any:
        await self._metadata(())
        if (address := self._addresses.get(self._controller)) is not None:
            try:
                channel = await self._channel(address)
            except OSError:
                pass  # it has just fallen: any broker passes on what is for the next one
            else:
                return await channel.send(request)
        return await self._ask(request, None)

    async def _ask_coordinator(self, group: str, request: Any) -> Any:
        return await self._ask(request, await self._repeated(lambda: self._coordinator(group)))

    async def _coordinator(self, group: str) -> int:
        found = await self._ask(FindCoordinatorRequest(key=group, key_type=i8(GROUP_KEY_TYPE)), None)
        raise_for_error(found.error_code, found.error_message or f"no coordinator for group {group!r}")
        self._addresses[found.node_id] = (found.host, found.port)
        return int(found.node_id)

    async def _ask_leader(self, topic: str, partition: int, request: Any) -> Any:
        if (topic, partition) not in self._leaders:
            await self._repeated(lambda: self._find_leader(topic, partition))
        return await self._ask(request, self._leaders[topic, partition])

    async def _find_leader(self, topic: str, partition: int) -> None:
        await self._metadata([topic])
        if self._leaders.get((topic, partition), -1) < 0:
            raise KafkaError(ErrorCode.leader_not_available, f"nobody leads {topic}-{partition}")

    async def _repeated(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Until it succeeds or fails for good; `_within` ends it when the time is over."""
        while True:
            try:
                return await attempt()
            except KafkaError as reason:
                if reason.code not in RETRIABLE_ERRORS or reason.code is ErrorCode.unknown_topic_or_partition:
                    raise
            await asyncio.sleep(PAUSE_S)

    # --- where things are

    async def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Brokers and controller, and these topics (None: all; none is created by asking). KafkaError when a topic named is not there."""
        return await self._within(self._metadata(topics))

    async def _metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        named = (
            None if topics is None else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(t)) for t in topics)
        )
        request = MetadataRequest(
            topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        answer: MetadataResponse = await self._ask(request, None)
        self._addresses = {int(broker.node_id): (broker.host, int(broker.port)) for broker in answer.brokers}
        self._controller = int(answer.controller_id)
        for topic in answer.topics:
            if topics is not None:
                raise_for_error(topic.error_code, f"topic {topic.name!r}: {topic.error_code.name}")
            for partition in topic.partitions:
                self._leaders[topic.name or "", int(partition.partition_index)] = int(partition.leader_id)
        return answer

    async def _any(self) -> Channel:
        """A connection to some broker: one that is open, else to the first that answers."""
        if opened := self._open():
            return opened[0]
        failures = []
        for address in dict.fromkeys([*self._addresses.values(), *self._bootstrap]):
            try:
                return await self._channel(address)
            except OSError as error:
                failures.append(f"{address[0]}:{address[1]}: {describe_os_error(error)}")
        raise NoBrokersAvailable(f"no broker answers: {'; '.join(failures)}")

    async def _channel(self, address: tuple[str, int]) -> Channel:
        opening = self._channels.get(address)
        if opening is None or (
            opening.done() and (opening.cancelled() or opening.exception() or not opening.result().is_open)
        ):
            opening = asyncio.create_task(self._connected(address))
            self._channels[address] = opening
        return await asyncio.shield(opening)

    async def _connected(self, address: tuple[str, int]) -> Channel:
        try:
            async with asyncio.timeout(min(CONNECT_WITHIN_S, self._timeout_s)):
                return await open_channel(*address, self._client_id, security=self._secured)
        except TimeoutError as error:
            raise ConnectionError("no answer") from error

    def _open(self) -> list[Channel]:
        """Connections that stand, in the order in which they were made."""
        return [
            opening.result()
            for opening in self._channels.values()
            if opening.done() and not opening.cancelled() and not opening.exception() and opening.result().is_open
        ]

    # --- records

    async def produce(
        self, topic: str, partition: int, batch: bytes, *, acks: int = -1, timeout_s: float = 30.0
    ) -> int:
        """Appends one record batch; its base offset. KafkaError."""
        request = ProduceRequest(
            transactional_id=None,
            acks=i16(acks),
            timeout=to_timedelta_field(timeout_s),
            topic_data=(
                TopicProduceData(
                    name=TopicName(topic),
                    partition_data=(PartitionProduceData(index=i32(partition), records=Records(batch)),),
                ),
            ),
        )
        answer = await self._to_leader(topic, partition, request)
        (result,) = answer.responses[0].partition_responses
        self._check_led(topic, partition, result.error_code, result.error_message)
        return int(result.base_offset)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_wait_s: float = 0.5,
        read_committed: bool = False,
    ) -> FetchedRecords:
        """Record batches from `offset` on; waits up to `max_wait_s` for the first. `committed`: leaves out what transactions have not
        committed yet. KafkaError."""
        wanted = FetchPartition(partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes))
        request = FetchRequest(
            max_wait=to_timedelta_field(max_wait_s),
            min_bytes=i32(1),
            max_bytes=i32(max_bytes),
            isolation_level=i8(read_committed),
            topics=(FetchTopic(topic=TopicName(topic), partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
        answer = await self._to_leader(topic, partition, request)
        raise_for_error(answer.error_code, "the fetch was refused")
        (found,) = answer.responses[0].partitions
        self._check_led(topic, partition, found.error_code, None)
        return FetchedRecords(
            drop_partial_batch(found.records or b""), int(found.high_watermark), int(found.log_start_offset)
        )

    async def list_offset(self, topic: str, partition: int, timestamp: int = LATEST_TIMESTAMP) -> int:
        """The first offset at or after a time (ms), or EARLIEST, or LATEST; −1 when nothing is that late. KafkaError."""
        wanted = ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(timestamp))
        request = ListOffsetsRequest(
            replica_id=BrokerId(-1),
            isolation_level=i8(0),
            topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(wanted,)),),
        )
        answer = await self._to_leader(topic, partition, request)
        (found,) = answer.topics[0].partitions
        self._check_led(topic, partition, found.error_code, None)
        return int(found.offset)

    async def _to_leader(self, topic: str, partition: int, request: Any) -> Any:
        return await self._within(self._ask_leader(topic, partition, request))

    def _check_led(self, topic: str, partition: int, code: ErrorCode, message: str | None) -> None:
        if code in RETRIABLE_ERRORS:
            self._leaders.pop((topic, partition), None)  # looked for anew by the next call
        raise_for_error(code, message or f"{topic}-{partition}: {code.name}")


def raise_for_error(code: ErrorCode, message: str) -> None:
    """KafkaError unless the code is none."""
    if code is not ErrorCode.none:
        raise KafkaError(code, message)


def drop_partial_batch(records: bytes) -> bytes:
    """Without the batch at the end that a size limit has cut off: Kafka sends such, we do not."""
    at = 0
    while len(records) - at >= HEADER_SIZE and at + (size := parse_batch_header(records, at).size) <= len(records):
        at += size
    return records[:at]


def to_timedelta_field(seconds: float) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=round(seconds * 1000)))


def parse_bootstrap_servers(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port`, IPv6 hosts in brackets. ValueError names the pair that is none."""
    found = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = pair.rpartition(":")
        if not (colon and host and port.isdigit()):
            raise ValueError(f"{pair!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("no host:port given")
    return found


def describe_os_error(error: OSError) -> str:
    """What the system says of an error: asyncio's own text names the call and the address as Python writes it."""
    if isinstance(error, ssl.SSLError):  # whose numbers are the library's own
        return str(getattr(error, "verify_message", "") or error.reason or error).lower()
    if error.errno and error.errno > 0:
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error)).lower()  # the resolver has error numbers of its own, below 0
