"""Dashboard: health, traffic, requests and brokers of one cluster."""

from typing import Final

from ottla_operator.monitoring.expressions import (
    BROKER_STATE,
    BY_CLUSTER,
    CLUSTER,
    NAMESPACE,
    TOPICS,
    quantile,
    rate,
    sum_of,
)
from ottla_operator.monitoring.panels import STAT, Dashboard, Panel, PanelRow

CLUSTER_DASHBOARD: Final = Dashboard(
    "ottla-cluster",
    "Ottla / Cluster",
    BY_CLUSTER,
    (NAMESPACE, CLUSTER),
    (
        PanelRow(
            "Health",
            (
                Panel("Active brokers", ((f"sum({BROKER_STATE}{{@}} == bool 3)", "brokers"),), STAT, width=4),
                Panel(
                    "Controllers",
                    ((sum_of("kafka_controller_kafkacontroller_activecontrollercount"), "controllers"),),
                    STAT,
                    width=4,
                    red_above=2,
                ),
                Panel(
                    "Partitions without a leader",
                    (("max(kafka_controller_kafkacontroller_offlinepartitionscount{@})", "offline"),),
                    STAT,
                    width=4,
                    red_above=1,
                ),
                Panel(
                    "Under min.insync.replicas",
                    ((sum_of("kafka_server_replicamanager_underminisrpartitioncount"), "partitions"),),
                    STAT,
                    width=4,
                    red_above=1,
                ),
                Panel(
                    "Under-replicated",
                    ((sum_of("kafka_server_replicamanager_underreplicatedpartitions"), "partitions"),),
                    STAT,
                    width=4,
                    red_above=1,
                ),
                Panel(
                    "Failed log directories",
                    ((sum_of("kafka_log_logmanager_offlinelogdirectorycount"), "directories"),),
                    STAT,
                    width=4,
                    red_above=1,
                ),
            ),
        ),
        PanelRow(
            "Traffic",
            (
                Panel("Records in", ((rate(f"{TOPICS}_messagesin_total", "pod"), "{{pod}}"),), unit="cps"),
                Panel("Bytes in", ((rate(f"{TOPICS}_bytesin_total", "pod"), "{{pod}}"),), unit="Bps"),
                Panel("Bytes out", ((rate(f"{TOPICS}_bytesout_total", "pod"), "{{pod}}"),), unit="Bps"),
                Panel(
                    "Replication",
                    (
                        (rate(f"{TOPICS}_replicationbytesin_total", "pod"), "{{pod}} in"),
                        (rate(f"{TOPICS}_replicationbytesout_total", "pod"), "{{pod}} out"),
                    ),
                    unit="Bps",
                ),
                Panel(
                    "Connections",
                    (
                        (
                            sum_of("kafka_server_socketservermetrics_connection_count", "pod, listener"),
                            "{{pod}} {{listener}}",
                        ),
                    ),
                ),
                Panel(
                    "Throttled requests",
                    ((rate("ottla_client_quota_throttled_total", "quota, entity"), "{{quota}} {{entity}}"),),
                    unit="reqps",
                    description="Empty unless clients exceed quotas.",
                ),
            ),
        ),
        PanelRow(
            "Requests",
            (
                Panel(
                    "Requests",
                    ((rate("kafka_network_requestmetrics_requests_total", "request"), "{{request}}"),),
                    unit="reqps",
                ),
                Panel("Duration, 99th percentile", ((quantile(0.99, '@,phase="total"'), "{{request}}"),), unit="s"),
                Panel("Duration, median", ((quantile(0.5, '@,phase="total"'), "{{request}}"),), unit="s"),
                Panel(
                    "Produce by phase, 99th percentile",
                    ((quantile(0.99, '@,request="Produce"', "phase"), "{{phase}}"),),
                    unit="s",
                ),
                Panel(
                    "FetchConsumer by phase, 99th percentile",
                    ((quantile(0.99, '@,request="FetchConsumer"', "phase"), "{{phase}}"),),
                    unit="s",
                ),
                Panel(
                    "Waiting requests",
                    (
                        (
                            sum_of("kafka_server_delayedoperationpurgatory_purgatorysize", "delayedOperation"),
                            "{{delayedOperation}}",
                        ),
                    ),
                ),
            ),
        ),
        PanelRow(
            "Brokers",
            (
                Panel("Processor", ((rate("process_cpu_seconds_total", "pod"), "{{pod}}"),), unit="percentunit"),
                Panel("Memory", ((sum_of("process_resident_memory_bytes", "pod"), "{{pod}}"),), unit="bytes"),
                Panel(
                    "Idle share of the request thread",
                    (("min by (pod) (kafka_network_socketserver_networkprocessoravgidle_percent{@})", "{{pod}}"),),
                    unit="percentunit",
                ),
                Panel(
                    "Disk used",
                    (
                        (
                            "max by (pod) (1 - ottla_log_directory_usable_bytes{@}"
                            " / ottla_log_directory_total_bytes{@})",
                            "{{pod}}",
                        ),
                    ),
                    unit="percentunit",
                ),
                Panel(
                    "Flush of a log, 99th percentile",
                    (
                        (
                            "histogram_quantile(0.99, "
                            + rate("ottla_log_flush_duration_seconds_bucket", "pod, le")
                            + ")",
                            "{{pod}}",
                        ),
                    ),
                    unit="s",
                ),
                Panel(
                    "Open files",
                    (("max by (pod) (process_open_fds{@} / process_max_fds{@})", "{{pod}}"),),
                    unit="percentunit",
                ),
                Panel(
                    "Metadata log",
                    (
                        ("max(kafka_server_raftmetrics_high_watermark{@})", "high watermark"),
                        ("max(kafka_server_raftmetrics_current_epoch{@})", "epoch"),
                    ),
                ),
                Panel(
                    "In-sync replicas that changed",
                    (
                        (rate("kafka_server_replicamanager_isrshrinks_total", "pod"), "{{pod}} left"),
                        (rate("kafka_server_replicamanager_isrexpands_total", "pod"), "{{pod}} joined"),
                    ),
                ),
                Panel(
                    "Certificates expire in",
                    (
                        (
                            "min by (pod, listener) (ottla_listener_certificate_expiry_seconds{@}) - time()",
                            "{{pod}} {{listener}}",
                        ),
                    ),
                    unit="s",
                ),
            ),
        ),
    ),
)
