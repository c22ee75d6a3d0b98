"""The status of a Cluster: how far a move is, from look to look, and how long it may be."""

import pytest

from ottla_operator.kube.cluster_status import Told, reassignment, status_of
from ottla_operator.kube.rolling import Rolled
from ottla_operator.kube.scaling import ALL, note_of_throttled
from ottla_operator.plan.cluster_verdict import Facts
from ottla_operator.plan.roll import Blocker
from ottla_operator.resources.cluster import Cluster
from tests.unit.operator import samples


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


def test_a_roll_that_waits_for_thousands_of_partitions_fits_an_object() -> None:
    blocked = tuple(Blocker(1, "t" * 249, partition, (1,), 1) for partition in range(20_000))
    told = Told("id", 1, None, 0, {}, "1", ())
    rolled = Rolled(outdated={1: "image"}, blocked_by=blocked)
    found = status_of(Cluster.parse(samples.cluster()), Facts(1, {}), told, rolled, {})
    assert len(found["roll"]["blockedBy"]) == 100


def test_a_note_of_thousands_of_topics_fits_an_annotation() -> None:
    assert note_of_throttled({"b", "a"}) == '["a", "b"]'
    assert note_of_throttled({f"{number:0249}" for number in range(2_000)}) == f'["{ALL}"]'
