"""Reference tables: they keep rows in files beside the checkpoint, and read only new records."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import Any, Final

import pytest

from ottla_spark.errors import PipelineError
from ottla_spark.streaming import source, table_version
from ottla_spark.streaming.table_files import TableFiles
from tests.spark.conftest import Runner, Topics, events, pipeline_document
from tests.spark.dying_driver import run_driver

KILLED_AT: Final = (
    ("ottla_spark.streaming.table_files:TableFiles.write_delta", "after"),
    ("ottla_spark.streaming.reference_table:ReferenceTable._refresh", "after"),
    # The sink writes after its batch was planned. The steps above are reached before that, when
    # tables are read ahead.
    ("ottla_spark.streaming.transactional_writer:TransactionalWriter.__call__", "before"),
)


def spec_of(name: str) -> dict[str, Any]:
    """Events are joined twice with a table of cities, so that a batch scans it twice."""
    cities = {"type": "json", "schema": "name STRING"}
    return {
        "sources": {
            "events": events(f"{name}-in"),
            "cities": {"topic": f"{name}-cities", "mode": "table", "key": "code", "format": cities},
        },
        "transforms": [
            {
                "name": "named",
                "sql": "SELECT id, a.name, b.name AS again FROM events LEFT JOIN cities a ON city = a.code "
                "LEFT JOIN cities b ON city = b.code",
            }
        ],
        "sinks": [{"from": "named", "topic": f"{name}-out"}],
    }


def make_topics(topics: Topics, name: str) -> None:
    topics.create(f"{name}-in", f"{name}-out", partitions=2)
    topics.create(f"{name}-cities", partitions=2, cleanup_policy="compact")


def names_by_id(topics: Topics, name: str) -> dict[int, str | None]:
    rows = [message.json for message in topics.read(f"{name}-out")]
    assert all(row["name"] == row["again"] for row in rows), "both scans of a batch read the same version"
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["name"] for row in rows}


def read_version(pipeline: Runner) -> Any:
    return json.loads((pipeline.folder / "checkpoint" / "table-cities.json").read_text())


def table_folders(pipeline: Runner) -> set[str]:
    return {it.name for it in (pipeline.folder / "checkpoint" / "tables" / "cities").iterdir()} - {"empty"}


def test_batch_reads_only_the_changes_of_a_table(
    pipeline: Runner, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, int]] = []
    read_range = source.read_range

    def record_range(
        spark: Any, spec: Any, kafka: Mapping[str, str], starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Any:
        read.append((sum(starts.values()), sum(ends.values())))
        return read_range(spark, spec, kafka, starts, ends)

    monkeypatch.setattr(source, "read_range", record_range)
    make_topics(topics, "inc")
    for number in range(20):
        topics.write("inc-cities", {"name": f"city {number}"}, key=f"{number}")
    topics.write("inc-in", *({"id": number, "city": f"{number}"} for number in range(3)))
    pipeline(spec_of("inc"))
    first = read_version(pipeline)
    topics.write("inc-cities", {"name": "other"}, {"name": "new"}, key="0")
    topics.write("inc-cities", None, key="1")
    topics.write("inc-cities", {"name": "more"}, key="20")
    topics.write("inc-in", *({"id": 100 + number, "city": f"{number}"} for number in (0, 1, 2, 20)))
    pipeline(spec_of("inc"))
    second = read_version(pipeline)
    topics.write("inc-in", {"id": 200, "city": "0"})
    pipeline(spec_of("inc"))
    assert read == [(0, 20), (20, 24)], "an unchanged table is not read"
    assert (second["base"], second["delta"]) == (first["base"], "1-delta")
    assert names_by_id(topics, "inc") == {
        **{number: f"city {number}" for number in range(3)},
        100: "new", 101: None, 102: "city 2", 120: "more", 200: "new",
    }  # fmt: skip

    monkeypatch.setattr(table_version, "_MIN_DELTA_ROWS", 0)
    monkeypatch.setattr(table_version, "_MAX_DELTA_SHARE", 0)

    topics.write("inc-cities", {"name": "last"}, key="2")
    topics.write("inc-in", *({"id": 300 + number, "city": f"{number}"} for number in (0, 1, 2)))
    with monkeypatch.context() as patch, pytest.raises(PipelineError, match=r"^killed$"):
        patch.setattr(TableFiles, "merge_parts", fail)
        pipeline(spec_of("inc"))
    assert read_version(pipeline)["number"] == second["number"]
    pipeline(spec_of("inc"))
    third = read_version(pipeline)
    assert (third["base"], third["delta"], third["base_rows"]) == (["2-base"], "", 20)
    assert table_folders(pipeline) == {"2-base"}, "files of versions that nothing reads are deleted"
    found = names_by_id(topics, "inc")
    assert {number: found[number] for number in (300, 301, 302)} == {300: "new", 301: None, 302: "last"}


@pytest.mark.slow
def test_table_is_complete_after_the_driver_was_killed(pipeline: Runner, topics: Topics) -> None:
    make_topics(topics, "cut")
    topics.write("cut-cities", {"name": "old"}, key="P")
    topics.write("cut-cities", {"name": "Brno"}, key="B")
    topics.write("cut-in", {"id": 0, "city": "P"})
    pipeline(spec_of("cut"))
    topics.write("cut-cities", {"name": "new"}, key="P")
    topics.write("cut-in", *({"id": number, "city": "PB"[number % 2]} for number in range(1, 11)))
    file, checkpoint = pipeline.folder / "p.yaml", pipeline.folder / "checkpoint"
    file.write_text(json.dumps(pipeline_document(spec_of("cut"))))
    command = ("run", "--pipeline", str(file), "--bootstrap", topics.address, "--checkpoint", str(checkpoint))
    for step in KILLED_AT:
        assert run_driver([step], *command, "--master", "local[2,2]") == -signal.SIGKILL, step
    assert read_version(pipeline)["delta"] == "1-delta"
    topics.write("cut-cities", None, key="B")
    (checkpoint / "tables" / "cities" / "7-base").mkdir()
    pipeline(spec_of("cut"))
    # The batch that was interrupted runs again with the newer table.
    assert names_by_id(topics, "cut") == {0: "old"} | {
        number: "new" if number % 2 == 0 else None for number in range(1, 11)
    }
    assert table_folders(pipeline) == {"0-base", "2-delta"}


@pytest.mark.slow
def test_changes_of_a_large_table_are_merged_part_by_part(
    pipeline: Runner, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_version, "_ROWS_PER_PART", 10)
    monkeypatch.setattr(table_version, "_MIN_DELTA_ROWS", 2)
    monkeypatch.setattr(table_version, "_MAX_DELTA_SHARE", 0)
    make_topics(topics, "part")
    expected: dict[int, str | None] = {}
    for number in range(40):
        topics.write("part-cities", {"name": "before"}, {"name": f"city {number}"}, key=f"{number}")
        expected[number] = f"city {number}"
    pipeline(spec_of("part"))
    base = read_version(pipeline)["base"]
    assert read_version(pipeline)["base_rows"] == 40
    assert base == [f"0-fewer/_part={part}" for part in range(4)], "80 records are 40 rows"
    for round_ in range(1, 7):
        for number in (round_, round_ + 20):
            topics.write("part-cities", None if number == 22 else {"name": f"{round_}"}, key=f"{number}")
            expected[number] = None if number == 22 else f"{round_}"
        topics.write("part-in", *({"id": 100 * round_ + number, "city": f"{number}"} for number in range(40)))
        if round_ == 4:
            with monkeypatch.context() as patch, pytest.raises(PipelineError, match=r"^killed$"):
                patch.setattr(TableFiles, "write_rest", fail)
                pipeline(spec_of("part"))
            assert read_version(pipeline)["number"] == round_ - 1
        pipeline(spec_of("part"))
        found = names_by_id(topics, "part")
        assert {number: found[100 * round_ + number] for number in range(40)} == expected
    assert read_version(pipeline)["base_rows"] == pytest.approx(39, abs=10)
    assert len({name.split("-")[0] for name in read_version(pipeline)["base"]}) > 1, "batches wrote some of the parts"
    kept = {f"{it.parent.name}/{it.name}" for it in (pipeline.folder / "checkpoint/tables/cities").glob("*/_part=*")}
    assert kept == set(read_version(pipeline)["base"]), "parts that were written anew are deleted"
    others = {it for it in table_folders(pipeline) if not it.endswith(("-base", "-fewer"))}
    assert others == {read_version(pipeline)["delta"]}


def fail(*_: object) -> None:
    raise PipelineError("killed")
