"""Share groups on three brokers, of which two are killed, one after the other."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field

from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.clients import librdkafka as rd
from tests.clients.share_member import ACCEPT, RELEASE, DeliveredRecord, ShareMember
from tests.clusters import ProcessCluster, run_cluster
from tests.waiting import eventually_async

TOPIC, GROUP = "jobs", "workers"
PARTITIONS, RECORDS = 3, 450
KILLS = 2
WITHIN_S = 120.0


@dataclass
class History:
    """Records that were delivered to members, and the acknowledgements that brokers have confirmed.
    `unsure`: accepted by a member that got no response.
    """

    accepted: set[tuple[int, int]] = field(default_factory=set)
    unsure: set[tuple[int, int]] = field(default_factory=set)
    released: dict[tuple[int, int], int] = field(default_factory=dict)  # → delivery count; the release is confirmed
    problems: list[str] = field(default_factory=list)

    def record_delivery(self, one: DeliveredRecord) -> None:
        at = one.partition, one.offset
        if at in self.accepted:
            self.problems.append(f"{at} was accepted, and is delivered again")
        if one.delivery_count <= self.released.get(at, 0):
            self.problems.append(
                f"{at}: delivery {one.delivery_count} follows the release of delivery {self.released[at]}"
            )

    @property
    def is_complete(self) -> bool:
        return len(self.accepted | self.unsure) == RECORDS


async def work(member: ShareMember, history: History, draws: random.Random) -> None:
    """Fetches and acknowledges until every record is accepted."""
    while not history.is_complete:
        try:
            await member.find_brokers()
            if await member.heartbeat() in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch):
                member.epoch = 0
            for node in sorted({leader for leader in member.leaders.values() if leader > 0}):
                await work_at(member, node, history, draws)
        except (OSError, KafkaError, TimeoutError):
            member.session_epochs.clear()
            await asyncio.sleep(0.1)


async def work_at(member: ShareMember, node: int, history: History, draws: random.Random) -> None:
    try:
        async with asyncio.timeout(20):
            delivered, _ = await member.fetch(node, max_records=20, max_wait=100)
    except (OSError, TimeoutError):
        member.session_epochs.pop(node, None)
        return
    for one in delivered:
        history.record_delivery(one)
    if not delivered:
        return
    # Few records are released, and none so often that it would be archived.
    kinds = {one: RELEASE if one.delivery_count < 3 and draws.random() < 0.1 else ACCEPT for one in delivered}
    acknowledgements = [(one.partition, one.offset, one.offset, kind) for one, kind in kinds.items()]
    answered = False
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(20):
            codes = await member.acknowledge(node, acknowledgements)
            answered = True
    for one, kind in kinds.items():
        at = one.partition, one.offset
        if not answered:
            member.session_epochs.pop(node, None)
            if kind == ACCEPT:
                history.unsure.add(at)
        elif codes.get(one.partition, codes.get(-1)) is ErrorCode.none:
            if kind == ACCEPT:
                history.accepted.add(at)
                history.unsure.discard(at)
            else:
                history.released[at] = one.delivery_count


async def kill_brokers(cluster: ProcessCluster, history: History) -> None:
    """Kills one broker after the other while members work, and starts it again once they go on."""
    for number in range(1, KILLS + 1):
        await wait_for_progress(history, RECORDS * number // (KILLS + 1))
        broker = cluster.brokers[number]
        await asyncio.to_thread(broker.kill)
        await wait_for_progress(history, len(history.accepted) + 10)
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(cluster.wait_until_healthy)


async def wait_for_progress(history: History, accepted: int) -> None:
    async def has_progressed() -> bool:
        return len(history.accepted) >= accepted or history.is_complete

    await eventually_async(has_progressed, within_s=WITHIN_S)


def test_no_record_is_lost_and_no_accepted_one_is_delivered_again_when_brokers_are_killed() -> None:
    with run_cluster(
        "ottla", 3, group_share_record_lock_duration_ms=2000, share_coordinator_state_topic_num_partitions=5
    ) as cluster:
        rd.create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
        for partition in range(PARTITIONS):
            values = rd.numbered_messages(0, RECORDS // PARTITIONS)
            rd.produce(cluster.bootstrap, TOPIC, values, partition=partition)
        history = asyncio.run(run_members(cluster))
    assert history.problems == []
    assert len(history.accepted | history.unsure) == RECORDS


async def run_members(cluster: ProcessCluster) -> History:
    history, draws = History(), random.Random(1)
    members = [ShareMember(GROUP, TOPIC, broker.bootstrap) for broker in cluster.brokers.values()]
    change = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": GROUP, "configs": [change]}
    await members[0].find_brokers()
    await members[0].send(-1, "incremental_alter_configs", 1, resources=[resource], validate_only=False)
    try:
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(kill_brokers(cluster, history), *(work(one, history, draws) for one in members))
    finally:
        for member in members:
            member.close()
    return history
