"""Requests of share groups (KIP-932) to the group coordinator: members that join, repeat, leave and
are fenced; descriptions of groups; and offsets that administrators see, set and delete.

Apache Kafka initializes the share state of partitions after the response to the heartbeat that
finds them, and Ottla before it: cases begin when a member has its partitions. Which of several
partitions a member gets is the assignor's choice, so no case shows it.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from tests.clients.api_session import ApiSession
from tests.clients.config_cases import GROUP
from tests.clients.group_cases import (
    create_empty_group,
    create_stable_group,
    describe_other_groups,
    wait_for_coordinators,
)
from tests.waiting import eventually_async

FIRST, SECOND = "AAAAAAAAAAAAAAAAAAAA-g", "AAAAAAAAAAAAAAAAAAAA_w"
HEARTBEAT = "share_group_heartbeat"


def heartbeat_fields(
    group: str, epoch: int, topics: list[str] | None = None, member: str = FIRST, **more: Any
) -> dict[str, Any]:
    """A heartbeat; `topics` None: they have not changed."""
    fields = {"group_id": group, "member_id": member, "member_epoch": epoch, "subscribed_topic_names": topics}
    return {**fields, "rack_id": None, **more}


async def join(session: ApiSession, group: str, topics: list[str], member: str = FIRST, **more: Any) -> int:
    """Joins, and returns the member's epoch once it has partitions."""
    epoch = 0

    async def has_partitions() -> bool:
        nonlocal epoch
        answer = await session.send(HEARTBEAT, **heartbeat_fields(group, epoch, topics, member, **more))
        assert answer.error_code is ErrorCode.none, answer
        epoch = int(answer.member_epoch)
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    await eventually_async(has_partitions)
    return epoch


async def leave(session: ApiSession, group: str, member: str = FIRST) -> None:
    answer = await session.send(HEARTBEAT, **heartbeat_fields(group, -1, member=member))
    assert answer.error_code is ErrorCode.none, answer


async def set_group_configs(session: ApiSession, group: str, **configs: str) -> None:
    """Sets configs of a group, and returns when it has them."""
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    changes = [{"name": name, "config_operation": 0, "value": value} for name, value in wanted.items()]
    resource = {"resource_type": GROUP, "resource_name": group}
    await session.send("incremental_alter_configs", resources=[{**resource, "configs": changes}], validate_only=False)

    async def are_set() -> bool:
        found = await session.send("describe_configs", resources=[{**resource, "configuration_keys": list(wanted)}])
        return {one.name: one.value for one in found.results[0].configs} == wanted

    await eventually_async(are_set)


async def share_group_heartbeat(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic, wider = await session.create_topic("heartbeat"), await session.create_topic("wider", partitions=3)
    none, missing, group = (session.unique_name(each) for each in ("none", "missing", "shares"))
    for what, fields in {
        "without a group": heartbeat_fields("", 0, [topic]),
        "without a member": heartbeat_fields(none, 0, [topic], ""),
        "an empty rack": heartbeat_fields(none, 0, [topic], rack_id=""),
        "joining without a subscription": heartbeat_fields(none, 0),
        "joining with no topic": heartbeat_fields(none, 0, []),
        "an epoch below all valid ones": heartbeat_fields(none, -2),
        "an unknown group": heartbeat_fields(none, 1),
        "leaving an unknown group": heartbeat_fields(none, -1),
        "a topic that does not exist": heartbeat_fields(session.unique_name("waits"), 0, [missing]),
    }.items():
        await session.send_case(what, **fields)
    epoch = await join(session, group, [topic], rack_id="r")
    await session.send_case("joining again", **heartbeat_fields(group, 0, [topic]))
    await session.send_case("nothing new", **heartbeat_fields(group, epoch))
    await session.send_case("all fields", **heartbeat_fields(group, epoch, [topic], rack_id="r"))
    await session.send_case("another rack", **heartbeat_fields(group, epoch, rack_id="s"))
    await session.send_case("an epoch ahead", **heartbeat_fields(group, epoch + 9))
    await session.send_case("an unknown member", **heartbeat_fields(group, epoch, member=SECOND))
    await session.send_case("an unknown member leaves", **heartbeat_fields(group, -1, member=SECOND))
    second = await join(session, group, [topic], SECOND)
    await session.send_case("the second one", **heartbeat_fields(group, second, member=SECOND))
    await session.send_case("the first one's next", **heartbeat_fields(group, epoch))
    await session.send_case("its response was lost", **heartbeat_fields(group, epoch))
    await session.send_case("an epoch behind", **heartbeat_fields(group, epoch - 1))
    await session.send_case("the second one leaves", **heartbeat_fields(group, -1, member=SECOND))
    await session.send_case("and leaves again", **heartbeat_fields(group, -1, member=SECOND))
    await session.send_case("the first one is alone", **heartbeat_fields(group, second))
    await session.send_case("another topic", **heartbeat_fields(group, second + 1, [missing]))
    await join(session, session.unique_name("wide"), [wider])
    left, stable = session.unique_name("left"), session.unique_name("stable")
    await create_empty_group(session, left)
    await session.send_case("an empty classic group", **heartbeat_fields(left, 0, [topic]))
    await create_stable_group(session, stable)
    await session.send_case("a classic group with members", **heartbeat_fields(stable, 0, [topic]))


async def share_group_describe(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic = await session.create_topic("described", partitions=2)
    group, left, classic = (session.unique_name(each) for each in ("shares", "left", "classic"))
    await create_stable_group(session, classic)
    await join(session, left, [topic])
    await leave(session, left)
    epoch = await join(session, group, [topic], rack_id="r")
    await session.send_case("stable", group_ids=[group])
    await session.send_case("the same twice", group_ids=[group, group])
    await session.send_case("its rights", group_ids=[group], include_authorized_operations=True)
    await join(session, group, [topic], SECOND)
    await session.send(HEARTBEAT, **heartbeat_fields(group, epoch))
    await session.send(HEARTBEAT, **heartbeat_fields(group, -1))
    await session.send_case("after one left", group_ids=[group, session.unique_name("none")])
    await describe_other_groups(session, left, classic)


# -- offsets ---------------------------------------------------------------------------------------


def describe_fields(group: str, *topics: tuple[str, list[int]]) -> dict[str, Any]:
    """Without topics, the request is about all topics of the group."""
    wanted = [{"topic_name": name, "partitions": partitions} for name, partitions in topics]
    return {"groups": [{"group_id": group, "topics": wanted or None}]}


def alter_fields(group: str, *topics: tuple[str, dict[int, int]]) -> dict[str, Any]:
    """`topics`: names with start offsets by partition."""
    wanted = [
        {
            "topic_name": name,
            "partitions": [{"partition_index": at, "start_offset": offset} for at, offset in offsets.items()],
        }
        for name, offsets in topics
    ]
    return {"group_id": group, "topics": wanted}


async def create_group_with_offsets(session: ApiSession, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Creates a group without members that continues at these offsets."""
    await join(session, group, [topic])
    await leave(session, group)
    answer = await session.send("alter_share_group_offsets", **alter_fields(group, (topic, offsets)))
    codes = {partition.error_code for one in answer.responses for partition in one.partitions}
    assert (answer.error_code, codes) == (ErrorCode.none, {ErrorCode.none}), answer


async def describe_share_group_offsets(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic, other = await session.create_topic("offsets", partitions=3), await session.create_topic("other")
    group, fresh, classic = (session.unique_name(each) for each in ("shares", "fresh", "classic"))
    none, missing = session.unique_name("none"), session.unique_name("missing")
    await create_stable_group(session, classic)
    await create_group_with_offsets(session, group, topic, {0: 0, 1: 5})
    await join(session, fresh, [topic])
    await session.send_case("all topics", **describe_fields(group))
    await session.send_case("one topic", **describe_fields(group, (topic, [0, 1])))
    await session.send_case("a partition without an offset", **describe_fields(group, (topic, [2])))
    # Not tested: an unknown partition. Kafka never responds to a request about one.
    await session.send_case("no partition", **describe_fields(group, (topic, [])))
    await session.send_case("a topic that it has not read", **describe_fields(group, (other, [0])))
    await session.send_case("an unknown topic", **describe_fields(group, (missing, [0])))
    await session.send_case("two topics", **describe_fields(group, (topic, [0]), (missing, [0])))
    await session.send_case("with a member, nothing read", **describe_fields(fresh, (topic, [0])))
    await session.send_case("with a member, all topics", **describe_fields(fresh))
    await session.send_case("an unknown group", **describe_fields(none))
    await session.send_case("an unknown group's topic", **describe_fields(none, (topic, [0])))
    await session.send_case("a classic group", **describe_fields(classic))
    await session.send_case("without a name", **describe_fields(""))
    await session.send_case("no group", groups=[])
    two = [describe_fields(each)["groups"][0] for each in (group, none)]
    await session.send_case("two groups", groups=two)


async def alter_share_group_offsets(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic, other = await session.create_topic("altered", partitions=2), await session.create_topic("other")
    group, used, classic = (session.unique_name(each) for each in ("shares", "used", "classic"))
    missing = session.unique_name("missing")
    await create_stable_group(session, classic)
    await join(session, used, [topic])
    await create_group_with_offsets(session, group, topic, {0: 3})
    await session.send_case("an offset", **alter_fields(group, (topic, {0: 7})))
    await session.send_case("a lower one", **alter_fields(group, (topic, {0: 1})))
    await session.send_case("beyond the end", **alter_fields(group, (topic, {1: 1000})))
    await session.send_case("both partitions", **alter_fields(group, (topic, {0: 0, 1: 0})))
    await session.send_case("a topic that it has not read", **alter_fields(group, (other, {0: 0})))
    await session.send_case("an unknown partition", **alter_fields(group, (topic, {9: 0})))
    await session.send_case("an unknown topic", **alter_fields(group, (missing, {0: 0})))
    await session.send_case("one good, one bad", **alter_fields(group, (topic, {0: 2}), (missing, {0: 0})))
    await session.send_case("no partition", **alter_fields(group, (topic, {})))
    await session.send_case("no topic", **alter_fields(group))
    await session.send_case("a group with members", **alter_fields(used, (topic, {0: 0})))
    await session.send_case("an unknown group", **alter_fields(session.unique_name("none"), (topic, {0: 0})))
    await session.send_case("a classic group", **alter_fields(classic, (topic, {0: 0})))
    await session.send_case("without a name", **alter_fields("", (topic, {0: 0})))


async def delete_share_group_offsets(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic, other = await session.create_topic("deleted", partitions=2), await session.create_topic("other")
    group, used, classic = (session.unique_name(each) for each in ("shares", "used", "classic"))
    missing = session.unique_name("missing")
    await create_stable_group(session, classic)
    await join(session, used, [topic])
    await create_group_with_offsets(session, group, topic, {0: 3})

    async def ask(case: str, name: str, *topics: str) -> None:
        await session.send_case(case, group_id=name, topics=[{"topic_name": one} for one in topics])

    await ask("a topic that it has not read", group, other)
    await ask("an unknown topic", group, missing)
    await ask("no topic", group)
    await ask("a topic, and an unknown one", group, topic, missing)
    await ask("again", group, topic)
    await ask("a group with members", used, topic)
    await ask("an unknown group", session.unique_name("none"), topic)
    await ask("an unknown group, no topic", session.unique_name("none"))
    await ask("a classic group", classic, topic)
    await ask("without a name", "", topic)


SHARE_GROUP_CASES = (
    share_group_heartbeat,
    share_group_describe,
    describe_share_group_offsets,
    alter_share_group_offsets,
    delete_share_group_offsets,
)
