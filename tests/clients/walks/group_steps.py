"""Steps of consumer groups: their members, and the offsets they commit."""

from typing import Any, Final

from tests.clients.walks.drawing import INSTANCES, SLOTS, Draw
from tests.clients.walks.steps import WAIT, Ref, Step

STRANGER: Final = "nobody-00000000-0000-0000-0000-000000000000"
LONG_MS: Final = 600_000  # nothing expires while somebody walks
SHORT_MS: Final = 3000
RANGE: Final = {"name": "range", "metadata": b"r"}
STICKY: Final = {"name": "sticky", "metadata": b"s"}
OTHER: Final = {"name": "range", "metadata": b"R"}
NEW: Final = {"name": "new", "metadata": b"n"}


def member(draw: Draw, group: str, slot: str) -> Any:
    """The slot's own id, as a rule."""
    what = draw.chance.choices(("own", "", "stranger", "another"), (20, 1, 1, 1))[0]
    known = {"own": Ref("member", (group, slot)), "": "", "stranger": STRANGER}
    return known.get(what, Ref("member", (draw.group(), draw.one(*SLOTS))))


def instance(draw: Draw, slot: str) -> str | None:
    return draw.one("s0", "s1", "s9", None) if draw.rarely(0.04) else INSTANCES.get(slot)


def generation(draw: Draw, group: str, slot: str) -> Any:
    return Ref("generation", (group, slot), draw.chance.choices((0, -1, 1), (20, 1, 1))[0])


def join_group(draw: Draw) -> Step:
    group, slot = draw.group(), draw.one(*SLOTS)
    draw.joined.setdefault(group, []).append(slot)
    protocols = draw.chance.choices(
        ([RANGE, STICKY], [STICKY, RANGE], [RANGE], [OTHER, STICKY], [NEW], []), (10, 0.7, 2, 1, 0.5, 0.2)
    )[0]
    return draw.step(
        "join_group",
        learns=(group, slot),
        group_id=Ref("name", (group,)),
        session_timeout=1 if draw.rarely(0.02) else draw.session_ms,
        rebalance_timeout=draw.session_ms,
        member_id="" if draw.rarely(0.1) else member(draw, group, slot),
        group_instance_id=instance(draw, slot),
        protocol_type="connect" if draw.rarely(0.03) else "consumer",
        protocols=protocols,
    )


def rally(draw: Draw) -> list[Step]:
    """All of a group, and perhaps a newcomer, join in turn and are then assigned something: little happens to a group
    that never becomes stable."""
    group, newcomer = draw.member()
    slots = list(dict.fromkeys([*draw.joined.get(group, ()), newcomer]))
    draw.joined[group] = slots
    again = [newcomer] if draw.rarely(0.7) else []  # with the id that it was given
    return [
        *(joining(draw, group, slot) for slot in [newcomer, *again, *slots]),
        *(syncing(draw, group, slot) for slot in draw.chance.sample(slots, len(slots))),
    ]


def joining(draw: Draw, group: str, slot: str) -> Step:
    """Nothing is wrong with it."""
    return draw.step(
        "join_group",
        low=5 if slot in INSTANCES else 0,
        learns=(group, slot),
        group_id=Ref("name", (group,)),
        session_timeout=draw.session_ms,
        rebalance_timeout=draw.session_ms,
        member_id=Ref("member", (group, slot)),
        group_instance_id=INSTANCES.get(slot),
        protocol_type="consumer",
        protocols=[RANGE, STICKY],
    )


def syncing(draw: Draw, group: str, slot: str) -> Step:
    return draw.step(
        "sync_group",
        group_id=Ref("name", (group,)),
        generation_id=Ref("generation", (group, slot)),
        member_id=Ref("member", (group, slot)),
        group_instance_id=INSTANCES.get(slot),
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": Ref("member", (group, each)), "assignment": each.encode()} for each in SLOTS],
    )


def sync_group(draw: Draw) -> Step:
    group, slot = draw.member()
    assigned = [
        {"member_id": Ref("member", (group, each)), "assignment": f"{each} {draw.one(1, 2)}".encode()}
        for each in SLOTS
        if not draw.rarely(0.1)
    ]
    return draw.step(
        "sync_group",
        group_id=Ref("name", (group,)),
        generation_id=generation(draw, group, slot),
        member_id=member(draw, group, slot),
        group_instance_id=instance(draw, slot),
        protocol_type=draw.one("connect", None) if draw.rarely() else "consumer",
        protocol_name=draw.one("sticky", None, "new") if draw.rarely(0.2) else "range",
        assignments=assigned,
    )


def heartbeat(draw: Draw) -> Step:
    group, slot = draw.member()
    return draw.step(
        "heartbeat",
        group_id=Ref("name", (group,)),
        generation_id=generation(draw, group, slot),
        member_id=member(draw, group, slot),
        group_instance_id=instance(draw, slot),
    )


def leave_group(draw: Draw) -> Step:
    group, first = draw.member()
    leaving = [
        {
            "member_id": "" if slot in INSTANCES and draw.rarely(0.4) else member(draw, group, slot),
            "group_instance_id": instance(draw, slot),
        }
        for slot in dict.fromkeys([first, *draw.chance.sample(SLOTS, draw.one(0, 0, 0, 1))])
    ]
    return draw.step("leave_group", group_id=Ref("name", (group,)), member_id=leaving[0]["member_id"], members=leaving)


def expiry(draw: Draw) -> Step:
    """Time in which all members expire who do not join anew, and in which a rebalance ends that waits for them."""
    return Step(WAIT, 0, {"seconds": 1.2 * SHORT_MS / 1000})


def describe_groups(draw: Draw) -> Step:
    return draw.step("describe_groups", groups=[Ref("name", (draw.group(),))])


def list_groups(draw: Draw) -> Step:
    states = (
        [draw.one("Stable", "Empty", "Dead", "CompletingRebalance", "preparingrebalance")] if draw.rarely(0.5) else []
    )
    return draw.step("list_groups", states_filter=states, types_filter=["classic"] if draw.rarely(0.3) else [])


def delete_groups(draw: Draw) -> Step:
    return draw.step("delete_groups", groups_names=[Ref("name", (draw.group(),))])


def offset_commit(draw: Draw) -> Step:
    group, slot = draw.member()
    by_member = {
        "generation_id": (number := generation(draw, group, slot)),
        "generation_id_or_member_epoch": number,
        "member_id": member(draw, group, slot),
        "group_instance_id": instance(draw, slot),
    }
    alone = {"generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    topics = [
        {
            **draw.named(topic),
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": draw.offset(topic, index),
                    "committed_leader_epoch": draw.one(-1, 0, 3),
                    "committed_metadata": draw.one("", "m", None),
                    "commit_timestamp": -1,
                }
                for index in draw.partitions(topic)
            ],
        }
        for topic in draw.topics()
    ]
    return draw.step(
        "offset_commit",
        group_id=Ref("name", (group,)),
        **(alone if draw.rarely(0.5) else by_member),
        retention_time=-1,
        topics=topics,
    )


def offset_fetch(draw: Draw) -> Step:
    groups = [draw.group()] if draw.rarely(0.8) else ["g0", "g1"]
    asked: Any = [{**draw.named(topic), "partition_indexes": draw.partitions(topic)} for topic in draw.topics()]
    everything = draw.rarely(0.4)
    return draw.step(
        "offset_fetch",
        low=2 if everything else 0,
        group_id=Ref("name", (groups[0],)),
        topics=None if everything else asked,
        groups=[{"group_id": Ref("name", (group,)), "topics": None if everything else asked} for group in groups],
        require_stable=draw.rarely(0.3),
    )


def offset_delete(draw: Draw) -> Step:
    topics = [
        {
            "name": Ref("name", (topic,)),
            "partitions": [{"partition_index": index} for index in draw.partitions(topic)],
        }
        for topic in draw.topics()
    ]
    return draw.step("offset_delete", group_id=Ref("name", (draw.group(),)), topics=topics)
