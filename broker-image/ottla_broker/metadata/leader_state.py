"""The office of the metadata log's leader in one epoch: whom it has heard, what they have, what is committed.

Invariants, of which `quorum_rules` says why they suffice:
- Nobody is told anything of the log before enough members were heard in this epoch and the most advanced of their logs was taken over.
- Nothing counts as committed before a record of this epoch does.
- A fetch counts as an acknowledgement only where the follower's log is a beginning of this one; followers ask when they have fsynced.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla_broker.metadata.image import MetadataDelta
from ottla_broker.metadata.metadata_fetch import UNKNOWN_OFFSET, MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_rules import EpochAndOffset, committed_offset, election_quorum_size, majority_size
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.register import RegisterValue, ReplicaKey, Voter
from ottla_broker.wire.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class ReplicaState:
    """`claim`: how far its log goes, as it said; `end`: as far as that is known to agree with ours. Times by the loop's clock."""

    key: ReplicaKey
    reported_log_end: EpochAndOffset
    last_fetch_s: float
    last_caught_up_s: float
    acknowledged_offset: int = 0


class LeaderState:
    """`now`: the loop's clock; `ended` is called once, when it is over."""

    def __init__(
        self, value: RegisterValue, me: Voter, log: MetadataLog, now: Callable[[], float], ended: Callable[[], None]
    ) -> None:
        self.epoch = value.epoch
        self.me = me
        self.voter_sets = [value.isr]  # two, while a change is on its way to the register
        self.replicas: dict[ReplicaKey, ReplicaState] = {}
        self.epoch_start_offset: int | None = None  # where the epoch begins; None until the log is taken over
        self.is_established = False
        self.is_over = False
        self.failure: KafkaError | None = None  # what this broker's own log said, if that ended it
        self.started_s = now()
        self._log = log
        self._now = now
        self._on_ended = ended
        self._synced_offset = 0
        self._changed = asyncio.Event()
        self._sync_task: asyncio.Task[None] | None = None

    # --- before it leads

    async def wait_for_election_quorum(self) -> tuple[ReplicaKey, EpochAndOffset] | None:
        """Waits until enough members have been heard; the most advanced of them, None when that is this broker itself."""
        while len(heard := self._heard_voters()) + 1 < election_quorum_size(len(self.voter_sets[0])):
            await self.wait_for_change()
        own = await self._log.wait_until_durable()
        best = max(heard, key=lambda follower: follower.reported_log_end, default=None)
        return (best.key, best.reported_log_end) if best is not None and best.reported_log_end > own else None

    def _heard_voters(self) -> list[ReplicaState]:
        others = [member.key for member in self.voter_sets[0] if member.key != self.me.key]
        return [self.replicas[key] for key in others if key in self.replicas]

    def remove_replica(self, key: ReplicaKey) -> None:
        """It could not be reached: it has to be heard anew."""
        self.replicas.pop(key, None)

    def start_epoch(self, records: Sequence[MetadataRecord]) -> "asyncio.Future[MetadataDelta]":
        """The log is taken over: the epoch begins with these records, and followers are answered from now on."""
        self.epoch_start_offset = self._log.log.end
        return self._append(records)

    # --- records

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """NOT_CONTROLLER; KAFKA_STORAGE_ERROR when the disk refuses: where there are others, they should lead then, because whatever else has to be
        decided would be refused too."""
        if self.is_over or not self.is_established:
            raise KafkaError(ErrorCode.not_controller, "this broker does not lead the metadata log")
        try:
            waiter = self._append(records)
        except KafkaError as reason:
            if len(self.voter_sets[0]) > 1:
                self.fail(reason)
            raise
        return await waiter

    def _append(self, records: Sequence[MetadataRecord]) -> "asyncio.Future[MetadataDelta]":
        waiter = self._log.append_as_leader(records, self.epoch)
        self._notify()
        if self._sync_task is None:
            self._sync_task = asyncio.get_running_loop().create_task(self._sync_log())
        return waiter

    async def _sync_log(self) -> None:
        """Brings to the device what was appended; what comes meanwhile is taken by the next round."""
        try:
            while not self.is_over and self._synced_offset < (end := self._log.log.end):
                await self._log.log.wait_until_synced(end)
                self._synced_offset = end
                self._maybe_advance_high_watermark()
        except KafkaError as reason:
            self.fail(reason)
        finally:
            self._sync_task = None

    def _maybe_advance_high_watermark(self) -> None:
        if self.epoch_start_offset is None or self.is_over:
            return
        ends = {key: follower.acknowledged_offset for key, follower in self.replicas.items()}
        ends[self.me.key] = self._synced_offset
        point = committed_offset(ends, self.voter_sets)
        if self.epoch_start_offset < point and self._log.high_watermark < point:
            try:
                self._log.advance_high_watermark(point)
            except KafkaError as reason:
                self.fail(reason)
            self._notify()

    def set_voter_sets(self, memberships: list[tuple[Voter, ...]]) -> None:
        self.voter_sets = memberships
        self._maybe_advance_high_watermark()

    @property
    def acknowledged_offsets(self) -> dict[ReplicaKey, int]:
        return {key: follower.acknowledged_offset for key, follower in self.replicas.items()} | {
            self.me.key: self._synced_offset
        }

    # --- followers

    async def handle_fetch(self, ask: MetadataFetchRequest) -> MetadataFetchResponse:
        """What a broker that fetches is told, when there is something to tell or `max_wait_ms` is over."""
        if ask.leader_epoch != self.epoch:
            return MetadataFetchResponse(
                ErrorCode.fenced_leader_epoch if ask.leader_epoch < self.epoch else ErrorCode.unknown_leader_epoch
            )
        follower = self._record_fetch(ask)
        deadline = self._now() + ask.max_wait_ms / 1000
        while not self.is_over:
            if self.epoch_start_offset is not None and (told := self._build_response(ask, follower)) is not None:
                return told
            left = deadline - self._now()
            if left <= 0:
                return MetadataFetchResponse(
                    high_watermark=UNKNOWN_OFFSET
                    if self.epoch_start_offset is None
                    else self._reportable_high_watermark()
                )
            await self.wait_for_change(left)
        return MetadataFetchResponse(ErrorCode.not_leader_or_follower)

    def _record_fetch(self, ask: MetadataFetchRequest) -> ReplicaState | None:
        if ask.directory_id is None:
            return None
        key = (ask.replica_id, ask.directory_id)
        now = self._now()
        follower = self.replicas.get(key)
        if follower is None:
            follower = self.replicas[key] = ReplicaState(key, ask.log_end, now, self.started_s)
            self._notify()
        follower.reported_log_end, follower.last_fetch_s = ask.log_end, now
        return follower

    def _build_response(self, ask: MetadataFetchRequest, follower: ReplicaState | None) -> MetadataFetchResponse | None:
        log = self._log.log
        if (elsewhere := self._log.find_divergence(ask.log_end)) is not None:
            return elsewhere
        if follower is not None and follower.acknowledged_offset != ask.log_end.offset:
            follower.acknowledged_offset = ask.log_end.offset
            self._maybe_advance_high_watermark()
        if follower is not None and ask.log_end.offset >= self._log.high_watermark:
            follower.last_caught_up_s = self._now()
        watermark = self._reportable_high_watermark()
        if ask.log_end.offset == log.end and ask.high_watermark >= watermark:
            return None
        records = bytes(log.read(ask.log_end.offset, ask.max_bytes, up_to=log.end))
        return MetadataFetchResponse(high_watermark=watermark, log_start_offset=log.start, records=records)

    def _reportable_high_watermark(self) -> int:
        """Nothing is said of what is committed before the first record of this epoch is: it might be less than what is known already."""
        return (
            self._log.high_watermark
            if self.epoch_start_offset is not None and self._log.high_watermark > self.epoch_start_offset
            else UNKNOWN_OFFSET
        )

    def hears_majority(self, within_s: float) -> bool:
        """Whether a majority of every membership has asked for something lately."""
        since = self._now() - within_s
        for members in self.voter_sets:
            heard = sum(
                1
                for member in members
                if member.key == self.me.key
                or ((follower := self.replicas.get(member.key)) is not None and follower.last_fetch_s >= since)
            )
            if heard < majority_size(len(members)):
                return False
        return True

    # --- its end

    def fail(self, reason: KafkaError) -> None:
        """Another member should lead; nothing if this leadership is over anyway."""
        if not self.is_over:
            self.failure = reason
            self.end_term()

    def end_term(self) -> None:
        """Whoever waits for this leader is told that it is none."""
        if not self.is_over:
            self.is_over = True
            self._log.fail_pending_commits()
            self._notify()
            self._on_ended()

    # --- waiting for something to change

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, within_s: float | None = None) -> None:
        """Returns at the next change, or when the time is over."""
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return
