"""What a broker counts and tells Prometheus: every metric declared once, and the plain integers that hot paths add to.

Where Kafka has a metric of the same meaning, its name here is the one that the usual JMX exporter rules give Kafka's, so that dashboards made
for Kafka work. Nothing is computed before somebody asks: `http.collection` reads the broker when it is scraped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

API_KEY_LIMIT = 128  # more than Kafka has; the size of the list that counts requests by key


@dataclass(slots=True)
class PartitionTraffic:
    """What clients wrote to and read from one partition since it came to this broker, and apart from that its followers and we as one."""

    messages_in: int = 0  # records
    bytes_in: int = 0
    bytes_out: int = 0
    replication_in: int = 0
    replication_out: int = 0
    isr_expansions: int = 0
    isr_shrinkages: int = 0


class Metric(NamedTuple):
    """One family of samples. `labels`: the names of what tells its samples apart."""

    name: str
    kind: Literal["counter", "gauge"]
    doc: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """`labels`: the values of the metric's labels, in their order."""

    labels: Sequence[str]
    value: float


METRICS: list[Metric] = []


def _metric(kind: Literal["counter", "gauge"], name: str, doc: str, *labels: str) -> Metric:
    made = Metric(name, kind, doc, labels)
    METRICS.append(made)
    return made


def _counter(name: str, doc: str, *labels: str) -> Metric:
    return _metric("counter", name, doc, *labels)


def _gauge(name: str, doc: str, *labels: str) -> Metric:
    return _metric("gauge", name, doc, *labels)


MESSAGES_IN = _counter(
    "kafka_server_brokertopicmetrics_messagesin_total", "Records that producers wrote to partitions led here.", "topic"
)
BYTES_IN = _counter(
    "kafka_server_brokertopicmetrics_bytesin_total", "Bytes that producers wrote to partitions led here.", "topic"
)
BYTES_OUT = _counter(
    "kafka_server_brokertopicmetrics_bytesout_total", "Bytes that consumers were sent from partitions here.", "topic"
)
REPLICATION_BYTES_IN = _counter(
    "kafka_server_brokertopicmetrics_replicationbytesin_total", "Bytes that were copied from the leaders of partitions."
)
REPLICATION_BYTES_OUT = _counter(
    "kafka_server_brokertopicmetrics_replicationbytesout_total",
    "Bytes that followers were sent of partitions led here.",
)
REQUESTS = _counter("kafka_network_requestmetrics_requests_total", "Requests that came, by API.", "request")

CONNECTIONS = _gauge(
    "kafka_server_socketservermetrics_connection_count", "Connections that are open, by listener.", "listener"
)
CONNECTIONS_REFUSED = _counter(
    "ottla_connections_refused_total", "Connections that were closed because there were too many."
)
REQUEST_MEMORY = _gauge(
    "ottla_request_memory_bytes", "Memory that large requests hold, of queued.max.request.bytes at most."
)
RESPONSE_MEMORY = _gauge(
    "ottla_response_memory_bytes", "Memory that answers hold which slow readers have not taken yet."
)

PARTITIONS = _gauge("kafka_server_replicamanager_partitioncount", "Partitions that have a replica on this broker.")
LEADERS = _gauge("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.")
UNDER_REPLICATED = _gauge(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "Partitions led here whose in-sync replicas are fewer than their replicas.",
)
UNDER_MIN_ISR = _gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Partitions led here whose in-sync replicas are fewer than min.insync.replicas: they refuse acks=all.",
)
AT_MIN_ISR = _gauge(
    "kafka_server_replicamanager_atminisrpartitioncount",
    "Partitions led here whose in-sync replicas are as many as min.insync.replicas: one less, and they refuse acks=all.",
)
REASSIGNING = _gauge(
    "kafka_server_replicamanager_reassigningpartitions", "Partitions led here whose replicas are being moved."
)
ISR_SHRINKS = _counter(
    "kafka_server_replicamanager_isrshrinks_total",
    "How often the in-sync replicas of a partition led here became fewer.",
)
ISR_EXPANDS = _counter(
    "kafka_server_replicamanager_isrexpands_total",
    "How often the in-sync replicas of a partition led here became more.",
)
MAX_LAG = _gauge(
    "kafka_server_replicafetchermanager_maxlag",
    "Records by which the replica here that is furthest behind lacks what its leader has committed.",
)
MIRROR_LAG = _gauge(
    "ottla_mirror_lag_records",
    "Offsets by which the source's high watermark is ahead of a copy that this broker fills, as last seen.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_LAG_SECONDS = _gauge(
    "ottla_mirror_lag_seconds",
    "For how long something has been missing in a copy that this broker fills; 0 when nothing is.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_LAG_BYTES = _gauge(
    "ottla_mirror_lag_bytes",
    "About how many bytes are missing in a copy that this broker fills: the offsets that are, each as large as those that came last.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_SILENCE = _gauge(
    "ottla_mirror_source_silence_seconds",
    "For how long the source's broker that a copy is filled from has not answered; one that lives answers every fetch.max.wait.ms, records or not.",
    "mirror",
    "topic",
    "partition",
)
MIRROR_DIVERGED = _gauge(
    "ottla_mirror_diverged_partitions",
    "Partitions that this broker leads and that cannot become copies without consent, or proof: they have records that their source has not.",
)
MIRROR_STOPPED = _gauge(
    "ottla_mirror_stopped_partitions",
    "Copied partitions that this broker leads and that stand still because their source is not what was copied.",
)
OFFLINE_REPLICAS = _gauge(
    "kafka_server_replicamanager_offlinereplicacount",
    "Replicas here whose log cannot be used: a disk or a segment failed.",
)

ACTIVE_CONTROLLER = _gauge(
    "kafka_controller_kafkacontroller_activecontrollercount",
    "1 on the broker that is the controller; 1 over the cluster.",
)
TOPICS = _gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics of the cluster, told by the controller.")
CLUSTER_PARTITIONS = _gauge(
    "kafka_controller_kafkacontroller_globalpartitioncount", "Partitions of the cluster, told by the controller."
)
LEADERLESS = _gauge(
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "Partitions of the cluster without a leader, told by the controller.",
)
NOT_PREFERRED = _gauge(
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
    "Partitions of the cluster that are not led by their first replica, told by the controller.",
)
ACTIVE_BROKERS = _gauge(
    "kafka_controller_kafkacontroller_activebrokercount",
    "Brokers that are registered and live, told by the controller.",
)
FENCED_BROKERS = _gauge(
    "kafka_controller_kafkacontroller_fencedbrokercount",
    "Brokers that are registered and fenced, told by the controller.",
)
BROKER_STATE = _gauge("kafka_server_kafkaserver_brokerstate", "1: starting, 3: running.")

LOG_SIZE = _gauge("kafka_log_log_size", "Bytes of a partition's log on this broker.", "topic", "partition")
LOG_START_OFFSET = _gauge(
    "kafka_log_log_logstartoffset", "Offset of a partition's first record here.", "topic", "partition"
)
LOG_END_OFFSET = _gauge(
    "kafka_log_log_logendoffset", "Offset that a partition's next record will have here.", "topic", "partition"
)
LOG_SEGMENTS = _gauge(
    "kafka_log_log_numlogsegments", "Segments of a partition's log on this broker.", "topic", "partition"
)
HIGH_WATERMARK = _gauge(
    "ottla_partition_high_watermark", "Offset below which a partition's records are replicated.", "topic", "partition"
)
OFFLINE_DIRECTORIES = _gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that failed.")
DIRECTORY_BYTES = _gauge(
    "ottla_log_directory_total_bytes", "Size of the file system below a log directory.", "logDirectory"
)
DIRECTORY_USABLE = _gauge(
    "ottla_log_directory_usable_bytes", "Bytes that can still be written below a log directory.", "logDirectory"
)

GROUPS = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroups", "Consumer groups that this broker coordinates."
)
GROUPS_STABLE = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
    "Of them, those whose members have their partitions.",
)
GROUPS_EMPTY = _gauge("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", "Of them, those without members.")
GROUPS_PREPARING = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
    "Of them, those that gather their members.",
)
GROUPS_COMPLETING = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
    "Of them, those that wait for their leader's assignment.",
)
GROUPS_DEAD = _gauge(
    "kafka_coordinator_group_groupmetadatamanager_numgroupsdead", "Of them, those that are about to go."
)

PROCESS_CPU = _counter("process_cpu_seconds_total", "Seconds of CPU that the broker's process has used.")
PROCESS_RESIDENT = _gauge("process_resident_memory_bytes", "Memory of the broker's process that is in RAM.")
PROCESS_VIRTUAL = _gauge("process_virtual_memory_bytes", "Address space of the broker's process.")
PROCESS_OPEN_FILES = _gauge("process_open_fds", "Files and sockets that the broker's process has open.")
PROCESS_MAX_FILES = _gauge("process_max_fds", "Files and sockets that it may have open.")
PROCESS_START = _gauge("process_start_time_seconds", "When the broker's process started, in seconds since the epoch.")
