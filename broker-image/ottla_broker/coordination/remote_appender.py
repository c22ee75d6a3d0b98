"""Appends records of this broker to partitions that other brokers lead."""

from dataclasses import dataclass
from typing import Final

from ottla_broker.metadata.image import MetadataImage
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.replication.partition import ALL_REPLICAS
from ottla_broker.replication.produce_forwarder import ProduceForwarder
from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response, write_request
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_reader import MalformedMessage

WRITE_TIMEOUT_S: Final = 10.0
PRODUCE_VERSION: Final = 9
SIZE_BYTES: Final = 4


@dataclass(frozen=True)
class RemoteAppender:
    """`client_id`: of the requests."""

    _image: MetadataImage
    _forwarder: ProduceForwarder
    client_id: str

    async def append(self, topic: str, batch: bytes, partition: int | None = None) -> None:
        """Returns when all in-sync replicas have the batch. `partition` None: any that has a
        leader. Raises KafkaError; OSError when it is unknown whether the records are appended.
        """
        found = self._image.topics.get(topic)
        with_leader = [
            one
            for one in (() if found is None else found.partitions.values())
            if one.leader != NO_LEADER and partition in (None, one.partition)
        ]
        if not with_leader:
            where = f"topic {topic!r}" if partition is None else f"{topic}-{partition}"
            raise KafkaError(ErrorCode.leader_not_available, f"{where} does not exist, or has no leader")
        # Imported here: it has kio's classes of Fetch and Produce, 0.4 MiB that few brokers need.
        from ottla_broker.wire.partition_requests import build_produce

        target = with_leader[0]
        request = build_produce(topic, target.partition, batch, acks=ALL_REPLICAS, timeout_s=WRITE_TIMEOUT_S)
        frame = bytes(write_request(ApiKey.PRODUCE, PRODUCE_VERSION, 0, self.client_id, request))[SIZE_BYTES:]
        answer = await self._forwarder.forward(target.leader, frame, int(WRITE_TIMEOUT_S * 1000))
        if answer is None:
            raise KafkaError(ErrorCode.leader_not_available, f"broker {target.leader} cannot be reached")
        try:
            response = read_response(answer[SIZE_BYTES:], ApiKey.PRODUCE, PRODUCE_VERSION)
        except MalformedMessage as reason:
            raise OSError(f"broker {target.leader} sent a malformed response to Produce: {reason}") from reason
        result = response.responses[0].partition_responses[0]
        if result.error_code is not ErrorCode.none:
            raise KafkaError(result.error_code, result.error_message)
