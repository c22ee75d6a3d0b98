"""Requests of the consumer protocol (KIP-848): members that join, repeat, leave and are fenced.

Regular expressions are left out: Kafka evaluates them after its first response,
Ottla before it.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from tests.clients.api_session import ApiSession
from tests.clients.group_cases import (
    create_empty_group,
    create_stable_group,
    describe_other_groups,
    wait_for_coordinators,
)

FIRST, SECOND = "member-1", "member-2"


def joining_fields(group: str, topic: str, member: str = FIRST, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": [topic],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
        **more,
    }


def member_fields(group: str, epoch: int, member: str = FIRST, **more: Any) -> dict[str, Any]:
    """A heartbeat that leaves out what has not changed."""
    unchanged = {"rebalance_timeout": -1, "subscribed_topic_names": None, "topic_partitions": None}
    return joining_fields(group, "", member, member_epoch=epoch) | unchanged | more


async def join(session: ApiSession, group: str, topic: str, member: str = FIRST, **more: Any) -> None:
    response = await session.send("consumer_group_heartbeat", **joining_fields(group, topic, member, **more))
    assert response.error_code is ErrorCode.none, response


async def consumer_group_heartbeat(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic = await session.create_topic("heartbeat", partitions=2)
    group, none = session.unique_name("consumers"), session.unique_name("none")
    owned = [{"topic_id": session.ids[topic], "partitions": [0, 1]}]
    fewer = [{"topic_id": session.ids[topic], "partitions": [0]}]
    for what, fields in {
        "without a group": joining_fields("", topic),
        "without a rebalance timeout": joining_fields(none, topic, rebalance_timeout=-1),
        "without a subscription": joining_fields(none, topic, subscribed_topic_names=None),
        "joining with partitions": joining_fields(none, topic, topic_partitions=owned),
        "joining without a list of partitions": joining_fields(none, topic, topic_partitions=None),
        "an empty instance": joining_fields(none, topic, instance_id=""),
        "an empty rack": joining_fields(none, topic, rack_id=""),
        "an unknown assignor": joining_fields(none, topic, server_assignor="sticky"),
        "an epoch below all valid ones": member_fields(none, -3),
        "a static member without an instance leaves": member_fields(none, -2),
        "an unknown group": member_fields(none, 1),
        "leaving an unknown group": member_fields(none, -1),
    }.items():
        await session.send_case(what, **fields)
    await session.send_case("the first member", **joining_fields(group, topic))
    await session.send_case("again", **joining_fields(group, topic))
    await session.send_case("nothing new", **member_fields(group, 1))
    await session.send_case("a full heartbeat", **joining_fields(group, topic, member_epoch=1, topic_partitions=owned))
    await session.send_case("an epoch ahead", **member_fields(group, 9))
    await session.send_case("a topic that does not exist", **member_fields(group, 1, subscribed_topic_names=[none]))
    await session.send_case("what it had is given up", **member_fields(group, 1, topic_partitions=[]))
    await session.send_case("the topic again", **member_fields(group, 2, subscribed_topic_names=[topic]))
    await session.send_case("an unknown member", **member_fields(group, 1, SECOND))
    await session.send_case("a second member", **joining_fields(group, topic, SECOND))
    await session.send_case("the first must give up one", **member_fields(group, 3, topic_partitions=owned))
    await session.send_case("the second waits", **member_fields(group, 4, SECOND))
    await session.send_case("the first has given up one", **member_fields(group, 3, topic_partitions=fewer))
    await session.send_case("its response was lost", **member_fields(group, 3, topic_partitions=fewer))
    await session.send_case("an epoch behind", **member_fields(group, 2, topic_partitions=fewer))
    await session.send_case("the second gets it", **member_fields(group, 4, SECOND))
    await session.send_case("the second leaves", **member_fields(group, -1, SECOND))
    await session.send_case("the second leaves again", **member_fields(group, -1, SECOND))
    static = {"instance_id": "static"}
    await session.send_case("a static member", **joining_fields(group, topic, SECOND, **static))
    await session.send_case("its instance is in use", **joining_fields(group, topic, "member-3", **static))
    await session.send_case("another member of its instance", **member_fields(group, 6, "member-3", **static))
    await session.send_case("it leaves for a while", **member_fields(group, -2, SECOND, **static))
    await session.send_case("it returns under another id", **joining_fields(group, topic, "member-3", **static))
    await session.send_case("an unknown instance", **member_fields(group, 6, "member-3", instance_id="other"))
    left, stable = session.unique_name("left"), session.unique_name("stable")
    await create_empty_group(session, left)
    await session.send_case("an empty classic group", **joining_fields(left, topic))
    await create_stable_group(session, stable)
    await session.send_case("a classic group with other subscriptions", **joining_fields(stable, topic))


async def consumer_group_describe(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic = await session.create_topic("described", partitions=2)
    group, left = session.unique_name("consumers"), session.unique_name("left")
    classic = session.unique_name("classic")
    await create_stable_group(session, classic)
    await join(session, group, topic, rack_id="r", server_assignor="range")
    await join(session, left, topic)
    await session.send("consumer_group_heartbeat", **member_fields(left, -1))
    await session.send_case("stable", group_ids=[group])
    await join(session, group, topic, SECOND, instance_id="static")
    await session.send_case("reconciling", group_ids=[group])
    await describe_other_groups(session, left, classic)


CONSUMER_GROUP_CASES = (consumer_group_heartbeat, consumer_group_describe)
