"""The synchronisation plan of mirrors with identical offsets."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from ottla_broker.config import FAILED_OVER, MIRROR_BOOTSTRAP_SERVERS, MIRROR_ROLE, PAUSED
from ottla_broker.metadata.image import MIRROR_RESOURCE
from ottla_broker.metadata.mirror_plans import MirrorReport, NewMirroredTopic
from ottla_broker.metadata.topic_plans import NewTopic
from ottla_broker.mirroring.mirror_config import mirror_configs
from ottla_broker.mirroring.source_cluster import SourceMetadata, SourceTopic, origin_clusters
from ottla_broker.mirroring.sync_plan import (
    AddPartitions,
    AlterTopicConfig,
    CreateMirroredTopic,
    RecreateMirroredTopic,
    RejectedTopic,
    UpdateOrigins,
    is_mirrored,
)
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.unit.async_tests import async_test
from tests.unit.mirroring.mirror_plan_world import HERE, MirrorPlanWorld, view
from tests.unit.topic_creation import create_topic


@async_test
async def test_topics_are_created_extended_and_configured_until_no_step_is_left() -> None:
    world = await MirrorPlanWorld().begin()
    configs: dict[str, Mapping[str, str]] = {
        "a": {"retention.ms": "5", "min.insync.replicas": "3", "unknown.setting": "x"}
    }
    assert [type(step) for step in await world.apply(view(a=2, b=1, __own=1), configs)] == [
        CreateMirroredTopic,
        CreateMirroredTopic,
    ]
    assert world.image.topic_config("a") == {"retention.ms": "5"}
    assert world.plan_steps(view(a=2, b=1), configs) == []
    configs["a"] = {"retention.bytes": "7"}
    assert await world.apply(view(a=4, b=1), configs) == [
        AddPartitions("a", 4),
        AlterTopicConfig("a", {"retention.ms": None, "retention.bytes": "7"}),
    ]
    assert world.plan_steps(view(a=4, b=1), configs) == []
    assert world.plan_steps(view(b=1), configs) == [], "a topic that was deleted at the source stays here"
    assert world.plan_steps(view(a=4), None) == [], "settings are not synchronised"


@async_test
async def test_topics_that_are_not_mirrored_are_not_changed() -> None:
    world = await MirrorPlanWorld().begin()
    await world.small.add_topic("a")
    (step,) = world.plan_steps(view(a=9), {"a": {"retention.ms": "5"}})
    assert isinstance(step, RejectedTopic) and "is not mirrored" in step.reason
    await world.apply(view(b=1))
    await world.set_configs(role=FAILED_OVER)
    (step,) = world.plan_steps(view(b=3), {"b": {"retention.ms": "5"}})
    assert isinstance(step, RejectedTopic) and "still failing over" in step.reason


@async_test
async def test_diverged_topic_is_recreated_only_with_resync() -> None:
    world = await MirrorPlanWorld().begin()
    await world.apply(view(a=2))
    before = world.image.topics["a"].id
    await world.report_stop("a", "it was truncated")
    assert world.plan_steps(view(a=2)) == []
    await world.set_configs(on_source_truncation="Resync")
    assert [type(step) for step in await world.apply(view(a=2))] == [RecreateMirroredTopic]
    assert world.image.topics["a"].id != before
    assert world.plan_steps(view(a=2)) == []
    other = SourceTopic("a", UUID(int=77777), {0: 1})
    (step,) = await world.apply(SourceMetadata("there", {}, {"a": other}, frozenset()))
    assert isinstance(step, RecreateMirroredTopic)
    assert world.image.mirrored_topics[world.image.topics["a"].id].source_id == other.id


@async_test
async def test_reports_are_accepted_from_the_current_leader_only() -> None:
    world = await MirrorPlanWorld().begin()
    await world.apply(view(a=1))
    topic = world.image.topics["a"]
    state = topic.partitions[0]
    good = MirrorReport(state.leader, topic.id, 0, state.leader_epoch, epochs=((4, 0),))
    await world.controller.mirror_control.report_partition(good)
    assert world.image.mirrored_partitions[topic.id, 0].epochs == ((4, 0),)
    for bad, code in (
        (MirrorReport(state.leader + 1, topic.id, 0, state.leader_epoch), ErrorCode.fenced_leader_epoch),
        (MirrorReport(state.leader, topic.id, 0, state.leader_epoch - 1), ErrorCode.fenced_leader_epoch),
        (MirrorReport(state.leader, topic.id, 5, state.leader_epoch), ErrorCode.unknown_topic_or_partition),
        (MirrorReport(state.leader, UUID(int=3), 0, state.leader_epoch), ErrorCode.unknown_topic_id),
    ):
        with pytest.raises(KafkaError) as caught:
            await world.controller.mirror_control.report_partition(bad)
        assert caught.value.code is code


@async_test
async def test_mirror_with_topics_cannot_be_removed_and_needs_a_source() -> None:
    world = await MirrorPlanWorld().begin()
    await world.apply(view(a=1))
    settings = world.image.configs[MIRROR_RESOURCE, "west"]
    with pytest.raises(KafkaError, match="cannot be removed while it has topics: 'a'"):
        await world.controller.alter_configs(MIRROR_RESOURCE, "west", dict.fromkeys(settings))
    with pytest.raises(KafkaError, match=r"bootstrap.servers is not set"):
        await world.set_configs(**{MIRROR_BOOTSTRAP_SERVERS.name: None})
    with pytest.raises(KafkaError, match="did you mean role"):
        await world.set_configs(rol=PAUSED)
    with pytest.raises(KafkaError, match=r"role cannot be 'Over'.*allowed: Replicate, Paused or FailedOver"):
        await world.set_configs(role="Over")
    assert world.image.active_mirror(world.image.topics["a"].id) is not None
    await world.set_configs(**{MIRROR_ROLE.name: FAILED_OVER})
    assert world.image.active_mirror(world.image.topics["a"].id) is None
    await world.controller.alter_configs(
        MIRROR_RESOURCE, "west", dict.fromkeys(world.image.configs[MIRROR_RESOURCE, "west"])
    )
    assert mirror_configs(world.image) == {}


def with_origins(source: SourceMetadata, *origins: str) -> SourceMetadata:
    """The source, whose topic `a` has these origins."""
    return replace(source, topics={**source.topics, "a": replace(source.topics["a"], origins=frozenset(origins))})


@async_test
async def test_topics_may_have_a_prefix() -> None:
    world = await MirrorPlanWorld().begin(prefix="west.")
    await world.small.add_topic("a")
    source, configs = view(a=2, b=1), {"a": {"retention.ms": "5"}}
    assert await world.apply(source, configs) == [
        CreateMirroredTopic(
            NewMirroredTopic("west", "west.a", "a", source.topics["a"].id, 2, 1, {"retention.ms": "5"}, ("there",))
        ),
        CreateMirroredTopic(NewMirroredTopic("west", "west.b", "b", source.topics["b"].id, 1, 1, {}, ("there",))),
    ]
    assert world.plan_steps(source, configs) == []
    assert world.image.active_mirror(world.image.topics["a"].id) is None, "the topic without the prefix is another"
    assert is_mirrored(world.image, mirror_configs(world.image)["west"], source.topics["a"])
    grown = replace(source, topics={**source.topics, "a": replace(source.topics["a"], leaders={0: 1, 1: 1, 2: 1})})
    assert await world.apply(grown, {"a": {}}) == [
        AddPartitions("west.a", 3),
        AlterTopicConfig("west.a", {"retention.ms": None}),
    ]
    with pytest.raises(
        KafkaError, match=r"prefix of mirror 'west' cannot be changed while it has topics: 'west.a', 2 in all"
    ):
        await world.set_configs(prefix="east.")
    with pytest.raises(KafkaError, match=r"prefix cannot be 'a/b'.*allowed: at most 100 letters"):
        await world.set_configs(prefix="a/b")
    await world.set_configs(prefix="west.", role=PAUSED)


@async_test
async def test_empty_prefix_may_be_set_and_removed() -> None:
    world = await MirrorPlanWorld().begin()
    await world.apply(view(a=1))
    await world.set_configs(prefix="")
    await world.set_configs(prefix=None)
    assert world.plan_steps(view(a=1)) == []


@async_test
async def test_records_of_this_cluster_are_not_mirrored_back() -> None:
    """Neither the topic's name at the source nor the number of clusters between matters."""
    world = await MirrorPlanWorld().begin(prefix="west.")
    source = with_origins(view(a=1, b=1), "far", HERE)
    assert [type(step) for step in await world.apply(source)] == [RejectedTopic, CreateMirroredTopic]
    (refused,) = world.plan_steps(source)
    assert isinstance(refused, RejectedTopic) and "has records from this cluster" in refused.reason
    assert "west.a" not in world.image.topics


@async_test
async def test_mirrored_topic_has_the_origins_of_its_source() -> None:
    world = await MirrorPlanWorld().begin()
    await world.apply(with_origins(view(a=1), "far"))
    assert origin_clusters(world.image, "a") == {"there", "far"}
    assert await world.apply(with_origins(view(a=1), "far", "farther")) == [
        UpdateOrigins("a", world.image.topics["a"].id, ("far", "farther", "there"))
    ]
    assert origin_clusters(world.image, "a") == {"there", "far", "farther"}
    await world.set_configs(role=FAILED_OVER)
    assert origin_clusters(world.image, "a") == set(), "after the failover its records are this cluster's own"


@async_test
async def test_topics_are_created_in_one_commit_and_rejected_one_by_one() -> None:
    world = await MirrorPlanWorld().begin()
    await create_topic(world.controller, NewTopic("c", 1, 1))
    requests = [NewMirroredTopic("west", name, name, UUID(int=9), 1, 1) for name in ("a", "c", "a", "b")]
    before = len(world.small.log.commits)
    answers = await world.controller.mirror_control.create_mirrored_topics(requests)
    assert [isinstance(answer, UUID) for answer in answers] == [True, False, False, True]
    assert len(world.small.log.commits) == before + 1
