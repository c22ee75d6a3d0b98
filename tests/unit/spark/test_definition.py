"""Loading of Pipeline resources, and the errors of invalid ones."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla_spark.definition import PipelineDefinition, load_pipeline, parse_pipeline
from ottla_spark.errors import PipelineError

EXAMPLE = Path(__file__).parents[3] / "examples" / "flights" / "pipeline.yaml"
VALID: dict[str, Any] = {
    "apiVersion": "ottla.dev/v1alpha1",
    "kind": "Pipeline",
    "metadata": {"name": "copy"},
    "spec": {
        "clusterRef": {"name": "demo"},
        "sources": {"events": {"topic": "events", "format": {"type": "json", "schema": "id INT NOT NULL"}}},
        "transforms": [{"name": "big", "sql": "SELECT * FROM events WHERE id > 10"}],
        "sinks": [{"from": "big", "topic": "big", "key": ["id"]}],
    },
}


ICEBERG = {"table": "lake.db.t"}
JDBC = {"url": "jdbc:postgresql://db/flights", "table": "flights"}


def with_field(*path: str | int, to: object) -> dict[str, Any]:
    """The valid resource with one field changed, or removed if None."""
    document = copy.deepcopy(VALID)
    at: Any = document
    for step in path[:-1]:
        at = at[step]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return document


def test_example_is_valid() -> None:
    pipeline = load_pipeline(EXAMPLE)
    assert pipeline.name == "hourly-delays"
    assert pipeline.resource.consumer_group == "ottla-pipeline-hourly-delays"
    assert set(pipeline.spec.streams) == {"flights"}
    assert pipeline.folder == EXAMPLE.parent


def test_unset_fields_have_defaults() -> None:
    spec = parse_pipeline(VALID, Path()).spec
    source = spec.sources["events"]
    assert (source.mode, source.isolation, source.starting_offsets) == ("stream", "read_committed", "earliest")
    assert source.on_data_loss == "fail"
    assert (spec.sinks[0].output_mode, spec.sinks[0].query_name) == ("append", "big")
    assert (spec.stop.graceful, spec.state, spec.trigger.interval) == ("30s", "running", None)


STATE = {"from": "events", "key": ["id"], "processor": "steps.py:Visits", "columns": "id INT"}
NEVER_FINISHES = {
    **VALID["spec"],
    "transforms": [
        *VALID["spec"]["transforms"],
        {"name": "visits", "transformWithState": {**STATE, "timers": "processingTime"}},
    ],
    "trigger": {"availableNow": True},
}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (with_field("apiVersion", to="v1"), "apiVersion: 'v1' is not supported; expected ottla.dev/v1alpha1"),
        (with_field("metadata", to={}), "metadata.name is required"),
        (with_field("spec", "surces", to={}), "spec.surces: unknown field; did you mean 'sources'?"),
        (with_field("spec", "sources", to={}), "spec.sources: an object is too short; must have at least 1 entry"),
        (with_field("spec", "sinks", to=[]), "spec.sinks: a list is too short; must have at least 1 item"),
        (
            with_field("spec", "sources", "events", "watermark", to={"colum": "at", "delay": "1h"}),
            "spec.sources.events.watermark.colum: unknown field",
        ),
        (
            with_field("spec", "sources", "events", "watermark", to={"column": "at", "delay": "soon"}),
            "spec.sources.events.watermark.delay: 'soon' is not a duration",
        ),
        (with_field("spec", "sources", "events", "mode", to="table"), "at least one source must be a stream"),
        (with_field("spec", "sources", "events", "mode", to="tabel"), "spec.sources.events.mode"),
        (
            with_field("spec", "sources", "events", "maxOffsetsPerTrigger", to=0),
            "maxOffsetsPerTrigger: 0 is too small; must be at least 1",
        ),
        (with_field("spec", "sources", "events", "format", to={"type": "json"}), "json, avro and protobuf need schema"),
        (
            with_field("spec", "sources", "events", "format", to={"type": "json", "schemaRef": {}, "message": "M"}),
            "message is only for protobuf",
        ),
        (
            with_field(
                "spec", "sources", "events", "format", to={"type": "avro", "schemaRef": {"id": 1, "version": 2}}
            ),
            "an id names one schema",
        ),
        (
            with_field("spec", "sources", "events", "format", to={"type": "raw", "schema": "a INT"}),
            "json, avro and protobuf need schema or schemaRef; raw has none",
        ),
        (
            with_field("spec", "sources", "events", "keyFormat", to={"type": "avro", "schemaRef": {}}),
            "keyFormat needs key: the column that receives the key",
        ),
        (
            with_field("spec", "transforms", 0, "name", to="events"),
            "a transform cannot have the name of a source; 'events' is a source",
        ),
        (
            with_field("spec", "transforms", to=VALID["spec"]["transforms"] * 2),
            "transforms[1].name: 'big' is the name of an",
        ),
        (
            with_field("spec", "transforms", 0, "name", to="a b"),
            "spec.transforms[0].name: 'a b' is not an SQL identifier",
        ),
        (
            with_field("spec", "transforms", 0, "sql", to=None),
            "a transform has exactly one of sql, python, union, transformWithState",
        ),
        (
            with_field("spec", "transforms", 0, to={"name": "big", "python": "steps"}),
            "spec.transforms[0].python: 'steps' is not a Python file and a function or class in it",
        ),
        (
            with_field("spec", "sinks", 0, "from", to="bigg"),
            (
                "spec.sinks: a sink's `from` must name a source or a transform of this pipeline; 'bigg' is "
                "none of big, events"
            ),
        ),
        (
            with_field("spec", "transforms", 0, to={"name": "big", "union": ["events", "big", "evnts"]}),
            "spec.transforms: a step can only read sources and earlier steps; "
            "transforms[0].union: 'big', 'evnts' is none of events",
        ),
        (with_field("spec", "transforms", 0, to={"name": "big", "union": ["events"]}), "must have at least 2 items"),
        (
            with_field("spec", "transforms", 0, to={"name": "big", "transformWithState": {**STATE, "from": "late"}}),
            "transforms[0].transformWithState.from: 'late' is none of events",
        ),
        (
            with_field("spec", "transforms", 0, to={"name": "big", "transformWithState": {**STATE, "eventTime": "at"}}),
            "eventTime is only for timers: eventTime",
        ),
        (
            with_field("spec", "transforms", 0, to={"name": "big", "transformWithState": {**STATE, "timers": "wall"}}),
            "spec.transforms[0].transformWithState.timers: 'wall'",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "foreach": {"python": "send"}}),
            "spec.sinks[0].foreach.python: 'send' is not a Python file and a function or class in it",
        ),
        (
            with_field("spec", "sources", "events", "startingOffsets", to="yesterday"),
            "spec.sources.events.startingOffsets: 'yesterday' is not earliest, latest or a time, such as",
        ),
        (
            with_field("spec", "sources", "events", "startingOffsets", to="2026-02-30T00:00:00Z"),
            "startingOffsets is earliest, latest or a time that exists; '2026-02-30T00:00:00Z'",
        ),
        (with_field("spec", "sinks", 0, "topic", to=None), "exactly one target"),
        (with_field("spec", "sinks", 0, "console", to={}), "exactly one target"),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "iceberg": {"table": "db.t"}}),
            "sinks[0].iceberg.table",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "iceberg": {**ICEBERG, "partitionBy": ["day(x)"]}}),
            "sinks[0].iceberg.partitionBy[0]",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "iceberg": {**ICEBERG, "catalog": {"type": "hadoop"}}}),
            "catalogs of the types hadoop and jdbc need a warehouse",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "console": {}, "key": ["id"]}),
            "key is only for topic, iceberg, delta, jdbc",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "jdbc": JDBC, "outputMode": "update"}),
            "outputMode update of iceberg, delta, jdbc needs key",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "jdbc": JDBC, "key": ["id"], "deleteWhen": "id < 0"}),
            "sinks[0].deleteWhen: deleteWhen is only for topic, iceberg, delta, jdbc with outputMode update and key",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "jdbc": {**JDBC, "url": f"{JDBC['url']}?password=x"}}),
            "sinks[0].jdbc.url: the URL has credentials",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "jdbc": {**JDBC, "url": "jdbc:mysql://h/d"}}),
            "sinks[0].jdbc.url",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "jdbc": {**JDBC, "table": "a.b.c"}}),
            "sinks[0].jdbc.table",
        ),
        (
            with_field("spec", "sinks", 0, to={"from": "big", "parquet": {"path": "x"}, "outputMode": "update"}),
            "parquet does not support update",
        ),
        (with_field("spec", "sinks", to=VALID["spec"]["sinks"] * 2), "two sinks are named 'big'"),
        (
            with_field("spec", "trigger", to={"interval": "1s", "availableNow": True}),
            "a trigger has exactly one of interval and availableNow: true",
        ),
        (
            with_field("spec", to=NEVER_FINISHES),
            "spec.trigger: a pipeline with availableNow never finishes with timers: processingTime; 'visits' has them",
        ),
        (with_field("spec", "trigger", to={"interval": "often"}), "spec.trigger.interval: 'often' is not a duration"),
        (with_field("spec", "deadLetter", to={"topic": "dead", "maxRate": 1.5}), "spec.deadLetter.maxRate"),
    ],
)
def test_error_of_an_invalid_resource_names_the_field(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PipelineError) as raised:
        parse_pipeline(document, Path())
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def write_documents(folder: Path, *documents: object) -> Path:
    path = folder / "pipelines.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_pipeline_is_found_among_other_resources(tmp_path: Path) -> None:
    path = write_documents(tmp_path, {"kind": "Topic"}, VALID)
    assert isinstance(load_pipeline(path), PipelineDefinition)


def test_one_of_several_pipelines_is_selected_by_name(tmp_path: Path) -> None:
    path = write_documents(tmp_path, VALID, with_field("metadata", "name", to="other"))
    with pytest.raises(PipelineError, match=r"several Pipelines .copy, other.; select one with --name"):
        load_pipeline(path)
    assert load_pipeline(path, "other").name == "other"
    with pytest.raises(PipelineError, match=r"no resource of kind Pipeline named third"):
        load_pipeline(path, "third")


def test_error_names_a_file_that_is_missing_or_not_yaml(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"gone.yaml: No such file"):
        load_pipeline(tmp_path / "gone.yaml")
    (tmp_path / "bad.yaml").write_text("{")
    with pytest.raises(PipelineError, match=r"bad.yaml: not YAML"):
        load_pipeline(tmp_path / "bad.yaml")
