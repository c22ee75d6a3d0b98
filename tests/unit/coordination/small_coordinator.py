"""A broker with only a group coordinator, whose API handlers are called through the codec."""

import datetime
from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

from ottla_broker.broker import Broker
from ottla_broker.config import Config
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.group_coordinator import GroupCoordinator
from ottla_broker.coordination.producer_ids import ProducerIdAllocator
from ottla_broker.dispatcher import RequestDispatcher
from ottla_broker.metadata.failure_detector import FailureDetector
from ottla_broker.metadata.image import BrokerRegistration, MetadataImage, TopicImage
from ottla_broker.metadata.records import Endpoint, PartitionRecord
from ottla_broker.replication.partitions import Partitions
from ottla_broker.requests.api import build_error_response, find_handler
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.security.audit import BrokerLogAudit
from ottla_broker.security.authorizer import AllowAll, Authorizer
from ottla_broker.security.client_quota_manager import ClientQuotaManager, QuotaWindows
from ottla_broker.transactions.transactions import build_transactions
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.channel_builder import UNSECURED_CHANNELS
from ottla_broker.wire.codec import read_request, read_response, request_class, write_request, write_response
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_schema import MessageSchema, schema_of
from ottla_broker.wire.request_header import read_request_header
from tests.sim.virtual_loop import run_in_virtual_time
from tests.unit.coordination.memory_journal import MemoryJournal, virtual_runtime

TRANSACTIONS = TopicImage("__transaction_state", UUID(int=10), {0: PartitionRecord(UUID(int=10), 0, (1,), (1,), 1)})
TOPIC = TopicImage("t", UUID(int=7), {p: PartitionRecord(UUID(int=7), p, (1,), (1,), 1) for p in range(2)})
OFFSETS = TopicImage("__consumer_offsets", UUID(int=8), {0: PartitionRecord(UUID(int=8), 0, (1,), (1,), 1)})


class SmallCoordinator:
    """The part of a broker that the handlers of groups and offsets use."""

    def __init__(self) -> None:
        self.config = Config.of({"node.id": "1", "log.dirs": "/nowhere"})
        self.runtime = virtual_runtime()
        self.image = MetadataImage()
        for topic in (TOPIC, OFFSETS, TRANSACTIONS):
            self.image.topics[topic.name] = topic
            self.image.topic_names[topic.id] = topic.name
        endpoints = {"PLAINTEXT": Endpoint("here", 9092)}
        self.image.brokers[1] = BrokerRegistration(1, 1, UUID(int=9), endpoints, None, (), fenced=False)
        self.group_coordinator = GroupCoordinator(
            self.runtime,
            GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0, offset_metadata_max_bytes=10),
            CoordinatorMetadata(self.image),
            lambda: 1,
        )
        self.blocks = iter([range(5, 7)])
        self.producer_ids = ProducerIdAllocator(self.allocate)
        self.partitions = Partitions(self.image)
        self.transactions = build_transactions(
            self.config,
            self.runtime,
            self.image,
            self.partitions,
            self.group_coordinator,
            UNSECURED_CHANNELS,
            lambda: True,
            self.producer_ids.generate_id,
        )
        self.authorizer: Authorizer = AllowAll()
        self.audit_log = BrokerLogAudit(lambda: 0.0)
        self.client_quotas = ClientQuotaManager(QuotaWindows(), lambda: 0.0)
        self.failure_detector = FailureDetector(1, self.image, "PLAINTEXT")
        self.client_id = "me"

    def create_dispatcher(self) -> RequestDispatcher:
        return RequestDispatcher(cast(Broker, self))

    async def allocate(self) -> range:
        if (block := next(self.blocks, None)) is None:
            raise KafkaError(ErrorCode.not_controller)
        return block

    async def auto_create_topic(self, name: str) -> None:
        raise KafkaError(ErrorCode.invalid_replication_factor, "too few brokers")

    async def send_message(self, key: int, version: int, request: Any) -> Any:
        """The response to a request. Both are encoded and decoded."""
        frame = bytes(write_request(key, version, 1, "me", request)[4:])
        header = read_request_header(frame)
        handler = find_handler(key, version)
        assert handler is not None
        context = RequestContext(
            cast(Any, self), ConnectionState("10.0.0.1", 1, "PLAINTEXT"), version, self.client_id, self.authorizer
        )
        try:
            response = await handler.handle(context, read_request(frame, header, handler.request))
        except KafkaError as reason:
            response = build_error_response(handler.response, reason)
        return read_response(bytes(write_response(key, version, 1, response)[4:]), key, version)

    async def send(self, api: int, version: int, /, **fields: Any) -> Any:
        """Sends a request with these fields. Nested entities are dictionaries."""
        return await self.send_message(api, version, build_message(schema_of(request_class(api, version)), fields))


def build_message(schema: MessageSchema, fields: dict[str, Any]) -> Any:
    """A message with these fields, as far as it has them, and defaults for the others."""
    fields_by_name = {field.name: field for field in schema.all_fields}
    values = {name: getattr(schema.default(), name) for name in fields_by_name}
    for name, value in fields.items():
        if name not in fields_by_name:
            continue
        entity = fields_by_name[name].entity
        values[name] = (
            tuple(build_message(entity, it) for it in value) if entity is not None and value is not None else value
        )
    return schema.cls(**values)


def run_with_coordinator(test: Callable[[SmallCoordinator], Awaitable[None]]) -> None:
    """Runs a test on virtual time, with the partitions of coordinators loaded."""

    async def main() -> None:
        broker = SmallCoordinator()
        await broker.group_coordinator.load(MemoryJournal())
        await broker.transactions.coordinator.load(MemoryJournal(topic="__transaction_state"))
        try:
            await test(broker)
        finally:
            broker.transactions.close()
            broker.group_coordinator.close()

    run_in_virtual_time(main())


def partition(index: int, offset: int = 5, metadata: str | None = "m") -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": 3,
        "committed_metadata": metadata,
    }


def error_codes(response: Any) -> list[ErrorCode]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


async def commit(
    broker: SmallCoordinator, version: int, *partitions: dict[str, Any], **additional: Any
) -> list[ErrorCode]:
    """Commits offsets of topic t in group g."""
    topics = [{"name": "t", "topic_id": TOPIC.id, "partitions": partitions}]
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics} | additional
    fields.setdefault("retention_time", datetime.timedelta(milliseconds=-1))
    return error_codes(await broker.send(ApiKey.OFFSET_COMMIT, version, **fields))
