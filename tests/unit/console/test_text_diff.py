"""Differences between two texts."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.text_diff import CONTEXT_LINES, MAX_LINES, compare_lines

LINES = st.lists(st.sampled_from("abcde"), max_size=40)


@given(LINES, LINES)
def test_changed_lines_turn_the_old_text_into_the_new_one(old: list[str], new: list[str]) -> None:
    compared = compare_lines(old, new)
    assert (compared == []) == (old == new)
    assert not any(one.kind == other.kind == "gap" for one, other in pairwise(compared))
    changes = {kind: Counter(line.text for line in compared if line.kind == kind) for kind in ("added", "removed")}
    assert Counter(old) - changes["removed"] + changes["added"] == Counter(new)
    shown_new = [line.text for line in compared if line.kind in ("same", "added")]
    rest = iter(new)
    assert all(text in rest for text in shown_new)  # in their order


def test_lines_far_from_changes_are_left_out() -> None:
    old = [str(number) for number in range(100)]
    new = [*old[:50], "inserted", *old[50:]]
    compared = compare_lines(old, new)
    assert [line.kind for line in compared] == [
        "gap",
        *["same"] * CONTEXT_LINES,
        "added",
        *["same"] * CONTEXT_LINES,
        "gap",
    ]
    assert [line.text for line in compared if line.kind == "same"] == ["47", "48", "49", "50", "51", "52"]


def test_texts_of_too_many_lines_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 2,000 lines"):
        compare_lines([], [""] * (MAX_LINES + 1))
