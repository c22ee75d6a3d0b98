"""Who leads a partition, and who is trusted with it, when brokers come and go: pure.

`trusted` are the brokers that hold every record below the high watermark: the ISR, and beside it the eligible leader replicas (KIP-966), which
left the ISR while it was too small for the high watermark to move.

Invariant: without an unclean election a leader is taken from the trusted only, and nobody becomes trusted here; joining is AlterPartition's
(`isr_changes`). It is kept because every plan only takes brokers out of what is trusted. A partition whose ISR is below its effective
min.insync.replicas keeps whoever leaves as eligible; one whose ISR is large enough forgets the eligible, because its high watermark moves on
without them. The last of the ISR stays in it, fenced or not: it says who must come back.

Who was trusted and lost power is remembered as *last known* (KIP-966) for as long as the high watermark cannot have moved without it: when the
others that were trusted in its place have lost their disks, nobody knows more. Where what is acknowledged is synced it has all of it, and leads;
else a person may choose it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

import msgspec

from ottla_broker.metadata.records import NO_LEADER, PartitionRecord


@dataclass(frozen=True, slots=True)
class ElectionCandidates:
    """Who may lead. `alive`: unfenced brokers, with the directories that they have (empty: not known); `leaving`: those of them about to stop."""

    unfenced: Mapping[int, Collection[UUID]]
    shutting_down: Collection[int] = ()

    def can_remain_leader(self, state: PartitionRecord, broker: int) -> bool:
        """Whether a leader need not give way: it is unfenced and has the directory of its replica."""
        if broker not in self.unfenced:
            return False
        has, wanted = self.unfenced[broker], directory_of(state, broker)
        return not has or wanted is None or wanted in has

    def can_become_leader(self, state: PartitionRecord, broker: int) -> bool:
        """Whether it may be made leader: it may stay, and is not about to stop."""
        return broker not in self.shutting_down and self.can_remain_leader(state, broker)

    def without(self, gone: int) -> "ElectionCandidates":
        return replace(self, unfenced={broker: has for broker, has in self.unfenced.items() if broker != gone})

    def with_shutting_down(self, leaving: int) -> "ElectionCandidates":
        return replace(self, shutting_down=(*self.shutting_down, leaving))


@dataclass(frozen=True, slots=True)
class TopicElectionRules:
    """What a topic's settings say of elections. `synced`: whatever is acknowledged was fsynced before (flush.messages=1)."""

    min_insync: int
    allow_unclean: bool
    acks_are_synced: bool = False


def effective_min_isr(state: PartitionRecord, min_insync: int) -> int:
    """min.insync.replicas, as far as the partition can have them: replicas that a reassignment is still bringing do not count yet."""
    return min(min_insync, len(state.replicas) - len(state.adding))


def elect_leader(
    old: PartitionRecord,
    isr: Collection[int],
    trusted: Collection[int],
    voters: ElectionCandidates,
    rules: TopicElectionRules,
) -> PartitionRecord:
    """`old` with this ISR: its leader stays if it may, else another is found; what is left of the trusted becomes eligible where it counts.

    `isr` and `trusted` are members of `old.replicas`; the order of replicas is the order of preference. Epochs are not raised: see `next_state`.
    """
    in_sync = tuple(broker for broker in old.replicas if broker in isr)
    others = tuple(broker for broker in old.replicas if broker in trusted and broker not in in_sync)
    stays = old.leader in in_sync and voters.can_remain_leader(old, old.leader)
    leader = old.leader if stays else _first_electable(in_sync, old, voters)
    if leader == NO_LEADER and (leader := _first_electable(others, old, voters)) != NO_LEADER:
        others = tuple(broker for broker in old.replicas if broker in trusted and broker != leader)
        in_sync = (leader,)
    last_known = tuple(broker for broker in old.replicas if broker in old.last_known and broker not in trusted)
    if (
        rules.acks_are_synced
        and not in_sync
        and not others
        and (leader := _first_electable(last_known, old, voters)) != NO_LEADER
    ):
        in_sync, others, last_known = (leader,), tuple(broker for broker in last_known if broker != leader), ()
    if leader == NO_LEADER and rules.allow_unclean:
        leader = _first_electable((*last_known, *old.replicas), old, voters)
        if leader != NO_LEADER:
            in_sync, others, last_known = (leader,), (), ()
    if not in_sync and others:
        in_sync, others = others[:1], others[1:]
    if len(in_sync) >= effective_min_isr(old, rules.min_insync):
        others = last_known = ()
    return msgspec.structs.replace(old, isr=in_sync, leader=leader, eligible=others, last_known=last_known)


def with_initial_eligible_replicas(new: PartitionRecord, rules: TopicElectionRules) -> PartitionRecord:
    """A partition that is made now: all its replicas are equally empty. Where its ISR is too small for anything to be committed the others are
    eligible from the beginning, so that it is not lost with the one broker that was there."""
    if len(new.isr) >= effective_min_isr(new, rules.min_insync):
        return new
    return msgspec.structs.replace(new, eligible=tuple(broker for broker in new.replicas if broker not in new.isr))


def with_next_epochs(old: PartitionRecord, new: PartitionRecord) -> PartitionRecord | None:
    """`new` with its epochs as the successor of `old`; None when it says the same. Members of an ISR may stand in any order."""
    if set(new.isr) == set(old.isr) and set(new.eligible) == set(old.eligible):
        new = msgspec.structs.replace(new, isr=old.isr, eligible=old.eligible)
    if new == old:
        return None
    return msgspec.structs.replace(
        new,
        leader_epoch=old.leader_epoch + (new.leader != old.leader),
        partition_epoch=old.partition_epoch + 1,
    )


def state_after_fencing(
    old: PartitionRecord, gone: int, voters: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Broker `gone` (which is no more in `voters`) serves nobody any more: another leads, and the ISR is without it."""
    isr = [broker for broker in old.isr if broker != gone] or old.isr
    return with_next_epochs(old, elect_leader(old, isr, _trusted_replicas(old), voters, rules))


def state_after_unfencing(
    old: PartitionRecord, voters: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """A broker has come: a partition without a leader may have one now."""
    if old.leader != NO_LEADER:
        return None
    return with_next_epochs(old, elect_leader(old, old.isr, _trusted_replicas(old), voters, rules))


def state_after_shutdown_request(
    old: PartitionRecord, leaving: int, voters: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Broker `leaving` is about to stop, and still serves: what it leads goes to others in sync, and it leaves the ISR.

    Where nobody else in sync may lead it stays what it is, until it is fenced.
    """
    others = [broker for broker in old.isr if broker != leaving]
    if leaving not in old.isr or not any(voters.can_become_leader(old, broker) for broker in others):
        return None
    return with_next_epochs(old, elect_leader(old, others, _trusted_replicas(old), voters, rules))


def state_after_unclean_shutdown(
    old: PartitionRecord, returned: int, voters: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Broker `returned` (fenced still) may lack what it had not synced: others are trusted in its place, if there are others."""
    trusted = [broker for broker in _trusted_replicas(old) if broker != returned]
    if not trusted:
        return state_after_fencing(old, returned, voters, rules)
    isr = [broker for broker in old.isr if broker != returned]
    doubted = old
    if returned in _trusted_replicas(old):
        doubted = msgspec.structs.replace(old, last_known=(*old.last_known, returned))
    return with_next_epochs(old, elect_leader(doubted, isr, trusted, voters, rules))


def state_after_directory_loss(
    old: PartitionRecord, returned: int, directory: UUID, voters: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """The replica of broker `returned` was on a directory that it has no more: it is trusted with nothing, even if nobody else is left.

    From now on its replica belongs on `directory`.
    """
    isr = [broker for broker in old.isr if broker != returned]
    trusted = [broker for broker in _trusted_replicas(old) if broker != returned]
    moved = msgspec.structs.replace(
        old,
        directories=with_directory(old, returned, directory),
        last_known=tuple(broker for broker in old.last_known if broker != returned),
    )
    return with_next_epochs(old, elect_leader(moved, isr, trusted, voters, rules))


def elect_preferred_leader(old: PartitionRecord, voters: ElectionCandidates) -> PartitionRecord | None:
    """The first replica leads; None when it does, or is not in sync, or may not."""
    first = old.replicas[0]
    if old.leader == first or first not in old.isr or not voters.can_become_leader(old, first):
        return None
    return with_next_epochs(old, msgspec.structs.replace(old, leader=first))


def elect_unclean_leader(
    old: PartitionRecord, voters: ElectionCandidates, rules: TopicElectionRules
) -> PartitionRecord | None:
    """Any living replica leads a partition that has no leader, because a person says so: the trusted come first, then those that were trusted
    until they lost power, then whoever lives. None when nobody does."""
    wished = elect_leader(old, old.isr, _trusted_replicas(old), voters, replace(rules, allow_unclean=True))
    return None if wished.leader == NO_LEADER else with_next_epochs(old, wished)


def without_eligible_replicas(old: PartitionRecord, rules: TopicElectionRules) -> PartitionRecord | None:
    """min.insync.replicas fell to what the ISR has: the high watermark will move, so whoever is not in sync is trusted no more."""
    if not (old.eligible or old.last_known) or len(old.isr) < effective_min_isr(old, rules.min_insync):
        return None
    return with_next_epochs(old, msgspec.structs.replace(old, eligible=(), last_known=()))


def directory_of(state: PartitionRecord, broker: int) -> UUID | None:
    """Where the metadata say that this replica lies; None when they do not say."""
    if len(state.directories) != len(state.replicas) or broker not in state.replicas:
        return None
    return state.directories[state.replicas.index(broker)]


def with_directory(state: PartitionRecord, broker: int, directory: UUID) -> tuple[UUID, ...]:
    if len(state.directories) != len(state.replicas):
        return state.directories
    return tuple(
        directory if replica == broker else known
        for replica, known in zip(state.replicas, state.directories, strict=True)
    )


def _trusted_replicas(state: PartitionRecord) -> tuple[int, ...]:
    return (*state.isr, *state.eligible)


def _first_electable(candidates: Iterable[int], state: PartitionRecord, voters: ElectionCandidates) -> int:
    return next((broker for broker in candidates if voters.can_become_leader(state, broker)), NO_LEADER)
