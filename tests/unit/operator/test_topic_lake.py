"""Topics with a lake: the Pipeline that fills its table, on Kubernetes and with `ottla up`."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.kube.kinds import PIPELINE
from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home
from ottla_operator.local.lake_documents import lake_documents, write_lake_documents
from ottla_operator.plan.pipeline.desired import find_unsupported
from ottla_operator.plan.topic_lake import lake_pipeline, lake_pipeline_name, lake_status
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.topic import Topic
from ottla_operator.resources.validation import validate_resource
from ottla_spark.definition import load_pipeline
from tests.unit.async_tests import async_test
from tests.unit.operator import samples
from tests.unit.operator.topic_world import KEY, TopicWorld

CATALOG = {"type": "hadoop", "warehouse": "s3a://bucket/lake"}
LAKE: dict[str, Any] = {"iceberg": {"table": "lake.air.flights", "catalog": CATALOG}}
POD_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


def topic(name: str = "flights", **lake: Any) -> Topic:
    data = samples.topic(name, lake={**LAKE, **lake})
    assert validate_resource(data) == []
    return Topic.parse(data)


def plan_pipeline(it: Topic) -> Json:
    pipeline = lake_pipeline(it)
    assert pipeline is not None
    assert validate_resource(pipeline) == []
    return pipeline


def test_records_are_appended_by_day_with_their_origin() -> None:
    pipeline = plan_pipeline(topic())
    (sink,) = pipeline["spec"]["sinks"]
    assert sink["iceberg"] == {
        **LAKE["iceberg"],
        "partitionBy": ["days(record_timestamp)"],
        "maintenance": {},
    }
    assert pipeline["spec"]["sources"] == {"records": {"topic": "flights", "format": {"type": "raw"}}}
    assert pipeline["spec"]["trigger"] == {"interval": "1m"}
    assert find_unsupported(Pipeline.parse(pipeline)) == ""
    assert lake_pipeline(Topic.parse(samples.topic())) is None


def test_fields_of_a_lake_are_those_of_its_pipeline() -> None:
    format_ = {"type": "json", "schema": "carrier STRING"}
    pipeline = plan_pipeline(
        topic(format=format_, key="code", interval="10s", checkpoint={"path": "s3a://b/c"}, spark={"conf": {"a": "b"}})
    )
    spec = pipeline["spec"]
    assert spec["sources"]["records"] == {"topic": "flights", "format": format_, "key": "code"}
    assert (spec["trigger"], spec["checkpoint"]) == ({"interval": "10s"}, {"path": "s3a://b/c"})
    assert spec["spark"] == {"conf": {"a": "b"}}


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True))
def test_names_of_pipelines_can_begin_the_names_of_pods(name: str) -> None:
    assert POD_NAME.fullmatch(lake_pipeline_name(name))
    assert lake_pipeline_name(name) != lake_pipeline_name(f"{name}x")


def test_status_says_how_far_the_table_is_behind() -> None:
    assert lake_status(topic(), None) == {"pipeline": "lake-flights"}
    status = {"state": "Running", "lagRecords": 0, "lagSeconds": 0.0, "lastError": "old"}
    assert lake_status(topic(), {"status": status}) == {
        "pipeline": "lake-flights",
        "state": "Running",
        "lagRecords": 0,
        "lagSeconds": 0.0,
    }
    not_ready = {"conditions": [{"type": "Ready", "status": "False", "message": "no"}]}
    assert lake_status(topic(), {"status": not_ready}) == {"pipeline": "lake-flights", "message": "no"}


@async_test
async def test_pipeline_belongs_to_the_topic_and_its_lag_is_in_the_status() -> None:
    world = TopicWorld()
    world.create("flights", lake=LAKE)
    await world.reconcile()
    made = world.api.objects[PIPELINE.name, KEY.namespace, "lake-flights"]
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Topic", world.uid("flights"), True)
    assert world.status("flights")["lake"] == {"pipeline": "lake-flights"}
    assert world.is_ready("flights")

    observed = {**copy.deepcopy(made), "status": {"state": "Running", "lagRecords": 7}}
    world.cache.update(observed, is_deleted=False)
    world.api.writes.clear()
    await world.reconcile()
    assert world.status("flights")["lake"] == {"pipeline": "lake-flights", "state": "Running", "lagRecords": 7}
    assert not [it for it in world.api.writes if "Pipeline" in it], "an unchanged Pipeline is not written"

    world.edit("flights", lake={**LAKE, "interval": "5s"})
    await world.reconcile()
    changed = world.api.objects[PIPELINE.name, KEY.namespace, "lake-flights"]
    assert changed["spec"]["trigger"] == {"interval": "5s"}
    world.cache.update(copy.deepcopy(changed), is_deleted=False)

    world.edit("flights")
    await world.reconcile()
    assert (PIPELINE.name, KEY.namespace, "lake-flights") not in world.api.objects
    assert "lake" not in world.status("flights")


@async_test
async def test_pipeline_of_somebody_else_is_not_changed() -> None:
    world = TopicWorld()
    other = samples.pipeline("lake-flights")
    other["metadata"] |= {"namespace": KEY.namespace, "uid": "theirs", "labels": {}}
    world.api.put(PIPELINE, other)
    world.cache.update(copy.deepcopy(other), is_deleted=False)
    world.create("flights", lake=LAKE)
    await world.reconcile()
    assert world.reason("flights") == "NameConflict"
    world.edit("flights")
    await world.reconcile()
    assert world.is_ready("flights")
    assert (PIPELINE.name, KEY.namespace, "lake-flights") in world.api.objects


def test_ottla_up_writes_a_pipeline_file_whose_paths_start_from_the_folder_of_the_topics_file(tmp_path: Path) -> None:
    catalog = {"type": "jdbc", "uri": "jdbc:sqlite:lake.db", "warehouse": "lake"}
    data = samples.topic(lake={"iceberg": {"table": "lake.air.flights", "catalog": catalog}})
    documents = [Document(tmp_path / "yaml" / "topics.yaml", data, {(): 1})]
    home = Home(tmp_path / ".ottla")
    (document,) = write_lake_documents(documents, home)
    assert document.file == home.lake_pipeline("demo", "lake-flights")
    assert json.loads(document.file.read_text()) == document.data
    (sink,) = load_pipeline(document.file).spec.sinks
    assert sink.iceberg is not None and sink.iceberg.catalog is not None
    assert sink.iceberg.catalog.warehouse == str(tmp_path / "yaml" / "lake")
    assert sink.iceberg.catalog.uri == f"jdbc:sqlite:{tmp_path / 'yaml' / 'lake.db'}"
    described = Document(tmp_path / "p.yaml", samples.pipeline("lake-flights"), {(): 1})
    assert lake_documents([*documents, described], home) == []
