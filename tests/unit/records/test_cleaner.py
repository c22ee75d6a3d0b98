"""The cleaner on real files: what a reader sees, what a crash at any step leaves, what stops it."""

import asyncio
import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ottla_broker.log import names
from ottla_broker.log.checkpoints import read_offsets
from ottla_broker.log.cleaner import CHECKPOINT, Cleaner, CleanerSettings
from ottla_broker.log.compaction import BYTES_PER_KEY
from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import OsDisk
from ottla_broker.log.recovery import Known, create_log, open_log
from ottla_broker.log.storage import Storage
from ottla_broker.runtime import Runtime
from ottla_broker.wire.batch import batches, pack_batch, parse_header
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.records import Record, decode_all, encode_batch, end_transaction_marker
from tests.waiting import eventually_async

NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3_600_000
CONFIG = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=4096, min_cleanable_dirty_ratio=0.1)


class FailingDisk(OsDisk):
    """Fails, or calls back, at the n-th rename."""

    def __init__(self) -> None:
        self.renames = 0
        self.at_rename: Callable[[int], None] = lambda n: None

    def rename(self, old: str, new: str) -> None:
        self.renames += 1
        self.at_rename(self.renames)
        super().rename(old, new)


class House:
    """One log directory with one partition, t-0."""

    def __init__(self, path: Path, config: LogConfig = CONFIG, settings: CleanerSettings | None = None) -> None:
        self.path = path
        self.now_ms = NOW_MS
        self.disk = FailingDisk()
        self.storage = Storage(self.disk, Runtime(now_ms=lambda: self.now_ms))
        self.config = config
        self.settings = settings or CleanerSettings()
        self.folder = str(path / "t-0")
        self.log = create_log(self.storage, self.folder, "t", 0, None, config)
        self._begin()

    def _begin(self) -> None:
        self.logs = {("t", 0): self.log}
        self.cleaner = Cleaner(self.storage, str(self.path), self.logs)
        self.cleaner.settings = self.settings

    def write(self, key: str, value: str | None, *, producer_id: int = -1, sequence: int = -1) -> None:
        record = Record(self.now_ms, key.encode(), None if value is None else value.encode())
        batch = encode_batch(
            [record],
            producer_id=producer_id,
            producer_epoch=min(producer_id, 0),
            base_sequence=sequence,
            transactional=producer_id >= 1000,
        )
        self.append(batch)

    def append(self, batch: bytes, *, from_client: bool = False) -> None:
        self.log.append_as_leader(batch, leader_epoch=1, now_ms=self.now_ms, from_client=from_client)
        self.log.advance_high_watermark(self.log.end)

    def fill(self, rounds: int = 10, keys: int = 10) -> None:
        for n in range(rounds):
            for key in range(keys):
                self.write(f"key-{key}", f"{n}-" + "x" * 50)
        self.log.roll()

    def crash_and_open(self, *, clean: bool = False, recovery_point: int = 0) -> None:
        self.storage.files.close_all()
        self.storage = Storage(OsDisk(), self.storage.runtime)
        known = Known(clean, self.log.end if clean else recovery_point, 0)
        self.log = open_log(self.storage, self.folder, "t", 0, self.config, known)
        assert self.log.failed is None, self.log.failed
        self.log.advance_high_watermark(self.log.end)
        self._begin()

    def clean(self) -> bool:
        return asyncio.run(self.cleaner.clean_filthiest()) is not None

    def records(self, start: int = 0) -> list[Record]:
        found: list[Record] = []
        at = max(start, self.log.start)
        while at < self.log.end:
            data = self.log.read(at, 1 << 20, up_to=self.log.end)
            if not data:
                break
            found += [record for header, record in decode_all(data) if not header.is_control and record.offset >= at]
            at = max(header.next_offset for _, header in batches(data))
        return found

    def table(self) -> dict[bytes | None, bytes]:
        found: dict[bytes | None, bytes] = {}
        for record in self.records():
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
        return found

    def files(self) -> list[str]:
        return sorted(path.name for path in Path(self.folder).iterdir())


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_log_is_compacted_in_place(house: House) -> None:
    house.fill()
    before, size, end = house.table(), house.log.size, house.log.end
    assert len(house.log.segments) > 2
    assert house.clean()
    assert house.table() == before
    assert [r.offset for r in house.records()] == list(range(90, 100))
    assert house.log.size < size / 5
    assert house.log.end == end
    assert read_offsets(house.disk, f"{house.path}/{CHECKPOINT}") == {("t", 0): 100}
    assert not house.clean(), "nothing is dirty any more"
    assert not [name for name in house.files() if name.endswith((names.CLEANED, names.SWAP))]
    house.crash_and_open()
    assert house.table() == before
    assert house.cleaner.checkpoints == {("t", 0): 100}


def test_segments_that_have_become_small_become_one(house: House) -> None:
    house.fill(rounds=30)
    house.clean()
    small = len(house.log.segments)
    house.fill(rounds=5)
    house.clean()
    assert len(house.log.segments) < small / 2
    assert len(house.records()) == 10


def test_reading_in_the_hole_gives_what_follows_it(house: House) -> None:
    house.fill()
    house.crash_and_open()  # nothing is read from memory
    house.clean()
    for offset in (0, 5, 89, 90, 95):
        data = house.log.read(offset, 1, up_to=house.log.end)
        assert next(header.last_offset for _, header in batches(data)) >= offset, (
            "a reader gets on, if only by an empty batch"
        )
        assert house.records(offset)[0].offset == max(offset, 90)
    at = house.log.offset_for_time(NOW_MS)
    assert at is not None
    assert at.offset == 90


def test_several_cleanings_with_little_memory(tmp_path: Path) -> None:
    house = House(tmp_path, settings=CleanerSettings(dedupe_buffer_bytes=3 * BYTES_PER_KEY))
    house.fill()
    before = house.table()
    cleanings = 0
    while house.clean():
        cleanings += 1
        assert house.table() == before
        assert cleanings < 200
    assert cleanings > 1


def test_tombstones_go_after_delete_retention_ms(house: House) -> None:
    house.write("gone", "1")
    house.write("gone", None)
    house.fill()
    house.clean()
    assert [r.key for r in house.records() if r.value is None] == [b"gone"]
    for later, left in ((DAY_MS - 1, 1), (2, 0)):
        house.now_ms += later
        house.fill()
        house.clean()
        assert sum(r.value is None for r in house.records()) == left


def test_the_active_segment_and_all_behind_the_high_watermark_stay(house: House) -> None:
    house.fill()
    house.write("key-1", "new")
    house.log.advance_high_watermark(40)
    house.clean()
    offsets = [r.offset for r in house.records()]
    assert offsets[-61:] == list(range(40, 101))


def test_transactions_and_producers(house: House) -> None:
    for sequence in range(3):
        house.write("a", f"{sequence}", producer_id=1000, sequence=sequence)
    house.append(end_transaction_marker(False, 1, producer_id=1000, producer_epoch=0, timestamp_ms=NOW_MS))
    house.write("b", "1", producer_id=5, sequence=0)
    house.fill()
    house.clean()
    assert [r.key for r in house.records() if r.key in (b"a", b"b")] == [b"b"]
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in house.log.aborted(0, 200)] == [(1000, 0, 3)]
    house.crash_and_open()
    states = {p.producer_id: (p.epoch, p.last_sequence, p.last_offset) for p in house.log.producers}
    assert states == {1000: (0, 2, 2), 5: (0, 0, 4)}
    house.write("b", "2", producer_id=5, sequence=1)
    with pytest.raises(KafkaError):
        house.append(
            encode_batch([Record(NOW_MS, b"b", b"")], producer_id=1000, producer_epoch=0, base_sequence=9),
            from_client=True,
        )


def test_every_segment_reaches_to_the_next_so_that_a_hole_there_is_a_loss(house: House) -> None:
    """Recovery does not know yet which topics are compacted, and cuts a log off where two segments do not meet."""
    house.fill(rounds=30)
    house.fill(rounds=1, keys=3)
    for _ in range(2):
        house.clean()
        for segment, following in pairwise(house.log.segments):
            assert segment.next_offset() == following.base
        house.fill(rounds=2)
    expected = house.table()
    house.config = replace(house.config, cleanup_compact=False)
    house.crash_and_open()
    assert house.table() == expected


def test_max_compaction_lag_ms_closes_segments_in_time(tmp_path: Path) -> None:
    """The active segment is never cleaned: it may not grow older than the lag that is allowed."""
    house = House(tmp_path, replace(CONFIG, max_compaction_lag_ms=60_000, min_cleanable_dirty_ratio=1.0))
    house.write("a", "1")
    house.write("a", "2")
    house.now_ms += 60_001
    house.write("b", "1")
    assert len(house.log.segments) == 2
    assert house.clean(), "overdue, whatever the ratio"
    assert [r.offset for r in house.records()] == [1, 2]


def test_compact_and_delete_together(tmp_path: Path) -> None:
    house = House(tmp_path, replace(CONFIG, cleanup_delete=True, retention_ms=DAY_MS))
    house.fill()
    house.now_ms += DAY_MS + 1
    house.fill(keys=5)
    assert house.log.apply_retention(house.now_ms)
    start = house.log.start
    assert start > 0
    house.clean()
    assert house.log.start == start
    assert {r.key for r in house.records()} <= {b"key-%d" % n for n in range(10)}
    assert house.table() == {b"key-%d" % n: b"9-" + b"x" * 50 for n in range(5)}


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
        assert not [name for name in house.files() if name.endswith((names.CLEANED, names.SWAP, names.DELETED))]
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


def test_a_truncation_meanwhile_stops_it_and_leaves_nothing_behind(house: House) -> None:
    house.fill()
    meanwhile(house, lambda: house.log.truncate_to(50))
    assert house.log.end == 50
    assert len(house.records()) == 50
    assert not [name for name in house.files() if name.endswith((names.CLEANED, names.SWAP))]
    assert house.cleaner.checkpoints == {}


def test_retention_meanwhile_stops_it(house: House) -> None:
    house.fill()
    meanwhile(house, lambda: (house.log.delete_records_before(60), house.log.apply_retention(NOW_MS)))
    assert [r.offset for r in house.records()] == list(range(60, 100))
    assert house.log.failed is None
    assert house.clean()
    assert [r.offset for r in house.records()] == list(range(90, 100))


def test_a_deleted_topic_stops_it(house: House) -> None:
    house.fill()

    def delete() -> None:
        house.logs.clear()
        Path(house.folder).rename(house.folder + "-delete")

    meanwhile(house, delete)
    assert house.log.failed is None


def test_the_protocol_s_thread_goes_on_appending(house: House) -> None:
    house.fill()
    meanwhile(house, lambda: house.write("key-3", "newest"))
    assert house.table()[b"key-3"] == b"newest"
    assert [r.offset for r in house.records()] == list(range(90, 101))


def test_cancelled_it_stops_and_leaves_nothing_behind(house: House) -> None:
    house.fill()
    size = house.log.size

    async def stopped() -> None:
        reading = Gate(house)
        task = asyncio.ensure_future(house.cleaner.clean_filthiest())
        await reading.entered()
        task.cancel()
        reading.go_on()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())
    assert house.log.size == size
    assert not [name for name in house.files() if name.endswith((names.CLEANED, names.SWAP))]


def test_a_record_that_does_not_parse_leaves_the_log_alone_and_says_where(house: House) -> None:
    house.log.set_config(
        replace(CONFIG, cleanup_compact=False)
    )  # nobody looks into batches, so nobody refuses this one
    broken = bytearray(encode_batch([Record(NOW_MS, b"k", b"v")]))
    broken[61] = 0x7F  # the record's length
    house.append(pack_batch(parse_header(broken), broken[61:]))
    house.log.roll()
    house.log.set_config(CONFIG)
    assert not house.clean()
    assert "00000000000000000000.log" in house.cleaner.uncleanable["t", 0]
    assert not house.clean()
    assert house.log.failed is None


def test_a_full_disk_only_puts_it_off(house: House) -> None:
    house.fill()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = house.records()
    house.disk.at_rename = full
    house.clean()
    assert house.log.failed is None
    house.disk.at_rename = lambda _: None
    assert house.records() == before
    assert house.clean()
    assert len(house.records()) == 10


def test_the_pace_is_kept(tmp_path: Path) -> None:
    """A thousand bytes a second would take far longer than the test has: the loop's clock is what is asked."""
    house = House(tmp_path, settings=CleanerSettings(io_max_bytes_per_second=1000))
    house.fill()
    size = house.log.size
    slept: list[float] = []

    async def run() -> None:
        real = asyncio.sleep

        async def noted(delay: float) -> None:
            slept.append(delay)
            await real(0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "sleep", noted)
            await house.cleaner.clean_filthiest()

    asyncio.run(run())
    assert sum(slept) > size / 1000


def test_a_log_made_anew_under_the_same_name_is_another(house: House) -> None:
    house.fill()
    house.clean()
    house.cleaner.forget("t", 0)
    assert house.cleaner.checkpoints == {}

    async def written() -> bool:
        return read_offsets(house.disk, f"{house.path}/{CHECKPOINT}") == {}

    async def run() -> None:
        house.cleaner.settings = CleanerSettings(enabled=False, backoff_ms=10**9)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(house.cleaner.run())
            await eventually_async(written)
            running.cancel()

    asyncio.run(run())


class Gate:
    """Holds the cleaner's thread at its next offloaded call."""

    def __init__(self, house: House) -> None:
        self._entered = asyncio.Event()
        self._open = threading.Event()
        loop = asyncio.get_running_loop()
        original = house.disk.open
        held = False

        def opened(path: str, *, create: bool = False, read_only: bool = False):  # type: ignore[no-untyped-def]
            nonlocal held
            if not held and threading.current_thread() is not threading.main_thread():
                held = True
                loop.call_soon_threadsafe(self._entered.set)
                self._open.wait(30)
            return original(path, create=create, read_only=read_only)

        house.disk.open = opened  # type: ignore[method-assign]

    async def entered(self) -> None:
        await asyncio.wait_for(self._entered.wait(), 30)

    def go_on(self) -> None:
        self._open.set()


def meanwhile(house: House, act: Callable[[], object]) -> None:
    """Cleans, and acts on the protocol's thread while the cleaner's waits."""

    async def run() -> None:
        gate = Gate(house)
        task = asyncio.ensure_future(house.cleaner.clean_filthiest())
        await gate.entered()
        act()
        gate.go_on()
        await task

    asyncio.run(run())
