"""The divergence offset of two logs, checked against all of their records."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.mirroring.source_epochs import EpochEntries, epochs_below, find_divergence_offset, mirrored_end_offset


@dataclass
class Log:
    """Each record is (leader epoch, number), and unique unless it was mirrored."""

    records: list[tuple[int, int]] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def epochs(self) -> EpochEntries:
        found: list[tuple[int, int]] = []
        for at, (epoch, _) in enumerate(self.records, self.start):
            if not found or found[-1][0] != epoch:
                found.append((epoch, at))
        return tuple(found)

    def at(self, offset: int) -> tuple[int, int] | None:
        return self.records[offset - self.start] if self.start <= offset < self.end else None

    def delete_below(self, offset: int) -> None:
        self.records = self.records[max(offset - self.start, 0) :]
        self.start = max(self.start, offset)


@given(st.integers(0, 10**9))
def test_logs_are_identical_below_the_divergence_offset_and_differ_at_it(seed: int) -> None:
    """The original loses its end by unclean elections and continues; the mirror has a part of it;
    both delete records from the log start now and then.
    """
    random = Random(seed)
    original, epoch, number = Log(), 0, 0
    copy = Log()
    for _ in range(random.randrange(12)):
        match random.randrange(5):
            case 0 | 1:
                for _ in range(random.randrange(4)):
                    number += 1
                    original.records.append((epoch, number))
            case 2:
                epoch += random.randrange(1, 3)
            case 3 if original.records:
                epoch += 1
                del original.records[random.randrange(len(original.records)) :]
            case 4:
                original.delete_below(random.randrange(original.start, original.end + 1))
        if (
            random.random() < 0.5
            and copy.records == original.records[: len(copy.records)]
            and copy.start == original.start
        ):
            copy.records = original.records[: random.randrange(len(copy.records), len(original.records) + 1)]
    if copy.records:
        copy.delete_below(random.randrange(copy.start, copy.end))
    at = find_divergence_offset(original.epochs(), original.end, copy.epochs(), copy.end)
    both = range(max(original.start, copy.start), at)
    assert all(original.at(offset) == copy.at(offset) for offset in both)
    assert at <= min(original.end, copy.end)
    first, copied = original.at(at), copy.at(at)
    assert first is None or copied is None or first != copied, (
        "the record at the divergence offset is the first that differs"
    )


@pytest.mark.parametrize(
    ("original", "end", "copied", "copy_end", "at"),
    [
        (((0, 0),), 100, ((0, 0),), 100, 100),
        (((0, 0),), 137, ((0, 0),), 100, 100),  # an end that was never mirrored
        (((0, 0),), 80, ((0, 0),), 100, 80),  # the original has lost its end
        (((0, 0), (2, 60)), 90, ((0, 0), (1, 70)), 100, 60),  # and has written other records since
        (((0, 0), (1, 100)), 120, ((0, 0),), 100, 100),
        (((5, 300),), 400, ((3, 50),), 250, 250),  # all records of the original are newer than the mirrored ones
        (((5, 300),), 400, ((3, 50),), 350, 300),
        ((), 0, ((3, 50),), 100, 0),
        ((), 0, (), 0, 0),
        (((0, 0),), 5, (), 0, 0),  # nothing was mirrored
        (((4, 7),), 12, (), 7, 7),
    ],
)
def test_divergence_offset_is_found(
    original: EpochEntries, end: int, copied: EpochEntries, copy_end: int, at: int
) -> None:
    assert find_divergence_offset(original, end, copied, copy_end) == at


def test_an_epoch_that_begins_at_an_offset_is_not_below_it() -> None:
    assert epochs_below(((1, 0), (3, 10), (4, 20)), 20) == ((1, 0), (3, 10))


def test_mirrored_records_end_where_a_later_leader_has_overwritten_them() -> None:
    assert mirrored_end_offset(((0, 0), (3, 40)), 120, 100, 3) == 100
    assert mirrored_end_offset(((0, 0), (3, 40), (4, 100), (5, 110)), 120, 100, 3) == 100, (
        "later leaders with all mirrored records"
    )
    assert mirrored_end_offset(((0, 0), (3, 40), (5, 90)), 120, 100, 3) == 90, "an unclean leader without some of them"
    assert mirrored_end_offset(((0, 0), (3, 40)), 80, 100, 3) == 80, "an unclean leader that has not written yet"
    assert mirrored_end_offset(((0, 0), (3, 40), (5, 90)), 120, 100, -1) == 100
