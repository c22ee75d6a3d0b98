"""The synchronisation plan of mirrors with appended offsets."""

from uuid import UUID

import pytest

from ottla_broker.config import FAILED_OVER
from ottla_broker.log.producer_state import FIRST_RESERVED_PRODUCER_ID
from ottla_broker.metadata.appended_sources import active_sources
from ottla_broker.metadata.image import MIRROR_RESOURCE
from ottla_broker.metadata.mirror_plans import MirrorReport, NewMirroredTopic
from ottla_broker.metadata.records import AppendedSourceRecord
from ottla_broker.mirroring.mirror_config import mirror_configs
from ottla_broker.mirroring.source_cluster import SourceMetadata, SourceTopic, origin_clusters
from ottla_broker.mirroring.sync_plan import AddSource, RejectedTopic, ResumeSource, SyncStep, plan_appended
from ottla_broker.wire.errors import KafkaError
from tests.unit.async_tests import async_test
from tests.unit.metadata.small_controller import SmallController

HERE = "here"


def view(cluster: str, topic: SourceTopic) -> SourceMetadata:
    return SourceMetadata(cluster, {1: ("h", 1)}, {topic.name: topic}, frozenset())


def topic(number: int, partitions: int = 2, *origins: str) -> SourceTopic:
    return SourceTopic("t", UUID(int=number), dict.fromkeys(range(partitions), 1), frozenset(origins))


class AppendedPlanWorld:
    """A target of three brokers. Steps are applied as the synchroniser applies them."""

    async def begin(self, *mirrors: str, **settings: str) -> "AppendedPlanWorld":
        self.small = await SmallController().add_brokers(1, 2, 3)
        self.image, self.controller = self.small.image, self.small.controller
        for mirror in mirrors:
            await self.set_configs(mirror, bootstrap_servers="h:1", topics="*", offsets="Appended", **settings)
        return self

    async def set_configs(self, mirror: str, **settings: str) -> None:
        changes: dict[str, str | None] = {key.replace("_", "."): value for key, value in settings.items()}
        await self.controller.alter_configs(MIRROR_RESOURCE, mirror, changes)

    async def apply(self, mirror: str, source: SourceMetadata) -> list[SyncStep]:
        """Carries out the planned steps, and returns them."""
        steps = list(
            plan_appended(self.image, mirror_configs(self.image)[mirror], source, {"t": {"retention.ms": "5"}}, 1, HERE)
        )
        for step in steps:
            if isinstance(step, AddSource):
                await self.controller.mirror_control.add_source(step.source)
            elif isinstance(step, ResumeSource):
                await self.controller.mirror_control.resume_source(step.topic_id, step.source_id)
        return steps

    def sources(self) -> dict[UUID, AppendedSourceRecord]:
        return active_sources(self.image, self.image.topics["t"].id)


@async_test
async def test_schemas_are_not_appended_because_ids_of_two_registries_conflict() -> None:
    world = await AppendedPlanWorld().begin("west")
    schemas = SourceTopic("_schemas", UUID(int=1), {0: 1}, frozenset())
    (step,) = await world.apply("west", view("w", schemas))
    assert isinstance(step, RejectedTopic) and "same ids" in step.reason
    assert "_schemas" not in world.image.topics


@async_test
async def test_sources_share_a_topic_with_a_producer_id_each() -> None:
    world = await AppendedPlanWorld().begin("east", "west")
    assert [type(step) for step in await world.apply("east", view("e", topic(1)))] == [AddSource]
    assert [type(step) for step in await world.apply("west", view("w", topic(2)))] == [AddSource]
    assert world.image.topic_config("t") == {"retention.ms": "5"}, (
        "configs of the first source; from then on the topic has its own"
    )
    first, second = world.sources().values()
    assert (
        first.producer_id != second.producer_id
        and min(first.producer_id, second.producer_id) >= FIRST_RESERVED_PRODUCER_ID
    )
    assert world.image.is_writable(world.image.topics["t"].id, 0), "producers may write to it"
    assert origin_clusters(world.image, "t") == {"e", "w"}
    assert await world.apply("east", view("e", topic(1))) == []
    await world.apply("east", view("e", topic(1, 2, "far")))
    assert origin_clusters(world.image, "t") == {"e", "w", "far"}
    assert world.sources()[UUID(int=1)].producer_id == first.producer_id
    with pytest.raises(
        KafkaError, match=r"offsets of mirror 'east' cannot be changed while it has topics: 't', 1 in all"
    ):
        await world.set_configs("east", offsets="Identical")


@async_test
async def test_missing_partitions_are_reported_and_mirrored_once_they_exist() -> None:
    world = await AppendedPlanWorld().begin("east")
    await world.small.add_topic("t", 2)
    (join, refused) = await world.apply("east", view("e", topic(1, 3)))
    assert (
        isinstance(join, AddSource)
        and isinstance(refused, RejectedTopic)
        and "has 3 partitions, the topic here 2" in refused.reason
    )
    await world.controller.create_partitions("t", 3)
    assert await world.apply("east", view("e", topic(1, 3))) == []


@async_test
async def test_loop_is_rejected_and_a_source_that_becomes_one_stops() -> None:
    world = await AppendedPlanWorld().begin("east", "west")
    (refused,) = await world.apply("east", view("e", topic(1, 2, HERE)))
    assert isinstance(refused, RejectedTopic) and "has records from this cluster" in refused.reason
    assert "t" not in world.image.topics
    await world.apply("west", view("w", topic(2)))
    await world.apply("west", view("w", topic(2, 2, HERE)))
    assert world.sources()[UUID(int=2)].stopped and origin_clusters(world.image, "t") == set()
    await world.apply("west", view("w", topic(2)))
    assert not world.sources()[UUID(int=2)].stopped, "it resumes when the loop is gone"


@async_test
async def test_ended_source_does_not_restart_and_is_not_appended_twice() -> None:
    world = await AppendedPlanWorld().begin("east", "too")
    await world.apply("east", view("e", topic(1)))
    (refused,) = await world.apply("too", view("e", topic(1)))
    assert isinstance(refused, RejectedTopic) and "mirror 'east' appends or appended it" in refused.reason
    await world.set_configs("east", role=FAILED_OVER)
    assert world.sources() == {}
    await world.set_configs("east", role="Replicate")
    (refused,) = await world.apply("east", view("e", topic(1)))
    assert isinstance(refused, RejectedTopic) and "has ended permanently" in refused.reason
    assert world.sources() == {}


@async_test
async def test_recreated_and_stopped_sources_continue_only_with_resync() -> None:
    world = await AppendedPlanWorld().begin("east")
    await world.apply("east", view("e", topic(1)))
    here = world.image.topics["t"]
    state = here.partitions[0]
    report = MirrorReport(
        state.leader, here.id, 0, state.leader_epoch, source_id=UUID(int=1), stopped="it lost records"
    )
    await world.controller.mirror_control.report_partition(report)
    assert await world.apply("east", view("e", topic(1))) == []
    (refused,) = await world.apply("east", view("e", topic(3)))
    assert isinstance(refused, RejectedTopic) and "deleted and created again" in refused.reason
    await world.set_configs("east", **{"on.source.truncation": "Resync"})
    assert await world.apply("east", view("e", topic(1))) == [ResumeSource("t", here.id, UUID(int=1))]
    assert await world.apply("east", view("e", topic(1))) == []
    await world.apply("east", view("e", topic(3)))
    assert list(world.sources()) == [UUID(int=3)]
    with pytest.raises(KafkaError, match="no longer appended to the topic"):
        await world.controller.mirror_control.report_partition(replace_source(report, UUID(int=1)))


def replace_source(report: MirrorReport, source: UUID) -> MirrorReport:
    return MirrorReport(report.broker_id, report.topic_id, 0, report.leader_epoch, source_id=source, stopped="again")


@async_test
async def test_identical_mirror_accepts_no_source_and_its_source_is_not_appended() -> None:
    world = await AppendedPlanWorld().begin("east")
    await world.set_configs("copier", bootstrap_servers="h:1")
    (made,) = await world.controller.mirror_control.create_mirrored_topics(
        [NewMirroredTopic("copier", "t", "t", UUID(int=1), 2, 1)]
    )
    assert isinstance(made, UUID)
    (refused,) = await world.apply("east", view("e", topic(2)))
    assert isinstance(refused, RejectedTopic) and "is an identical mirror" in refused.reason
    await world.set_configs("copier", role=FAILED_OVER)
    (refused,) = await world.apply("east", view("e", topic(1)))
    assert isinstance(refused, RejectedTopic) and "would be appended a second time" in refused.reason
    assert [type(step) for step in await world.apply("east", view("e", topic(2)))] == [AddSource]
