"""The group coordinator of a broker: finds the shard that keeps a group and runs the group
protocol's requests on it.

Methods raise KafkaError with the error code for the client: NOT_COORDINATOR when another broker
leads the group's partition or this one has no session with the controller,
COORDINATOR_LOAD_IN_PROGRESS while the partition loads, COORDINATOR_NOT_AVAILABLE before
`__consumer_offsets` exists and when the partition could not be loaded or written. Methods for
members raise INVALID_GROUP_ID for the empty group id.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.coordination import classic_membership
from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.classic_group_requests import WaitingRequest
from ottla_broker.coordination.commit_checks import (
    check_commit,
    check_transactional_commit,
    find_group_with_offsets,
)
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.consumer_group_requests import ConsumerGroupRequests, Group
from ottla_broker.coordination.consumer_member import MEMBER_EPOCHS_SINCE
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.coordinator_shard import GroupCoordinatorShard
from ottla_broker.coordination.effects import JoinRequest, JoinResult, LeavingMember, SyncRequest, SyncResult
from ottla_broker.coordination.group_config import GroupCoordinatorConfig
from ottla_broker.coordination.group_type import CLASSIC
from ottla_broker.coordination.journal import Journal
from ottla_broker.coordination.loading import ShardState, load_shard, serving_shards, unload_shard
from ottla_broker.coordination.offsets import TopicOffsets
from ottla_broker.coordination.protocol_errors import require_group
from ottla_broker.coordination.records import OffsetCommit, OffsetCommitKey, coordinator_partition
from ottla_broker.coordination.share_group import ShareGroup
from ottla_broker.coordination.share_group_requests import ShareGroupRequests, ShareStatePersister
from ottla_broker.coordination.streams_group import StreamsGroup
from ottla_broker.coordination.streams_group_requests import StreamsGroupRequests
from ottla_broker.log.transaction_verification import VerificationGuard
from ottla_broker.runtime import Runtime
from ottla_broker.same_turn import SameTurnFuture
from ottla_broker.wire.errors import ErrorCode, KafkaError

VerifyTransaction = Callable[[int], Awaitable[None]]
"""Returns if the producer's transaction contains this partition of `__consumer_offsets`; raises
KafkaError otherwise.
"""


def without_share_states() -> ShareStatePersister:
    """Always raises COORDINATOR_NOT_AVAILABLE."""
    raise KafkaError(ErrorCode.coordinator_not_available, "there is no share coordinator")


@dataclass(eq=False, repr=False)
class GroupCoordinator:
    """`_partition_count` returns the number of partitions of `__consumer_offsets`, 0 while it does
    not exist. `_share_states`: the share coordinators. No client's request is served while
    `is_in_session` returns False: this broker does not reach the controller, which may have fenced
    it and elected another coordinator."""

    _runtime: Runtime
    config: GroupCoordinatorConfig
    metadata: CoordinatorMetadata
    _partition_count: Callable[[], int]
    is_in_session: Callable[[], bool] = lambda: True
    _share_states: Callable[[], ShareStatePersister] = without_share_states
    _shards: dict[int, GroupCoordinatorShard] = field(default_factory=dict)
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _expiring: asyncio.Task[None] | None = None

    # -- partitions of __consumer_offsets ----------------------------------------------------------

    async def load(self, journal: Journal) -> None:
        """Called when this broker begins to lead the journal's partition. Returns when the
        partition's groups are served, or when loading has failed."""
        if self._expiring is None:
            self._expiring = asyncio.get_running_loop().create_task(
                self._expire_offsets_periodically(), name="expire offsets"
            )
        shard = GroupCoordinatorShard(journal, self._runtime, self.config, self.metadata, self._share_states)
        await load_shard(self._shards, shard, journal, self._loading)

    def committed_offsets(self) -> Iterator[tuple[OffsetCommitKey, int]]:
        """The committed offsets of all groups whose partitions are loaded. Groups and offsets may
        come and go while they are read."""
        for shard in serving_shards(self._shards):
            for group_id in list(shard.offsets.group_ids()):
                for key, commit in list(shard.offsets.group_commits(group_id)):
                    yield key, commit.offset

    def unload(self, partition: int) -> None:
        """Drops the groups of a partition that this broker no longer leads."""
        unload_shard(self._shards, partition)

    def close(self) -> None:
        if self._expiring is not None:
            self._expiring.cancel()
            self._expiring = None
        for partition in list(self._shards):
            self.unload(partition)

    def partition_of(self, group_id: str) -> int:
        if (count := self._partition_count()) == 0:
            raise KafkaError(ErrorCode.coordinator_not_available, "__consumer_offsets does not exist yet")
        return coordinator_partition(group_id, count)

    def _shard_of(self, group_id: str) -> GroupCoordinatorShard:
        partition = self.partition_of(group_id)
        shard = self._shards.get(partition)
        if shard is None or not self.is_in_session():
            raise KafkaError(
                ErrorCode.not_coordinator,
                f"this broker does not lead __consumer_offsets-{partition}, or has no controller session",
            )
        shard.check_serving()
        return shard

    def _shard_of_named_group(self, group_id: str) -> GroupCoordinatorShard:
        """Raises INVALID_GROUP_ID for the group with the empty id, which only stores offsets."""
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id, "the group id is empty")
        return self._shard_of(group_id)

    # -- membership --------------------------------------------------------------------------------

    async def join_group(self, group_id: str, request: JoinRequest) -> JoinResult:
        """Returns when the member is in a generation or was rejected. An error is in the result, or
        raised as KafkaError. Sets `request.unique_suffix` if the request has no member id."""
        shard = self._shard_of_join(group_id, request)
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                self._set_unique_suffix(request)
                return await shard.consumer_groups.join_classic(group, request)
            shard.consumer_groups.delete_empty_group(group)
        elif isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.inconsistent_group_protocol, f"Group {group_id} is a share group.")
        elif isinstance(group, StreamsGroup):
            if not group.is_empty:
                raise KafkaError(ErrorCode.inconsistent_group_protocol, f"Group {group_id} is a streams group.")
            shard.streams_groups.delete_empty_group(group)
        pending: SameTurnFuture[JoinResult] = SameTurnFuture()
        self._join_classic_group(shard, shard.get_or_create_classic_group(group_id), request, pending)
        return await pending

    def try_join_group(self, group_id: str, request: JoinRequest, pending: WaitingRequest) -> bool:
        """Like `join_group`, but `pending` gets the result. False, with nothing done, if the group
        does not exist or is no classic group.
        """
        shard = self._shard_of_join(group_id, request)
        group = shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return False
        self._join_classic_group(shard, group, request, pending)
        return True

    def _shard_of_join(self, group_id: str, request: JoinRequest) -> GroupCoordinatorShard:
        shard = self._shard_of_named_group(group_id)
        low, high = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.invalid_session_timeout,
                f"session.timeout.ms is {request.session_timeout_ms}; {low} to {high} is allowed",
            )
        if request.member_id and group_id not in shard.groups:
            raise KafkaError(ErrorCode.unknown_member_id, f"no group {group_id!r}")
        return shard

    def _set_unique_suffix(self, request: JoinRequest) -> None:
        """Only a member without an id needs it."""
        if not request.member_id:
            request.unique_suffix = str(uuid.UUID(int=self._runtime.random.getrandbits(128), version=4))

    def _join_classic_group(
        self, shard: GroupCoordinatorShard, group: ClassicGroup, request: JoinRequest, pending: WaitingRequest
    ) -> None:
        self._set_unique_suffix(request)
        effects = classic_membership.join_group(group, request, pending, shard.timestamps())
        shard.classic_groups.run_effects(group, effects)

    async def sync_group(self, group_id: str, request: SyncRequest) -> SyncResult:
        """Returns when the leader's assignment is stored, or the group rebalances again."""
        shard = self._shard_of_named_group(group_id)
        group = self._existing_group(shard, group_id)
        if isinstance(group, ConsumerGroup):
            return shard.consumer_groups.sync_classic(group, request)
        pending: SameTurnFuture[SyncResult] = SameTurnFuture()
        shard.classic_groups.run_effects(group, classic_membership.sync_group(group, request, pending))
        return await pending

    def try_sync_group(self, group_id: str, request: SyncRequest, pending: WaitingRequest) -> bool:
        """Like `sync_group`, but `pending` gets the result. False, with nothing done, if the group
        does not exist or is no classic group.
        """
        shard = self._shard_of_named_group(group_id)
        group = shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return False
        shard.classic_groups.run_effects(group, classic_membership.sync_group(group, request, pending))
        return True

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """REBALANCE_IN_PROGRESS if the member has to rejoin. Raises the other errors."""
        shard = self._shard_of_named_group(group_id)
        group = self._existing_group(shard, group_id)
        if isinstance(group, ConsumerGroup):
            return shard.consumer_groups.heartbeat_classic(group, member_id, group_instance_id, generation)
        return classic_membership.heartbeat(group, member_id, group_instance_id, generation, shard.timestamps())

    def consumer_groups_of(self, group_id: str) -> ConsumerGroupRequests:
        """The part of this group's shard that serves consumer groups. Raises INVALID_GROUP_ID."""
        return self._shard_of_named_group(group_id).consumer_groups

    def share_groups_of(self, group_id: str) -> ShareGroupRequests:
        """The part of this group's shard that serves share groups. Raises INVALID_GROUP_ID."""
        return self._shard_of_named_group(group_id).share_groups

    def streams_groups_of(self, group_id: str) -> StreamsGroupRequests:
        """The part of this group's shard that serves streams groups. Raises INVALID_GROUP_ID."""
        return self._shard_of_named_group(group_id).streams_groups

    async def leave_group(self, group_id: str, members: Sequence[LeavingMember]) -> list[ErrorCode]:
        """One error code for each, in their order. If the group is then empty, returns when the
        write of that has ended; for a consumer group, when the members' removal is replicated."""
        shard = self._shard_of_named_group(group_id)
        group = shard.groups.get(group_id)
        if group is None or isinstance(group, ShareGroup | StreamsGroup):
            return [ErrorCode.unknown_member_id] * len(members)
        if isinstance(group, ConsumerGroup):
            return await shard.consumer_groups.leave_classic(group, members)
        codes, effects = classic_membership.leave_group(group, members, shard.timestamps())
        for write in shard.classic_groups.run_effects(group, effects):
            await asyncio.shield(write)  # if it fails, the members have left all the same
        return codes

    def _existing_group(self, shard: GroupCoordinatorShard, group_id: str) -> ClassicGroup | ConsumerGroup:
        group = shard.groups.get(group_id)
        if group is None or isinstance(group, ShareGroup | StreamsGroup):
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
        version: int = MEMBER_EPOCHS_SINCE,
    ) -> None:
        """Returns when all are replicated. `version`: of OffsetCommit. Raises GROUP_ID_NOT_FOUND
        for a share group, and what `commit_checks.check_commit` raises."""
        shard = self._shard_of(group_id)
        group = find_group_with_offsets(shard.groups, group_id)
        check_commit(group, group_id, member_id, group_instance_id, generation, version, commits)
        if (
            isinstance(group, ClassicGroup)
            and group.state in (GroupState.stable, GroupState.preparing)
            and member_id in group.members
        ):
            group.schedule_session_timeout(group.members[member_id], shard.timestamps())
        if commits:
            await shard.commit_offsets(
                group_id, {OffsetCommitKey(group_id, topic, at): commit for (topic, at), commit in commits.items()}
            )

    async def commit_transactional_offsets(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        producer: tuple[int, int],
        commits: Mapping[tuple[str, int], OffsetCommit],
        verify: VerifyTransaction,
    ) -> None:
        """Returns when all are replicated; they apply once the transaction of `producer` (id,
        epoch) commits. Raises what `check_transactional_commit` raises; GROUP_ID_NOT_FOUND for a
        share group; INVALID_TXN_STATE when the transaction ended; what `verify` raises."""
        producer_id, producer_epoch = producer
        shard = self._shard_of_named_group(group_id)
        guard: VerificationGuard | None = None
        if not shard.pending_offsets.has_open_transaction(producer_id, producer_epoch):
            guard = shard.verifications.begin(producer_id, producer_epoch)
            await verify(shard.partition)
            shard.check_serving()
        group = find_group_with_offsets(shard.groups, group_id)
        check_transactional_commit(group, group_id, member_id, group_instance_id, generation, commits)
        if guard is not None and not shard.verifications.is_valid(producer_id, guard):
            raise KafkaError(ErrorCode.invalid_txn_state, f"the transaction of producer {producer_id} has ended")
        if commits:
            by_key = {OffsetCommitKey(group_id, topic, at): commit for (topic, at), commit in commits.items()}
            await shard.commit_transactional_offsets(group_id, producer_id, producer_epoch, by_key)

    def has_open_transaction(self, partition: int, producer_id: int) -> bool:
        """True if the producer's transaction has offsets in a partition of `__consumer_offsets`."""
        shard = self._shards.get(partition)
        return shard is not None and shard.pending_offsets.has_offsets_of(producer_id)

    async def complete_transaction(
        self, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool
    ) -> None:
        """Ends a producer's transaction in one partition of `__consumer_offsets`. Returns when the
        marker is replicated. Raises NOT_LEADER_OR_FOLLOWER when another broker leads it."""
        if (shard := self._shards.get(partition)) is None:
            raise KafkaError(ErrorCode.not_leader_or_follower, f"another broker leads __consumer_offsets-{partition}")
        shard.check_serving()
        await shard.complete_transaction(producer_id, producer_epoch, coordinator_epoch, commit=commit)

    def has_pending_offset(self, group_id: str, topic: str, partition: int) -> bool:
        """True if an open transaction has committed an offset of the partition (KIP-447)."""
        return self._shard_of(group_id).pending_offsets.is_pending(group_id, topic, partition)

    def fetch_offsets(self, group_id: str, member_id: str | None = None, member_epoch: int = -1) -> TopicOffsets:
        """topic → partition → commit; empty for a group that does not exist. Callers must not
        change it. Raises GROUP_ID_NOT_FOUND for a share group. For a member of a consumer or
        streams group it raises UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH (ILLEGAL_GENERATION if the
        member uses the classic protocol)."""
        shard = self._shard_of(group_id)
        if isinstance(group := find_group_with_offsets(shard.groups, group_id), ConsumerGroup | StreamsGroup):
            group.check_fetch(member_id, member_epoch)
        return shard.offsets.group_offsets(group_id)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """One error code for each, GROUP_SUBSCRIBED_TO_TOPIC for topics that members consume.
        Raises GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP when the group has members that are not
        consumers, because their topics are unknown."""
        shard = self._shard_of_named_group(group_id)
        await shard.wait_for_pending_commits(group_id)
        shard.check_serving()
        if (group := find_group_with_offsets(shard.groups, group_id)) is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"no group {group_id!r}")
        if isinstance(group, ClassicGroup) and not (group.is_empty or group.uses_consumer_protocol):
            raise KafkaError(ErrorCode.non_empty_group, f"group {group_id!r} has members")
        codes = [
            ErrorCode.group_subscribed_to_topic if group.is_subscribed_to(topic) else ErrorCode.none
            for topic, _ in partitions
        ]
        await shard.delete_offsets(
            [
                OffsetCommitKey(group_id, topic, partition)
                for (topic, partition), code in zip(partitions, codes, strict=True)
                if code is ErrorCode.none
            ]
        )
        return codes

    async def delete_offsets_of_topics(self, topics: Mapping[str, UUID | None]) -> None:
        """Deletes the offsets of deleted topics (name → topic id) in every group of this
        coordinator. Offsets whose deletion fails expire later; they are never returned for another
        topic of the same name."""
        for shard in serving_shards(self._shards):
            for topic, topic_id in topics.items():
                with suppress(KafkaError):  # logged by the journal writer
                    await shard.delete_offsets_of_topic(topic, topic_id)

    # -- administration ----------------------------------------------------------------------------

    def list_groups(self) -> list[Group]:
        """All groups of this coordinator. Raises COORDINATOR_LOAD_IN_PROGRESS while a partition is
        loading, COORDINATOR_NOT_AVAILABLE while this broker has no session with the controller."""
        if not self.is_in_session():
            raise KafkaError(ErrorCode.coordinator_not_available)
        for shard in self._shards.values():
            if shard.state is ShardState.loading:
                shard.check_serving()
        return [group for shard in serving_shards(self._shards) for group in shard.groups.values()]

    def describe_group(self, group_id: str) -> ClassicGroup:
        """Raises GROUP_ID_NOT_FOUND."""
        return require_group(self._shard_of(group_id).groups, group_id, ClassicGroup, CLASSIC)

    async def delete_group(self, group_id: str) -> None:
        """Deletes a group with its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        await self._shard_of(group_id).delete_group(group_id)

    # -- expiry ------------------------------------------------------------------------------------

    async def expire_offsets(self) -> int:
        """Deletes offsets and groups after `offsets.retention.minutes`. Returns the number of
        deleted offsets."""
        count = 0
        for shard in serving_shards(self._shards):
            count += await shard.expire_offsets(self.config.offsets_retention_ms)
            await asyncio.sleep(0)
        return count

    async def _expire_offsets_periodically(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            if self.is_in_session():
                await self.expire_offsets()
