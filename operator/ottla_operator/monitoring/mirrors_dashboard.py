"""Dashboard: lag of mirrors, and their sources."""

from typing import Final

from ottla_operator.monitoring.expressions import BY_CLUSTER, CLUSTER, NAMESPACE, sum_of
from ottla_operator.monitoring.panels import STAT, Dashboard, Panel, PanelRow

MIRRORS_DASHBOARD: Final = Dashboard(
    "ottla-mirrors",
    "Ottla / Mirrors",
    BY_CLUSTER,
    (NAMESPACE, CLUSTER),
    (
        PanelRow(
            "Lag",
            (
                Panel(
                    "Lag in records", ((sum_of("ottla_mirror_lag_records", "mirror, topic"), "{{mirror}} {{topic}}"),)
                ),
                Panel(
                    "Lag in seconds",
                    (("max by (mirror, topic) (ottla_mirror_lag_seconds{@})", "{{mirror}} {{topic}}"),),
                    unit="s",
                ),
                Panel(
                    "Lag in bytes",
                    ((sum_of("ottla_mirror_lag_bytes", "mirror, topic"), "{{mirror}} {{topic}}"),),
                    unit="bytes",
                ),
            ),
        ),
        PanelRow(
            "Sources",
            (
                Panel(
                    "Silence of the source",
                    (("max by (mirror) (ottla_mirror_source_silence_seconds{@})", "{{mirror}}"),),
                    unit="s",
                ),
                Panel(
                    "Stopped partitions",
                    ((sum_of("ottla_mirror_stopped_partitions"), "partitions"),),
                    STAT,
                    red_above=1,
                ),
                Panel(
                    "Diverged partitions",
                    ((sum_of("ottla_mirror_diverged_partitions"), "partitions"),),
                    STAT,
                    red_above=1,
                ),
            ),
        ),
    ),
)
