from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.mirroring.group_offsets import Committed, due, named_here

PLACES = st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3)), st.builds(Committed, st.integers(0, 20)))


@given(PLACES, PLACES, st.dictionaries(st.tuples(st.just("t"), st.integers(0, 3)), st.integers(0, 20)))
def test_offsets_go_forward_and_never_beyond_the_copy(
    there: dict[tuple[str, int], Committed],
    here: dict[tuple[str, int], Committed],
    ends: dict[tuple[str, int], int],
) -> None:
    after = {**here, **due(there, here, ends)}
    for place, one in after.items():
        if place in here and one.offset <= here[place].offset:
            assert one == here[place]
        else:
            assert place in here or place in ends
            assert one.offset <= min(there[place].offset, ends[place])
    for place in there.keys() & ends.keys():
        assert after[place].offset >= min(there[place].offset, ends[place])
    assert due(there, after, ends) == {}


def test_what_is_copied_under_another_name_is_committed_under_it() -> None:
    there = {("a", 0): Committed(5), ("a", 1): Committed(6), ("b", 0): Committed(7)}
    assert named_here(there, {"a": "west.a"}) == {("west.a", 0): Committed(5), ("west.a", 1): Committed(6)}
