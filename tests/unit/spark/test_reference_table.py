"""Versions of a reference table by batch, and the files that they need, with fakes of Spark and the
brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from ottla_spark.errors import PipelineError
from ottla_spark.streaming import reference_table
from ottla_spark.streaming.reference_table import ReferenceTable
from ottla_spark.streaming.table_relation import BatchId
from ottla_spark.streaming.table_version import TableVersion
from tests.unit.spark.small_pipeline import RAW, small_pipeline

PIPELINE = small_pipeline(s={"topic": "s", "format": RAW}, t={"topic": "t", "mode": "table", "format": RAW})


class FakeBrokers:
    """A topic with one partition."""

    end = 10

    def list_offsets(self, topics: list[str], which: str, isolation: str = "") -> dict[tuple[str, int], int]:
        return {(topics[0], 0): self.end if which == "latest" else 0}

    def read_topic_config(self, topic: str, key: str) -> str | None:
        return None


class FakeCheckpoint:
    location = "/checkpoint"

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def read_text(self, name: str) -> str | None:
        return self.texts.get(name)

    def write_text(self, name: str, text: str) -> None:
        self.texts[name] = text


class FakeFiles:
    """Files of a table. `folders`: those that exist."""

    definition_digest = "raw"
    rows_of_delta = 1

    def __init__(self, *_: object) -> None:
        self.folders: set[str] = {"left-over"}

    def write_base(self, number: int, *_: object) -> tuple[Sequence[str], int]:
        folder, rows = self._write(f"{number}-base", 1_000_000)
        return [folder], rows

    def write_delta(
        self, number: int, version: TableVersion, since: Mapping[int, int], ends: Mapping[int, int]
    ) -> tuple[str, int]:
        assert since == version.ends
        return self._write(f"{number}-delta", self.rows_of_delta)

    def merge_parts(self, number: int, *_: object) -> tuple[Sequence[str], int]:
        folder, rows = self._write(f"{number}-base", 1_000_001)
        return [folder], rows

    def delete_all_but(self, folders: frozenset[str]) -> None:
        self.folders &= folders

    def _write(self, folder: str, rows: int) -> tuple[str, int]:
        self.folders.add(folder)
        return folder, rows


class World:
    """A reference table that `start` opens again, as another process does."""

    def __init__(self) -> None:
        self.brokers, self.checkpoint = FakeBrokers(), FakeCheckpoint()
        self.start()

    def start(self) -> None:
        unused, brokers, checkpoint = cast(Any, None), cast(Any, self.brokers), cast(Any, self.checkpoint)
        self.table = ReferenceTable(unused, PIPELINE, "t", {}, brokers, checkpoint)
        self.files = cast(FakeFiles, self.table._files)

    def version_number(self, query: str, batch: int) -> int:
        return self.table.version_of(BatchId(query, str(batch))).number


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(reference_table, "TableFiles", FakeFiles)
    return World()


def test_scans_of_a_batch_read_one_version_and_the_next_batch_the_newest(world: World) -> None:
    assert world.version_number("q", 0) == 0
    world.brokers.end = 11
    assert world.version_number("q", 0) == 0
    assert world.version_number("q", 1) == 1
    assert world.version_number("q", 2) == 1, "nothing has changed"


def test_first_batch_finds_what_was_read_ahead_and_reads_only_changes_since_then(world: World) -> None:
    world.table.read_ahead()
    assert world.version_number("q", 0) == 0
    assert world.files.folders == {"0-base"}
    world.start()
    world.table.read_ahead()
    world.brokers.end = 11
    version = world.table.version_of(BatchId("q", "0"))
    assert (version.base, version.delta) == (("0-base",), "1-delta")


def test_files_are_kept_while_a_batch_of_any_query_reads_them(world: World) -> None:
    world.version_number("slow", 0)
    assert world.files.folders == {"0-base"}, "files of a process that was killed are deleted"
    world.brokers.end = 11
    world.version_number("quick", 0)
    world.brokers.end, world.files.rows_of_delta = 12, 20_000
    world.version_number("quick", 1)
    assert world.files.folders == {"0-base", "2-base"}, "the delta of version 1 is not needed"
    world.version_number("slow", 1)
    assert world.files.folders == {"2-base"}


def test_process_resumes_with_the_stored_version(world: World) -> None:
    world.version_number("q", 0)
    world.brokers.end = 11
    world.version_number("q", 1)
    world.start()
    world.files.folders |= {"0-base", "1-delta"}
    world.brokers.end = 12
    version = world.table.version_of(BatchId("q", "1"))
    assert (version.number, version.base, version.delta, version.ends) == (2, ("0-base",), "2-delta", {0: 12})


def test_scan_outside_of_queries_reads_the_version_of_the_last_refresh(world: World) -> None:
    world.table.refresh()
    world.brokers.end = 11
    assert world.version_number("q", 0) == 1
    assert world.table.version_of(BatchId()).number == 0
    world.table.refresh()
    assert world.table.version_of(BatchId()).number == 1


def test_corrupt_version_is_an_error_that_names_the_file(world: World) -> None:
    world.checkpoint.texts["table-t.json"] = '{"number": 1}'
    with pytest.raises(PipelineError, match=r"^/checkpoint/table-t.json is corrupt"):
        world.start()
