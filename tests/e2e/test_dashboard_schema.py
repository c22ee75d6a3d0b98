"""The chart's dashboards, read by Grafana's own types (`grafana-foundation-sdk`), which are
generated from the schemas of its dashboards, panels and Prometheus queries.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla_operator.monitoring.dashboards import FOLDER
from tests.go_programs import ProgramUnavailable, build_program, cache_folder
from tests.jars import skip_or_fail_in_ci

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "go_dashboards"
FILES = sorted((ROOT / FOLDER).glob("*.json"))


def find_problems(*files: Path) -> str:
    """A line for each file that Grafana's types refuse; empty if there is none."""
    try:
        program = build_program(SOURCE, cache_folder(SOURCE, "go-dashboards", "0"), "dashboards", "a minute or two")
    except ProgramUnavailable as reason:
        skip_or_fail_in_ci(str(reason))
    done = subprocess.run([program, *files], capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    assert (done.returncode == 0) == (done.stdout == "")
    return done.stdout


def test_grafana_s_types_accept_every_dashboard() -> None:
    assert len(FILES) > 3
    assert find_problems(*FILES) == ""


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda it: it.pop("annotations"), "annotations: required field is missing"),
        (lambda it: it["panels"][1].update(titel="Lag"), "unexpected field 'titel'"),
        (lambda it: it["panels"][1]["targets"][0].update(legend="x"), "unexpected field 'legend'"),
        (lambda it: it["panels"][1]["fieldConfig"]["defaults"].update(units="s"), "unexpected field 'units'"),
        (lambda it: it["panels"][1]["gridPos"].update(w="wide"), "gridPos.w: "),
        (lambda it: it["templating"]["list"][0].update(multi="yes"), "templating.list[0]"),
    ],
)
def test_grafana_s_types_refuse_a_damaged_dashboard(
    damage: Callable[[Any], object], problem: str, tmp_path: Path
) -> None:
    dashboard = json.loads(FILES[0].read_text())
    damage(dashboard)
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps(dashboard))
    assert problem in find_problems(damaged)
