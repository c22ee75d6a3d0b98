"""Dashboard: traffic, logs and replicas of topics."""

from typing import Final

from ottla_operator.monitoring.expressions import BY_CLUSTER, CLUSTER, NAMESPACE, TOPICS, rate, sum_of
from ottla_operator.monitoring.panels import TABLE, Dashboard, Panel, PanelRow, Variable

BY_TOPIC: Final = BY_CLUSTER + ',topic=~"$topic"'
TOPIC: Final = Variable("topic", "kafka_log_log_size{" + BY_CLUSTER + "}", has_all=True)
TOPICS_DASHBOARD: Final = Dashboard(
    "ottla-topics",
    "Ottla / Topics",
    BY_TOPIC,
    (NAMESPACE, CLUSTER, TOPIC),
    (
        PanelRow(
            "Traffic",
            (
                Panel("Records in", ((rate(f"{TOPICS}_messagesin_total", "topic"), "{{topic}}"),), unit="cps"),
                Panel("Bytes in", ((rate(f"{TOPICS}_bytesin_total", "topic"), "{{topic}}"),), unit="Bps"),
                Panel("Bytes out", ((rate(f"{TOPICS}_bytesout_total", "topic"), "{{topic}}"),), unit="Bps"),
                Panel("Appends", ((rate(f"{TOPICS}_totalproducerequests_total", "topic"), "{{topic}}"),), unit="reqps"),
                Panel("Reads", ((rate(f"{TOPICS}_totalfetchrequests_total", "topic"), "{{topic}}"),), unit="reqps"),
                Panel(
                    "Mean size of records",
                    (
                        (
                            rate(f"{TOPICS}_bytesin_total", "topic")
                            + " / "
                            + rate(f"{TOPICS}_messagesin_total", "topic"),
                            "{{topic}}",
                        ),
                    ),
                    unit="bytes",
                ),
            ),
        ),
        PanelRow(
            "Logs",
            (
                Panel("Size on all brokers", ((sum_of("kafka_log_log_size", "topic"), "{{topic}}"),), unit="bytes"),
                Panel(
                    "Growth in a day",
                    (("sum by (topic) (deriv(kafka_log_log_size{@}[1h])) * 86400", "{{topic}}"),),
                    unit="bytes",
                ),
                Panel("Segments", ((sum_of("kafka_log_log_numlogsegments", "topic"), "{{topic}}"),)),
            ),
        ),
        PanelRow(
            "Replicas",
            (
                Panel(
                    "Under min.insync.replicas",
                    (("sum by (topic) (kafka_cluster_partition_underminisr{@})", "{{topic}}"),),
                ),
                Panel(
                    "Replicas that are not in sync",
                    (
                        (
                            "sum by (topic) (kafka_cluster_partition_replicascount{@} - "
                            "kafka_cluster_partition_insyncreplicascount{@})",
                            "{{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Largest partitions",
                    (("topk(20, max by (topic, partition) (kafka_log_log_size{@}))", "{{topic}}-{{partition}}"),),
                    TABLE,
                    unit="bytes",
                ),
            ),
        ),
    ),
)
