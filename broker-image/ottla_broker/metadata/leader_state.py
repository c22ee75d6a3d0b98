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
from ottla_broker.metadata.metadata_fetch import UNKNOWN, MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_rules import EpochAndOffset, commit_point, majority_size, needed_to_lead
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.register import Member, MemberKey, RegisterValue
from ottla_broker.wire.errors import ErrorCode, KafkaError


@dataclass(slots=True)
class Follower:
    """`claim`: how far its log goes, as it said; `end`: as far as that is known to agree with ours. Times by the loop's clock."""

    key: MemberKey
    claim: EpochAndOffset
    heard_at: float
    caught_up_at: float
    end: int = 0


class LeaderState:
    """`now`: the loop's clock; `ended` is called once, when it is over."""

    def __init__(
        self, value: RegisterValue, me: Member, log: MetadataLog, now: Callable[[], float], ended: Callable[[], None]
    ) -> None:
        self.epoch = value.epoch
        self.me = me
        self.memberships = [value.isr]  # two, while a change is on its way to the register
        self.followers: dict[MemberKey, Follower] = {}
        self.start: int | None = None  # where the epoch begins; None until the log is taken over
        self.established = False
        self.over = False
        self.failure: KafkaError | None = None  # what this broker's own log said, if that ended it
        self.began_at = now()
        self._log = log
        self._now = now
        self._ended = ended
        self._durable = 0
        self._changed = asyncio.Event()
        self._syncing: asyncio.Task[None] | None = None

    # --- before it leads

    async def hear_enough(self) -> tuple[MemberKey, EpochAndOffset] | None:
        """Waits until enough members have been heard; the most advanced of them, None when that is this broker itself."""
        while len(heard := self._heard()) + 1 < needed_to_lead(len(self.memberships[0])):
            await self.change()
        own = await self._log.wait_until_durable()
        best = max(heard, key=lambda follower: follower.claim, default=None)
        return (best.key, best.claim) if best is not None and best.claim > own else None

    def _heard(self) -> list[Follower]:
        others = [member.key for member in self.memberships[0] if member.key != self.me.key]
        return [self.followers[key] for key in others if key in self.followers]

    def forget(self, key: MemberKey) -> None:
        """It could not be reached: it has to be heard anew."""
        self.followers.pop(key, None)

    def begin(self, records: Sequence[MetadataRecord]) -> "asyncio.Future[MetadataDelta]":
        """The log is taken over: the epoch begins with these records, and followers are answered from now on."""
        self.start = self._log.log.end
        return self._append(records)

    # --- records

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """NOT_CONTROLLER; KAFKA_STORAGE_ERROR when the disk refuses: where there are others, they should lead then, because whatever else has to be
        decided would be refused too."""
        if self.over or not self.established:
            raise KafkaError(ErrorCode.not_controller, "this broker does not lead the metadata log")
        try:
            waiter = self._append(records)
        except KafkaError as reason:
            if len(self.memberships[0]) > 1:
                self.fail(reason)
            raise
        return await waiter

    def _append(self, records: Sequence[MetadataRecord]) -> "asyncio.Future[MetadataDelta]":
        waiter = self._log.append(records, self.epoch)
        self._wake()
        if self._syncing is None:
            self._syncing = asyncio.get_running_loop().create_task(self._sync())
        return waiter

    async def _sync(self) -> None:
        """Brings to the device what was appended; what comes meanwhile is taken by the next round."""
        try:
            while not self.over and self._durable < (end := self._log.log.end):
                await self._log.log.wait_until_synced(end)
                self._durable = end
                self._advance()
        except KafkaError as reason:
            self.fail(reason)
        finally:
            self._syncing = None

    def _advance(self) -> None:
        if self.start is None or self.over:
            return
        ends = {key: follower.end for key, follower in self.followers.items()}
        ends[self.me.key] = self._durable
        point = commit_point(ends, self.memberships)
        if self.start < point and self._log.high_watermark < point:
            try:
                self._log.advance(point)
            except KafkaError as reason:
                self.fail(reason)
            self._wake()

    def set_memberships(self, memberships: list[tuple[Member, ...]]) -> None:
        self.memberships = memberships
        self._advance()

    @property
    def ends(self) -> dict[MemberKey, int]:
        return {key: follower.end for key, follower in self.followers.items()} | {self.me.key: self._durable}

    # --- followers

    async def answer(self, ask: MetadataFetchRequest) -> MetadataFetchResponse:
        """What a broker that fetches is told, when there is something to tell or `max_wait_ms` is over."""
        if ask.leader_epoch != self.epoch:
            return MetadataFetchResponse(
                ErrorCode.fenced_leader_epoch if ask.leader_epoch < self.epoch else ErrorCode.unknown_leader_epoch
            )
        follower = self._note(ask)
        deadline = self._now() + ask.max_wait_ms / 1000
        while not self.over:
            if self.start is not None and (told := self._tell(ask, follower)) is not None:
                return told
            left = deadline - self._now()
            if left <= 0:
                return MetadataFetchResponse(high_watermark=UNKNOWN if self.start is None else self._told_watermark())
            await self.change(left)
        return MetadataFetchResponse(ErrorCode.not_leader_or_follower)

    def _note(self, ask: MetadataFetchRequest) -> Follower | None:
        if ask.directory_id is None:
            return None
        key = (ask.replica_id, ask.directory_id)
        now = self._now()
        follower = self.followers.get(key)
        if follower is None:
            follower = self.followers[key] = Follower(key, ask.log_end, now, self.began_at)
            self._wake()
        follower.claim, follower.heard_at = ask.log_end, now
        return follower

    def _tell(self, ask: MetadataFetchRequest, follower: Follower | None) -> MetadataFetchResponse | None:
        log = self._log.log
        if (elsewhere := self._log.differs(ask.log_end)) is not None:
            return elsewhere
        if follower is not None and follower.end != ask.log_end.offset:
            follower.end = ask.log_end.offset
            self._advance()
        if follower is not None and ask.log_end.offset >= self._log.high_watermark:
            follower.caught_up_at = self._now()
        watermark = self._told_watermark()
        if ask.log_end.offset == log.end and ask.high_watermark >= watermark:
            return None
        records = bytes(log.read(ask.log_end.offset, ask.max_bytes, up_to=log.end))
        return MetadataFetchResponse(high_watermark=watermark, log_start_offset=log.start, records=records)

    def _told_watermark(self) -> int:
        """Nothing is said of what is committed before the first record of this epoch is: it might be less than what is known already."""
        return self._log.high_watermark if self.start is not None and self._log.high_watermark > self.start else UNKNOWN

    def hears_majority(self, within_s: float) -> bool:
        """Whether a majority of every membership has asked for something lately."""
        since = self._now() - within_s
        for members in self.memberships:
            heard = sum(
                1
                for member in members
                if member.key == self.me.key
                or ((follower := self.followers.get(member.key)) is not None and follower.heard_at >= since)
            )
            if heard < majority_size(len(members)):
                return False
        return True

    # --- its end

    def fail(self, reason: KafkaError) -> None:
        """Another member should lead; nothing if this leadership is over anyway."""
        if not self.over:
            self.failure = reason
            self.end()

    def end(self) -> None:
        """Whoever waits for this leader is told that it is none."""
        if not self.over:
            self.over = True
            self._log.give_up()
            self._wake()
            self._ended()

    # --- waiting for something to change

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self, within_s: float | None = None) -> None:
        """Returns at the next change, or when the time is over."""
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return
