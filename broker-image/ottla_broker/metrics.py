"""The broker's Prometheus metrics, each declared once, and the integers that hot paths add to.

A metric that Kafka has too is named as the usual rules of the JMX exporter name Kafka's, so that
dashboards for Kafka work. Nothing is computed in advance: `http.collector` reads the broker when
it is scraped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram", "summary"]
API_KEY_LIMIT = 128
"""Above Kafka's largest API key: the size of the list that counts requests by key."""


@dataclass(slots=True)
class PartitionTraffic:
    """Records and bytes of one partition since its replica was created on this broker.

    `bytes_in` and `bytes_out` count clients, `replication_in` what this broker fetched as a
    follower, `replication_out` what its followers fetched. `produce_requests` and `fetch_requests`
    count the partition in requests of clients that appended or read records,
    `failed_produce_requests` in those whose records it rejected.
    """

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_in: int = 0
    replication_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    isr_expansions: int = 0
    isr_shrinkages: int = 0


class Metric(NamedTuple):
    """One family of samples. `labels`: the names of the labels that distinguish them."""

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """`labels`: the values of the metric's labels, in their order. `suffix`: follows the metric's
    name. `bound`: a last label, `le` of a histogram or `quantile` of a summary.
    """

    labels: Sequence[str]
    value: float
    suffix: str = ""
    bound: str = ""


METRICS: list[Metric] = []


def _metric(kind: Kind, name: str, doc: str, *labels: str) -> Metric:
    metric = Metric(name, kind, doc, labels)
    METRICS.append(metric)
    return metric


def _counter(name: str, doc: str, *labels: str) -> Metric:
    return _metric("counter", name, doc, *labels)


def _gauge(name: str, doc: str, *labels: str) -> Metric:
    return _metric("gauge", name, doc, *labels)


MESSAGES_IN = _counter(
    "kafka_server_brokertopicmetrics_messagesin_total",
    "Records that producers wrote to partitions that this broker leads.",
    "topic",
)
BYTES_IN = _counter(
    "kafka_server_brokertopicmetrics_bytesin_total",
    "Bytes that producers wrote to partitions that this broker leads.",
    "topic",
)
BYTES_OUT = _counter(
    "kafka_server_brokertopicmetrics_bytesout_total", "Bytes that this broker sent to consumers.", "topic"
)
PRODUCE_REQUESTS = _counter(
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "Appends that producers requested, one for each partition of a request.",
    "topic",
)
FAILED_PRODUCE_REQUESTS = _counter(
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "Appends that the leader of a partition rejected.",
    "topic",
)
FETCH_REQUESTS = _counter(
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "Reads for consumers that found records, one for each partition of a request.",
    "topic",
)
REPLICATION_BYTES_IN = _counter(
    "kafka_server_brokertopicmetrics_replicationbytesin_total",
    "Bytes that this broker fetched from leaders as a follower.",
)
REPLICATION_BYTES_OUT = _counter(
    "kafka_server_brokertopicmetrics_replicationbytesout_total",
    "Bytes that this broker sent to followers as a leader.",
)
REQUESTS = _counter("kafka_network_requestmetrics_requests_total", "Requests received, by API.", "request")
REQUEST_DURATION = _metric(
    "histogram",
    "ottla_request_duration_seconds",
    "Duration of requests by API and phase. queue: wait to be served. local: processing. remote: wait for replicas, "
    "records, members or the controller. send: time for which a client left a response unread; other responses are "
    "not counted. total: queue, local and remote.",
    "request",
    "phase",
)
REQUEST_QUANTILES = {
    phase: _metric(
        "summary",
        f"kafka_network_requestmetrics_{name}timems",
        f"Milliseconds of the phase {phase} of ottla_request_duration_seconds; quantiles of the last five minutes.",
        "request",
    )
    for phase, name in (
        ("queue", "requestqueue"),
        ("local", "local"),
        ("remote", "remote"),
        ("send", "responsesend"),
        ("total", "total"),
    )
}
EVENT_LOOP_IDLE = _gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "Share of time, 0 to 1, in which the broker's thread of requests was idle since the previous scrape.",
)
HANDLER_IDLE = _gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The same: one thread reads requests and handles them.",
)
WAITING = _gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Requests that wait for replicas, records or members, by kind of request.",
    "delayedOperation",
)
CERTIFICATE_EXPIRY = _gauge(
    "ottla_listener_certificate_expiry_seconds",
    "End of the validity of a listener's own certificate, in seconds since the epoch.",
    "listener",
)

BUILD_INFO = _gauge(
    "ottla_build_info",
    "Always 1. `version`: of Ottla; `hot_paths`: compiled or pure; `python`: version of the interpreter.",
    "version",
    "hot_paths",
    "python",
)
CONNECTIONS = _gauge("kafka_server_socketservermetrics_connection_count", "Open connections, by listener.", "listener")
STRIMZI_CONNECTIONS = _gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "The same, under the name that Strimzi's rules give it.",
    "listener",
)
CONNECTIONS_REFUSED = _counter(
    "ottla_connections_refused_total", "Connections refused because of a limit on connections."
)
AUDIT_DROPPED = _counter(
    "ottla_audit_dropped_lines_total", "Lines of the audit log that were not written: there were too many at a time."
)
_QUOTA_DOC = "by client quota and entity; above a thousand entities the rest is (others)."
THROTTLED = _counter(
    "ottla_client_quota_throttled_total",
    f"Requests, or connections of an IP address, that were throttled, {_QUOTA_DOC}",
    "quota",
    "entity",
    "client_id",
)
THROTTLE_SECONDS = _counter(
    "ottla_client_quota_throttle_seconds_total",
    f"Time in seconds for which they were throttled, {_QUOTA_DOC}",
    "quota",
    "entity",
    "client_id",
)
REQUEST_MEMORY = _gauge(
    "ottla_request_memory_bytes", "Memory that large requests hold, bounded by queued.max.request.bytes."
)
RESPONSE_MEMORY = _gauge("ottla_response_memory_bytes", "Memory of responses that slow clients have not read yet.")

PARTITIONS = _gauge("kafka_server_replicamanager_partitioncount", "Partitions with a replica on this broker.")
LEADERS = _gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
UNDER_REPLICATED = _gauge(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "Led partitions with fewer in-sync replicas than replicas.",
)
UNDER_MIN_ISR = _gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Led partitions with fewer in-sync replicas than min.insync.replicas: they refuse acks=all.",
)
AT_MIN_ISR = _gauge(
    "kafka_server_replicamanager_atminisrpartitioncount",
    "Led partitions with exactly min.insync.replicas in-sync replicas: one less, and they refuse acks=all.",
)
REASSIGNING = _gauge(
    "kafka_server_replicamanager_reassigningpartitions", "Led partitions whose replicas are being reassigned."
)
ISR_SHRINKS = _counter(
    "kafka_server_replicamanager_isrshrinks_total",
    "Changes that removed in-sync replicas of led partitions.",
)
ISR_EXPANDS = _counter(
    "kafka_server_replicamanager_isrexpands_total",
    "Changes that added in-sync replicas to led partitions.",
)
MAX_LAG = _gauge(
    "kafka_server_replicafetchermanager_maxlag",
    "The largest number of records that a follower on this broker is behind its leader's high watermark.",
)
MIRROR_LAG = _gauge(
    "ottla_mirror_lag_records",
    "Offsets from the end of a led mirrored partition to its source's last known high watermark.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_LAG_SECONDS = _gauge(
    "ottla_mirror_lag_seconds",
    "Time since a led mirrored partition last had all records of its source; 0 while it has them.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_LAG_BYTES = _gauge(
    "ottla_mirror_lag_bytes",
    "Estimated bytes that a led mirrored partition lacks: its lag in offsets times the recent record size.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_SILENCE = _gauge(
    "ottla_mirror_source_silence_seconds",
    "Time since the source last answered a fetch for a led mirrored partition; it does so every fetch.max.wait.ms.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_DIVERGED = _gauge(
    "ottla_mirror_diverged_partitions",
    "Led partitions that cannot become mirrors without consent or proof: they have records that their source lacks.",
)
MIRROR_STOPPED = _gauge(
    "ottla_mirror_stopped_partitions",
    "Led mirrored partitions that are stopped because their source is not the log that was copied.",
)
OFFLINE_REPLICAS = _gauge(
    "kafka_server_replicamanager_offlinereplicacount",
    "Replicas on this broker that are offline: a disk or a segment failed.",
)

ACTIVE_CONTROLLER = _gauge(
    "kafka_controller_kafkacontroller_activecontrollercount",
    "1 on the active controller, 0 elsewhere; 1 in total.",
)
TOPICS = _gauge(
    "kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster; reported by the controller."
)
CLUSTER_PARTITIONS = _gauge(
    "kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster; reported by the controller."
)
LEADERLESS = _gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "Partitions of the cluster without a leader; reported by the controller.",
)
NOT_PREFERRED = _gauge(
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "Partitions of the cluster that their preferred replica does not lead; reported by the controller.",
)
ACTIVE_BROKERS = _gauge(
    "kafka_controller_kafkacontroller_activebrokercount",
    "Registered brokers that are not fenced; reported by the controller.",
)
FENCED_BROKERS = _gauge(
    "kafka_controller_kafkacontroller_fencedbrokercount",
    "Registered brokers that are fenced; reported by the controller.",
)
BROKER_STATE = _gauge("kafka_server_kafkaserver_brokerstate", "1: starting, 3: running.")

LOG_SIZE = _gauge("kafka_log_log_size", "Bytes of a partition's log on this broker.", "topic", "partition")
LOG_START_OFFSET = _gauge(
    "kafka_log_log_logstartoffset", "Log start offset of a partition on this broker.", "topic", "partition"
)
LOG_END_OFFSET = _gauge(
    "kafka_log_log_logendoffset",
    "Log end offset of a partition on this broker: the offset of its next record.",
    "topic",
    "partition",
)
LOG_SEGMENTS = _gauge(
    "kafka_log_log_numlogsegments", "Segments of a partition's log on this broker.", "topic", "partition"
)
HIGH_WATERMARK = _gauge(
    "ottla_partition_high_watermark",
    "High watermark of a partition: records below it are replicated.",
    "topic",
    "partition",
)
PARTITION_REPLICAS = _gauge(
    "kafka_cluster_partition_replicascount", "Replicas of a partition that this broker leads.", "topic", "partition"
)
PARTITION_ISR = _gauge(
    "kafka_cluster_partition_insyncreplicascount",
    "In-sync replicas of a partition that this broker leads.",
    "topic",
    "partition",
)
PARTITION_UNDER_MIN_ISR = _gauge(
    "kafka_cluster_partition_underminisr",
    "1 if a partition that this broker leads has fewer in-sync replicas than min.insync.replicas.",
    "topic",
    "partition",
)
PARTITION_AT_MIN_ISR = _gauge(
    "kafka_cluster_partition_atminisr",
    "1 if a partition that this broker leads has exactly min.insync.replicas in-sync replicas.",
    "topic",
    "partition",
)
PARTITION_IS_PREFERRED = _gauge(
    "kafka_topic_partition_leader_is_preferred",
    "1 if the leader of a partition is its first replica, under the name that the Kafka exporter gives it.",
    "topic",
    "partition",
)
FLUSH_TIMES = _metric(
    "histogram",
    "ottla_log_flush_duration_seconds",
    "Duration of flushes of a log: writes of its indexes and syncs of its files.",
)
FLUSH_QUANTILES = _metric(
    "summary",
    "kafka_log_logflushstats_logflushrateandtimems",
    "Milliseconds of ottla_log_flush_duration_seconds; quantiles of the last five minutes.",
)
OFFLINE_DIRECTORIES = _gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that are offline.")
DIRECTORY_BYTES = _gauge(
    "ottla_log_directory_total_bytes", "Size of the file system of a log directory.", "logDirectory"
)
DIRECTORY_USABLE = _gauge(
    "ottla_log_directory_usable_bytes", "Free bytes of the file system of a log directory.", "logDirectory"
)

TELEMETRY_PUSHES = _counter(
    "ottla_client_telemetry_pushes_total", "Pushes of clients' own metrics (KIP-714) that were accepted."
)
TELEMETRY_DROPPED = _counter(
    "ottla_client_telemetry_dropped_points_total",
    "Values that clients pushed and that are not shown: there were too many series.",
)

GROUPS = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroups", "Consumer groups that this broker coordinates."
)
GROUPS_STABLE = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
    "Of these, groups whose members have their assignments.",
)
GROUPS_EMPTY = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsempty", "Of these, groups without members."
)
GROUPS_PREPARING = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
    "Of these, groups whose members are joining a rebalance.",
)
GROUPS_COMPLETING = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
    "Of these, groups that wait for their leader's assignment.",
)
GROUPS_DEAD = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsdead", "Of these, groups that are being removed."
)

GROUP_COUNT = _gauge(
    "kafka_server_group_coordinator_metrics_group_count",
    "Groups that this broker coordinates, by protocol.",
    "protocol",
)
CONSUMER_GROUP_COUNT = _gauge(
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "Groups of the consumer protocol (KIP-848) that this broker coordinates, by state.",
    "state",
)

STREAMS_GROUP_COUNT = _gauge(
    "kafka_server_group_coordinator_metrics_streams_group_count",
    "Groups of the streams protocol (KIP-1071) that this broker coordinates, by state.",
    "state",
)
SHARE_GROUP_COUNT = _gauge(
    "kafka_server_group_coordinator_metrics_share_group_count",
    "Share groups (KIP-932) that this broker coordinates, by state.",
    "state",
)
GROUP_OFFSET = _gauge(
    "kafka_consumergroup_current_offset",
    "Committed offset of a group that this broker coordinates, under the name that the Kafka exporter gives it.",
    "consumergroup",
    "topic",
    "partition",
)
TRANSACTIONS = _gauge(
    "ottla_transactions", "Transactional ids that this broker coordinates, by state of the transaction.", "state"
)

QUORUM_STATE = _gauge(
    "kafka_server_raftmetrics_current_state",
    "1 for the role of this broker in the quorum of the metadata log.",
    "current_state",
)
QUORUM_LEADER = _gauge(
    "kafka_server_raftmetrics_current_leader", "Leader of the metadata log that this broker knows; -1 for none."
)
QUORUM_VOTE = _gauge(
    "kafka_server_raftmetrics_current_vote", "Candidate that this broker voted for in the current epoch; -1 for none."
)
QUORUM_APPEND_RATE = _gauge(
    "kafka_server_raftmetrics_append_records_rate",
    "Records a second that this broker appended to the metadata log as its leader since the previous scrape.",
)
QUORUM_FETCH_RATE = _gauge(
    "kafka_server_raftmetrics_fetch_records_rate",
    "Records a second of the metadata log that this broker fetched from the leader since the previous scrape.",
)
QUORUM_EPOCH = _gauge("kafka_server_raftmetrics_current_epoch", "Epoch of the quorum that this broker knows.")
QUORUM_HIGH_WATERMARK = _gauge(
    "kafka_server_raftmetrics_high_watermark", "High watermark of the metadata log on this broker."
)
QUORUM_LOG_END = _gauge("kafka_server_raftmetrics_log_end_offset", "Log end offset of the metadata log on this broker.")

PROCESS_CPU = _counter("process_cpu_seconds_total", "CPU time of the broker's process, in seconds.")
PROCESS_RESIDENT = _gauge("process_resident_memory_bytes", "Resident memory of the broker's process.")
PROCESS_VIRTUAL = _gauge("process_virtual_memory_bytes", "Virtual memory of the broker's process.")
PROCESS_OPEN_FILES = _gauge("process_open_fds", "Open files and sockets of the broker's process.")
DISK_READ = _gauge("kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes that the broker's process read from disks.")
DISK_WRITTEN = _gauge(
    "kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes that the broker's process wrote to disks."
)
PROCESS_MAX_FILES = _gauge("process_max_fds", "Limit on open files and sockets.")
PROCESS_START = _gauge("process_start_time_seconds", "Start time of the broker's process, in seconds since the epoch.")
