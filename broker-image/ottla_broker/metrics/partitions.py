"""Each partition: its log, its offsets and its in-sync replicas."""

from ottla_broker.metrics.declaration import gauge

LOG_SIZE = gauge("kafka_log_log_size", "Bytes of a partition's log on this broker.", "topic", "partition")
LOG_START_OFFSET = gauge(
    "kafka_log_log_logstartoffset", "Log start offset of a partition on this broker.", "topic", "partition"
)
LOG_END_OFFSET = gauge(
    "kafka_log_log_logendoffset",
    "Log end offset of a partition on this broker: the offset of its next record.",
    "topic",
    "partition",
)
LOG_SEGMENTS = gauge(
    "kafka_log_log_numlogsegments", "Segments of a partition's log on this broker.", "topic", "partition"
)
HIGH_WATERMARK = gauge(
    "ottla_partition_high_watermark",
    "High watermark of a partition: records below it are replicated.",
    "topic",
    "partition",
)
PARTITION_REPLICAS = gauge(
    "kafka_cluster_partition_replicascount", "Replicas of a partition that this broker leads.", "topic", "partition"
)
PARTITION_ISR = gauge(
    "kafka_cluster_partition_insyncreplicascount",
    "In-sync replicas of a partition that this broker leads.",
    "topic",
    "partition",
)
PARTITION_UNDER_MIN_ISR = gauge(
    "kafka_cluster_partition_underminisr",
    "1 if a partition that this broker leads has fewer in-sync replicas than min.insync.replicas.",
    "topic",
    "partition",
)
PARTITION_AT_MIN_ISR = gauge(
    "kafka_cluster_partition_atminisr",
    "1 if a partition that this broker leads has exactly min.insync.replicas in-sync replicas.",
    "topic",
    "partition",
)
PARTITION_IS_PREFERRED = gauge(
    "kafka_topic_partition_leader_is_preferred",
    "1 if the leader of a partition is its first replica, under the name that the Kafka exporter gives it.",
    "topic",
    "partition",
)
