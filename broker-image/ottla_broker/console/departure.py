"""What would happen if a broker left the cluster without warning. Pure.

Leaders are elected by the controller's own rules (`metadata.election`), as when a broker is fenced.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from ottla_broker.metadata.election import (
    ElectionCandidates,
    TopicElectionRules,
    effective_min_isr,
    state_after_fencing,
)
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord

MAX_NAMED: Final = 100
"""Partitions of each kind that are named; all are counted."""
AffectedKind = Literal["offline", "already_offline", "below_min_isr", "unclean", "new_leader"]
KINDS: Final[tuple[AffectedKind, ...]] = ("offline", "already_offline", "below_min_isr", "unclean", "new_leader")


@dataclass(frozen=True, slots=True)
class AffectedPartition:
    """`kind`: offline (it had a leader and would have none), already_offline (it has no leader
    and would have none), below_min_isr (acks=all would be refused from then on), unclean (the new
    leader may lack records), new_leader.
    """

    kind: AffectedKind
    topic: str
    partition: int
    before: PartitionRecord
    after: PartitionRecord


@dataclass(slots=True)
class Departure:
    """`replicas`: number of partitions with a replica on the broker. `unaffected`: number of those
    whose clients would not notice: they keep their leader, and accept or refuse acks=all as before.
    `counts`: numbers of the others by kind, of which `named` has the first MAX_NAMED. `leaders`:
    how many partitions each broker would lead in addition.
    """

    broker: int
    replicas: int = 0
    unaffected: int = 0
    counts: Counter[AffectedKind] = field(default_factory=Counter)
    named: dict[AffectedKind, list[AffectedPartition]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    leaders: Counter[int] = field(default_factory=Counter)

    def add(self, affected: AffectedPartition | None) -> None:
        """Counts a partition with a replica on the broker; None: it is unaffected."""
        self.replicas += 1
        if affected is None:
            self.unaffected += 1
            return
        self.counts[affected.kind] += 1
        if len(self.named[affected.kind]) < MAX_NAMED:
            self.named[affected.kind].append(affected)
        if affected.after.leader not in (NO_LEADER, affected.before.leader):
            self.leaders[affected.after.leader] += 1


def assess_partition(
    topic: str, before: PartitionRecord, broker: int, remaining: ElectionCandidates, rules: TopicElectionRules
) -> AffectedPartition | None:
    """How a partition with a replica on the broker would be affected; None if its clients would not
    notice. `remaining`: the election candidates without the broker.
    """
    after = state_after_fencing(before, broker, remaining, rules) or before
    kind = _kind_of(before, after, effective_min_isr(before, rules.min_insync))
    return None if kind is None else AffectedPartition(kind, topic, before.partition, before, after)


def _kind_of(before: PartitionRecord, after: PartitionRecord, min_isr: int) -> AffectedKind | None:
    if after.leader == NO_LEADER:
        return "offline" if before.leader != NO_LEADER else "already_offline"
    if after.leader not in (*before.isr, *before.eligible):
        return "unclean"
    if len(after.isr) < min_isr <= len(before.isr):
        return "below_min_isr"
    return "new_leader" if after.leader != before.leader else None
