"""Dashboard: lag of groups, and their coordinators."""

from typing import Final

from ottla_operator.monitoring.expressions import BY_CLUSTER, CLUSTER, NAMESPACE, quantile, sum_of
from ottla_operator.monitoring.panels import TABLE, Dashboard, Panel, PanelRow, Variable

LAG: Final = "kafka_consumergroup_lag"
LAG_SECONDS: Final = "ottla_consumergroup_lag_seconds"
GROUPS_DASHBOARD: Final = Dashboard(
    "ottla-groups",
    "Ottla / Groups",
    BY_CLUSTER,
    (
        NAMESPACE,
        CLUSTER,
        Variable("consumergroup", "kafka_consumergroup_current_offset{" + BY_CLUSTER + "}", has_all=True),
    ),
    (
        PanelRow(
            "Lag",
            (
                Panel(
                    "Lag in records",
                    (
                        (
                            f'sum by (consumergroup, topic) ({LAG}{{@,consumergroup=~"$consumergroup"}})',
                            "{{consumergroup}} {{topic}}",
                        ),
                    ),
                    width=12,
                    description="By a recording rule of the chart.",
                ),
                Panel(
                    "Lag in seconds",
                    (
                        (
                            f'max by (consumergroup, topic) ({LAG_SECONDS}{{@,consumergroup=~"$consumergroup"}})',
                            "{{consumergroup}} {{topic}}",
                        ),
                    ),
                    unit="s",
                    width=12,
                    description="Time that producers needed for these records at their rate of the last ten minutes.",
                ),
                Panel(
                    "Records consumed",
                    (
                        (
                            "sum by (consumergroup, topic) (clamp_min(deriv(kafka_consumergroup_current_offset"
                            '{@,consumergroup=~"$consumergroup"}[$__rate_interval]), 0))',
                            "{{consumergroup}} {{topic}}",
                        ),
                    ),
                    unit="cps",
                    width=12,
                ),
                Panel(
                    "Partitions with the largest lag",
                    ((f"topk(20, max by (consumergroup, topic, partition) ({LAG}{{@}}))", "{{consumergroup}}"),),
                    TABLE,
                    width=12,
                ),
            ),
        ),
        PanelRow(
            "Coordinators",
            (
                Panel(
                    "Groups by protocol",
                    ((sum_of("kafka_server_group_coordinator_metrics_group_count", "protocol"), "{{protocol}}"),),
                ),
                Panel(
                    "Classic groups by state",
                    tuple(
                        (sum_of(f"kafka_coordinator_group_groupmetadatamanager_numgroups{state}"), state)
                        for state in ("stable", "empty", "preparingrebalance", "completingrebalance", "dead")
                    ),
                ),
                Panel(
                    "Consumer, share and streams groups by state",
                    tuple(
                        (
                            sum_of(f"kafka_server_group_coordinator_metrics_{kind}_group_count", "state"),
                            f"{kind} {{{{state}}}}",
                        )
                        for kind in ("consumer", "share", "streams")
                    ),
                ),
                Panel("Transactions by state", ((sum_of("ottla_transactions", "state"), "{{state}}"),)),
                Panel(
                    "Duration of group requests, 99th percentile",
                    (
                        (
                            quantile(
                                0.99,
                                '@,phase="total",request=~"JoinGroup|SyncGroup|OffsetCommit|ConsumerGroupHeartbeat|Heartbeat"',
                            ),
                            "{{request}}",
                        ),
                    ),
                    unit="s",
                ),
            ),
        ),
    ),
)
