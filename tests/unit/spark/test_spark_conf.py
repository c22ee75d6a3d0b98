"""Spark's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_spark.spark_conf import ROCKSDB, STATE_STORE, local_checkpoint_conf, spark_conf

OPTIONS = "spark.driver.extraJavaOptions"
PATH = "spark.driver.extraClassPath"


def build_conf(folder: Path, conf: dict[str, str] | None = None, master: str | None = None) -> dict[str, str]:
    return spark_conf(conf or {}, master=master, jars=[Path("/jars/a.jar")], scratch=folder, log=folder / "spark.log")


def test_state_store_and_time_zone_are_always_set(tmp_path: Path) -> None:
    found = build_conf(tmp_path)
    assert found[STATE_STORE] == ROCKSDB
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.master"] == "local[*,4]"
    assert found[PATH] == "/jars/a.jar"


def test_configuration_of_the_pipeline_takes_precedence(tmp_path: Path) -> None:
    found = build_conf(tmp_path, {OPTIONS: "-XX:TieredStopAtLevel=4", PATH: "/b.jar", "spark.ui.enabled": "true"})
    assert found[OPTIONS].split()[:2] == ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    assert found[OPTIONS].endswith(" -XX:TieredStopAtLevel=4"), "the last one counts"
    assert found[PATH] == "/jars/a.jar:/b.jar"
    assert found["spark.ui.enabled"] == "true"


@pytest.mark.parametrize(
    ("checkpoint", "is_local"),
    [("/data/p", True), ("data/p", True), ("file:///data/p", True), ("hdfs://h/p", False), ("s3a://b/p", False)],
)
def test_only_local_checkpoints_are_written_without_hadoops_newer_interface(checkpoint: str, is_local: bool) -> None:
    assert bool(local_checkpoint_conf(checkpoint)) is is_local


def test_master_of_a_cluster_leaves_the_drivers_host_and_the_jvms_compiler_alone(tmp_path: Path) -> None:
    found = build_conf(tmp_path, master="k8s://cluster")
    assert "spark.driver.host" not in found
    assert "-XX:" not in found[OPTIONS]


def test_sparks_log_is_a_file_with_limited_size(tmp_path: Path) -> None:
    build_conf(tmp_path)
    text = (tmp_path / "log4j2.properties").read_text()
    assert f"fileName = {tmp_path}/spark.log" in text
    assert "size = 10MB" in text
