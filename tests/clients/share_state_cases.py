"""Requests between brokers about the state of share-partitions (KIP-932): the group coordinator and
the leaders of partitions send them to the share coordinator.
"""

from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla_broker.share_groups.share_state import SharePartitionKey
from tests.clients.api_session import ApiSession
from tests.waiting import eventually_async

NO_SUCH_TOPIC = UUID(int=0x12345678_1234_5678_1234_567812345678)
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
SHARE_KEY_TYPE = 2


def state_fields(group: str, topic: UUID | None, partition: int, **fields: Any) -> dict[str, Any]:
    return {"group_id": group, "topics": [{"topic_id": topic, "partitions": [{"partition": partition, **fields}]}]}


def batch_fields(first: int, last: int, state: int, count: int = 1) -> dict[str, int]:
    return {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}


def write_fields(*batches: dict[str, int], epoch: int = 1, leader: int = 0, start: int = 0) -> dict[str, Any]:
    return {
        "state_epoch": epoch,
        "leader_epoch": leader,
        "start_offset": start,
        "delivery_complete_count": 0,
        "state_batches": list(batches),
    }


async def create_state(session: ApiSession, group: str, topic: str) -> UUID | None:
    """Creates the state of a topic's first partition, with state epoch 1 and start offset 0, once
    the share coordinator serves. Returns the topic's id.
    """
    topic_id = session.ids[topic]
    assert topic_id is not None
    key = SharePartitionKey(group, topic_id, 0).coordinator_key

    async def is_created() -> bool:
        await session.send("find_coordinator", key_type=SHARE_KEY_TYPE, coordinator_keys=[key])
        fields = state_fields(group, topic_id, 0, state_epoch=1, start_offset=0)
        answer = await session.send("initialize_share_group_state", **fields)
        return answer.results[0].partitions[0].error_code is ErrorCode.none

    await eventually_async(is_created)
    return topic_id


async def initialize_share_group_state(session: ApiSession) -> None:
    group = session.unique_name("shares")
    topic_id = await create_state(session, group, await session.create_topic("initialized", partitions=2))

    async def ask(case: str, partition: int, epoch: int, start: int, topic: UUID | None = topic_id) -> None:
        fields = state_fields(group, topic, partition, state_epoch=epoch, start_offset=start)
        await session.send_case(case, **fields)

    await ask("again", 0, 1, 0)
    await ask("a later state epoch", 0, 2, 5)
    await ask("an earlier state epoch", 0, 1, 5)
    await ask("without a start offset", 1, 0, -1)
    await ask("a start offset below all valid ones", 1, 3, -2)
    await ask("a state epoch below all valid ones", 1, -1, 0)
    await ask("a partition below all valid ones", -1, 0, 0)
    await ask("an unknown partition", 9, 0, 0)
    await ask("an unknown topic", 0, 0, 0, NO_SUCH_TOPIC)
    await ask("without a topic", 0, 0, 0, None)
    await session.send_case("without a group", **state_fields("", topic_id, 0, state_epoch=1, start_offset=0))
    await session.send_case("no topics", group_id=group, topics=[])


async def read_share_group_state(session: ApiSession) -> None:
    group = session.unique_name("shares")
    topic_id = await create_state(session, group, await session.create_topic("read", partitions=2))
    written = write_fields(batch_fields(0, 4, ACKNOWLEDGED), batch_fields(7, 9, AVAILABLE, 2), leader=2)
    await session.send("write_share_group_state", **state_fields(group, topic_id, 0, **written))
    await send_read_cases(session, group, topic_id, former_leader=2)


async def send_read_cases(session: ApiSession, group: str, topic_id: UUID | None, *, former_leader: int) -> None:
    """Requests for the state of partition 0, whose leader epoch is 2, and for states that do not
    exist. `former_leader` is a leader epoch that is too old once epoch 3 has read the state.
    """

    async def ask(case: str, partition: int, leader: int, topic: UUID | None = topic_id, name: str = group) -> None:
        await session.send_case(case, **state_fields(name, topic, partition, leader_epoch=leader))

    await ask("its leader", 0, 2)
    await ask("a later leader", 0, 3)
    await ask("a former leader", 0, former_leader)
    await ask("a leader epoch below all valid ones", 0, -1)
    await ask("not initialized", 1, 0)
    await ask("an unknown partition", 9, 0)
    await ask("an unknown topic", 0, 0, NO_SUCH_TOPIC)
    await ask("without a topic", 0, 0, None)
    await ask("an unknown group", 0, 0, name=session.unique_name("none"))
    await ask("without a group", 0, 0, name="")
    await session.send_case("no topics", group_id=group, topics=[])


async def write_share_group_state(session: ApiSession) -> None:
    group = session.unique_name("shares")
    topic_id = await create_state(session, group, await session.create_topic("written", partitions=2))

    async def ask(case: str, *batches: dict[str, int], **more: int) -> None:
        fields = write_fields(*batches, **more)
        await session.send_case(case, **state_fields(group, topic_id, 0, **fields))
        answer = await session.send("read_share_group_state", **state_fields(group, topic_id, 0, leader_epoch=100))
        session.store(f"{case}, then", answer)

    await session.send_case("not initialized", **state_fields(group, topic_id, 1, **write_fields()))
    await session.send_case("a leader", **state_fields(group, topic_id, 0, **write_fields(leader=5)))
    await session.send_case("a former leader", **state_fields(group, topic_id, 0, **write_fields(leader=4)))
    await ask("one batch", batch_fields(0, 4, AVAILABLE), leader=100)
    await ask("a part of it", batch_fields(1, 2, ACKNOWLEDGED), leader=100)
    await ask("over several", batch_fields(2, 9, AVAILABLE, 3), leader=100)
    await ask("an earlier state of one delivery", batch_fields(1, 1, AVAILABLE), leader=100)
    await ask("an earlier delivery", batch_fields(4, 10, ACKNOWLEDGED, 2), leader=100)
    await ask("a higher start offset", start=3, leader=100)
    await ask("a lower start offset", start=1, leader=100)
    await ask("below the start offset", batch_fields(0, 1, ARCHIVED), start=3, leader=100)
    await ask("no start offset", batch_fields(12, 13, ARCHIVED), start=-1, leader=100)
    await ask("an earlier state epoch", epoch=0, leader=100)
    await ask("a later state epoch", epoch=2, leader=100)
    await ask("an unknown state", batch_fields(20, 21, 9), leader=100)
    await ask("acquired", batch_fields(22, 23, 1), leader=100)
    await ask("the end before the start", batch_fields(21, 20, AVAILABLE), leader=100)
    await ask("a count below all valid ones", batch_fields(24, 25, AVAILABLE, -1), leader=100)
    for case, topic, partition, name in (
        ("an unknown partition", topic_id, 9, group),
        ("an unknown topic", NO_SUCH_TOPIC, 0, group),
        ("without a topic", None, 0, group),
        ("an unknown group", topic_id, 0, session.unique_name("none")),
        ("without a group", topic_id, 0, ""),
    ):
        await session.send_case(case, **state_fields(name, topic, partition, **write_fields()))
    await session.send_case("no topics", group_id=group, topics=[])


async def read_share_group_state_summary(session: ApiSession) -> None:
    group = session.unique_name("shares")
    topic_id = await create_state(session, group, await session.create_topic("summary", partitions=2))
    written = {**write_fields(batch_fields(0, 4, ACKNOWLEDGED), leader=2, start=3), "delivery_complete_count": 2}
    await session.send("write_share_group_state", version=1, **state_fields(group, topic_id, 0, **written))
    await send_read_cases(session, group, topic_id, former_leader=1)


async def delete_share_group_state(session: ApiSession) -> None:
    group = session.unique_name("shares")
    topic_id = await create_state(session, group, await session.create_topic("forgotten", partitions=2))
    await session.send_case("a state", **state_fields(group, topic_id, 0))
    await session.send_case("again", **state_fields(group, topic_id, 0))
    await session.send_case("not initialized", **state_fields(group, topic_id, 1))
    await session.send_case("an unknown partition", **state_fields(group, topic_id, 9))
    await session.send_case("an unknown topic", **state_fields(group, NO_SUCH_TOPIC, 0))
    await session.send_case("without a topic", **state_fields(group, None, 0))
    await session.send_case("an unknown group", **state_fields(session.unique_name("none"), topic_id, 0))
    await session.send_case("without a group", **state_fields("", topic_id, 0))
    await session.send_case("no topics", group_id=group, topics=[])


SHARE_STATE_CASES = (
    initialize_share_group_state,
    read_share_group_state,
    write_share_group_state,
    read_share_group_state_summary,
    delete_share_group_state,
)
