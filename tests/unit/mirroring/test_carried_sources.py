"""An identical mirror of a topic with appended sources knows these sources, and another mirror can
continue with them after a failover."""

from dataclasses import replace
from uuid import UUID

import pytest
from msgspec.structs import replace as replace_fields

from ottla_broker.config import FAILED_OVER, REPLICATE
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.metadata.appended_sources import (
    AppendedSourceDescription,
    active_sources,
    describe_sources,
    retained_sources,
)
from ottla_broker.metadata.image import MIRROR_RESOURCE
from ottla_broker.metadata.mirror_plans import MirrorReport, NewMirroredTopic
from ottla_broker.metadata.records import AppendedSourceRecord
from ottla_broker.mirroring.mirror_config import mirror_configs
from ottla_broker.mirroring.source_cluster import MirroredAtSource, SourceMetadata, SourceTopic
from ottla_broker.mirroring.sync_plan import (
    AddSource,
    CreateMirroredTopic,
    RejectedTopic,
    UpdateOrigins,
    plan_appended,
    plan_identical,
)
from ottla_broker.wire.errors import KafkaError
from tests.unit.async_tests import async_test
from tests.unit.mirroring.mirror_plan_world import HERE, MirrorPlanWorld, view

NEWARK = AppendedSourceDescription(UUID(int=1), "newark", "t", FIRST_RESERVED_PRODUCER_ID + 11, 2)
NEWYORK = AppendedSourceDescription(UUID(int=2), "newyork", "t", FIRST_RESERVED_PRODUCER_ID + 22, 2)
NEWARK_CLUSTER = SourceMetadata(
    "n", {1: ("h", 1)}, {"t": SourceTopic("t", NEWARK.source_id, {0: 1, 1: 1})}, frozenset()
)


def region(*sources: AppendedSourceDescription) -> SourceMetadata:
    """Metadata of the region's cluster, to whose topic `t` these sources are appended."""
    metadata = view(t=2)
    return replace(metadata, topics={"t": replace(metadata.topics["t"], sources=sources)})


class CarriedSourcesWorld(MirrorPlanWorld):
    """Mirrors the region's topic `t`, to which the source of Newark is appended there."""

    async def begin(self, **settings: str) -> "CarriedSourcesWorld":
        await super().begin(**settings)
        assert [type(step) for step in await self.apply(region(NEWARK))] == [CreateMirroredTopic]
        await self.controller.alter_configs(
            MIRROR_RESOURCE, "newark", {"bootstrap.servers": "n:1", "topics": "t", "offsets": "Appended"}
        )
        return self

    @property
    def topic_id(self) -> UUID:
        return self.image.topics["t"].id

    def sources(self) -> dict[UUID, AppendedSourceRecord]:
        return self.image.appended_sources[self.topic_id]

    async def fail_over(self) -> None:
        await self.set_configs(role=FAILED_OVER)
        for state in self.image.topics["t"].partitions.values():
            await self.controller.mirror_control.report_partition(
                MirrorReport(state.leader, self.topic_id, state.partition, state.leader_epoch, end=9)
            )

    async def append_newark(self) -> list[object]:
        """Plans the mirror `newark`, adds its source if the plan says so, and returns the steps."""
        steps = list(plan_appended(self.image, mirror_configs(self.image)["newark"], NEWARK_CLUSTER, None, 1, HERE))
        for step in steps:
            if isinstance(step, AddSource):
                await self.controller.mirror_control.add_source(step.source)
        return list(steps)


@async_test
async def test_carried_sources_are_known_and_updated() -> None:
    world = await CarriedSourcesWorld().begin()
    assert [(one.producer_id, one.carried) for one in world.sources().values()] == [
        (FIRST_RESERVED_PRODUCER_ID + 11, True)
    ]
    assert active_sources(world.image, world.topic_id) == {} and retained_sources(world.image, world.topic_id) == []
    assert [type(step) for step in await world.apply(region(NEWARK, NEWYORK))] == [UpdateOrigins]
    assert world.plan_steps(region(NEWARK, NEWYORK)) == [], "nothing else is left to do"
    assert describe_sources(world.image, world.topic_id) == [NEWARK, NEWYORK], "for mirrors of the mirror"
    assert world.plan_steps(region(NEWARK)) == [], "the log still has records of a source that is no longer reported"


@async_test
async def test_mirror_continues_with_the_carried_producer_id_after_a_failover() -> None:
    world = await CarriedSourcesWorld().begin()
    (refused,) = await world.append_newark()
    assert isinstance(refused, RejectedTopic) and "identical mirror" in refused.reason
    await world.fail_over()
    assert [one.producer_id for one in retained_sources(world.image, world.topic_id)] == [
        FIRST_RESERVED_PRODUCER_ID + 11
    ], "its position is retained"
    assert [type(step) for step in await world.append_newark()] == [AddSource]
    (active,) = active_sources(world.image, world.topic_id).values()
    assert (active.producer_id, active.mirror, active.ended, active.carried) == (
        FIRST_RESERVED_PRODUCER_ID + 11,
        "newark",
        False,
        False,
    )
    assert await world.append_newark() == []


@async_test
async def test_topic_with_active_sources_does_not_fail_back() -> None:
    world = await CarriedSourcesWorld().begin(on_divergence="Truncate")
    await world.fail_over()
    await world.append_newark()
    await world.set_configs(role=REPLICATE)
    reason = "mirror 'newark' appends records to it: end that first with the role FailedOver"
    (step,) = world.plan_steps(region(NEWARK))
    assert isinstance(step, RejectedTopic) and step.reason == reason
    other_way = SourceMetadata("there", {}, {"t": SourceTopic("t", UUID(int=99), {0: 1, 1: 1})}, frozenset())
    reverse = {"t": MirroredAtSource("back", world.topic_id, failed_over=True)}
    (step,) = plan_identical(world.image, mirror_configs(world.image)["west"], other_way, None, 1, HERE, reverse)
    assert isinstance(step, RejectedTopic) and step.reason == reason
    request = NewMirroredTopic("west", "t", "t", UUID(int=99), 2, 1)
    for command in (world.controller.mirror_control.fail_back, world.controller.mirror_control.adopt_topic):
        with pytest.raises(KafkaError, match="end that first"):
            await command(request, world.topic_id)
    # The source ends and the topic is mirrored again, while another cluster continues. Then the
    # topic fails over again.
    await world.controller.alter_configs(MIRROR_RESOURCE, "newark", {"role": FAILED_OVER})
    await world.controller.mirror_control.fail_back(
        replace_fields(request, source_id=world.image.mirrored_topics[world.topic_id].source_id, sources=(NEWARK,)),
        world.topic_id,
    )
    assert [one.carried for one in world.sources().values()] == [True]
    await world.set_configs(role=FAILED_OVER)
    await world.controller.alter_configs(MIRROR_RESOURCE, "newark", {"role": REPLICATE})
    assert [type(one) for one in await world.append_newark()] == [AddSource]
    assert [one.producer_id for one in active_sources(world.image, world.topic_id).values()] == [
        FIRST_RESERVED_PRODUCER_ID + 11
    ]
