"""Reference tables whose files are on an S3-compatible store, when the driver is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest

from ottla_operator.resources.object_store import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, run_s3_server
from tests.spark.conftest import Runner, Topics, pipeline_document
from tests.spark.death import Step
from tests.spark.dying_driver import run_driver
from tests.spark.test_tables import make_topics, names_by_id, spec_of

CITIES: Final = 40
CHECKPOINT: Final = "tables/checkpoint"
FILES: Final = "ottla_spark.streaming.table_files:TableFiles"
MERGED: Final = (f"{FILES}.merge_parts", "after")
KILLED_AT: Final[tuple[Step, ...]] = (
    (f"{FILES}.write_delta", "after"),
    MERGED,
    (f"{FILES}.write_rest", "after"),
    ("ottla_spark.streaming.reference_table:ReferenceTable._refresh", "after"),
)
"""Steps of a batch that reads changes and merges them into some parts of the table."""
SMALL_PARTS: Final = {
    "ottla_spark.streaming.table_version:_ROWS_PER_PART": 10,
    "ottla_spark.streaming.table_version:_MIN_DELTA_ROWS": 2,
    "ottla_spark.streaming.table_version:_MAX_DELTA_SHARE": 0,
    "ottla_spark.streaming.table_version:_MIN_LOOKED_UP_TABLE": 1,
    "ottla_spark.streaming.table_version:_MAX_LOOKED_UP_SHARE": 1,
}
"""Each batch merges some of four parts, and looks up the keys of its rows."""


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Drivers have its credentials in their environment."""
    monkeypatch.setenv(ACCESS_KEY_ID, ACCESS_KEY)
    monkeypatch.setenv(SECRET_ACCESS_KEY, SECRET_KEY)
    with run_s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def read_version(store: S3Server) -> Any:
    with store.file_system().open_input_stream(f"{BUCKET}/{CHECKPOINT}/table-cities.json") as file:
        return json.loads(file.readall())


@pytest.mark.slow
def test_table_on_s3_is_complete_after_the_driver_was_killed_while_parts_are_merged(
    pipeline: Runner, topics: Topics, store: S3Server
) -> None:
    make_topics(topics, "s3t")
    expected: dict[int, str | None] = {number: f"city {number}" for number in range(CITIES)}
    for number, name in expected.items():
        topics.write("s3t-cities", {"name": name}, key=f"{number}")
    bucket = {"bucket": BUCKET, "prefix": f"/{CHECKPOINT}/", "endpoint": store.endpoint}
    document = pipeline_document({**spec_of("s3t"), "checkpoint": {"s3": bucket}})
    file, progress = pipeline.folder / "p.yaml", pipeline.folder / "p.jsonl"
    file.write_text(json.dumps(document))
    command = ["run", "--pipeline", str(file), "--bootstrap", topics.address, "--master", "local[2,2]"]
    command += ["--checkpoint", f"s3a://{BUCKET}/{CHECKPOINT}", "--progress", str(progress)]

    def run(*steps: Step) -> int:
        return run_driver(steps, *command, constants=SMALL_PARTS)

    def write_events(first: int) -> None:
        topics.write("s3t-in", *({"id": first + number, "city": f"{number}"} for number in range(CITIES)))

    write_events(0)
    assert run() == os.EX_OK, progress.read_text()[-800:]
    before = read_version(store)
    assert before["base"] == [f"0-base/_part={part}" for part in range(4)]

    for number in range(3, CITIES, 5):
        expected[number] = None if number == 13 else "changed"
        topics.write("s3t-cities", None if number == 13 else {"name": "changed"}, key=f"{number}")
    write_events(100)
    for step in KILLED_AT:
        assert read_version(store) == before, "no version names files of a refresh that was interrupted"
        assert run(step) == -signal.SIGKILL, step
        if step == MERGED:  # as if it had been killed amid the files
            store.file_system().delete_file(f"{BUCKET}/{min(store.files(f'{CHECKPOINT}/tables/cities/1-base'))}")
    after = read_version(store)
    assert after["number"] == 1
    merged = [it for it in after["base"] if it.startswith("1-base/")]
    assert 0 < len(merged) < 4, "some of the parts"
    assert after["delta"] == "1-rest", "the changes of the other parts"
    write_events(200)
    assert run() == os.EX_OK, progress.read_text()[-800:]

    found = names_by_id(topics, "s3t")
    assert {number: found[number] for number in range(CITIES)} == {it: f"city {it}" for it in range(CITIES)}
    for first in (100, 200):
        assert {number: found[first + number] for number in range(CITIES)} == expected
    kept = {it.removeprefix(f"{CHECKPOINT}/tables/cities/") for it in store.files(f"{CHECKPOINT}/tables/cities")}
    folders = {it.rpartition("/")[0] for it in kept if it.endswith(".parquet")}
    assert folders - {"empty"} == {it for it in (*after["base"], after["delta"]) if it}
