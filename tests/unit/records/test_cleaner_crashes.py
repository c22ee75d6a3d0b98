"""What a crash at any step of cleaning leaves, and recovery of a log with holes."""

from dataclasses import replace
from pathlib import Path

import pytest

from ottla_broker.log import file_names
from tests.unit.records.cleaning import DAY_MS, House


def crash_points(house: House) -> int:
    """How many renames a cleaning of this house makes."""
    before = house.disk.renames
    house.clean()
    return house.disk.renames - before


def test_a_crash_at_any_rename_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    probe = House(tmp_path / "probe")
    tell(probe)
    points = crash_points(probe)
    assert points > 12
    for point in range(1, points + 1):
        (tmp_path / str(point)).mkdir()
        house = House(tmp_path / str(point))
        tell(house)
        expected, end = house.table(), house.log.end
        stop_at = house.disk.renames + point

        def crash(n: int, stop_at: int = stop_at) -> None:
            if n >= stop_at:
                raise Crash

        house.disk.at_rename = crash
        with pytest.raises(Crash):
            house.clean()
        house.crash_and_open()
        assert house.table() == expected, f"at rename {point}"
        assert house.log.end == end
        assert not [
            name for name in house.files() if name.endswith((file_names.CLEANED, file_names.SWAP, file_names.DELETED))
        ]
        house.clean()
        assert house.table() == expected, f"cleaned after a crash at rename {point}"


class Crash(BaseException):
    """The process dies."""


def tell(house: House) -> None:
    """A history in which a value that came back would show: its tombstone is old enough to go."""
    house.write("gone", "1")
    house.fill(rounds=5)
    house.write("gone", None)
    house.fill(rounds=2)
    house.clean()
    house.now_ms += DAY_MS + 1
    house.fill(rounds=4, keys=40)
    house.config = replace(house.config, segment_bytes=1 << 20)  # so that several segments become one
    house.log.set_config(house.config)


def test_recovery_from_any_point_of_a_log_with_holes(house: House) -> None:
    house.fill(rounds=8)
    house.write("b", "1", producer_id=5, sequence=0)
    house.fill(rounds=4, keys=3)
    house.clean()
    house.write("c", "1")
    expected, end = house.table(), house.log.end
    for point in [*range(0, end, 3), end]:
        house.crash_and_open(recovery_point=point)
        assert (house.table(), house.log.end) == (expected, end), f"recovery point {point}"
        assert {p.producer_id: (p.last_sequence, p.last_offset) for p in house.log.producers} == {5: (0, 80)}
    house.log.close()
    house.crash_and_open(clean=True)
    assert (house.table(), house.log.end) == (expected, end)
