"""Failback to the old source: the metadata of its topic, step by step."""

from uuid import UUID

import pytest

from ottla_broker.config import FAILED_OVER
from ottla_broker.metadata.mirror_plans import MirrorReport, NewMirroredTopic, mirrored_partition
from ottla_broker.mirroring.group_offsets import CommittedOffset, offsets_to_reset
from ottla_broker.mirroring.mirror_config import mirror_configs
from ottla_broker.mirroring.source_cluster import MirroredAtSource, SourceMetadata, SourceTopic
from ottla_broker.mirroring.sync_plan import (
    AdoptTopic,
    RecreateMirroredTopic,
    RejectedTopic,
    SyncStep,
    find_failback_candidates,
    is_mirrored,
    plan_identical,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test
from tests.unit.mirroring.mirror_plan_world import MirrorPlanWorld, view


class FailbackWorld(MirrorPlanWorld):
    """Topic `t` with two partitions, which the source's mirror `west` has mirrored."""

    async def begin(self, **settings: str) -> "FailbackWorld":
        await super().begin(**settings)
        await self.small.add_topic("t", partitions=2)
        return self

    @property
    def topic_id(self) -> UUID:
        return self.image.topics["t"].id

    def plan_failback(
        self, source: SourceMetadata | None = None, *, failed_over: bool = True, mirrored_id: UUID | None = None
    ) -> list[SyncStep]:
        at_source = {"t": MirroredAtSource("west", mirrored_id or self.topic_id, failed_over)}
        return list(
            plan_identical(
                self.image, mirror_configs(self.image)["west"], source or view(t=2), None, 1, "here", at_source
            )
        )

    async def adopt(self) -> None:
        (step,) = self.plan_failback()
        assert isinstance(step, AdoptTopic)
        await self.controller.mirror_control.adopt_topic(step.topic, step.topic_id)

    def _make_report(self, partition: int = 0, **fields: object) -> MirrorReport:
        state = self.image.topics["t"].partitions[partition]
        return MirrorReport(state.leader, self.topic_id, partition, state.leader_epoch, **fields)  # type: ignore[arg-type]

    async def report(self, partition: int = 0, **fields: object) -> None:
        await self.controller.mirror_control.report_partition(self._make_report(partition, **fields))

    async def check_report_is_refused(self, code: ErrorCode, **fields: object) -> None:
        with pytest.raises(KafkaError) as caught:
            await self.report(**fields)  # type: ignore[arg-type]
        assert caught.value.code is code


@async_test
async def test_topic_is_adopted_only_if_the_source_mirrored_this_topic_id() -> None:
    world = await FailbackWorld().begin()
    (unproven,) = world.plan_steps(view(t=2))
    assert isinstance(unproven, RejectedTopic) and "is not mirrored" in unproven.reason
    (another,) = world.plan_failback(mirrored_id=UUID(int=5))
    assert isinstance(another, RejectedTopic) and "is not mirrored" in another.reason
    (still,) = world.plan_failback(failed_over=False)
    assert isinstance(still, RejectedTopic) and "has not failed over" in still.reason
    (fewer,) = world.plan_failback(view(t=1))
    assert isinstance(fewer, RejectedTopic) and "2 partitions here and 1 at the source" in fewer.reason
    assert find_failback_candidates(
        world.image, mirror_configs(world.image)["west"], view(t=2, u=1).topics.values()
    ) == ["t"]
    assert world.image.active_mirror(world.topic_id) is None
    await world.adopt()
    assert world.image.active_mirror(world.topic_id) is not None
    assert (
        world.plan_failback() == []
        and find_failback_candidates(world.image, mirror_configs(world.image)["west"], view(t=2).topics.values()) == []
    )


@async_test
async def test_join_offset_begins_a_leader_epoch_and_truncation_needs_consent() -> None:
    world = await FailbackWorld().begin()
    await world.check_report_is_refused(ErrorCode.invalid_topic_exception, joined=5)
    await world.adopt()
    link, topic = mirror_configs(world.image)["west"], view(t=2).topics["t"]
    await world.check_report_is_refused(ErrorCode.policy_violation, joined=5, cut=3)
    assert mirrored_partition(world.image, world.topic_id, 0).joined == -1
    before = world.image.topics["t"].partitions[0]
    await world.report(joined=5, epochs=((2, 0),))
    after, mirrored = world.image.topics["t"].partitions[0], mirrored_partition(world.image, world.topic_id, 0)
    assert (after.leader, after.isr) == (before.leader, before.isr)
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch + 1, before.partition_epoch + 1)
    assert (mirrored.joined, mirrored.joined_epoch, mirrored.epochs) == (5, before.leader_epoch, ((2, 0),))
    assert not is_mirrored(world.image, link, topic), "one partition of two has joined"
    await world.set_configs(on_divergence="Truncate")
    await world.report(1, joined=7, cut=3)
    assert is_mirrored(world.image, link, topic)
    # A leader that had not truncated reports it again in its own epoch; the offset must be the
    # same.
    await world.set_configs(on_divergence="Stop")
    await world.report(1, joined=7, cut=3)
    again = mirrored_partition(world.image, world.topic_id, 1)
    assert again.joined_epoch == world.image.topics["t"].partitions[1].leader_epoch - 1 == before.leader_epoch + 1
    with pytest.raises(KafkaError):
        await world.report(1, joined=6, cut=3)


@async_test
async def test_topic_that_has_not_joined_is_never_recreated() -> None:
    world = await FailbackWorld().begin(on_source_truncation="Resync")
    await world.adopt()
    other = SourceMetadata("there", {}, {"t": SourceTopic("t", UUID(int=4711), {0: 1, 1: 1})}, frozenset())
    (step,) = world.plan_failback(other)
    assert isinstance(step, RejectedTopic) and "the records here stay" in step.reason
    for partition in (0, 1):
        await world.report(partition, joined=0)
    assert isinstance(world.plan_failback(other)[0], RecreateMirroredTopic)


@async_test
async def test_topic_can_fail_over_and_be_adopted_again() -> None:
    world = await FailbackWorld().begin()
    await world.adopt()
    for partition in (0, 1):
        await world.report(partition, joined=4, epochs=((1, 0),))
    await world.set_configs(role=FAILED_OVER)
    await world.report(end=9)
    assert world.image.is_writable(world.topic_id, 0) and not world.image.is_writable(world.topic_id, 1)
    await world.set_configs(role="Replicate")
    await world.adopt()
    assert not world.image.is_writable(world.topic_id, 0)
    mirrored = mirrored_partition(world.image, world.topic_id, 0)
    assert (mirrored.joined, mirrored.end, mirrored.epochs) == (-1, 9, ((1, 0),)), (
        "the failover offset and the epochs remain, the join offset does not"
    )
    assert not is_mirrored(world.image, mirror_configs(world.image)["west"], view(t=2).topics["t"])
    with pytest.raises(KafkaError, match="is already mirrored"):
        await world.controller.mirror_control.adopt_topic(
            NewMirroredTopic("west", "t", "t", UUID(int=1), 2, 1), world.topic_id
        )


def test_group_offsets_are_reset_to_the_remaining_end() -> None:
    here = {("t", 0): CommittedOffset(10, "m"), ("t", 1): CommittedOffset(3), ("u", 0): CommittedOffset(10)}
    assert offsets_to_reset(here, {("t", 0): 5, ("t", 1): 5}) == {("t", 0): CommittedOffset(5, "m")}
    assert offsets_to_reset(here, {("t", 0): 10}) == {}
