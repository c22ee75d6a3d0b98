"""What Argo CD makes of our resources: its health script in a real Lua (5.1, as Argo CD's), beside kstatus."""

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
MEANS = {"Current": "Healthy", "InProgress": "Progressing", "Failed": "Degraded", "Terminating": "Progressing"}


def health(kind: str, it: dict[str, Any]) -> dict[str, Any]:
    """As Argo CD runs it: the object is the global `obj`, lists are Lua's."""
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = as_lua(lua.table_from, it)
    found = lua.execute(DATA[KEY.format(kind)])
    return dict(found.items())


def as_lua(table: Callable[[Any], Any], it: Any) -> Any:
    if isinstance(it, dict):
        return table({key: as_lua(table, value) for key, value in it.items() if value is not None})
    return table([as_lua(table, value) for value in it]) if isinstance(it, list) else it


def resource(verdict: Readiness | None, observed: int | None = 2, *, leaving: bool = False) -> dict[str, Any]:
    """Of generation 2."""
    it: dict[str, Any] = {
        "metadata": {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z" if leaving else None}
    }
    if verdict is not None:
        judged = Conditions(verdict, observed or 2)
        it["status"] = {
            "observedGeneration": observed,
            "conditions": render_conditions(judged, (), "2026-01-01T00:00:00Z"),
        }
    return it


def test_every_kind_has_it() -> None:
    assert set(DATA) == {KEY.format(it.name) for it in crds.KINDS}
    assert len(set(DATA.values())) == 1


@given(
    verdict=st.sampled_from([None, Ready("fine"), Reconciling("Rolling", "broker 2"), Stalled("Refused", "no")]),
    observed=st.sampled_from([None, 1, 2]),
    leaving=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_it_says_what_kstatus_says(verdict: Readiness | None, observed: int | None, leaving: bool) -> None:
    it = resource(verdict, observed, leaving=leaving)
    if verdict is not None:  # a resource that nobody has looked at has the condition Ready Unknown by default
        assert health("Cluster", it)["status"] == MEANS[kstatus(it)]
    else:
        assert health("Cluster", it)["status"] == "Progressing"


def test_one_that_nobody_has_looked_at_is_not_healthy() -> None:
    it = {"metadata": {"generation": 1}, "status": crds.INITIAL_STATUS}
    assert health("Topic", it) == {
        "status": "Progressing",
        "message": "The operator has not reconciled this resource yet.",
    }


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Ready("it is suspended.", "Suspended"), ("Suspended", "it is suspended.")),
        (Stalled("ReconciliationPaused", "it is paused."), ("Suspended", "it is paused.")),
        (Stalled("CrashLoop", "it falls"), ("Degraded", "it falls")),
        (Ready("it has ended.", "Completed"), ("Healthy", "it has ended.")),
    ],
)
def test_messages_are_those_of_ready(verdict: Readiness, said: tuple[str, str]) -> None:
    found = health("Pipeline", resource(verdict))
    assert (found["status"], found["message"]) == said
