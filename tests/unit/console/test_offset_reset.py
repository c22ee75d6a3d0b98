"""The offsets that a group would have after a reset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.offset_reset import (
    RESET_KINDS,
    OffsetChange,
    PartitionReset,
    ResetTarget,
    choose_offset,
    find_conflicts,
    parse_changes,
    plan_changes,
    write_changes,
    write_offsets,
)


@pytest.mark.parametrize(
    ("target", "at_time", "expected"),
    [
        (ResetTarget("earliest"), -1, 10),
        (ResetTarget("latest"), -1, 90),
        (ResetTarget("offset", 50), -1, 50),
        (ResetTarget("offset", 5), -1, 10),
        (ResetTarget("offset", 500), -1, 90),
        (ResetTarget("time", 1000), 33, 33),
        (ResetTarget("time", 1000), -1, 90),
        (ResetTarget("time", 1000), None, -1),
        (ResetTarget("latest"), None, 90),
        (ResetTarget("shift", -20), -1, 20),
        (ResetTarget("shift", 1000), -1, 90),
    ],
)
def test_offset_is_chosen_within_the_partition(target: ResetTarget, at_time: int | None, expected: int) -> None:
    assert choose_offset(target, 40, 10, 90, at_time) == expected


@given(
    st.sampled_from(RESET_KINDS),
    st.integers(-(2**62), 2**62),
    st.integers(0, 2**40),
    st.integers(-1, 2**40),
    st.integers(-1, 2**40),
)
def test_offset_is_one_of_the_partition_or_unknown(kind: str, at: int, committed: int, one: int, other: int) -> None:
    start, end = min(one, other), max(one, other)
    chosen = choose_offset(ResetTarget(kind, at), committed, start, end, -1)  # type: ignore[arg-type]
    assert chosen == -1 if start < 0 else start <= chosen <= end


def test_files_have_the_partitions_whose_offsets_are_known() -> None:
    assert write_offsets([("a", 0, 5), ("a.b", 1, -1), ("c", 2, 0)]) == "a,0,5\nc,2,0\n"
    assert PartitionReset("a", 0, 3, 5, 9).lag == 4
    assert PartitionReset("a", 0, 3, -1, 9).lag == -1


def test_changes_are_those_of_known_offsets_that_move() -> None:
    resets = [PartitionReset("t", 0, 5, 3, 9), PartitionReset("t", 1, 5, 5, 9), PartitionReset("t", 2, 5, -1, 9)]
    changes = plan_changes(resets)
    assert changes == [OffsetChange("t", 0, 5, 3)]
    assert parse_changes(write_changes(changes)) == changes
    assert changes[0].undo == OffsetChange("t", 0, 3, 5)


@pytest.mark.parametrize("text", ["t,0,1", "t,0,1,x", "t,0,1,-2", "t,0,1,2,3", "t,0,1," + "9" * 20])
def test_line_that_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected topic,partition,offset before,offset after"):
        parse_changes(text)


def test_offset_that_changed_since_the_dry_run_conflicts() -> None:
    changes = [OffsetChange("t", 0, 5, 3), OffsetChange("t", 1, 5, 3), OffsetChange("t", 2, 5, 3)]
    assert find_conflicts(changes, {("t", 0): 5, ("t", 1): 6}) == [(changes[1], 6), (changes[2], None)]
