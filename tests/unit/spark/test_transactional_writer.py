"""How many writers a batch of a transactional sink has."""

from __future__ import annotations

import pytest

from ottla_spark.streaming.transactional_writer import choose_writers


@pytest.mark.parametrize(
    ("last", "rows", "writers"),
    [
        (None, None, 4),
        (1, None, 4),
        (1, 30_000, 1),
        (1, 30_001, 4),
        (4, 30_000, 4),
        (4, 10_001, 4),
        (4, 10_000, 1),
        (4, 0, 1),
    ],
)
def test_batch_after_one_of_few_rows_has_one_writer(last: int | None, rows: int | None, writers: int) -> None:
    assert choose_writers(4, last, rows) == writers
    assert choose_writers(1, last, rows) == 1
