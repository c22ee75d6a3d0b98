"""Leader election and eligible leader replicas (KIP-966) of one partition, when brokers come and
go: pure.

The *trusted* replicas have every record below the high watermark. They are the ISR and the eligible
leader replicas, which left the ISR while it was too small for the high watermark to advance.

Invariant: a leader is a trusted replica, and no other replica becomes trusted here; replicas join
the ISR by AlterPartition (`isr_changes`). The exceptions are an unclean election and the election
of a *last known* replica. A partition whose ISR is smaller than its effective min.insync.replicas
keeps replicas that leave the ISR as eligible. One whose ISR is large enough clears them, because
its high watermark advances without them. If no other replica can be elected, the last replica of
the ISR remains in it, fenced or not: the partition waits for its return. It leaves the ISR
nevertheless if its directory was lost, or after an unclean shutdown while another replica is
trusted.

A trusted replica with an unclean shutdown is remembered as *last known* while the high watermark
cannot have advanced without it. When the replicas that were trusted in its place lose their disks,
no replica has more records. Where acknowledged records are synced (`flush.messages=1`) it has all
of them and is elected; else an unclean election prefers it.

A replica whose directory was lost is remembered as *emptied* until it joins the ISR: an unclean
election prefers every other replica, which has at least old records.

Functions that return a PartitionRecord or None return None if the partition does not change.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from uuid import UUID

import msgspec
from msgspec.structs import replace

from ottla_broker.metadata.records import NO_LEADER, PartitionRecord


class ElectionCandidates(msgspec.Struct, frozen=True):
    """The brokers that may lead. `unfenced`: with their directories (empty: unknown);
    `shutting_down`: brokers in controlled shutdown, which may only remain leaders."""

    unfenced: Mapping[int, Collection[UUID]]
    shutting_down: Collection[int] = ()

    def can_remain_leader(self, state: PartitionRecord, broker: int) -> bool:
        """True if the broker is unfenced and has the directory of its replica."""
        if broker not in self.unfenced:
            return False
        directories, directory = self.unfenced[broker], directory_of(state, broker)
        return not directories or directory is None or directory in directories

    def can_become_leader(self, state: PartitionRecord, broker: int) -> bool:
        return broker not in self.shutting_down and self.can_remain_leader(state, broker)

    def without(self, fenced: int) -> "ElectionCandidates":
        return replace(self, unfenced={broker: ids for broker, ids in self.unfenced.items() if broker != fenced})

    def with_shutting_down(self, broker: int) -> "ElectionCandidates":
        return replace(self, shutting_down=(*self.shutting_down, broker))


class TopicElectionRules(msgspec.Struct, frozen=True):
    """A topic's configs for elections. `acks_are_synced`: records are synced before they are
    acknowledged (flush.messages=1)."""

    min_insync: int
    allow_unclean: bool
    acks_are_synced: bool = False


TopicRulesLookup = Callable[[UUID], TopicElectionRules]
"""A topic's election rules, by its id."""


def effective_min_isr(state: PartitionRecord, min_insync: int) -> int:
    """min.insync.replicas, at most the number of replicas without those that a reassignment
    adds.
    """
    return min(min_insync, len(state.replicas) - len(state.adding))


def elect_leader(
    old: PartitionRecord,
    isr: Collection[int],
    trusted: Collection[int],
    candidates: ElectionCandidates,
    rules: TopicElectionRules,
) -> PartitionRecord:
    """`old` with this ISR and its eligible replicas. The leader remains if it may. Else another is
    elected: of the ISR, else of the eligible replicas, else a last known one or any other if
    `rules` allow it. Without one that may lead, the leader is NO_LEADER. A leader from outside of
    `isr` becomes the only member of the ISR. If `isr` is empty and no leader is found, the first
    eligible replica becomes its member.

    `isr` and `trusted` are members of `old.replicas`, whose order is the order of preference.
    Epochs are unchanged: see `with_next_epochs`.
    """
    in_sync = tuple(broker for broker in old.replicas if broker in isr)
    eligible = tuple(broker for broker in old.replicas if broker in trusted and broker not in in_sync)
    remains = old.leader in in_sync and candidates.can_remain_leader(old, old.leader)
    leader = old.leader if remains else _first_electable(in_sync, old, candidates)
    if leader == NO_LEADER and (leader := _first_electable(eligible, old, candidates)) != NO_LEADER:
        eligible = tuple(broker for broker in old.replicas if broker in trusted and broker != leader)
        in_sync = (leader,)
    last_known = tuple(broker for broker in old.replicas if broker in old.last_known and broker not in trusted)
    if rules.acks_are_synced and not in_sync and not eligible:
        leader = _first_electable(last_known, old, candidates)
        if leader != NO_LEADER:
            others = tuple(broker for broker in last_known if broker != leader)
            in_sync, eligible, last_known = (leader,), others, ()
    if leader == NO_LEADER and rules.allow_unclean:
        with_records = (broker for broker in old.replicas if broker not in old.emptied)
        leader = _first_electable((*last_known, *with_records, *old.emptied), old, candidates)
        if leader != NO_LEADER:
            in_sync, eligible, last_known = (leader,), (), ()
    if not in_sync and eligible:
        in_sync, eligible = eligible[:1], eligible[1:]
    if len(in_sync) >= effective_min_isr(old, rules.min_insync):
        eligible = last_known = ()
    return replace(old, isr=in_sync, leader=leader, eligible=eligible, last_known=last_known)


def with_initial_eligible_replicas(new: PartitionRecord, rules: TopicElectionRules) -> PartitionRecord:
    """A new partition, all of whose replicas are empty. If its ISR is too small to commit records,
    the others are eligible from the start, so that the partition is not lost with the broker that
    was available."""
    if len(new.isr) >= effective_min_isr(new, rules.min_insync):
        return new
    return replace(new, eligible=tuple(broker for broker in new.replicas if broker not in new.isr))


def with_next_epochs(old: PartitionRecord, new: PartitionRecord) -> PartitionRecord | None:
    """`new` with the epochs of a successor of `old`; replicas that joined the ISR or are no longer
    assigned are removed from `emptied`. None if nothing changed; the order within an ISR does not
    count.
    """
    if set(new.isr) == set(old.isr) and set(new.eligible) == set(old.eligible):
        new = replace(new, isr=old.isr, eligible=old.eligible)
    if new == old:
        return None
    return replace(
        new,
        emptied=tuple(broker for broker in new.emptied if broker in new.replicas and broker not in new.isr),
        leader_epoch=old.leader_epoch + (new.leader != old.leader),
        partition_epoch=old.partition_epoch + 1,
    )


def state_after_fencing(
    old: PartitionRecord, fenced: int, candidates: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Broker `fenced`, which cannot lead according to `candidates` (it is fenced, or its replica's
    directory failed), leaves the ISR if that has other members or another replica is elected from
    outside of it. Elects a leader if the broker led.
    """
    isr = [broker for broker in old.isr if broker != fenced] or old.isr
    return with_next_epochs(old, elect_leader(old, isr, trusted_replicas(old), candidates, rules))


def state_after_unfencing(
    old: PartitionRecord, candidates: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Elects a leader for a partition without one."""
    if old.leader != NO_LEADER:
        return None
    return with_next_epochs(old, elect_leader(old, old.isr, trusted_replicas(old), candidates, rules))


def state_after_shutdown_request(
    old: PartitionRecord, stopping: int, candidates: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Broker `stopping` still serves. It leaves the ISR, and another in-sync replica leads in its
    place. Without another in-sync replica that may lead, nothing changes until it is fenced."""
    others = [broker for broker in old.isr if broker != stopping]
    if stopping not in old.isr or not any(candidates.can_become_leader(old, broker) for broker in others):
        return None
    return with_next_epochs(old, elect_leader(old, others, trusted_replicas(old), candidates, rules))


def state_after_unclean_shutdown(
    old: PartitionRecord, returned: int, candidates: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Broker `returned`, still fenced, may lack records that it had not synced: it is trusted only
    if no other is.
    """
    trusted = [broker for broker in trusted_replicas(old) if broker != returned]
    if not trusted:
        return state_after_fencing(old, returned, candidates, rules)
    isr = [broker for broker in old.isr if broker != returned]
    remembered = old
    if returned in trusted_replicas(old):
        remembered = replace(old, last_known=(*old.last_known, returned))
    return with_next_epochs(old, elect_leader(remembered, isr, trusted, candidates, rules))


def state_after_directory_loss(
    old: PartitionRecord, returned: int, directory: UUID, candidates: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """The directory of broker `returned`'s replica is lost: the replica is not trusted, even if no
    other is. From now on it is assigned to `directory`."""
    isr = [broker for broker in old.isr if broker != returned]
    trusted = [broker for broker in trusted_replicas(old) if broker != returned]
    moved = replace(
        old,
        directories=directories_with(old, returned, directory),
        last_known=tuple(broker for broker in old.last_known if broker != returned),
        emptied=(*(broker for broker in old.emptied if broker != returned), returned),
    )
    return with_next_epochs(old, elect_leader(moved, isr, trusted, candidates, rules))


def elect_preferred_leader(old: PartitionRecord, candidates: ElectionCandidates) -> PartitionRecord | None:
    """Makes the first replica the leader. None if it leads, is not in sync, or may not lead."""
    preferred = old.replicas[0]
    if old.leader == preferred or preferred not in old.isr or not candidates.can_become_leader(old, preferred):
        return None
    return with_next_epochs(old, replace(old, leader=preferred))


def elect_unclean_leader(
    old: PartitionRecord, candidates: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """An administrator's unclean election for a partition without a leader: of a trusted replica,
    else of a last known one, else of one that was not emptied, else of any. None if every replica
    is fenced, shutting down or without its directory."""
    elected = elect_leader(old, old.isr, trusted_replicas(old), candidates, replace(rules, allow_unclean=True))
    return None if elected.leader == NO_LEADER else with_next_epochs(old, elected)


def without_eligible_replicas(old: PartitionRecord, rules: TopicElectionRules) -> PartitionRecord | None:
    """Clears the eligible and last known replicas if the ISR is large enough for the high watermark
    to advance without them, for instance after min.insync.replicas fell."""
    if not (old.eligible or old.last_known) or len(old.isr) < effective_min_isr(old, rules.min_insync):
        return None
    return with_next_epochs(old, replace(old, eligible=(), last_known=()))


def directory_of(state: PartitionRecord, broker: int) -> UUID | None:
    """The directory of a broker's replica; None if unknown."""
    if len(state.directories) != len(state.replicas) or broker not in state.replicas:
        return None
    return state.directories[state.replicas.index(broker)]


def directories_with(state: PartitionRecord, broker: int, directory: UUID) -> tuple[UUID, ...]:
    """The directories of all replicas, after that of one broker has changed. Empty if unknown."""
    if len(state.directories) != len(state.replicas):
        return state.directories
    return tuple(
        directory if replica == broker else known
        for replica, known in zip(state.replicas, state.directories, strict=True)
    )


def trusted_replicas(state: PartitionRecord) -> tuple[int, ...]:
    return (*state.isr, *state.eligible)


def _first_electable(replicas: Iterable[int], state: PartitionRecord, candidates: ElectionCandidates) -> int:
    return next((broker for broker in replicas if candidates.can_become_leader(state, broker)), NO_LEADER)
