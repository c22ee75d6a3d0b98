"""Settings of a group, which is a config resource of Kafka's type GROUP (KIP-848)."""

from ottla_broker.config.cluster_settings import (
    GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS,
    GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
    GROUP_STREAMS_NUM_STANDBY_REPLICAS,
    GROUP_STREAMS_SESSION_TIMEOUT_MS,
)
from ottla_broker.config.setting import GROUP_SETTINGS, BrokerDefault, Section, Setting, UpdateMode
from ottla_broker.config.value_types import integer

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
STREAMS_SESSION_TIMEOUT_MS = _groups.row("streams.session.timeout.ms", integer(at_least=1), 45000,
    "Time in milliseconds without a heartbeat after which a member of the streams group is removed. Must be between "
    "the brokers' `group.streams.min.session.timeout.ms` and `group.streams.max.session.timeout.ms`.",
    broker_defaults=(BrokerDefault(GROUP_STREAMS_SESSION_TIMEOUT_MS),))
STREAMS_HEARTBEAT_INTERVAL_MS = _groups.row("streams.heartbeat.interval.ms", integer(at_least=1), 5000,
    "Interval in milliseconds at which members of the streams group send heartbeats. Must be between the brokers' "
    "`group.streams.min.heartbeat.interval.ms` and `group.streams.max.heartbeat.interval.ms`.",
    broker_defaults=(BrokerDefault(GROUP_STREAMS_HEARTBEAT_INTERVAL_MS),))
STREAMS_NUM_STANDBY_REPLICAS = _groups.row("streams.num.standby.replicas", integer(at_least=0), 0,
    "Number of standby copies of each task with state. At most the brokers' `group.streams.max.standby.replicas` are "
    "made.", broker_defaults=(BrokerDefault(GROUP_STREAMS_NUM_STANDBY_REPLICAS),))
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
    STREAMS_SESSION_TIMEOUT_MS: (GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS, GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS),
    STREAMS_HEARTBEAT_INTERVAL_MS: (GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS, GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS),
}
"""Setting of a group → the brokers' minimum and maximum of it."""
