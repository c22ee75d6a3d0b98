"""A failover is reverted: the metadata of the topic, step by step."""

import pytest

from ottla_broker.config import FAILED_OVER, REPLICATE
from ottla_broker.metadata.mirror_plans import MirrorReport, NewMirroredTopic, mirrored_partition
from ottla_broker.mirroring.mirror_config import mirror_configs
from ottla_broker.mirroring.source_cluster import SourceMetadata, SourceTopic
from ottla_broker.mirroring.sync_plan import FailBackTopic, RejectedTopic, is_mirrored
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test
from tests.unit.mirroring.mirror_plan_world import MirrorPlanWorld, view


class RevertedFailoverWorld(MirrorPlanWorld):
    """Topic `t` with two partitions was mirrored and has failed over."""

    async def begin(self, **settings: str) -> "RevertedFailoverWorld":
        await super().begin(**settings)
        await self.apply(view(t=2))
        for partition in (0, 1):
            await self.report(partition, epochs=((4, 0), (7, 60)))
        await self.set_configs(role=FAILED_OVER)
        return self

    async def report(self, partition: int = 0, **fields: object) -> None:
        topic = self.image.topics["t"]
        state = topic.partitions[partition]
        report = MirrorReport(state.leader, topic.id, partition, state.leader_epoch, **fields)  # type: ignore[arg-type]
        await self.controller.mirror_control.report_partition(report)

    async def report_ends(self) -> None:
        for partition in (0, 1):
            await self.report(partition, end=100 + partition, source_end=105)

    async def fail_back(self) -> None:
        copy = self.image.mirrored_topics[self.image.topics["t"].id]
        request = NewMirroredTopic("west", "t", "t", copy.source_id, 2, 1, origins=copy.origins)
        await self.controller.mirror_control.fail_back(request, copy.topic)

    def is_writable(self) -> bool:
        return self.image.is_writable(self.image.topics["t"].id, 0)

    def rejection(self, source: SourceMetadata | None = None) -> str:
        (step,) = self.plan_steps(source or view(t=2))
        assert isinstance(step, RejectedTopic), step
        return step.reason


@async_test
async def test_failover_is_reverted_with_consent_once_its_offset_is_known() -> None:
    world = await RevertedFailoverWorld().begin()
    assert world.rejection() == "it is still failing over"
    await world.report_ends()
    mirrored = mirrored_partition(world.image, world.image.topics["t"].id, 0)
    assert (mirrored.end, mirrored.end_epoch) == (100, world.image.topics["t"].partitions[0].leader_epoch)
    assert "on.divergence=Truncate (onDivergence of a Mirror) mirrors it again" in world.rejection()
    assert world.is_writable()
    with pytest.raises(KafkaError, match="its role is FailedOver"):
        await world.fail_back()
    await world.set_configs(role=REPLICATE)
    with pytest.raises(KafkaError) as caught:
        await world.fail_back()
    assert caught.value.code is ErrorCode.policy_violation
    await world.set_configs(on_divergence="Truncate")
    assert "2 partitions here and 1 at the source" in world.rejection(view(t=1))
    (step,) = world.plan_steps(view(t=2))
    assert isinstance(step, FailBackTopic)
    await world.fail_back()
    assert not world.is_writable() and world.plan_steps(view(t=2)) == []


@async_test
async def test_failover_is_not_reverted_for_another_topic_or_in_a_loop() -> None:
    world = await RevertedFailoverWorld().begin(on_divergence="Truncate")
    await world.report_ends()
    other = SourceTopic("t", world.image.topics["t"].id, {0: 1, 1: 1})
    assert "the topic has failed over and has records of its own" in world.rejection(
        SourceMetadata("there", {}, {"t": other}, frozenset())
    )
    same = view(t=2).topics["t"]
    back = SourceTopic("t", same.id, same.leaders, frozenset({"here"}))
    assert "has records from this cluster" in world.rejection(SourceMetadata("there", {}, {"t": back}, frozenset()))


@async_test
async def test_partitions_join_at_the_failover_offset_and_can_fail_over_again() -> None:
    world = await RevertedFailoverWorld().begin(on_divergence="Truncate")
    await world.report_ends()
    topic, link = world.image.topics["t"].id, mirror_configs(world.image)["west"]
    await world.set_configs(role=REPLICATE)
    await world.fail_back()
    assert not is_mirrored(world.image, link, view(t=2).topics["t"])
    with pytest.raises(KafkaError, match="has not failed over"):
        await world.report(end=108)  # from a leader that does not know of the failback yet
    await world.set_configs(on_divergence="Stop")
    with pytest.raises(KafkaError, match="may not truncate"):
        await world.report(joined=100, cut=3)
    await world.report(1, joined=101)
    await world.set_configs(on_divergence="Truncate")
    await world.report(joined=100, cut=3)
    mirrored = mirrored_partition(world.image, topic, 0)
    assert (mirrored.end, mirrored.source_end, mirrored.end_epoch, mirrored.joined) == (-1, -1, -1, 100)
    assert mirrored.epochs == ((4, 0), (7, 60)) and is_mirrored(
        world.image, mirror_configs(world.image)["west"], view(t=2).topics["t"]
    )
    await world.report(joined=100, cut=3)  # from a leader that had not truncated
    with pytest.raises(KafkaError):
        await world.report(joined=99)
    await world.set_configs(role=FAILED_OVER)
    assert not world.is_writable()
    await world.report(end=130)
    assert world.is_writable() and mirrored_partition(world.image, topic, 0).end == 130


@async_test
async def test_failover_before_the_join_makes_the_topic_writable_as_before() -> None:
    world = await RevertedFailoverWorld().begin(on_divergence="Truncate")
    await world.report_ends()
    topic = world.image.topics["t"].id
    await world.set_configs(role=REPLICATE)
    await world.fail_back()
    await world.set_configs(role=FAILED_OVER)
    assert world.is_writable() and mirrored_partition(world.image, topic, 0).end == 100
    assert [type(step) for step in world.plan_steps(view(t=2))] == [FailBackTopic]
