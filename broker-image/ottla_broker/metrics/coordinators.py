"""Groups, transactions, and pushes of clients' own metrics."""

from ottla_broker.metrics.declaration import counter, gauge

TELEMETRY_PUSHES = counter(
    "ottla_client_telemetry_pushes_total", "Pushes of clients' own metrics (KIP-714) that were accepted."
)
TELEMETRY_DROPPED = counter(
    "ottla_client_telemetry_dropped_points_total",
    "Values that clients pushed and that are not shown: there were too many series.",
)
GROUPS = gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups of any protocol that this broker coordinates."
)
GROUPS_STABLE = gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
    "Groups of any protocol that this broker coordinates and whose members have their assignments.",
)
GROUPS_EMPTY = gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsempty",
    "Groups of any protocol that this broker coordinates and that have no members.",
)
GROUPS_PREPARING = gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
    "Groups of any protocol that this broker coordinates and whose members are joining a rebalance.",
)
GROUPS_COMPLETING = gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
    "Groups of any protocol that this broker coordinates and that wait for their leader's assignment.",
)
GROUPS_DEAD = gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsdead",
    "Groups of any protocol that this broker coordinates and that are being removed.",
)
GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_group_count",
    "Groups that this broker coordinates, by protocol.",
    "protocol",
)
CONSUMER_GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "Groups of the consumer protocol (KIP-848) that this broker coordinates, by state.",
    "state",
)
STREAMS_GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_streams_group_count",
    "Groups of the streams protocol (KIP-1071) that this broker coordinates, by state.",
    "state",
)
SHARE_GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_share_group_count",
    "Share groups (KIP-932) that this broker coordinates, by state.",
    "state",
)
GROUP_OFFSET = gauge(
    "kafka_consumergroup_current_offset",
    "Committed offset of a group that this broker coordinates, under the name that the Kafka exporter gives it.",
    "consumergroup",
    "topic",
    "partition",
)
TRANSACTIONS = gauge(
    "ottla_transactions", "Transactional ids that this broker coordinates, by state of the transaction.", "state"
)
