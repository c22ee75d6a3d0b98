"""What the group coordinator needs to know of the broker's settings, under Kafka's names (dots become underscores)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Defaults are Kafka 4.1's. Names without a unit are Kafka's own; their unit is in the comment."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1  # members
    offset_metadata_max_bytes: int = 4096  # Kafka counts characters, and so do we
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 100 << 20
    offsets_topic_compression_codec: int = 0  # a codec's number, as in a batch's attributes

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
