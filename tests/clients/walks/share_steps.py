"""Steps of share groups (KIP-932): members, share sessions that deliver and acknowledge records,
and administrators who describe, set and delete offsets. Each fetch is of one partition, because
brokers may share the limits of a request between partitions as they choose.
"""

from collections.abc import Mapping
from typing import Any, Final

from tests.clients.walks import newer_group_steps as newer_groups
from tests.clients.walks.newer_group_steps import GROUPS, any_group
from tests.clients.walks.record_steps import delete_records
from tests.clients.walks.step_generator import START_MS, StepGenerator, StepKind
from tests.clients.walks.steps import INITIALIZE_SHARES, BatchSpec, Reference, Step

INPUTS: Final = {"t0": 2, "t1": 2}  # topic → partitions
SLOTS: Final = ("m0", "m1")
LOADS_WITHIN_MS: Final = 200  # Kafka loads the state of a share-partition at its first fetch
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Types = Mapping[tuple[int, ...], int]
TYPES: Final[Types] = {
    (ACCEPT,): 8,
    (RELEASE,): 5,
    (REJECT,): 2,
    (GAP,): 1,
    (ACCEPT, RELEASE): 3,
    (RELEASE, REJECT, ACCEPT): 2,
}
TYPES_OF_FETCH: Final[Types] = {types: weight for types, weight in TYPES.items() if RELEASE not in types}
"""Whether a fetch that releases records delivers them again at once is the broker's choice."""
ODD_TYPES: Final = ((RENEW,), (9,), (-1,), ())


# -- members ---------------------------------------------------------------------------------------


def member(generator: StepGenerator) -> tuple[str, str]:
    """(group, slot) of a member that has joined, usually."""
    return newer_groups.any_member(generator, SLOTS)


def heartbeat_step(generator: StepGenerator, group: str, slot: str, epoch: Any, **fields: Any) -> Step:
    base = {"rack_id": None, "subscribed_topic_names": None}
    named = {"group_id": Reference("name", (group,)), "member_id": slot, "member_epoch": epoch}
    return generator.step("share_group_heartbeat", source=(group, slot), **{**named, **base, **fields})


def odd_fields(generator: StepGenerator) -> Any:
    """Fields that brokers refuse, or that members seldom change."""
    return generator.choose(
        {"rack_id": "r1"},
        {"rack_id": ""},
        {"member_id": ""},
        {"member_id": "nobody"},
        {"group_id": ""},
        {"subscribed_topic_names": []},
        {"subscribed_topic_names": [Reference("name", ("t3",))]},
    )


def join(generator: StepGenerator) -> Step:
    group, slot = any_group(generator), generator.choose(*SLOTS)
    newer_groups.add_member(generator, group, slot)
    topics = generator.random.choices((["t0"], ["t0", "t1"], ["t1"]), (5, 2, 1))[0]
    fields: dict[str, Any] = {"subscribed_topic_names": [Reference("name", (name,)) for name in topics]}
    if generator.chance(0.1):
        fields |= odd_fields(generator)
    return heartbeat_step(generator, group, slot, 0, **fields)


def heartbeat(generator: StepGenerator) -> Step:
    group, slot = member(generator)
    epoch = Reference("member epoch", (group, slot), generator.random.choices((0, -1, 1), (20, 1, 1))[0])
    return heartbeat_step(generator, group, slot, epoch, **(odd_fields(generator) if generator.chance(0.1) else {}))


def leave(generator: StepGenerator) -> Step:
    group, slot = member(generator)
    newer_groups.forget_member(generator, group, slot)
    return heartbeat_step(generator, group, slot, generator.random.choices((-1, -2), (12, 1))[0])


# -- records ---------------------------------------------------------------------------------------


def produce(generator: StepGenerator) -> Step:
    topic = generator.choose(*INPUTS)
    values = tuple(generator.choose(b"v", b"w", b"x" * 150) for _ in range(generator.choose(1, 2, 3, 5)))
    batch = BatchSpec(values, START_MS)
    data = [{"index": index, "records": (batch,)} for index in generator.partitions(topic)]
    topics = [{**generator.topic_fields(topic), "partition_data": data}]
    return generator.step("produce", low=3, acks=-1, timeout=10_000, topic_data=topics)


def share_partition(generator: StepGenerator) -> tuple[str, int]:
    return generator.random.choices(("t0", "t1"), (4, 1))[0], generator.random.choices((0, 1), (4, 1))[0]


def acknowledgements(generator: StepGenerator, at: tuple[Any, ...], share: float, usual: Types = TYPES) -> Any:
    """Batches of what the member has acquired in the partition; sometimes of any offsets. `share`
    is the probability that there are any.
    """
    if not generator.chance(share):
        return []
    if generator.chance(0.08):
        first = generator.choose(0, 1, 3, 8)
        types = generator.choose([ACCEPT], [REJECT], [ACCEPT, ACCEPT])
        last = first + generator.choose(-1, 0, 1, 4)
        return [{"first_offset": first, "last_offset": last, "acknowledge_types": types}]
    types = generator.random.choices(list(usual), list(usual.values()))[0]
    if generator.chance(0.04):
        types = generator.choose(*ODD_TYPES)
    return Reference("acquired", (*at, types, generator.choose(1, 2, 3, 100)))


def session_epoch(generator: StepGenerator, session: tuple[str, str]) -> int | Reference:
    how = generator.random.choices(("next", "new", "close", "wrong"), (14, 2, 1, 1))[0]
    plus = generator.choose(1, -1) if how == "wrong" else 0
    return {"new": 0, "close": -1}.get(how, Reference("share session epoch", session, plus))


def topics_of(topic: str, index: int, batches: Any) -> list[dict[str, Any]]:
    partition = {"partition_index": index, "acknowledgement_batches": batches}
    return [{"topic_id": Reference("id", (topic,)), "partitions": [partition]}]


def fetch(generator: StepGenerator) -> Step:
    """A fetch of one partition, which removes the partitions of other fetches from the session."""
    session = any_group(generator), generator.choose(*SLOTS)
    topic, index = share_partition(generator)
    others = [(name, at) for name, count in INPUTS.items() for at in range(count) if (name, at) != (topic, index)]
    epoch = session_epoch(generator, session)
    batches = acknowledgements(generator, (*session, topic, index), 0.05 if epoch == 0 else 0.4, TYPES_OF_FETCH)
    return generator.step(
        "share_fetch",
        source=session,
        group_id=Reference("name", (session[0],)),
        member_id=session[1],
        share_session_epoch=epoch,
        max_wait=LOADS_WITHIN_MS,
        min_bytes=1,
        max_bytes=generator.random.choices((1 << 20, 1, 300), (8, 1, 1))[0],
        max_records=generator.random.choices((500, 1, 3), (6, 2, 2))[0],
        batch_size=generator.random.choices((500, 1, 2), (8, 1, 1))[0],
        share_acquire_mode=generator.random.choices((0, 1), (3, 1))[0],
        is_renew_ack=False,
        topics=[] if epoch == -1 and generator.chance(0.5) else topics_of(topic, index, batches),
        forgotten_topics_data=[
            {"topic_id": Reference("id", (name,)), "partitions": [at]} for name, at in others if epoch != 0
        ],
    )


def acknowledge(generator: StepGenerator) -> Step:
    session = any_group(generator), generator.choose(*SLOTS)
    topic, index = share_partition(generator)
    epoch = session_epoch(generator, session)
    batches = acknowledgements(generator, (*session, topic, index), 0.95)
    return generator.step(
        "share_acknowledge",
        source=session,
        group_id=Reference("name", (session[0],)),
        member_id=session[1],
        share_session_epoch=epoch,
        is_renew_ack=generator.chance(0.05),
        topics=topics_of(topic, index, batches),
    )


# -- groups and offsets ----------------------------------------------------------------------------


def describe(generator: StepGenerator) -> Step:
    return newer_groups.describe_groups(generator, "share_group_describe")


def describe_offsets(generator: StepGenerator) -> Step:
    topics = [
        {"topic_name": Reference("name", (topic,)), "partitions": generator.partitions(topic)}
        for topic in generator.topics()
    ]
    wanted = {
        "group_id": Reference("name", (any_group(generator),)),
        "topics": None if generator.chance(0.5) else topics,
    }
    return generator.step("describe_share_group_offsets", groups=[wanted])


def initialize(group: str) -> Step:
    """Kafka initializes the share state of partitions after the response to the heartbeat that
    finds them, and Ottla before it. A member that joins for that and leaves hides the difference.
    """
    topics = [Reference("name", (name,)) for name in INPUTS]
    return Step(INITIALIZE_SHARES, 0, {"group_id": Reference("name", (group,)), "subscribed_topic_names": topics})


def alter_offsets(generator: StepGenerator, group: str = "") -> list[Step]:
    group = group or any_group(generator)
    topics = [
        {
            "topic_name": Reference("name", (topic,)),
            "partitions": [
                {"partition_index": at, "start_offset": generator.choose(0, 0, 1, 2, 5)}
                for at in generator.partitions(topic)
            ],
        }
        for topic in generator.topics()
    ]
    altered = generator.step("alter_share_group_offsets", group_id=Reference("name", (group,)), topics=topics)
    return [altered, initialize(group)]


def delete_offsets(generator: StepGenerator, group: str = "") -> list[Step]:
    group = group or any_group(generator)
    topics = [{"topic_name": Reference("name", (topic,))} for topic in generator.topics()]
    deleted = generator.step("delete_share_group_offsets", group_id=Reference("name", (group,)), topics=topics)
    return [deleted, initialize(group)]


def reset_offsets(generator: StepGenerator) -> list[Step]:
    """Both members leave, and an administrator sets or deletes offsets."""
    group = any_group(generator)
    generator.joined.pop(group, None)
    change = generator.random.choices((alter_offsets, delete_offsets), (3, 1))[0]
    return [*(heartbeat_step(generator, group, slot, -1) for slot in SLOTS), *change(generator, group)]


def set_group_config(generator: StepGenerator) -> Step:
    config = newer_groups.change_config(
        generator,
        ("share.heartbeat.interval.ms", ("6000", "7000", "1")),
        ("share.session.timeout.ms", ("50000", "1")),
        ("share.isolation.level", ("read_committed", "read_uncommitted", "none")),
        ("share.auto.offset.reset", ("earliest", "by_duration:P1D", "first")),
    )
    return newer_groups.alter_group(generator, any_group(generator), config)


def create_inputs(generator: StepGenerator) -> list[Step]:
    """Steps that create topics, and groups that begin at the topics' starts."""
    earliest = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    return [
        *newer_groups.create_inputs(generator, INPUTS),
        *(newer_groups.alter_group(generator, group, earliest) for group in GROUPS),
        *(initialize(group) for group in GROUPS),
    ]


KINDS: Final[Mapping[StepKind, float]] = {
    join: 3,
    heartbeat: 4,
    leave: 1,
    produce: 8,
    fetch: 14,
    acknowledge: 10,
    describe: 3,
    describe_offsets: 4,
    reset_offsets: 0.7,
    alter_offsets: 0.5,
    delete_offsets: 0.5,
    set_group_config: 0.7,
    delete_records: 0.5,
}
