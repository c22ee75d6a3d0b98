"""A log that moves to another log directory of its broker."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.log.config import LogConfig
from ottla_broker.log.future_log import FutureLog, find_duplicates
from ottla_broker.log.log_dir import LogDir
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.wire.errors import ErrorCode, KafkaError
from tests.log_dirs import open_log_dir
from tests.unit.log.log_directories import kill_directory
from tests.unit.log.log_fixtures import NOW, TOPIC_ID, batch, read_records, runtime

KEY = ("t", 0)


@pytest.fixture
def source(tmp_path: Path) -> LogDir:
    return open_log_dir(tmp_path / "a", runtime=runtime(seed=1))


@pytest.fixture
def target(tmp_path: Path) -> LogDir:
    return open_log_dir(tmp_path / "b", runtime=runtime(seed=2))


def create(directory: LogDir, config: LogConfig | None = None) -> PartitionLog:
    return directory.create_log(*KEY, TOPIC_ID, config or LogConfig(segment_bytes=2000))


def append(log: PartitionLog, *, epoch: int = 0, producer: int = -1, sequence: int = -1) -> None:
    sender = (producer, 0, sequence) if producer >= 0 else (-1, -1, -1)
    log.append_as_leader(batch(5, size=50, producer=sender), leader_epoch=epoch, now_ms=NOW)
    log.advance_high_watermark(log.end)


def copy_all(future: FutureLog) -> None:
    while future.copy_batches(1000):
        pass
    asyncio.run(future.flush())


def finish(future: FutureLog) -> None:
    former = future.current.directory
    future.swap()
    future.remove_source(former)


def reopen(directory: LogDir) -> LogDir:
    """Opens the directory again, as after SIGKILL."""
    kill_directory(directory)
    return open_log_dir(directory.path, runtime=runtime(), config_of=lambda _: LogConfig(segment_bytes=2000))


def test_a_moved_log_has_the_same_records_and_accepts_more(source: LogDir, target: LogDir) -> None:
    log = create(source)
    for number in range(20):
        append(log, epoch=number // 8, producer=7, sequence=number * 5)
    log.delete_records_before(12)
    future = FutureLog(log, source, target)
    for _ in range(3):
        future.copy_batches(1500)
        append(log, epoch=3)
    copy_all(future)
    append(log, epoch=3)
    before, epochs, start = read_records(log), log.epochs.entries(), log.start
    finish(future)
    assert (read_records(log), log.epochs.entries(), log.start) == (before, epochs, start)
    assert (source.logs, target.logs, target.future_logs) == ({}, {KEY: log}, {})
    assert Path(log.directory) == Path(target.path, "t-0")
    assert not Path(source.path, "t-0").exists()
    append(log, epoch=3)
    assert len(read_records(log)) == len(before) + 5
    with pytest.raises(KafkaError) as refused:  # the producer is remembered
        append(log, producer=7, sequence=999)
    assert refused.value.code is ErrorCode.out_of_order_sequence_number
    asyncio.run(log.wait_until_synced(log.end))
    after = read_records(log)
    again = reopen(target).logs[KEY]
    assert (read_records(again), again.start, again.epochs.entries()) == (after, start, epochs)
    assert again.topic_id == TOPIC_ID


@given(st.lists(st.sampled_from(["append", "copy", "truncate", "delete", "roll", "flush"]), max_size=25))
def test_a_copy_follows_every_change_of_the_log(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    folder = tmp_path_factory.mktemp("move")
    source = open_log_dir(folder / "a", runtime=runtime(seed=1))
    target = open_log_dir(folder / "b", runtime=runtime(seed=2))
    log = create(source)
    append(log)
    future = FutureLog(log, source, target)
    for number, step in enumerate(steps):
        match step:
            case "append":
                append(log, epoch=number)
            case "copy":
                future.copy_batches(600)
            case "truncate":
                log.truncate_to(max(log.start, log.end - 7))
            case "delete":
                log.delete_records_before(min(log.start + 8, log.high_watermark))
                log.apply_retention(NOW)
            case "roll":
                log.roll()
            case "flush":
                asyncio.run(future.flush())
    before, end, start = read_records(log), log.end, log.start
    finish(future)
    assert (read_records(log), log.end, log.start) == (before, end, start)
    asyncio.run(log.wait_until_synced(log.end))
    assert read_records(reopen(target).logs[KEY]) == before
    source.storage.files.close_all()


def test_a_flush_that_began_in_the_former_directory_proves_nothing(source: LogDir, target: LogDir) -> None:
    log = create(source)
    append(log)
    future = FutureLog(log, source, target)
    copy_all(future)

    async def move_while_flushing() -> None:
        append(log)
        flushing = asyncio.ensure_future(log.checkpoint())
        waiting = asyncio.ensure_future(log.wait_until_synced(log.end))
        await asyncio.sleep(0)
        finish(future)
        assert log.flush.flushed_offset == 5
        await flushing
        await waiting

    asyncio.run(move_while_flushing())
    assert log.failure is None
    assert log.flush.flushed_offset == 10


def test_a_cancelled_move_leaves_the_log_where_it_is(source: LogDir, target: LogDir) -> None:
    log = create(source)
    append(log)
    future = FutureLog(log, source, target)
    future.copy_batches(1000)
    future.cancel()
    append(log)
    assert (source.logs, target.future_logs, log.is_moving) == ({KEY: log}, {}, False)
    assert len(read_records(log)) == 10
    assert not [folder for folder in Path(target.path).iterdir() if folder.name.endswith("-future")]


def test_a_stop_in_the_middle_of_a_move_is_detected_at_the_next_start(source: LogDir, target: LogDir) -> None:
    log = create(source)
    append(log)
    FutureLog(log, source, target).copy_batches(1000)
    assert list(reopen(target).interrupted_moves.values()) == [KEY]
    assert read_records(reopen(source).logs[KEY])


def test_log_in_two_directories_is_loaded_from_the_one_with_more_records(source: LogDir, target: LogDir) -> None:
    log = create(source)
    append(log)
    future = FutureLog(log, source, target)
    copy_all(future)
    future.swap()  # without removing the source: the former folder stays
    append(log)
    first, second = reopen(source), reopen(target)
    assert [(directory, found.end) for directory, found in find_duplicates([first, second])] == [(first, 5)]
    assert [(directory, found.end) for directory, found in find_duplicates([second, first])] == [(first, 5)]


def test_a_log_that_moves_is_not_compacted(source: LogDir, target: LogDir) -> None:
    log = create(source, LogConfig(cleanup_compact=True, min_cleanable_dirty_ratio=0.0, segment_bytes=2000))
    for _ in range(10):
        append(log)
    log.roll()
    assert source.cleaner.choose_log() is not None
    future = FutureLog(log, source, target)
    assert source.cleaner.choose_log() is None
    copy_all(future)
    finish(future)
    assert target.cleaner.choose_log() is not None
