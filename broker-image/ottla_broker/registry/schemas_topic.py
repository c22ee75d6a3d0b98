"""The topic `_schemas` at one broker: its records are applied to the state in their order, once
they are committed.

The leader of its one partition writes, one decision at a time; it decides only when it has applied
every record of its log, so a decision takes every change of earlier leaders into account. A write
returns when its records are replicated and applied. Other brokers read the topic as consumers do.
Any registry of Confluent's format can write to the topic too: its records are applied alike.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar, cast
from uuid import UUID

from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from ottla_broker.broker import Broker
from ottla_broker.config import SCHEMA_REGISTRY_TOPIC_REPLICATION_FACTOR
from ottla_broker.coordination.auto_topic_creation import IMAGE_TIMEOUT_S, auto_replication_factor
from ottla_broker.coordination.journal import PartitionJournal
from ottla_broker.metadata.image import SCHEMAS_TOPIC
from ottla_broker.metadata.mirror_plans import produce_rejection
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.metadata.state_condition import StateCondition
from ottla_broker.registry import errors
from ottla_broker.registry.record_format import SchemasRecord, decode_record, encode_record
from ottla_broker.registry.state import RegistryState
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import Buffer, has_valid_crc, iter_batches
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, decompress_records, encode_batch, iter_record_spans

logger = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 20
SLICE_S: Final = 0.005
"""How long records are applied before other tasks run."""
FETCH_WAIT_S: Final = 5.0
RETRY_PAUSE_S: Final = 0.1
WRITE_TIMEOUT_S: Final = 10.0
LEADER_TIMEOUT_S: Final = 10.0
FOREVER_S: Final = 3600.0
"""Time to wait for the topic to be created; then the wait begins again."""

T = TypeVar("T")


class NotLeader(Exception):
    """Another broker leads `_schemas`. `leader`: its id."""

    def __init__(self, leader: int) -> None:
        super().__init__(f"broker {leader} leads {SCHEMAS_TOPIC}")
        self.leader = leader


class SchemasTopic:
    """`state`: replaced by an empty one when the topic is deleted and created again. `next_offset`:
    offset of the first record that is not applied to it yet. Runs on the broker's event loop.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.state = RegistryState()
        self.next_offset = 0
        self._topic_id: UUID | None = None
        self._applied = StateCondition()
        self._write_lock = asyncio.Lock()
        self._client: Client | None = None

    # -- writing, at the leader

    async def write(self, decide: Callable[[RegistryState], tuple[T, list[SchemasRecord]]]) -> T:
        """Calls `decide` with a state that has every record of the log, appends the records that it
        returns, and returns its result when they are replicated and applied.

        Raises NotLeader, RegistryError, and what `decide` raises.
        """
        await self._create_if_missing()
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S), self._write_lock:
                partition = await self._led_partition()
                journal = PartitionJournal(partition)
                await journal.wait_until_recovered()
                await self._require_applied(partition.log.end)
                result, records = decide(self.state)
                if records:
                    self._check_writable(partition)
                    encoded = self._encode(records)
                    offset = await journal.append(encode_batch(encoded))
                    await self._require_applied(offset + len(encoded))
                return result
        except TimeoutError:
            raise errors.operation_timed_out(f"not replicated within {WRITE_TIMEOUT_S:.0f} s") from None
        except KafkaError as reason:
            if reason.code in (ErrorCode.message_too_large, ErrorCode.record_list_too_large):
                raise errors.RegistryError(42209, f"Schema is too large: {reason}") from None
            if reason.code is ErrorCode.not_leader_or_follower:
                raise errors.unknown_leader(f"the leader of {SCHEMAS_TOPIC} changes: {reason}") from None
            raise errors.store_error(f"cannot write to {SCHEMAS_TOPIC}: {reason}") from None

    def _check_writable(self, partition: Partition) -> None:
        """Raises RegistryError while the topic mirrors that of another cluster. With records of
        this cluster it would diverge from its source, and they could have ids that the source
        assigns too.
        """
        image, topic_id = self._broker.image, self._broker.image.topics[SCHEMAS_TOPIC].id
        if not image.is_writable(topic_id, partition.partition):
            reason = produce_rejection(image, topic_id, SCHEMAS_TOPIC)
            if reason.code is ErrorCode.invalid_topic_exception:
                raise errors.operation_not_permitted(f"schemas are mirrored from another cluster: {reason}")
            raise errors.store_error(str(reason))

    def _encode(self, records: list[SchemasRecord]) -> list[Record]:
        """The records as they are appended. A deleted key gets a tombstone in every form in which a
        registry has written it, because compaction compares bytes.
        """
        now_ms = self._broker.runtime.now_ms()
        encoded = []
        for record in records:
            key, value = encode_record(record)
            encoded.append(Record(now_ms, key, value))
            if value is None:
                encoded += [Record(now_ms, other, None) for other in sorted(self.state.foreign_keys.get(key, ()))]
        return encoded

    async def _led_partition(self) -> Partition:
        """The topic's partition, when this broker leads it. Raises NotLeader, RegistryError,
        KafkaError.
        """
        await self._wait_for_leader()
        topic_id = self._broker.image.topics[SCHEMAS_TOPIC].id
        return self._broker.partitions.leader(SCHEMAS_TOPIC, 0, topic_id=topic_id)

    async def _wait_for_leader(self) -> None:
        """Returns when this broker leads. Raises NotLeader, RegistryError."""

        def has_leader() -> bool:
            return self._leader() != NO_LEADER

        if not await self._broker.image_condition.wait_for(has_leader, timeout_s=LEADER_TIMEOUT_S):
            raise errors.unknown_leader(f"{SCHEMAS_TOPIC} has no leader")
        if (leader := self._leader()) != self._broker.node_id:
            raise NotLeader(leader)

    async def ensure_leader(self) -> None:
        """Creates the topic if it does not exist, and returns when this broker leads it. Raises
        NotLeader, RegistryError."""
        await self._create_if_missing()
        await self._wait_for_leader()

    def other_leader(self) -> int | None:
        """The leader's id; None if this broker leads, or none does."""
        leader = self._leader()
        return None if leader in (NO_LEADER, self._broker.node_id) else leader

    def _leader(self) -> int:
        topic = self._broker.image.topics.get(SCHEMAS_TOPIC)
        return NO_LEADER if topic is None or 0 not in topic.partitions else topic.partitions[0].leader

    async def _require_applied(self, offset: int) -> None:
        """Waits until the records before `offset` are applied. Raises TimeoutError after
        WRITE_TIMEOUT_S.
        """
        if not await self.wait_until_applied(offset, WRITE_TIMEOUT_S):
            raise TimeoutError

    async def wait_until_applied(self, offset: int, timeout_s: float) -> bool:
        """True when the records before `offset` are applied, False at the timeout."""
        return await self._applied.wait_for(lambda: self.next_offset >= offset, timeout_s=timeout_s)

    def has_every_record(self) -> bool:
        """True if no committed record can be missing in the state: this broker leads and has
        applied all, or the topic does not exist.
        """
        if SCHEMAS_TOPIC not in self._broker.image.topics:
            return True
        partition = self._broker.partitions.get(SCHEMAS_TOPIC, 0)
        return (
            partition is not None
            and partition.is_leader
            and partition.has_reached_epoch_start
            and self.next_offset >= partition.log.high_watermark
        )

    async def wait_until_caught_up(self, timeout_s: float) -> None:
        """Returns when the records are applied that were committed at the time of the call, or at
        the timeout.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while SCHEMAS_TOPIC in self._broker.image.topics:
                    try:
                        await self.catch_up()
                        break
                    except (KafkaError, OSError) as reason:
                        logger.debug("cannot catch up with the leader of _schemas: %s", reason)
                        await asyncio.sleep(RETRY_PAUSE_S)

    async def catch_up(self) -> None:
        """Returns when the records are applied that are committed at the leader now.

        Raises KafkaError, OSError, TimeoutError.
        """
        await self._require_applied(await self._reader().list_offset(SCHEMAS_TOPIC, 0))

    async def _create_if_missing(self) -> None:
        """Creates the topic, compacted and with one partition. Raises RegistryError."""
        broker = self._broker
        if SCHEMAS_TOPIC in broker.image.topics:
            return
        factor = auto_replication_factor(broker.config, broker.image, SCHEMA_REGISTRY_TOPIC_REPLICATION_FACTOR)
        topic = CreatableTopic(
            name=TopicName(SCHEMAS_TOPIC),
            num_partitions=cast(i32, 1),
            replication_factor=cast(i16, factor),
            assignments=(),
            configs=(CreatableTopicConfig(name="cleanup.policy", value="compact"),),
        )
        request = CreateTopicsRequest(topics=(topic,))
        try:
            response: CreateTopicsResponse = await broker.controller_channel.send_request(request)
        except (KafkaError, OSError, TimeoutError) as reason:
            raise errors.store_error(f"cannot create {SCHEMAS_TOPIC}: {reason}") from None
        [made] = response.topics
        if made.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
            raise errors.store_error(f"cannot create {SCHEMAS_TOPIC}: {made.error_message}")
        await broker.image_condition.wait_for(lambda: SCHEMAS_TOPIC in broker.image.topics, timeout_s=IMAGE_TIMEOUT_S)

    # -- reading, at every broker

    async def run(self) -> None:
        """Applies the topic's records, until it is cancelled."""
        while True:
            try:
                await self._read_next()
            except (KafkaError, OSError, TimeoutError) as reason:
                logger.debug("cannot read %s, retrying: %s", SCHEMAS_TOPIC, reason)
                if isinstance(reason, KafkaError) and reason.code is ErrorCode.offset_out_of_range:
                    self._reset(self._topic_id)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _read_next(self) -> None:
        """Waits for the next records and applies them; if there is no topic, waits for it. Raises
        KafkaError, OSError, TimeoutError.
        """
        image, condition = self._broker.image, self._broker.image_condition
        topic = image.topics.get(SCHEMAS_TOPIC)
        if topic is None:
            if self._topic_id is not None:
                self._reset(None)
            await condition.wait_for(lambda: SCHEMAS_TOPIC in image.topics, timeout_s=FOREVER_S)
            return
        if topic.id != self._topic_id:
            self._reset(topic.id)
        started_s, first = time.monotonic(), self.next_offset
        if self._leader() == self._broker.node_id:
            await self._read_as_leader(topic.id)
        else:
            await self._read_from_leader()
        if not first and self.next_offset:
            logger.info(
                "read %s up to offset %d in %.0f ms: %d subjects",
                SCHEMAS_TOPIC,
                self.next_offset,
                (time.monotonic() - started_s) * 1000,
                len(self.state.subjects),
            )

    def _reset(self, topic_id: UUID | None) -> None:
        self.state = RegistryState()
        self.next_offset = 0
        self._topic_id = topic_id

    async def _read_as_leader(self, topic_id: UUID) -> None:
        partition = self._broker.partitions.leader(SCHEMAS_TOPIC, 0, topic_id=topic_id)
        log = partition.log
        if log.end < self.next_offset:  # an unclean election has lost records
            self._reset(topic_id)
        if log.high_watermark <= self.next_offset:
            await partition.wait_in_epoch(partition.read_waiters, lambda: log.high_watermark > self.next_offset)
        await self._apply_chunk(log.read(max(self.next_offset, log.start), READ_BYTES, up_to=log.high_watermark))

    async def _read_from_leader(self) -> None:
        fetched = await self._reader().fetch(
            SCHEMAS_TOPIC, 0, self.next_offset, max_bytes=READ_BYTES, max_wait_s=FETCH_WAIT_S
        )
        await self._apply_chunk(fetched.records)

    def _reader(self) -> Client:
        """A client that reads as a consumer does, with the login of brokers."""
        if self._client is None:
            broker = self._broker
            addresses = broker.image.broker_addresses(broker.config.inter_broker_listener)
            client_id = f"schema-registry-{broker.node_id}"
            self._client = Client(addresses, client_id=client_id, security=broker.channels.security)
        return self._client

    async def _apply_chunk(self, chunk: Buffer) -> None:
        slice_started_s = time.monotonic()
        for at, header in iter_batches(chunk):
            if not has_valid_crc(chunk, header, at):
                raise KafkaError(ErrorCode.corrupt_message, f"invalid CRC of the batch at offset {header.base_offset}")
            if not header.is_control:
                spans = iter_record_spans(decompress_records(chunk, header, at), header.count)
                for _, _, _, delta, key, value, _ in spans:
                    if header.base_offset + delta >= self.next_offset:
                        self._apply_record(header.base_offset + delta, key, value)
                    if time.monotonic() - slice_started_s > SLICE_S:
                        await asyncio.sleep(0)
                        slice_started_s = time.monotonic()
            self.next_offset = max(self.next_offset, header.next_offset)
        self._applied.notify_all()

    def _apply_record(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            record = None if key is None else decode_record(key, value)
        except ValueError as reason:
            logger.warning("ignoring the record at offset %d of %s: %s", offset, SCHEMAS_TOPIC, reason)
            return
        if record is not None:
            self.state.apply(record)
        self.next_offset = offset + 1
