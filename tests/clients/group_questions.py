"""What is asked of consumer groups: members in and out of turn, and groups that are not what they should be."""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from tests.clients.asking import Talk
from tests.waiting import eventually_async

RANGE = [{"name": "range", "metadata": b"r"}, {"name": "roundrobin", "metadata": b"rr"}]
KINDS: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
UNKNOWN_MEMBER = "nobody-00000000-0000-0000-0000-000000000000"


def joining(group: str, member: str = "", instance: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": RANGE,
        **more,
    }


async def joined(talk: Talk, group: str, instance: str | None = None, on: str = "") -> Any:
    """A member in a group that waits for its assignment."""
    answer = await talk.do("join_group", on=on, **joining(group, instance=instance))
    if answer.error_code is ErrorCode.member_id_required:
        answer = await talk.do("join_group", on=on, **joining(group, answer.member_id, instance))
    assert answer.error_code is ErrorCode.none, answer
    return answer


async def stable(talk: Talk, group: str, instance: str | None = None) -> Any:
    """The one member of a stable group."""
    answer = await joined(talk, group, instance)
    assigned = [{"member_id": answer.member_id, "assignment": b"mine"}]
    synced = await talk.do("sync_group", **of(group, answer), **KINDS, assignments=assigned, group_instance_id=instance)
    assert synced.error_code is ErrorCode.none, synced
    return answer


def of(group: str, answer: Any) -> dict[str, Any]:
    return {"group_id": group, "generation_id": answer.generation_id, "member_id": answer.member_id}


async def empty(talk: Talk, group: str) -> None:
    """A group whose only member has left."""
    answer = await stable(talk, group)
    await talk.do("leave_group", group_id=group, members=[{"member_id": answer.member_id}])


async def rebalancing(talk: Talk, group: str) -> tuple[Any, "asyncio.Task[Any]"]:
    """A stable group's member, after another one began to join (which waits for it)."""
    answer = await stable(talk, group)
    wanted = await talk.do("join_group", on="other", **joining(group))
    waits = asyncio.create_task(talk.do("join_group", on="other", **joining(group, wanted.member_id)))

    async def begun() -> bool:
        beat = await talk.do("heartbeat", **of(group, answer))
        return beat.error_code is ErrorCode.rebalance_in_progress

    await eventually_async(begun)
    return answer, waits


async def nameless(talk: Talk) -> None:
    """The group without a name, which clients that commit without members may have."""
    there = await talk.topic("nameless")
    committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
    topics = [{"name": there, "topic_id": talk.ids[there], "partitions": [committed]}]
    await talk.do("offset_commit", group_id="", generation_id_or_member_epoch=-1, member_id="", topics=topics)


async def settled(talk: Talk) -> None:
    """The coordinators have loaded their partitions."""

    async def loaded() -> bool:
        codes = set()
        for number in range(30):  # enough names to reach each of the five partitions
            name = talk.name(f"warm {number}")
            found = await talk.do("find_coordinator", key_type=0, coordinator_keys=[name])
            codes.add(found.coordinators[0].error_code)
            codes.add((await talk.do("heartbeat", group_id=name, generation_id=1, member_id="x")).error_code)
        return codes == {ErrorCode.none, ErrorCode.unknown_member_id}

    await eventually_async(loaded)


async def join_group(talk: Talk) -> None:
    await settled(talk)
    group = talk.name("group")
    first = await talk.ask("a first member", **joining(group))
    if first.error_code is ErrorCode.member_id_required:
        first = await talk.ask("with the id it was given", **joining(group, first.member_id))
    await talk.ask("again, before the assignment", **joining(group, first.member_id))
    assigned = [{"member_id": first.member_id, "assignment": b"mine"}]
    await talk.do("sync_group", **of(group, first), **KINDS, assignments=assigned)
    await talk.ask("again, when it is stable", **joining(group, first.member_id))
    await talk.ask("an unknown member", **joining(group, UNKNOWN_MEMBER))
    await talk.ask("an unknown member of an unknown group", **joining(talk.name("none"), UNKNOWN_MEMBER))
    await talk.ask("a group without a name", **joining(""))
    await talk.ask("a session too short", **joining(talk.name("none"), session_timeout=1))
    await talk.ask("a session too long", **joining(talk.name("none"), session_timeout=99_999_999))
    await talk.ask("another type", **joining(group, protocol_type="connect"))
    await talk.ask("no type", **joining(talk.name("none"), protocol_type=""))
    await talk.ask("no protocols", **joining(talk.name("none"), protocols=()))
    await talk.ask("no protocol in common", **joining(group, protocols=[{"name": "sticky", "metadata": b""}]))
    await talk.ask(
        "no protocol in common of a member",
        **joining(group, first.member_id, protocols=[{"name": "x", "metadata": b""}]),
    )
    if talk.version >= 5:
        other = talk.name("static")
        static = await talk.ask("a static member", **joining(other, instance="one"))
        await talk.do(
            "sync_group",
            **of(other, static),
            **KINDS,
            assignments=[{"member_id": static.member_id, "assignment": b"m"}],
        )
        taken = await talk.ask("its instance, started again", **joining(other, instance="one"))
        await talk.ask("its old self", **joining(other, static.member_id, "one"))
        await talk.ask("its instance with an unknown id", **joining(other, UNKNOWN_MEMBER, "one"))
        await talk.ask("another instance with its id", **joining(other, taken.member_id, "two"))


async def sync_group(talk: Talk) -> None:
    await settled(talk)
    group = talk.name("group")
    first = await joined(talk, group)
    mine = of(group, first)
    assigned = [{"member_id": first.member_id, "assignment": b"mine"}]
    await talk.ask("an unknown group", **{**mine, "group_id": talk.name("none")}, **KINDS, assignments=assigned)
    await talk.ask("a group without a name", **{**mine, "group_id": ""}, **KINDS, assignments=assigned)
    await talk.ask("an unknown member", **{**mine, "member_id": UNKNOWN_MEMBER}, **KINDS, assignments=assigned)
    await talk.ask("no member", **{**mine, "member_id": ""}, **KINDS, assignments=assigned)
    await talk.ask("an old generation", **{**mine, "generation_id": 0}, **KINDS, assignments=assigned)
    await talk.ask("a generation to come", **{**mine, "generation_id": 9}, **KINDS, assignments=assigned)
    if talk.version >= 5:
        await talk.ask("another type", **mine, protocol_type="connect", protocol_name="range", assignments=assigned)
        await talk.ask(
            "another protocol", **mine, protocol_type="consumer", protocol_name="sticky", assignments=assigned
        )
        await talk.ask("neither type nor protocol", **mine, assignments=assigned)
    if talk.version >= 3:
        await talk.ask("an unknown instance", **mine, **KINDS, group_instance_id="no", assignments=assigned)
    strangers = [{"member_id": "stranger", "assignment": b"?"}]
    await talk.ask("an assignment", **mine, **KINDS, assignments=assigned)
    await talk.ask("again, when it is stable", **mine, **KINDS, assignments=())
    await talk.ask("another assignment when it is stable", **mine, **KINDS, assignments=strangers)
    others = talk.name("strangers")
    await talk.ask(
        "an assignment of strangers", **of(others, await joined(talk, others)), **KINDS, assignments=strangers
    )
    moving = talk.name("rebalancing")
    member, waits = await rebalancing(talk, moving)
    await talk.ask("in a rebalance", **of(moving, member), **KINDS, assignments=())
    waits.cancel()


async def heartbeat(talk: Talk) -> None:
    await settled(talk)
    group = talk.name("group")
    mine = of(group, await stable(talk, group))
    await talk.ask("a member", **mine)
    await talk.ask("an unknown member", **{**mine, "member_id": UNKNOWN_MEMBER})
    await talk.ask("no member", **{**mine, "member_id": ""})
    await talk.ask("an old generation", **{**mine, "generation_id": 0})
    await talk.ask("a generation to come", **{**mine, "generation_id": 9})
    await talk.ask("an unknown group", **{**mine, "group_id": talk.name("none")})
    await talk.ask("a group without a name", **{**mine, "group_id": ""})
    waiting = talk.name("waiting")
    await talk.ask("before the assignment", **of(waiting, await joined(talk, waiting)))
    left = talk.name("empty")
    await empty(talk, left)
    await talk.ask("of an empty group", **{**mine, "group_id": left})
    moving = talk.name("rebalancing")
    member, waits = await rebalancing(talk, moving)
    await talk.ask("in a rebalance", **of(moving, member))
    waits.cancel()
    if talk.version >= 3:
        fixed = talk.name("static")
        static = of(fixed, await stable(talk, fixed, "one"))
        await talk.ask("an instance", **static, group_instance_id="one")
        await talk.ask("an unknown instance", **static, group_instance_id="two")
        await talk.ask(
            "an instance with another id", **{**static, "member_id": UNKNOWN_MEMBER}, group_instance_id="one"
        )


async def leave_group(talk: Talk) -> None:
    await settled(talk)
    group = talk.name("group")
    first = await stable(talk, group)

    async def ask(case: str, name: str, *members: tuple[str, str | None]) -> None:
        leaving = [{"member_id": member, "group_instance_id": instance} for member, instance in members]
        await talk.ask(case, group_id=name, member_id=members[0][0] if members else "", members=leaving)

    await ask("an unknown member", group, (UNKNOWN_MEMBER, None))
    await ask("an unknown group", talk.name("none"), (UNKNOWN_MEMBER, None))
    await ask("a group without a name", "", (UNKNOWN_MEMBER, None))
    await ask("no member", group, ("", None))
    await ask("nobody", group)
    await ask("a member", group, (first.member_id, None))
    await ask("again", group, (first.member_id, None))
    if talk.version >= 3:
        fixed = talk.name("static")
        static = await stable(talk, fixed, "one")
        await ask("an unknown instance", fixed, ("", "two"))
        await ask("an instance with another id", fixed, (UNKNOWN_MEMBER, "one"))
        await ask("an instance and an unknown one", fixed, ("", "one"), ("", "two"))
        await ask("its id, after it left", fixed, (static.member_id, "one"))


async def describe_groups(talk: Talk) -> None:
    await settled(talk)
    group, left, waiting, moving = (talk.name(each) for each in ("group", "empty", "waiting", "rebalancing"))
    await stable(talk, group)
    await empty(talk, left)
    await joined(talk, waiting)
    _, waits = await rebalancing(talk, moving)
    fixed = talk.name("static")
    await stable(talk, fixed, "one")
    for case, name in (
        ("stable", group),
        ("empty", left),
        ("before the assignment", waiting),
        ("rebalancing", moving),
        ("static", fixed),
    ):
        await talk.ask(case, groups=[name])
    waits.cancel()
    await talk.ask("rights", groups=[group], include_authorized_operations=True)
    await talk.ask("unknown", groups=[talk.name("none")])
    await talk.ask("unknown, with rights", groups=[talk.name("none")], include_authorized_operations=True)
    await nameless(talk)
    await talk.ask("without a name", groups=[""])
    await talk.ask("two", groups=[group, talk.name("none")])
    await talk.ask("the same twice", groups=[left, left])
    await talk.ask("none", groups=())


async def list_groups(talk: Talk) -> None:
    await settled(talk)
    await stable(talk, talk.name("group"))
    await empty(talk, talk.name("empty"))
    await talk.ask("all", mine=True)
    if talk.version >= 4:
        await talk.ask("stable ones", mine=True, states_filter=["Stable"])
        await talk.ask("in small letters", mine=True, states_filter=["stable"])
        await talk.ask("two states", mine=True, states_filter=["Stable", "Empty"])
        await talk.ask("an unknown state", mine=True, states_filter=["Asleep"])
    if talk.version >= 5:
        await talk.ask("classic ones", mine=True, types_filter=["classic"])
        await talk.ask("in large letters", mine=True, types_filter=["CLASSIC"])
        await talk.ask("consumer ones", mine=True, types_filter=["consumer"])
        await talk.ask("an unknown type", mine=True, types_filter=["strange"])


async def delete_groups(talk: Talk) -> None:
    await settled(talk)
    group, left = talk.name("group"), talk.name("empty")
    await stable(talk, group)
    await empty(talk, left)
    await talk.ask("with members", groups_names=[group])
    await talk.ask("unknown", groups_names=[talk.name("none")])
    await nameless(talk)
    await talk.ask("without a name", groups_names=[""])
    await talk.ask("without a name again", groups_names=[""])
    await talk.ask("empty and unknown", groups_names=[left, talk.name("none")])
    await talk.ask("again", groups_names=[left])
    await talk.ask("none", groups_names=())


GROUP_QUESTIONS = (
    join_group,
    sync_group,
    heartbeat,
    leave_group,
    describe_groups,
    list_groups,
    delete_groups,
)
