"""Requests about committed offsets: commits, fetches and deletions by members and by
other clients.
"""

from typing import Any

from tests.clients.api_session import ApiSession, encode_values
from tests.clients.group_cases import (
    UNKNOWN_MEMBER,
    create_empty_group,
    create_stable_group,
    join,
    member_fields,
    start_rebalance,
    wait_for_coordinators,
)
from tests.clients.topic_cases import UNKNOWN_ID


async def offset_commit(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    topic = await session.create_topic("there", 2, [encode_values(b"0")])
    simple = session.unique_name("simple")
    no_member = {"generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}

    def commits(name: str, *partitions: int, metadata: str | None = "m") -> list[dict[str, Any]]:
        wanted = [
            {"partition_index": index, "committed_offset": 1, "committed_metadata": metadata, "retention_time": -1}
            for index in partitions
        ]
        return [{"name": name, "topic_id": session.ids.get(name, UNKNOWN_ID), "partitions": wanted}]

    async def ask(case: str, group: str, member: dict[str, Any], topics: list[dict[str, Any]], **more: Any) -> None:
        epoch = {"generation_id_or_member_epoch": member.get("generation_id", -1), "retention_time": -1}
        await session.send_case(case, **{**member, **epoch, **more, "group_id": group, "topics": topics})

    await ask("without a member", simple, no_member, commits(topic, 0, 1))
    await ask("null metadata", simple, no_member, commits(topic, 0, metadata=None))
    await ask("metadata too long", simple, no_member, commits(topic, 0, metadata="x" * 4097))
    await ask("an unknown topic", simple, no_member, commits(session.unique_name("unknown"), 0))
    await ask("an unknown partition", simple, no_member, commits(topic, 0, 9))
    await ask("no topics", simple, no_member, [])
    await ask("a group without a name", "", no_member, commits(topic, 0))
    await ask(
        "a generation of an unknown group",
        session.unique_name("none"),
        {"generation_id": 1, "member_id": UNKNOWN_MEMBER},
        commits(topic, 0),
    )
    await ask(
        "a member of an unknown group",
        session.unique_name("none"),
        {"generation_id": -1, "member_id": UNKNOWN_MEMBER},
        commits(topic, 0),
    )
    group = session.unique_name("group")
    mine = member_fields(group, await create_stable_group(session, group))
    await ask("a member", group, mine, commits(topic, 0))
    await ask("without a member, in a group with members", group, no_member, commits(topic, 0))
    await ask("an old generation", group, {**mine, "generation_id": 0}, commits(topic, 0))
    await ask("an unknown member", group, {**mine, "member_id": UNKNOWN_MEMBER}, commits(topic, 0))
    waiting = session.unique_name("waiting")
    await ask("before the assignment", waiting, member_fields(waiting, await join(session, waiting)), commits(topic, 0))
    moving = session.unique_name("rebalancing")
    member, pending_join = await start_rebalance(session, moving)
    await ask("in a rebalance", moving, member_fields(moving, member), commits(topic, 0))
    pending_join.cancel()
    left = session.unique_name("empty")
    await create_empty_group(session, left)
    await ask("without a member, of an empty group", left, no_member, commits(topic, 0))
    await ask("an old member of an empty group", left, mine, commits(topic, 0))
    if session.version >= 7:
        fixed = session.unique_name("static")
        static = member_fields(fixed, await create_stable_group(session, fixed, "one"))
        await ask("an instance", fixed, static, commits(topic, 0), group_instance_id="one")
        await ask("an unknown instance", fixed, static, commits(topic, 0), group_instance_id="two")
        await ask(
            "an instance with another id",
            fixed,
            {**static, "member_id": UNKNOWN_MEMBER},
            commits(topic, 0),
            group_instance_id="one",
        )


async def commit_offset(session: ApiSession) -> tuple[str, str]:
    """Creates a topic, and a group with a committed offset of its first partition. Returns both
    names.
    """
    await wait_for_coordinators(session)
    topic = await session.create_topic("there", 2, [encode_values(b"0")])
    group = session.unique_name("group")
    committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
    # OffsetCommit up to version 9 takes topic names, later versions ids.
    topics = [{"name": topic, "topic_id": session.ids[topic], "partitions": [committed]}]
    await session.send("offset_commit", group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    return topic, group


async def offset_fetch(session: ApiSession) -> None:
    topic, group = await commit_offset(session)

    def topic_fields(name: str, *partitions: int) -> dict[str, Any]:
        return {"name": name, "topic_id": session.ids.get(name, UNKNOWN_ID), "partition_indexes": partitions}

    async def ask(case: str, name: str, *topics: dict[str, Any], all_topics: bool = False, **more: Any) -> None:
        requested = None if all_topics else topics
        groups = [{"group_id": name, "topics": requested, **more}]
        await session.send_case(case, group_id=name, topics=requested, groups=groups)

    await ask("two partitions", group, topic_fields(topic, 0, 1))
    await ask("an unknown partition", group, topic_fields(topic, 9))
    await ask("an unknown topic", group, topic_fields(session.unique_name("unknown"), 0))
    await ask("no topics", group)
    await ask("an unknown group", session.unique_name("none"), topic_fields(topic, 0))
    await ask("a group without a name", "", topic_fields(topic, 0))
    if session.version >= 2:
        await ask("everything", group, all_topics=True)
        await ask("everything of an unknown group", session.unique_name("none"), all_topics=True)
    if session.version >= 8:
        both = [{"group_id": name, "topics": [topic_fields(topic, 0)]} for name in (group, session.unique_name("none"))]
        await session.send_case("two groups", groups=both)
        await session.send_case("no groups", groups=())
    if session.version >= 9:
        await ask("with a member of a classic group", group, topic_fields(topic, 0), member_id="me", member_epoch=1)
        await ask(
            "with a member of an unknown group",
            session.unique_name("none"),
            topic_fields(topic, 0),
            member_id="me",
            member_epoch=1,
        )


async def offset_delete(session: ApiSession) -> None:
    committed_topic, group = await commit_offset(session)

    async def ask(case: str, name: str, topic: str, *partitions: int) -> None:
        wanted = [{"name": topic, "partitions": [{"partition_index": index} for index in partitions]}]
        await session.send_case(case, group_id=name, topics=wanted)

    await ask("an unknown group", session.unique_name("none"), committed_topic, 0)
    await ask("a group without a name", "", committed_topic, 0)
    await ask("an unknown topic", group, session.unique_name("unknown"), 0)
    await ask("an unknown partition", group, committed_topic, 9)
    await ask("a partition with a commit, and one without", group, committed_topic, 0, 1)
    await ask("again", group, committed_topic, 0)
    busy = session.unique_name("busy")
    await create_stable_group(session, busy)
    await ask("a topic that members may read", busy, committed_topic, 0)
    await session.send_case("no topics", group_id=busy, topics=())


OFFSET_CASES = (offset_commit, offset_fetch, offset_delete)
