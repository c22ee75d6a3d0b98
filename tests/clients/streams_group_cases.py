"""Requests of the streams protocol (KIP-1071): threads of applications that join, repeat, leave and
are fenced, and what StreamsGroupDescribe says of them.

Kafka serves the protocol from 4.2 on. Which of several equal tasks moves to a second member is the
broker's choice, so no case shows it.
"""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from tests.clients.api_session import ApiSession
from tests.clients.group_cases import (
    create_empty_group,
    create_stable_group,
    describe_other_groups,
    wait_for_coordinators,
)
from tests.waiting import eventually_async

FIRST, SECOND = "member-1", "member-2"
KAFKA_COORDINATOR_LEARNS_WITHIN_S = 0.2  # Kafka's coordinator learns of new topics; no response shows when
UNCHANGED: dict[str, Any] = {
    "endpoint_information_epoch": 0,
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": -1,
    "topology": None,
    "active_tasks": None,
    "standby_tasks": None,
    "warmup_tasks": None,
    "process_id": None,
    "user_endpoint": None,
    "client_tags": None,
    "task_offsets": None,
    "task_end_offsets": None,
    "shutdown_application": False,
}


def internal_topic(name: str, partitions: int = 0) -> dict[str, Any]:
    return {"name": name, "partitions": partitions, "replication_factor": 1, "topic_configs": []}


def subtopology(number: str, sources: list[str], **more: Any) -> dict[str, Any]:
    lists = ("source_topic_regex", "state_changelog_topics", "repartition_sink_topics", "repartition_source_topics")
    return {
        "subtopology_id": number,
        "source_topics": sources,
        "copartition_groups": [],
        **{name: [] for name in lists},
        **more,
    }


def member_fields(group: str, epoch: int, member: str = FIRST, **more: Any) -> dict[str, Any]:
    """A heartbeat that leaves out what has not changed."""
    return {**UNCHANGED, "group_id": group, "member_id": member, "member_epoch": epoch, **more}


def joining_fields(group: str, parts: list[dict[str, Any]], member: str = FIRST, **more: Any) -> dict[str, Any]:
    fields = {
        "rebalance_timeout": 60_000,
        "topology": {"epoch": 0, "subtopologies": parts},
        "process_id": f"process of {member}",
        "client_tags": [],
        **owned_fields([]),
    }
    return member_fields(group, 0, member, **{**fields, **more})


def owned_fields(active: list[dict[str, Any]]) -> dict[str, Any]:
    return {"active_tasks": active, "standby_tasks": [], "warmup_tasks": []}


async def wait_for_topics(session: ApiSession, *names: str) -> None:
    """Returns when the broker has created these internal topics."""
    wanted = [{"topic_id": None, "name": name} for name in names]

    async def are_created() -> bool:
        metadata = await session.send("metadata", topics=wanted, allow_auto_topic_creation=False)
        return {topic.error_code for topic in metadata.topics} == {ErrorCode.none}

    await eventually_async(are_created)
    await asyncio.sleep(KAFKA_COORDINATOR_LEARNS_WITHIN_S)


async def join(session: ApiSession, group: str, parts: list[dict[str, Any]], member: str = FIRST, **more: Any) -> Any:
    answer = await session.send("streams_group_heartbeat", **joining_fields(group, parts, member, **more))
    assert answer.error_code is ErrorCode.none, answer
    return answer


async def send_refused_cases(session: ApiSession, topic: str) -> None:
    """Only the last case is not refused: a member may wait for a topic."""
    none, missing = session.unique_name("none"), session.unique_name("missing")
    part = subtopology("0", [topic])
    task = [{"subtopology_id": "0", "partitions": [0]}]
    offset = [{"subtopology_id": "0", "partition": 0, "offset": 5}]
    counted = [subtopology("0", [topic], state_changelog_topics=[internal_topic(f"{none}-c", 2)])]
    beyond = {"source_topics": [3], "source_topic_regex": [], "repartition_source_topics": []}
    loop = subtopology(
        "0", [], repartition_sink_topics=[f"{none}-l"], repartition_source_topics=[internal_topic(f"{none}-l")]
    )
    for what, fields in {
        "without a group": joining_fields("", [part]),
        "without a member": joining_fields(none, [part], ""),
        "without a rebalance timeout": joining_fields(none, [part], rebalance_timeout=-1),
        "without a topology": joining_fields(none, [part], topology=None),
        "joining with tasks": joining_fields(none, [part], active_tasks=task),
        "joining without lists of tasks": joining_fields(none, [part], active_tasks=None),
        "warm-up tasks": joining_fields(none, [part], warmup_tasks=task),
        "an instance": joining_fields(none, [part], instance_id="one"),
        "an empty rack": joining_fields(none, [part], rack_id=""),
        "a regular expression": joining_fields(none, [subtopology("0", [topic], source_topic_regex=["t.*"])]),
        "offsets of tasks": joining_fields(none, [part], task_offsets=offset),
        "a changelog of a given size": joining_fields(none, counted),
        "an invalid name": joining_fields(none, [subtopology("0", ["a/b"])]),
        "a loop": joining_fields(none, [loop]),
        "a copartition group beyond its topics": joining_fields(
            none, [subtopology("0", [topic], copartition_groups=[beyond])]
        ),
        "an epoch below all valid ones": member_fields(none, -3),
        "a static member leaves": member_fields(none, -2),
        "an unknown group": member_fields(none, 1),
        "leaving an unknown group": member_fields(none, -1),
        "a topic that does not exist": joining_fields(session.unique_name("waits"), [subtopology("0", [missing])]),
    }.items():
        await session.send_case(what, **fields)


async def streams_group_heartbeat(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic = await session.create_topic("heartbeat", partitions=2)
    wider = await session.create_topic("wider", partitions=3)
    await send_refused_cases(session, topic)
    part, group = subtopology("0", [topic]), session.unique_name("streams")
    both = [{"subtopology_id": "0", "partitions": [0, 1]}]
    endpoint = {"host": "here", "port": 80}
    await session.send_case("the first member", **joining_fields(group, [part]))
    await session.send_case("again", **joining_fields(group, [part]))
    await session.send_case("nothing new", **member_fields(group, 2))
    await session.send_case("what it has", **member_fields(group, 2, **owned_fields(both)))
    await session.send_case("only one list of tasks", **member_fields(group, 2, active_tasks=both))
    await session.send_case("a topology later", **member_fields(group, 2, topology={"epoch": 0, "subtopologies": []}))
    await session.send_case("an epoch ahead", **member_fields(group, 9))
    await session.send_case("an epoch behind", **member_fields(group, 1))
    await session.send_case("an endpoint", **member_fields(group, 2, user_endpoint=endpoint))
    await session.send_case("the endpoint's epoch", **member_fields(group, 3, endpoint_information_epoch=1))
    await session.send_case("an unknown member", **member_fields(group, 2, SECOND))
    await session.send_case("another topology", **joining_fields(group, [subtopology("0", [wider])], SECOND))
    await session.send_case(
        "a newer topology", **joining_fields(group, [part], SECOND, topology={"epoch": 1, "subtopologies": [part]})
    )
    await session.send_case("a second member", **joining_fields(group, [part], SECOND))
    await session.send_case("the first one leaves", **member_fields(group, -1))
    await session.send_case("and leaves again", **member_fields(group, -1))
    await session.send_case("the second one gets all", **member_fields(group, 4, SECOND, **owned_fields([])))
    await session.send_case("it stops the application", **member_fields(group, -1, SECOND, shutdown_application=True))
    await session.send_case("after the stop", **joining_fields(group, [part]))
    await send_internal_topic_cases(session, topic, wider)
    left, stable = session.unique_name("left"), session.unique_name("stable")
    await create_empty_group(session, left)
    await session.send_case("an empty classic group", **joining_fields(left, [part]))
    await create_stable_group(session, stable)
    await session.send_case("a classic group with members", **joining_fields(stable, [part]))


async def send_internal_topic_cases(session: ApiSession, topic: str, wider: str) -> None:
    stateful, joined = session.unique_name("stateful"), session.unique_name("joined")
    changelog, repartition = f"{stateful}-changelog", f"{joined}-repartition"
    part = subtopology("0", [topic], state_changelog_topics=[internal_topic(changelog)])
    await session.send_case("an internal topic is missing", **joining_fields(stateful, [part]))
    await wait_for_topics(session, changelog)
    await session.send_case("the internal topic exists", **member_fields(stateful, 2, **owned_fields([])))
    together = {"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": [0]}
    parts = [
        subtopology("0", [topic], repartition_sink_topics=[repartition]),
        subtopology(
            "1", [wider], repartition_source_topics=[internal_topic(repartition)], copartition_groups=[together]
        ),
    ]
    await session.send_case("a repartition topic is missing", **joining_fields(joined, parts))
    await wait_for_topics(session, repartition)
    await session.send_case("it has the size of the other topic", **member_fields(joined, 2, **owned_fields([])))
    badly = {"source_topics": [0, 1], "source_topic_regex": [], "repartition_source_topics": []}
    unequal = [subtopology("0", [topic, wider], copartition_groups=[badly])]
    await session.send_case("topics of different sizes", **joining_fields(session.unique_name("unequal"), unequal))


async def streams_group_describe(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic = await session.create_topic("described", partitions=2)
    group, left, waiting = (session.unique_name(each) for each in ("streams", "left", "waits"))
    classic, changelog = session.unique_name("classic"), session.unique_name("changelog")
    part = subtopology("0", [topic], state_changelog_topics=[internal_topic(changelog)])
    await create_stable_group(session, classic)
    await join(session, waiting, [subtopology("0", [session.unique_name("missing")])])
    await join(session, left, [subtopology("0", [topic])])
    await session.send("streams_group_heartbeat", **member_fields(left, -1))
    details: dict[str, Any] = {
        "rack_id": "r",
        "user_endpoint": {"host": "here", "port": 80},
        "client_tags": [{"key": "zone", "value": "z"}],
    }
    await join(session, group, [part], **details)
    # Kafka describes a state only once a later record follows it.
    await create_empty_group(session, session.unique_name("any"))
    await session.send_case("without its internal topics", group_ids=[group])
    await wait_for_topics(session, changelog)
    await session.send("streams_group_heartbeat", **member_fields(group, 2, **owned_fields([])))
    for number in range(10):  # enough groups to reach all five partitions
        await create_empty_group(session, session.unique_name(f"any {number}"))
    await session.send_case("stable", group_ids=[group])
    await session.send_case("not ready", group_ids=[waiting])
    await describe_other_groups(session, left, classic)


STREAMS_GROUP_CASES = (streams_group_heartbeat, streams_group_describe)
