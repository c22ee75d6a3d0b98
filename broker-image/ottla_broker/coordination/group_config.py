"""The broker's settings for the group coordinator, under Kafka's names with underscores for
dots.
"""

from dataclasses import dataclass

from ottla_broker.config import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
    Config,
)


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Defaults are Kafka 4.1's."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1  # members
    offset_metadata_max_bytes: int = 4096  # characters, as in Kafka
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000

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
        )
