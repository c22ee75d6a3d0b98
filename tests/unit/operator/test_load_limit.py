"""The limit of a load's rate while a pipeline starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla_operator.local import load_limit
from ottla_operator.local.load_limit import LimitedLoad, LoadLimit

LIMIT = LoadLimit(("orders",), unlimited_records=3, records_per_second=10.0, timeout_s=5.0)


@dataclass
class Clock:
    now_s: float = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(load_limit, "time", clock)
    return clock


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "limit.json"
    LIMIT.write(found)
    return found


def pauses_s(load: LimitedLoad, count: int, topic: str = "orders") -> list[float]:
    return [round(load.pause_s(topic), 3) for _ in range(count)]


def test_records_after_the_first_ones_are_limited(file: Path, clock: Clock) -> None:
    load = LimitedLoad(file)
    assert pauses_s(load, 3) == [0, 0, 0]
    clock.now_s += 2
    assert pauses_s(load, 3) == [0.1, 0.2, 0.3], (
        "the limit counts from the first of these records, not from the start of the load"
    )


def test_other_topics_are_not_limited(file: Path, clock: Clock) -> None:
    load = LimitedLoad(file)
    assert pauses_s(load, 9, "airlines") == [0] * 9
    assert pauses_s(load, 4) == [0, 0, 0, 0.1]


def test_limit_ends_with_its_file(file: Path, clock: Clock) -> None:
    load = LimitedLoad(file)
    pauses_s(load, 4)
    file.unlink()
    assert pauses_s(load, 9) == [0] * 9
    assert pauses_s(LimitedLoad(file), 9) == [0] * 9, "a load that starts later is not limited either"


def test_limit_ends_after_its_timeout(file: Path, clock: Clock) -> None:
    load = LimitedLoad(file)
    pauses_s(load, 4)
    clock.now_s += 5.1
    assert pauses_s(load, 9) == [0] * 9


def test_limit_says_what_it_does() -> None:
    assert str(LIMIT) == "10 records/s after 3 of orders, until a pipeline has read rows, 5 s at most"
