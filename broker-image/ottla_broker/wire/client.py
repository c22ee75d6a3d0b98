"""A client of a cluster: it finds the broker for a request and sends the request in a version that
the broker supports.

    async with Client.connect("127.0.0.1:9092") as client:
        response = await client.send_to_controller(CreateTopicsRequest(...))
        await client.produce("events", 0, encode_batch([Record(now_ms, None, b"hello")]))

Requests are kio's classes, of any version.

A request that changes something is sent once: if its connection breaks, only the caller knows
whether it may be repeated. A read-only request that any broker can answer is sent to another broker
if its connection breaks. A connection is closed if a response does not arrive in time, because all
later responses would wait behind it. Searching for brokers, leaders and coordinators is repeated,
with pauses, until the timeout.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8

from ottla_broker.wire.batch import find_last_batch, parse_batch_header
from ottla_broker.wire.channel import Channel, is_open_channel, open_channel
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity
from ottla_broker.wire.errors import ErrorCode, KafkaError, describe_os_error
from ottla_broker.wire.list_offsets import LATEST_TIMESTAMP, build_list_offsets
from ottla_broker.wire.partition_requests import build_fetch, build_produce

T = TypeVar("T")

RETRY_PAUSE_S: Final = 0.1
# A stopped process still accepts connections and sends nothing; after this time another broker is
# tried.
CONNECT_TIMEOUT_S: Final = 5.0
GROUP_KEY_TYPE: Final = 0
COORDINATOR_KEY_TYPES: Final = {"group": GROUP_KEY_TYPE, "transactional id": 1}
RETRIABLE_ERRORS: Final = frozenset(
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
READ_ONLY_APIS: Final = frozenset(
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
"""Requests that change nothing, and that all brokers, or all controllers, answer alike."""


class NoBrokersAvailable(ConnectionError):
    """No broker responds at the given addresses."""


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """Whole record batches as the log stores them; the first may start before the requested
    offset. `next_offset`: after the last record; without records, the requested offset.
    """

    records: bytes
    next_offset: int
    high_watermark: int
    log_start: int


class Client:
    """Belongs to one event loop.

    Connections are opened when they are first needed, and again after they broke.
    """

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
        self._security = security
        self._addresses: dict[int, tuple[str, int]] = {}
        self._channels: dict[tuple[str, int], asyncio.Task[Channel]] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._controller = -1

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, bootstrap: str, *, client_id: str = "ottla", timeout_s: float = 30.0, security: ClientSecurity = UNSECURED
    ) -> "AsyncIterator[Client]":
        """`bootstrap`: host:port pairs separated by commas. `timeout_s` bounds every call.

        Raises ValueError if `bootstrap` is invalid, and what `send` raises.
        """
        addresses = parse_bootstrap_servers(bootstrap)
        client = cls(addresses, client_id=client_id, timeout_s=timeout_s, security=security)
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
        """Sends a request, a kio class of any version, to a broker by its id or to any; returns the
        response in that version.

        Raises OSError (NoBrokersAvailable if it may go to any broker), TimeoutError; KafkaError:
        UNSUPPORTED_VERSION, BROKER_NOT_AVAILABLE for an unknown id, and the errors of a login.
        Error codes in the response are left to the caller.
        """
        return await self._with_timeout(self._send(request, broker))

    async def send_to_controller(self, request: Any) -> Any:
        return await self._with_timeout(self._retry_read(request, lambda: self._send_to_controller(request)))

    async def send_to_coordinator(self, group: str, request: Any) -> Any:
        """Sends a request to the coordinator of a consumer group."""
        return await self._with_timeout(self._send_to_coordinator("group", group, request))

    async def send_to_transaction_coordinator(self, transactional_id: str, request: Any) -> Any:
        """Sends a request to the coordinator of a transactional id."""
        return await self._with_timeout(self._send_to_coordinator("transactional id", transactional_id, request))

    async def send_to_leader(self, topic: str, partition: int, request: Any) -> Any:
        """Sends a request to the leader of a partition. Raises what `send` raises: TimeoutError
        also if the partition gets no leader in time; KafkaError also if the topic does not exist or
        may not be described.
        """
        return await self._with_timeout(self._send_to_leader(topic, partition, request))

    async def _with_timeout(self, work: Awaitable[T]) -> T:
        """Awaits `work` for at most the client's timeout, and then closes the connections on which
        a response is missing. Raises TimeoutError.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            for channel in self._open_channels():
                if channel.has_abandoned_request:
                    channel.close()
            raise

    async def _send(self, request: Any, broker: int | None) -> Any:
        if broker is None:
            return await self._retry_read(request, lambda: self._send_to_any(request))
        if broker not in self._addresses:
            await self._metadata(())
        if broker not in self._addresses:
            raise KafkaError(ErrorCode.broker_not_available, f"the cluster has no broker {broker}")
        return await (await self._channel(self._addresses[broker])).send(request)

    async def _send_to_any(self, request: Any) -> Any:
        return await (await self._any_channel()).send(request)

    async def _retry_read(self, request: Any, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retries a read-only request when its connection broke, until `_with_timeout` ends it."""
        while True:
            try:
                return await attempt()
            except NoBrokersAvailable:
                raise
            except ConnectionError:
                if request.__api_key__ not in READ_ONLY_APIS:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _send_to_controller(self, request: Any) -> Any:
        await self._metadata(())
        if (address := self._addresses.get(self._controller)) is not None:
            try:
                channel = await self._channel(address)
            except OSError:
                pass  # the controller has just failed: any broker forwards the request to the next one
            else:
                return await channel.send(request)
        return await self._send(request, None)

    async def _send_to_coordinator(self, kind: str, key: str, request: Any) -> Any:
        return await self._send(request, await self._retry_search(lambda: self._find_coordinator(kind, key)))

    async def _find_coordinator(self, kind: str, key: str) -> int:
        """`kind`: one of COORDINATOR_KEY_TYPES."""
        response = await self._send(FindCoordinatorRequest(key=key, key_type=i8(COORDINATOR_KEY_TYPES[kind])), None)
        raise_for_error(response.error_code, response.error_message or f"{kind} {key!r} has no coordinator")
        self._addresses[response.node_id] = (response.host, response.port)
        return int(response.node_id)

    async def _send_to_leader(self, topic: str, partition: int, request: Any) -> Any:
        if (topic, partition) not in self._leaders:
            await self._retry_search(lambda: self._find_leader(topic, partition))
        return await self._send(request, self._leaders[topic, partition])

    async def _find_leader(self, topic: str, partition: int) -> None:
        await self._metadata([topic])
        if self._leaders.get((topic, partition), -1) < 0:
            raise KafkaError(ErrorCode.leader_not_available, f"{topic}-{partition} has no leader")

    async def _retry_search(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retries after a retriable error, until `_with_timeout` ends it."""
        while True:
            try:
                return await attempt()
            except KafkaError as reason:
                if reason.code not in RETRIABLE_ERRORS or reason.code is ErrorCode.unknown_topic_or_partition:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S)

    # --- metadata and connections

    async def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Brokers, controller and the named topics; None: all topics. No topic is created.

        Raises KafkaError if a named topic does not exist.
        """
        return await self._with_timeout(self._metadata(topics))

    async def _metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        named = (
            None if topics is None else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(t)) for t in topics)
        )
        request = MetadataRequest(
            topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        response: MetadataResponse = await self._send(request, None)
        self._addresses = {int(broker.node_id): (broker.host, int(broker.port)) for broker in response.brokers}
        self._controller = int(response.controller_id)
        for topic in response.topics:
            if topics is not None:
                raise_for_error(topic.error_code, f"topic {topic.name!r}: {topic.error_code.name}")
            for partition in topic.partitions:
                self._leaders[topic.name or "", int(partition.partition_index)] = int(partition.leader_id)
        return response

    async def _any_channel(self) -> Channel:
        """An open connection, or else a new one to the first broker that responds."""
        if opened := self._open_channels():
            return opened[0]
        failures = []
        for address in dict.fromkeys([*self._addresses.values(), *self._bootstrap]):
            try:
                return await self._channel(address)
            except OSError as error:
                failures.append(f"{address[0]}:{address[1]}: {describe_os_error(error)}")
        raise NoBrokersAvailable(f"no broker responds: {'; '.join(failures)}")

    async def _channel(self, address: tuple[str, int]) -> Channel:
        opening = self._channels.get(address)
        if opening is None or (opening.done() and not is_open_channel(opening)):
            opening = self._channels[address] = asyncio.create_task(self._open_channel(address))
        return await asyncio.shield(opening)

    async def _open_channel(self, address: tuple[str, int]) -> Channel:
        try:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self._timeout_s)):
                return await open_channel(*address, self._client_id, security=self._security)
        except TimeoutError as error:
            raise ConnectionError("no response in time") from error

    def _open_channels(self) -> list[Channel]:
        """The connections that are open, the oldest first."""
        return [opening.result() for opening in self._channels.values() if is_open_channel(opening)]

    # --- records and offsets

    async def produce(
        self, topic: str, partition: int, batch: bytes, *, acks: int = -1, timeout_s: float = 30.0
    ) -> int:
        """Appends one record batch and returns its base offset. Raises KafkaError."""
        request = build_produce(topic, partition, batch, timeout_s=timeout_s, acks=acks)
        response = await self.send_to_leader(topic, partition, request)
        (result,) = response.responses[0].partition_responses
        self._check_partition(topic, partition, result.error_code, result.error_message)
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
        """Fetches record batches from `offset` on; waits up to `max_wait_s` for the first.

        Raises KafkaError.
        """
        request = build_fetch(
            topic, partition, offset, max_bytes=max_bytes, max_wait_s=max_wait_s, read_committed=read_committed
        )
        response = await self.send_to_leader(topic, partition, request)
        raise_for_error(response.error_code, f"fetch from {topic}-{partition}: {response.error_code.name}")
        (found,) = response.responses[0].partitions
        self._check_partition(topic, partition, found.error_code, None)
        records = found.records or b""
        last, end = find_last_batch(records)
        next_offset = parse_batch_header(records, last).next_offset if end else offset
        return FetchedRecords(records[:end], next_offset, int(found.high_watermark), int(found.log_start_offset))

    async def list_offset(self, topic: str, partition: int, timestamp: int = LATEST_TIMESTAMP) -> int:
        """The first offset at or after a time (ms), or at EARLIEST_TIMESTAMP or LATEST_TIMESTAMP;
        −1 if there is none.

        Raises KafkaError.
        """
        request = build_list_offsets([(topic, partition)], timestamp)
        response = await self.send_to_leader(topic, partition, request)
        (found,) = response.topics[0].partitions
        self._check_partition(topic, partition, found.error_code, None)
        return int(found.offset)

    def _check_partition(self, topic: str, partition: int, code: ErrorCode, message: str | None) -> None:
        if code in RETRIABLE_ERRORS:
            self._leaders.pop((topic, partition), None)  # the next call searches for the leader again
        raise_for_error(code, message or f"{topic}-{partition}: {code.name}")


def raise_for_error(code: ErrorCode, message: str) -> None:
    """Raises KafkaError unless the code is `none`."""
    if code is not ErrorCode.none:
        raise KafkaError(code, message)


def parse_bootstrap_servers(text: str) -> list[tuple[str, int]]:
    """Parses `host:port,host:port`, with IPv6 hosts in brackets.

    Raises ValueError that names the invalid pair.
    """
    addresses = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = pair.rpartition(":")
        if not (colon and host and port.isdigit()):
            raise ValueError(f"{pair!r} is not host:port")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no host:port given")
    return addresses
