"""Choice of the log to compact and of its range: Kafka's rules, each named for its setting."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla_broker.log.cleaning_plan import DirtyRange, SegmentSummary, choose_filthiest, choose_range, group_segments
from ottla_broker.log.config import LogConfig

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
COMPACT = LogConfig(cleanup_compact=True, cleanup_delete=False)


def segments(*sizes: int, each: int = 100) -> list[SegmentSummary]:
    """Segments of `each` offsets; the last one is active."""
    return [SegmentSummary(n * each, size) for n, size in enumerate(sizes)]


def plan_cleaning(
    summaries: list[SegmentSummary],
    config: LogConfig = COMPACT,
    *,
    start: int = 0,
    stable: int = 1000,
    checkpoint: int | None = None,
) -> DirtyRange | None:
    return choose_range(summaries, config, start=start, end=1000, stable=stable, checkpoint=checkpoint, now_ms=NOW_MS)


def test_a_log_is_cleaned_above_min_cleanable_dirty_ratio() -> None:
    summaries = segments(50, 50, 7)
    assert plan_cleaning(summaries) == DirtyRange(0, 200, 0, 100, is_overdue=False)
    assert plan_cleaning(summaries, checkpoint=100) is None, "a half is not more than a half"
    assert plan_cleaning(summaries, replace(COMPACT, min_cleanable_dirty_ratio=0.4), checkpoint=100) == DirtyRange(
        100, 200, 50, 50, False
    )


def test_the_active_segment_is_never_cleaned() -> None:
    assert plan_cleaning(segments(50)) is None
    assert plan_cleaning(segments(50, 50), checkpoint=100) is None


@pytest.mark.parametrize(("stable", "end"), [(199, 100), (200, 200), (150, 100), (250, 200), (300, 300), (99, None)])
def test_range_ends_with_the_last_segment_below_the_last_stable_offset(stable: int, end: int | None) -> None:
    dirty = plan_cleaning(segments(10, 10, 10, 10), stable=stable)
    assert (dirty.end if dirty else None) == end


def test_min_compaction_lag_ms_keeps_the_first_young_segment_and_all_later_ones() -> None:
    summaries = segments(10, 10, 10, 10)
    summaries[0] = replace(summaries[0], largest_timestamp=NOW_MS)  # its age does not matter, it is clean
    summaries[1] = replace(summaries[1], largest_timestamp=NOW_MS - 2 * HOUR_MS)
    summaries[2] = replace(summaries[2], largest_timestamp=NOW_MS - HOUR_MS + 1)
    config = replace(COMPACT, min_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=0)
    assert plan_cleaning(summaries, config, checkpoint=100) == DirtyRange(100, 200, 10, 10, False)
    summaries[2] = replace(summaries[2], largest_timestamp=NOW_MS - HOUR_MS)
    assert plan_cleaning(summaries, config, checkpoint=100) == DirtyRange(100, 300, 10, 20, False)


def test_max_compaction_lag_ms_overrides_the_ratio() -> None:
    summaries = segments(1000, 10, 10)
    config = replace(COMPACT, max_compaction_lag_ms=HOUR_MS)
    assert plan_cleaning(summaries, config, checkpoint=100) is None
    summaries[1] = replace(summaries[1], first_timestamp=NOW_MS - HOUR_MS)
    assert plan_cleaning(summaries, config, checkpoint=100) is None
    summaries[1] = replace(summaries[1], first_timestamp=NOW_MS - HOUR_MS - 1)
    assert plan_cleaning(summaries, config, checkpoint=100) == DirtyRange(100, 200, 1000, 10, is_overdue=True)


@pytest.mark.parametrize("checkpoint", [None, 40, 1001])
def test_checkpoint_outside_of_the_log_is_ignored(checkpoint: int | None) -> None:
    dirty = plan_cleaning(segments(10, 10, 10), start=50, checkpoint=checkpoint)
    assert dirty is not None
    assert dirty.first_dirty == 50


def test_overdue_logs_come_first_then_the_highest_dirty_ratio() -> None:
    tidy, filthy, late = DirtyRange(0, 1, 90, 10, False), DirtyRange(0, 1, 10, 90, False), DirtyRange(0, 1, 95, 5, True)
    assert choose_filthiest([("tidy", tidy), ("filthy", filthy)]) == ("filthy", filthy)
    assert choose_filthiest([("late", late), ("filthy", filthy)]) == ("late", late)
    assert choose_filthiest([]) is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 100))
def test_adjacent_segments_are_grouped_up_to_the_segment_size(sizes: list[int], limit: int) -> None:
    summaries = segments(*sizes)
    groups = group_segments(summaries, replace(COMPACT, segment_bytes=limit), 100 * len(sizes))
    assert [segment for group in groups for segment in group] == summaries
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        total = sum(segment.size for segment in group)
        assert len(group) == 1 or total <= limit
        assert following is None or total + following[0].size > limit


def test_groups_do_not_exceed_the_limits_of_an_index() -> None:
    fat = [replace(segment, offset_index_size=8) for segment in segments(1, 1, 1)]
    assert [len(group) for group in group_segments(fat, replace(COMPACT, segment_index_bytes=16), 300)] == [2, 1]
    far = segments(1, 1, 1, each=2**30)
    assert [len(group) for group in group_segments(far, COMPACT, 3 * 2**30)] == [2, 1]
    assert [len(group) for group in group_segments(far, COMPACT, 2**31 + 1)] == [2, 1]
    assert [len(group) for group in group_segments(far, COMPACT, 2**31)] == [3]
