"""A Pipeline replaces another: when the old one stops, what both must not share, what is
reported.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.kube.kinds import PIPELINE
from ottla_operator.plan.conditions import kstatus
from ottla_operator.plan.pipeline.pods import config_map
from ottla_operator.plan.pipeline.replacement import (
    STOPS_OLD,
    ReplacementObservations,
    find_conflict,
    find_successor,
    next_phase,
)
from ottla_operator.plan.pipeline.status import RunnerStatus
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.replacement import Comparison
from tests.unit.operator import samples
from tests.unit.operator.api_server import FakeApi
from tests.unit.operator.pipeline_world import PipelineWorld

PHASES = ("", "CatchingUp", "CaughtUp", "TakingOver", "TakenOver")
OLD = {("flights", 0): 7, ("flights", 1): 3}
EQUAL = Comparison(sink="late", at="2026-01-01T00:00:00Z", old_rows=2, new_rows=2, equal=2)
DIFFERENT = Comparison(sink="late", at="2026-01-01T00:00:00Z", old_rows=2, new_rows=2, equal=1, different=1)

ends = st.none() | st.fixed_dictionaries({it: st.integers(0, 9) for it in OLD})
observations = st.builds(
    ReplacementObservations,
    take_over=st.sampled_from(["Manual", "WhenEqual", "WhenCaughtUp"]),
    previous=st.sampled_from(PHASES),
    has_caught_up=st.booleans(),
    comparisons=st.lists(st.sampled_from([EQUAL, DIFFERENT]), max_size=2),
    old_has_stopped=st.booleans(),
    offsets=ends,
    old_offsets=st.sampled_from([OLD, {}, None]),
)


@given(observations)
def test_the_old_version_stops_only_for_one_that_has_caught_up(observed: ReplacementObservations) -> None:
    phase = next_phase(observed)
    if phase in STOPS_OLD and observed.previous not in STOPS_OLD:
        assert phase == "TakingOver" and observed.has_caught_up and observed.take_over != "Manual"
        assert observed.take_over == "WhenCaughtUp" or {it.is_equal for it in observed.comparisons} == {True}
    if observed.take_over == "Manual":
        assert phase not in STOPS_OLD, "the old one runs again"


@given(observations)
def test_a_take_over_is_complete_only_when_the_new_version_has_read_what_the_old_one_had(
    observed: ReplacementObservations,
) -> None:
    phase = next_phase(observed)
    if phase == "TakenOver" and observed.previous != "TakenOver":
        assert observed.previous == "TakingOver" and observed.old_has_stopped
        assert observed.offsets is not None and observed.old_offsets is not None
        assert all(observed.offsets[it] >= end for it, end in observed.old_offsets.items())
    if observed.previous == "TakenOver" and observed.take_over != "Manual":
        assert phase == "TakenOver", "not given up when the new version falls behind later"


def parse(**spec: Any) -> Pipeline:
    return Pipeline.parse(samples.pipeline(spec.pop("name", "hourly"), **spec))


NEW = {"name": "hourly-v2", "replaces": {"name": "hourly"}}


@pytest.mark.parametrize(
    ("spec", "conflict"),
    [
        ({}, "spec.sinks[0].topic: late is written by Pipeline hourly; a new version needs a target of its own"),
        ({"sinks": [{"from": "late", "topic": "late-2"}]}, ""),
        ({"sinks": [{"from": "late", "console": {}}]}, ""),
        ({"clusterRef": {"name": "b"}}, "spec.clusterRef.name: Pipeline hourly reads Cluster demo"),
        (
            {"consumerGroup": "ottla-pipeline-hourly"},
            "spec.consumerGroup: ottla-pipeline-hourly is that of Pipeline hourly; choose another",
        ),
        ({"name": "hourly"}, "spec.replaces.name: a Pipeline cannot replace itself"),
    ],
)
def test_two_versions_share_no_target_and_no_group(spec: dict[str, Any], conflict: str) -> None:
    assert find_conflict(parse(), parse(**{**NEW, **spec})) == conflict


def test_only_a_take_over_that_is_wanted_stops_the_old_version() -> None:
    def version(take_over: str, phase: str) -> Json:
        spec = {"replaces": {"name": "hourly", "takeOver": take_over}}
        return {"metadata": {"name": "v2"}, "spec": spec, "status": {"replacement": {"phase": phase}}}

    assert find_successor([version("WhenEqual", "TakingOver")], "hourly") == "v2"
    assert find_successor([version("WhenEqual", "TakenOver")], "hourly") == "v2"
    invalid: Json = {"metadata": {}, "spec": None}
    for other in (version("WhenEqual", "CaughtUp"), version("Manual", "TakenOver"), invalid):
        assert find_successor([other], "hourly") == ""
    assert find_successor([version("WhenEqual", "TakenOver")], "daily") == ""


def test_a_change_of_take_over_restarts_no_driver() -> None:
    sinks = [{"from": "late", "topic": "late-2", "compareWith": "late"}]
    config_maps = [
        config_map(parse(**NEW, sinks=sinks) if it is None else parse(name="hourly-v2", sinks=sinks, replaces=it), {})
        for it in (None, {"name": "hourly", "takeOver": "WhenEqual"})
    ]
    assert config_maps[0] == config_maps[1]
    assert "compareWith" in config_maps[0]["data"]["pipeline.json"]


def put_version(api: FakeApi, spec: dict[str, Any], status: Json, name: str = "hourly-v2") -> None:
    it = samples.pipeline(name, **spec)
    metadata = {"name": name, "namespace": "events", "generation": 1}
    api.put(PIPELINE, {**it, "metadata": metadata, "status": status})


def test_replaced_pipeline_is_stopped_and_runs_again_when_the_take_over_is_withdrawn(world: PipelineWorld) -> None:
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 1
    replaces = {"name": "hourly", "takeOver": "WhenCaughtUp"}
    put_version(world.api, {"replaces": replaces}, {"replacement": {"phase": "TakingOver"}})
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 0
    assert (world.pipeline["status"]["state"], kstatus(world.pipeline)) == ("Suspended", "Current")
    ready = world.conditions["Ready"]
    assert (ready["reason"], ready["message"]) == (
        "Replaced",
        "Pipeline hourly-v2 has taken over; this one is stopped, and its checkpoint is kept.",
    )
    world.api.of("Pipeline")["hourly-v2"]["spec"]["replaces"] = {"name": "hourly"}
    world.reconcile()
    assert world.deployment["spec"]["replicas"] == 1


def test_replacement_is_reported_and_stays_while_nothing_can_be_observed(world: PipelineWorld) -> None:
    put_version(world.api, {"sinks": [{"from": "late", "topic": "before"}]}, {}, "daily")
    world.edit(
        replaces={"name": "daily", "takeOver": "WhenEqual"},
        sinks=[{"from": "late", "topic": "late", "compareWith": "before"}],
    )
    world.reconcile()
    assert world.pipeline["status"]["replacement"] == {"phase": "CatchingUp"}
    world.put_pod(ready=True)
    world.runner = RunnerStatus("running", has_caught_up=True, comparisons=(DIFFERENT,))
    world.reconcile()
    replacement = world.pipeline["status"]["replacement"]
    assert replacement["phase"] == "CaughtUp"
    assert replacement["comparisons"] == [DIFFERENT.to_json()]
    assert world.reconcile() == [], "nothing has changed"
    world.runner = RunnerStatus("running", has_caught_up=True, comparisons=(EQUAL,))
    world.reconcile()
    assert world.pipeline["status"]["replacement"]["phase"] == "TakingOver"
    del world.api.objects["Cluster", "events", "demo"]
    world.start_another_operator()
    world.reconcile()
    assert world.pipeline["status"]["replacement"]["phase"] == "TakingOver"


def test_versions_with_one_target_do_not_run_at_the_same_time(world: PipelineWorld) -> None:
    world.edit(replaces={"name": "hourly-v2"})
    put_version(world.api, {}, {})
    world.reconcile()
    assert world.conditions["Stalled"]["reason"] == "ReplacementConflict"
    assert "spec.sinks[0].topic: late is written by Pipeline hourly-v2" in world.conditions["Stalled"]["message"]
