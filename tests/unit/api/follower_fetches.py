"""Fetch requests of a follower to a broker that leads topics with three replicas."""

import asyncio
from asyncio import Future
from typing import Any

import msgspec

from ottla_broker.api.fetch import FetchHandler
from ottla_broker.replication.partition import Partition
from ottla_broker.requests.reply import Reply
from ottla_broker.wire.fetch_request import FetchRequest, FetchRequestPartition, write_fetch_request
from ottla_broker.wire.fetch_response import FetchResponse, FetchResponsePartition, read_fetch_response
from ottla_broker.wire.request_header import read_request_header
from tests.unit.api.brokers import ME, SmallBroker, context
from tests.unit.api.calls import PLENTY

FOLLOWER, EPOCH = 2, 20


def add_replicated_topic(broker: SmallBroker, partitions: int = 1) -> list[Partition]:
    """The topic `a`, which this broker leads. Brokers 2 and 3 follow, and 2 is in the ISR."""
    added = broker.add_topic("a", partitions)
    for partition in added:
        state = msgspec.structs.replace(
            partition.registration, replicas=(ME, 2, 3), isr=(ME, 2), leader_epoch=5, partition_epoch=1
        )
        partition._cluster = AllRegistered()
        partition.update_registration(state)
    return added


class AllRegistered:
    """A view of the cluster in which each broker epoch is registered and no broker may join an
    ISR.
    """

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def is_in_session(self) -> bool:
        return True

    def is_alive(self, broker: int) -> bool:
        return True

    def may_join(self, broker: int, epoch: int) -> bool:
        return False

    def is_registered(self, broker: int, epoch: int) -> bool:
        return True

    def propose(self, partition: Partition) -> None:
        raise AssertionError


def call_fetch_of_follower(
    handler: FetchHandler,
    broker: SmallBroker,
    partitions: dict[Partition, FetchRequestPartition],
    session: tuple[int, int] = (0, 0),
    *,
    wait_ms: int = 0,
    forget: list[Partition] | None = None,
    authorizer: Any = None,
    replica: int = FOLLOWER,
    isolation: int = 0,
) -> Reply:
    forgotten = [(partition.topic_id, partition.partition) for partition in forget or ()]
    requested = list(partitions.values())
    request = FetchRequest(replica, wait_ms, 1, 10 << 20, isolation, *session, requested, forgotten, None, EPOCH)
    frame = write_fetch_request(17, 1, "broker-2", request)[4:]
    return handler(context(broker, 17, authorizer), frame, read_request_header(frame), PLENTY)


def decode_immediate(reply: Any) -> FetchResponse:
    assert reply is not None
    assert not isinstance(reply, Future), "the handler waits"
    return read_fetch_response(bytearray(b"".join(reply))[4:])


async def decode_delayed(reply: Reply) -> FetchResponse:
    assert isinstance(reply, Future), "the handler does not wait"
    return decode_immediate(await asyncio.wait_for(reply, 10))


def fetch_at(
    partition: Partition, offset: int, epoch: int = 5, last_epoch: int = -1
) -> dict[Partition, FetchRequestPartition]:
    topic, index = partition.topic_id, partition.partition
    return {partition: FetchRequestPartition(topic, index, offset, 1 << 20, epoch, last_epoch, 0)}


def only_partition(response: FetchResponse) -> FetchResponsePartition:
    (partition,) = response.partitions
    return partition
