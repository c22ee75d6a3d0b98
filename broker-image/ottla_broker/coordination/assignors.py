"""Assignors of consumer groups (KIP-848): from members and topics to a target assignment. Pure.

Every assignor assigns each partition of a subscribed topic to exactly one member that subscribes to
its topic.

- `uniform`, the default, balances first, and keeps as many partitions as possible where they are.
  Members that all subscribe to the same topics get numbers of partitions that differ by one at
  most. With different subscriptions, no subscriber of a partition's topic has two or more
  partitions fewer than the partition's owner.
- `range` gives each member a contiguous range of each topic's partitions. Members that subscribe to
  topics of the same size get the same partitions of each, which joins need. It ignores the present
  assignment.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final
from uuid import UUID

import msgspec

Assignment = Mapping[UUID, frozenset[int]]
"""Topic id → partitions, without empty topics. Never changed in place."""

NO_PARTITIONS: Final[Assignment] = {}

TopicIdPartition = tuple[UUID, int]


class AssignableMember(msgspec.Struct, frozen=True):
    """`topics`: ids of the subscribed topics that exist. `target`: the present target."""

    topics: frozenset[UUID]
    target: Assignment = msgspec.field(default_factory=dict)
    group_instance_id: str | None = None


Members = Mapping[str, AssignableMember]
PartitionCounts = Mapping[UUID, int]
Assignor = Callable[[Members, PartitionCounts], dict[str, Assignment]]


def partitions_of(assignment: Assignment) -> list[TopicIdPartition]:
    return [(topic, partition) for topic, partitions in assignment.items() for partition in partitions]


def to_assignment(partitions: "list[TopicIdPartition] | set[TopicIdPartition]") -> Assignment:
    by_topic: defaultdict[UUID, set[int]] = defaultdict(set)
    for topic, partition in partitions:
        by_topic[topic].add(partition)
    return {topic: frozenset(of_topic) for topic, of_topic in by_topic.items()}


def assign_range(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    # Static members first, so that a restart of one, which changes its member id, moves nothing.
    ordered = sorted(members, key=lambda id: (members[id].group_instance_id is None, members[id].group_instance_id, id))
    result: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic, count in counts.items():
        subscribers = [member_id for member_id in ordered if topic in members[member_id].topics]
        if not subscribers:
            continue
        size, larger_count = divmod(count, len(subscribers))
        start = 0
        for at, member_id in enumerate(subscribers):
            end = start + size + (at < larger_count)
            if end > start:
                result[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(result)


def assign_uniformly(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    """With equal subscriptions, a target that does not change is the same object as before."""
    kept, unassigned = _keep_valid_partitions(members, counts)
    if len({member.topics for member in members.values()}) == 1:
        return _balance_equal_subscriptions(kept, unassigned)
    owned = {member_id: set(partitions_of(assignment)) for member_id, assignment in kept.items()}
    _balance_different_subscriptions(members, owned, unassigned)
    return {member_id: to_assignment(partitions) for member_id, partitions in owned.items()}


def _keep_valid_partitions(
    members: Members, counts: PartitionCounts
) -> tuple[dict[str, Assignment], list[TopicIdPartition]]:
    """The partitions of its present target that each member may keep, and the partitions that no
    member keeps. Fast for members that keep their whole target, as most do when a member joins."""
    subscribed = sorted(frozenset().union(*(member.topics for member in members.values())))
    free = {topic: set(range(counts.get(topic, 0))) for topic in subscribed}
    kept: dict[str, Assignment] = {}
    for member_id in sorted(members):
        member = members[member_id]
        kept[member_id] = member.target
        for topic, partitions in member.target.items():
            if topic in member.topics and partitions <= free[topic]:
                free[topic] -= partitions
            else:
                kept[member_id] = _take_valid_partitions(member, kept[member_id], topic, free)
    return kept, [(topic, partition) for topic in subscribed for partition in sorted(free[topic])]


def _take_valid_partitions(
    member: AssignableMember, kept: Assignment, topic: UUID, free: dict[UUID, set[int]]
) -> Assignment:
    """`kept` without those partitions of `topic` that the member may not have, that do not exist,
    or that another member has taken."""
    others = {other: partitions for other, partitions in kept.items() if other != topic}
    if topic in member.topics and (valid := kept[topic] & free[topic]):
        free[topic] -= valid
        others[topic] = frozenset(valid)
    return others


def _balance_equal_subscriptions(
    kept: dict[str, Assignment], unassigned: list[TopicIdPartition]
) -> dict[str, Assignment]:
    """If the partitions do not divide evenly, the members that already have most get one more, so
    that the fewest partitions move."""
    sizes = {member_id: sum(map(len, assignment.values())) for member_id, assignment in kept.items()}
    size, larger_count = divmod(len(unassigned) + sum(sizes.values()), len(kept))
    by_size = sorted(kept, key=lambda member_id: (-sizes[member_id], member_id))
    quotas = {member_id: size + (at < larger_count) for at, member_id in enumerate(by_size)}
    unequal = [member_id for member_id, quota in quotas.items() if sizes[member_id] != quota]
    owned = {member_id: sorted(partitions_of(kept[member_id])) for member_id in unequal}
    for member_id, partitions in owned.items():
        unassigned += partitions[quotas[member_id] :]
        del partitions[quotas[member_id] :]
    remaining = iter(unassigned)
    for member_id, partitions in owned.items():
        partitions += islice(remaining, quotas[member_id] - len(partitions))
    return kept | {member_id: to_assignment(partitions) for member_id, partitions in owned.items()}


def _balance_different_subscriptions(
    members: Members, owned: dict[str, set[TopicIdPartition]], unassigned: list[TopicIdPartition]
) -> None:
    subscribers: dict[UUID, list[str]] = defaultdict(list)
    for member_id in sorted(members):
        for topic in members[member_id].topics:
            subscribers[topic].append(member_id)
    # Partitions with the fewest possible owners first: the others can still fill the gaps.
    for topic, partition in sorted(unassigned, key=lambda tp: (len(subscribers[tp[0]]), tp)):
        owned[min(subscribers[topic], key=lambda member_id: len(owned[member_id]))].add((topic, partition))
    has_moved = True
    while has_moved:  # each move lowers the sum of the squared sizes
        has_moved = False
        for owner in sorted(owned, key=lambda member_id: -len(owned[member_id])):
            for topic_partition in sorted(owned[owner]):
                candidate = min(subscribers[topic_partition[0]], key=lambda member_id: len(owned[member_id]))
                if len(owned[owner]) - len(owned[candidate]) >= 2:
                    owned[owner].remove(topic_partition)
                    owned[candidate].add(topic_partition)
                    has_moved = True


UNIFORM: Final = "uniform"
ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniformly, "range": assign_range}
