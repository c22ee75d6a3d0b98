"""The leader of the metadata log in one epoch: which replicas fetch, how far their logs go, what is
committed.

Invariants; `voter_set` and `raft_rules` say why they suffice:
- No record is committed before one of this epoch is.
- A fetch acknowledges records only if the follower's log is a prefix of this one. Followers fetch
  after an fsync.
- Voters change one at a time, and the newest voter set counts from its append on.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla_broker.event_timeout import wait_for_event
from ottla_broker.metadata.image import MetadataDelta
from ottla_broker.metadata.metadata_fetch import (
    UNKNOWN_OFFSET,
    LeaderAndEpoch,
    MetadataFetchRequest,
    MetadataFetchResponse,
)
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum import QuorumDescription, QuorumReplica
from ottla_broker.metadata.records import LeaderChangeRecord, MetadataRecord
from ottla_broker.metadata.voter_set import (
    ReplicaKey,
    Voter,
    VoterSet,
    can_change_voters,
    majority_size,
    next_high_watermark,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class ReplicaState:
    """A replica that has fetched from this leader. `acknowledged_offset`: offset up to which its
    log equals the leader's. Times by the event loop's clock.
    """

    key: ReplicaKey
    last_fetch_s: float
    last_caught_up_s: float
    acknowledged_offset: int = 0


class LeaderState:
    """`now`: the event loop's clock. `on_ended` is called once, when this broker no longer leads in
    the epoch.
    """

    def __init__(
        self, epoch: int, me: Voter, log: MetadataLog, now: Callable[[], float], on_ended: Callable[[], None]
    ) -> None:
        self.epoch = epoch
        self.me = me
        self.replicas: dict[ReplicaKey, ReplicaState] = {}
        self.epoch_start_offset = log.end_offset
        self.is_established = False
        self.is_over = False
        self.failure: KafkaError | None = None  # the error of this broker's own log that ended the epoch
        self.started_s = now()
        self.voters_changed_s = now()
        self._log = log
        self._now = now
        self._on_ended = on_ended
        self._synced_offset = 0
        self._changed = asyncio.Event()
        self._sync_task: asyncio.Task[None] | None = None

    @property
    def voters(self) -> VoterSet:
        return self._log.voters.latest

    @property
    def other_voters(self) -> VoterSet:
        return tuple(voter for voter in self.voters if voter.key != self.me.key)

    @property
    def is_voter(self) -> bool:
        return any(voter.key == self.me.key for voter in self.voters)

    # --- start of the epoch

    async def establish(self, *, writes_voters: bool) -> None:
        """Commits the first records of the epoch. `writes_voters`: the voters are in no record yet.
        Raises KAFKA_STORAGE_ERROR, NOT_CONTROLLER."""
        if writes_voters:
            self._log.append_voters(self.voters, self.epoch)
        await self._append([LeaderChangeRecord(self.me.broker, self.epoch)])
        self.is_established = True

    # --- records

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """Appends the records as one batch, and returns what they change in the image when they are
        committed. Raises NOT_CONTROLLER; KAFKA_STORAGE_ERROR when the append fails. If there are
        other voters, that ends the epoch: this broker could not commit later records either."""
        if self.is_over or not self.is_established:
            raise KafkaError(ErrorCode.not_controller, "this broker does not lead the metadata log")
        try:
            committed = self._append(records)
        except KafkaError as reason:
            if len(self.voters) > 1:
                self.fail(reason)
            raise
        return await committed

    def _append(self, records: Sequence[MetadataRecord]) -> "asyncio.Future[MetadataDelta]":
        committed = self._log.append_as_leader(records, self.epoch)
        self._start_sync()
        return committed

    def _start_sync(self) -> None:
        self._notify()
        if self._sync_task is None:
            self._sync_task = asyncio.get_running_loop().create_task(self._sync_log())

    async def _sync_log(self) -> None:
        """Syncs appended records; those appended during a sync are synced by the next one."""
        try:
            while not self.is_over and self._synced_offset < (end := self._log.end_offset):
                await self._log.partition_log.wait_until_synced(end)
                self._synced_offset = end
                self._maybe_advance_high_watermark()
        except KafkaError as reason:
            self.fail(reason)
        finally:
            self._sync_task = None

    def _maybe_advance_high_watermark(self) -> None:
        if self.is_over:
            return
        offset = next_high_watermark(
            self.acknowledged_offsets,
            [voter.key for voter in self.voters],
            high_watermark=self._log.high_watermark,
            epoch_start_offset=self.epoch_start_offset,
        )
        if self._log.high_watermark < offset:
            try:
                self._log.advance_high_watermark(offset)
            except KafkaError as reason:
                self.fail(reason)
            self._notify()

    @property
    def acknowledged_offsets(self) -> dict[ReplicaKey, int]:
        """The offset up to which each replica, this one too, has the log on disk."""
        offsets = {key: replica.acknowledged_offset for key, replica in self.replicas.items()}
        offsets[self.me.key] = self._synced_offset
        return offsets

    # --- voters

    def can_change_voters(self, proposed: VoterSet) -> bool:
        """See `voter_set.can_change_voters`."""
        return not self.is_over and can_change_voters(
            self.voters,
            proposed,
            voters_offset=self._log.voters.latest_offset,
            high_watermark=self._log.high_watermark,
            epoch_start_offset=self.epoch_start_offset,
        )

    async def change_voters(self, proposed: VoterSet) -> None:
        """Appends a voter set that `can_change_voters` allows; returns when it is committed. Raises
        KAFKA_STORAGE_ERROR, NOT_CONTROLLER."""
        try:
            offset = self._log.append_voters(proposed, self.epoch)
        except KafkaError as reason:
            self.fail(reason)
            raise
        self.voters_changed_s = self._now()
        self._start_sync()
        while self._log.high_watermark <= offset:
            if self.is_over:
                raise KafkaError(ErrorCode.not_controller, "this broker no longer leads the metadata log")
            await self.wait_for_change()

    # --- followers

    async def handle_fetch(self, request: MetadataFetchRequest) -> MetadataFetchResponse:
        """The response to a broker's fetch, as soon as there are records, a divergence or a new
        high watermark for it, or after `max_wait_ms`.
        """
        if request.leader_epoch != self.epoch:
            is_older = request.leader_epoch < self.epoch
            return self._refuse(ErrorCode.fenced_leader_epoch if is_older else ErrorCode.unknown_leader_epoch)
        replica = self._record_fetch(request)
        deadline_s = self._now() + request.max_wait_ms / 1000
        while not self.is_over:
            if (response := self._build_response(request, replica)) is not None:
                return response
            remaining_s = deadline_s - self._now()
            if remaining_s <= 0:
                return MetadataFetchResponse(high_watermark=self._reportable_high_watermark())
            await self.wait_for_change(remaining_s)
        return MetadataFetchResponse(ErrorCode.not_leader_or_follower)

    def _refuse(self, error: ErrorCode) -> MetadataFetchResponse:
        return MetadataFetchResponse(error, leader=LeaderAndEpoch(self.epoch, self.me.broker, self.me.endpoint))

    def _record_fetch(self, request: MetadataFetchRequest) -> ReplicaState | None:
        """Records the time of the fetch and returns the state of the sender. None for a sender
        without a directory id, whose fetches acknowledge nothing.
        """
        if request.directory_id is None:
            return None
        key = ReplicaKey(request.replica_id, request.directory_id)
        now_s = self._now()
        replica = self.replicas.get(key)
        if replica is None:
            replica = self.replicas[key] = ReplicaState(key, now_s, self.started_s)
            self._notify()
        replica.last_fetch_s = now_s
        return replica

    def _build_response(
        self, request: MetadataFetchRequest, replica: ReplicaState | None
    ) -> MetadataFetchResponse | None:
        """None while the follower is up to date."""
        offset = request.log_end.offset
        if (divergence := self._log.find_divergence(request.log_end)) is not None:
            return divergence
        if replica is not None and replica.acknowledged_offset != offset:
            replica.acknowledged_offset = offset
            self._maybe_advance_high_watermark()
        if replica is not None and offset >= self._log.high_watermark:
            replica.last_caught_up_s = self._now()
        high_watermark, log = self._reportable_high_watermark(), self._log.partition_log
        if offset == log.end and request.high_watermark >= high_watermark:
            return None
        records = bytes(log.read(offset, request.max_bytes, up_to=log.end))
        return MetadataFetchResponse(high_watermark=high_watermark, log_start_offset=log.start, records=records)

    def _reportable_high_watermark(self) -> int:
        """Unknown until a record of this epoch is committed, because before that it may be below
        the high watermark that followers know.
        """
        high_watermark = self._log.high_watermark
        return high_watermark if high_watermark > self.epoch_start_offset else UNKNOWN_OFFSET

    def hears_majority(self, within_s: float) -> bool:
        """True if this broker leads and a majority of the voters has fetched within this time."""
        return not self.is_over and self._now() - self.majority_heard_s <= within_s

    @property
    def majority_heard_s(self) -> float:
        """The last time, by the event loop's clock, at which a majority of the voters had fetched.
        The election counts as such a time.
        """
        voters = self.voters
        if len(voters) == 1 and voters[0].key == self.me.key:  # read by each request of a group
            return self._now()
        heard = [self.last_fetch_s(voter.key) for voter in voters]
        return sorted(heard, reverse=True)[majority_size(len(heard)) - 1]

    def last_fetch_s(self, key: ReplicaKey) -> float:
        """When the replica last fetched; the start of the epoch if it has not. For this broker's
        own replica, the present time.
        """
        if key == self.me.key:
            return self._now()
        replica = self.replicas.get(key)
        return self.started_s if replica is None else replica.last_fetch_s

    def is_caught_up(self, key: ReplicaKey, within_s: float) -> bool:
        """True if the replica has fetched within this time and its disk has all committed
        records.
        """
        replica = self.replicas.get(key)
        if replica is None:
            return key == self.me.key
        is_alive = self._now() - replica.last_fetch_s <= within_s
        return is_alive and replica.acknowledged_offset >= self._log.high_watermark

    def describe(self, now_ms: int) -> QuorumDescription:
        """The quorum for DescribeQuorum. `now_ms`: wall clock."""

        def describe_replica(key: ReplicaKey) -> QuorumReplica:
            replica = self.replicas.get(key)
            if key == self.me.key:
                return QuorumReplica(key, self._synced_offset, now_ms, now_ms)
            if replica is None:
                return QuorumReplica(key)
            return QuorumReplica(
                key,
                replica.acknowledged_offset,
                last_fetch_ms=now_ms - round((self._now() - replica.last_fetch_s) * 1000),
                last_caught_up_ms=now_ms - round((self._now() - replica.last_caught_up_s) * 1000),
            )

        voters = sorted(voter.key for voter in self.voters)
        return QuorumDescription(
            leader_id=self.me.broker,
            leader_epoch=self.epoch,
            high_watermark=self._log.high_watermark,
            voters=tuple(describe_replica(key) for key in voters),
            observers=tuple(describe_replica(key) for key in sorted(self.replicas) if key not in voters),
            endpoints={voter.broker: voter.endpoint for voter in self.voters if voter.endpoint is not None},
        )

    # --- end of the epoch

    def fail(self, reason: KafkaError) -> None:
        """Ends the epoch because of an error of this broker's log, so that another voter can
        lead.
        """
        if not self.is_over:
            self.failure = reason
            self.end_term()

    def end_term(self) -> None:
        """Ends the epoch: fails pending commits and fetches. Without effect if it is over."""
        if not self.is_over:
            self.is_over = True
            self._log.fail_pending_commits()
            self._notify()
            self._on_ended()

    # --- waiting

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, timeout_s: float | None = None) -> None:
        """Returns at the next change, or at the timeout."""
        await wait_for_event(self._changed, timeout_s)
