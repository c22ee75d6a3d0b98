"""The targets of a group that uses the uniform assignor and whose members all have the same
subscription, kept balanced from change to change. Pure.

`assign_uniformly` goes through all members. UniformBalance goes through those whose targets change.
When one of 1,000 members leaves, only the members that get its partitions are changed. Both have
the same rules: numbers of partitions differ by one at most, and as few partitions as possible move.

    sizes        member → number of its partitions, and the members of each number
    unassigned   partitions of the subscribed topics that are in no target

The group calls `add`, `remove` and `set_target` for each member and target that it changes. A
balance is valid for the subscription and the partition counts for which it was created.
"""

from collections.abc import Iterable, Mapping

from ottla_broker.coordination.assignors import (
    NO_PARTITIONS,
    Assignment,
    PartitionCounts,
    TopicIdPartition,
    partitions_of,
    to_assignment,
)


class UniformBalance:
    def __init__(self, member_ids: Iterable[str], targets: Mapping[str, Assignment], counts: PartitionCounts) -> None:
        """`targets`: of members; each partition is in one of them at most. `counts`: of the topics
        that all members subscribe to."""
        self._counts = dict(counts)
        self._size_of: dict[str, int] = {}
        self._members_of_size: dict[int, dict[str, None]] = {}  # members in a fixed order
        self._unassigned = {(topic, at) for topic, count in counts.items() for at in range(count)}
        for member_id in member_ids:
            self.add(member_id)
            self.set_target(member_id, NO_PARTITIONS, targets.get(member_id, NO_PARTITIONS))

    # -- changes of the group ----------------------------------------------------------------------

    def add(self, member_id: str) -> None:
        self._set_size(member_id, 0)

    def remove(self, member_id: str) -> None:
        """The target of the member has been removed before."""
        self._set_size(member_id, None)

    def set_target(self, member_id: str, before: Assignment, after: Assignment) -> None:
        old, new = set(partitions_of(before)), set(partitions_of(after))
        self._unassigned |= old - new
        self._unassigned -= new - old
        if member_id in self._size_of:
            self._set_size(member_id, len(new))

    def _set_size(self, member_id: str, size: int | None) -> None:
        before = self._size_of.pop(member_id, None)
        if before is not None:
            del self._members_of_size[before][member_id]
            if not self._members_of_size[before]:
                del self._members_of_size[before]
        if size is not None:
            self._size_of[member_id] = size
            self._members_of_size.setdefault(size, {})[member_id] = None

    # -- assignment --------------------------------------------------------------------------------

    def is_valid(self, counts: PartitionCounts) -> bool:
        """False if it was created for other topics, or if targets have partitions of other topics;
        `assign_uniformly` is needed then.
        """
        assigned = sum(size * len(members) for size, members in self._members_of_size.items())
        return self._counts == counts and assigned + len(self._unassigned) == sum(counts.values())

    def rebalance(self, targets: Mapping[str, Assignment]) -> dict[str, Assignment]:
        """The targets that change, those that lose partitions first. The caller sets them."""
        if not self._members_of_size:
            return {}
        sizes = _Sizes(self._members_of_size)
        losing: dict[str, list[TopicIdPartition]] = {}
        gaining: dict[str, list[TopicIdPartition]] = {}
        for partition in sorted(self._unassigned):
            gaining.setdefault(sizes.grow_smallest(), []).append(partition)
        while sizes.are_unequal:
            loser, gainer = sizes.shrink_largest(), sizes.grow_smallest()
            if loser not in losing:
                losing[loser] = sorted(partitions_of(targets[loser]))
            gaining.setdefault(gainer, []).append(losing[loser].pop())
        changed = {member_id: to_assignment(partitions) for member_id, partitions in losing.items()}
        for member_id, partitions in gaining.items():
            kept = partitions_of(targets.get(member_id, NO_PARTITIONS))
            changed[member_id] = to_assignment([*kept, *partitions])
        return changed


class _Sizes:
    """Members by number of partitions: a copy, which a plan changes."""

    def __init__(self, members_of_size: Mapping[int, Mapping[str, None]]) -> None:
        self._members_of_size = {size: list(members) for size, members in members_of_size.items()}

    @property
    def are_unequal(self) -> bool:
        return max(self._members_of_size) - min(self._members_of_size) > 1

    def grow_smallest(self) -> str:
        smallest = min(self._members_of_size)
        return self._move(smallest, smallest + 1)

    def shrink_largest(self) -> str:
        largest = max(self._members_of_size)
        return self._move(largest, largest - 1)

    def _move(self, size: int, to: int) -> str:
        members = self._members_of_size[size]
        member_id = members.pop()
        if not members:
            del self._members_of_size[size]
        self._members_of_size.setdefault(to, []).append(member_id)
        return member_id
