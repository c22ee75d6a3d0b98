"""Argo CD's health script for the custom resources, run by Lua 5.1 as in Argo CD and compared with
kstatus.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from lupa import lua51

from ottla_operator.plan.conditions import (
    Conditions,
    Readiness,
    Ready,
    Reconciling,
    Stalled,
    kstatus,
    render_conditions,
)
from ottla_operator.resources import crds

DATA = yaml.safe_load((Path(crds.__file__).parents[3] / "charts/ottla/files/argocd/argocd-cm.yaml").read_text())["data"]
KEY = "resource.customizations.health.ottla.dev_{}"
HEALTH_BY_KSTATUS = {
    "Current": "Healthy",
    "InProgress": "Progressing",
    "Failed": "Degraded",
    "Terminating": "Progressing",
}


def health(kind: str, it: dict[str, Any]) -> dict[str, Any]:
    """Runs the script as Argo CD does: the object is the global `obj`, and lists are tables."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = as_lua(lua.table_from, it)
    found = lua.execute(DATA[KEY.format(kind)])
    return dict(found.items())


def as_lua(table: Callable[[Any], Any], it: Any) -> Any:
    if isinstance(it, dict):
        return table({key: as_lua(table, value) for key, value in it.items() if value is not None})
    return table([as_lua(table, value) for value in it]) if isinstance(it, list) else it


def resource(readiness: Readiness | None, observed: int | None = 2, *, terminating: bool = False) -> dict[str, Any]:
    """A resource of generation 2 with the conditions of this readiness; None: without a status."""
    it: dict[str, Any] = {
        "metadata": {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z" if terminating else None}
    }
    if readiness is not None:
        conditions = Conditions(readiness, observed or 2)
        it["status"] = {
            "observedGeneration": observed,
            "conditions": render_conditions(conditions, (), "2026-01-01T00:00:00Z"),
        }
    return it


def test_every_kind_has_the_health_script() -> None:
    assert set(DATA) == {KEY.format(it.name) for it in crds.KINDS}
    assert len(set(DATA.values())) == 1


@given(
    readiness=st.sampled_from([None, Ready("fine"), Reconciling("Rolling", "broker 2"), Stalled("Refused", "no")]),
    observed=st.sampled_from([None, 1, 2]),
    terminating=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_health_agrees_with_kstatus(readiness: Readiness | None, observed: int | None, terminating: bool) -> None:
    it = resource(readiness, observed, terminating=terminating)
    if readiness is not None:  # without a status, the CRD's default is Ready=Unknown
        assert health("Cluster", it)["status"] == HEALTH_BY_KSTATUS[kstatus(it)]
    else:
        assert health("Cluster", it)["status"] == "Progressing"


def test_resource_without_a_status_is_not_healthy() -> None:
    it = {"metadata": {"generation": 1}, "status": crds.INITIAL_STATUS}
    assert health("Topic", it) == {
        "status": "Progressing",
        "message": "The operator has not reconciled this resource yet.",
    }


@pytest.mark.parametrize(
    ("readiness", "expected"),
    [
        (Ready("it is suspended.", "Suspended"), ("Suspended", "it is suspended.")),
        (Stalled("ReconciliationPaused", "it is paused."), ("Suspended", "it is paused.")),
        (Stalled("CrashLoop", "it crashes"), ("Degraded", "it crashes")),
        (Ready("it has ended.", "Completed"), ("Healthy", "it has ended.")),
    ],
)
def test_message_is_that_of_condition_ready(readiness: Readiness, expected: tuple[str, str]) -> None:
    found = health("Pipeline", resource(readiness))
    assert (found["status"], found["message"]) == expected
