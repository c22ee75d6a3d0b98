"""The broker's settings for the group coordinator, and the configs of single groups that override
them."""

from collections.abc import Mapping
from typing import ClassVar, Final, Self, TypedDict, cast

import msgspec
from msgspec.structs import replace

from ottla_broker.config import (
    BOUNDS,
    CONSUMER_ASSIGNMENT_INTERVAL_MS,
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS,
    GROUP_COORDINATOR_REBALANCE_PROTOCOLS,
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    GROUP_SHARE_MAX_SIZE,
    GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS,
    GROUP_STREAMS_MAX_SIZE,
    GROUP_STREAMS_MAX_STANDBY_REPLICAS,
    GROUP_STREAMS_NUM_STANDBY_REPLICAS,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
    SHARE_ASSIGNMENT_INTERVAL_MS,
    SHARE_HEARTBEAT_INTERVAL_MS,
    SHARE_SESSION_TIMEOUT_MS,
    STREAMS_ASSIGNMENT_INTERVAL_MS,
    STREAMS_HEARTBEAT_INTERVAL_MS,
    STREAMS_INITIAL_REBALANCE_DELAY_MS,
    STREAMS_NUM_STANDBY_REPLICAS,
    STREAMS_SESSION_TIMEOUT_MS,
    Config,
    Setting,
)
from ottla_broker.coordination.streams_group_records import KeyValue

IntervalSettings = tuple[Setting[int], Setting[int], Setting[int]]
"""A group's settings of the session timeout, the heartbeat interval and the assignment interval."""

CONSUMER_INTERVALS: Final = (
    CONSUMER_SESSION_TIMEOUT_MS,
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_ASSIGNMENT_INTERVAL_MS,
)
SHARE_INTERVALS: Final = (SHARE_SESSION_TIMEOUT_MS, SHARE_HEARTBEAT_INTERVAL_MS, SHARE_ASSIGNMENT_INTERVAL_MS)
STREAMS_INTERVALS: Final = (STREAMS_SESSION_TIMEOUT_MS, STREAMS_HEARTBEAT_INTERVAL_MS, STREAMS_ASSIGNMENT_INTERVAL_MS)


class MemberIntervals(msgspec.Struct, frozen=True):
    """The settings that consumer, share and streams groups have in common, for all groups or for
    one. `interval_settings`: the configs with which a single group overrides them. `*_bounds_ms`:
    the bounds of such values, both included."""

    interval_settings: ClassVar[IntervalSettings]
    session_timeout_ms: int = 45_000
    session_timeout_bounds_ms: tuple[int, int] = (45_000, 60_000)
    heartbeat_interval_ms: int = 5_000
    heartbeat_interval_bounds_ms: tuple[int, int] = (5_000, 15_000)
    assignment_interval_ms: int = 1_000  # KIP-1263
    assignment_interval_bounds_ms: tuple[int, int] = (0, 15_000)

    def of_group(self, configs: Mapping[str, str]) -> Self:
        """These settings overridden by a group's own configs, within the broker's current
        bounds."""
        if not configs:
            return self
        session, heartbeat, assignment = self.interval_settings
        return replace(
            self,
            session_timeout_ms=_value_or_default(
                configs, session, self.session_timeout_ms, self.session_timeout_bounds_ms
            ),
            heartbeat_interval_ms=_value_or_default(
                configs, heartbeat, self.heartbeat_interval_ms, self.heartbeat_interval_bounds_ms
            ),
            assignment_interval_ms=_value_or_default(
                configs, assignment, self.assignment_interval_ms, self.assignment_interval_bounds_ms
            ),
        )


class ConsumerGroupConfig(MemberIntervals, frozen=True):
    """Settings of the consumer protocol (KIP-848). `assignors`: the first is the default."""

    interval_settings: ClassVar = CONSUMER_INTERVALS
    is_enabled: bool = True
    max_size: int = 2**31 - 1  # members
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: str = "bidirectional"
    regex_refresh_interval_ms: int = 600_000

    @property
    def may_upgrade(self) -> bool:
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        return self.migration_policy in ("downgrade", "bidirectional")

    @classmethod
    def from_config(cls, config: Config) -> "ConsumerGroupConfig":
        return cls(
            is_enabled="consumer" in config(GROUP_COORDINATOR_REBALANCE_PROTOCOLS),
            **_read_intervals(config, cls.interval_settings),
            max_size=config(GROUP_CONSUMER_MAX_SIZE),
            assignors=config(GROUP_CONSUMER_ASSIGNORS),
            migration_policy=config(GROUP_CONSUMER_MIGRATION_POLICY).lower(),
            regex_refresh_interval_ms=config(GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS),
        )


class ShareGroupConfig(MemberIntervals, frozen=True):
    """Settings of the membership of share groups (KIP-932)."""

    interval_settings: ClassVar = SHARE_INTERVALS
    is_enabled: bool = False  # level 1 of the feature `share.version` enables share groups, too
    max_size: int = 200  # members

    @classmethod
    def from_config(cls, config: Config) -> "ShareGroupConfig":
        return cls(
            is_enabled="share" in config(GROUP_COORDINATOR_REBALANCE_PROTOCOLS),
            **_read_intervals(config, cls.interval_settings),
            max_size=config(GROUP_SHARE_MAX_SIZE),
        )


class StreamsGroupConfig(MemberIntervals, frozen=True):
    """Settings of the streams protocol (KIP-1071)."""

    interval_settings: ClassVar = STREAMS_INTERVALS
    num_standby_replicas: int = 0
    max_standby_replicas: int = 2
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1  # members

    def assignment_configs(self) -> tuple[KeyValue, ...]:
        """The assignor's configuration. A changed value begins a new group epoch."""
        return (KeyValue("num.standby.replicas", str(self.num_standby_replicas)),)

    def of_group(self, configs: Mapping[str, str]) -> Self:
        if not configs:
            return self
        standby, standby_bounds = self.num_standby_replicas, (0, self.max_standby_replicas)
        delay, delay_bounds = self.initial_rebalance_delay_ms, (0, 2**31 - 1)
        return replace(
            super().of_group(configs),
            num_standby_replicas=_value_or_default(configs, STREAMS_NUM_STANDBY_REPLICAS, standby, standby_bounds),
            initial_rebalance_delay_ms=_value_or_default(
                configs, STREAMS_INITIAL_REBALANCE_DELAY_MS, delay, delay_bounds
            ),
        )

    @classmethod
    def from_config(cls, config: Config) -> "StreamsGroupConfig":
        return cls(
            **_read_intervals(config, cls.interval_settings),
            num_standby_replicas=config(GROUP_STREAMS_NUM_STANDBY_REPLICAS),
            max_standby_replicas=config(GROUP_STREAMS_MAX_STANDBY_REPLICAS),
            initial_rebalance_delay_ms=config(GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS),
            max_size=config(GROUP_STREAMS_MAX_SIZE),
        )


class Intervals(TypedDict):
    """The fields of MemberIntervals, as arguments."""

    session_timeout_ms: int
    session_timeout_bounds_ms: tuple[int, int]
    heartbeat_interval_ms: int
    heartbeat_interval_bounds_ms: tuple[int, int]
    assignment_interval_ms: int
    assignment_interval_bounds_ms: tuple[int, int]


def _read_intervals(config: Config, settings: IntervalSettings) -> Intervals:
    """The brokers' values of a group's settings, and the bounds of single groups' own values."""
    session, heartbeat, assignment = (cast(int, config(it.broker_defaults[0].setting)) for it in settings)
    bounds = [(config(low), config(high)) for low, high in map(BOUNDS.__getitem__, settings)]
    return Intervals(
        session_timeout_ms=session,
        session_timeout_bounds_ms=bounds[0],
        heartbeat_interval_ms=heartbeat,
        heartbeat_interval_bounds_ms=bounds[1],
        assignment_interval_ms=assignment,
        assignment_interval_bounds_ms=bounds[2],
    )


def _value_or_default(configs: Mapping[str, str], setting: Setting[int], default: int, bounds: tuple[int, int]) -> int:
    """A group's own value within the bounds; `default` without one."""
    text = configs.get(setting.name)
    return default if text is None else min(max(setting.parse(text), bounds[0]), bounds[1])


class GroupCoordinatorConfig(msgspec.Struct, frozen=True):
    """Defaults are Kafka 4.1's."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1  # members
    offset_metadata_max_bytes: int = 4096  # characters, as in Kafka
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    consumer: ConsumerGroupConfig = msgspec.field(default_factory=ConsumerGroupConfig)
    share: ShareGroupConfig = msgspec.field(default_factory=ShareGroupConfig)
    streams: StreamsGroupConfig = msgspec.field(default_factory=StreamsGroupConfig)

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    @classmethod
    def from_config(cls, config: Config) -> "GroupCoordinatorConfig":
        return cls(
            group_min_session_timeout_ms=config(GROUP_MIN_SESSION_TIMEOUT_MS),
            group_max_session_timeout_ms=config(GROUP_MAX_SESSION_TIMEOUT_MS),
            group_initial_rebalance_delay_ms=config(GROUP_INITIAL_REBALANCE_DELAY_MS),
            group_max_size=config(GROUP_MAX_SIZE),
            offset_metadata_max_bytes=config(OFFSET_METADATA_MAX_BYTES),
            offsets_retention_minutes=config(OFFSETS_RETENTION_MINUTES),
            offsets_retention_check_interval_ms=config(OFFSETS_RETENTION_CHECK_INTERVAL_MS),
            offsets_commit_timeout_ms=config(OFFSETS_COMMIT_TIMEOUT_MS),
            consumer=ConsumerGroupConfig.from_config(config),
            share=ShareGroupConfig.from_config(config),
            streams=StreamsGroupConfig.from_config(config),
        )
