"""One partition of `__consumer_offsets` and the groups that live in it: loads them, runs them, writes for them.

Groups decide (`join`, `sync`, `leave`, `rebalance`); a shard carries out what they decide: answers requests, writes
records, and wakes a group when its next deadline comes. A group has at most one timer, which is only ever moved
forward when it fires, so a heartbeat costs no timer, and a group without members has none at all.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from uuid import UUID

from ottla_broker.coordination import rebalance
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.effects import Answer, Effect, JoinResult, Now, SyncResult, Then
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.journal import Journal, JournalWriter
from ottla_broker.coordination.offsets import Offsets, expired
from ottla_broker.coordination.records import (
    OffsetCommit,
    OffsetCommitKey,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from ottla_broker.coordination.replay import CoordinatorLoader
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record

log = logging.getLogger(__name__)

SLICE_S = 0.005
"""How long loading holds the event loop before everybody else gets a turn."""


class Phase(Enum):
    loading = auto()
    serving = auto()
    failed = auto()
    closed = auto()


class Shard:
    """`groups` and `offsets` are what is replicated, and for groups in motion also what is about to be."""

    def __init__(self, journal: Journal, runtime: Runtime, settings: GroupCoordinatorConfig) -> None:
        self.partition = journal.partition
        self.phase = Phase.loading
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self._journal = journal
        self._runtime = runtime
        self._settings = settings
        self._writes = JournalWriter(journal, timeout_ms=settings.offsets_commit_timeout_ms)
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}  # group → (due in ms, timer)
        self._committing: dict[str, set[asyncio.Future[ErrorCode]]] = {}  # group → its commits on their way

    # -- life --------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Reads the journal and begins to serve; on an error it is `failed`, and says why in the log."""
        if self._is_closed():
            return
        began = self._loop.time()
        replay = CoordinatorLoader()
        try:
            await self._take_turns(self._steps(replay))
        except (KafkaError, OSError) as reason:
            self.phase = Phase.failed
            log.error("__consumer_offsets-%d could not be loaded: %s", self.partition, reason)
            return
        if self._is_closed():
            return
        self.phase = Phase.serving
        log.log(
            logging.INFO if replay.records else logging.DEBUG,
            "__consumer_offsets-%d: %d groups, %d offsets from %d records in %.0f ms",
            self.partition,
            len(self.groups),
            len(self.offsets),
            replay.records,
            (self._loop.time() - began) * 1000,
        )

    def _is_closed(self) -> bool:
        return self.phase is Phase.closed

    def _steps(self, replay: CoordinatorLoader) -> Iterator[None]:
        for chunk in self._journal.read():
            yield from replay.steps(chunk)
        yield from replay.finish()
        self.groups, self.offsets = replay.groups, replay.offsets
        yield from self._begin_sessions()

    async def _take_turns(self, steps: Iterable[None]) -> None:
        """Goes through the steps, with a pause for everybody else every few milliseconds; ends early when the shard is
        closed meanwhile."""
        breath = self._loop.time()
        for _ in steps:
            if self._loop.time() - breath > SLICE_S:
                await asyncio.sleep(0)
                breath = self._loop.time()
                if self._is_closed():
                    return

    def _begin_sessions(self) -> Iterator[None]:
        now = self.now()
        for group in list(self.groups.values()):
            for member in group.members.values():
                group.expect(member, now)
            if len(group.members) > self._settings.group_max_size:
                rebalance.prepare(group, self._settings, now, "it is larger than group.max.size now")
            self.run(group, group.take_effects())
            yield

    def close(self) -> None:
        """The partition is led elsewhere now: whoever waits is sent to look the coordinator up again."""
        self.phase = Phase.closed
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for group in self.groups.values():
            self._bury(group, ErrorCode.not_coordinator)

    def _bury(self, group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members.values():
            group.answer_join(member, JoinResult(member.id, error))
            group.answer_sync(member, SyncResult(error))
        group.move_to(GroupState.dead, self.now())
        for effect in group.take_effects():
            if isinstance(effect, Answer):
                _answer(effect)

    def check(self) -> None:
        """Whether requests can be answered from here."""
        if self.phase is Phase.loading:
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        if self.phase is Phase.failed:
            raise KafkaError(ErrorCode.coordinator_not_available, "the group's partition could not be loaded")
        if self.phase is Phase.closed:
            raise KafkaError(ErrorCode.not_coordinator)

    # -- groups ------------------------------------------------------------------------------------

    def now(self) -> Now:
        return Now(round(self._loop.time() * 1000), self._runtime.now_ms())

    def group_or_new(self, group_id: str) -> ClassicGroup:
        if (group := self.groups.get(group_id)) is None:
            group = self.groups[group_id] = ClassicGroup(group_id, state_since_ms=self._runtime.now_ms())
        return group

    def run(self, group: ClassicGroup, effects: Iterable[Effect]) -> list[asyncio.Future[ErrorCode]]:
        """Carries out what a group decided. The writes, for those who must wait for them."""
        writes = []
        for effect in effects:
            if isinstance(effect, Answer):
                _answer(effect)
                continue
            record = Record(
                self._runtime.now_ms(),
                encode_group_metadata_key(group.id),
                encode_group_metadata_value(effect.metadata),
            )
            write = self._writes.write_records([record])
            write.add_done_callback(_Stored(self, group, effect.then))
            writes.append(write)
        self._arm(group)
        return writes

    def stored(self, group: ClassicGroup, then: Then, error: ErrorCode) -> None:
        if self.phase is not Phase.closed:
            self.run(group, rebalance.stored(group, self._settings, then, error, self.now()))

    def _arm(self, group: ClassicGroup) -> None:
        if group.wake_ms is None:
            return
        if (armed := self._timers.get(group.id)) is not None:
            if armed[0] <= group.wake_ms:
                return
            armed[1].cancel()
        timer = self._loop.call_at(group.wake_ms / 1000, self._ring, group)
        self._timers[group.id] = group.wake_ms, timer

    def _ring(self, group: ClassicGroup) -> None:
        del self._timers[group.id]
        if self.groups.get(group.id) is not group:
            return
        self.run(group, rebalance.tick(group, self._settings, self.now()))

    # -- offsets -----------------------------------------------------------------------------------

    async def commit(self, group_id: str, commits: Mapping[OffsetCommitKey, OffsetCommit]) -> None:
        """Returns when they are replicated. The group was asked (`check_commit`) before."""
        now_ms = self._runtime.now_ms()
        records = [
            Record(now_ms, encode_offset_commit_key(*key), encode_offset_commit_value(commit))
            for key, commit in commits.items()
        ]

        def apply() -> None:
            self.group_or_new(group_id)
            for key, commit in commits.items():
                self.offsets.put(key, commit)

        write = self._writes.write_records(records, apply=apply)
        self._committing.setdefault(group_id, set()).add(write)
        write.add_done_callback(partial(self._committed, group_id))
        await ended(write)

    def _committed(self, group_id: str, write: asyncio.Future[ErrorCode]) -> None:
        on_their_way = self._committing[group_id]
        on_their_way.discard(write)
        if not on_their_way:
            del self._committing[group_id]

    async def settled(self, group_id: str) -> None:
        """Returns when no commit of the group is on its way: only then is it known which offsets a deletion has to
        name."""
        while on_their_way := self._committing.get(group_id):
            await asyncio.wait(list(on_their_way))

    async def delete_offsets(self, keys: Sequence[OffsetCommitKey]) -> None:
        present = [key for key in keys if self.offsets.get(*key) is not None]
        if present:
            await ended(self._writes.write_records(self._tombstones(present), apply=partial(self._forget, present)))

    def _tombstones(self, keys: Iterable[OffsetCommitKey]) -> list[Record]:
        now_ms = self._runtime.now_ms()
        return [Record(now_ms, encode_offset_commit_key(*key), None) for key in keys]

    def _forget(self, keys: Iterable[OffsetCommitKey]) -> None:
        for key in keys:
            self.offsets.remove(key)

    # -- ends of groups ----------------------------------------------------------------------------

    async def delete_group(self, group_id: str) -> None:
        """GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        await self.settled(group_id)
        self.check()
        if (group := self.groups.get(group_id)) is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"no group {group_id!r}")
        if group.state is not GroupState.empty:
            raise KafkaError(ErrorCode.non_empty_group, f"group {group_id!r} has members")
        await ended(self._end(group, [key for key, _ in self.offsets.keys_of(group_id)]))

    def _end(self, group: ClassicGroup, keys: list[OffsetCommitKey]) -> asyncio.Future[ErrorCode]:
        """Writes the tombstones of a group and of its last offsets, where it has any. The group is gone at once, so
        that whoever joins now begins a new one; should the write fail, it is back."""
        del self.groups[group.id]
        self._bury(group, ErrorCode.coordinator_not_available)
        records = [*self._tombstones(keys)]
        if group.is_written:
            records.append(Record(self._runtime.now_ms(), encode_group_metadata_key(group.id), None))
        if not records:
            done: asyncio.Future[ErrorCode] = self._loop.create_future()
            done.set_result(ErrorCode.none)
            return done
        write = self._writes.write_records(records, apply=partial(self._forget, keys))

        def back(done: asyncio.Future[ErrorCode]) -> None:
            if done.result() is not ErrorCode.none and self.phase is Phase.serving and group.id not in self.groups:
                group.state = GroupState.empty
                self.groups[group.id] = group

        write.add_done_callback(back)
        return write

    async def expire(self, retention_ms: int) -> int:
        """Forgets what nobody needs any more; the number of offsets. Writes for one group at a time."""
        count = 0
        for group in list(self.groups.values()):
            if (
                self.groups.get(group.id) is not group
                or group.id in self._committing
                or self.phase is not Phase.serving
            ):
                continue
            keys = expired(group, self.offsets, retention_ms=retention_ms, now_ms=self._runtime.now_ms())
            is_over = group.state is GroupState.empty and not group.pending_joins
            if is_over and len(keys) == sum(map(len, self.offsets.of(group.id).values())):
                error = await self._end(group, keys)
            elif keys:
                error = await self._writes.write_records(self._tombstones(keys), apply=partial(self._forget, keys))
            else:
                continue
            count += len(keys) if error is ErrorCode.none else 0
        return count

    async def topic_deleted(self, topic: str, topic_id: UUID | None) -> None:
        """Commits for a deleted topic go with it."""
        await self.delete_offsets(list(self.offsets.of_topic(topic, topic_id)))


class _Stored:
    """Tells the group that its write has ended."""

    __slots__ = ("_group", "_shard", "_then")

    def __init__(self, shard: Shard, group: ClassicGroup, then: Then) -> None:
        self._shard, self._group, self._then = shard, group, then

    def __call__(self, write: asyncio.Future[ErrorCode]) -> None:
        self._shard.stored(self._group, self._then, write.result())


def _answer(answer: Answer) -> None:
    ticket = answer.ticket
    assert isinstance(ticket, asyncio.Future)
    if not ticket.done():  # its connection may be gone
        ticket.set_result(answer.result)


async def ended(write: asyncio.Future[ErrorCode]) -> None:
    """Returns when the write has ended well; KafkaError otherwise. Who is cancelled while waiting (its connection
    closed) does not take the write along."""
    if (error := await asyncio.shield(write)) is not ErrorCode.none:
        raise KafkaError(error)
