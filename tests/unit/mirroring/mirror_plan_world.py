"""The metadata of a cluster that mirrors another one with identical offsets, and of its source."""

from uuid import UUID

from ottla_broker.config.validation import check_mirror_changes
from ottla_broker.metadata.image import MIRROR_RESOURCE, TOPIC_RESOURCE
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.mirroring.mirror_config import mirror_configs
from ottla_broker.mirroring.source_cluster import SourceMetadata, SourceTopic
from ottla_broker.mirroring.sync_plan import (
    AddPartitions,
    AlterTopicConfig,
    CreateMirroredTopic,
    RecreateMirroredTopic,
    RejectedTopic,
    SyncStep,
    TopicConfigs,
    UpdateOrigins,
    plan_identical,
)
from tests.unit.metadata.small_controller import SmallController

HERE = "here"  # this cluster's id


def view(**topics: int) -> SourceMetadata:
    """Metadata of a source with topics of the given partition counts."""
    return SourceMetadata(
        "there",
        {1: ("h", 1)},
        {
            name: SourceTopic(name, UUID(int=hash(name) % 1000 + 1), dict.fromkeys(range(count), 1))
            for name, count in topics.items()
        },
        frozenset(),
    )


class MirrorPlanWorld:
    """A target of three brokers with a mirror `west`.

    Steps are applied as the synchroniser applies them.
    """

    def __init__(self) -> None:
        self.small = SmallController()
        self.controller = self.small.controller
        self.image = self.small.image

    async def begin(self, **settings: str) -> "MirrorPlanWorld":
        await self.small.add_brokers(1, 2, 3)
        await self.set_configs(bootstrap_servers="h:1", topics="*", **settings)
        return self

    async def set_configs(self, **settings: str | None) -> None:
        changes = {key.replace("_", "."): value for key, value in settings.items()}
        check_mirror_changes(changes, self.image.configs.get((MIRROR_RESOURCE, "west"), {}))
        await self.controller.alter_configs(MIRROR_RESOURCE, "west", changes)

    def plan_steps(self, source: SourceMetadata, configs: TopicConfigs | None = None) -> list[SyncStep]:
        return list(plan_identical(self.image, mirror_configs(self.image)["west"], source, configs, 1, HERE))

    async def apply(self, source: SourceMetadata, configs: TopicConfigs | None = None) -> list[SyncStep]:
        """Carries out the planned steps, and returns them."""
        steps = self.plan_steps(source, configs)
        for step in steps:
            match step:
                case CreateMirroredTopic(topic):
                    (answer,) = await self.controller.mirror_control.create_mirrored_topics([topic])
                    assert isinstance(answer, UUID), answer
                case RecreateMirroredTopic(topic, old_id):
                    await self.controller.mirror_control.recreate_mirrored_topic(topic, old_id)
                case AddPartitions(name, count):
                    await self.controller.create_partitions(name, count)
                case AlterTopicConfig(name, changes):
                    await self.controller.alter_configs(TOPIC_RESOURCE, name, changes)
                case UpdateOrigins(_, topic_id, origins, sources):
                    await self.controller.mirror_control.update_origins(topic_id, origins, sources)
                case RejectedTopic():
                    pass
        return steps

    async def report_stop(self, name: str, why: str) -> None:
        topic = self.image.topics[name]
        state = topic.partitions[0]
        await self.controller.mirror_control.report_partition(
            MirrorReport(state.leader, topic.id, 0, state.leader_epoch, stopped=why)
        )
