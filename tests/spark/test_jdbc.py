"""The JDBC sink on a real PostgreSQL: types, upserts and errors."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_spark.errors import PipelineError
from tests.postgresql import PASSWORD, PostgreSQL
from tests.spark.conftest import Runner, Topics, events, jdbc

pytestmark = pytest.mark.usefixtures("login")


def test_rows_are_appended_to_a_table_that_is_created(
    pipeline: Runner, topics: Topics, database: PostgreSQL, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topics.create("jdbc-in", partitions=2)
    spec = {
        "sources": {"events": events("jdbc-in")},
        "transforms": [
            {
                "name": "typed",
                "sql": "SELECT *, at AS `select`, CAST(id AS DECIMAL(9,2)) / 4 AS d, id > 0 AS b, array(id, 7) AS a, "
                'CAST(at AS DATE) AS `the "day"`, CAST(city AS BINARY) AS raw FROM events',
            }
        ],
        "sinks": [{"from": "typed", **jdbc(database, "Typed rows")}],
    }
    for number in (0, 1):
        topics.write("jdbc-in", {"id": number, "at": f"2013-01-0{number + 1}T10:00:00Z", "city": "Zürich'; --"})
        pipeline(spec)
    topics.write("jdbc-in", {"id": 2})
    pipeline(spec)
    columns = 'id, at AT TIME ZONE \'UTC\', city, "select" = at, d, b, a, "the ""day""", convert_from(raw, \'UTF8\')'
    assert database.run(f'SELECT {columns} FROM "Typed rows" ORDER BY id') == [
        ("0", "2013-01-01 10:00:00", "Zürich'; --", "t", "0.000000", "f", "{0,7}", "2013-01-01", "Zürich'; --"),
        ("1", "2013-01-02 10:00:00", "Zürich'; --", "t", "0.250000", "t", "{1,7}", "2013-01-02", "Zürich'; --"),
        ("2", "∅", "∅", "∅", "0.500000", "t", "{2,7}", "∅", "∅"),
    ]
    types = database.run(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'Typed rows' ORDER BY 1"
    )
    assert dict(types) == {  # type: ignore[arg-type]
        "id": "integer",
        "at": "timestamp with time zone",
        "city": "text",
        "select": "timestamp with time zone",
        "d": "numeric",
        "b": "boolean",
        "a": "ARRAY",
        'the "day"': "date",
        "raw": "bytea",
    }
    assert database.run("SELECT pipeline, batch FROM ottla_batches") == [("p", "2")]
    # Pipelines of one process have one JVM, whose log is in the folder of the first.
    logs = [it.read_text() for it in tmp_path_factory.getbasetemp().rglob("spark.log")]
    assert logs and not any(PASSWORD in it for it in logs)


def test_results_replace_earlier_ones_by_their_key(pipeline: Runner, topics: Topics, database: PostgreSQL) -> None:
    database.run("CREATE SCHEMA reports")
    database.run(
        "CREATE TABLE reports.sums (city text, n bigint, note jsonb, by_hand text DEFAULT 'kept', PRIMARY KEY (city))"
    )
    topics.create("sums-in", partitions=2)
    spec = {
        "sources": {"events": events("sums-in")},
        "transforms": [
            {"name": "sums", "sql": "SELECT city, count(*) AS n, '{\"a\": 1}' AS note FROM events GROUP BY city"},
            {"name": "all", "sql": "SELECT count(*) AS n FROM events"},
        ],
        "sinks": [
            {"from": "sums", "key": ["city"], "outputMode": "update", **jdbc(database, "reports.sums")},
            {"from": "all", "outputMode": "complete", **jdbc(database, "reports.whole")},
            {
                "from": "events",
                "key": ["id"],
                "outputMode": "update",
                "deleteWhen": "city = 'C'",
                **jdbc(database, "reports.latest"),
            },
        ],
    }
    topics.write("sums-in", *({"id": number, "city": "AB"[number % 2]} for number in range(4)))
    pipeline(spec)
    topics.write("sums-in", *({"id": 9, "city": city} for city in "AAC"), {"id": 1, "city": "C"})
    pipeline(spec)
    found = database.run("SELECT city, n, note->>'a', by_hand FROM reports.sums ORDER BY city")
    assert found == [("A", "4", "1", "kept"), ("B", "2", "1", "kept"), ("C", "2", "1", "kept")]
    assert database.run("SELECT n FROM reports.whole") == [("8",)]
    latest = database.run("SELECT id, city FROM reports.latest ORDER BY id")
    assert latest == [("0", "A"), ("2", "A"), ("3", "B")]  # those whose latest city is C are deleted
    assert database.run("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'ottla_staging_%'") == [("0",)]


def test_errors_name_what_is_wrong(pipeline: Runner, topics: Topics, database: PostgreSQL) -> None:
    topics.create("jdbc-wrong-in")
    topics.write("jdbc-wrong-in", {"id": 1, "city": "A"})
    database.run("CREATE TABLE narrow (id integer)")
    database.run("CREATE TABLE keyless (id integer, at timestamptz, city text)")

    def run(sink: dict[str, Any], sql: str = "SELECT * FROM events") -> None:
        spec = {"sources": {"events": events("jdbc-wrong-in")}, "transforms": [{"name": "t", "sql": sql}]}
        pipeline({**spec, "sinks": [{"from": "t", "name": f"q{len(runs)}", **sink}]})
        runs.append(1)

    runs: list[int] = []
    with pytest.raises(PipelineError, match='sink q0: jdbc: the table "narrow" has no column at, city; it has id'):
        run(jdbc(database, "narrow"))
    with pytest.raises(PipelineError, match="there is no unique or exclusion constraint matching the ON CONFLICT"):
        run({**jdbc(database, "keyless"), "outputMode": "update", "key": ["id"]})
    with pytest.raises(PipelineError, match=r"column m: PostgreSQL has no type for map<int,string>; cast the column"):
        run(jdbc(database, "mapped"), "SELECT map(id, city) AS m FROM events")
    with pytest.raises(PipelineError, match=r'schema "nowhere" does not exist'):
        run(jdbc(database, "nowhere.rows"))
    (pipeline.folder / "secrets" / "db" / "password").write_text("another")
    with pytest.raises(PipelineError, match='password authentication failed for user "tester"'):
        run(jdbc(database, "rows"))
    (pipeline.folder / "secrets" / "db" / "password").unlink()
    with pytest.raises(PipelineError, match=r"Secret db: cannot read .*/secrets/db/password: No such file"):
        run(jdbc(database, "rows"))
