"""The assignor of share groups, `simple` (KIP-932): from members and topics to a target assignment.
Pure.

Every partition of a subscribed topic is assigned to a member, and every member gets a partition if
its topics have any. With equal subscriptions and more members than partitions, the numbers of
members of two partitions differ by at most one. Members keep their partitions unless that makes the
assignment uneven.
"""

from collections.abc import Mapping
from uuid import UUID

from ottla_broker.coordination.assignors import (
    AssignableMember,
    Assignment,
    TopicIdPartition,
    partitions_of,
    to_assignment,
)


def assign_shares(
    members: Mapping[str, AssignableMember], partitions: Mapping[UUID, frozenset[int]]
) -> dict[str, Assignment]:
    """Target assignments by member id. `partitions`: the partitions of each topic that may be
    assigned."""
    shares = _count_shares(members, partitions)
    assigned: dict[str, set[TopicIdPartition]] = {
        member_id: {one for one in partitions_of(member.target) if one in shares and one[0] in member.topics}
        for member_id, member in members.items()
    }
    have_equal_subscriptions = len({member.topics for member in members.values()}) == 1
    _drop_surplus(assigned, shares, have_equal_subscriptions=have_equal_subscriptions)
    missing = dict(shares)
    for mine in assigned.values():
        for one in mine:
            missing[one] -= 1
    for partition in sorted(missing):
        for _ in range(missing[partition]):
            candidates = [
                member_id
                for member_id, mine in assigned.items()
                if partition not in mine and partition[0] in members[member_id].topics
            ]
            if not candidates:
                break
            assigned[min(candidates, key=lambda member_id: (len(assigned[member_id]), member_id))].add(partition)
    _assign_to_idle_members(assigned, members, shares)
    return {member_id: to_assignment(mine) for member_id, mine in assigned.items()}


def _count_shares(
    members: Mapping[str, AssignableMember], partitions: Mapping[UUID, frozenset[int]]
) -> dict[TopicIdPartition, int]:
    """The number of members that each partition gets."""
    subscriptions = {member.topics for member in members.values()}
    shares = {}
    total = sum(len(partitions.get(topic, ())) for topic in frozenset().union(*subscriptions))
    for topic in frozenset().union(*subscriptions):
        count = len(partitions.get(topic, ()))
        subscribers = sum(topic in member.topics for member in members.values())
        divisor = total if len(subscriptions) == 1 else count
        for partition in partitions.get(topic, ()):
            shares[topic, partition] = max(1, -(-subscribers // divisor))
    return shares


def _drop_surplus(
    assigned: dict[str, set[TopicIdPartition]], shares: dict[TopicIdPartition, int], *, have_equal_subscriptions: bool
) -> None:
    """Removes partitions from members that have too many. First, a partition with more members than
    its number in `shares` is taken from the members with most partitions. Then each member keeps at
    most its fair number: the sum of `shares` divided by the number of members.

    If the division leaves a remainder, that many members keep one partition more. Without
    `have_equal_subscriptions` (all members subscribe to the same topics) every member may.
    """
    holders: dict[TopicIdPartition, list[str]] = {}
    for member_id, mine in assigned.items():
        for one in mine:
            holders.setdefault(one, []).append(member_id)
    for one, member_ids in holders.items():
        member_ids.sort(key=lambda member_id: (-len(assigned[member_id]), member_id))
        for member_id in member_ids[: max(0, len(member_ids) - shares[one])]:
            assigned[member_id].remove(one)
    if not assigned:
        return
    fair, left_over = divmod(sum(shares.values()), len(assigned))
    if not have_equal_subscriptions:
        left_over = len(assigned) if left_over else 0
    largest_first = sorted(assigned, key=lambda member_id: (-len(assigned[member_id]), member_id))
    for place, member_id in enumerate(largest_first):
        for one in sorted(assigned[member_id])[fair + (place < left_over) :]:
            assigned[member_id].remove(one)


def _assign_to_idle_members(
    assigned: dict[str, set[TopicIdPartition]],
    members: Mapping[str, AssignableMember],
    shares: dict[TopicIdPartition, int],
) -> None:
    """Gives each member without a partition one partition of its topics, from the member that has
    most of these. The other member loses the partition if it has more than one; otherwise both have
    it."""
    for member_id, mine in assigned.items():
        wanted = sorted(one for one in shares if one[0] in members[member_id].topics)
        if mine or not wanted:
            continue
        largest = max(assigned, key=lambda other: (len(assigned[other].intersection(wanted)), other))
        spare = sorted(assigned[largest].intersection(wanted))
        if len(assigned[largest]) > 1:
            assigned[largest].remove(spare[0])
        mine.add(spare[0] if spare else wanted[0])
