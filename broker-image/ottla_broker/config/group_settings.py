"""Settings of a group, which is a config resource of Kafka's type GROUP (KIP-848, KIP-932)."""

import re

from ottla_broker.config.cluster_settings import (
    GROUP_BOUNDS,
    GROUP_CONSUMER_INTERVALS,
    GROUP_SHARE_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_INTERVALS,
    GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS,
    GROUP_STREAMS_INTERVALS,
    GROUP_STREAMS_MAX_STANDBY_REPLICAS,
    GROUP_STREAMS_NUM_STANDBY_REPLICAS,
    IntervalSettings,
)
from ottla_broker.config.setting import GROUP_SETTINGS, BrokerDefault, Section, Setting, UpdateMode
from ottla_broker.config.value_types import ValueType, boolean, integer, one_of, parsed, string

BY_DURATION = "by_duration:"
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?", re.IGNORECASE)


def duration_ms(text: str) -> int:
    """Milliseconds of an ISO 8601 duration, such as PT1H30M. Raises ValueError."""
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

BOUNDS: dict[Setting[int], tuple[Setting[int], Setting[int]]] = {}
"""Setting of a group → the brokers' minimum and maximum of it."""


def _bounded(broker: Setting[int], type: ValueType[int], doc: str, kip: str = "") -> Setting[int]:
    """A row for a group's own value of a setting that brokers have a value and bounds of."""
    lowest, highest = GROUP_BOUNDS[broker]
    doc = f"{doc} Must be between the brokers' `{lowest.name}` and `{highest.name}`{kip}."
    defaults = (BrokerDefault(broker),)
    setting = _groups.row(broker.name.removeprefix("group."), type, broker.default, doc, broker_defaults=defaults)
    BOUNDS[setting] = lowest, highest
    return setting


# fmt: off
def _intervals(protocol: str, brokers: IntervalSettings) -> IntervalSettings:
    session, heartbeat, assignment = brokers
    return (
        _bounded(session, session.type,
            f"Time in milliseconds without a heartbeat after which a member of the {protocol} group is removed."),
        _bounded(heartbeat, heartbeat.type,
            f"Interval in milliseconds at which members of the {protocol} group send heartbeats."),
        _bounded(assignment, assignment.type,
            f"Time in milliseconds after an assignment of the {protocol} group before the next one is computed."),
    )


CONSUMER_INTERVALS = _intervals("consumer", GROUP_CONSUMER_INTERVALS)
SHARE_INTERVALS = _intervals("share", GROUP_SHARE_INTERVALS)
SHARE_RECORD_LOCK_DURATION_MS = _bounded(GROUP_SHARE_RECORD_LOCK_DURATION_MS, integer(at_least=1000),
    "Time in milliseconds for which a delivered record is locked.")
SHARE_DELIVERY_COUNT_LIMIT = _bounded(GROUP_SHARE_DELIVERY_COUNT_LIMIT, integer(at_least=2),
    "How often a record is delivered to the share group at most. Then it is archived.", " (KIP-1240)")
SHARE_PARTITION_MAX_RECORD_LOCKS = _bounded(GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS, integer(at_least=100),
    "How many records of one partition the share group has in flight at most.", " (KIP-1240)")
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
STREAMS_INTERVALS = _intervals("streams", GROUP_STREAMS_INTERVALS)
STREAMS_NUM_STANDBY_REPLICAS = _groups.row("streams.num.standby.replicas", integer(at_least=0), 0,
    "Number of standby copies of each task with state. At most the brokers' `group.streams.max.standby.replicas`.",
    broker_defaults=(BrokerDefault(GROUP_STREAMS_NUM_STANDBY_REPLICAS),))
STREAMS_INITIAL_REBALANCE_DELAY_MS = _groups.row("streams.initial.rebalance.delay.ms", integer(at_least=0), 3000,
    "Time in milliseconds that the first assignment of the empty streams group waits for more members.",
    broker_defaults=(BrokerDefault(GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS),))
# fmt: on

MAXIMA: dict[Setting[int], Setting[int]] = {STREAMS_NUM_STANDBY_REPLICAS: GROUP_STREAMS_MAX_STANDBY_REPLICAS}
"""Setting of a group → the brokers' maximum of it, for settings without a minimum."""
