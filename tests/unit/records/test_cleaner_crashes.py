"""Crashes at any step of cleaning, and recovery of a log with holes."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ottla_broker.log import file_names
from tests.unit.records.compacted_log import DAY_MS, CompactedLog


def count_renames(compacted: CompactedLog) -> int:
    """Number of renames in one cleaning."""
    before = compacted.disk.renames
    compacted.clean()
    return compacted.disk.renames - before


def test_crash_at_any_rename_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    probe = CompactedLog(tmp_path / "probe")
    write_history(probe)
    points = count_renames(probe)
    assert points > 12
    for point in range(1, points + 1):
        (tmp_path / str(point)).mkdir()
        compacted = CompactedLog(tmp_path / str(point))
        write_history(compacted)
        expected, end = compacted.table(), compacted.log.end
        stop_at = compacted.disk.renames + point

        def crash(n: int, stop_at: int = stop_at) -> None:
            if n >= stop_at:
                raise Crash

        compacted.disk.at_rename = crash
        with pytest.raises(Crash):
            compacted.clean()
        compacted.crash_and_open()
        assert compacted.table() == expected, f"at rename {point}"
        assert compacted.log.end == end
        assert not [
            name
            for name in compacted.files()
            if name.endswith((file_names.CLEANED, file_names.SWAP, file_names.DELETED))
        ]
        compacted.clean()
        assert compacted.table() == expected, f"cleaned after a crash at rename {point}"


class Crash(BaseException):
    """The process dies."""


def write_history(compacted: CompactedLog) -> None:
    """Writes a history in which a deleted value could come back: its tombstone is old enough to be
    removed."""
    compacted.write("gone", "1")
    compacted.fill(rounds=5)
    compacted.write("gone", None)
    compacted.fill(rounds=2)
    compacted.clean()
    compacted.now_ms += DAY_MS + 1
    compacted.fill(rounds=4, key_count=40)
    # So that several segments become one.
    compacted.config = replace(compacted.config, segment_bytes=1 << 20)
    compacted.log.set_config(compacted.config)


def test_recovery_from_any_point_of_a_log_with_holes(compacted: CompactedLog) -> None:
    compacted.fill(rounds=8)
    compacted.write("b", "1", producer_id=5, sequence=0)
    compacted.fill(rounds=4, key_count=3)
    compacted.clean()
    compacted.write("c", "1")
    expected, end = compacted.table(), compacted.log.end
    for point in [*range(0, end, 3), end]:
        compacted.crash_and_open(recovery_point=point)
        assert (compacted.table(), compacted.log.end) == (expected, end), f"recovery point {point}"
        assert {p.producer_id: (p.last_sequence, p.last_offset) for p in compacted.log.producers} == {5: (0, 80)}
    compacted.log.close()
    compacted.crash_and_open(clean=True)
    assert (compacted.table(), compacted.log.end) == (expected, end)
