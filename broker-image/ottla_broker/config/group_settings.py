"""Settings of a group, which is a config resource of Kafka's type GROUP (KIP-848, KIP-932)."""

import re

from ottla_broker.config.cluster_settings import (
    GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_SHARE_ASSIGNMENT_INTERVAL_MS,
    GROUP_SHARE_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,
    GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
    GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    GROUP_SHARE_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS,
    GROUP_STREAMS_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS,
    GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_MAX_STANDBY_REPLICAS,
    GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_NUM_STANDBY_REPLICAS,
    GROUP_STREAMS_SESSION_TIMEOUT_MS,
)
from ottla_broker.config.setting import GROUP_SETTINGS, BrokerDefault, Section, Setting, UpdateMode
from ottla_broker.config.value_types import boolean, integer, one_of, parsed, string

BY_DURATION = "by_duration:"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration, such as PT1H30M. Fractions of a second are left out.
    Raises ValueError.
    """
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise ValueError
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _parse_offset_reset(text: str) -> str:
    text = text.strip()
    if text.startswith(BY_DURATION):
        duration_ms(text.removeprefix(BY_DURATION))
    elif text not in ("earliest", "latest"):
        raise ValueError
    return text


_groups = Section("Settings of single groups", GROUP_SETTINGS, UpdateMode.PER_GROUP)

# fmt: off
CONSUMER_SESSION_TIMEOUT_MS = _groups.row("consumer.session.timeout.ms", integer(at_least=1), 45000,
    "Time in milliseconds without a heartbeat after which a member of the consumer group is removed. Must be between "
    "the brokers' `group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`.",
    broker_defaults=(BrokerDefault(GROUP_CONSUMER_SESSION_TIMEOUT_MS),))
CONSUMER_HEARTBEAT_INTERVAL_MS = _groups.row("consumer.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Interval in milliseconds at which members of the consumer group send heartbeats. Must be between the brokers' "
    "`group.consumer.min.heartbeat.interval.ms` and `group.consumer.max.heartbeat.interval.ms`.",
    broker_defaults=(BrokerDefault(GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),))
CONSUMER_ASSIGNMENT_INTERVAL_MS = _groups.row("consumer.assignment.interval.ms", integer(at_least=0), 1000,
    "Time in milliseconds after an assignment of the consumer group before the next one is computed. Must be between "
    "the brokers' `group.consumer.min.assignment.interval.ms` and `group.consumer.max.assignment.interval.ms`.",
    broker_defaults=(BrokerDefault(GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS),))
SHARE_SESSION_TIMEOUT_MS = _groups.row("share.session.timeout.ms", integer(at_least=1), 45000,
    "Time in milliseconds without a heartbeat after which a member of the share group is removed. Must be between the "
    "brokers' `group.share.min.session.timeout.ms` and `group.share.max.session.timeout.ms`.",
    broker_defaults=(BrokerDefault(GROUP_SHARE_SESSION_TIMEOUT_MS),))
SHARE_HEARTBEAT_INTERVAL_MS = _groups.row("share.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Interval in milliseconds at which members of the share group send heartbeats. Must be between the brokers' "
    "`group.share.min.heartbeat.interval.ms` and `group.share.max.heartbeat.interval.ms`.",
    broker_defaults=(BrokerDefault(GROUP_SHARE_HEARTBEAT_INTERVAL_MS),))
SHARE_ASSIGNMENT_INTERVAL_MS = _groups.row("share.assignment.interval.ms", integer(at_least=0), 1000,
    "Time in milliseconds after an assignment of the share group before the next one is computed. Must be between "
    "the brokers' `group.share.min.assignment.interval.ms` and `group.share.max.assignment.interval.ms`.",
    broker_defaults=(BrokerDefault(GROUP_SHARE_ASSIGNMENT_INTERVAL_MS),))
SHARE_RECORD_LOCK_DURATION_MS = _groups.row("share.record.lock.duration.ms", integer(at_least=1000), 30000,
    "Time in milliseconds for which a delivered record is locked. Must be between the brokers' "
    "`group.share.min.record.lock.duration.ms` and `group.share.max.record.lock.duration.ms`.",
    broker_defaults=(BrokerDefault(GROUP_SHARE_RECORD_LOCK_DURATION_MS),))
SHARE_DELIVERY_COUNT_LIMIT = _groups.row("share.delivery.count.limit", integer(at_least=2), 5,
    "Maximum number of deliveries of a record to the share group. Then it is archived. Must be between the brokers' "
    "`group.share.min.delivery.count.limit` and `group.share.max.delivery.count.limit` (KIP-1240).",
    broker_defaults=(BrokerDefault(GROUP_SHARE_DELIVERY_COUNT_LIMIT),))
SHARE_PARTITION_MAX_RECORD_LOCKS = _groups.row("share.partition.max.record.locks", integer(at_least=100), 2000,
    "Maximum number of records of one partition that the share group has in flight. Must be between the brokers' "
    "`group.share.min.partition.max.record.locks` and `group.share.max.partition.max.record.locks` (KIP-1240).",
    broker_defaults=(BrokerDefault(GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS),))
SHARE_RENEW_ACKNOWLEDGE_ENABLE = _groups.row("share.renew.acknowledge.enable", boolean(), True,
    "Whether members of the share group may renew the locks of their records (KIP-1222). Otherwise that is refused "
    "with INVALID_RECORD_STATE.")
SHARE_AUTO_OFFSET_RESET = _groups.row("share.auto.offset.reset",
    parsed(_parse_offset_reset, "earliest, latest, or by_duration: and an ISO 8601 duration such as PT1H"), "latest",
    "Where the share group begins to read a partition that it has not read yet.")
SHARE_ISOLATION_LEVEL = _groups.row("share.isolation.level", one_of("read_committed", "read_uncommitted"),
    "read_uncommitted",
    "Whether the share group's members get records of transactions that are open or were aborted.")
ERRORS_DEADLETTERQUEUE_TOPIC_NAME = _groups.row("errors.deadletterqueue.topic.name", string(), "",
    "Dead-letter topic of the share group: it gets the records that a member has rejected, or that were delivered as "
    "often as allowed (KIP-1191). The topic must have `errors.deadletterqueue.group.enable`. Empty: none. Without "
    "effect below level 2 of the feature `share.version`.")
ERRORS_DEADLETTERQUEUE_COPY_RECORD_ENABLE = _groups.row("errors.deadletterqueue.copy.record.enable", boolean(), False,
    "Whether dead letters have the key, value and headers of their records, and not only headers that name them.")
STREAMS_SESSION_TIMEOUT_MS = _groups.row("streams.session.timeout.ms", integer(at_least=1), 45000,
    "Time in milliseconds without a heartbeat after which a member of the streams group is removed. Must be between "
    "the brokers' `group.streams.min.session.timeout.ms` and `group.streams.max.session.timeout.ms`.",
    broker_defaults=(BrokerDefault(GROUP_STREAMS_SESSION_TIMEOUT_MS),))
STREAMS_HEARTBEAT_INTERVAL_MS = _groups.row("streams.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Interval in milliseconds at which members of the streams group send heartbeats. Must be between the brokers' "
    "`group.streams.min.heartbeat.interval.ms` and `group.streams.max.heartbeat.interval.ms`.",
    broker_defaults=(BrokerDefault(GROUP_STREAMS_HEARTBEAT_INTERVAL_MS),))
STREAMS_ASSIGNMENT_INTERVAL_MS = _groups.row("streams.assignment.interval.ms", integer(at_least=0), 1000,
    "Time in milliseconds after an assignment of the streams group before the next one is computed. Must be between "
    "the brokers' `group.streams.min.assignment.interval.ms` and `group.streams.max.assignment.interval.ms`.",
    broker_defaults=(BrokerDefault(GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS),))
STREAMS_NUM_STANDBY_REPLICAS = _groups.row("streams.num.standby.replicas", integer(at_least=0), 0,
    "Number of standby copies of each task with state. At most the brokers' `group.streams.max.standby.replicas`.",
    broker_defaults=(BrokerDefault(GROUP_STREAMS_NUM_STANDBY_REPLICAS),))
STREAMS_INITIAL_REBALANCE_DELAY_MS = _groups.row("streams.initial.rebalance.delay.ms", integer(at_least=0), 3000,
    "Time in milliseconds that the first assignment of the empty streams group waits for more members.",
    broker_defaults=(BrokerDefault(GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS),))
# fmt: on

BOUNDS: dict[Setting[int], tuple[Setting[int], Setting[int]]] = {
    CONSUMER_SESSION_TIMEOUT_MS: (GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS),
    CONSUMER_HEARTBEAT_INTERVAL_MS: (
        GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    CONSUMER_ASSIGNMENT_INTERVAL_MS: (
        GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    SHARE_SESSION_TIMEOUT_MS: (GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    SHARE_HEARTBEAT_INTERVAL_MS: (GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS),
    SHARE_ASSIGNMENT_INTERVAL_MS: (
        GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
        GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    SHARE_RECORD_LOCK_DURATION_MS: (
        GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    ),
    SHARE_DELIVERY_COUNT_LIMIT: (GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT, GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT),
    SHARE_PARTITION_MAX_RECORD_LOCKS: (
        GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
    STREAMS_SESSION_TIMEOUT_MS: (GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS, GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS),
    STREAMS_HEARTBEAT_INTERVAL_MS: (GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS, GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS),
    STREAMS_ASSIGNMENT_INTERVAL_MS: (
        GROUP_STREAMS_MIN_ASSIGNMENT_INTERVAL_MS,
        GROUP_STREAMS_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
}
"""Setting of a group → the brokers' minimum and maximum of it."""
MAXIMA: dict[Setting[int], Setting[int]] = {STREAMS_NUM_STANDBY_REPLICAS: GROUP_STREAMS_MAX_STANDBY_REPLICAS}
"""Setting of a group → the brokers' maximum of it, for settings without a minimum."""
