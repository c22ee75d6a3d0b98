"""The time that a group of many members takes to rebalance: `members.c`.

A rebalance begins with members that join or leave, and ends when the group is settled. In between
every member sends its next heartbeat as soon as the last one is answered. So what is measured is
the coordinator and not the interval between heartbeats.
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass

from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.types import BrokerId, GroupId, TopicName
from kio.static.primitive import i8, i32, i64

from bench import programs
from ottla_broker.wire.client import Client
from ottla_broker.wire.errors import ErrorCode
from tests.brokers import BrokerProcess

READY_WITHIN_S = 120.0
PAUSE_S = 0.05
NOT_A_REPLICA, LATEST = BrokerId(-1), i64(-1)


@dataclass(frozen=True)
class RebalanceResult:
    """The output of `members.c`. `broker_cpu_ms`, `members_cpu_ms`: processor time of the broker
    and of the members for one rebalance. If that of the members is close to `rebalance_ms`, they
    were the bottleneck.
    """

    start_s: float
    leave_ms: float
    join_ms: float
    rebalance_ms: float
    broker_cpu_ms: float
    members_cpu_ms: float
    requests: float


async def measure_rebalances(
    broker: BrokerProcess, protocol: str, topic: str, members: int, repeats: int
) -> RebalanceResult:
    """A new group of `members` members, one partition each. `protocol`: classic or consumer."""
    group = f"{topic}-{protocol}"
    await wait_for_coordinator(broker, group)
    await wait_for_partitions(broker, topic, members)
    words = [str(broker.port), str(broker.pid), protocol, group, topic, str(members), str(repeats)]
    command = [programs.compile_program("members"), *words]
    printed = await asyncio.to_thread(programs.run_program, command)
    return RebalanceResult(**json.loads(printed))


async def wait_for_coordinator(broker: BrokerProcess, group: str) -> None:
    """Returns when the group's coordinator serves it, and so answers the heartbeat of a member that
    does not exist with UNKNOWN_MEMBER_ID.
    """
    probe = HeartbeatRequest(group_id=GroupId(group), generation_id=i32(0), member_id="nobody")
    async with asyncio.timeout(READY_WITHIN_S), Client.connect(broker.bootstrap) as client:
        while True:
            with suppress(TimeoutError):  # on a busy machine, a broker may respond after the request's timeout
                if (await client.send_to_coordinator(group, probe)).error_code is ErrorCode.unknown_member_id:
                    return
            await asyncio.sleep(PAUSE_S)


async def wait_for_partitions(broker: BrokerProcess, topic: str, count: int) -> None:
    """Returns when the broker has created all partitions. Without this wait, the broker would
    create them, after its response to CreateTopics, while the members join.
    """
    partitions = tuple(ListOffsetsPartition(partition_index=i32(at), timestamp=LATEST) for at in range(count))
    request = ListOffsetsRequest(
        replica_id=NOT_A_REPLICA,
        isolation_level=i8(0),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=partitions),),
    )
    async with asyncio.timeout(READY_WITHIN_S), Client.connect(broker.bootstrap) as client:
        while True:
            (found,) = (await client.send(request)).topics
            if all(one.error_code is ErrorCode.none for one in found.partitions):
                return
            await asyncio.sleep(PAUSE_S)
