"""How far a move is, from look to look."""

import pytest

from ottla_operator.kube.cluster_status import reassignment


@pytest.mark.parametrize(
    ("moving", "begun", "before", "told"),
    [
        (0, 0, None, None),
        (7, 10, None, {"moved": 3, "total": 10}),  # some have arrived before anybody could look
        (4, 0, {"moved": 3, "total": 10}, {"moved": 6, "total": 10}),
        (0, 0, {"moved": 6, "total": 10}, None),
        (2, 2, {"moved": 9, "total": 10}, {"moved": 0, "total": 2}),  # the next ones set out
        (5, 0, None, {"moved": 0, "total": 5}),  # somebody else's
        (12, 0, {"moved": 6, "total": 10}, {"moved": 0, "total": 12}),
        (None, 0, {"moved": 6, "total": 10}, {"moved": 6, "total": 10}),  # nobody can be asked
    ],
)
def test_how_many_have_arrived(moving: int | None, begun: int, before: object, told: object) -> None:
    assert reassignment(moving, begun, before) == told  # type: ignore[arg-type]
