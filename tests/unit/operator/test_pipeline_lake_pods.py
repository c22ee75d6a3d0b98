"""Pods of a Pipeline that writes to a lake: a REST catalog, whose tables are in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla_operator.plan.pipeline.desired import Launcher, LaunchInputs, desired_objects, find_unsupported
from ottla_spark import jars
from ottla_spark.definition import parse_pipeline
from ottla_spark.launch import pipeline_conf, pipeline_jars
from ottla_spark.runtime_environment import RuntimeEnvironment
from ottla_spark.spark_conf import REDACTED, spark_conf
from tests.unit.operator.kubernetes_pipelines import IMAGE, LAUNCH_INPUTS, driver_definition, pipeline_with

SECRETS = {
    "catalog": {"credential": "reader:sesame"},
    "store": {"AWS_ACCESS_KEY_ID": "sesame id", "AWS_SECRET_ACCESS_KEY": "sesame key"},
}
LAKE = {
    "s3": {"endpoint": "http://store:9000", "secretRef": {"name": "store"}},
    "checkpoint": {"s3": {"bucket": "state"}},
    "sinks": [
        {
            "from": "late",
            "iceberg": {
                "table": "lake.air.late",
                "catalog": {
                    "type": "rest",
                    "uri": "https://catalog:8181",
                    "warehouse": "s3://lake/tables",
                    "secretRef": {"name": "catalog"},
                },
            },
        }
    ],
}
CATALOG = "spark.sql.catalog.lake"


@pytest.mark.parametrize("launcher", ["SparkOperator", "Driver"])
def test_driver_has_the_secrets_of_catalog_and_store(launcher: Launcher) -> None:
    it = pipeline_with(**LAKE)
    assert not find_unsupported(it)
    found = desired_objects(it, IMAGE, LaunchInputs(launcher, LAUNCH_INPUTS.connection)).application["spec"]
    pod = found["driver"]["template"]["spec"] if launcher == "SparkOperator" else found["template"]["spec"]
    volumes = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    mounts = {one["mountPath"]: volumes.get(one["name"]) for one in pod["containers"][0]["volumeMounts"]}
    arguments = found["arguments"] if launcher == "SparkOperator" else pod["containers"][0]["args"]
    folder = arguments[arguments.index("--secrets") + 1]
    assert {name: mounts[f"{folder}/{name}"] for name in SECRETS} == {name: name for name in SECRETS}
    assert arguments[arguments.index("--checkpoint") + 1] == f"s3a://state/{it.name}"


def test_driver_and_executors_have_the_jars_and_the_credentials(tmp_path: Path) -> None:
    for name, values in SECRETS.items():
        (tmp_path / name).mkdir()
        for key, value in values.items():
            (tmp_path / name / key).write_text(value)
    found = desired_objects(pipeline_with(**LAKE), IMAGE, LAUNCH_INPUTS)
    pipeline = parse_pipeline(driver_definition(found), tmp_path)
    environment = RuntimeEnvironment("broker:9092", "s3a://state/late", master="k8s://server", secrets=tmp_path)
    needed = pipeline_jars(pipeline.spec, environment.checkpoint)
    files = [Path("/opt/ottla/jars", jar.file) for name in sorted(needed) for jar in jars.EXTRA_JARS.get(name, ())]
    own = pipeline_conf(pipeline, environment)
    conf = spark_conf(own, master=environment.master, jars=files, scratch=tmp_path, log=tmp_path / "log")

    for role in ("driver", "executor"):  # executors get it as SPARK_CLASSPATH
        classpath = conf[f"spark.{role}.extraClassPath"]
        assert {"iceberg-spark-runtime", "iceberg-aws-bundle", "hadoop-aws"} <= {
            jar.artifact.removesuffix("-4.0_2.13") for name in ("iceberg", "s3") for jar in jars.EXTRA_JARS[name]
            if f"/opt/ottla/jars/{jar.file}" in classpath.split(":")
        }  # fmt: skip
    # Spark passes its properties to executors with the tasks: Iceberg's in the table's file IO,
    # those of Hadoop in the configuration of each read and write.
    assert (conf[CATALOG], conf[f"{CATALOG}.type"]) == ("org.apache.iceberg.spark.SparkCatalog", "rest")
    assert conf[f"{CATALOG}.credential"] == "reader:sesame"
    for prefix, id_, key in (
        (CATALOG, "s3.access-key-id", "s3.secret-access-key"),
        ("spark.hadoop.fs.s3a", "access.key", "secret.key"),
    ):
        assert (conf[f"{prefix}.{id_}"], conf[f"{prefix}.{key}"]) == ("sesame id", "sesame key")
    assert conf[f"{CATALOG}.s3.endpoint"] == conf["spark.hadoop.fs.s3a.endpoint"] == "http://store:9000"
    secret_settings = [name for name, value in conf.items() if "sesame" in value]
    assert len(secret_settings) == 5 and all(map(REDACTED.search, secret_settings))
    assert "sesame" not in json.dumps(found.application) + json.dumps(found.prerequisites)
