"""Appends to another broker's partition: no leader, no response, or a malformed one."""

from typing import cast
from uuid import UUID

import pytest

from ottla_broker.coordination.remote_appender import RemoteAppender
from ottla_broker.metadata.image import MetadataImage, TopicImage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.produce_forwarder import ProduceForwarder
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test
from tests.unit.kafka_errors import error_of


class AnsweringForwarder:
    """Every leader responds with `answer`; None: it cannot be reached."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer

    async def forward(self, leader: int, frame: bytes, timeout_ms: int) -> bytes | None:
        return self._answer


def create_appender(answer: bytes | None, leader: int = 2) -> RemoteAppender:
    image = MetadataImage()
    image.topics["t"] = TopicImage("t", UUID(int=7), {0: PartitionRecord(UUID(int=7), 0, (2,), (2,), leader)})
    return RemoteAppender(image, cast(ProduceForwarder, AnsweringForwarder(answer)), "tests")


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\4\0\0\0\0", b"\0\0\0\6\0\0\0\0\xff\xff"])
@async_test
async def test_a_malformed_response_leaves_open_whether_the_records_are_appended(answer: bytes) -> None:
    with pytest.raises(OSError, match="broker 2 sent a malformed response to Produce"):
        await create_appender(answer).append("t", b"batch")


@async_test
async def test_partitions_without_a_reachable_leader_get_nothing() -> None:
    assert await error_of(create_appender(b"", leader=-1).append("t", b"batch")) is ErrorCode.leader_not_available
    assert await error_of(create_appender(b"").append("other", b"batch")) is ErrorCode.leader_not_available
    with pytest.raises(KafkaError, match="broker 2 cannot be reached"):
        await create_appender(None).append("t", b"batch")
