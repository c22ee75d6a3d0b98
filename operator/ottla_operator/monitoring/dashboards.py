"""The dashboards of the chart. `python -m ottla_operator.monitoring.dashboards` writes them to
`charts/ottla/files/dashboards`; a test fails when the files differ.

Expressions are tested with a real Prometheus: each returns data.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla_operator.monitoring.cluster_dashboard import CLUSTER_DASHBOARD
from ottla_operator.monitoring.groups_dashboard import GROUPS_DASHBOARD
from ottla_operator.monitoring.mirrors_dashboard import MIRRORS_DASHBOARD
from ottla_operator.monitoring.operator_dashboard import OPERATOR_DASHBOARD
from ottla_operator.monitoring.panels import render_dashboard
from ottla_operator.monitoring.pipelines_dashboard import PIPELINES_DASHBOARD
from ottla_operator.monitoring.topics_dashboard import TOPICS_DASHBOARD

FOLDER: Final = Path("charts/ottla/files/dashboards")
DASHBOARDS: Final = (
    CLUSTER_DASHBOARD,
    TOPICS_DASHBOARD,
    GROUPS_DASHBOARD,
    MIRRORS_DASHBOARD,
    PIPELINES_DASHBOARD,
    OPERATOR_DASHBOARD,
)


def render_files() -> Mapping[Path, str]:
    """The content of each file, by its path in the checkout."""
    return {
        FOLDER / f"{dashboard.file}.json": json.dumps(render_dashboard(dashboard), indent=1, ensure_ascii=False) + "\n"
        for dashboard in DASHBOARDS
    }


if __name__ == "__main__":
    for path, text in render_files().items():
        path.write_text(text)
