"""Requests about consumer groups: in and out of their usual order, and groups in unusual
states.
"""

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode

from tests.clients.api_session import ApiSession
from tests.waiting import eventually_async

PROTOCOLS = [{"name": "range", "metadata": b"r"}, {"name": "roundrobin", "metadata": b"rr"}]
PROTOCOL_FIELDS: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
UNKNOWN_MEMBER = "nobody-00000000-0000-0000-0000-000000000000"


def join_fields(group: str, member: str = "", instance: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
        **more,
    }


async def join(session: ApiSession, group: str, instance: str | None = None, connection: str = "") -> Any:
    """Joins a group; returns the response. The member then waits for its assignment."""
    answer = await session.send("join_group", connection=connection, **join_fields(group, instance=instance))
    if answer.error_code is ErrorCode.member_id_required:
        answer = await session.send(
            "join_group", connection=connection, **join_fields(group, answer.member_id, instance)
        )
    assert answer.error_code is ErrorCode.none, answer
    return answer


async def create_stable_group(session: ApiSession, group: str, instance: str | None = None) -> Any:
    """Creates a stable group with one member; returns the JoinGroup response of the member."""
    answer = await join(session, group, instance)
    assigned = [{"member_id": answer.member_id, "assignment": b"mine"}]
    synced = await session.send(
        "sync_group",
        **member_fields(group, answer),
        **PROTOCOL_FIELDS,
        assignments=assigned,
        group_instance_id=instance,
    )
    assert synced.error_code is ErrorCode.none, synced
    return answer


def member_fields(group: str, answer: Any) -> dict[str, Any]:
    return {"group_id": group, "generation_id": answer.generation_id, "member_id": answer.member_id}


async def create_empty_group(session: ApiSession, group: str) -> None:
    """Creates a group whose only member has left."""
    answer = await create_stable_group(session, group)
    await session.send("leave_group", group_id=group, members=[{"member_id": answer.member_id}])


async def start_rebalance(session: ApiSession, group: str) -> tuple[Any, "asyncio.Task[Any]"]:
    """Creates a stable group that a second member begins to join. Returns the first member's
    JoinGroup response, and the pending join of the second.
    """
    answer = await create_stable_group(session, group)
    wanted = await session.send("join_group", connection="other", **join_fields(group))
    pending_join = asyncio.create_task(
        session.send("join_group", connection="other", **join_fields(group, wanted.member_id))
    )

    async def is_rebalancing() -> bool:
        heartbeat_response = await session.send("heartbeat", **member_fields(group, answer))
        return heartbeat_response.error_code is ErrorCode.rebalance_in_progress

    await eventually_async(is_rebalancing)
    return answer, pending_join


async def commit_in_nameless_group(session: ApiSession) -> None:
    """Commits an offset in the group with the empty name, which clients outside groups may use."""
    topic = await session.create_topic("nameless")
    committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}
    topics = [{"name": topic, "topic_id": session.ids[topic], "partitions": [committed]}]
    await session.send("offset_commit", group_id="", generation_id_or_member_epoch=-1, member_id="", topics=topics)


async def wait_for_coordinators(session: ApiSession) -> None:
    """Returns when the coordinators have loaded their partitions."""

    async def are_partitions_loaded() -> bool:
        codes = set()
        for number in range(30):  # enough groups to reach all five partitions
            name = session.unique_name(f"warm {number}")
            found = await session.send("find_coordinator", key_type=0, coordinator_keys=[name])
            codes.add(found.coordinators[0].error_code)
            codes.add((await session.send("heartbeat", group_id=name, generation_id=1, member_id="x")).error_code)
        return codes == {ErrorCode.none, ErrorCode.unknown_member_id}

    await eventually_async(are_partitions_loaded)


async def join_group(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    group = session.unique_name("group")
    first = await session.send_case("a first member", **join_fields(group))
    if first.error_code is ErrorCode.member_id_required:
        first = await session.send_case("with the id it was given", **join_fields(group, first.member_id))
    await session.send_case("again, before the assignment", **join_fields(group, first.member_id))
    assigned = [{"member_id": first.member_id, "assignment": b"mine"}]
    await session.send("sync_group", **member_fields(group, first), **PROTOCOL_FIELDS, assignments=assigned)
    await session.send_case("again, when it is stable", **join_fields(group, first.member_id))
    await session.send_case("an unknown member", **join_fields(group, UNKNOWN_MEMBER))
    await session.send_case(
        "an unknown member of an unknown group", **join_fields(session.unique_name("none"), UNKNOWN_MEMBER)
    )
    await session.send_case("a group without a name", **join_fields(""))
    await session.send_case("a session too short", **join_fields(session.unique_name("none"), session_timeout=1))
    await session.send_case(
        "a session too long", **join_fields(session.unique_name("none"), session_timeout=99_999_999)
    )
    await session.send_case("another type", **join_fields(group, protocol_type="connect"))
    await session.send_case("no type", **join_fields(session.unique_name("none"), protocol_type=""))
    await session.send_case("no protocols", **join_fields(session.unique_name("none"), protocols=()))
    await session.send_case(
        "no protocol in common", **join_fields(group, protocols=[{"name": "sticky", "metadata": b""}])
    )
    await session.send_case(
        "no protocol in common of a member",
        **join_fields(group, first.member_id, protocols=[{"name": "x", "metadata": b""}]),
    )
    if session.version >= 5:
        other = session.unique_name("static")
        static = await session.send_case("a static member", **join_fields(other, instance="one"))
        await session.send(
            "sync_group",
            **member_fields(other, static),
            **PROTOCOL_FIELDS,
            assignments=[{"member_id": static.member_id, "assignment": b"m"}],
        )
        taken = await session.send_case("its instance, started again", **join_fields(other, instance="one"))
        await session.send_case("its old self", **join_fields(other, static.member_id, "one"))
        await session.send_case("its instance with an unknown id", **join_fields(other, UNKNOWN_MEMBER, "one"))
        await session.send_case("another instance with its id", **join_fields(other, taken.member_id, "two"))


async def sync_group(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    group = session.unique_name("group")
    first = await join(session, group)
    mine = member_fields(group, first)
    assigned = [{"member_id": first.member_id, "assignment": b"mine"}]
    await session.send_case(
        "an unknown group", **{**mine, "group_id": session.unique_name("none")}, **PROTOCOL_FIELDS, assignments=assigned
    )
    await session.send_case(
        "a group without a name", **{**mine, "group_id": ""}, **PROTOCOL_FIELDS, assignments=assigned
    )
    await session.send_case(
        "an unknown member", **{**mine, "member_id": UNKNOWN_MEMBER}, **PROTOCOL_FIELDS, assignments=assigned
    )
    await session.send_case("no member", **{**mine, "member_id": ""}, **PROTOCOL_FIELDS, assignments=assigned)
    await session.send_case(
        "an old generation", **{**mine, "generation_id": 0}, **PROTOCOL_FIELDS, assignments=assigned
    )
    await session.send_case(
        "a generation to come", **{**mine, "generation_id": 9}, **PROTOCOL_FIELDS, assignments=assigned
    )
    if session.version >= 5:
        await session.send_case(
            "another type", **mine, protocol_type="connect", protocol_name="range", assignments=assigned
        )
        await session.send_case(
            "another protocol", **mine, protocol_type="consumer", protocol_name="sticky", assignments=assigned
        )
        await session.send_case("neither type nor protocol", **mine, assignments=assigned)
    if session.version >= 3:
        await session.send_case(
            "an unknown instance", **mine, **PROTOCOL_FIELDS, group_instance_id="no", assignments=assigned
        )
    strangers = [{"member_id": "stranger", "assignment": b"?"}]
    await session.send_case("an assignment", **mine, **PROTOCOL_FIELDS, assignments=assigned)
    await session.send_case("again, when it is stable", **mine, **PROTOCOL_FIELDS, assignments=())
    await session.send_case("another assignment when it is stable", **mine, **PROTOCOL_FIELDS, assignments=strangers)
    others = session.unique_name("strangers")
    await session.send_case(
        "an assignment of strangers",
        **member_fields(others, await join(session, others)),
        **PROTOCOL_FIELDS,
        assignments=strangers,
    )
    moving = session.unique_name("rebalancing")
    member, pending_join = await start_rebalance(session, moving)
    await session.send_case("in a rebalance", **member_fields(moving, member), **PROTOCOL_FIELDS, assignments=())
    pending_join.cancel()


async def heartbeat(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    group = session.unique_name("group")
    mine = member_fields(group, await create_stable_group(session, group))
    await session.send_case("a member", **mine)
    await session.send_case("an unknown member", **{**mine, "member_id": UNKNOWN_MEMBER})
    await session.send_case("no member", **{**mine, "member_id": ""})
    await session.send_case("an old generation", **{**mine, "generation_id": 0})
    await session.send_case("a generation to come", **{**mine, "generation_id": 9})
    await session.send_case("an unknown group", **{**mine, "group_id": session.unique_name("none")})
    await session.send_case("a group without a name", **{**mine, "group_id": ""})
    waiting = session.unique_name("waiting")
    await session.send_case("before the assignment", **member_fields(waiting, await join(session, waiting)))
    left = session.unique_name("empty")
    await create_empty_group(session, left)
    await session.send_case("of an empty group", **{**mine, "group_id": left})
    moving = session.unique_name("rebalancing")
    member, pending_join = await start_rebalance(session, moving)
    await session.send_case("in a rebalance", **member_fields(moving, member))
    pending_join.cancel()
    if session.version >= 3:
        fixed = session.unique_name("static")
        static = member_fields(fixed, await create_stable_group(session, fixed, "one"))
        await session.send_case("an instance", **static, group_instance_id="one")
        await session.send_case("an unknown instance", **static, group_instance_id="two")
        await session.send_case(
            "an instance with another id", **{**static, "member_id": UNKNOWN_MEMBER}, group_instance_id="one"
        )


async def leave_group(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    group = session.unique_name("group")
    first = await create_stable_group(session, group)

    async def ask(case: str, name: str, *members: tuple[str, str | None]) -> None:
        leaving = [{"member_id": member, "group_instance_id": instance} for member, instance in members]
        await session.send_case(case, group_id=name, member_id=members[0][0] if members else "", members=leaving)

    await ask("an unknown member", group, (UNKNOWN_MEMBER, None))
    await ask("an unknown group", session.unique_name("none"), (UNKNOWN_MEMBER, None))
    await ask("a group without a name", "", (UNKNOWN_MEMBER, None))
    await ask("no member", group, ("", None))
    await ask("nobody", group)
    await ask("a member", group, (first.member_id, None))
    await ask("again", group, (first.member_id, None))
    if session.version >= 3:
        fixed = session.unique_name("static")
        static = await create_stable_group(session, fixed, "one")
        await ask("an unknown instance", fixed, ("", "two"))
        await ask("an instance with another id", fixed, (UNKNOWN_MEMBER, "one"))
        await ask("an instance and an unknown one", fixed, ("", "one"), ("", "two"))
        await ask("its id, after it left", fixed, (static.member_id, "one"))


async def describe_groups(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    group, left, waiting, moving = (session.unique_name(each) for each in ("group", "empty", "waiting", "rebalancing"))
    await create_stable_group(session, group)
    await create_empty_group(session, left)
    await join(session, waiting)
    _, pending_join = await start_rebalance(session, moving)
    fixed = session.unique_name("static")
    await create_stable_group(session, fixed, "one")
    for case, name in (
        ("stable", group),
        ("empty", left),
        ("before the assignment", waiting),
        ("rebalancing", moving),
        ("static", fixed),
    ):
        await session.send_case(case, groups=[name])
    pending_join.cancel()
    await session.send_case("rights", groups=[group], include_authorized_operations=True)
    await session.send_case("unknown", groups=[session.unique_name("none")])
    await session.send_case(
        "unknown, with rights", groups=[session.unique_name("none")], include_authorized_operations=True
    )
    await commit_in_nameless_group(session)
    await session.send_case("without a name", groups=[""])
    await session.send_case("two", groups=[group, session.unique_name("none")])
    await session.send_case("the same twice", groups=[left, left])
    await session.send_case("none", groups=())


async def list_groups(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    await create_stable_group(session, session.unique_name("group"))
    await create_empty_group(session, session.unique_name("empty"))
    await session.send_case("all", only_own=True)
    if session.version >= 4:
        await session.send_case("stable ones", only_own=True, states_filter=["Stable"])
        await session.send_case("in small letters", only_own=True, states_filter=["stable"])
        await session.send_case("two states", only_own=True, states_filter=["Stable", "Empty"])
        await session.send_case("an unknown state", only_own=True, states_filter=["Asleep"])
    if session.version >= 5:
        await session.send_case("classic ones", only_own=True, types_filter=["classic"])
        await session.send_case("in large letters", only_own=True, types_filter=["CLASSIC"])
        await session.send_case("consumer ones", only_own=True, types_filter=["consumer"])
        await session.send_case("an unknown type", only_own=True, types_filter=["strange"])


async def delete_groups(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    group, left = session.unique_name("group"), session.unique_name("empty")
    await create_stable_group(session, group)
    await create_empty_group(session, left)
    await session.send_case("with members", groups_names=[group])
    await session.send_case("unknown", groups_names=[session.unique_name("none")])
    await commit_in_nameless_group(session)
    await session.send_case("without a name", groups_names=[""])
    await session.send_case("without a name again", groups_names=[""])
    await session.send_case("empty and unknown", groups_names=[left, session.unique_name("none")])
    await session.send_case("again", groups_names=[left])
    await session.send_case("none", groups_names=())


async def describe_other_groups(session: ApiSession, empty: str, classic: str) -> None:
    """Sends the cases that the describing APIs of the newer protocols share. `empty` is a group of
    the API's protocol without members, `classic` one of the classic protocol.
    """
    await session.send_case("empty", group_ids=[empty])
    await session.send_case("classic", group_ids=[classic])
    await session.send_case("unknown", group_ids=[session.unique_name("none")])
    await session.send_case("without a name", group_ids=[""])
    await session.send_case("with operations", group_ids=[empty], include_authorized_operations=True)
    await session.send_case("none", group_ids=[])


GROUP_CASES = (
    join_group,
    sync_group,
    heartbeat,
    leave_group,
    describe_groups,
    list_groups,
    delete_groups,
)
