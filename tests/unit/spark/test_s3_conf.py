"""Spark's configuration of S3-compatible stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla_operator.resources.object_store import ObjectStore
from ottla_operator.resources.pipeline import PipelineSpec
from ottla_spark.errors import PipelineError
from ottla_spark.iceberg_catalog import iceberg_conf
from ottla_spark.s3_conf import iceberg_s3_properties, s3_conf, uses_s3
from tests.unit.spark.table_sinks import FOLDER, iceberg

PREFIX = "spark.hadoop.fs.s3a."
ENDPOINT = "http://store:9000"


def spec(sink: dict[str, Any], **more: Any) -> PipelineSpec:
    """The spec of a Pipeline with one source and this sink; `more` are further fields."""
    return PipelineSpec.parse(
        {
            "clusterRef": {"name": "c"},
            "sources": {"a": {"topic": "t", "format": {"type": "raw"}}},
            "sinks": [{"from": "a", **sink}],
            **more,
        }
    )


def write_secret(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name / "AWS_ACCESS_KEY_ID").write_text(f"id of {name}\n")
    (folder / name / "AWS_SECRET_ACCESS_KEY").write_text(f"key of {name}")


@pytest.mark.parametrize(
    ("sink", "checkpoint", "expected"),
    [
        ({"topic": "out"}, "/here", False),
        ({"topic": "out"}, "s3a://b/c", True),
        ({"parquet": {"path": "out"}}, "hdfs://h/c", False),
        ({"parquet": {"path": "s3a://b/out"}}, "/here", True),
        ({"delta": {"path": "s3a://b/out"}}, "/here", True),
        ({"iceberg": {"table": "a.b.c", "catalog": {"type": "hadoop", "warehouse": "s3a://b/w"}}}, "/here", True),
        ({"iceberg": {"table": "a.b.c", "catalog": {"type": "rest", "uri": "http://h"}}}, "/here", False),
    ],
)
def test_pipelines_with_urls_of_a_store_need_its_jars(sink: dict[str, Any], checkpoint: str, expected: bool) -> None:
    assert uses_s3(spec(sink), checkpoint) is expected
    assert bool(s3_conf(spec(sink), checkpoint, None)) is expected
    assert uses_s3(spec(sink, s3={"endpoint": ENDPOINT}), checkpoint), (
        "a pipeline that names a store needs the jars: the tables of a REST catalog may be there"
    )


def test_credentials_come_from_the_secret_or_the_environment(tmp_path: Path) -> None:
    write_secret(tmp_path, "main")
    sink = {"parquet": {"path": "s3a://b/out"}}
    conf = s3_conf(spec(sink, s3={"endpoint": ENDPOINT, "secretRef": {"name": "main"}}), "/here", tmp_path)
    assert conf[f"{PREFIX}access.key"] == "id of main"
    assert conf[f"{PREFIX}secret.key"] == "key of main"
    assert conf[f"{PREFIX}aws.credentials.provider"].endswith(".SimpleAWSCredentialsProvider")
    assert (conf[f"{PREFIX}endpoint"], conf[f"{PREFIX}endpoint.region"]) == (ENDPOINT, "us-east-1")
    assert conf[f"{PREFIX}path.style.access"] == "true"
    assert not any("checkpointFileManager" in name for name in conf)

    conf = s3_conf(spec(sink, s3={"region": "eu-west-1"}), "s3a://b/checkpoint", None)
    assert "EnvironmentVariable" in conf[f"{PREFIX}aws.credentials.provider"]
    assert conf[f"{PREFIX}endpoint.region"] == "eu-west-1"
    assert not {f"{PREFIX}endpoint", f"{PREFIX}access.key"} & conf.keys()
    assert any("checkpointFileManager" in name for name in conf)
    with pytest.raises(PipelineError, match="Secret main: cannot read"):
        s3_conf(spec(sink, s3={"secretRef": {"name": "main"}}), "/here", tmp_path / "elsewhere")


def test_the_checkpoint_can_have_a_store_of_its_own(tmp_path: Path) -> None:
    write_secret(tmp_path, "main")
    write_secret(tmp_path, "other")
    store = {"endpoint": ENDPOINT, "secretRef": {"name": "main"}}
    bucket = {"bucket": "state", "secretRef": {"name": "other"}}
    with_own = spec({"topic": "out"}, s3=store, checkpoint={"s3": bucket})
    conf = s3_conf(with_own, "s3a://state/p", tmp_path)
    assert conf[f"{PREFIX}access.key"] == "id of main"
    assert conf[f"{PREFIX}bucket.state.access.key"] == "id of other"
    assert conf[f"{PREFIX}bucket.state.endpoint"] == ENDPOINT
    shared = s3_conf(
        spec({"topic": "out"}, s3=store, checkpoint={"s3": {"bucket": "state"}}), "s3a://state/p", tmp_path
    )
    assert not any(".bucket." in name for name in shared)


def test_rest_catalogs_read_and_write_in_the_store(tmp_path: Path) -> None:
    write_secret(tmp_path, "main")
    store = ObjectStore.parse({"endpoint": ENDPOINT, "secretRef": {"name": "main"}})
    properties = iceberg_s3_properties(store, tmp_path)
    assert properties["s3.secret-access-key"] == "key of main"
    rest = iceberg(type="rest", uri="http://h", properties={"s3.path-style-access": "false"})
    conf = iceberg_conf([rest], FOLDER, None, properties)
    assert conf["spark.sql.catalog.lake.s3.endpoint"] == ENDPOINT
    assert conf["spark.sql.catalog.lake.s3.path-style-access"] == "false", "the catalog's own properties win"
    hadoop = iceberg_conf([iceberg(type="hadoop", warehouse="s3a://b/w")], FOLDER, None, properties)
    assert not any(".s3." in name for name in hadoop)
    assert iceberg_s3_properties(None, None) == {}
