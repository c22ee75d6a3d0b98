"""Produce (0), versions 0–13.

- Appends each partition's batches in the order in which requests came, without looking into them beyond their
  headers.
- acks=1 and 0 answer, or do not, when the leader has them; −1 when the whole ISR has, or says REQUEST_TIMED_OUT
  after the request's timeout (the records stay). With acks=0 an error closes the connection: there is no answer to
  put it in.
- Copies of another cluster's topics are refused with INVALID_TOPIC_EXCEPTION, which no client tries again, until they fail over;
  while that happens with NOT_ENOUGH_REPLICAS, which clients do.
- Internal topics are refused with INVALID_TOPIC_EXCEPTION: their records are a coordinator's memory.
- Transactional batches are TRANSACTIONAL_ID_AUTHORIZATION_FAILED until there is a coordinator that could end them.
- Versions 0–2 are advertised for librdkafka's sake (rule 16) and answered with UNSUPPORTED_VERSION, as Kafka 4 does.
- A leader that has just stepped down says so, and then passes on for a while what comes all the same.
- v10 tells who leads instead (KIP-951), v13 names topics by id.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ottla_broker.log.validation import MAGIC, LogAppendInfo
from ottla_broker.metadata.image import INTERNAL_TOPICS
from ottla_broker.metadata.mirror_plans import produce_rejection
from ottla_broker.replication.produce_forwarder import CLIENT_RETRY_PAUSE_S, FORWARDING_S
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import Buffers, CloseConnection, DeferredResponse, Reply, RequestContext
from ottla_broker.requests.current_leader import TOLD_WITH, addresses_of, current_leader
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.batch import COMPRESSION_MASK, HEADER_SIZE, TRANSACTIONAL_FLAG, Compression, parse_batch_header
from ottla_broker.wire.codec import RequestHeader
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.produce import (
    NO_OFFSET,
    WITH_LEADERS,
    ProduceRequest,
    ProduceResponsePartition,
    read_produce_request,
    write_produce_response,
)

API = Api(ApiKey.PRODUCE, versions=(0, 13), flexible=9)

if TYPE_CHECKING:
    from ottla_broker.replication.partition import Partition

OLDEST = 3
NO_ANSWER = 0
ALL_REPLICAS = -1
ZSTD_SINCE = 7  # KIP-110
MAGIC_AT = 16  # in a batch's header
ATTRIBUTES_AT = 22  # the low byte of the two
WITHOUT_START = frozenset(
    {
        ErrorCode.corrupt_message,
        ErrorCode.kafka_storage_error,
        ErrorCode.message_too_large,
        ErrorCode.not_leader_or_follower,
        ErrorCode.record_list_too_large,
    }
)
ADMIN_CLIENT = "__admin_client"  # the client id by which Kafka's tools may write to internal topics
Topics = list[tuple[str | UUID, list[ProduceResponsePartition]]]
Waiting = list[tuple[ProduceResponsePartition, "Partition", LogAppendInfo]]


def produce(context: RequestContext, frame: bytearray, header: RequestHeader, room: int) -> Reply:
    request = read_produce_request(frame, header)
    if (refused := wrong(request, header.version)) is not None:
        topics: Topics = [(name, [denied(index, refused) for index, _ in parts]) for name, parts in request.topics]
        waiting: Waiting = []
    else:
        waiting = []
        topics = [
            (name, [append(context, name, index, records, request.acks, waiting) for index, records in partitions])
            for name, partitions in request.topics
        ]
    if request.acks == NO_ANSWER:
        for name, partitions in topics:
            for produced in partitions:
                if produced.error is not ErrorCode.none:
                    raise CloseConnection(f"acks=0 and {produced.error.name} for {name}-{produced.partition}")
        return None
    if waiting:
        return settle(context, header, topics, waiting, request.timeout_ms)
    reply = [answer(context, header, topics)]
    successor = only_successor(context, topics)
    return reply if successor is None else pass_on(context, successor, request, bytes(frame), reply)


def wrong(request: ProduceRequest, version: int) -> KafkaError | None:
    """What is wrong with the request as a whole."""
    if version < OLDEST:
        return KafkaError(ErrorCode.unsupported_version, f"produce versions below {OLDEST} are only advertised")
    return None


def append(
    context: RequestContext, topic: str | UUID, index: int, records: memoryview | None, acks: int, waiting: Waiting
) -> ProduceResponsePartition:
    """Appends one partition's records. What has to be waited for before answering is added to `waiting`."""
    try:
        partition = find(context, topic, index)
        if not records:
            raise KafkaError(ErrorCode.invalid_record, "no records for the partition")
        if len(records) > ATTRIBUTES_AT and records[MAGIC_AT] == MAGIC:  # of other formats the log says what is wrong
            check_attributes(records[ATTRIBUTES_AT], context.version)
        if acks not in (ALL_REPLICAS, NO_ANSWER, 1) and is_one_batch(records):
            raise KafkaError(ErrorCode.invalid_required_acks, f"acks must be -1, 0 or 1, and is {acks}")
        image = context.broker.image
        if image.mirrored_topics and not image.is_writable(partition.topic_id, index):
            raise partition.rejected_batches.refuse(
                records, produce_rejection(image, partition.topic_id, partition.topic)
            )
    except KafkaError as reason:
        return denied(index, reason)
    try:
        appended = partition.append_records(records, acks=acks)
    except KafkaError as reason:
        return denied(index, reason, start_beside(reason, partition, records))
    produced = ProduceResponsePartition(
        index, ErrorCode.none, appended.first_offset, appended.log_append_time_ms, appended.log_start_offset
    )
    if acks == ALL_REPLICAS and not partition.is_committed(appended):
        waiting.append((produced, partition, appended))
    return produced


def only_successor(context: RequestContext, topics: Topics) -> int | None:
    """The broker that leads now what was asked for here, if this one has just stepped down from all of it."""
    leaders = set()
    for topic, partitions in topics:
        for produced in partitions:
            if produced.error is not ErrorCode.not_leader_or_follower:
                return None
            partition = replica(context, topic, produced.partition)
            if partition is None or not partition.has_just_stepped_down:
                return None
            leaders.add(partition.registration.leader)
    return leaders.pop() if len(leaders) == 1 else None


def replica(context: RequestContext, topic: str | UUID, index: int) -> "Partition | None":
    partitions = context.broker.partitions
    return partitions.get(topic if isinstance(topic, str) else partitions.topic_name(topic), index)


def pass_on(context: RequestContext, successor: int, request: ProduceRequest, frame: bytes, refused: Buffers) -> Reply:
    """Refuses, or brings the request to where it belongs: `replication.successors` says when and why."""
    loop, successors = asyncio.get_running_loop(), context.broker.produce_forwarder
    asked = [
        (partition, bytes((records or b"")[:HEADER_SIZE]))
        for topic, parts in request.topics
        for index, records in parts
        if (partition := replica(context, topic, index)) is not None
    ]

    async def passed() -> Buffers:
        try:
            answer = await successors.forward(successor, frame, request.timeout_ms)
        except OSError as reason:
            raise CloseConnection(
                f"broker {successor} was asked in its place, and its answer is lost: {reason}"
            ) from reason
        if answer is None:
            send_away(asked)
            return refused
        return [answer]

    if not CLIENT_RETRY_PAUSE_S <= loop.time() - context.connection.stepped_down_s < FORWARDING_S:
        context.connection.stepped_down_s = loop.time()
        successors.on_client_redirected(successor)
        send_away(asked)
        return refused
    fitting = [(partition, first) for partition, first in asked if partition.rejected_batches.may_pass_on(first)]
    if len(fitting) == len(asked):
        return loop.create_task(passed())
    send_away(fitting)
    return refused


def send_away(batches: "list[tuple[Partition, bytes]]") -> None:
    for partition, header in batches:
        partition.rejected_batches.send_away(header)


def check_attributes(attributes: int, version: int) -> None:
    """What a batch may not be, by the low byte of its attributes. An open transaction would hide all that follows it
    from committed readers, and nobody is there yet who could end it."""
    if attributes & TRANSACTIONAL_FLAG:
        raise KafkaError(ErrorCode.transactional_id_authorization_failed, "transactions are not served yet")
    if version < ZSTD_SINCE and attributes & COMPRESSION_MASK == Compression.zstd:
        raise KafkaError(ErrorCode.unsupported_compression_type, f"zstd needs version {ZSTD_SINCE} of Produce")


def find(context: RequestContext, topic: str | UUID, index: int) -> "Partition":
    partitions = context.broker.partitions
    if isinstance(topic, str):
        name, topic_id = topic, None
    else:
        name, topic_id = partitions.topic_name(topic), topic
    if not (context.authorizer.allows_everything or context.is_authorized(Operation.write, Resource.topic(name))):
        raise KafkaError(ErrorCode.topic_authorization_failed)
    if name in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"{name} is written by its coordinator only")
    return partitions.leader(name, index, topic_id=topic_id)


def denied(index: int, reason: KafkaError, log_start: int = NO_OFFSET) -> ProduceResponsePartition:
    return ProduceResponsePartition(index, reason.code, log_start=log_start, message=reason.message)


def start_beside(reason: KafkaError, partition: "Partition", records: memoryview) -> int:
    """Where the log starts, which is told beside what the log has refused as Kafka's does: not where the bytes are no single batch of today's
    format, nor beside these errors."""
    return partition.log.start if is_one_batch(records) and reason.code not in WITHOUT_START else NO_OFFSET


def is_one_batch(records: memoryview) -> bool:
    """Of today's format, as far as its header says; what it is instead the log will say."""
    if len(records) < HEADER_SIZE:
        return False
    header = parse_batch_header(records)
    return header.magic == MAGIC and header.size == len(records)


def answer(context: RequestContext, header: RequestHeader, topics: Topics) -> bytearray:
    """The response; where somebody else leads, with who it is."""
    leaders = []
    for topic, partitions in topics:
        for produced in partitions:
            if produced.error in TOLD_WITH and header.version >= WITH_LEADERS:
                produced.leader = current_leader(context, topic, produced.partition)
                leaders.append(produced.leader)
    addresses = addresses_of(context, filter(None, leaders)) if leaders else ()
    return write_produce_response(header.version, header.correlation_id, topics, addresses)


def settle(
    context: RequestContext, header: RequestHeader, topics: Topics, waiting: Waiting, timeout_ms: int
) -> DeferredResponse:
    """The answer, when everything that is waited for has come or the time is over."""
    loop = asyncio.get_running_loop()
    settled = DeferredResponse(loop=loop)
    left = {number: produced for number, (produced, _, _) in enumerate(waiting)}

    def finish() -> None:
        timer.cancel()
        settled.complete([answer(context, header, topics)])

    def told(number: int, reason: KafkaError | None) -> None:
        produced = left.pop(number, None)
        if produced is None:
            return
        if reason is not None:
            produced.error, produced.base_offset, produced.message = reason.code, -1, reason.message
        if not left:
            finish()

    def time_is_over() -> None:
        for produced in left.values():
            produced.error, produced.base_offset = ErrorCode.request_timed_out, -1
        left.clear()
        finish()

    timer = loop.call_later(max(timeout_ms, 0) / 1000, time_is_over)
    for number, (_, partition, appended) in enumerate(waiting):
        if not partition.call_when_committed(appended, partial(told, number), across_leaders=True):
            told(number, None)
    return settled
