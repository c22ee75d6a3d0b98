"""The group coordinator of a broker: finds the shard that keeps a group, and runs the group protocol's commands on it.

Commands raise KafkaError with the code that a client should see: NOT_COORDINATOR when the group's partition is led
elsewhere, COORDINATOR_LOAD_IN_PROGRESS while it loads, COORDINATOR_NOT_AVAILABLE when `__consumer_offsets` is not
there yet.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

from ottla_broker.coordination import leave as leaving
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.effects import JoinRequest, JoinResult, LeavingMember, SyncRequest, SyncResult
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.join import join
from ottla_broker.coordination.journal import Journal
from ottla_broker.coordination.offsets import TopicOffsets
from ottla_broker.coordination.offsets_topic import partition_of
from ottla_broker.coordination.records import OffsetCommit, OffsetCommitKey
from ottla_broker.coordination.shard import Phase, Shard
from ottla_broker.coordination.sync import sync
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError


class GroupCoordinator:
    """`partitions` says how many partitions `__consumer_offsets` has now, 0 while it does not exist. `serving` is
    asked before every command: false when this broker may have been replaced without knowing it (it cannot reach the
    controller)."""

    def __init__(
        self,
        runtime: Runtime,
        config: GroupCoordinatorConfig,
        partitions: Callable[[], int],
        serving: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings = config
        self.serving = serving
        self._runtime = runtime
        self._partitions = partitions
        self._shards: dict[int, Shard] = {}
        self._loading = asyncio.Lock()
        self._expiring: asyncio.Task[None] | None = None

    # -- which groups are ours ---------------------------------------------------------------------

    async def load(self, partition: int, journal: Journal) -> None:
        """This broker leads the partition now. Returns when its groups are served (or could not be loaded)."""
        self.unload(partition)
        shard = self._shards[partition] = Shard(journal, self._runtime, self.settings)
        if self._expiring is None:
            self._expiring = asyncio.get_running_loop().create_task(self._expire_now_and_then(), name="expire offsets")
        try:
            await journal.wait_until_recovered()
        except KafkaError:  # led elsewhere by now
            if self._shards.get(partition) is shard:  # `unload` was called before this began: nobody will again
                self.unload(partition)
            return
        async with self._loading:  # one at a time: else every partition takes its slice of the same turn of the loop
            await shard.load()

    def unload(self, partition: int) -> None:
        """This broker leads the partition no longer (or is about to load it anew)."""
        if (shard := self._shards.pop(partition, None)) is not None:
            shard.close()

    def close(self) -> None:
        if self._expiring is not None:
            self._expiring.cancel()
            self._expiring = None
        for partition in list(self._shards):
            self.unload(partition)

    def partition_of(self, group_id: str) -> int:
        if (count := self._partitions()) == 0:
            raise KafkaError(ErrorCode.coordinator_not_available, "__consumer_offsets does not exist yet")
        return partition_of(group_id, count)

    def _shard(self, group_id: str) -> Shard:
        partition = self.partition_of(group_id)
        shard = self._shards.get(partition)
        if shard is None or not self.serving():
            raise KafkaError(ErrorCode.not_coordinator, f"__consumer_offsets-{partition} is led elsewhere")
        shard.check()
        return shard

    def _named(self, group_id: str) -> Shard:
        """For commands that cannot be about the group without a name (which only ever stores offsets)."""
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id, "the group id is empty")
        return self._shard(group_id)

    # -- membership --------------------------------------------------------------------------------

    async def join_group(self, group_id: str, request: JoinRequest) -> JoinResult:
        """Returns when the member is in a new generation, or is told that it cannot be. `request.unique` is filled in
        here."""
        shard = self._named(group_id)
        low, high = self.settings.group_min_session_timeout_ms, self.settings.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.invalid_session_timeout,
                f"session.timeout.ms is {request.session_timeout_ms}; {low} to {high} is allowed",
            )
        if request.member_id and group_id not in shard.groups:
            raise KafkaError(ErrorCode.unknown_member_id, f"no group {group_id!r}")
        unique = uuid.UUID(int=self._runtime.random.getrandbits(128), version=4)
        request = replace(request, unique=str(unique))
        group = shard.group_or_new(group_id)
        ticket: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        shard.run(group, join(group, self.settings, request, ticket, shard.now()))
        return await ticket

    async def sync_group(self, group_id: str, request: SyncRequest) -> SyncResult:
        """Returns when the leader's assignment is stored, or when there will be none."""
        shard = self._named(group_id)
        group = self._existing(shard, group_id)
        ticket: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
        shard.run(group, sync(group, request, ticket))
        return await ticket

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> None:
        shard = self._named(group_id)
        leaving.heartbeat(self._existing(shard, group_id), member_id, group_instance_id, generation, shard.now())

    async def leave_group(self, group_id: str, members: Sequence[LeavingMember]) -> list[ErrorCode]:
        """One code for each, in their order. A group that is empty now has been written when this returns."""
        shard = self._named(group_id)
        if (group := shard.groups.get(group_id)) is None:
            return [ErrorCode.unknown_member_id] * len(members)
        codes, effects = leaving.leave(group, self.settings, members, shard.now())
        for write in shard.run(group, effects):
            await asyncio.shield(write)  # its failure is the group's own affair; the members have left
        return codes

    def _existing(self, shard: Shard, group_id: str) -> ClassicGroup:
        if (group := shard.groups.get(group_id)) is None:
            raise KafkaError(ErrorCode.unknown_member_id, f"no group {group_id!r}")
        return group

    # -- offsets -----------------------------------------------------------------------------------

    async def commit_offsets(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        commits: Mapping[tuple[str, int], OffsetCommit],
    ) -> None:
        """Returns when all are replicated. GROUP_ID_NOT_FOUND when a generation is named and there is no such group
        (before version 9 of OffsetCommit clients know it as ILLEGAL_GENERATION)."""
        shard = self._shard(group_id)
        group = shard.groups.get(group_id)
        if group is not None:
            group.check_commit(member_id, group_instance_id, generation)
            if group.state in (GroupState.stable, GroupState.preparing) and member_id in group.members:
                group.expect(group.members[member_id], shard.now())  # who commits is alive
        elif generation >= 0:
            raise KafkaError(ErrorCode.group_id_not_found, f"no group {group_id!r}")
        if commits:
            await shard.commit(
                group_id, {OffsetCommitKey(group_id, topic, at): commit for (topic, at), commit in commits.items()}
            )

    def fetch_offsets(self, group_id: str) -> TopicOffsets:
        """topic → partition → commit; empty for a group that does not exist. Not to be changed."""
        return self._shard(group_id).offsets.of(group_id)

    async def delete_offsets(self, group_id: str, wanted: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """One code for each. GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP for members that are not consumers, for then we
        cannot know what they read; GROUP_SUBSCRIBED_TO_TOPIC for what consumers do read."""
        shard = self._named(group_id)
        await shard.settled(group_id)
        shard.check()
        if (group := shard.groups.get(group_id)) is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"no group {group_id!r}")
        if group.state is not GroupState.empty and not group.uses_consumer_protocol:
            raise KafkaError(ErrorCode.non_empty_group, f"group {group_id!r} has members")
        codes = [
            ErrorCode.group_subscribed_to_topic if group.is_subscribed_to(topic) else ErrorCode.none
            for topic, _ in wanted
        ]
        await shard.delete_offsets(
            [
                OffsetCommitKey(group_id, topic, partition)
                for (topic, partition), code in zip(wanted, codes, strict=True)
                if code is ErrorCode.none
            ]
        )
        return codes

    async def delete_offsets_of_topics(self, topics: Mapping[str, UUID | None]) -> None:
        """Their offsets go with them, in every group that is ours; what cannot be written now is left to expire, for nobody is told it any more. name → id
        of the topic that was deleted."""
        for shard in self._serving_shards():
            for topic, topic_id in topics.items():
                with suppress(KafkaError):  # the journal has said why
                    await shard.topic_deleted(topic, topic_id)

    # -- administration ----------------------------------------------------------------------------

    def list_groups(self) -> list[ClassicGroup]:
        """All that are ours. COORDINATOR_LOAD_IN_PROGRESS while a part of them is not known yet."""
        if not self.serving():
            raise KafkaError(ErrorCode.coordinator_not_available)
        for shard in self._shards.values():
            if shard.phase is Phase.loading:
                shard.check()
        return [group for shard in self._serving_shards() for group in shard.groups.values()]

    def describe_group(self, group_id: str) -> ClassicGroup:
        """GROUP_ID_NOT_FOUND."""
        if (group := self._shard(group_id).groups.get(group_id)) is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        return group

    async def delete_group(self, group_id: str) -> None:
        """With its offsets. GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        await self._shard(group_id).delete_group(group_id)

    # -- expiry ------------------------------------------------------------------------------------

    async def expire(self) -> int:
        """Forgets offsets and groups that have outlived `offsets.retention.minutes`; the number of offsets."""
        count = 0
        for shard in self._serving_shards():
            count += await shard.expire(self.settings.offsets_retention_ms)
            await asyncio.sleep(0)
        return count

    async def _expire_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self.settings.offsets_retention_check_interval_ms / 1000)
            if self.serving():
                await self.expire()

    def _serving_shards(self) -> list[Shard]:
        return [shard for shard in self._shards.values() if shard.phase is Phase.serving]
