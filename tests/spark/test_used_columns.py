"""Columns of JSON that no sink needs are not parsed, and records are decoded or rejected as if all
were.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla_spark.streaming import source, transform
from ottla_spark.streaming.cases import local_session
from ottla_spark.streaming.used_columns import unused_columns
from tests.spark.conftest import Runner, Topics, parse_spec

SCHEMA = "id INT, a STRING, b STRING, ab STRING, must STRING NOT NULL, at TIMESTAMP"
ALL = {"a", "b", "ab"}


def with_sources(spec: dict[str, Any]) -> dict[str, Any]:
    sources = {name: {"topic": name, "format": {"type": "json", "schema": SCHEMA}} for name in ("s", "t")}
    sources["s"]["watermark"] = {"column": "at", "delay": "1 hour"}
    return {"sources": sources, **spec}


@pytest.mark.parametrize(
    "schema", ["text STRING, n INT, t TIMESTAMP", pytest.param("text STRING", marks=pytest.mark.slow)]
)
def test_records_are_decoded_or_rejected_alike_whether_columns_are_used_or_not(
    pipeline: Runner, topics: Topics, query_plans: list[str], schema: str
) -> None:
    kind = len(schema)
    topics.create(f"unused-in-{kind}", f"unused-out-{kind}", f"unused-dead-{kind}")
    values = [
        b'{"text": "a"}', b'{"text": 1}', b'{"text": {"x": [1]}}', b'{"text": null}', b"{}",
        b'{"text": "a"', b'{"text": "\\q"}', b'{"text": nul}', b"[1", b"1", b"", None,
        b'{"n": "one"}', b'{"t": "no time", "text": "a"}',
    ]  # fmt: skip
    topics.write(f"unused-in-{kind}", *values)
    spec: dict[str, Any] = {
        "sources": {"events": {"topic": f"unused-in-{kind}", "format": {"type": "json", "schema": schema}}},
        "transforms": [
            {"name": "used", "sql": "SELECT text, _offset AS offset FROM events"},
            {"name": "unused", "sql": "SELECT _offset AS offset FROM events"},
        ],
        "deadLetter": {"topic": f"unused-dead-{kind}", "maxRate": 1.0},
    }
    found = []
    for view in ("used", "unused"):
        spec["sinks"] = [{"from": view, "topic": f"unused-out-{kind}"}]
        pipeline.folder = pipeline.folder / view
        pipeline.folder.mkdir()
        pipeline(spec)
        rows = [it.json["offset"] for it in topics.read(f"unused-out-{kind}")]
        letters = {it.headers["ottla.offset"]: it.headers["ottla.reason"] for it in topics.read(f"unused-dead-{kind}")}
        found.append((sorted(rows), letters))
    assert found[1] == (sorted(found[0][0] * 2), found[0][1])
    undecodable = {"5", "6", "7", "8", "9", "10", "11"} | ({"12", "13"} if "n INT" in schema else set())
    assert found[0][1].keys() == undecodable
    assert ["StructField(text," in it for it in query_plans] == [True, False]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    spec = {"sinks": [{"from": "s", "console": {}}]}
    with local_session(parse_spec(with_sources(spec), tmp_path_factory.mktemp("p"))) as found:
        yield found


@pytest.mark.parametrize(
    ("steps", "unused"),
    [
        ([], set()),
        (["SELECT * FROM s"], set()),
        (["SELECT id FROM s"], ALL),
        (["SELECT count(*) AS n FROM s"], ALL),
        (["SELECT id FROM s WHERE b = 'x'"], {"a", "ab"}),
        (["SELECT b, count(*) AS n FROM s GROUP BY b HAVING max(a) > 'x'"], {"ab"}),
        (["SELECT * FROM s WHERE a > ''", "SELECT id, upper(b) AS b FROM step0"], {"ab"}),
        (["SELECT concat(a, b) AS c, id FROM s", "SELECT id FROM step0"], ALL),
        (["SELECT id, a FROM s UNION ALL SELECT id, b FROM s"], {"ab"}),
        (["WITH x AS (SELECT id, b FROM s) SELECT x.id FROM x"], ALL),
        (["SELECT id FROM (SELECT DISTINCT id, a FROM s)"], {"b", "ab"}),
        (["SELECT id FROM (SELECT id, a FROM s INTERSECT SELECT id, a FROM VALUES (1, 'x') AS v (id, a))"], set()),
        (["SELECT id FROM s WHERE EXISTS (SELECT 1 FROM VALUES ('x') AS v (x) WHERE v.x = s.a)"], set()),
        (["SELECT id, rank() OVER (PARTITION BY b ORDER BY a) AS n FROM VALUES (1, 'a', 'b') AS v (id, a, b)"], set()),
        (["FROM s |> WHERE id > 1"], set()),
        (["SELECT one.id FROM s one JOIN s two ON one.id = two.id AND one.at = two.at WHERE two.a > ''"], {"b", "ab"}),
        (["SELECT id, row FROM (SELECT id, struct(*) AS row FROM s)"], set()),
        (["SELECT id, r.b FROM (SELECT id, struct(a, b) AS r FROM s)"], {"ab"}),
    ],
)
def test_column_is_unused_if_no_sink_needs_it(
    session: SparkSession, tmp_path: Path, steps: list[str], unused: set[str]
) -> None:
    transforms = [{"name": f"step{at}", "sql": sql} for at, sql in enumerate(steps)]
    last = transforms[-1]["name"] if transforms else "s"
    pipeline = parse_spec(with_sources({"transforms": transforms, "sinks": [{"from": last, "console": {}}]}), tmp_path)
    stream = session.readStream.schema(source.RAW_SCHEMA).format("json")
    raw = {name: stream.load(str(tmp_path)) for name in pipeline.spec.sources}
    views = transform.build_views(session, pipeline, raw, transform.RejectedRowCounter())
    found = unused_columns(session, pipeline, [views.rows_for_sinks(last)])
    assert set(found.get("s", ())) == unused
    assert (
        transform.build_views(session, pipeline, raw, transform.RejectedRowCounter(), None, found).frames[last].dtypes
        == views.frames[last].dtypes
    )
