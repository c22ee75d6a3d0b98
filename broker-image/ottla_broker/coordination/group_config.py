"""The broker's settings for the group coordinator, under Kafka's names with underscores for dots."""

from dataclasses import dataclass, fields

from ottla_broker.config import BROKER_SETTINGS, Config


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
        values = {one.name: config(BROKER_SETTINGS[one.name.replace("_", ".")]) for one in fields(cls)}
        return cls(**values)  # type: ignore[arg-type]  # by field name
