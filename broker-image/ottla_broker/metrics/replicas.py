"""Replicas on this broker: leaders, in-sync replicas and lag."""

from ottla_broker.metrics.declaration import counter, gauge

PARTITIONS = gauge("kafka_server_replicamanager_partitioncount", "Partitions with a replica on this broker.")
LEADERS = gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
UNDER_REPLICATED = gauge(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "Led partitions with fewer in-sync replicas than replicas.",
)
UNDER_MIN_ISR = gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Led partitions with fewer in-sync replicas than min.insync.replicas: they refuse acks=all.",
)
AT_MIN_ISR = gauge(
    "kafka_server_replicamanager_atminisrpartitioncount",
    "Led partitions with exactly min.insync.replicas in-sync replicas: one less, and they refuse acks=all.",
)
REASSIGNING = gauge(
    "kafka_server_replicamanager_reassigningpartitions", "Led partitions whose replicas are being reassigned."
)
ISR_SHRINKS = counter(
    "kafka_server_replicamanager_isrshrinks_total",
    "Changes that removed in-sync replicas of led partitions.",
)
ISR_EXPANDS = counter(
    "kafka_server_replicamanager_isrexpands_total",
    "Changes that added in-sync replicas to led partitions.",
)
MAX_LAG = gauge(
    "kafka_server_replicafetchermanager_maxlag",
    "The largest number of records that a follower on this broker is behind its leader's high watermark.",
)
OFFLINE_REPLICAS = gauge(
    "kafka_server_replicamanager_offlinereplicacount",
    "Replicas on this broker that are offline: a disk or a segment failed.",
)
