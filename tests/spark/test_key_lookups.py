"""Batches that read only the rows of their keys from a large table, and those that read all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import functions as F

from ottla_spark.streaming import reference_table, table_version
from ottla_spark.streaming.cases import local_session
from ottla_spark.streaming.key_lookups import looked_up_hashes
from ottla_spark.streaming.table_files import _PAGES
from ottla_spark.streaming.table_relation import KEY_HASH, FolderScan, read_folders_of_batch
from tests.spark.conftest import Runner, Topics, events, parse_spec

ITEMS: Final = 2_500
KEYS: Final = ("k1", "k2", "k3", "k2499", "k3000", "absent", None)
"""Keys of the events. k2 is changed, k3 deleted and k3000 added after the first run."""
LOOKED_UP: Final = {
    "outer": "SELECT id, name FROM events LEFT JOIN items ON city = code",
    "right": "SELECT id, name FROM items RIGHT JOIN events ON code = city AND name <> 'item 1'",
    "inner": "WITH named AS (SELECT code AS c, upper(name) AS name FROM items WHERE name <> 'item 1') "
    "SELECT id, name FROM events JOIN named ON c = city",
    "twice": "SELECT id, concat(a.name, b.name) AS name FROM events JOIN items a ON city = a.code "
    "JOIN items b ON concat('k', substr(city, 2)) = b.code",
    "semi": "SELECT id, 'x' AS name FROM events LEFT SEMI JOIN items ON city = code",
    "anti": "SELECT id, 'x' AS name FROM events LEFT ANTI JOIN items ON city = code",
    "union": "SELECT id, name FROM (SELECT id, city FROM events UNION ALL SELECT id, city FROM others) "
    "JOIN items ON city = code",
}
"""Steps that look up keys."""
WHOLE: Final = {
    "by_name": "SELECT id, name FROM events JOIN items ON concat('item ', substr(city, 2)) = name",
    "derived": "SELECT id, name FROM events JOIN items ON city = lower(code)",
    "also": "SELECT id, a.name FROM events JOIN items a ON city = a.code JOIN items b ON a.name = b.name",
    "subquery": "SELECT id, name FROM events JOIN items ON city = code "
    "WHERE 'k7' IN (SELECT code FROM items WHERE code = 'k7')",
    "random": "SELECT id, name FROM (SELECT * FROM events WHERE rand() >= 0) JOIN items ON city = code",
    "udf": "SELECT id, name FROM of_python JOIN items ON key = code",
    "counted": "SELECT n AS id, name FROM (SELECT city, count(*) AS n FROM events GROUP BY city) JOIN items "
    "ON city = code",
}
"""Steps that need other rows of the table too, or whose keys cannot be computed in advance."""
PYTHON: Final = """
from pyspark.sql import functions as F


def of_python(tables):
    same = F.udf(lambda city: city)
    return tables["events"].withColumn("key", same("city"))
"""


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int | None]]:
    """By query: the number of keys that its last batch looked up; None if it read the whole table.
    Tables of any size count as large.
    """
    found: dict[str, int | None] = {}

    def record(spark: Any, *arguments: Any) -> Any:
        hashes = looked_up_hashes(spark, *arguments)
        query = spark._jsparkSession.streams().get(spark.sparkContext.getLocalProperty("sql.streaming.queryId"))
        found[query.name()] = None if hashes is None else hashes.size()
        return hashes

    monkeypatch.setattr(reference_table, "looked_up_hashes", record)
    monkeypatch.setattr(table_version, "_MIN_LOOKED_UP_TABLE", 1)
    monkeypatch.setattr(table_version, "_MAX_LOOKED_UP_SHARE", 0.01)
    yield found


def spec_of(steps: dict[str, str]) -> dict[str, Any]:
    modes = {"counted": {"outputMode": "update", "key": ["id"]}}
    return {
        "sources": {
            "events": events("lk-in"),
            "others": events("lk-others"),
            "items": {
                "topic": "lk-items",
                "mode": "table",
                "key": "code",
                "format": {"type": "json", "schema": "name STRING"},
            },
        },
        "transforms": [
            {"name": "of_python", "python": "steps.py:of_python"},
            *({"name": name, "sql": sql} for name, sql in steps.items()),
        ],
        "sinks": [{"from": name, "topic": f"lk-{name.replace('_', '-')}", **modes.get(name, {})} for name in steps],
    }


def expected(items: dict[str, str], first: int) -> dict[str, Sequence[tuple[int, str | None]]]:
    """The rows of each step: the ids of events, each with the name of its item."""
    given = [(first + number, None if key is None else items.get(key)) for number, key in enumerate(KEYS)]
    joined = [(number, name) for number, name in given if name is not None]
    same: Sequence[tuple[int, str | None]] = joined
    not_first = [(number, name) for number, name in joined if name != "item 1"]
    return {
        "outer": given,
        "right": [(number, None if name == "item 1" else name) for number, name in given],
        "inner": [(number, name.upper()) for number, name in not_first],
        "twice": [(number, name * 2) for number, name in joined],
        "semi": [(number, "x") for number, _ in joined],
        "anti": [(number, "x") for number, name in given if name is None],
        "union": joined if first else [*joined, (50, "item 1")],
        "by_name": [(number, name) for number, name in joined if name.startswith("item")],
        **dict.fromkeys(("derived", "also", "subquery", "random", "udf"), same),
        "counted": [(1 + first // 100, name) for _, name in joined],
    }


@pytest.mark.slow
def test_rows_are_the_same_whether_keys_are_looked_up_or_not(
    pipeline: Runner, topics: Topics, lookups: dict[str, int | None]
) -> None:
    steps = LOOKED_UP | WHOLE
    (pipeline.folder / "steps.py").write_text(PYTHON)
    topics.create("lk-in", "lk-others", *(f"lk-{name.replace('_', '-')}" for name in steps), partitions=2)
    topics.create("lk-items", partitions=2, cleanup_policy="compact")
    items = {f"k{number}": f"item {number}" for number in range(ITEMS)}
    for key, name in items.items():
        topics.producer.produce("lk-items", json.dumps({"name": name}), key)
    topics.producer.flush()
    topics.write("lk-others", {"id": 50, "city": "k1"})
    written = []
    for first in (0, 100):
        topics.write("lk-in", *({"id": first + number, "city": key} for number, key in enumerate(KEYS)))
        pipeline(spec_of(steps))
        written.append(expected(items, first))
        assert lookups == dict.fromkeys(LOOKED_UP, len(KEYS)) | {"twice": len(KEYS) + 1} | dict.fromkeys(WHOLE)
        changes = {"k2": "changed", "k3": None, "k3000": "added"}
        for key, value in changes.items():
            topics.write("lk-items", None if value is None else {"name": value}, key=key)
        items = {key: name for key, name in {**items, **changes}.items() if name is not None}
    for name in steps:
        found = [(row["id"], row["name"]) for row in (it.json for it in topics.read(f"lk-{name.replace('_', '-')}"))]
        assert sorted(found) == sorted([*written[0][name], *written[1][name]]), name


def test_key_of_several_fields_is_looked_up_if_all_are_equated(
    pipeline: Runner, topics: Topics, lookups: dict[str, int | None]
) -> None:
    topics.create("lf-in", "lf-all", "lf-some", "lf-same")
    topics.create("lf-items", cleanup_policy="compact")
    for number in range(1_000):
        key = json.dumps({"number": number % 500, "region": "ew"[number // 500]}).encode()
        topics.write("lf-items", {"name": f"item {number}"}, key=key)
    spec = {
        "sources": {
            "events": events("lf-in"),
            "items": {
                "topic": "lf-items",
                "mode": "table",
                "key": "code",
                "keyFormat": {"type": "json", "schema": "number INT, region STRING"},
                "format": {"type": "json", "schema": "name STRING"},
            },
        },
        "transforms": [
            {
                "name": "all",
                "sql": "SELECT id, name FROM events LEFT JOIN (SELECT code.region AS r, code, name FROM items) "
                "ON r = city AND code.number = id",
            },
            {"name": "some", "sql": "SELECT id, name FROM events LEFT JOIN items ON code.number = id"},
            {
                "name": "same",
                "sql": "SELECT id, name FROM events LEFT JOIN items ON code = struct(id AS number, city AS region)",
            },
        ],
        "sinks": [{"from": name, "topic": f"lf-{name}"} for name in ("all", "some", "same")],
    }
    pipeline(spec)
    topics.write("lf-items", None, key=json.dumps({"number": 3, "region": "e"}).encode())
    topics.write("lf-items", {"name": "no number"}, key=json.dumps({"region": "w"}).encode())
    given = ((3, "e"), (3, "w"), (499, "w"), (500, "w"), (7, None))
    topics.write("lf-in", *({"id": number, "city": region} for number, region in given))
    pipeline(spec)
    assert lookups == {"all": 5, "some": None, "same": 5}
    rows = {
        name: sorted((row["id"], row["name"] or "") for row in (it.json for it in topics.read(f"lf-{name}")))
        for name in ("all", "some", "same")
    }
    assert rows["all"] == rows["same"] == [(3, ""), (3, "item 503"), (7, ""), (499, "item 999"), (500, "")]
    assert rows["some"] == [
        (3, "item 503"), (3, "item 503"), (7, "item 507"), (7, "item 7"), (499, "item 499"), (499, "item 999"),
        (500, ""),
    ]  # fmt: skip


def test_whole_table_is_read_for_a_batch_of_many_rows_and_if_the_table_is_small(
    pipeline: Runner, topics: Topics, lookups: dict[str, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("lm-in", "lm-out")
    topics.create("lm-items", cleanup_policy="compact")
    for number in range(300):
        topics.producer.produce("lm-items", json.dumps({"name": f"item {number}"}), f"k{number}")
    spec = spec_of({"outer": LOOKED_UP["outer"]})
    spec["transforms"] = spec["transforms"][1:]
    del spec["sources"]["others"]
    spec["sources"]["events"]["topic"], spec["sources"]["items"]["topic"] = "lm-in", "lm-items"
    spec["sinks"][0]["topic"] = "lm-out"
    sizes: list[object] = []
    for first, rows in ((0, 3), (3, 4), (7, 1)):
        topics.write("lm-in", *({"id": first + number, "city": f"k{first + number}"} for number in range(rows)))
        pipeline(spec)
        sizes.append(lookups.pop("outer", "not called"))
        if first:
            monkeypatch.setattr(table_version, "_MIN_LOOKED_UP_TABLE", 301)
    assert sizes == [3, None, "not called"]
    assert {row["id"]: row["name"] for row in (it.json for it in topics.read("lm-out"))} == {
        number: f"item {number}" for number in range(8)
    }


def test_scan_skips_pages_without_the_hashes(tmp_path: Path) -> None:
    spec = {"sources": {"s": {"topic": "s", "format": {"type": "raw"}}}, "sinks": [{"from": "s", "console": {}}]}
    with local_session(parse_spec(spec, tmp_path)) as spark:
        rows = spark.range(100_000).withColumn("code", F.concat(F.lit("k"), "id"))
        rows = rows.withColumn(KEY_HASH, F.xxhash64("code")).repartition(2).sortWithinPartitions(KEY_HASH)
        rows.write.options(**_PAGES).parquet(str(tmp_path / "rows"))
        wanted = [7 * number for number in range(250)] + [100_001]
        found = F.array_sort(F.collect_set(F.xxhash64(F.concat(F.lit("k"), F.col("id").cast("string")))))
        hashes = spark.createDataFrame([(it,) for it in wanted], "id BIGINT").agg(found)._jdf.head().getList(0)
        folder = [str(tmp_path / "rows")]
        scans = {"all": FolderScan(folder), "few": FolderScan(folder, hashes.subList(0, 2))}
        scans["wanted"] = FolderScan(folder, hashes)

        def read(name: str) -> set[int]:
            read = read_folders_of_batch(spark, name, rows.schema, lambda _: scans[name])
            return {row["id"] for row in read.select("id").collect()}

        assert len(read("all")) == 100_000
        assert 2 <= len(read("few")) <= 4_000, "a key is in one page of each file"
        assert read("wanted") >= set(wanted) - {100_001}
