"""The ISR that a leader proposes to the controller, and the replicas that count as in sync while
the proposal is undecided. Pure.

Invariants:
- The replicas of a proposed ISR are treated as in sync until the metadata have a newer partition
  epoch. A proposal names the partition epoch that it replaces, so with a newer one it is either
  committed or never will be (rule 1). If another proposal for the same partition epoch was sent
  before, its replicas are treated as in sync, too.
- One proposal is undecided at a time. Followers that catch up meanwhile are considered when it is
  decided: on an idle partition they would not fetch again, and would stay out of the ISR.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.followers import Follower


@dataclass(frozen=True, slots=True, eq=False)
class IsrChange:
    """A proposed ISR. `partition_epoch`: the epoch that it replaces; `replaced`: replicas of
    earlier proposals for the same partition epoch that may still be committed.
    """

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    replaced: tuple[int, ...] = ()


class IsrState:
    """The ISR of one partition in one leader epoch. `pending`: the undecided proposal. A caller of
    `propose_with`, `propose_without` or `withdraw` sends it when that returns True.
    """

    __slots__ = ("_has_deferred_followers", "pending")

    def __init__(self) -> None:
        self.pending: IsrChange | None = None
        self._has_deferred_followers = False  # a follower that caught up while a proposal was undecided

    def maximal_isr(self, isr: tuple[int, ...]) -> tuple[int, ...]:
        """Every replica that may be in sync by the controller's decision. `isr`: the committed
        ISR.
        """
        return isr if self.pending is None else (*isr, *self.pending.isr, *self.pending.replaced)

    def update_registration(self, registration: PartitionRecord) -> None:
        """Ends the pending proposal if the registration has a newer partition epoch."""
        if self.pending is not None and registration.partition_epoch > self.pending.partition_epoch:
            self.pending = None

    def propose_with(
        self, registration: PartitionRecord, candidates: Iterable[Follower], may_join: Callable[[Follower], bool]
    ) -> bool:
        """Proposes an ISR with those of the candidates that may join (rule 4). While a proposal is
        undecided, the candidates are deferred."""
        if self.pending is not None:
            self._has_deferred_followers = True
            return False
        joining = [follower.broker for follower in candidates if may_join(follower)]
        return bool(joining) and self._propose(registration, (*registration.isr, *joining))

    def propose_without(self, registration: PartitionRecord, leaving: Collection[int]) -> bool:
        """Proposes an ISR without these replicas."""
        staying = tuple(broker for broker in registration.isr if broker not in leaving)
        return self.pending is None and staying != registration.isr and self._propose(registration, staying)

    def take_candidates(self, out_of_sync: Iterable[Follower], log_end: int) -> list[Follower]:
        """Called when no proposal is undecided. Returns the followers to consider for the ISR: all
        if one had to wait for the decision, else those that have reached `log_end`. The others
        fetch again anyway.
        """
        takes_all, self._has_deferred_followers = self._has_deferred_followers, False
        return [follower for follower in out_of_sync if takes_all or follower.log_end >= log_end]

    @property
    def has_deferred_followers(self) -> bool:
        """True if followers were deferred and the proposal that deferred them is decided."""
        return self._has_deferred_followers and self.pending is None

    def reject(self, change: IsrChange) -> bool:
        """Drops a proposal that the controller will never commit. True if it was pending."""
        if self.pending is not change:
            return False
        self.pending = None
        return True

    def withdraw(self, registration: PartitionRecord, change: IsrChange) -> bool:
        """Proposes the committed ISR in place of `change`, if that is pending."""
        if self.pending is not change:
            return False
        replaced = (*change.isr, *change.replaced)
        self.pending = IsrChange(registration.isr, change.leader_epoch, change.partition_epoch, replaced)
        return True

    def _propose(self, registration: PartitionRecord, isr: tuple[int, ...]) -> bool:
        self.pending = IsrChange(isr, registration.leader_epoch, registration.partition_epoch)
        return True
