"""Who should be in sync with a leader: the ISR that it proposes to the controller, and what counts while that is on its way. Pure.

Invariants:
- A proposed ISR counts until the metadata have moved on: a proposal names the partition epoch that it replaces, so when a newer one is there, it has
  happened or never will (rule 1). One that takes the place of another for the same partition epoch counts all of that, too.
- One proposal is on its way at a time. Who has caught up meanwhile is looked at when that is decided: where nothing happens nobody fetches again, and
  they would be out for ever.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ottla_broker.metadata.election import effective_min_isr
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.followers import Follower


def least_in_sync(state: PartitionRecord, min_insync: int) -> int:
    """How many must be in sync for acks=all, and for the high watermark to move. While the controller has others eligible to lead who are not
    in sync (or were until they lost power), more than there are, whatever min.insync.replicas is here: they can only be trusted if it does not move."""
    least = effective_min_isr(state, min_insync)
    return max(least, len(state.isr) + 1) if state.eligible or state.last_known else least


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """An ISR on its way to the controller. Epochs: those it was made in; the partition epoch is the one that it would replace."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    still: tuple[int, ...] = ()  # of an earlier proposal for the same partition epoch that may still come to be


class IsrState:
    """Of one partition. `pending`: what is on its way. Whoever is told True takes it there."""

    __slots__ = ("_turned_away", "pending")

    def __init__(self) -> None:
        self.pending: IsrChange | None = None
        self._turned_away = False  # somebody who had caught up while a proposal was on its way

    def maximal_isr(self, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Everybody who may be in sync by the controller's decision, if `isr` is what the metadata say."""
        return isr if self.pending is None else (*isr, *self.pending.isr, *self.pending.still)

    def moved_on(self, state: PartitionRecord) -> None:
        """The metadata say this now."""
        if self.pending is not None and state.partition_epoch > self.pending.partition_epoch:
            self.pending = None

    def forget(self) -> None:
        """Another leader epoch has begun: no ISR of an earlier one is taken any more."""
        self.pending = None

    def join(self, state: PartitionRecord, candidates: Iterable[Follower], may: Callable[[Follower], bool]) -> bool:
        """Whether it is proposed that those of the candidates join that may (rule 4)."""
        if self.pending is not None:
            self._turned_away = True
            return False
        joining = [follower.broker for follower in candidates if may(follower)]
        return bool(joining) and self._propose(state, (*state.isr, *joining))

    def leave(self, state: PartitionRecord, late: Collection[int]) -> bool:
        """Whether it is proposed that these leave the ISR."""
        staying = tuple(broker for broker in state.isr if broker not in late)
        return self.pending is None and staying != state.isr and self._propose(state, staying)

    def waiting(self, outside: Iterable[Follower], end: int) -> list[Follower]:
        """Nothing is on its way any more: those who had to wait for that, or have caught up while they were being taken out. Who still has something
        to fetch, of the log up to `end`, shows by fetching that it lives."""
        everybody, self._turned_away = self._turned_away, False
        return [follower for follower in outside if everybody or follower.log_end >= end]

    def refused(self, proposal: IsrChange) -> bool:
        """It will never happen. Whether that was what was on its way."""
        if self.pending is not proposal:
            return False
        self.pending = None
        return True

    @property
    def somebody_waits(self) -> bool:
        return self._turned_away and self.pending is None

    def withdraw(self, state: PartitionRecord, proposal: IsrChange) -> bool:
        """It will not happen now, but a copy of it may be found later: the ISR as it is, proposed anew, ends that."""
        if self.pending is not proposal:
            return False
        still = (*proposal.isr, *proposal.still)
        self.pending = IsrChange(state.isr, proposal.leader_epoch, proposal.partition_epoch, still)
        return True

    def _propose(self, state: PartitionRecord, isr: tuple[int, ...]) -> bool:
        self.pending = IsrChange(isr, state.leader_epoch, state.partition_epoch)
        return True
