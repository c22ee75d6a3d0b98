"""Reads partitions for fetches of consumers."""

from dataclasses import dataclass
from uuid import UUID

from ottla_broker.replication.fetch_reading import (
    end_offset,
    read_committed_records,
    read_to_log_end,
    response_without_records,
)
from ottla_broker.replication.fetch_sessions import CachedPartition
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.replica_selector import select_replica
from ottla_broker.requests.context import RequestContext
from ottla_broker.security.authorizer import Operation, Resource
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.fetch_request import DEBUGGER, RACK_SINCE, FetchRequest
from ottla_broker.wire.fetch_response import FetchResponsePartition


@dataclass(slots=True, eq=False)
class ConsumerReader:
    """Reads committed records of the topics that the client may read. If `_is_rack_aware`, a leader
    names a replica in the client's rack instead, if there is one, and the client fetches from that
    follower (KIP-392). For a tool that compares replicas (DEBUGGER) it reads to the end of any
    replica's log.
    """

    _context: RequestContext
    _request: FetchRequest
    _is_rack_aware: bool

    def before_read(self) -> None:
        pass

    def read(self, cached: CachedPartition, max_bytes: int, *, first: bool) -> FetchResponsePartition:
        request = self._request
        partition = self.find(cached)
        max_bytes = min(max_bytes, cached.request.max_bytes)
        if request.replica == DEBUGGER:
            return read_to_log_end(partition, cached, max_bytes, first=first)
        if self._is_rack_aware and request.rack is not None and partition.is_leader:
            state, brokers = partition.registration, self._context.broker.image.brokers
            offset = cached.request.offset
            nearest = select_replica(request.rack, offset, state.leader, state.isr, partition.leader.followers, brokers)
            if nearest is not None:
                data = response_without_records(partition, cached.request)
                data.preferred = nearest
                return data
        return read_committed_records(partition, cached, request.isolation, max_bytes, first=first)

    def is_due(self, cached: CachedPartition, data: FetchResponsePartition) -> bool:
        return data.diverging is not None or data.preferred >= 0

    def has_records_behind(self, cached: CachedPartition, records: Buffer) -> bool:
        partition, request = cached.partition, self._request
        if partition is None:
            return False
        reads_to_log_end = request.replica == DEBUGGER
        end = partition.log.end if reads_to_log_end else partition.readable_end(request.isolation)
        return end_offset(records) < end

    def count_sent(self, partition: Partition, size: int) -> None:
        partition.traffic.bytes_out += size
        partition.traffic.fetch_requests += 1

    def find(self, cached: CachedPartition) -> Partition:
        partitions, request = self._context.broker.partitions, cached.request
        if isinstance(request.topic, UUID):
            topic, topic_id = self._topic_name(cached, request.topic), request.topic
        else:
            topic, topic_id = request.topic, None
        self._check_authorized(topic)
        context = self._context
        hosted = partitions.get(topic, request.partition)
        if hosted is not cached.partition:
            cached.set_partition(hosted)
        may_read_follower = context.version >= RACK_SINCE or self._request.replica == DEBUGGER
        reads_follower = may_read_follower and hosted is not None and hosted.is_follower
        find = partitions.replica if reads_follower else partitions.leader
        return find(topic, request.partition, epoch=request.leader_epoch, topic_id=topic_id)

    def _check_authorized(self, topic: str) -> None:
        context = self._context
        if not (context.authorizer.allows_everything or context.is_authorized(Operation.read, Resource.topic(topic))):
            raise KafkaError(ErrorCode.topic_authorization_failed)

    def _topic_name(self, cached: CachedPartition, topic_id: UUID) -> str:
        """Raises UNKNOWN_TOPIC_ID. For a deleted topic that the fetch session knew it raises
        UNKNOWN_TOPIC_OR_PARTITION, or INCONSISTENT_TOPIC_ID if a new topic has that name.
        """
        broker = self._context.broker
        try:
            cached.topic_name = broker.partitions.topic_name(topic_id)
        except KafkaError:
            if cached.topic_name is None:
                raise
            self._check_authorized(cached.topic_name)
            successor = broker.image.topics.get(cached.topic_name)
            exists = successor is not None and cached.request.partition in successor.partitions
            code = ErrorCode.inconsistent_topic_id if exists else ErrorCode.unknown_topic_or_partition
            raise KafkaError(code, f"topic {cached.topic_name!r} has been deleted") from None
        return cached.topic_name
