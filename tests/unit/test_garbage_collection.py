"""Pauses of the garbage collector, with the real collector and a clock of the test."""

import gc
import time
from collections.abc import Iterator

import pytest

from ottla_broker.garbage_collection import MAX_FROZEN_S, MAX_PAUSE_S, MAX_YOUNG, MIN_REMOVED, PauseLimit


class FakePartitions:
    """The broker's partitions, as many as `count`."""

    removed_count = 7
    count = 100

    def __len__(self) -> int:
        return self.count


class Clock:
    """Each collection takes `collection_s`."""

    collection_s = 0.0
    _now_s = 0.0

    def __call__(self) -> float:
        self._now_s += self.collection_s
        return self._now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("ottla_broker.garbage_collection.time.thread_time", clock)
    return clock


@pytest.fixture
def partitions() -> FakePartitions:
    return FakePartitions()


@pytest.fixture
def limit(partitions: FakePartitions) -> Iterator[PauseLimit]:
    limit = PauseLimit(partitions)
    limit.start()
    yield limit
    limit.stop()
    assert gc.get_freeze_count() == 0
    assert limit.on_collection not in gc.callbacks


def test_the_youngest_generation_is_larger_until_the_broker_stops(partitions: FakePartitions) -> None:
    before = gc.get_threshold()
    limit = PauseLimit(partitions)
    limit.start()
    assert gc.get_threshold() == (MAX_YOUNG, *before[1:])
    limit.stop()
    assert gc.get_threshold() == before


def test_survivors_of_a_long_collection_are_not_examined_again(limit: PauseLimit, clock: Clock) -> None:
    at_start = gc.get_freeze_count()
    assert at_start > 1000
    made = [[number] for number in range(5000)]
    gc.collect()
    assert gc.get_freeze_count() <= at_start, "it was short"
    clock.collection_s = 2 * MAX_PAUSE_S
    gc.collect(1)
    assert gc.get_freeze_count() <= at_start, "only collections of the oldest generation examine everything"
    gc.collect()
    assert gc.get_freeze_count() >= at_start + len(made) - 1000


def test_removed_partitions_are_collected_once_there_are_many(
    limit: PauseLimit, clock: Clock, partitions: FakePartitions
) -> None:
    for removed, count, is_thawed in ((MIN_REMOVED, 100, False), (9 * MIN_REMOVED, 40_000, False), (1001, 100, True)):
        partitions.removed_count, partitions.count = 7 + removed, count
        gc.collect()
        assert (gc.get_freeze_count() == 0) is is_thawed, (removed, count)
    clock.collection_s = 2 * MAX_PAUSE_S
    gc.collect()
    clock.collection_s = 0
    assert gc.get_freeze_count() > 1000
    gc.collect()
    assert gc.get_freeze_count() > 1000, "none was removed since"


def test_everything_is_examined_once_an_hour(limit: PauseLimit, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.monotonic()
    for after_s, is_thawed in ((MAX_FROZEN_S - 60, False), (MAX_FROZEN_S + 60, True)):
        with monkeypatch.context() as patch:
            patch.setattr("ottla_broker.garbage_collection.time.monotonic", lambda after_s=after_s: now_s + after_s)
            gc.collect()
        assert (gc.get_freeze_count() == 0) is is_thawed, after_s
