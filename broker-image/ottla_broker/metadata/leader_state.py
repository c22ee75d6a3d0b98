"""The leader of the metadata log in one epoch: which replicas fetch, how far their logs go, what is committed.

Invariants; `quorum_rules` says why they suffice:
- The leader serves no records before it has heard from enough voters in this epoch and copied the most advanced of
  their logs.
- No record is committed before one of this epoch is.
- A fetch acknowledges records only if the follower's log is a prefix of this one. Followers fetch after an fsync.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla_broker.metadata.image import MetadataDelta
from ottla_broker.metadata.metadata_fetch import UNKNOWN_OFFSET, MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum import QuorumDescription, QuorumReplica
from ottla_broker.metadata.quorum_rules import (
    EpochAndOffset,
    ReplicaKey,
    Voter,
    committed_offset,
    election_quorum_size,
    majority_size,
)
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class ReplicaState:
    """`reported_log_end`: the end of its log, as it said; `acknowledged_offset`: up to where its log is known to equal
    this one. Times by the event loop's clock."""

    key: ReplicaKey
    reported_log_end: EpochAndOffset
    last_fetch_s: float
    last_caught_up_s: float
    acknowledged_offset: int = 0


class LeaderState:
    """`now`: the event loop's clock. `on_ended` is called once, when this broker no longer leads in the epoch."""

    def __init__(
        self,
        epoch: int,
        voters: tuple[Voter, ...],
        me: Voter,
        log: MetadataLog,
        now: Callable[[], float],
        on_ended: Callable[[], None],
    ) -> None:
        self.epoch = epoch
        self.me = me
        self.voter_sets = [voters]  # two while a change of voters is in flight
        self.replicas: dict[ReplicaKey, ReplicaState] = {}
        self.epoch_start_offset: int | None = None  # None until the most advanced log is copied
        self.is_established = False
        self.is_over = False
        self.failure: KafkaError | None = None  # the error of this broker's own log that ended the epoch
        self.started_s = now()
        self._log = log
        self._now = now
        self._on_ended = on_ended
        self._synced_offset = 0
        self._changed = asyncio.Event()
        self._sync_task: asyncio.Task[None] | None = None

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self.voter_sets[0]

    # --- start of the epoch

    async def wait_for_election_quorum(self) -> tuple[ReplicaKey, EpochAndOffset] | None:
        """Waits until enough voters have fetched; the one with the most advanced log, None if that is this broker."""
        while len(heard := self._heard_voters()) + 1 < election_quorum_size(len(self.voters)):
            await self.wait_for_change()
        own = await self._log.wait_until_durable()
        best = max(heard, key=lambda replica: replica.reported_log_end, default=None)
        return (best.key, best.reported_log_end) if best is not None and best.reported_log_end > own else None

    def _heard_voters(self) -> list[ReplicaState]:
        others = [voter.key for voter in self.voters if voter.key != self.me.key]
        return [self.replicas[key] for key in others if key in self.replicas]

    def remove_replica(self, key: ReplicaKey) -> None:
        """After a failed connection: the replica counts again once it fetches."""
        self.replicas.pop(key, None)

    def start_epoch(self, records: Sequence[MetadataRecord]) -> "asyncio.Future[MetadataDelta]":
        """Appends the first records of the epoch. From now on followers are served."""
        self.epoch_start_offset = self._log.end_offset
        return self._append(records)

    # --- records

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """NOT_CONTROLLER; KAFKA_STORAGE_ERROR when the append fails, which with other voters ends the epoch: this
        broker could not commit later records either."""
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
        self._notify()
        if self._sync_task is None:
            self._sync_task = asyncio.get_running_loop().create_task(self._sync_log())
        return committed

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
        if self.epoch_start_offset is None or self.is_over:
            return
        offset = committed_offset(self.acknowledged_offsets, self.voter_sets)
        if self.epoch_start_offset < offset and self._log.high_watermark < offset:
            try:
                self._log.advance_high_watermark(offset)
            except KafkaError as reason:
                self.fail(reason)
            self._notify()

    def set_voter_sets(self, voter_sets: list[tuple[Voter, ...]]) -> None:
        self.voter_sets = voter_sets
        self._maybe_advance_high_watermark()

    @property
    def acknowledged_offsets(self) -> dict[ReplicaKey, int]:
        offsets = {key: replica.acknowledged_offset for key, replica in self.replicas.items()}
        offsets[self.me.key] = self._synced_offset
        return offsets

    # --- followers

    async def handle_fetch(self, request: MetadataFetchRequest) -> MetadataFetchResponse:
        """The response to a broker's fetch, when there is news for it or `max_wait_ms` is over."""
        if request.leader_epoch < self.epoch:
            return MetadataFetchResponse(ErrorCode.fenced_leader_epoch)
        if request.leader_epoch > self.epoch:
            return MetadataFetchResponse(ErrorCode.unknown_leader_epoch)
        replica = self._record_fetch(request)
        deadline_s = self._now() + request.max_wait_ms / 1000
        while not self.is_over:
            if self.epoch_start_offset is not None and (response := self._build_response(request, replica)) is not None:
                return response
            remaining_s = deadline_s - self._now()
            if remaining_s <= 0:
                return MetadataFetchResponse(high_watermark=self._reportable_high_watermark())
            await self.wait_for_change(remaining_s)
        return MetadataFetchResponse(ErrorCode.not_leader_or_follower)

    def _record_fetch(self, request: MetadataFetchRequest) -> ReplicaState | None:
        if request.directory_id is None:
            return None
        key = (request.replica_id, request.directory_id)
        now_s = self._now()
        replica = self.replicas.get(key)
        if replica is None:
            replica = self.replicas[key] = ReplicaState(key, request.log_end, now_s, self.started_s)
            self._notify()
        replica.reported_log_end, replica.last_fetch_s = request.log_end, now_s
        return replica

    def _build_response(
        self, request: MetadataFetchRequest, replica: ReplicaState | None
    ) -> MetadataFetchResponse | None:
        """None while there is no news for the follower."""
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
        """Unknown until a record of this epoch is committed: before, it may be below the one that followers know."""
        high_watermark = self._log.high_watermark
        is_known = self.epoch_start_offset is not None and high_watermark > self.epoch_start_offset
        return high_watermark if is_known else UNKNOWN_OFFSET

    def hears_majority(self, within_s: float) -> bool:
        """True if a majority of every voter set has fetched within this time."""
        since_s = self._now() - within_s
        heard = {key for key, replica in self.replicas.items() if replica.last_fetch_s >= since_s} | {self.me.key}
        return all(
            sum(voter.key in heard for voter in voters) >= majority_size(len(voters)) for voters in self.voter_sets
        )

    def describe(self, now_ms: int) -> QuorumDescription:
        """`now_ms`: wall clock."""

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
        """Ends the epoch, so that another voter can lead."""
        if not self.is_over:
            self.failure = reason
            self.end_term()

    def end_term(self) -> None:
        """Fails pending commits and fetches."""
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
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
