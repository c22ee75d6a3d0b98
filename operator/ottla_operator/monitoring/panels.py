"""Panels of dashboards, and the JSON that Grafana imports
(https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

SCHEMA_VERSION: Final = 39
GRID_WIDTH: Final = 24
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
STAT, GRAPH, TABLE = "stat", "timeseries", "table"
HEIGHTS: Final = {STAT: 4, GRAPH: 8, TABLE: 8}

JsonObject = dict[str, Any]
Query = tuple[str, str]
"""An expression and its legend. `@` in an expression stands for the dashboard's selector."""


@dataclass(frozen=True)
class Panel:
    """`unit`: of Grafana. `red_above`: values from this one on are shown in red."""

    title: str
    queries: Sequence[Query]
    kind: str = GRAPH
    unit: str = "short"
    width: int = 8
    description: str = ""
    red_above: float | None = None


@dataclass(frozen=True)
class PanelRow:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Variable:
    """A choice of values of a label. `query`: PromQL whose series have the label."""

    label: str
    query: str
    has_all: bool = False


@dataclass(frozen=True)
class Dashboard:
    """`selector`: matchers that every expression contains in place of `@`."""

    file: str
    title: str
    selector: str
    variables: Sequence[Variable]
    rows: Sequence[PanelRow]

    def panels(self) -> Iterator[Panel]:
        for row in self.rows:
            yield from row.panels

    def expressions(self) -> Iterator[str]:
        """Every expression as the JSON contains it."""
        for panel in self.panels():
            for expression, _ in panel.queries:
                yield expression.replace("@", self.selector)


def render_dashboard(dashboard: Dashboard) -> JsonObject:
    return {
        "title": dashboard.title,
        "uid": dashboard.file,
        "tags": ["ottla", "kafka"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "templating": {"list": [_DATASOURCE_VARIABLE, *map(_variable, dashboard.variables)]},
        "panels": list(_place_panels(dashboard)),
    }


_DATASOURCE_VARIABLE: Final = {
    "name": "datasource",
    "type": "datasource",
    "query": "prometheus",
    "label": "Data source",
}


def _variable(variable: Variable) -> JsonObject:
    rendered: JsonObject = {
        "name": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": f"label_values({variable.query}, {variable.label})",
        "refresh": 2,
        "label": variable.label.capitalize(),
    }
    if variable.has_all:
        rendered |= {"includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    return rendered


def _place_panels(dashboard: Dashboard) -> Iterator[JsonObject]:
    """Panels from left to right, in lines that are as high as their highest panel."""
    number = x = y = height = 0
    for row in dashboard.rows:
        y, x, height = y + height, 0, 0
        number += 1
        position = {"h": 1, "w": GRID_WIDTH, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "gridPos": position, "panels": []}
        y += 1
        for panel in row.panels:
            if x + panel.width > GRID_WIDTH:
                y, x, height = y + height, 0, 0
            number += 1
            height = max(height, HEIGHTS[panel.kind])
            position = {"h": HEIGHTS[panel.kind], "w": panel.width, "x": x, "y": y}
            yield _panel(panel, number, position, dashboard.selector)
            x += panel.width


def _panel(panel: Panel, number: int, position: JsonObject, selector: str) -> JsonObject:
    defaults: JsonObject = {"unit": panel.unit}
    if panel.red_above is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.red_above}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": DATASOURCE,
            "expr": expression.replace("@", selector),
            "legendFormat": legend,
            **({"format": "table", "instant": True} if panel.kind == TABLE else {}),
        }
        for index, (expression, legend) in enumerate(panel.queries)
    ]
    rendered = {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "datasource": DATASOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": targets,
    }
    return rendered | ({"description": panel.description} if panel.description else {})
