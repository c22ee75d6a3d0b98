"""Produce (0), versions 0–13.

- Appends each partition's batch in the order of the requests, and parses no more than its header
  unless the topic is compacted, bounds timestamps, validates schema ids or compresses batches
  itself, or the header shows an invalid timestamp.
- acks=1 and 0 are done when the leader has the records, −1 when the whole ISR has; after the
  request's timeout the error is REQUEST_TIMED_OUT, and the records stay. With acks=0 an error
  closes the connection: there is no response for it.
- Mirrored topics are INVALID_TOPIC_EXCEPTION, which no client retries, until they fail over; during
  the failover NOT_ENOUGH_REPLICAS, which clients retry.
- Internal topics are INVALID_TOPIC_EXCEPTION: only their coordinators write them, and clients with
  the client id `__admin_client`, as with Kafka.
- Before the first batch of a transaction is appended, the leader asks the transaction coordinator
  whether the partition is in the transaction; from v12 on it adds the partition (KIP-890,
  `requests.transactional_produce`). A transactional batch in a request without a transactional id
  is TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
- Versions 0–2 are advertised for librdkafka (rule 16) and answered with UNSUPPORTED_VERSION, as
  Kafka 4 does.
- A leader that has just stepped down answers NOT_LEADER_OR_FOLLOWER, and for a while forwards
  requests that clients had sent before they knew the new leader.
- v8 names the records that cause the rejection of a batch (KIP-467), v10 has current leaders
  (KIP-951), v13 topic ids.
"""

import asyncio
from functools import partial
from typing import Final
from uuid import UUID

from ottla_broker.log.record_validation import InvalidRecords
from ottla_broker.log.schema_ids import validate_schema_ids
from ottla_broker.log.validation import MAGIC, LogAppendInfo
from ottla_broker.metadata.image import INTERNAL_TOPICS
from ottla_broker.metadata.mirror_plans import produce_rejection
from ottla_broker.replication.partition import ALL_REPLICAS, FORWARDING_S, Partition
from ottla_broker.replication.produce_forwarder import CLIENT_RETRY_PAUSE_S
from ottla_broker.requests.api import Api, Right
from ottla_broker.requests.context import CloseConnection, RequestContext
from ottla_broker.requests.current_leader import WRONG_BROKER_ERRORS, current_leader, leader_endpoints
from ottla_broker.requests.reply import Buffers, DeferredResponse, Reply
from ottla_broker.requests.transactional_produce import RequestTransaction
from ottla_broker.security.authorizer import Operation, Resource, ResourceType
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.batch import COMPRESSION_MASK, HEADER_SIZE, TRANSACTIONAL_FLAG, Compression, parse_batch_header
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.produce import (
    CURRENT_LEADER_SINCE,
    NO_OFFSET,
    NO_RESPONSE,
    ProduceRequest,
    ProduceResponsePartition,
    Topic,
    read_produce_request,
    write_produce_response,
)
from ottla_broker.wire.request_header import RequestHeader

API = Api(
    ApiKey.PRODUCE,
    versions=(0, 13),
    flexible=9,
    rights=(
        Right(Operation.write, ResourceType.topic),
        Right(Operation.write, ResourceType.transactional_id, when="with transactional records"),
    ),
)

OLDEST_SUPPORTED: Final = 3
ZSTD_SINCE: Final = 7  # KIP-110
VALID_ACKS: Final = frozenset({ALL_REPLICAS, NO_RESPONSE, 1})
MAGIC_OFFSET: Final = 16  # in a batch
ATTRIBUTES_OFFSET: Final = 22  # the low byte of the two
WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.corrupt_message,
        ErrorCode.kafka_storage_error,
        ErrorCode.message_too_large,
        ErrorCode.not_leader_or_follower,
        ErrorCode.record_list_too_large,
    }
)
"""Errors of a log with which Kafka sends no log start offset."""
ADMIN_CLIENT: Final = "__admin_client"  # the client id by which Kafka's tools may write to internal topics

Results = list[tuple[Topic, list[ProduceResponsePartition]]]
Uncommitted = list[tuple[ProduceResponsePartition, Partition, LogAppendInfo]]


def produce(
    context: RequestContext,
    frame: bytearray,
    header: RequestHeader,
    max_response_bytes: int,
    transaction: RequestTransaction | None = None,
) -> Reply:
    """`transaction`: that of the request, once its partitions have been verified."""
    request = read_produce_request(frame, header)
    if request.transactional_id is not None and transaction is None:
        transaction = RequestTransaction(context, request.transactional_id)
        if unverified := transaction.find_unverified(request):
            return transaction.verify_and_reply(
                unverified, partial(produce, context, frame, header, max_response_bytes, transaction)
            )
    throttle_ms = 0 if context.quota is None else context.quota.charge_produce(len(frame))
    appends = Appends(context, request.acks, transaction)
    results = [
        (topic, [appends.append(topic, index, records) for index, records in partitions])
        for topic, partitions in request.topics
    ]
    if context.trace is not None:
        context.trace.on_appended(request, results)
    if request.acks == NO_RESPONSE:
        if appends.rejected_count:
            close_connection(results)
        return None
    if appends.uncommitted:
        response = DelayedProduce(context, header, results, appends.uncommitted, request.timeout_ms).response
        if context.trace is not None:
            context.trace.on_waiting(appends.uncommitted, response)
        return response
    if not appends.rejected_count:
        return [write_produce_response(header.version, header.correlation_id, results, (), throttle_ms)]
    rejection = [build_response(context, header, results)]
    if (leader := find_successor(context, results)) is not None:
        return forward_or_reject(context, leader, request, bytes(frame), rejection)
    return rejection


class Appends:
    """The appends of one request. `uncommitted`: records that must be committed before the
    response; `rejected_count`: number of failed appends.
    """

    __slots__ = ("_acks", "_context", "_transaction", "rejected_count", "uncommitted")

    def __init__(self, context: RequestContext, acks: int, transaction: RequestTransaction | None) -> None:
        self._context = context
        self._acks = acks
        self._transaction = transaction
        self.uncommitted: Uncommitted = []
        self.rejected_count = 0

    def append(self, topic: Topic, index: int, records: memoryview | None) -> ProduceResponsePartition:
        """Appends the records of one partition."""
        acks = self._acks
        try:
            partition = find_led_partition(self._context, topic, index)
            validate_append(self._context, partition, records, acks, self._transaction)
        except KafkaError as reason:
            self.rejected_count += 1
            if records is not None and reason.code is ErrorCode.not_leader_or_follower:
                self._context.broker.partitions.record_misdirected(topic, index, records)
            return ProduceResponsePartition(index, reason.code, message=reason.message)
        assert records is not None
        try:
            appended = partition.append_records(records, acks=acks)
        except KafkaError as reason:
            self.rejected_count += 1
            log_start = NO_OFFSET
            if reason.code not in WITHOUT_LOG_START and is_one_batch(records):
                log_start = partition.log.start
            errors = reason.record_errors if isinstance(reason, InvalidRecords) else ()
            return ProduceResponsePartition(
                index, reason.code, log_start=log_start, message=reason.message, record_errors=errors
            )
        result = ProduceResponsePartition(
            index, ErrorCode.none, appended.first_offset, appended.log_append_time_ms, appended.log_start_offset
        )
        if acks == ALL_REPLICAS and not partition.is_committed(appended):
            self.uncommitted.append((result, partition, appended))
        return result


def find_led_partition(context: RequestContext, topic: Topic, index: int) -> Partition:
    """The partition that this broker leads. Raises KafkaError with the partition's error."""
    if context.version < OLDEST_SUPPORTED:
        raise KafkaError(
            ErrorCode.unsupported_version, f"produce versions below {OLDEST_SUPPORTED} are only advertised"
        )
    partitions = context.broker.partitions
    if isinstance(topic, str):
        name, topic_id = topic, None
    else:
        name, topic_id = partitions.topic_name(topic), topic
    if not (context.authorizer.allows_everything or context.is_authorized(Operation.write, Resource.topic(name))):
        raise KafkaError(ErrorCode.topic_authorization_failed)
    if name in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"only its coordinator writes {name}")
    return partitions.leader(name, index, topic_id=topic_id)


def validate_append(
    context: RequestContext,
    partition: Partition,
    records: memoryview | None,
    acks: int,
    transaction: RequestTransaction | None,
) -> None:
    """Checks the records of one partition, and the request's acks, as far as the log does not.
    Raises KafkaError."""
    if not records:
        raise KafkaError(ErrorCode.invalid_record, "no records for the partition")
    if len(records) > ATTRIBUTES_OFFSET and records[MAGIC_OFFSET] == MAGIC:  # the log rejects other formats
        attributes = records[ATTRIBUTES_OFFSET]
        if attributes & TRANSACTIONAL_FLAG:
            if transaction is None:
                raise KafkaError(
                    ErrorCode.transactional_id_authorization_failed, "a transactional batch without a transactional id"
                )
            transaction.check_batch(partition, records)
        if context.version < ZSTD_SINCE and attributes & COMPRESSION_MASK == Compression.zstd:
            raise KafkaError(ErrorCode.unsupported_compression_type, f"zstd needs version {ZSTD_SINCE} of Produce")
    if acks not in VALID_ACKS and is_one_batch(records):
        raise KafkaError(ErrorCode.invalid_required_acks, f"acks must be -1, 0 or 1, and is {acks}")
    image = context.broker.image
    if image.mirrored_topics and not image.is_writable(partition.topic_id, partition.partition):
        rejection = produce_rejection(image, partition.topic_id, partition.topic)
        raise partition.rejected_batches.reject(records, rejection)
    if partition.log.validates_schema_ids and is_one_batch(records):
        validate_schema_ids(records, partition.topic, partition.log.config, context.broker.schema_ids)


def is_one_batch(records: memoryview) -> bool:
    """True if the bytes are one batch of today's format, by its header."""
    if len(records) < HEADER_SIZE:
        return False
    header = parse_batch_header(records)
    return header.magic == MAGIC and header.size == len(records)


def close_connection(results: Results) -> None:
    """Raises CloseConnection with the first error."""
    for topic, partitions in results:
        for result in partitions:
            if result.error is not ErrorCode.none:
                raise CloseConnection(f"acks=0 and {result.error.name} for {topic}-{result.partition}")


def build_response(context: RequestContext, header: RequestHeader, results: Results) -> bytearray:
    leaders = []
    if header.version >= CURRENT_LEADER_SINCE:
        for topic, partitions in results:
            for result in partitions:
                if result.error in WRONG_BROKER_ERRORS:
                    result.leader = current_leader(context, topic, result.partition)
                    if result.leader is not None:
                        leaders.append(result.leader[0])
    endpoints = leader_endpoints(context, leaders) if leaders else ()
    return write_produce_response(header.version, header.correlation_id, results, endpoints, context.throttle_ms)


class DelayedProduce:
    """A response that waits until the whole ISR has the records of every partition, or for the
    request's timeout.
    """

    __slots__ = ("_context", "_header", "_pending", "_results", "_timer", "response")

    def __init__(
        self,
        context: RequestContext,
        header: RequestHeader,
        results: Results,
        uncommitted: Uncommitted,
        timeout_ms: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._context = context
        self._header = header
        self._results = results
        self.response = DeferredResponse(loop=loop)
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._expire)
        self._pending = {number: result for number, (result, _, _) in enumerate(uncommitted)}
        for number, (_, partition, appended) in enumerate(uncommitted):
            on_committed = partial(self._on_committed, number)
            if not partition.call_when_committed(appended, on_committed, across_leaders=True):
                on_committed(None)

    def _on_committed(self, number: int, reason: KafkaError | None) -> None:
        result = self._pending.pop(number, None)
        if result is None:
            return  # the request has timed out
        if reason is not None:
            result.error, result.base_offset, result.message = reason.code, NO_OFFSET, reason.message
        if not self._pending:
            self._complete()

    def _expire(self) -> None:
        for result in self._pending.values():
            result.error, result.base_offset = ErrorCode.request_timed_out, NO_OFFSET
        self._pending.clear()
        self._complete()

    def _complete(self) -> None:
        self._timer.cancel()
        self.response.complete([build_response(self._context, self._header, self._results)])


def find_successor(context: RequestContext, results: Results) -> int | None:
    """The one new leader of every partition of a request, if this broker has just stepped down from
    all of them.
    """
    leaders = set()
    for topic, partitions in results:
        for result in partitions:
            if result.error is not ErrorCode.not_leader_or_follower:
                return None
            partition = find_replica(context, topic, result.partition)
            if partition is None or not partition.has_just_stepped_down:
                return None
            leaders.add(partition.registration.leader)
    return leaders.pop() if len(leaders) == 1 else None


def find_replica(context: RequestContext, topic: Topic, index: int) -> Partition | None:
    partitions = context.broker.partitions
    return partitions.get(partitions.topic_name(topic) if isinstance(topic, UUID) else topic, index)


def forward_or_reject(
    context: RequestContext, leader: int, request: ProduceRequest, frame: bytes, rejection: Buffers
) -> Reply:
    """Forwards the request to the new leader, or rejects it: see
    `replication.produce_forwarder`."""
    loop, forwarder, connection = asyncio.get_running_loop(), context.broker.produce_forwarder, context.connection
    batches = [
        (partition, bytes((records or b"")[:HEADER_SIZE]))
        for topic, partitions in request.topics
        for index, records in partitions
        if (partition := find_replica(context, topic, index)) is not None
    ]

    async def forward() -> Buffers:
        try:
            response = await forwarder.forward(leader, frame, request.timeout_ms)
        except OSError as reason:
            raise CloseConnection(
                f"a request was forwarded to broker {leader}, and its response is lost: {reason}"
            ) from reason
        if response is None:
            redirect(batches)
            return rejection
        return [response]

    if not CLIENT_RETRY_PAUSE_S <= loop.time() - connection.stepped_down_s < FORWARDING_S:
        connection.stepped_down_s = loop.time()
        forwarder.on_client_redirected(leader)
        redirect(batches)
        return rejection
    forwardable = [(partition, batch) for partition, batch in batches if partition.rejected_batches.can_forward(batch)]
    if len(forwardable) == len(batches):
        return loop.create_task(forward())
    redirect(forwardable)
    return rejection


def redirect(batches: list[tuple[Partition, bytes]]) -> None:
    for partition, batch in batches:
        partition.rejected_batches.redirect(batch)
