"""When a consumer group begins a new epoch: its members, their subscriptions or the subscribed
topics have changed (KIP-848). No I/O.
"""

import logging
from collections.abc import Callable
from typing import Final

from ottla_broker.coordination import consumer_change
from ottla_broker.coordination.consumer_change import ConsumerChange
from ottla_broker.coordination.consumer_group_records import RegularExpressionKey, RegularExpressionValue
from ottla_broker.coordination.consumer_member import ConsumerMember
from ottla_broker.coordination.coordinator_metadata import CoordinatorMetadata
from ottla_broker.coordination.effects import Timestamps
from ottla_broker.coordination.group_config import ConsumerGroupConfig
from ottla_broker.coordination.topic_regex import check_regular_expression, matching_topics

logger = logging.getLogger(__name__)

REGEX_MIN_REFRESH_MS: Final = 10_000
"""Shortest time between an evaluation of a group's regular expressions and another one because
topics have changed."""


def update_member(
    change: ConsumerChange,
    member: ConsumerMember,
    updated: ConsumerMember,
    metadata: CoordinatorMetadata,
    may_describe: Callable[[str], bool],
    config: ConsumerGroupConfig,
    now: Timestamps,
) -> bool:
    """Writes the member if it is new or has changed, and a new group epoch if subscriptions or
    subscribed topics have changed or the group is new. Returns whether the member's subscription
    has changed. Raises INVALID_REGULAR_EXPRESSION."""
    group = change.group
    if updated is not member or updated.id not in group.members:
        consumer_change.write_member(change, updated)
    has_new_names = updated.subscribed_topic_names != member.subscribed_topic_names
    has_new_regex = updated.subscribed_topic_regex != member.subscribed_topic_regex
    if has_new_regex:
        drop_unused_regex(change, member.subscribed_topic_regex)
        check_regular_expression(updated.subscribed_topic_regex)
    has_regex = bool(updated.subscribed_topic_regex)
    topics_changed = _refresh_regular_expressions(change, metadata, may_describe, config, now, has_regex=has_regex)
    has_changed = has_new_names or has_new_regex
    if has_changed or topics_changed or group.epoch == 0 or group.metadata_version != metadata.version:
        _maybe_raise_epoch(change, metadata, must_raise=has_changed or topics_changed or group.epoch == 0)
    return has_changed


def _maybe_raise_epoch(change: ConsumerChange, metadata: CoordinatorMetadata, *, must_raise: bool) -> None:
    group = change.group
    metadata_hash = metadata.hash_topics(group.subscribed_topics())
    if must_raise or metadata_hash != group.metadata_hash:
        consumer_change.write_epoch(change, group.epoch + 1, metadata_hash)
        logger.info("group %s: epoch %d begins", group.id, group.epoch)
    group.metadata_version = metadata.version


def drop_unused_regex(change: ConsumerChange, expression: str) -> None:
    group = change.group
    if (
        expression
        and expression in group.regular_expressions
        and expression not in group.subscriptions.regular_expressions
    ):
        change.write(RegularExpressionKey(group.id, expression), None)


def _refresh_regular_expressions(
    change: ConsumerChange,
    metadata: CoordinatorMetadata,
    may_describe: Callable[[str], bool],
    config: ConsumerGroupConfig,
    now: Timestamps,
    *,
    has_regex: bool,
) -> bool:
    """Finds the topics of the group's regular expressions: of a new one at once, of all when topics
    have changed (at most every REGEX_MIN_REFRESH_MS), and of all after
    `group.consumer.regex.refresh.interval.ms`. Returns whether any has other topics than before.
    Finds only topics that the heartbeat's member may describe. `has_regex`: that member subscribes
    to a regular expression."""
    group = change.group
    if not has_regex and not group.regular_expressions:
        return False
    if not (wanted := group.subscriptions.regular_expressions):
        return False
    age_ms = now.wall_ms - group.regex_resolved_ms
    is_due = age_ms > config.regex_refresh_interval_ms or (
        group.regex_metadata_version != metadata.version and age_ms > REGEX_MIN_REFRESH_MS
    )
    outdated = wanted if is_due else wanted - group.regular_expressions.keys()
    has_changed = False
    for expression in sorted(outdated):
        topics = tuple(sorted(matching_topics(expression, metadata.topic_names(), may_describe)))
        known = group.regular_expressions.get(expression)
        has_changed = has_changed or topics != (() if known is None else known.topics)
        if known is None or topics != known.topics:
            value = RegularExpressionValue(topics, metadata.version, now.wall_ms)
            change.write(RegularExpressionKey(group.id, expression), value)
    if is_due:
        group.regex_metadata_version, group.regex_resolved_ms = metadata.version, now.wall_ms
    return has_changed
