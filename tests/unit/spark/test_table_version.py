"""What a reference table reads so that it has all records of its topic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_spark.streaming.table_version import (
    ReadAll,
    ReadChanges,
    TableVersion,
    TopicOffsets,
    Unchanged,
    count_parts,
    max_looked_up_rows,
    parts_to_merge,
    plan_refresh,
    with_merged_parts,
)

VERSION = TableVersion(3, ("1-base",), "3-delta", 1_000_000, {0: 0, 1: 10}, {0: 100, 1: 50}, "json", 1_000)
TOPIC = TopicOffsets(VERSION.starts, VERSION.ends)
RETENTION_MS = 60_000


def plan(version: TableVersion | None, topic: TopicOffsets, now_ms: int = 2_000, definition: str = "json") -> object:
    return plan_refresh(version, definition, topic, now_ms, RETENTION_MS)


def test_only_records_after_the_version_are_read() -> None:
    assert plan(VERSION, TOPIC) == Unchanged()
    assert plan(VERSION, TopicOffsets(TOPIC.starts, {0: 103, 1: 50})) == ReadChanges({0: 100, 1: 50})
    assert plan(VERSION, TopicOffsets({**TOPIC.starts, 2: 0}, {**TOPIC.ends, 2: 7})) == ReadChanges(
        {0: 100, 1: 50, 2: 0}
    )


def test_all_records_are_read_for_a_new_schema_and_after_the_topic_lost_its_end() -> None:
    assert plan(None, TOPIC) == ReadAll()
    assert plan(VERSION, TOPIC, definition="avro") == ReadAll()
    assert plan(VERSION, TopicOffsets(TOPIC.starts, {0: 99, 1: 60})) == ReadAll()
    assert plan(VERSION, TopicOffsets({0: 0}, {0: 100})) == ReadAll()


def test_all_records_are_read_if_compaction_may_have_removed_a_deletion() -> None:
    later = TopicOffsets(TOPIC.starts, {0: 101, 1: 50})
    assert plan(VERSION, later, now_ms=1_000 + RETENTION_MS) == ReadChanges({0: 100, 1: 50})
    assert plan(VERSION, later, now_ms=1_001 + RETENTION_MS) == ReadAll()
    assert plan(VERSION, TOPIC, now_ms=10**15) == Unchanged(), "nothing was written that could be missed"


def test_rows_that_retention_has_deleted_are_removed_with_a_new_base() -> None:
    retained = TopicOffsets({0: 40, 1: 10}, TOPIC.ends)
    assert plan(VERSION, retained) == ReadChanges(VERSION.ends)
    assert list(parts_to_merge(VERSION, retained, 0)) == [0]
    assert list(parts_to_merge(replace(VERSION, base=("a", "b")), retained, 0)) == [0, 1]
    assert plan(VERSION, TopicOffsets({0: 200, 1: 10}, {0: 200, 1: 50})) == ReadChanges({0: 200, 1: 50})


@pytest.mark.parametrize(("base_rows", "limit"), [(0, 10_000), (1_000_000, 10_000), (10_000_000, 25_000)])
def test_delta_is_merged_when_it_has_grown(base_rows: int, limit: int) -> None:
    version = replace(VERSION, base_rows=base_rows, base=("",) * count_parts(base_rows))
    assert not parts_to_merge(version, TOPIC, limit)
    assert parts_to_merge(version, TOPIC, limit + 1)


def test_parts_are_merged_one_after_the_other_and_many_at_once_for_many_changes() -> None:
    version = replace(VERSION, base=tuple(f"0-base/_part={part}" for part in range(8)), base_rows=4_000_000)
    merged = []
    for number in range(1, 10):
        (part,) = parts_to_merge(version, TOPIC, 10_001)
        version = with_merged_parts(version, [part], [f"{number}-base/_part={part}"], 500_000 + number, TOPIC.starts)
        merged.append(part)
    assert merged == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert version.base == ("9-base/_part=0", *(f"{part + 1}-base/_part={part}" for part in range(1, 8)))
    assert version.base_rows == pytest.approx(4_000_000, abs=1_000)
    assert list(parts_to_merge(version, TOPIC, 40_000)) == [1, 2, 3, 4, 5, 6]
    assert list(parts_to_merge(replace(version, next_part=6), TOPIC, 40_000)) == [6, 7, 0, 1, 2, 3]


def test_base_that_has_outgrown_its_parts_is_written_in_more_parts() -> None:
    assert [count_parts(rows) for rows in (0, 500_000, 500_001, 10_000_000, 10**9)] == [1, 1, 2, 32, 32]
    version = replace(VERSION, base=("a", "b"), base_rows=1_990_000, next_part=1)
    assert list(parts_to_merge(version, TOPIC, 10_000)) == []
    assert list(parts_to_merge(version, TOPIC, 10_001)) == [0, 1]
    version = with_merged_parts(version, [0, 1], ["c", "d", "e", "f"], 2_000_001, {0: 7})
    assert (version.base, version.base_rows, version.starts) == (("c", "d", "e", "f"), 2_000_001, {0: 7})
    assert version.next_part == 0


def test_keys_are_looked_up_in_large_tables_by_batches_of_few_rows() -> None:
    assert [max_looked_up_rows(rows) for rows in (1_999_999, 2_000_000, 10**8)] == [0, 2_000, 10_000]


def test_version_is_stored_as_json_with_text_for_partitions() -> None:
    stored = {
        "number": 3, "base": "1-base", "delta": "3-delta", "base_rows": 1_000_000, "starts": {"0": 0, "1": 10},
        "ends": {"0": 100, "1": 50}, "definition": "json", "refreshed_ms": 1_000,
    }  # fmt: skip
    assert TableVersion.parse(stored) == VERSION
    in_parts = replace(VERSION, base=("1-base/_part=0", ""))
    assert TableVersion.parse({**stored, "base": ["1-base/_part=0", ""]}) == in_parts
    assert in_parts.folders == {"1-base/_part=0", "3-delta"}
    assert replace(VERSION, delta="").folders == {"1-base"}


offsets = st.integers(0, 20)
partitions = st.lists(st.tuples(offsets, offsets).map(sorted), min_size=1, max_size=3)


@given(partitions, st.lists(st.tuples(offsets, offsets), min_size=3, max_size=3), st.integers(0, 2))
def test_version_and_the_records_read_are_all_records_of_the_topic(
    before: list[list[int]], grown: list[tuple[int, int]], new_partitions: int
) -> None:
    version = replace(
        VERSION,
        starts={at: start for at, (start, _) in enumerate(before)},
        ends={at: end for at, (_, end) in enumerate(before)},
    )
    starts, ends = dict(version.starts), dict(version.ends)
    for at in [*starts, *range(len(before), len(before) + new_partitions)]:
        ends[at] = ends.get(at, 0) + grown[at % 3][0]
        starts[at] = min(starts.get(at, 0) + grown[at % 3][1], ends[at])
    action = plan(version, TopicOffsets(starts, ends))
    since = action.since if isinstance(action, ReadChanges) else ends if action == Unchanged() else starts
    for at, end in ends.items():
        have = set(range(version.starts.get(at, 0), version.ends.get(at, 0))) | set(range(since[at], end))
        assert have >= set(range(starts[at], end))
        assert since[at] <= end
