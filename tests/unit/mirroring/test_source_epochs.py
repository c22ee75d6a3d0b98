"""The recorded leader epochs of a source are enough for the source to detect a divergence."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.log.validation import HeaderFields
from ottla_broker.mirroring.source_epochs import EpochEntries, EpochRegression, epochs_after_append, last_record_epoch


def batch(base: int, count: int, epoch: int) -> tuple[int, HeaderFields]:
    return 0, (base, 100, epoch, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)


@given(st.integers())
def test_epoch_of_the_last_record_is_known_after_any_truncation(seed: int) -> None:
    """Leaders fetch batches, are truncated, and delete records from the log start."""
    random = Random(seed)
    source: list[tuple[int, int, int]] = []  # base, count, epoch
    end, epoch = random.choice((0, 50)), random.choice((-1, 0, 7))
    for _ in range(30):
        epoch += random.choice((0, 0, 0, 1, 5))
        end += random.choice((0, 0, 3))  # an offset gap
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
                if (new_epochs := epochs_after_append(epochs, start, at, coming)) is not None:
                    epochs = new_epochs  # committed; a leader may crash before it appends
                    continue
                last = coming[-1][1]
                at = last[0] + last[6] + 1
        held = [entry for entry in source if start < entry[0] + entry[1] <= at]
        if held:
            assert last_record_epoch(epochs, start, at) == held[-1][2], (epochs, start, at)
        assert list(epochs) == sorted(set(epochs), key=lambda entry: entry[1])


def test_older_epoch_is_detected() -> None:
    epochs = epochs_after_append((), 0, 0, [batch(0, 5, 3)])
    assert epochs == ((3, 0),)
    assert epochs_after_append(epochs, 0, 5, [batch(5, 5, 3)]) is None
    with pytest.raises(EpochRegression, match="offset 5 has leader epoch 2"):
        epochs_after_append(epochs, 0, 5, [batch(5, 5, 2)])


def test_epochs_that_an_earlier_leader_recorded_are_not_recorded_again() -> None:
    """It crashed before it appended the records; the next leader finds the epochs."""
    assert epochs_after_append(((3, 0), (4, 5)), 0, 5, [batch(5, 5, 4)]) is None
    assert epochs_after_append(((3, 0), (4, 5)), 0, 5, [batch(5, 5, 6)]) == ((3, 0), (6, 5))


def test_recorded_epochs_that_the_source_has_lost_are_removed() -> None:
    assert epochs_after_append(((3, 0), (4, 5)), 0, 5, [batch(5, 5, 3)]) == ((3, 0),)
    assert epochs_after_append(((3, 0), (4, 50)), 0, 5, [batch(5, 5, 3)]) is None


def test_epochs_below_the_log_start_are_removed() -> None:
    assert epochs_after_append(((1, 0), (2, 10), (3, 20)), 15, 30, [batch(30, 1, 4)]) == ((2, 10), (3, 20), (4, 30))
