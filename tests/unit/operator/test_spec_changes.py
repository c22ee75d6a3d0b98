"""Which changes of a Pipeline keep its checkpoint."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.plan.pipeline.spec_changes import (
    FIXED_CONF,
    SpecChange,
    compare_specs,
    has_state,
    needs_new_checkpoint,
    plan_migration,
)
from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.pipeline import Pipeline

Json = dict[str, Any]

FORMAT = {"type": "json", "schema": "id INT, at TIMESTAMP, city STRING"}
NAMED = "SELECT * FROM events JOIN cities ON city = code"
PAIRS = "SELECT * FROM events a JOIN events b USING (id)"
LATE = "SELECT * FROM events WHERE id > 1"
STATELESS: Json = {
    "clusterRef": {"name": "c"},
    "sources": {
        "events": {"topic": "events", "format": FORMAT},
        "cities": {
            "topic": "cities",
            "mode": "table",
            "key": "code",
            "format": {"type": "json", "schema": "name STRING"},
        },
    },
    "transforms": [{"name": "late", "sql": LATE}],
    "sinks": [{"from": "late", "topic": "late"}],
}
STATEFUL: Json = {
    **STATELESS,
    "transforms": [
        *STATELESS["transforms"],
        {"name": "hourly", "sql": "SELECT city, count(*) AS n FROM late GROUP BY city"},
    ],
    "sinks": [{"from": "hourly", "topic": "hourly", "key": ["city"], "outputMode": "update"}],
}
TWO_STREAMS: Json = {
    **STATELESS,
    "sources": {**STATELESS["sources"], "others": {"topic": "others", "format": FORMAT}},
    "sinks": [{"from": "late", "name": "out", "topic": "late"}],
}
STATE = {"from": "events", "key": ["id"], "processor": "steps.py:Visits", "columns": "id INT"}


def pipeline(spec: Json) -> Pipeline:
    return Pipeline.parse({"apiVersion": API_VERSION, "kind": "Pipeline", "metadata": {"name": "p"}, "spec": spec})


def with_value(spec: Json, *path: str | int, to: object) -> Json:
    """A copy with another value at a path; None removes the field."""
    copy = deepcopy(spec)
    at: Any = copy
    for step in path[:-1]:
        at = at[step] if isinstance(step, int) else at.setdefault(step, {})
    if to is None:
        del at[path[-1]]
    elif isinstance(at, list) and path[-1] == len(at):
        at.append(to)
    else:
        at[path[-1]] = to
    return copy


def compare(before: Json, after: Json) -> list[SpecChange]:
    return compare_specs(pipeline(before), pipeline(after))


@pytest.mark.parametrize(
    ("spec", "path", "to", "field", "checkpoint"),
    [
        (STATELESS, ("sources", "more"), {"topic": "t", "format": FORMAT}, "sources.more", "new"),
        (STATELESS, ("sources", "events", "topic"), "other", "sources.events.topic", "new"),
        (STATELESS, ("sources", "cities", "mode"), "stream", "sources.cities.mode", "new"),
        (STATELESS, ("sources", "cities"), None, "sources.cities", "keeps"),
        (STATELESS, ("sources", "cities", "topic"), "towns", "sources.cities.topic", "keeps"),
        (STATEFUL, ("sources", "cities", "format", "schema"), "name INT", "sources.cities.format", "keeps"),
        (STATELESS, ("sources", "events", "format", "schema"), "id INT", "sources.events.format", "keeps"),
        (STATEFUL, ("sources", "events", "format", "schema"), "id INT", "sources.events.format", "depends"),
        (STATEFUL, ("sources", "events", "maxOffsetsPerTrigger"), 9, "sources.events.maxOffsetsPerTrigger", "keeps"),
        (STATEFUL, ("sources", "events", "startingOffsets"), "latest", "sources.events.startingOffsets", "keeps"),
        (STATELESS, ("transforms", 0, "sql"), "SELECT id FROM events", "transforms.late", "keeps"),
        (STATEFUL, ("transforms", 0, "sql"), "SELECT id FROM events", "transforms.late", "depends"),
        (STATELESS, ("transforms", 0, "sql"), f"{LATE} AND id < 9", "transforms.late", "keeps"),
        (STATELESS, ("transforms", 0, "sql"), NAMED, "transforms.late", "keeps"),
        (STATELESS, ("transforms", 0, "sql"), PAIRS, "transforms.late", "new"),
        (TWO_STREAMS, ("transforms", 0, "sql"), "SELECT * FROM others", "transforms.late", "new"),
        (TWO_STREAMS, ("transforms", 0), {"name": "late", "union": ["events", "others"]}, "transforms.late", "new"),
        (TWO_STREAMS, ("sinks", 0, "from"), "others", "sinks.out.from", "new"),
        (STATELESS, ("transforms", 0, "sql"), "SELECT DISTINCT id FROM events", "transforms.late", "new"),
        (STATEFUL, ("transforms", 1, "sql"), "SELECT city FROM late", "transforms.hourly", "new"),
        (STATELESS, ("transforms", 1), {"name": "s", "transformWithState": STATE}, "transforms.s", "new"),
        (STATELESS, ("transforms", 1), {"name": "f", "python": "steps.py:f"}, "transforms.f", "depends"),
        (STATELESS, ("transforms", 0, "expect"), [{"name": "e", "sql": "id > 0"}], "transforms.late.expect", "keeps"),
        (STATELESS, ("sinks", 0, "outputMode"), "update", "sinks.late.outputMode", "keeps"),
        (STATEFUL, ("sinks", 0, "outputMode"), "append", "sinks.hourly.outputMode", "new"),
        (STATEFUL, ("sinks", 0, "topic"), "elsewhere", "sinks.hourly.topic", "keeps"),
        (STATEFUL, ("sinks", 1), {"from": "late", "console": {}}, "sinks.late", "keeps"),
        (STATELESS, ("dedupe",), {"columns": ["id"]}, "dedupe", "new"),
        (STATELESS, ("checkpoint",), {"path": "/other"}, "checkpoint", "new"),
        (STATELESS, ("spark", "conf"), {FIXED_CONF[0]: "9"}, f"spark.conf.{FIXED_CONF[0]}", "new"),
        (STATELESS, ("spark", "conf"), {"spark.x": "9"}, "spark.conf.spark.x", "keeps"),
        (STATELESS, ("spark", "image"), "mine", "spark", "keeps"),
        (STATELESS, ("trigger",), {"interval": "5s"}, "trigger", "keeps"),
    ],
)  # fmt: skip
def test_each_change_is_named_with_its_effect_on_the_checkpoint(
    spec: Json, path: tuple[str | int, ...], to: object, field: str, checkpoint: str
) -> None:
    (change,) = compare(spec, with_value(spec, *path, to=to))
    assert (change.field, change.checkpoint) == (field, checkpoint)
    assert change.before != change.after
    assert change.reason


def test_renamed_step_with_state_is_another_computation() -> None:
    after = with_value(with_value(STATEFUL, "transforms", 1, "name", to="daily"), "sinks", 0, "from", to="daily")
    assert [(it.field, it.checkpoint) for it in compare(STATEFUL, after)] == [
        ("transforms.hourly", "new"),
        ("transforms.daily", "new"),
        ("sinks.hourly", "keeps"),
        ("sinks.daily", "keeps"),
    ]


def test_longer_deduplication_keeps_the_checkpoint_and_another_kind_does_not() -> None:
    within = with_value(STATELESS, "dedupe", to={"columns": ["id"], "within": "1h"})
    (change,) = compare(within, with_value(within, "dedupe", "within", to="2h"))
    assert (change.field, change.before, change.after, change.checkpoint) == ("dedupe.within", "1h", "2h", "keeps")
    assert needs_new_checkpoint(compare(within, with_value(within, "dedupe", "within", to=None)))
    assert needs_new_checkpoint(compare(within, with_value(within, "dedupe", "columns", to=["city"])))


def test_plan_names_the_steps_of_the_migration() -> None:
    assert plan_migration("p", compare(STATEFUL, STATEFUL)) == []
    kept = plan_migration("p", compare(STATEFUL, with_value(STATEFUL, "trigger", to={"interval": "5s"})))
    assert kept == ["apply the new version: it continues from the checkpoint"]
    uncertain = plan_migration(
        "p", compare(STATEFUL, with_value(STATEFUL, "transforms", 0, "sql", to="SELECT 1 FROM events"))
    )
    assert "apply the old version again" in uncertain[1]
    steps = plan_migration("p", compare(STATELESS, STATEFUL))
    assert "spec.state: suspended" in steps[0]
    assert "another spec.checkpoint" in steps[1]


@given(st.sampled_from([STATELESS, STATEFUL]))
def test_spec_equals_itself_however_its_defaults_are_written(spec: Json) -> None:
    explicit = deepcopy(spec)
    for source in explicit["sources"].values():
        source.setdefault("mode", "stream")
        source.setdefault("startingOffsets", "earliest")
    for sink in explicit["sinks"]:
        sink.setdefault("outputMode", "append")
    assert compare(spec, explicit) == []
    assert has_state(pipeline(spec).spec) is (spec is STATEFUL)
