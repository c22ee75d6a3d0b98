"""Tables of a lake: SQL, Spark's configuration, jars, and when maintenance is due."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_operator.resources.table_sinks import Maintenance
from ottla_spark import lake_sql
from ottla_spark.errors import PipelineError
from ottla_spark.iceberg_catalog import iceberg_conf
from ottla_spark.launch import sink_jars
from ottla_spark.sink_conf import EXTENSIONS, with_sink_conf
from ottla_spark.streaming.maintenance import is_due
from tests.unit.spark.table_sinks import FOLDER, iceberg, sink


@given(st.text(min_size=1))
def test_quoted_identifier_is_one_identifier(name: str) -> None:
    assert lake_sql.quote(name)[1:-1].replace("``", "").count("`") == 0
    assert lake_sql.quote(name)[1:-1].replace("``", "`") == name


def test_rows_are_merged_by_their_key() -> None:
    assert lake_sql.merge_sql("t", "v", ["a", "B", "c"], ["b"]) == (
        "MERGE INTO t t USING `v` s ON t.`b` <=> s.`b` "
        "WHEN MATCHED THEN UPDATE SET t.`a` = s.`a`, t.`c` = s.`c` "
        "WHEN NOT MATCHED THEN INSERT (`a`, `B`, `c`) VALUES (s.`a`, s.`B`, s.`c`)"
    )
    assert "UPDATE" not in lake_sql.merge_sql("t", "v", ["a"], ["a"])


def test_rows_are_deleted_by_their_key() -> None:
    assert lake_sql.merge_sql("t", "v", ["a", "b"], ["a"], "gone") == (
        "MERGE INTO t t USING `v` s ON t.`a` <=> s.`a` WHEN MATCHED AND s.`gone` THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.`b` = s.`b` "
        "WHEN NOT MATCHED AND NOT s.`gone` THEN INSERT (`a`, `b`) VALUES (s.`a`, s.`b`)"
    )


def test_columns_are_compared_without_regard_to_case() -> None:
    assert lake_sql.missing_columns({"A": "int", "b": "string"}, ["a"]) == {"b": "string"}
    assert lake_sql.add_columns_sql("t", {"b c": "array<int>"}) == "ALTER TABLE t ADD COLUMNS (`b c` array<int>)"


def test_paths_of_a_catalog_are_relative_to_the_file() -> None:
    conf = iceberg_conf([iceberg(type="jdbc", uri="jdbc:sqlite:a.db", warehouse="lake")], FOLDER, None)
    assert conf == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": "jdbc:sqlite:/yaml/a.db",
        "spark.sql.catalog.lake.warehouse": "/yaml/lake",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
    }
    conf = iceberg_conf([iceberg(type="hadoop", warehouse="s3a://bucket/lake")], FOLDER, None)
    assert conf["spark.sql.catalog.lake.warehouse"] == "s3a://bucket/lake"
    conf = iceberg_conf([iceberg(type="rest", uri="http://h", warehouse="prod")], FOLDER, None)
    assert conf["spark.sql.catalog.lake.warehouse"] == "prod"
    assert iceberg_conf([sink(iceberg={"table": "lake.db.t"}), sink(topic="t")], FOLDER, None) == {}


def test_credentials_of_a_catalog_come_from_its_secret(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    for name in ("user", "password", "credential"):
        (tmp_path / "s" / name).write_text(f"my {name}")
    reference = {"secretRef": {"name": "s"}}
    jdbc = iceberg(type="jdbc", uri="jdbc:postgresql://h/d", warehouse="w", **reference)
    conf = iceberg_conf([jdbc], FOLDER, tmp_path)
    assert conf["spark.sql.catalog.lake.jdbc.password"] == "my password"
    rest = iceberg(type="rest", uri="http://h", **reference)
    assert iceberg_conf([rest], FOLDER, tmp_path)["spark.sql.catalog.lake.credential"] == "my credential"
    assert (jdbc.secrets, rest.secrets) == (("s",), ("s",))
    with pytest.raises(PipelineError, match="another sink declares the catalog lake"):
        iceberg_conf([jdbc, rest], FOLDER, tmp_path)


def test_extensions_of_delta_are_added_to_those_of_the_pipeline() -> None:
    delta = [sink(delta={"path": "t"})]
    catalog = "spark.sql.catalog.spark_catalog"
    conf = with_sink_conf({EXTENSIONS: "my.Own"}, delta, FOLDER, None)
    assert conf[EXTENSIONS] == "my.Own,io.delta.sql.DeltaSparkSessionExtension"
    assert conf[catalog] == "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    assert with_sink_conf({catalog: "my.Own"}, delta, FOLDER, None)[catalog] == "my.Own"
    again = with_sink_conf(with_sink_conf({}, delta, FOLDER, None), delta, FOLDER, None)
    assert again[EXTENSIONS] == "io.delta.sql.DeltaSparkSessionExtension"
    assert with_sink_conf({"a": "b"}, [sink(topic="t")], FOLDER, None) == {"a": "b"}


def test_sinks_need_only_their_own_jars() -> None:
    assert sink_jars([sink(topic="t"), sink(console={})]) == {"topic", "console"}
    assert sink_jars([iceberg(type="hadoop", warehouse="w")]) == {"iceberg"}
    assert sink_jars([iceberg(type="jdbc", uri="jdbc:sqlite:x", warehouse="w")]) == {"iceberg", "sqlite"}
    assert sink_jars([iceberg(type="jdbc", uri="jdbc:postgresql://h/d", warehouse="w")]) == {"iceberg", "jdbc"}


def test_maintenance_is_due_after_its_interval() -> None:
    hourly = Maintenance(interval="1h")
    assert not is_due(hourly, 1000.0, 1000.0 + 3599)
    assert is_due(hourly, 1000.0, 1000.0 + 3600)
    assert is_due(hourly, 10_000.0, 1000.0), "the clock was set back"
