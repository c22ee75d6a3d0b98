"""Steps of consumer groups: members and committed offsets."""

from typing import Any, Final

from tests.clients.walks.step_generator import INSTANCES, SLOTS, StepGenerator
from tests.clients.walks.steps import WAIT, Reference, Step

UNKNOWN_MEMBER: Final = "nobody-00000000-0000-0000-0000-000000000000"
LONG_MS: Final = 600_000  # no member expires during a walk
SHORT_MS: Final = 3000
RANGE: Final = {"name": "range", "metadata": b"r"}
STICKY: Final = {"name": "sticky", "metadata": b"s"}
OTHER: Final = {"name": "range", "metadata": b"R"}
NEW: Final = {"name": "new", "metadata": b"n"}


def member(generator: StepGenerator, group: str, slot: str) -> Any:
    """The slot's own member id, usually."""
    what = generator.random.choices(("own", "", "stranger", "another"), (20, 1, 1, 1))[0]
    known = {"own": Reference("member", (group, slot)), "": "", "stranger": UNKNOWN_MEMBER}
    return known.get(what, Reference("member", (generator.group(), generator.choose(*SLOTS))))


def instance(generator: StepGenerator, slot: str) -> str | None:
    return generator.choose("s0", "s1", "s9", None) if generator.chance(0.04) else INSTANCES.get(slot)


def generation(generator: StepGenerator, group: str, slot: str) -> Any:
    return Reference("generation", (group, slot), generator.random.choices((0, -1, 1), (20, 1, 1))[0])


def join_group(generator: StepGenerator) -> Step:
    group, slot = generator.group(), generator.choose(*SLOTS)
    generator.joined.setdefault(group, []).append(slot)
    protocols = generator.random.choices(
        ([RANGE, STICKY], [STICKY, RANGE], [RANGE], [OTHER, STICKY], [NEW], []), (10, 0.7, 2, 1, 0.5, 0.2)
    )[0]
    return generator.step(
        "join_group",
        source=(group, slot),
        group_id=Reference("name", (group,)),
        session_timeout=1 if generator.chance(0.02) else generator.session_ms,
        rebalance_timeout=generator.session_ms,
        member_id="" if generator.chance(0.1) else member(generator, group, slot),
        group_instance_id=instance(generator, slot),
        protocol_type="connect" if generator.chance(0.03) else "consumer",
        protocols=protocols,
    )


def rebalance_all(generator: StepGenerator) -> list[Step]:
    """All members of a group, and perhaps a new one, join and sync in turn, because few requests
    have an effect on an unstable group.
    """
    group, newcomer = generator.member()
    slots = list(dict.fromkeys([*generator.joined.get(group, ()), newcomer]))
    generator.joined[group] = slots
    again = [newcomer] if generator.chance(0.7) else []  # with its new member id
    return [
        *(valid_join(generator, group, slot) for slot in [newcomer, *again, *slots]),
        *(valid_sync(generator, group, slot) for slot in generator.random.sample(slots, len(slots))),
    ]


def valid_join(generator: StepGenerator, group: str, slot: str) -> Step:
    """A join that brokers accept."""
    return generator.step(
        "join_group",
        low=5 if slot in INSTANCES else 0,
        source=(group, slot),
        group_id=Reference("name", (group,)),
        session_timeout=generator.session_ms,
        rebalance_timeout=generator.session_ms,
        member_id=Reference("member", (group, slot)),
        group_instance_id=INSTANCES.get(slot),
        protocol_type="consumer",
        protocols=[RANGE, STICKY],
    )


def valid_sync(generator: StepGenerator, group: str, slot: str) -> Step:
    return generator.step(
        "sync_group",
        group_id=Reference("name", (group,)),
        generation_id=Reference("generation", (group, slot)),
        member_id=Reference("member", (group, slot)),
        group_instance_id=INSTANCES.get(slot),
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": Reference("member", (group, each)), "assignment": each.encode()} for each in SLOTS],
    )


def sync_group(generator: StepGenerator) -> Step:
    group, slot = generator.member()
    assigned = [
        {"member_id": Reference("member", (group, each)), "assignment": f"{each} {generator.choose(1, 2)}".encode()}
        for each in SLOTS
        if not generator.chance(0.1)
    ]
    return generator.step(
        "sync_group",
        group_id=Reference("name", (group,)),
        generation_id=generation(generator, group, slot),
        member_id=member(generator, group, slot),
        group_instance_id=instance(generator, slot),
        protocol_type=generator.choose("connect", None) if generator.chance() else "consumer",
        protocol_name=generator.choose("sticky", None, "new") if generator.chance(0.2) else "range",
        assignments=assigned,
    )


def heartbeat(generator: StepGenerator) -> Step:
    group, slot = generator.member()
    return generator.step(
        "heartbeat",
        group_id=Reference("name", (group,)),
        generation_id=generation(generator, group, slot),
        member_id=member(generator, group, slot),
        group_instance_id=instance(generator, slot),
    )


def leave_group(generator: StepGenerator) -> Step:
    group, first = generator.member()
    leaving = [
        {
            "member_id": "" if slot in INSTANCES and generator.chance(0.4) else member(generator, group, slot),
            "group_instance_id": instance(generator, slot),
        }
        for slot in dict.fromkeys([first, *generator.random.sample(SLOTS, generator.choose(0, 0, 0, 1))])
    ]
    return generator.step(
        "leave_group", group_id=Reference("name", (group,)), member_id=leaving[0]["member_id"], members=leaving
    )


def expiry(generator: StepGenerator) -> Step:
    """A wait until members that do not rejoin have expired and a pending rebalance has ended."""
    return Step(WAIT, 0, {"seconds": 1.2 * SHORT_MS / 1000})


def describe_groups(generator: StepGenerator) -> Step:
    return generator.step("describe_groups", groups=[Reference("name", (generator.group(),))])


def list_groups(generator: StepGenerator) -> Step:
    states = (
        [generator.choose("Stable", "Empty", "Dead", "CompletingRebalance", "preparingrebalance")]
        if generator.chance(0.5)
        else []
    )
    return generator.step(
        "list_groups", states_filter=states, types_filter=["classic"] if generator.chance(0.3) else []
    )


def delete_groups(generator: StepGenerator) -> Step:
    return generator.step("delete_groups", groups_names=[Reference("name", (generator.group(),))])


def offset_commit(generator: StepGenerator) -> Step:
    group, slot = generator.member()
    by_member = {
        "generation_id": (number := generation(generator, group, slot)),
        "generation_id_or_member_epoch": number,
        "member_id": member(generator, group, slot),
        "group_instance_id": instance(generator, slot),
    }
    alone = {"generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    topics = [
        {
            **generator.topic_fields(topic),
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": generator.offset(topic, index),
                    "committed_leader_epoch": generator.choose(-1, 0, 3),
                    "committed_metadata": generator.choose("", "m", None),
                    "commit_timestamp": -1,
                }
                for index in generator.partitions(topic)
            ],
        }
        for topic in generator.topics()
    ]
    return generator.step(
        "offset_commit",
        group_id=Reference("name", (group,)),
        **(alone if generator.chance(0.5) else by_member),
        retention_time=-1,
        topics=topics,
    )


def offset_fetch(generator: StepGenerator) -> Step:
    groups = [generator.group()] if generator.chance(0.8) else ["g0", "g1"]
    requested: Any = [
        {**generator.topic_fields(topic), "partition_indexes": generator.partitions(topic)}
        for topic in generator.topics()
    ]
    all_topics = generator.chance(0.4)
    return generator.step(
        "offset_fetch",
        low=2 if all_topics else 0,
        group_id=Reference("name", (groups[0],)),
        topics=None if all_topics else requested,
        groups=[
            {"group_id": Reference("name", (group,)), "topics": None if all_topics else requested} for group in groups
        ],
        require_stable=generator.chance(0.3),
    )


def offset_delete(generator: StepGenerator) -> Step:
    topics = [
        {
            "name": Reference("name", (topic,)),
            "partitions": [{"partition_index": index} for index in generator.partitions(topic)],
        }
        for topic in generator.topics()
    ]
    return generator.step("offset_delete", group_id=Reference("name", (generator.group(),)), topics=topics)
