"""The broker's settings for the share coordinator, and the configs that decide how a share group's
records are delivered."""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla_broker.config import (
    GROUP_SHARE_DELIVERY_COUNT_LIMIT,
    GROUP_SHARE_MAX_SHARE_SESSIONS,
    GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
    GROUP_SHARE_RECORD_LOCK_DURATION_MS,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT,
    SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS,
    SHARE_COORDINATOR_WRITE_TIMEOUT_MS,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_ISOLATION_LEVEL,
    SHARE_PARTITION_MAX_RECORD_LOCKS,
    SHARE_RECORD_LOCK_DURATION_MS,
    SHARE_RENEW_ACKNOWLEDGE_ENABLE,
    Config,
    Setting,
)
from ottla_broker.config.group_settings import BOUNDS
from ottla_broker.replication.partition import READ_COMMITTED

READ_UNCOMMITTED = 0


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    updates_per_snapshot: int = 500
    prune_interval_ms: int = 300_000
    write_timeout_ms: int = 5_000

    @classmethod
    def from_config(cls, config: Config) -> "ShareCoordinatorConfig":
        return cls(
            config(SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT),
            config(SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS),
            config(SHARE_COORDINATOR_WRITE_TIMEOUT_MS),
        )


@dataclass(frozen=True, slots=True)
class ShareDeliveryConfig:
    """Configs of a share group that decide how its records are delivered. `max_record_locks`: in
    one partition. `max_sessions`: of the broker, with all groups together. `auto_offset_reset`: the
    text of `share.auto.offset.reset`, such as `earliest` or `by_duration:PT1H`. `isolation`: the
    isolation level as Fetch has it, READ_UNCOMMITTED or READ_COMMITTED. `may_renew`: whether
    members may renew locks."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    max_sessions: int = 2_000
    auto_offset_reset: str = "latest"
    isolation: int = READ_UNCOMMITTED
    may_renew: bool = True

    @classmethod
    def of_group(cls, config: Config, group_configs: Mapping[str, str]) -> "ShareDeliveryConfig":
        """The group's own configs, and the broker's settings for what it has not set. The former
        are limited to the broker's bounds, which may have changed since they were set."""

        def bounded(own: Setting[int], default: Setting[int]) -> int:
            if (text := group_configs.get(own.name)) is None:
                return config(default)
            low, high = BOUNDS[own]
            return min(max(own.parse(text), config(low)), config(high))

        renews = group_configs.get(SHARE_RENEW_ACKNOWLEDGE_ENABLE.name)
        is_read_committed = group_configs.get(SHARE_ISOLATION_LEVEL.name) == "read_committed"
        return cls(
            bounded(SHARE_RECORD_LOCK_DURATION_MS, GROUP_SHARE_RECORD_LOCK_DURATION_MS),
            bounded(SHARE_DELIVERY_COUNT_LIMIT, GROUP_SHARE_DELIVERY_COUNT_LIMIT),
            bounded(SHARE_PARTITION_MAX_RECORD_LOCKS, GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS),
            config(GROUP_SHARE_MAX_SHARE_SESSIONS),
            group_configs.get(SHARE_AUTO_OFFSET_RESET.name, SHARE_AUTO_OFFSET_RESET.default),
            READ_COMMITTED if is_read_committed else READ_UNCOMMITTED,
            renews is None or SHARE_RENEW_ACKNOWLEDGE_ENABLE.parse(renews),
        )
