"""Plans for config changes: the config records, and the partition and mirror records that follow
from them. Pure.

Eligible leader replicas exist while the high watermark cannot advance because the ISR is below
min.insync.replicas. When that setting falls, leaders advance the high watermark, so the same commit
clears the eligible replicas of partitions whose ISR is now large enough. The commit that fails over
a mirror makes its topics writable.
"""

from collections.abc import Callable, Iterable, Mapping

from ottla_broker.config import (
    FAILED_OVER,
    MIRROR_OFFSETS,
    MIRROR_PREFIX,
    MIRROR_ROLE,
    TOPIC_MIN_INSYNC_REPLICAS,
    TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
)
from ottla_broker.metadata import appended_sources, mirror_plans
from ottla_broker.metadata.broker_plans import election_candidates
from ottla_broker.metadata.election import TopicElectionRules, state_after_unfencing, without_eligible_replicas
from ottla_broker.metadata.image import BROKER_RESOURCE, MIRROR_RESOURCE, TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla_broker.metadata.records import ConfigRecord, MetadataRecord, PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError

IMMUTABLE_WHILE_MIRRORING = (MIRROR_PREFIX, MIRROR_OFFSETS)  # while the mirror has topics
MIN_ISR_NAME, UNCLEAN_ELECTION_NAME = TOPIC_MIN_INSYNC_REPLICAS.name, TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE.name

RulesForConfig = Callable[[Mapping[str, str]], TopicElectionRules]
"""The election rules of a topic with these configs."""


def plan_config_change(
    image: MetadataImage, resource_type: int, name: str, changes: Mapping[str, str | None], rules_for: RulesForConfig
) -> list[MetadataRecord]:
    """No records for values that do not change. Raises INVALID_CONFIG if a mirror that has topics
    would be removed or change one of IMMUTABLE_WHILE_MIRRORING.
    """
    current = image.configs.get((resource_type, name), {})
    different = {key: value for key, value in sorted(changes.items()) if current.get(key) != value}
    records: list[MetadataRecord] = [ConfigRecord(resource_type, name, key, value) for key, value in different.items()]
    if resource_type == TOPIC_RESOURCE and different.keys() & {MIN_ISR_NAME, UNCLEAN_ELECTION_NAME}:
        after = {key: value for key, value in {**current, **different}.items() if value is not None}
        records += _states_under_rules(image, [image.topics[name]], rules_for(after))
    if (resource_type, name) == (BROKER_RESOURCE, "") and MIN_ISR_NAME in different:
        records += _states_under_default_min_isr(image, different[MIN_ISR_NAME], rules_for)
    if resource_type == MIRROR_RESOURCE:
        for setting in (setting for setting in IMMUTABLE_WHILE_MIRRORING if setting.name in different):
            if (current.get(setting.name) or setting.default) != (changes.get(setting.name) or setting.default):
                _check_no_mirrored_topics(image, name, setting.name)
        if different.get(MIRROR_ROLE.name) == FAILED_OVER:
            records += mirror_plans.plan_failover(image, name)
            records += appended_sources.plan_source_failover(image, name)
        if different and all(value is None for value in {**current, **different}.values()):
            _check_mirror_unused(image, name)
    return records


def mirror_topic_names(image: MetadataImage, mirror: str) -> list[str]:
    """Names of the topics that this mirror fills, with identical or appended offsets, sorted."""
    mirrored = mirror_plans.active_mirrored_topic_names(image, mirror)
    return sorted([*mirrored, *appended_sources.appended_topic_names(image, mirror)])


def _check_no_mirrored_topics(image: MetadataImage, mirror: str, setting: str) -> None:
    if topics := mirror_topic_names(image, mirror):
        raise KafkaError(
            ErrorCode.invalid_config,
            f"{setting} of mirror {mirror!r} cannot be changed while it has topics: "
            f"{topics[0]!r}, {len(topics)} in all",
        )


def _check_mirror_unused(image: MetadataImage, mirror: str) -> None:
    if topics := mirror_topic_names(image, mirror):
        raise KafkaError(
            ErrorCode.invalid_config,
            f"mirror {mirror!r} cannot be removed while it has topics: {topics[0]!r}, {len(topics)} in all; "
            f"delete them, or make them writable with {MIRROR_ROLE.name}={FAILED_OVER}",
        )


def _states_under_rules(
    image: MetadataImage, topics: Iterable[TopicImage], rules: TopicElectionRules
) -> list[PartitionRecord]:
    """The next states of the partitions that change when these rules apply to the topics."""
    candidates = election_candidates(image)
    changed = (
        without_eligible_replicas(state, rules) or state_after_unfencing(state, candidates, rules)
        for topic in topics
        for state in topic.partitions.values()
    )
    return [state for state in changed if state is not None]


def _states_under_default_min_isr(
    image: MetadataImage, value: str | None, rules_for: RulesForConfig
) -> list[PartitionRecord]:
    """The next states of the partitions that change when `value` becomes the cluster-wide default
    of min.insync.replicas. None: the brokers' own configuration applies, which may be as low as 1.
    """
    rules = rules_for({MIN_ISR_NAME: value or "1"})
    changed = (
        without_eligible_replicas(state, rules)
        for topic in image.topics.values()
        if MIN_ISR_NAME not in image.topic_config(topic.name)
        for state in topic.partitions.values()
    )
    return [state for state in changed if state is not None]
