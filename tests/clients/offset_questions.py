"""What is asked of the offsets of groups: committed, fetched and deleted by members and by others."""

from typing import Any

from tests.clients.asking import Talk, batch
from tests.clients.group_questions import UNKNOWN_MEMBER, empty, joined, of, rebalancing, settled, stable
from tests.clients.topic_questions import NOBODY


async def offset_commit(talk: Talk) -> None:
    await settled(talk)
    there = await talk.topic("there", 2, [batch(b"0")])
    simple = talk.name("simple")
    without = {"generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": ""}

    def commits(name: str, *partitions: int, metadata: str | None = "m") -> list[dict[str, Any]]:
        wanted = [
            {"partition_index": index, "committed_offset": 1, "committed_metadata": metadata, "retention_time": -1}
            for index in partitions
        ]
        return [{"name": name, "topic_id": talk.ids.get(name, NOBODY), "partitions": wanted}]

    async def ask(case: str, group: str, member: dict[str, Any], topics: list[dict[str, Any]], **more: Any) -> None:
        epoch = {"generation_id_or_member_epoch": member.get("generation_id", -1), "retention_time": -1}
        await talk.ask(case, **{**member, **epoch, **more, "group_id": group, "topics": topics})

    await ask("without a member", simple, without, commits(there, 0, 1))
    await ask("null metadata", simple, without, commits(there, 0, metadata=None))
    await ask("metadata too long", simple, without, commits(there, 0, metadata="x" * 4097))
    await ask("an unknown topic", simple, without, commits(talk.name("unknown"), 0))
    await ask("an unknown partition", simple, without, commits(there, 0, 9))
    await ask("no topics", simple, without, [])
    await ask("a group without a name", "", without, commits(there, 0))
    await ask(
        "a generation of an unknown group",
        talk.name("none"),
        {"generation_id": 1, "member_id": UNKNOWN_MEMBER},
        commits(there, 0),
    )
    await ask(
        "a member of an unknown group",
        talk.name("none"),
        {"generation_id": -1, "member_id": UNKNOWN_MEMBER},
        commits(there, 0),
    )
    group = talk.name("group")
    mine = of(group, await stable(talk, group))
    await ask("a member", group, mine, commits(there, 0))
    await ask("without a member, in a group with members", group, without, commits(there, 0))
    await ask("an old generation", group, {**mine, "generation_id": 0}, commits(there, 0))
    await ask("an unknown member", group, {**mine, "member_id": UNKNOWN_MEMBER}, commits(there, 0))
    waiting = talk.name("waiting")
    await ask("before the assignment", waiting, of(waiting, await joined(talk, waiting)), commits(there, 0))
    moving = talk.name("rebalancing")
    member, waits = await rebalancing(talk, moving)
    await ask("in a rebalance", moving, of(moving, member), commits(there, 0))
    waits.cancel()
    left = talk.name("empty")
    await empty(talk, left)
    await ask("without a member, of an empty group", left, without, commits(there, 0))
    await ask("an old member of an empty group", left, mine, commits(there, 0))
    if talk.version >= 7:
        fixed = talk.name("static")
        static = of(fixed, await stable(talk, fixed, "one"))
        await ask("an instance", fixed, static, commits(there, 0), group_instance_id="one")
        await ask("an unknown instance", fixed, static, commits(there, 0), group_instance_id="two")
        await ask(
            "an instance with another id",
            fixed,
            {**static, "member_id": UNKNOWN_MEMBER},
            commits(there, 0),
            group_instance_id="one",
        )


async def a_commit(talk: Talk) -> tuple[str, str]:
    """A topic, and a group that has committed an offset of its first partition."""
    await settled(talk)
    there = await talk.topic("there", 2, [batch(b"0")])
    group = talk.name("group")
    committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
    # Version 9 of OffsetCommit takes names, and so does whatever is highest when ids are not spoken yet.
    topics = [{"name": there, "topic_id": talk.ids[there], "partitions": [committed]}]
    await talk.do("offset_commit", group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    return there, group


async def offset_fetch(talk: Talk) -> None:
    there, group = await a_commit(talk)

    def wanted(name: str, *partitions: int) -> dict[str, Any]:
        return {"name": name, "topic_id": talk.ids.get(name, NOBODY), "partition_indexes": partitions}

    async def ask(case: str, name: str, *topics: dict[str, Any], everything: bool = False, **more: Any) -> None:
        asked = None if everything else topics
        groups = [{"group_id": name, "topics": asked, **more}]
        await talk.ask(case, group_id=name, topics=asked, groups=groups)

    await ask("two partitions", group, wanted(there, 0, 1))
    await ask("an unknown partition", group, wanted(there, 9))
    await ask("an unknown topic", group, wanted(talk.name("unknown"), 0))
    await ask("no topics", group)
    await ask("an unknown group", talk.name("none"), wanted(there, 0))
    await ask("a group without a name", "", wanted(there, 0))
    if talk.version >= 2:
        await ask("everything", group, everything=True)
        await ask("everything of an unknown group", talk.name("none"), everything=True)
    if talk.version >= 8:
        both = [{"group_id": name, "topics": [wanted(there, 0)]} for name in (group, talk.name("none"))]
        await talk.ask("two groups", groups=both)
        await talk.ask("no groups", groups=())
    if talk.version >= 9:
        await ask("with a member of a classic group", group, wanted(there, 0), member_id="me", member_epoch=1)
        await ask(
            "with a member of an unknown group", talk.name("none"), wanted(there, 0), member_id="me", member_epoch=1
        )


async def offset_delete(talk: Talk) -> None:
    there, group = await a_commit(talk)

    async def ask(case: str, name: str, topic: str, *partitions: int) -> None:
        wanted = [{"name": topic, "partitions": [{"partition_index": index} for index in partitions]}]
        await talk.ask(case, group_id=name, topics=wanted)

    await ask("an unknown group", talk.name("none"), there, 0)
    await ask("a group without a name", "", there, 0)
    await ask("an unknown topic", group, talk.name("unknown"), 0)
    await ask("an unknown partition", group, there, 9)
    await ask("what was committed, and not", group, there, 0, 1)
    await ask("again", group, there, 0)
    busy = talk.name("busy")
    await stable(talk, busy)
    await ask("a topic that members may read", busy, there, 0)
    await talk.ask("no topics", group_id=busy, topics=())


OFFSET_QUESTIONS = (offset_commit, offset_fetch, offset_delete)
