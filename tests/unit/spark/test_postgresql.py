"""Statements of the JDBC sink, and its Secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_spark import postgresql
from ottla_spark.errors import PipelineError
from ottla_spark.postgresql import TableName, parse_table, postgresql_type, quote
from ottla_spark.secret_files import read_secret


@given(st.text(min_size=1))
def test_quoted_identifier_is_one_identifier(name: str) -> None:
    quoted = quote(name)
    assert quoted[0] == quoted[-1] == '"'
    assert '"' not in quoted[1:-1].replace('""', "")
    assert quoted[1:-1].replace('""', '"') == name


def test_tables_may_have_a_schema() -> None:
    assert parse_table("a b") == TableName("a b")
    assert parse_table("s.T") == TableName("T", "s")
    assert TableName('T"; DROP', "s").quoted == '"s"."T""; DROP"'


@pytest.mark.parametrize(
    ("spark_type", "expected"),
    [("decimal(9,2)", "numeric(9,2)"), ("array<bigint>", "bigint[]"), ("timestamp_ntz", "timestamp without time zone")],
)
def test_spark_types_become_postgresql_types(spark_type: str, expected: str) -> None:
    assert postgresql_type(spark_type) == expected


@pytest.mark.parametrize("spark_type", ["map<int,string>", "struct<a:int>", "array<array<int>>", "interval day"])
def test_types_that_postgresql_lacks_are_errors(spark_type: str) -> None:
    with pytest.raises(PipelineError, match=r"column c: PostgreSQL has no type for .*; cast the column"):
        postgresql.create_table_sql(TableName("t"), {"c": spark_type}, ())


def test_rows_are_replaced_by_their_key() -> None:
    table, staging = TableName("t"), TableName("s")
    assert "CONFLICT" not in postgresql.insert_rows_sql(table, staging, ["a", "b"], ())
    replaced = postgresql.insert_rows_sql(table, staging, ["a", "b"], ["a"])
    assert replaced.endswith('ON CONFLICT ("a") DO UPDATE SET "b" = EXCLUDED."b"')
    assert postgresql.insert_rows_sql(table, staging, ["a"], ["a"]).endswith('ON CONFLICT ("a") DO NOTHING')


def test_rows_are_deleted_by_their_key() -> None:
    table, staging = TableName("t"), TableName("s")
    assert postgresql.delete_by_key_sql(table, staging, ["a", "b"], "gone") == (
        'DELETE FROM "t" t USING "s" s WHERE s."gone" AND t."a" = s."a" AND t."b" = s."b"'
    )
    assert 'FROM "s" WHERE NOT "gone" ON CONFLICT' in postgresql.insert_rows_sql(table, staging, ["a"], ["a"], "gone")


def test_secrets_are_files(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    (tmp_path / "db" / "user").write_text("me \n")
    assert read_secret(tmp_path, "db", ["user"]) == {"user": "me "}
    with pytest.raises(PipelineError, match=r"Secret db: cannot read .*/db/password: No such file"):
        read_secret(tmp_path, "db", ["user", "password"])
    with pytest.raises(PipelineError, match="Secret db is not known: set --secrets to a folder with db/user"):
        read_secret(None, "db", ["user"])
