"""Steps of the consumer protocol (KIP-848): members, one of them static, that join, report what
they own and leave, and the offsets that they commit. The members can share the partitions of a
topic equally. Otherwise brokers might differ in which member has one more.
"""

from collections.abc import Mapping
from typing import Any, Final

from tests.clients.walks import newer_group_steps as newer_groups
from tests.clients.walks.group_steps import delete_groups
from tests.clients.walks.newer_group_steps import any_group
from tests.clients.walks.step_generator import StepGenerator, StepKind
from tests.clients.walks.steps import Reference, Step
from tests.clients.walks.streams_steps import commit, delete_offsets, fetch_offsets

INPUTS: Final = {"t0": 6, "t1": 6}  # topic → partitions
SLOTS: Final = ("m0", "m1", "m2")
INSTANCES: Final = {"m2": "s0"}  # slot → instance id of the static member
ASSIGNORS: Final = {"g0": (None, None, "uniform"), "g1": ("range",)}
"""One assignor in each group: after a change to another one, members may keep what they have."""
LONG_MS: Final = 600_000  # no member is removed during a walk
UNCHANGED: Final[Mapping[str, Any]] = {
    "rack_id": None,
    "rebalance_timeout": -1,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}


# -- members ---------------------------------------------------------------------------------------


def member(generator: StepGenerator) -> tuple[str, str]:
    """(group, slot) of a member that has joined, usually."""
    return newer_groups.any_member(generator, SLOTS)


def heartbeat_step(generator: StepGenerator, group: str, slot: str, epoch: Any, **fields: Any) -> Step:
    """A step of version 1 or later if `fields` has a member id or a regular expression: in version
    0 a member without an id gets one that no step knows.
    """
    named = {
        "group_id": Reference("name", (group,)),
        "member_id": slot,
        "member_epoch": epoch,
        "instance_id": INSTANCES.get(slot),
    }
    low = 1 if "member_id" in fields or "subscribed_topic_regex" in fields else 0
    return generator.step("consumer_group_heartbeat", low=low, source=(group, slot), **{**UNCHANGED, **named, **fields})


def owned(group: str, slot: str) -> dict[str, Any]:
    """All partitions that the member has been assigned."""
    return {"topic_partitions": Reference("tasks", (group, slot, "owned"))}


def subscription(generator: StepGenerator) -> dict[str, Any]:
    topics = generator.random.choices((["t0"], ["t0", "t1"], ["t1"], ["t0", "t3"]), (8, 3, 1, 0.5))[0]
    return {"subscribed_topic_names": [Reference("name", (name,)) for name in topics]}


def odd_fields(generator: StepGenerator) -> Any:
    """Fields that members seldom change, or that brokers refuse."""
    return generator.choose(
        {"rack_id": "r1"},
        {"rack_id": ""},
        {"instance_id": "s0"},
        {"instance_id": "s1"},
        {"instance_id": ""},
        {"instance_id": None},
        {"rebalance_timeout": 5000},
        {"server_assignor": generator.choose("sticky", "")},
        {"subscribed_topic_names": []},
        {"subscribed_topic_regex": "("},
        {"member_id": ""},
        {"member_id": "nobody"},
        {"group_id": ""},
        {"topic_partitions": [{"topic_id": Reference("id", (generator.choose("t0", "t1"),)), "partitions": [0]}]},
        {"topic_partitions": [{"topic_id": Reference("id", ("t3",)), "partitions": [0]}]},
        {"topic_partitions": []},
    )


def join(generator: StepGenerator) -> Step:
    group, slot = any_group(generator), generator.choose(*SLOTS)
    newer_groups.add_member(generator, group, slot)
    fields: dict[str, Any] = {
        "rebalance_timeout": LONG_MS,
        "topic_partitions": [],
        "server_assignor": generator.choose(*ASSIGNORS[group]),
        **subscription(generator),
    }
    if generator.chance(0.1):
        fields |= generator.choose(
            {"rebalance_timeout": -1}, {"subscribed_topic_names": None}, {"topic_partitions": None}
        )
    if generator.chance(0.1):
        fields |= odd_fields(generator)
    return heartbeat_step(generator, group, slot, 0, **fields)


def heartbeat(generator: StepGenerator) -> Step:
    group, slot = member(generator)
    epoch = Reference("member epoch", (group, slot), generator.random.choices((0, -1, 1), (20, 1, 1))[0])
    how = generator.random.choices(("nothing", "owned", "all", "subscription"), (5, 8, 2, 1))[0]
    fields: dict[str, Any] = {}
    if how in ("owned", "all"):
        fields |= owned(group, slot)
    if how in ("subscription", "all"):
        fields |= {"rebalance_timeout": LONG_MS, **subscription(generator)}
    if generator.chance(0.12):
        fields |= odd_fields(generator)
    return heartbeat_step(generator, group, slot, epoch, **fields)


def reconcile_all(generator: StepGenerator) -> list[Step]:
    """All members report what they have, several times."""
    group, _ = member(generator)
    return [
        heartbeat_step(generator, group, slot, Reference("member epoch", (group, slot)), **owned(group, slot))
        for _ in range(3)
        for slot in generator.joined.get(group, [])
    ]


def leave(generator: StepGenerator) -> Step:
    group, slot = member(generator)
    newer_groups.forget_member(generator, group, slot)
    usual = -2 if slot in INSTANCES and generator.chance(0.6) else -1
    epoch = generator.random.choices((usual, -2, -3), (12, 1, 1))[0]
    return heartbeat_step(generator, group, slot, epoch, **(odd_fields(generator) if generator.chance(0.1) else {}))


# -- groups ----------------------------------------------------------------------------------------


def describe(generator: StepGenerator) -> Step:
    return newer_groups.describe_groups(generator, "consumer_group_describe")


def list_groups(generator: StepGenerator) -> Step:
    states = [generator.choose("Stable", "Empty", "Reconciling", "assigning")] if generator.chance(0.5) else []
    types = [generator.choose("consumer", "classic")] if generator.chance(0.4) else []
    return generator.step("list_groups", states_filter=states, types_filter=types)


def set_group_config(generator: StepGenerator) -> Step:
    config = newer_groups.change_config(
        generator,
        ("consumer.heartbeat.interval.ms", ("6000", "7000", "1")),
        ("consumer.session.timeout.ms", ("50000", "1")),
    )
    return newer_groups.alter_group(generator, any_group(generator), config)


def create_inputs(generator: StepGenerator) -> list[Step]:
    return newer_groups.create_inputs(generator, INPUTS)


KINDS: Final[Mapping[StepKind, float]] = {
    join: 7,
    heartbeat: 14,
    reconcile_all: 2,
    leave: 3,
    describe: 5,
    list_groups: 1,
    set_group_config: 1,
    commit: 4,
    fetch_offsets: 2,
    delete_offsets: 0.5,
    delete_groups: 0.3,
}
