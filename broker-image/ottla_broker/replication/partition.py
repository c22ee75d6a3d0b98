"""One replica of a partition: its log, what the metadata say of it, and what it is now, leader or
follower (`PartitionLeader`, `PartitionFollower`)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Final
from uuid import UUID

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.small_batches import JoinedAppend
from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.metadata.records import NO_LEADER, PartitionRecord
from ottla_broker.metrics import PartitionTraffic
from ottla_broker.replication.cluster_view import ClusterView
from ottla_broker.replication.isr_state import IsrChange
from ottla_broker.replication.partition_follower import PartitionFollower
from ottla_broker.replication.partition_leader import PartitionLeader
from ottla_broker.replication.pending_acks import CommitCallback, PendingAcks
from ottla_broker.replication.rejected_batches import RejectedBatches
from ottla_broker.replication.waiters import Waiters
from ottla_broker.wire.batch import Buffer
from ottla_broker.wire.errors import ErrorCode, KafkaError

ALL_REPLICAS: Final = -1
READ_COMMITTED: Final = 1
FORWARDING_S: Final = 1.0
"""How long a leader that has stepped down forwards what producers still send to it."""


@dataclass(eq=False, repr=False)
class Partition:
    """`registration`: its record in the metadata; `_now_ms`: wall time; `send_isr_change`: sends
    the leader's pending ISR change to the controller. `misdirected_batches`: the rejected batches
    that clients sent while another broker led.

    All waiters are called when leadership, the registration or the log start may have changed.
    `read_waiters` are also called when readable records may have come, `log_end_waiters` when the
    log has grown, and `low_watermark_waiters` when the low watermark may have risen."""

    topic: str
    topic_id: UUID
    partition: int
    log: PartitionLog
    registration: PartitionRecord
    _broker_id: int
    _now_ms: Callable[[], int]
    _cluster: ClusterView
    send_isr_change: "InitVar[Callable[[Partition], None]]"

    def __post_init__(self, send_isr_change: "Callable[[Partition], None]") -> None:
        self.traffic = PartitionTraffic()
        self.rejected_batches = RejectedBatches()
        self.misdirected_batches = RejectedBatches()
        self.read_waiters = Waiters()
        self.log_end_waiters = Waiters()
        self.low_watermark_waiters = Waiters()
        self.is_leader = False
        self._send_isr_change = partial(send_isr_change, self)
        self._pending_acks = PendingAcks()
        self._sync: asyncio.Task[None] | None = None
        self._notified_log_start = self.log.start
        self.role: PartitionLeader | PartitionFollower = self._new_follower()
        self.update_registration(self.registration)

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.partition} of broker {self._broker_id}>"

    # --- leader or follower

    @property
    def leader_epoch(self) -> int:
        return self.registration.leader_epoch

    @property
    def is_follower(self) -> bool:
        return self.registration.leader not in (self._broker_id, NO_LEADER)

    @property
    def leader(self) -> PartitionLeader:
        """Raises NOT_LEADER_OR_FOLLOWER when this replica does not lead."""
        if not isinstance(self.role, PartitionLeader):
            raise KafkaError(ErrorCode.not_leader_or_follower, f"{self!r} is not the leader")
        return self.role

    @property
    def follower(self) -> PartitionFollower:
        """Raises NOT_LEADER_OR_FOLLOWER when this replica leads."""
        if isinstance(self.role, PartitionLeader):
            raise KafkaError(ErrorCode.not_leader_or_follower, f"{self!r} is the leader")
        return self.role

    @property
    def pending_isr_change(self) -> IsrChange | None:
        """The leader's ISR change that the controller has not decided yet, or None."""
        return self.role.isr.pending if isinstance(self.role, PartitionLeader) else None

    @property
    def has_just_stepped_down(self) -> bool:
        role = self.role
        if isinstance(role, PartitionLeader) or not self.is_follower:
            return False
        return self._cluster.now_s() - role.stepped_down_s < FORWARDING_S

    @property
    def has_reached_epoch_start(self) -> bool:
        """True if the high watermark is above everything that an earlier leader may have
        acknowledged, or if this replica does not lead."""
        role = self.role
        return not isinstance(role, PartitionLeader) or self.log.high_watermark >= role.epoch_start_offset

    @property
    def acks_wait_for_sync(self) -> bool:
        return self.log.config.flush_messages == 1

    def update_registration(self, registration: PartitionRecord) -> None:
        """Applies the partition's registration in the metadata; one that is older than the known
        one is ignored (rule 1)."""
        before = self.registration
        if registration.partition_epoch < before.partition_epoch:
            return
        self.registration = registration
        if registration.leader != self._broker_id:
            self._become_follower()
        else:
            role = self.role
            if not isinstance(role, PartitionLeader) or role.epoch != registration.leader_epoch:
                role = self._become_leader()
            else:
                role.superseded = role.superseded and registration.partition_epoch == before.partition_epoch
                self.traffic.isr_expansions += len(registration.isr) > len(before.isr)
                self.traffic.isr_shrinkages += len(registration.isr) < len(before.isr)
            self.is_leader = not role.superseded
            if self.is_leader:
                role.update_registration(registration)
        self._notify_all()

    def _become_leader(self) -> PartitionLeader:
        self._close_leader()
        self.rejected_batches = RejectedBatches()
        role = PartitionLeader(
            self.log,
            self.registration,
            self._broker_id,
            self._cluster,
            self._pending_acks,
            self.read_waiters,
            self.low_watermark_waiters,
            self._durable_end,
            self._send_isr_change,
        )
        self.role = role
        if self.acks_wait_for_sync and self.log.flush.flushed_offset < self.log.end:
            self._begin_sync()
        return role

    def _become_follower(self) -> None:
        if isinstance(self.role, PartitionLeader):
            self._close_leader()
            self.rejected_batches = RejectedBatches()
            self.misdirected_batches = RejectedBatches()
            self.role = self._new_follower()
            self.role.stepped_down_s = self._cluster.now_s()
        self.is_leader = False
        self.role.registration = self.registration
        # No record has the epoch of a leader that wrote nothing.
        self.log.epochs.truncate_from_end(self.log.end)
        reason = KafkaError(ErrorCode.not_leader_or_follower)
        (self._pending_acks.hand_over if self.is_follower else self._pending_acks.fail)(reason)

    def _new_follower(self) -> PartitionFollower:
        return PartitionFollower(
            self.log,
            self.registration,
            self.traffic,
            self._pending_acks,
            self.read_waiters,
            self._begin_follower_sync,
        )

    def _close_leader(self) -> None:
        if isinstance(self.role, PartitionLeader):
            self.role.close()

    def on_newer_leader(self, change: IsrChange) -> None:
        """Called when the controller knows a newer leader, or no longer has the partition. Nothing
        more is served until the metadata say so (rule 1). Without effect if `change` is not
        pending any more."""
        if self.pending_isr_change is change:
            self.leader.superseded = True
            self.is_leader = False
            self._pending_acks.hand_over(KafkaError(ErrorCode.not_leader_or_follower))
            self._notify_all()

    def stop_replica(self, code: ErrorCode) -> None:
        """Called when the replica leaves this broker. Fails waiting requests with `code`."""
        self._close_leader()
        self.is_leader = False
        self._pending_acks.fail(KafkaError(code))
        self._notify_all()

    def on_config_changed(self) -> None:
        """Called when configs have changed: with another min.insync.replicas the high watermark may
        advance."""
        if self.is_leader:
            self.leader.update_maximal_isr()

    def on_brokers_changed(self) -> None:
        """Called when brokers have registered, or are fenced or unfenced."""
        if self.is_leader:
            self.leader.on_brokers_changed()

    def shrink_isr(self, max_lag_s: float) -> None:
        """Calls `PartitionLeader.shrink_isr` if this replica leads."""
        if self.is_leader:
            self.leader.shrink_isr(max_lag_s)

    # --- appending as the leader

    def append_records(self, records: Buffer, *, acks: int, from_client: bool = True) -> LogAppendInfo:
        """Appends whole batches. `acks`: 0, 1, or −1 for all of the ISR. Raises NOT_ENOUGH_REPLICAS
        when the ISR is too small for −1; NOT_LEADER_OR_FOLLOWER when this replica does not lead, or
        in place of OUT_OF_ORDER_SEQUENCE_NUMBER when another broker may lead; the error of a
        rejected batch that these follow; the KafkaError of `PartitionLog.append_as_leader`."""
        leader = self.leader
        self.traffic.produce_requests += from_client
        if self.rejected_batches and from_client:
            self.rejected_batches.check(records)
        try:
            if acks == ALL_REPLICAS and leader.below_min_isr:
                raise KafkaError(
                    ErrorCode.not_enough_replicas,
                    f"{self.topic}-{self.partition}: {len(self.registration.isr)} in-sync replicas, "
                    f"min.insync.replicas is {self.log.config.min_insync_replicas}",
                )
            appended = self.log.append_as_leader(
                records, leader_epoch=leader.epoch, now_ms=self._now_ms(), from_client=from_client
            )
        except KafkaError as reason:
            if reason.code is ErrorCode.out_of_order_sequence_number:
                reason = self._explain_gap(records, reason)
            self.traffic.failed_produce_requests += from_client
            self.rejected_batches.record_rejection(records, reason)
            raise reason from None
        if self.rejected_batches:
            self.rejected_batches.record_append(records)
        if self.misdirected_batches:
            self.misdirected_batches.record_append(records)
        self._on_appended(leader, appended)
        return appended

    def _explain_gap(self, records: Buffer, reason: KafkaError) -> KafkaError:
        """NOT_LEADER_OR_FOLLOWER if another broker may lead by now and have the missing batches, or
        if clients sent them here just before this replica led: the client sends them again."""
        if not self._cluster.is_in_session():
            return KafkaError(ErrorCode.not_leader_or_follower, f"no session with the controller; {reason}")
        try:
            self.misdirected_batches.check(records)
        except KafkaError as refused:
            return refused
        return reason

    def append_small_batches(self, batches: Sequence[bytearray]) -> Sequence[int]:
        """Appends clients' batches in one write; returns the first offset of each. If it returns
        fewer offsets than batches, the caller appends the others one by one with `append_records`,
        which raises their errors. See `PartitionLog.append_small_batches`."""
        leader = self.role
        if not isinstance(leader, PartitionLeader) or leader.below_min_isr or self.rejected_batches:
            return ()
        try:
            joined = self.log.append_small_batches(batches, leader_epoch=leader.epoch, now_ms=self._now_ms())
        except KafkaError:
            return ()  # nothing is written: `append_records` raises the error of each batch
        if joined.first_offsets:
            self._on_appended(leader, joined)
            self.traffic.produce_requests += len(joined.first_offsets)
        return joined.first_offsets

    def append_mirrored_records(self, records: Buffer) -> LogAppendInfo:
        """Appends batches of another cluster's leader at the offsets that they have; their leader
        epochs are this leader's already. Raises the KafkaError of
        `PartitionLog.append_as_follower`."""
        leader = self.leader
        appended = self.log.append_as_follower(records, leader_epoch=leader.epoch)
        self._on_appended(leader, appended)
        return appended

    def _on_appended(self, leader: PartitionLeader, appended: LogAppendInfo | JoinedAppend) -> None:
        self.traffic.messages_in += appended.record_count
        self.traffic.bytes_in += appended.byte_count
        if self.log_end_waiters.waiting:
            self.log_end_waiters.notify_all()
        if not (leader.followers.in_sync or self.acks_wait_for_sync):
            leader.advance_high_watermark()
        if self.log.is_sync_due:
            self._begin_sync()

    def truncate_as_leader(self, offset: int) -> None:
        """Truncates the log as the metadata demand, before a follower has fetched from it in this
        leader epoch. Followers find where their logs diverge. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        leader = self.leader
        self.log.truncate_to(offset)
        self.log.epochs.assign(leader.epoch, self.log.end)
        leader.epoch_start_offset = self.log.end
        self._pending_acks.truncate_to(self.log.end, KafkaError(ErrorCode.not_leader_or_follower))
        self._notify_all()

    # --- acknowledgements

    def is_committed(self, appended: LogAppendInfo) -> bool:
        """True if the whole ISR has the records."""
        return appended.last_offset < self.log.high_watermark

    def commit_future(self, appended: LogAppendInfo) -> Awaitable[None] | None:
        """Completes when the whole ISR has the records; None when it has them already. Raises what
        `call_when_committed` passes."""
        return None if self.is_committed(appended) else self._pending_acks.add_future(appended.last_offset + 1)

    def call_when_committed(
        self, appended: LogAppendInfo, callback: CommitCallback, *, across_leaders: bool = False
    ) -> bool:
        """False if the whole ISR has the records. Else `callback` is called when it has, or with
        NOT_LEADER_OR_FOLLOWER when leadership is lost, NOT_ENOUGH_REPLICAS_AFTER_APPEND when the
        ISR has become too small, KAFKA_STORAGE_ERROR, or the code of `stop_replica`.
        `across_leaders`: when leadership is lost, wait up to HANDOVER_TIMEOUT_S for the new leader
        to commit the records."""
        if self.is_committed(appended):
            return False
        self._pending_acks.add(appended.last_offset + 1, callback, across_leaders=across_leaders)
        return True

    def pending_acks_future(self) -> asyncio.Future[None] | None:
        """Done when every producer that waits now has its answer; None when none waits."""
        return self._pending_acks.all_completed()

    async def wait_in_epoch(self, waiters: Waiters, condition: Callable[[], bool]) -> None:
        """Returns when `condition` holds, which is checked at each change of `waiters`. Raises
        NOT_LEADER_OR_FOLLOWER when this broker's leader epoch ends before."""
        epoch = self.leader_epoch

        def is_met() -> bool:
            if not self.is_leader or self.leader_epoch != epoch:
                raise KafkaError(ErrorCode.not_leader_or_follower, f"{self!r} no longer leads in epoch {epoch}")
            return condition()

        await waiters.wait_until(is_met)

    # --- readers

    def readable_end(self, isolation: int, replica: int = -1) -> int:
        """The offset before which a reader may see records: for a follower the log end, else the
        high watermark or last stable offset."""
        if replica >= 0:
            return self.log.end
        return self.log.last_stable_offset if isolation == READ_COMMITTED else self.log.high_watermark

    def notify_log_start_change(self) -> None:
        """Completes waiting fetches if the log start has changed, so that fetchers of an idle
        partition learn of it."""
        if self.log.start != self._notified_log_start:
            self._notified_log_start = self.log.start
            self._notify_all()

    def _notify_all(self) -> None:
        self.read_waiters.notify_all()
        self.log_end_waiters.notify_all()
        self.low_watermark_waiters.notify_all()

    # --- durability: one fsync at a time, shared by all appends before it (group commit)

    def _durable_end(self) -> int:
        return self.log.flush.flushed_offset if self.acks_wait_for_sync else self.log.end

    def _begin_follower_sync(self) -> None:
        """Begins a sync that is due, unless acks wait for it: then the fetcher syncs the log."""
        if self.log.is_sync_due and not self.acks_wait_for_sync:
            self._begin_sync()

    def _begin_sync(self) -> None:
        if self._sync is None:
            self._sync = asyncio.get_running_loop().create_task(self._sync_log())

    async def _sync_log(self) -> None:
        log = self.log
        try:
            while log.is_sync_due or (self.acks_wait_for_sync and log.flush.flushed_offset < log.end):
                await log.wait_until_synced(log.end)
                if self.is_leader:
                    self.leader.advance_high_watermark()
        except KafkaError as reason:
            self._pending_acks.fail(reason)
        finally:
            self._sync = None
