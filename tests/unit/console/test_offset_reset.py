"""The offsets that a group would have after a reset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.offset_reset import (
    RESET_KINDS,
    PartitionReset,
    ResetTarget,
    choose_offset,
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
        (ResetTarget("shift", -20), -1, 20),
        (ResetTarget("shift", 1000), -1, 90),
    ],
)
def test_offset_is_chosen_within_the_partition(target: ResetTarget, at_time: int, expected: int) -> None:
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
    found = choose_offset(ResetTarget(kind, at), committed, start, end, -1)  # type: ignore[arg-type]
    assert found == -1 if start < 0 else start <= found <= end


def test_files_have_the_partitions_whose_offsets_are_known() -> None:
    assert write_offsets([("a", 0, 5), ("a.b", 1, -1), ("c", 2, 0)]) == "a,0,5\nc,2,0\n"
    assert PartitionReset("a", 0, 3, 5, 9).lag == 4
    assert PartitionReset("a", 0, 3, -1, 9).lag == -1
