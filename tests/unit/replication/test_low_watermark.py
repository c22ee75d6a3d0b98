"""DeleteRecords answers when the records are gone from every replica that lives, as Kafka does: not only from its leader."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla_broker.api.delete_records import delete_records
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.security.authorizer import AllowAll
from ottla_broker.wire.client import to_timedelta_field
from ottla_broker.wire.errors import ErrorCode
from tests.sim.processes import SimulatedLoop
from tests.unit.replication.small_cluster import TOPIC, Node, SmallCluster, simulated

Result = tuple[ErrorCode, int]


def run(scenario: Callable[[SmallCluster], Awaitable[None]]) -> None:
    async def started(loop: SimulatedLoop) -> None:
        cluster = SmallCluster(loop)
        await cluster.started()
        await scenario(cluster)

    simulated(started)


def asked(node: Node, *offsets: int, within_s: float = 5.0) -> "asyncio.Task[list[Result]]":
    """Of each partition the records below one of the offsets; its error and its low watermark."""
    request = DeleteRecordsRequest(
        topics=(
            DeleteRecordsTopic(
                name=TopicName(TOPIC),
                partitions=tuple(
                    DeleteRecordsPartition(partition_index=i32(index), offset=i64(offset))
                    for index, offset in enumerate(offsets)
                ),
            ),
        ),
        timeout=to_timedelta_field(within_s),
    )

    async def ask() -> list[Result]:
        context = RequestContext(cast(Any, node), ConnectionState("client", 0, "PLAINTEXT"), 2, None, AllowAll())
        answer = await delete_records(context, request)
        return [(one.error_code, int(one.low_watermark)) for one in answer.topics[0].partitions]

    return node.process.run(ask())


async def with_records(cluster: SmallCluster, partitions: int = 1) -> None:
    for index in range(partitions):
        cluster.say(index, replicas=(1, 2, 3))
        for number in range(5):
            await cluster[1].append(b"%d" % number, index=index)


def test_it_is_answered_when_the_followers_have_let_the_records_go() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await with_records(cluster)
        cluster.cut(1, 3)
        answer = asked(cluster[1], 4)
        await cluster.until(lambda: cluster[2].partition().log.start == 4)
        await asyncio.sleep(0.5)
        assert not answer.done(), "broker 3 has all records, and lives"
        cluster.mend()
        assert await answer == [(ErrorCode.none, 4)]
        assert [cluster[node].partition().log.start for node in (1, 2, 3)] == [4, 4, 4]

    run(scenario)


def test_with_nothing_else_to_tell_a_follower_tells_at_once_that_its_records_are_gone() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await with_records(cluster, 3)
        began = cluster.loop.time()
        assert await asked(cluster[1], 2, -1, 5) == [(ErrorCode.none, 2), (ErrorCode.none, 5), (ErrorCode.none, 5)]
        assert cluster.loop.time() - began < 0.2  # not the time for which a fetch waits

    run(scenario)


def test_a_follower_that_does_not_come_in_time_is_told_as_such() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await with_records(cluster, 2)
        cluster.cut(1, 3)
        began = cluster.loop.time()
        assert [code for code, _ in await asked(cluster[1], 4, 5, within_s=1.0)] == [ErrorCode.request_timed_out] * 2
        assert 1.0 <= cluster.loop.time() - began < 1.1  # for all of them together
        assert cluster[1].partition().log.start == 4

    run(scenario)


def test_who_does_not_live_is_not_waited_for() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await with_records(cluster)
        cluster.cut(1, 3)
        answer = asked(cluster[1], 4)
        await asyncio.sleep(0.5)
        cluster[3].kill()
        assert await answer == [(ErrorCode.none, 4)]
        assert await asked(cluster[1], 5) == [(ErrorCode.none, 5)]

    run(scenario)


def test_who_stops_leading_meanwhile_says_so() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await with_records(cluster)
        cluster.cut(1, 3)
        answer = asked(cluster[1], 4)
        await asyncio.sleep(0.1)
        cluster.say(leader=2)
        assert [code for code, _ in await answer] == [ErrorCode.not_leader_or_follower]

    run(scenario)
