"""Dashboard: work of the operator."""

from typing import Final

from ottla_operator.monitoring.expressions import rate, sum_of
from ottla_operator.monitoring.panels import GRAPH, STAT, Dashboard, Panel, PanelRow, Variable

OPERATOR_DASHBOARD: Final = Dashboard(
    "ottla-operator",
    "Ottla / Operator",
    'namespace="$namespace"',
    (Variable("namespace", "ottla_operator_active"),),
    (
        PanelRow(
            "Operator",
            (
                Panel("Active operators", ((sum_of("ottla_operator_active"), "operators"),), STAT),
                Panel("Resources", ((("max by (kind) (ottla_operator_resources{@})"), "{{kind}}"),)),
                Panel(
                    "Reconciles",
                    ((rate("ottla_operator_reconciles_total", "kind, result"), "{{kind}} {{result}}"),),
                    unit="ops",
                ),
                Panel(
                    "Mean duration of a reconcile",
                    (
                        (
                            rate("ottla_operator_reconcile_seconds_total", "kind")
                            + " / "
                            + rate("ottla_operator_reconciles_total", "kind"),
                            "{{kind}}",
                        ),
                    ),
                    unit="s",
                ),
                Panel(
                    "Writes to the API server",
                    ((rate("ottla_operator_writes_total", "kind"), "{{kind}}"),),
                    unit="ops",
                ),
                Panel(
                    "Memory",
                    (("process_resident_memory_bytes{@} and on (pod) ottla_operator_active", "{{pod}}"),),
                    GRAPH,
                    unit="bytes",
                ),
            ),
        ),
    ),
)
