"""The settings of one partition's log, under Kafka's topic-level names (dots become underscores).

Defaults are those of Kafka 4.1. Users see the table in `ottla_broker.config`, which builds these.
"""

from typing import Literal

import msgspec

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000


class LogConfig(msgspec.Struct, frozen=True):
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    # -1: no limit
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    # Records between fsyncs; 1 makes acks wait for a shared fsync.
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    # cleanup.policy contains delete, compact
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    min_cleanable_dirty_ratio: float = 0.5
    compression_type: Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_after_max_ms: int = DEFAULT_TIMESTAMP_AFTER_MAX_MS
    max_message_bytes: int = 1_048_588
    min_insync_replicas: int = 1
    # Whether a leader checks the schema ids of records, by both names of the settings.
    confluent_value_schema_validation: bool = False
    confluent_key_schema_validation: bool = False
    redpanda_value_schema_id_validation: bool = False
    redpanda_key_schema_id_validation: bool = False
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    leader_replication_throttled_replicas: tuple[str, ...] = ()

    @property
    def validates_values(self) -> bool:
        return self.confluent_value_schema_validation or self.redpanda_value_schema_id_validation

    @property
    def validates_keys(self) -> bool:
        return self.confluent_key_schema_validation or self.redpanda_key_schema_id_validation

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is closed. In a compacted topic at most max.compaction.lag.ms,
        because the active segment is not compacted."""
        if self.cleanup_compact and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
