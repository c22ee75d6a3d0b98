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
from ottla_broker.log.validation import Appended
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.metrics import Traffic
from ottla_broker.replication.acks import Acks, Told
from ottla_broker.replication.followers import Follower, Followers
from ottla_broker.replication.membership import Membership, Proposal, least_in_sync
from ottla_broker.replication.peers import Alone, Peers
from ottla_broker.replication.refusals import Refusals
from ottla_broker.replication.successors import JUST_S
from ottla_broker.replication.syncing import Syncing
from ottla_broker.replication.watchers import Watchers
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
        state: PartitionRecord,
        me: int,
        now_ms: Callable[[], int],
        peers: Peers | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.log = log
        self.state = state
        self.traffic = Traffic()
        self.followers = Followers()
        self.refusals = Refusals()  # of what producers of this epoch sent
        self._membership = Membership()
        self.epoch_start = 0  # our log's end when we began to lead
        self._too_few = False  # in sync: fewer than `min_isr`, as of the last change of the metadata or the settings
        self._me = me
        self._now_ms = now_ms
        self._peers = peers or Alone()
        self._led_epoch = NO_EPOCH  # the epoch in which we lead, or led last
        self._stepped_down_s = -inf
        self._superseded = False  # the controller says that there is a newer leader than we know of
        self.watchers = Watchers()  # told when readable records may have come or leadership has changed
        self.end_watchers = Watchers()  # told when the log has grown or leadership has changed
        self.start_watchers = Watchers()  # told when the low watermark may have risen or leadership has changed
        self._told_start = log.start
        self._acks = Acks()
        self._holding: asyncio.TimerHandle | None = None
        self._syncing = Syncing(log, self._wants_sync, self._synced, self._acks.fail)
        self.become(state)

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.partition} of broker {self._me}>"

    # --- who we are

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def leads(self) -> bool:
        return self.state.leader == self._me and not self._superseded

    @property
    def follows(self) -> bool:
        return self.state.leader not in (self._me, NO_LEADER)

    @property
    def just_stepped_down(self) -> bool:
        return self.follows and self._peers.now_s() - self._stepped_down_s < JUST_S

    @property
    def settled(self) -> bool:
        """Whether everything that an earlier leader may have acknowledged is below our high watermark."""
        return self.log.high_watermark >= self.epoch_start

    @property
    def pending(self) -> Proposal | None:
        """The ISR that is on its way to the controller."""
        return self._membership.pending

    @property
    def min_isr(self) -> int:
        """How many must be in sync for acks=all, and for the high watermark to move."""
        return least_in_sync(self.state, self.log.config.min_insync_replicas)

    @property
    def acks_are_synced(self) -> bool:
        return self.log.config.flush_messages == 1

    def become(self, state: PartitionRecord) -> None:
        """Takes over a state from the metadata; one older than what is known is passed over (rule 1)."""
        if state.partition_epoch < self.state.partition_epoch:
            return
        before = len(self.state.isr)
        if self.state.leader == self._me != state.leader:
            self._stepped_down_s = self._peers.now_s()
            self.refusals = Refusals()
        self._superseded = self._superseded and state.partition_epoch == self.state.partition_epoch
        self.state = state
        self._membership.moved_on(state)
        if self.leads:
            if state.leader_epoch != self._led_epoch:
                self._begin_to_lead()
            else:
                self.traffic.isr_expansions += len(state.isr) > before
                self.traffic.isr_shrinkages += len(state.isr) < before
            self._members_changed()
            self._consider_the_quiet()
        else:
            self._begin_to_follow()
        self._wake()

    def _begin_to_lead(self) -> None:
        """The leader epoch starts at the log's end. Nothing is known of the followers in this epoch."""
        self._led_epoch = self.state.leader_epoch
        self.refusals = Refusals()
        self._membership.forget()
        self.followers.clear()
        self.log.epochs.assign(self._led_epoch, self.log.end)
        self.epoch_start = self.log.end
        if self.acks_are_synced and self.log.flush.flushed < self.log.end:
            self._syncing.begin()

    def _begin_to_follow(self) -> None:
        self._membership.forget()
        self.followers.clear()
        self.epoch_start = 0
        self.log.epochs.truncate_from_end(self.log.end)  # an epoch of ours in which nothing was written is nobody's
        reason = KafkaError(ErrorCode.not_leader_or_follower)
        (self._acks.hand_over if self.follows else self._acks.fail)(reason)

    def cut_back(self) -> None:
        """As a follower: the log has lost its end, because it is not the new leader's."""
        self._acks.cut_back(self.log.end, KafkaError(ErrorCode.not_leader_or_follower))

    def cut_as_leader(self, offset: int) -> None:
        """As a leader of whom nobody has fetched yet in this epoch: gives up the log's end, by a decision that the metadata hold. Followers find where
        their logs part from ours. KafkaError: KAFKA_STORAGE_ERROR."""
        self.log.truncate_to(offset)
        self.log.epochs.assign(self._led_epoch, self.log.end)
        self.epoch_start = self.log.end
        self.cut_back()
        self._wake()

    @property
    def unacknowledged(self) -> asyncio.Future[None] | None:
        """Ends when all producers that wait now have been told."""
        return self._acks.settled() if self._acks else None

    def retire(self, code: ErrorCode) -> None:
        """The replica leaves this broker: whoever waits is told why."""
        self._acks.fail(KafkaError(code))
        self._superseded = True
        self._wake()

    def settings_changed(self) -> None:
        """The topic's settings are others: `min.insync.replicas` may let the high watermark go on."""
        if self.leads:
            self._members_changed()

    # --- appending as the leader

    def append(self, records: Buffer, *, acks: int, from_client: bool = True) -> Appended:
        """Appends whole batches. `acks`: 0, 1, or −1 for all of the ISR. NOT_ENOUGH_REPLICAS when the ISR is too small for −1."""
        if self.refusals and from_client:
            self.refusals.check(records)
        try:
            if acks == ALL_REPLICAS and self._too_few:
                raise KafkaError(
                    ErrorCode.not_enough_replicas,
                    f"{self.topic}-{self.partition}: {len(self.state.isr)} in-sync replicas, min.insync.replicas is {self.log.config.min_insync_replicas}",
                )
            appended = self.log.append_as_leader(
                records, leader_epoch=self.state.leader_epoch, now_ms=self._now_ms(), from_client=from_client
            )
        except KafkaError as reason:
            self.refusals.note(records, reason)
            raise
        if self.refusals:
            self.refusals.accepted(records)
        self._has_grown(appended)
        return appended

    def append_copied(self, records: Buffer) -> Appended:
        """Appends batches of another cluster's leader at the offsets that they have, as the leader here; their leader epochs are ours already.
        KafkaError: as `PartitionLog.append_as_follower`."""
        appended = self.log.append_as_follower(records, leader_epoch=self.state.leader_epoch)
        self._has_grown(appended)
        return appended

    def _has_grown(self, appended: Appended) -> None:
        self.traffic.messages_in += appended.records
        self.traffic.bytes_in += appended.bytes
        if self.end_watchers.waiting:
            self.end_watchers.tell()
        if not (self.followers.counted or self.acks_are_synced):
            self._advance()
        if self.log.sync_due:
            self._syncing.begin()

    def acknowledged(self, appended: Appended, acks: int, *, across_leaders: bool = False) -> Awaitable[None] | None:
        """What to wait for before answering, or None when there is nothing to wait for. Raises into the waiter what `when_acknowledged` tells."""
        if acks != ALL_REPLICAS or self.is_acknowledged(appended):
            return None
        return self._acks.future(appended.last_offset + 1, across_leaders=across_leaders)

    def is_acknowledged(self, appended: Appended) -> bool:
        """Whether the whole ISR has it."""
        return appended.last_offset < self.log.high_watermark

    def when_acknowledged(self, appended: Appended, told: Told, *, across_leaders: bool = False) -> bool:
        """False when the whole ISR has it already; else `told` is called when it has. Or with NOT_LEADER_OR_FOLLOWER when leadership is lost,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR has become too small, KAFKA_STORAGE_ERROR. `across_leaders`: when leadership is lost,
        waits on for a while whether the new leader keeps what was appended."""
        if self.is_acknowledged(appended):
            return False
        self._acks.wait(appended.last_offset + 1, told, across_leaders=across_leaders)
        return True

    # --- followers, as their leader sees them

    def fetched_by(self, broker: int, broker_epoch: int, offset: int, log_start: int) -> None:
        """A follower asks for records from `offset`, up to which its log is ours. NOT_LEADER_OR_FOLLOWER as `Followers.heard` says."""
        follower = self.followers.heard(
            broker, broker_epoch, offset, log_start, self.log.end, self._peers.now_s(), self._peers.is_registered
        )
        if follower is None:
            return
        if self.start_watchers.waiting:
            self.start_watchers.tell()
        if follower in self.followers.outside:
            self._consider_joining((follower,))
        self._advance()

    def brokers_changed(self) -> None:
        """The metadata know other lives of other brokers than before: what those have said counts now, and they may join."""
        if self.leads:
            for follower in self.followers:
                if follower.unheard is not None:
                    self.fetched_by(follower.broker, *follower.unheard)
            self.consider_growth()
            self.start_watchers.tell()  # who lives no more is not waited for

    def consider_growth(self) -> None:
        """Other brokers are registered, or may join, than before: proposes that those who have caught up do."""
        if self.followers.outside and self.leads:
            self._consider_joining(self.followers.outside)

    def _consider_the_quiet(self) -> None:
        if self.pending is None and self.followers.outside:
            self._consider_joining(self._membership.waiting(self.followers.outside, self.log.end))

    def _consider_joining(self, candidates: Iterable[Follower]) -> None:
        """Those of them that have caught up are to be in the ISR (rule 4)."""
        watermark, epoch_start, may_join = self.log.high_watermark, self.epoch_start, self._peers.may_join

        def may(one: Follower) -> bool:
            return one.could_join(watermark, epoch_start) and may_join(one.broker, one.broker_epoch)

        if self._membership.join(self.state, candidates, may):
            self._propose()

    def consider_shrinking(self, lag_max_s: float) -> None:
        """Called now and then: those who have been behind for `lag_max_s` are to leave the ISR."""
        if not self.leads or not self.followers.somebody_is_behind(self.log.end):
            return
        if self._membership.leave(self.state, self.followers.late(self.log.end, self._peers.now_s(), lag_max_s)):
            self._propose()

    def _propose(self) -> None:
        self._members_changed()
        self._peers.propose(self)

    def refused(self, proposal: Proposal) -> None:
        """The controller will not have it, now or later. What had to wait for that is looked at now."""
        if self._membership.refused(proposal):
            self._members_changed()
            if self._membership.somebody_waits:
                self._consider_the_quiet()

    def withdraw(self, proposal: Proposal) -> None:
        """The controller will not have it now, but may find a copy of it later."""
        if self._membership.withdraw(self.state, proposal):
            self._peers.propose(self)

    def superseded(self, proposal: Proposal) -> None:
        """The controller knows a newer leader: nothing more is served until the metadata tell who it is (rule 1)."""
        if self.pending is proposal:
            self._superseded = True
            self._acks.hand_over(KafkaError(ErrorCode.not_leader_or_follower))
            self._wake()

    def _members_changed(self) -> None:
        others = (broker for broker in self.state.replicas if broker != self._me)
        self.followers.be(others, self._membership.maximal(self.state.isr))
        self._too_few = len(self.state.isr) < self.min_isr
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
        watermark = self.followers.least_end(log.flush.flushed if self.acks_are_synced else log.end)
        if watermark <= log.high_watermark or self._too_few:
            return
        if self.followers.outside:
            watermark = self._held_by_joiners(watermark)
            if watermark <= log.high_watermark:
                return
        log.advance_high_watermark(watermark)
        if self._acks:
            self._acks.reached(watermark)
        if self.watchers.waiting:
            self.watchers.tell()

    def _held_by_joiners(self, watermark: int) -> int:
        """Lower, where a follower that is about to join has not come so far; looked at again when its time is over."""
        now_s = self._peers.now_s()
        held, until_s = self.followers.held(watermark, now_s, self._peers.may_join)
        if held < watermark and self._holding is None:
            self._holding = asyncio.get_running_loop().call_later(until_s - now_s, self._held_long_enough)
        return held

    def _held_long_enough(self) -> None:
        self._holding = None
        if self.leads:
            self._advance()

    def follow_to(self, high_watermark: int, log_start: int) -> None:
        """As a follower: takes over the leader's high watermark as far as our log goes, and where its log starts."""
        log = self.log
        watermark = min(high_watermark, log.end)
        if watermark > log.high_watermark:
            log.advance_high_watermark(watermark)
            if self._acks:
                self._acks.reached(watermark)
            if self.watchers.waiting:
                self.watchers.tell()
        if log.start < log_start <= log.high_watermark:
            log.delete_records_before(log_start)
        if log.sync_due and not self.acks_are_synced:
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

    def tell_start(self) -> None:
        """Where nothing else happens, those that fetch are told that the log's start has risen."""
        if self.log.start != self._told_start:
            self._told_start = self.log.start
            self._wake()

    def _wake(self) -> None:
        self.watchers.tell()
        self.end_watchers.tell()
        self.start_watchers.tell()

    # --- durability

    def _wants_sync(self) -> bool:
        return self.log.sync_due or (self.acks_are_synced and self.log.flush.flushed < self.log.end)

    def _synced(self) -> None:
        if self.leads:
            self._advance()
