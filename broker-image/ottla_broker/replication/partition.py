"""One replica of a partition: what it does as the leader (appends, followers' progress, the high watermark, who is in sync) and how it follows.

Invariants as a leader:
- The high watermark is the smallest log end over the maximal ISR, never falls, and does not move while the committed ISR is smaller than
  `min.insync.replicas` (rule 3). What counts as this broker's own log end is what is durable by the topic's own wish: everything in the page
  cache, or with `flush.messages=1` everything that is fsynced.
- Who is proposed for the ISR, and counts until that is decided, is `Membership`'s to say (rules 1 and 4).
- Until the high watermark has reached the start of its epoch a leader is *unsettled*: it may know an older one than its predecessor told.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from uuid import UUID

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.metrics import PartitionTraffic
from ottla_broker.replication.cluster_view import Alone, ClusterView
from ottla_broker.replication.followers import Follower, Followers
from ottla_broker.replication.isr_state import IsrChange, IsrState, least_in_sync
from ottla_broker.replication.pending_acks import CommitCallback, PendingAcks
from ottla_broker.replication.produce_forwarder import FORWARDING_S
from ottla_broker.replication.rejected_batches import RejectedBatches
from ottla_broker.replication.syncing import Syncing
from ottla_broker.replication.waiters import Waiters
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.errors import ErrorCode, KafkaError

ALL_REPLICAS = -1
READ_COMMITTED = 1
NO_EPOCH = -1
UNTOLD = -1  # a high watermark that is not known well enough to tell a client


class Partition:
    """A replica hosted here. `state`: what the metadata say of it; `me`: this broker's id; `now_ms`: wall time."""

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        partition: int,
        log: PartitionLog,
        registration: PartitionRecord,
        broker_id: int,
        now_ms: Callable[[], int],
        peers: ClusterView | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.log = log
        self.registration = registration
        self.traffic = PartitionTraffic()
        self.followers = Followers()
        self.rejected_batches = RejectedBatches()  # of what producers of this epoch sent
        self._membership = IsrState()
        self.epoch_start_offset = 0  # our log's end when we began to lead
        self._too_few = False  # in sync: fewer than `min_isr`, as of the last change of the metadata or the settings
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._peers = peers or Alone()
        self._led_epoch = NO_EPOCH  # the epoch in which we lead, or led last
        self._stepped_down_s = -inf
        self._superseded = False  # the controller says that there is a newer leader than we know of
        self.read_waiters = Waiters()  # told when readable records may have come or leadership has changed
        self.log_end_waiters = Waiters()  # told when the log has grown or leadership has changed
        self.log_start_waiters = Waiters()  # told when the low watermark may have risen or leadership has changed
        self._told_start = log.start
        self._acks = PendingAcks()
        self._holding: asyncio.TimerHandle | None = None
        self._syncing = Syncing(log, self._wants_sync, self._synced, self._acks.fail)
        self.update_registration(registration)

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.partition} of broker {self._broker_id}>"

    # --- who we are

    @property
    def leader_epoch(self) -> int:
        return self.registration.leader_epoch

    @property
    def is_leader(self) -> bool:
        return self.registration.leader == self._broker_id and not self._superseded

    @property
    def is_follower(self) -> bool:
        return self.registration.leader not in (self._broker_id, NO_LEADER)

    @property
    def has_just_stepped_down(self) -> bool:
        return self.is_follower and self._peers.now_s() - self._stepped_down_s < FORWARDING_S

    @property
    def has_reached_epoch_start(self) -> bool:
        """Whether everything that an earlier leader may have acknowledged is below our high watermark."""
        return self.log.high_watermark >= self.epoch_start_offset

    @property
    def pending_isr_change(self) -> IsrChange | None:
        """The ISR that is on its way to the controller."""
        return self._membership.pending

    @property
    def effective_min_isr(self) -> int:
        """How many must be in sync for acks=all, and for the high watermark to move."""
        return least_in_sync(self.registration, self.log.config.min_insync_replicas)

    @property
    def acks_wait_for_sync(self) -> bool:
        return self.log.config.flush_messages == 1

    def update_registration(self, state: PartitionRecord) -> None:
        """Takes over a state from the metadata; one older than what is known is passed over (rule 1)."""
        if state.partition_epoch < self.registration.partition_epoch:
            return
        before = len(self.registration.isr)
        if self.registration.leader == self._broker_id != state.leader:
            self._stepped_down_s = self._peers.now_s()
            self.rejected_batches = RejectedBatches()
        self._superseded = self._superseded and state.partition_epoch == self.registration.partition_epoch
        self.registration = state
        self._membership.moved_on(state)
        if self.is_leader:
            if state.leader_epoch != self._led_epoch:
                self._become_leader()
            else:
                self.traffic.isr_expansions += len(state.isr) > before
                self.traffic.isr_shrinkages += len(state.isr) < before
            self._members_changed()
            self._consider_the_quiet()
        else:
            self._become_follower()
        self._wake()

    def _become_leader(self) -> None:
        """The leader epoch starts at the log's end. Nothing is known of the followers in this epoch."""
        self._led_epoch = self.registration.leader_epoch
        self.rejected_batches = RejectedBatches()
        self._membership.forget()
        self.followers.clear()
        self.log.epochs.assign(self._led_epoch, self.log.end)
        self.epoch_start_offset = self.log.end
        if self.acks_wait_for_sync and self.log.flush.flushed < self.log.end:
            self._syncing.begin()

    def _become_follower(self) -> None:
        self._membership.forget()
        self.followers.clear()
        self.epoch_start_offset = 0
        self.log.epochs.truncate_from_end(self.log.end)  # an epoch of ours in which nothing was written is nobody's
        reason = KafkaError(ErrorCode.not_leader_or_follower)
        (self._acks.hand_over if self.is_follower else self._acks.fail)(reason)

    def on_log_truncated(self) -> None:
        """As a follower: the log has lost its end, because it is not the new leader's."""
        self._acks.cut_back(self.log.end, KafkaError(ErrorCode.not_leader_or_follower))

    def truncate_as_leader(self, offset: int) -> None:
        """As a leader of whom nobody has fetched yet in this epoch: gives up the log's end, by a decision that the metadata hold. Followers find where
        their logs part from ours. KafkaError: KAFKA_STORAGE_ERROR."""
        self.log.truncate_to(offset)
        self.log.epochs.assign(self._led_epoch, self.log.end)
        self.epoch_start_offset = self.log.end
        self.on_log_truncated()
        self._wake()

    @property
    def pending_acks_future(self) -> asyncio.Future[None] | None:
        """Ends when all producers that wait now have been told."""
        return self._acks.settled() if self._acks else None

    def stop_replica(self, code: ErrorCode) -> None:
        """The replica leaves this broker: whoever waits is told why."""
        self._acks.fail(KafkaError(code))
        self._superseded = True
        self._wake()

    def on_config_changed(self) -> None:
        """The topic's settings are others: `min.insync.replicas` may let the high watermark go on."""
        if self.is_leader:
            self._members_changed()

    # --- appending as the leader

    def append_records(self, records: Buffer, *, acks: int, from_client: bool = True) -> LogAppendInfo:
        """Appends whole batches. `acks`: 0, 1, or −1 for all of the ISR. NOT_ENOUGH_REPLICAS when the ISR is too small for −1."""
        if self.rejected_batches and from_client:
            self.rejected_batches.check(records)
        try:
            if acks == ALL_REPLICAS and self._too_few:
                raise KafkaError(
                    ErrorCode.not_enough_replicas,
                    f"{self.topic}-{self.partition}: {len(self.registration.isr)} in-sync replicas, min.insync.replicas is {self.log.config.min_insync_replicas}",
                )
            appended = self.log.append_as_leader(
                records, leader_epoch=self.registration.leader_epoch, now_ms=self._now_ms(), from_client=from_client
            )
        except KafkaError as reason:
            self.rejected_batches.note(records, reason)
            raise
        if self.rejected_batches:
            self.rejected_batches.accepted(records)
        self._has_grown(appended)
        return appended

    def append_mirrored_records(self, records: Buffer) -> LogAppendInfo:
        """Appends batches of another cluster's leader at the offsets that they have, as the leader here; their leader epochs are ours already.
        KafkaError: as `PartitionLog.append_as_follower`."""
        appended = self.log.append_as_follower(records, leader_epoch=self.registration.leader_epoch)
        self._has_grown(appended)
        return appended

    def _has_grown(self, appended: LogAppendInfo) -> None:
        self.traffic.messages_in += appended.record_count
        self.traffic.bytes_in += appended.byte_count
        if self.log_end_waiters.waiting:
            self.log_end_waiters.notify_all()
        if not (self.followers.counted or self.acks_wait_for_sync):
            self._advance()
        if self.log.is_sync_due:
            self._syncing.begin()

    def commit_future(
        self, appended: LogAppendInfo, acks: int, *, across_leaders: bool = False
    ) -> Awaitable[None] | None:
        """What to wait for before answering, or None when there is nothing to wait for. Raises into the waiter what `when_acknowledged` tells."""
        if acks != ALL_REPLICAS or self.is_committed(appended):
            return None
        return self._acks.future(appended.last_offset + 1, across_leaders=across_leaders)

    def is_committed(self, appended: LogAppendInfo) -> bool:
        """Whether the whole ISR has it."""
        return appended.last_offset < self.log.high_watermark

    def call_when_committed(
        self, appended: LogAppendInfo, told: CommitCallback, *, across_leaders: bool = False
    ) -> bool:
        """False when the whole ISR has it already; else `told` is called when it has. Or with NOT_LEADER_OR_FOLLOWER when leadership is lost,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR has become too small, KAFKA_STORAGE_ERROR. `across_leaders`: when leadership is lost,
        waits on for a while whether the new leader keeps what was appended."""
        if self.is_committed(appended):
            return False
        self._acks.wait(appended.last_offset + 1, told, across_leaders=across_leaders)
        return True

    # --- followers, as their leader sees them

    def record_follower_fetch(self, broker: int, broker_epoch: int, offset: int, log_start: int) -> None:
        """A follower asks for records from `offset`, up to which its log is ours. NOT_LEADER_OR_FOLLOWER as `Followers.heard` says."""
        follower = self.followers.record_fetch(
            broker, broker_epoch, offset, log_start, self.log.end, self._peers.now_s(), self._peers.is_registered
        )
        if follower is None:
            return
        if self.log_start_waiters.waiting:
            self.log_start_waiters.notify_all()
        if follower in self.followers.outside:
            self._consider_joining((follower,))
        self._advance()

    def on_brokers_changed(self) -> None:
        """The metadata know other lives of other brokers than before: what those have said counts now, and they may join."""
        if self.is_leader:
            for follower in self.followers:
                if follower.unheard is not None:
                    self.record_follower_fetch(follower.broker, *follower.unheard)
            self.maybe_expand_isr()
            self.log_start_waiters.notify_all()  # who lives no more is not waited for

    def maybe_expand_isr(self) -> None:
        """Other brokers are registered, or may join, than before: proposes that those who have caught up do."""
        if self.followers.outside and self.is_leader:
            self._consider_joining(self.followers.outside)

    def _consider_the_quiet(self) -> None:
        if self.pending_isr_change is None and self.followers.outside:
            self._consider_joining(self._membership.waiting(self.followers.outside, self.log.end))

    def _consider_joining(self, candidates: Iterable[Follower]) -> None:
        """Those of them that have caught up are to be in the ISR (rule 4)."""
        watermark, epoch_start, may_join = self.log.high_watermark, self.epoch_start_offset, self._peers.may_join

        def may(one: Follower) -> bool:
            return one.could_join(watermark, epoch_start) and may_join(one.broker, one.broker_epoch)

        if self._membership.join(self.registration, candidates, may):
            self._propose()

    def maybe_shrink_isr(self, lag_max_s: float) -> None:
        """Called now and then: those who have been behind for `lag_max_s` are to leave the ISR."""
        if not self.is_leader or not self.followers.somebody_is_behind(self.log.end):
            return
        if self._membership.leave(self.registration, self.followers.late(self.log.end, self._peers.now_s(), lag_max_s)):
            self._propose()

    def _propose(self) -> None:
        self._members_changed()
        self._peers.propose(self)

    def on_isr_change_rejected(self, proposal: IsrChange) -> None:
        """The controller will not have it, now or later. What had to wait for that is looked at now."""
        if self._membership.refused(proposal):
            self._members_changed()
            if self._membership.somebody_waits:
                self._consider_the_quiet()

    def withdraw_isr_change(self, proposal: IsrChange) -> None:
        """The controller will not have it now, but may find a copy of it later."""
        if self._membership.withdraw(self.registration, proposal):
            self._peers.propose(self)

    def on_newer_leader(self, proposal: IsrChange) -> None:
        """The controller knows a newer leader: nothing more is served until the metadata tell who it is (rule 1)."""
        if self.pending_isr_change is proposal:
            self._superseded = True
            self._acks.hand_over(KafkaError(ErrorCode.not_leader_or_follower))
            self._wake()

    def _members_changed(self) -> None:
        others = (broker for broker in self.registration.replicas if broker != self._broker_id)
        self.followers.set_replicas(others, self._membership.maximal_isr(self.registration.isr))
        self._too_few = len(self.registration.isr) < self.effective_min_isr
        if self._too_few:
            self._acks.fail(
                KafkaError(
                    ErrorCode.not_enough_replicas_after_append, "the ISR became smaller than min.insync.replicas"
                )
            )
        self._advance()

    # --- the high watermark

    def _advance(self) -> None:
        log = self.log
        watermark = self.followers.least_end(log.flush.flushed if self.acks_wait_for_sync else log.end)
        if watermark <= log.high_watermark or self._too_few:
            return
        if self.followers.outside:
            watermark = self._limit_to_joining_followers(watermark)
            if watermark <= log.high_watermark:
                return
        log.advance_high_watermark(watermark)
        if self._acks:
            self._acks.reached(watermark)
        if self.read_waiters.waiting:
            self.read_waiters.notify_all()

    def _limit_to_joining_followers(self, watermark: int) -> int:
        """Lower, where a follower that is about to join has not come so far; looked at again when its time is over."""
        now_s = self._peers.now_s()
        held, until_s = self.followers.held(watermark, now_s, self._peers.may_join)
        if held < watermark and self._holding is None:
            self._holding = asyncio.get_running_loop().call_later(until_s - now_s, self._held_long_enough)
        return held

    def _held_long_enough(self) -> None:
        self._holding = None
        if self.is_leader:
            self._advance()

    def update_from_leader(self, high_watermark: int, log_start: int) -> None:
        """As a follower: takes over the leader's high watermark as far as our log goes, and where its log starts."""
        log = self.log
        watermark = min(high_watermark, log.end)
        if watermark > log.high_watermark:
            log.advance_high_watermark(watermark)
            if self._acks:
                self._acks.reached(watermark)
            if self.read_waiters.waiting:
                self.read_waiters.notify_all()
        if log.start < log_start <= log.high_watermark:
            log.delete_records_before(log_start)
        if log.is_sync_due and not self.acks_wait_for_sync:
            self._syncing.begin()

    # --- readers

    def readable_end(self, isolation: int, replica: int = -1) -> int:
        """The offset before which a reader may see records: the log's end for a follower, else high watermark or last stable offset."""
        if replica >= 0:
            return self.log.end
        return self.log.last_stable_offset if isolation == READ_COMMITTED else self.log.high_watermark

    @property
    def low_watermark(self) -> int:
        """Below it no replica that lives has any record, as far as its leader knows; −1 while one of them has not been heard."""
        return self.followers.least_start(self.log.start, self._peers.lives)

    def notify_log_start_change(self) -> None:
        """Where nothing else happens, those that fetch are told that the log's start has risen."""
        if self.log.start != self._told_start:
            self._told_start = self.log.start
            self._wake()

    def _wake(self) -> None:
        self.read_waiters.notify_all()
        self.log_end_waiters.notify_all()
        self.log_start_waiters.notify_all()

    # --- durability

    def _wants_sync(self) -> bool:
        return self.log.is_sync_due or (self.acks_wait_for_sync and self.log.flush.flushed < self.log.end)

    def _synced(self) -> None:
        if self.is_leader:
            self._advance()
