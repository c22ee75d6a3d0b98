"""What a change of configs means in records: the configs themselves, and what elections make of them at once. Pure.

Whoever is eligible to lead without being in sync is so because the high watermark stands still while the ISR is below min.insync.replicas. When
that setting falls, leaders let the high watermark go on; so in the same commit the eligible are forgotten where it may. A mirror that fails over
opens its copies in the same commit.
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
from ottla_broker.metadata import appended_plans, mirror_plans
from ottla_broker.metadata.broker_plans import election_candidates
from ottla_broker.metadata.election import TopicElectionRules, state_after_unfencing, without_eligible_replicas
from ottla_broker.metadata.image import BROKER_RESOURCE, MIRROR_RESOURCE, TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla_broker.metadata.records import ConfigRecord, MetadataRecord, PartitionRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError

IMMUTABLE_WHILE_MIRRORING = (MIRROR_PREFIX, MIRROR_OFFSETS)  # what stays as it is while a mirror has copies
MIN_ISR_NAME, UNCLEAN_ELECTION_NAME = TOPIC_MIN_INSYNC_REPLICAS.name, TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE.name

RulesForConfig = Callable[[Mapping[str, str]], TopicElectionRules]
"""The rules of a topic with these configs."""


def plan_config_change(
    image: MetadataImage, resource_type: int, name: str, changes: Mapping[str, str | None], rules_with: RulesForConfig
) -> list[MetadataRecord]:
    """Nothing for what is as wished already."""
    current = image.configs.get((resource_type, name), {})
    different = {key: value for key, value in sorted(changes.items()) if current.get(key) != value}
    records: list[MetadataRecord] = [ConfigRecord(resource_type, name, key, value) for key, value in different.items()]
    if resource_type == TOPIC_RESOURCE and different.keys() & {MIN_ISR_NAME, UNCLEAN_ELECTION_NAME}:
        after = {key: value for key, value in {**current, **different}.items() if value is not None}
        records += _states_under_rules(image, [image.topics[name]], rules_with(after))
    if (resource_type, name) == (BROKER_RESOURCE, "") and MIN_ISR_NAME in different:
        records += _states_under_default_min_isr(image, different[MIN_ISR_NAME], rules_with)
    if resource_type == MIRROR_RESOURCE:
        for setting in (setting for setting in IMMUTABLE_WHILE_MIRRORING if setting.name in different):
            if (current.get(setting.name) or setting.default) != (changes.get(setting.name) or setting.default):
                _check_no_mirrored_topics(image, name, setting.name)
        if different.get(MIRROR_ROLE.name) == FAILED_OVER:
            records += mirror_plans.plan_failover(image, name)
            records += appended_plans.plan_source_failover(image, name)
        if different and not {**current, **different}.keys() - {
            key for key, value in different.items() if value is None
        }:
            _check_mirror_unused(image, name)
    return records


def mirror_topic_names(image: MetadataImage, mirror: str) -> list[str]:
    """Names of the topics that this mirror fills, sorted."""
    return sorted(
        [*mirror_plans.active_mirrored_topic_names(image, mirror), *appended_plans.appended_topic_names(image, mirror)]
    )


def _check_no_mirrored_topics(image: MetadataImage, mirror: str, setting: str) -> None:
    if copies := mirror_topic_names(image, mirror):
        raise KafkaError(
            ErrorCode.invalid_config,
            f"{setting} of mirror {mirror!r} cannot be changed: {copies[0]!r} and {len(copies) - 1} other topics are its copies",
        )


def _check_mirror_unused(image: MetadataImage, mirror: str) -> None:
    if copies := mirror_topic_names(image, mirror):
        raise KafkaError(
            ErrorCode.invalid_config,
            f"mirror {mirror!r} cannot be removed while {copies[0]!r} and {len(copies) - 1} other topics are its copies: delete them, or "
            f"open them for writing with {MIRROR_ROLE.name}={FAILED_OVER}",
        )


def _states_under_rules(
    image: MetadataImage, topics: Iterable[TopicImage], rules: TopicElectionRules
) -> list[PartitionRecord]:
    voters = election_candidates(image)
    changed = (
        without_eligible_replicas(state, rules) or state_after_unfencing(state, voters, rules)
        for topic in topics
        for state in topic.partitions.values()
    )
    return [state for state in changed if state is not None]


def _states_under_default_min_isr(
    image: MetadataImage, value: str | None, rules_with: RulesForConfig
) -> list[PartitionRecord]:
    """`value` None: brokers' own files say it now, which may be as little as 1."""
    standing = [topic for topic in image.topics.values() if MIN_ISR_NAME not in image.topic_config(topic.name)]
    return [
        changed
        for topic in standing
        for state in topic.partitions.values()
        if (changed := without_eligible_replicas(state, rules_with({MIN_ISR_NAME: value or "1"}))) is not None
    ]
