"""Leader epochs: assigned, looked up and truncated as KIP-101 and KIP-279 require."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.log.disk import OsDisk
from ottla_broker.log.leader_epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs("leader-epoch-checkpoint", list(entries))


@pytest.mark.parametrize(
    ("requested_epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 20)), (2, (1, 20)), (3, (3, 30)), (5, (5, 99)), (6, (-1, -1))],
)
def test_end_offset_is_that_of_the_largest_epoch_not_above(requested_epoch: int, answer: tuple[int, int]) -> None:
    assert epochs((1, 10), (3, 20), (5, 30)).end_offset_for(requested_epoch, 99) == answer


def test_end_offset_is_unknown_without_epochs() -> None:
    assert epochs().end_offset_for(0, 7) == (-1, -1)
    assert epochs().latest_epoch() == -1


def test_assigning_an_epoch_again_changes_nothing() -> None:
    known = epochs((1, 10), (3, 20))
    known.assign(3, 25)
    assert known.entries() == [(1, 10), (3, 20)] and not known.is_dirty


def test_records_of_an_older_epoch_drop_the_newer_ones() -> None:
    """Epochs without records are dropped when more records of an older one arrive."""
    known = epochs((0, 0), (1, 204), (2, 357))
    known.assign(1, 355)
    assert known.entries() == [(0, 0), (1, 204)] and known.is_dirty


def test_entries_that_contradict_a_new_one_are_dropped() -> None:
    known = epochs((1, 10), (3, 20), (4, 30))
    known.assign(5, 20)
    assert known.entries() == [(1, 10), (5, 20)] and known.is_dirty


def test_an_epoch_without_records_is_replaced() -> None:
    known = epochs((1, 10))
    known.assign(2, 10)
    assert known.entries() == [(2, 10)]


def test_truncation_from_the_end_drops_epochs_and_truncation_from_the_start_moves_the_first() -> None:
    known = epochs((1, 10), (3, 20), (5, 30))
    known.truncate_from_end(30)
    assert known.entries() == [(1, 10), (3, 20)]
    known.truncate_from_start(25)
    assert known.entries() == [(3, 25)]
    known.truncate_from_start(25)
    assert known.entries() == [(3, 25)]


def test_epoch_of_an_offset_is_the_last_that_began_at_or_before_it() -> None:
    known = epochs((1, 10), (3, 20))
    assert [known.epoch_for_offset(at) for at in (9, 10, 19, 20, 99)] == [-1, 1, 1, 3, 3]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100)), max_size=12), st.integers(-1, 21))
def test_epochs_and_starts_rise_strictly(assigned: list[tuple[int, int]], requested_epoch: int) -> None:
    """An end offset is never below the start of its epoch or of an earlier one."""
    known = epochs()
    for epoch, start in assigned:
        known.assign(epoch, start)
    entries = known.entries()
    assert entries == sorted(entries) and len({e for e, _ in entries}) == len({s for _, s in entries}) == len(entries)
    epoch, end = known.end_offset_for(requested_epoch, 100)
    if (epoch, end) != (-1, -1):
        assert epoch <= requested_epoch
        assert all(start <= end for e, start in entries if e <= epoch)


def test_file_is_in_kafkas_format(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(epochs((0, 0), (7, 42)).encode())
    assert path.read_text() == "0\n2\n0 0\n7 42\n"
    assert LeaderEpochs.load(OsDisk(), str(path)).entries() == [(0, 0), (7, 42)]
    assert LeaderEpochs.load(OsDisk(), str(tmp_path / "none")).entries() == []
    path.write_text("")
    assert LeaderEpochs.load(OsDisk(), str(path)).entries() == []


@pytest.mark.parametrize("text", ["1\n0\n", "0\n2\n0 0\n", "0\nx\n", "0\n1\nnonsense\n"])
def test_error_names_a_damaged_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(text)
    with pytest.raises(ValueError, match=str(path)):
        LeaderEpochs.load(OsDisk(), str(path))
