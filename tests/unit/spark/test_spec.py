"""A Pipeline resource, read: what is right, and sentences for what is wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla_spark.spec import Pipeline, load, of
from ottla_spark.trouble import Trouble

EXAMPLE = Path(__file__).parents[3] / "examples" / "flights" / "pipeline.yaml"
RIGHT: dict[str, Any] = {
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


def changed(*path: str | int, to: object) -> dict[str, Any]:
    """The right resource with one thing changed; None takes it away."""
    document = copy.deepcopy(RIGHT)
    at: Any = document
    for step in path[:-1]:
        at = at[step]
    if to is None:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return document


def test_the_example_is_right() -> None:
    pipeline = load(EXAMPLE)
    assert pipeline.name == "hourly-delays"
    assert pipeline.group == "ottla-pipeline-hourly-delays"
    assert set(pipeline.streams) == {"flights"}
    assert pipeline.folder == EXAMPLE.parent


def test_what_is_left_out_has_a_default() -> None:
    spec = of(RIGHT, Path()).spec
    source = spec.sources["events"]
    assert (source.mode, source.isolation, source.starting_offsets) == ("stream", "read_committed", "earliest")
    assert source.on_data_loss == "fail"
    assert (spec.sinks[0].output_mode, spec.sinks[0].query) == ("append", "big")
    assert (spec.stop.graceful, spec.state, spec.trigger.interval) == ("30s", "running", None)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (changed("apiVersion", to="v1"), "apiVersion must be ottla.dev/v1alpha1"),
        (changed("metadata", to={}), "metadata.name is missing"),
        (changed("spec", "surces", to={}), "spec: object contains unknown field `surces`"),
        (changed("spec", "sources", to={}), "spec.sources: a pipeline reads at least one topic"),
        (changed("spec", "sinks", to=[]), "spec.sinks: a pipeline writes somewhere"),
        (
            changed("spec", "sources", "events", "watermark", to={"colum": "at", "delay": "1h"}),
            "spec.sources.events.watermark: object",
        ),
        (
            changed("spec", "sources", "events", "watermark", to={"column": "at", "delay": "soon"}),
            "spec.sources.events.watermark.delay: 'soon' is no duration",
        ),
        (changed("spec", "sources", "events", "mode", to="table"), "at least one source must be a stream"),
        (changed("spec", "sources", "events", "mode", to="tabel"), "spec.sources.events.mode"),
        (changed("spec", "sources", "events", "maxOffsetsPerTrigger", to=0), "maxOffsetsPerTrigger: at least 1"),
        (changed("spec", "sources", "events", "format", to={"type": "json"}), "json needs Spark's DDL"),
        (changed("spec", "sources", "events", "format", to={"type": "avro", "schema": "{}"}), "avro is not supported"),
        (changed("spec", "sources", "events", "format", to={"type": "raw", "schema": "a INT"}), "raw has no schema"),
        (changed("spec", "transforms", 0, "name", to="events"), "'events' is taken"),
        (changed("spec", "transforms", 0, "name", to="a b"), "no name that SQL takes"),
        (changed("spec", "transforms", 0, "sql", to=None), "in sql or in python, in exactly one"),
        (changed("spec", "transforms", 0, to={"name": "big", "python": "steps"}), "write file.py:function"),
        (changed("spec", "sinks", 0, "from", to="bigg"), "spec.sinks[0].from: there is no source or transform named"),
        (changed("spec", "sinks", 0, "topic", to=None), "exactly one target"),
        (changed("spec", "sinks", 0, "console", to={}), "exactly one target"),
        (changed("spec", "sinks", 0, to={"from": "big", "delta": {"path": "x"}}), "delta is not supported yet"),
        (changed("spec", "sinks", 0, to={"from": "big", "console": {}, "key": ["id"]}), "key is for a topic"),
        (
            changed("spec", "sinks", 0, to={"from": "big", "parquet": {"path": "x"}, "outputMode": "update"}),
            "files cannot be updated",
        ),
        (changed("spec", "sinks", to=RIGHT["spec"]["sinks"] * 2), "two sinks are named 'big'"),
        (changed("spec", "trigger", to={"interval": "1s", "availableNow": True}), "not both"),
        (changed("spec", "trigger", to={"interval": "often"}), "spec.trigger.interval: 'often' is no duration"),
        (changed("spec", "deadLetter", to={"topic": "dead", "maxRate": 1.5}), "spec.deadLetter.maxRate"),
    ],
)
def test_what_is_wrong_is_said_with_its_field(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Trouble) as trouble:
        of(document, Path())
    assert sentence in str(trouble.value)
    assert "\n" not in str(trouble.value)


def written(folder: Path, *documents: object) -> Path:
    path = folder / "pipelines.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


def test_a_pipeline_is_found_among_other_resources(tmp_path: Path) -> None:
    path = written(tmp_path, {"kind": "Topic"}, RIGHT)
    assert isinstance(load(path), Pipeline)


def test_one_of_several_is_picked_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, RIGHT, changed("metadata", "name", to="other"))
    with pytest.raises(Trouble, match=r"several Pipelines in it .copy, other.; say which with --name"):
        load(path)
    assert load(path, "other").name == "other"
    with pytest.raises(Trouble, match=r"no resource of kind Pipeline named third"):
        load(path, "third")


def test_a_file_that_is_no_yaml_or_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match=r"gone.yaml: No such file"):
        load(tmp_path / "gone.yaml")
    (tmp_path / "bad.yaml").write_text("{")
    with pytest.raises(Trouble, match=r"bad.yaml: not YAML"):
        load(tmp_path / "bad.yaml")
