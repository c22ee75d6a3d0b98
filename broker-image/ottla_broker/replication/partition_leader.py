"""A partition's leader in one leader epoch: how far its followers are, the high watermark, and the
ISR that it proposes.

Invariants:
- The high watermark is the smallest log end over the maximal ISR (`IsrState`), never falls, and
  does not move while the committed ISR is smaller than `min.insync.replicas` (rule 3). The leader's
  own log counts up to its end, or with `flush.messages=1` as far as it is fsynced.
- A follower outside of the ISR joins it only in the broker epoch that is registered (rule 4).
- Until the high watermark has reached `epoch_start_offset` the leader may know an older one than
  its predecessor returned to clients."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata.election import effective_min_isr
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.cluster_view import ClusterView
from ottla_broker.replication.followers import Follower, Followers
from ottla_broker.replication.isr_state import IsrChange, IsrState
from ottla_broker.replication.pending_acks import PendingAcks
from ottla_broker.replication.waiters import Waiters
from ottla_broker.wire.errors import ErrorCode, KafkaError


@dataclass(slots=True, eq=False, repr=False)
class PartitionLeader:
    """`_durable_end`: returns the end of the leader's log for the high watermark, the fsynced part
    with `flush.messages=1`; `_send_isr_change`: sends `isr.pending` to the controller.
    `superseded`: the controller knows a newer leader.
    """

    _log: PartitionLog
    registration: PartitionRecord
    _broker_id: int
    _cluster: ClusterView
    _acks: PendingAcks
    _read_waiters: Waiters
    _low_watermark_waiters: Waiters
    _durable_end: Callable[[], int]
    _send_isr_change: Callable[[], None]
    epoch: int = field(init=False)
    epoch_start_offset: int = field(init=False)
    followers: Followers = field(default_factory=Followers)
    isr: IsrState = field(default_factory=IsrState)
    below_min_isr: bool = False
    superseded: bool = False
    _join_timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.epoch = self.registration.leader_epoch
        self.epoch_start_offset = self._log.end
        self._log.epochs.assign(self.epoch, self._log.end)

    def update_registration(self, registration: PartitionRecord) -> None:
        self.registration = registration
        self.isr.update_registration(registration)
        self.update_maximal_isr()
        self._reconsider_followers()

    @property
    def effective_min_isr(self) -> int:
        """Number of in-sync replicas that acks=all and an advance of the high watermark require:
        min.insync.replicas, at most the number of replicas without those that a reassignment adds.
        While the controller could elect replicas outside of the ISR (eligible or last known ones),
        it is larger than the ISR, because such replicas have all committed records only if the high
        watermark does not advance.
        """
        registration = self.registration
        least = effective_min_isr(registration, self._log.config.min_insync_replicas)
        if registration.eligible or registration.last_known:
            return max(least, len(registration.isr) + 1)
        return least

    def update_maximal_isr(self) -> None:
        """Called when the ISR, the proposed one or min.insync.replicas has changed."""
        registration = self.registration
        others = (broker for broker in registration.replicas if broker != self._broker_id)
        self.followers.set_replicas(others, self.isr.maximal_isr(registration.isr))
        self.below_min_isr = len(registration.isr) < self.effective_min_isr
        if self.below_min_isr:
            reason = "the ISR became smaller than min.insync.replicas"
            self._acks.fail(KafkaError(ErrorCode.not_enough_replicas_after_append, reason))
        self.advance_high_watermark()

    # --- the high watermark

    def advance_high_watermark(self) -> None:
        log = self._log
        watermark = self.followers.least_end(self._durable_end())
        if watermark <= log.high_watermark or self.below_min_isr:
            return
        if self.followers.out_of_sync:
            watermark = self._limit_to_joining_followers(watermark)
            if watermark <= log.high_watermark:
                return
        log.advance_high_watermark(watermark)
        if self._acks:
            self._acks.complete_up_to(watermark)
        if self._read_waiters.waiting:
            self._read_waiters.notify_all()

    def _limit_to_joining_followers(self, watermark: int) -> int:
        """The high watermark, or less if a follower that is about to join has fewer records."""
        now_s = self._cluster.now_s()
        limit, until_s = self.followers.limit_to_joining(watermark, now_s, self._cluster.may_join)
        if limit < watermark and self._join_timer is None:
            self._join_timer = asyncio.get_running_loop().call_later(until_s - now_s, self._on_join_timeout)
        return limit

    def _on_join_timeout(self) -> None:
        self._join_timer = None
        if not self.superseded:
            self.advance_high_watermark()

    def close(self) -> None:
        if self._join_timer is not None:
            self._join_timer.cancel()

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of the live replicas; −1 while one of them has not fetched in
        this epoch.
        """
        return self.followers.least_start(self._log.start, self._cluster.is_alive)

    # --- followers

    def record_fetch(self, broker: int, broker_epoch: int, offset: int, log_start: int) -> None:
        """Records a follower's fetch from `offset`, up to which its log is the leader's. Raises
        NOT_LEADER_OR_FOLLOWER like `Followers.record_fetch`."""
        cluster = self._cluster
        follower = self.followers.record_fetch(
            broker, broker_epoch, offset, log_start, self._log.end, cluster.now_s(), cluster.is_registered
        )
        if follower is None:
            return
        if self._low_watermark_waiters.waiting:
            self._low_watermark_waiters.notify_all()
        if broker not in self.registration.isr:
            self._expand_isr((follower,))
        self.advance_high_watermark()

    def on_brokers_changed(self) -> None:
        """Called when brokers have registered, or are fenced or unfenced. Records the last fetches
        of incarnations whose registrations this broker did not know before, and proposes the
        followers that may join the ISR now.
        """
        for follower in self.followers:
            if follower.uncounted_fetch is not None:
                self.record_fetch(follower.broker, *follower.uncounted_fetch)
        if outside := [follower for follower in self.followers if follower.broker not in self.registration.isr]:
            self._expand_isr(outside)
        self._low_watermark_waiters.notify_all()  # the low watermark no longer waits for a dead broker

    # --- the ISR

    def shrink_isr(self, max_lag_s: float) -> None:
        """Proposes that followers that have been behind for `max_lag_s` leave the ISR. Called
        periodically.
        """
        log_end = self._log.end
        if not self.followers.update_lagging(log_end):
            return
        lagging = self.followers.lagging_for(log_end, self._cluster.now_s(), max_lag_s)
        if self.isr.propose_without(self.registration, lagging):
            self._propose()

    def _expand_isr(self, candidates: Iterable[Follower]) -> None:
        """Proposes that those of the candidates that have caught up join the ISR (rule 4)."""
        watermark, may_join = self._log.high_watermark, self._cluster.may_join

        def has_caught_up(one: Follower) -> bool:
            return one.has_reached(watermark, self.epoch_start_offset) and may_join(one.broker, one.broker_epoch)

        if self.isr.propose_with(self.registration, candidates, has_caught_up):
            self._propose()

    def _reconsider_followers(self) -> None:
        """Proposes the followers outside of the ISR that have caught up, unless a proposal is
        undecided."""
        if self.isr.pending is None and self.followers.out_of_sync:
            self._expand_isr(self.isr.take_candidates(self.followers.out_of_sync, self._log.end))

    def _propose(self) -> None:
        self.update_maximal_isr()
        self._send_isr_change()

    def on_isr_change_rejected(self, change: IsrChange) -> None:
        """Drops a proposal that will never be committed."""
        if self.isr.reject(change):
            self.update_maximal_isr()
            if self.isr.has_deferred_followers:
                self._reconsider_followers()

    def withdraw_isr_change(self, change: IsrChange) -> None:
        """Called when the controller has rejected the proposal. A copy of the request may arrive
        later, so the leader proposes the present ISR, after which the copy is rejected too.
        """
        if self.isr.withdraw(self.registration, change):
            self._send_isr_change()
