"""DeleteRecords responds when every live replica has deleted the records, as in Kafka."""

import asyncio
from typing import Any, cast

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla_broker.api.delete_records import delete_records
from ottla_broker.requests.context import ConnectionState, RequestContext
from ottla_broker.security.authorizer import AllowAll
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.partition_requests import to_timedelta_field
from tests.unit.replication.simulated_run import run_scenario
from tests.unit.replication.small_cluster import TOPIC, Node, SmallCluster

Result = tuple[ErrorCode, int]


def delete_below(node: Node, *offsets: int, within_s: float = 5.0) -> "asyncio.Task[list[Result]]":
    """Deletes records below an offset for each partition. The task's result has the error and the
    low watermark of each.
    """
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

    async def send() -> list[Result]:
        context = RequestContext(cast(Any, node), ConnectionState("client", 0, "PLAINTEXT"), 2, None, AllowAll())
        response = await delete_records(context, request)
        return [(it.error_code, int(it.low_watermark)) for it in response.topics[0].partitions]

    return node.process.run(send())


async def create_partitions(cluster: SmallCluster, count: int = 1) -> None:
    for index in range(count):
        cluster.set_partition(index, replicas=(1, 2, 3))
        for number in range(5):
            await cluster[1].append(b"%d" % number, index=index)


def test_response_waits_until_followers_have_deleted_the_records() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await create_partitions(cluster)
        cluster.cut_link(1, 3)
        deletion = delete_below(cluster[1], 4)
        await cluster.wait_until(lambda: cluster[2].partition().log.start == 4)
        await asyncio.sleep(0.5)
        assert not deletion.done(), "broker 3 is alive and has all records"
        cluster.restore_links()
        assert await deletion == [(ErrorCode.none, 4)]
        assert [cluster[node].partition().log.start for node in (1, 2, 3)] == [4, 4, 4]

    run_scenario(scenario)


def test_follower_reports_its_log_start_at_once() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await create_partitions(cluster, 3)
        started = cluster.loop.time()
        assert await delete_below(cluster[1], 2, -1, 5) == [
            (ErrorCode.none, 2),
            (ErrorCode.none, 5),
            (ErrorCode.none, 5),
        ]
        assert cluster.loop.time() - started < 0.2  # less than a fetch waits

    run_scenario(scenario)


def test_response_is_a_timeout_if_a_follower_does_not_respond() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await create_partitions(cluster, 2)
        cluster.cut_link(1, 3)
        started = cluster.loop.time()
        assert [code for code, _ in await delete_below(cluster[1], 4, 5, within_s=1.0)] == [
            ErrorCode.request_timed_out
        ] * 2
        assert 1.0 <= cluster.loop.time() - started < 1.1  # one timeout for all partitions
        assert cluster[1].partition().log.start == 4

    run_scenario(scenario)


def test_response_does_not_wait_for_fenced_brokers() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await create_partitions(cluster)
        cluster.cut_link(1, 3)
        deletion = delete_below(cluster[1], 4)
        await asyncio.sleep(0.5)
        cluster[3].kill()
        assert await deletion == [(ErrorCode.none, 4)]
        assert await delete_below(cluster[1], 5) == [(ErrorCode.none, 5)]

    run_scenario(scenario)


def test_response_is_an_error_if_leadership_is_lost_meanwhile() -> None:
    async def scenario(cluster: SmallCluster) -> None:
        await create_partitions(cluster)
        cluster.cut_link(1, 3)
        deletion = delete_below(cluster[1], 4)
        await asyncio.sleep(0.1)
        cluster.set_partition(leader=2)
        assert [code for code, _ in await deletion] == [ErrorCode.not_leader_or_follower]

    run_scenario(scenario)
