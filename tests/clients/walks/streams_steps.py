"""Steps of streams groups (KIP-1071): the threads of Kafka Streams applications, and the offsets
that they commit. A group has two members at most: with more, brokers may differ in which one
has a task more than others.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.clients.streams_group_cases import UNCHANGED
from tests.clients.walks import newer_group_steps as newer_groups
from tests.clients.walks.newer_group_steps import GROUPS, any_group
from tests.clients.walks.step_generator import StepGenerator, StepKind
from tests.clients.walks.steps import Reference, Step

INPUTS: Final = {"t0": 2, "t1": 4}  # topic → partitions
SLOTS: Final = ("m0", "m1")
LONG_MS: Final = 600_000  # no member is removed during a walk


# -- topologies ------------------------------------------------------------------------------------


def topic_info(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    settings = [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": Reference("name", (name,)),
        "partitions": partitions,
        "replication_factor": 1,
        "topic_configs": settings,
    }


def subtopology(number: str, sources: list[str], **more: Any) -> dict[str, Any]:
    return {
        "subtopology_id": number,
        "source_topics": [Reference("name", (name,)) for name in sources],
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
        **more,
    }


def stateless(group: str) -> list[dict[str, Any]]:
    return [subtopology("0", ["t0"])]


def stateful(group: str) -> list[dict[str, Any]]:
    return [subtopology("0", ["t0"], state_changelog_topics=[topic_info(f"{group}-a", cleanup_policy="compact")])]


def repartitioned(group: str) -> list[dict[str, Any]]:
    name = f"{group}-r"
    return [
        subtopology("0", ["t0"], repartition_sink_topics=[Reference("name", (name,))]),
        subtopology(
            "1", [], repartition_source_topics=[topic_info(name)], state_changelog_topics=[topic_info(f"{group}-b")]
        ),
    ]


def joined(group: str) -> list[dict[str, Any]]:
    """A repartition topic is joined with a source topic of more partitions."""
    name = f"{group}-j"
    together = {"source_topics": [0], "source_topic_regex": [], "repartition_source_topics": [0]}
    return [
        subtopology("0", ["t0"], repartition_sink_topics=[Reference("name", (name,))]),
        subtopology("1", ["t1"], repartition_source_topics=[topic_info(name)], copartition_groups=[together]),
    ]


def joined_badly(group: str) -> list[dict[str, Any]]:
    """Source topics of 2 and of 4 partitions are joined."""
    together = {"source_topics": [0, 1], "source_topic_regex": [], "repartition_source_topics": []}
    return [subtopology("0", ["t0", "t1"], copartition_groups=[together])]


def with_missing_source(group: str) -> list[dict[str, Any]]:
    return [subtopology("0", ["t0", "t3"])]


def with_counted_changelog(group: str) -> list[dict[str, Any]]:
    return [subtopology("0", ["t0"], state_changelog_topics=[topic_info(f"{group}-c", partitions=2)])]


def with_regex(group: str) -> list[dict[str, Any]]:
    return [subtopology("0", ["t0"], source_topic_regex=["t.*"])]


def with_bad_name(group: str) -> list[dict[str, Any]]:
    return [subtopology("0", ["t0"], state_changelog_topics=[topic_info(f"{group}/a")])]


def with_loop(group: str) -> list[dict[str, Any]]:
    name = f"{group}-l"
    return [
        subtopology(
            "0",
            [],
            repartition_sink_topics=[Reference("name", (name,))],
            repartition_source_topics=[topic_info(name)],
        )
    ]


def out_of_range(group: str) -> list[dict[str, Any]]:
    together = {"source_topics": [3], "source_topic_regex": [], "repartition_source_topics": []}
    return [subtopology("0", ["t0"], copartition_groups=[together])]


def empty(group: str) -> list[dict[str, Any]]:
    return []


Topology = Callable[[str], list[dict[str, Any]]]
GOOD: Final[Mapping[Topology, float]] = {stateless: 3, stateful: 5, repartitioned: 3, joined: 2}
BAD: Final[tuple[Topology, ...]] = (
    joined_badly,
    with_missing_source,
    with_counted_changelog,
    with_regex,
    with_bad_name,
    with_loop,
    out_of_range,
    empty,
)


def topology_of(generator: StepGenerator, group: str) -> dict[str, Any]:
    """The topology of the group's first join, usually."""
    chosen: Topology = generator.applications.setdefault(
        group, generator.random.choices(list(GOOD), list(GOOD.values()))[0]
    )
    if generator.chance(0.08):
        chosen = generator.choose(*BAD, *GOOD)
    return {"epoch": 1 if generator.chance(0.04) else 0, "subtopologies": chosen(group)}


# -- members ---------------------------------------------------------------------------------------


def heartbeat_step(generator: StepGenerator, group: str, slot: str, epoch: Any, **fields: Any) -> Step:
    return generator.step(
        "streams_group_heartbeat",
        source=(group, slot),
        **{
            **UNCHANGED,
            "group_id": Reference("name", (group,)),
            "member_id": slot,
            "member_epoch": epoch,
            **fields,
        },
    )


def member(generator: StepGenerator) -> tuple[str, str]:
    """(group, slot) of a member that has joined, usually."""
    return newer_groups.any_member(generator, SLOTS)


def owned(group: str, slot: str) -> dict[str, Any]:
    """All tasks that the member has been assigned."""
    return {f"{kind}_tasks": Reference("tasks", (group, slot, kind)) for kind in ("active", "standby", "warmup")}


def odd_tasks(generator: StepGenerator, group: str, slot: str) -> Any:
    """Tasks that the member was not assigned, or a list that is missing."""
    task = [{"subtopology_id": generator.choose("0", "1", "9"), "partitions": [generator.choose(0, 1, 9)]}]
    return generator.choose(
        {**owned(group, slot), "active_tasks": task},
        {**owned(group, slot), "standby_tasks": task},
        {**owned(group, slot), "warmup_tasks": task},
        {**owned(group, slot), "standby_tasks": None},
        {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []},
    )


def odd_fields(generator: StepGenerator) -> Any:
    """Fields that members seldom change, or that brokers refuse."""
    return generator.choose(
        {"rack_id": "r1"},
        {"rack_id": ""},
        {"instance_id": "s0"},
        {"instance_id": ""},
        {"process_id": "q"},
        {"user_endpoint": {"host": "h", "port": 80}},
        {"client_tags": [{"key": "zone", "value": "z"}]},
        {"rebalance_timeout": 5000},
        {"task_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 5}]},
        {"task_end_offsets": [{"subtopology_id": "0", "partition": 0, "offset": 5}]},
        {"shutdown_application": True},
        {"topology": topology_of(generator, "g0")},
        {"member_id": ""},
        {"member_id": "nobody"},
        {"group_id": ""},
        {"endpoint_information_epoch": generator.choose(-1, 1, 5)},
    )


def join(generator: StepGenerator) -> Step:
    group, slot = any_group(generator), generator.choose(*SLOTS)
    newer_groups.add_member(generator, group, slot)
    fields: dict[str, Any] = {
        "rebalance_timeout": LONG_MS,
        "topology": topology_of(generator, group),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": generator.random.choices((f"p-{slot}", "p"), (3, 1))[0],
        "client_tags": [],
    }
    if generator.chance(0.1):
        fields |= generator.choose({"rebalance_timeout": -1}, {"topology": None}, odd_tasks(generator, group, slot))
    if generator.chance(0.1):
        fields |= odd_fields(generator)
    fields["shutdown_application"] = False  # Kafka forgets it if the member is the group's first
    return heartbeat_step(generator, group, slot, 0, **fields)


def heartbeat(generator: StepGenerator) -> Step:
    group, slot = member(generator)
    epoch = Reference("member epoch", (group, slot), generator.random.choices((0, -1, 1), (20, 1, 1))[0])
    how = generator.random.choices(("nothing", "owned", "odd"), (5, 8, 1))[0]
    tasks = {"nothing": {}, "owned": owned(group, slot)}.get(how)
    fields = dict(odd_tasks(generator, group, slot) if tasks is None else tasks)
    if generator.chance(0.12):
        fields |= odd_fields(generator)
    return heartbeat_step(generator, group, slot, epoch, **fields)


def reconcile_all(generator: StepGenerator) -> list[Step]:
    """Both members report what they have, several times."""
    group, _ = member(generator)
    members = generator.joined.get(group, [])
    return [
        heartbeat_step(generator, group, slot, Reference("member epoch", (group, slot)), **owned(group, slot))
        for _ in range(3)
        for slot in members
    ]


def leave(generator: StepGenerator) -> Step:
    group, slot = member(generator)
    newer_groups.forget_member(generator, group, slot)
    epoch = generator.random.choices((-1, -2, -3), (12, 1, 1))[0]
    fields = odd_fields(generator) if generator.chance(0.1) else {}
    return heartbeat_step(generator, group, slot, epoch, **fields)


# -- groups and offsets ----------------------------------------------------------------------------


def describe(generator: StepGenerator) -> Step:
    return newer_groups.describe_groups(generator, "streams_group_describe")


def set_group_config(generator: StepGenerator) -> Step:
    config = newer_groups.change_config(
        generator,
        ("streams.num.standby.replicas", ("0", "1", "2", "9")),
        ("streams.heartbeat.interval.ms", ("6000", "7000", "1")),
        ("streams.session.timeout.ms", ("50000", "1")),
    )
    # Without this config Kafka 4.2 delays a group that has configs by 3 s, whatever the brokers'
    # setting is.
    delay = {"name": "streams.initial.rebalance.delay.ms", "config_operation": 0, "value": "0"}
    return newer_groups.alter_group(generator, any_group(generator), config, delay)


def commit(generator: StepGenerator) -> Step:
    group, slot = member(generator)
    epoch = Reference("member epoch", (group, slot), generator.random.choices((0, -1, -2, 1), (8, 4, 2, 1))[0])
    is_alone = generator.chance(0.2)
    topics = [
        {
            **generator.topic_fields(topic),
            "partitions": [
                {"partition_index": index, "committed_offset": generator.choose(0, 1, 5), "committed_metadata": ""}
                for index in generator.partitions(topic)
            ],
        }
        for topic in generator.topics()
    ]
    return generator.step(
        "offset_commit",
        low=8,
        group_id=Reference("name", (group,)),
        generation_id_or_member_epoch=-1 if is_alone else epoch,
        member_id="" if is_alone else slot,
        group_instance_id=None,
        topics=topics,
    )


def fetch_offsets(generator: StepGenerator) -> Step:
    group, slot = member(generator)
    epoch = Reference("member epoch", (group, slot), generator.random.choices((0, -1, 1), (8, 1, 1))[0])
    by_member = {"member_id": slot, "member_epoch": epoch}
    requested = {
        "group_id": Reference("name", (group,)),
        "topics": [
            {**generator.topic_fields(topic), "partition_indexes": generator.partitions(topic)}
            for topic in generator.topics()
        ],
        **({"member_id": None, "member_epoch": -1} if generator.chance(0.4) else by_member),
    }
    return generator.step("offset_fetch", low=9, groups=[requested], require_stable=False)


def delete_offsets(generator: StepGenerator) -> Step:
    topics = [
        {
            "name": Reference("name", (topic,)),
            "partitions": [{"partition_index": index} for index in generator.partitions(topic)],
        }
        for topic in generator.topics()
    ]
    return generator.step("offset_delete", group_id=Reference("name", (generator.choose(*GROUPS),)), topics=topics)


def create_inputs(generator: StepGenerator) -> list[Step]:
    return newer_groups.create_inputs(generator, INPUTS)


KINDS: Final[Mapping[StepKind, float]] = {
    join: 6,
    heartbeat: 14,
    reconcile_all: 2,
    leave: 3,
    describe: 5,
    set_group_config: 1,
    commit: 4,
    fetch_offsets: 1,
    delete_offsets: 0.5,
}
