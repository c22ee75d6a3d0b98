"""Logs that Apache Kafka wrote are adopted: gaps are filled and open transactions aborted."""

import asyncio
import os
from pathlib import Path

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import OsDisk
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from tests.unit.log.log_directories import kill_directory, open_directory, reopen_after_kill
from tests.unit.log.log_fixtures import (
    TOPIC_ID,
    append_committed,
    batch,
    read_records,
    runtime,
)

FOREIGN = LogConfig(segment_bytes=200)


def create_log_with_gaps(path: Path, *without: int) -> list[int]:
    """Creates a log of nine segments with a record each and removes those whose numbers `without`
    has, as Apache Kafka's cleaner does. Returns the offsets that are left."""
    directory = open_directory(path)
    log = directory.create_log("topic", 0, TOPIC_ID, FOREIGN)
    for _ in range(9):
        append_committed(log, batch(1, size=90))
    asyncio.run(directory.logs["topic", 0].checkpoint())
    assert len(log.segments) == 9
    for at in without:
        for file in log.segments[at].paths:
            Path(file).unlink(missing_ok=True)
    asyncio.run(directory.write_checkpoints(recovery_points=True))
    kill_directory(directory)
    return [at for at in range(9) if at not in without]


def record_offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_records(log)]


def start_with_foreign_logs(path: Path) -> LogDir:
    """A first start with logs that Apache Kafka wrote."""
    first = LogDir.attach(str(path), disk=OsDisk(), runtime=runtime(), node_id=1, cluster_id="cluster")
    first.load(lambda _: FOREIGN, gapless=False)
    return first


@pytest.mark.parametrize("points_lost", [False, True])
def test_gaps_of_an_adopted_log_are_not_treated_as_a_loss(tmp_path: Path, points_lost: bool) -> None:
    """Apache Kafka's cleaner leaves gaps between segments. In a log that this broker wrote, a gap
    is a loss."""
    kept = create_log_with_gaps(tmp_path, 1, 4, 5)
    first = start_with_foreign_logs(tmp_path)
    assert record_offsets(first.logs["topic", 0]) == kept
    asyncio.run(first.adopt_foreign_logs())
    log = first.logs["topic", 0]
    append_committed(log, batch(1))
    assert record_offsets(log) == [*kept, 9]
    assert [one.next_offset() for one in log.segments][:-1] == [one.base for one in log.segments][1:]
    kill_directory(first)
    if points_lost:
        (tmp_path / "recovery-point-offset-checkpoint").unlink()
    again = open_directory(tmp_path).logs["topic", 0]
    assert (record_offsets(again), again.failure) == ([*kept, 9], None)


def test_gap_after_a_loss_of_power_is_a_loss_in_an_adopted_log_too(tmp_path: Path) -> None:
    create_log_with_gaps(tmp_path, 1)
    first = start_with_foreign_logs(tmp_path)
    asyncio.run(first.adopt_foreign_logs())
    gone = first.logs["topic", 0].segments[3].path
    kill_directory(first)
    Path(gone).unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    assert record_offsets(open_directory(tmp_path).logs["topic", 0]) == [0, 2, 3]


@pytest.mark.parametrize("left", [0, 1, 30, 60])
def test_gap_that_was_half_filled_is_filled_again(tmp_path: Path, left: int) -> None:
    """The machine lost power during a first start; the next start is a first one again."""
    kept = create_log_with_gaps(tmp_path, 4)
    first = start_with_foreign_logs(tmp_path)
    asyncio.run(first.adopt_foreign_logs())
    filled = first.logs["topic", 0].segments[3]
    os.truncate(filled.path, filled.size - 61 + left)
    kill_directory(first)
    again = start_with_foreign_logs(tmp_path)
    asyncio.run(again.adopt_foreign_logs())
    log = again.logs["topic", 0]
    assert (record_offsets(log), log.failure, log.segments[3].next_offset()) == (kept, None, 5)
    assert log.segments[3].size == filled.size


def test_open_transactions_of_an_adopted_log_are_aborted(tmp_path: Path) -> None:
    directory = open_directory(tmp_path)
    log = directory.create_log("topic", 0, TOPIC_ID, LogConfig())
    append_committed(log, batch(2, producer=(7, 3, 0), transactional=True), epoch=5)
    append_committed(log, batch(1), epoch=5)
    append_committed(log, batch(1, producer=(8, 0, 0), transactional=True), epoch=5)
    kill_directory(directory)

    first = LogDir.attach(str(tmp_path), disk=OsDisk(), runtime=runtime(), node_id=1, cluster_id="cluster")
    first.load(lambda _: LogConfig(), gapless=False)
    asyncio.run(first.adopt_foreign_logs())
    for again in (first, reopen_after_kill(first, tmp_path)):
        log = again.logs["topic", 0]
        log.advance_high_watermark(log.end)
        assert (log.end, log.last_stable_offset, log.recovery_point) == (6, 6, 6)
        found = [(one.producer_id, one.first_offset, one.last_offset) for one in log.aborted_transactions(0, 6)]
        assert found == [(7, 0, 4), (8, 3, 5)]
