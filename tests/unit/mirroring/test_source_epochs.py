"""What a copy knows of its source's leader epochs is enough for the source to tell where the logs part."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.log.validation import HeaderFields
from ottla_broker.mirroring.source_epochs import EpochEntries, EpochRegression, epochs_after_append, last_record_epoch


def batch(base: int, count: int, epoch: int) -> tuple[int, HeaderFields]:
    return 0, (base, 100, epoch, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)


@given(st.integers())
def test_a_copy_knows_the_epoch_of_its_last_record_wherever_it_was_cut_off(seed: int) -> None:
    """Played with leaders that fetch some, lose their ends, and have their heads deleted."""
    random = Random(seed)
    source: list[tuple[int, int, int]] = []  # base, count, epoch
    end, epoch = random.choice((0, 50)), random.choice((-1, 0, 7))
    for _ in range(30):
        epoch += random.choice((0, 0, 0, 1, 5))
        end += random.choice((0, 0, 3))  # a hole
        count = random.randint(1, 4)
        source.append((end, count, epoch))
        end += count
    epochs: EpochEntries = ()
    start = at = source[0][0]
    for _ in range(60):
        coming = [batch(*one) for one in source if one[0] >= at][: random.randint(1, 5)]
        match random.randrange(5):
            case 0:
                ends = [base + count for base, count, _ in source if start <= base + count <= at]
                at = random.choice([*ends, start])
            case 1:
                start = random.choice([base for base, _, _ in source if start <= base <= at] or [start])
            case _ if coming:
                if (told := epochs_after_append(epochs, start, at, coming)) is not None:
                    epochs = told  # committed; a leader may die before it appends
                    continue
                last = coming[-1][1]
                at = last[0] + last[6] + 1
        held = [entry for entry in source if start < entry[0] + entry[1] <= at]
        if held:
            assert last_record_epoch(epochs, start, at) == held[-1][2], (epochs, start, at)
        assert list(epochs) == sorted(set(epochs), key=lambda entry: entry[1])


def test_an_epoch_that_goes_back_is_noticed() -> None:
    epochs = epochs_after_append((), 0, 0, [batch(0, 5, 3)])
    assert epochs == ((3, 0),)
    assert epochs_after_append(epochs, 0, 5, [batch(5, 5, 3)]) is None
    with pytest.raises(EpochRegression, match="offset 5 has leader epoch 2"):
        epochs_after_append(epochs, 0, 5, [batch(5, 5, 2)])


def test_what_a_predecessor_wrote_down_is_not_written_again() -> None:
    """It died before it appended: its successor finds the epochs there."""
    assert epochs_after_append(((3, 0), (4, 5)), 0, 5, [batch(5, 5, 4)]) is None
    assert epochs_after_append(((3, 0), (4, 5)), 0, 5, [batch(5, 5, 6)]) == ((3, 0), (6, 5))


def test_what_a_predecessor_wrote_down_and_the_source_has_lost_is_taken_back() -> None:
    assert epochs_after_append(((3, 0), (4, 5)), 0, 5, [batch(5, 5, 3)]) == ((3, 0),)
    assert epochs_after_append(((3, 0), (4, 50)), 0, 5, [batch(5, 5, 3)]) is None


def test_epochs_below_the_log_start_are_let_go() -> None:
    assert epochs_after_append(((1, 0), (2, 10), (3, 20)), 15, 30, [batch(30, 1, 4)]) == ((2, 10), (3, 20), (4, 30))
