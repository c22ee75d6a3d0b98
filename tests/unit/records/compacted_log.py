"""A log directory with one compacted partition and its cleaner, on real files. Tests can act, or
fail, at each rename.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from ottla_broker.log.cleaner import Cleaner, CleanerConfig
from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import OsDisk
from ottla_broker.log.recovery import LogCheckpoint, create_log, open_log
from ottla_broker.log.storage import Storage
from ottla_broker.runtime import Runtime
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.records import Record, encode_batch, iter_records

NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 3_600_000
CONFIG = LogConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=4096, min_cleanable_dirty_ratio=0.1)


class RenameHookDisk(OsDisk):
    """Calls `at_rename` before each rename, with the number of the rename."""

    def __init__(self) -> None:
        self.renames = 0
        self.at_rename: Callable[[int], None] = lambda n: None

    def rename(self, old: str, new: str) -> None:
        self.renames += 1
        self.at_rename(self.renames)
        super().rename(old, new)


class CompactedLog:
    """One log directory with one partition, t-0."""

    def __init__(self, path: Path, config: LogConfig = CONFIG, cleaner_config: CleanerConfig | None = None) -> None:
        self.path = path
        self.now_ms = NOW_MS
        self.disk = RenameHookDisk()
        self.storage = Storage(self.disk, Runtime(now_ms=lambda: self.now_ms))
        self.config = config
        self.cleaner_config = cleaner_config or CleanerConfig()
        self.folder = str(path / "t-0")
        self.log = create_log(self.storage, self.folder, "t", 0, None, config)
        self._create_cleaner()

    def _create_cleaner(self) -> None:
        self.logs = {("t", 0): self.log}
        self.cleaner = Cleaner(self.storage, str(self.path), self.logs)
        self.cleaner.config = self.cleaner_config

    def write(self, key: str, value: str | None, *, producer_id: int = -1, sequence: int = -1) -> None:
        """Appends one record, of a transaction if the producer id is at least 1000."""
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

    def fill(self, rounds: int = 10, key_count: int = 10) -> None:
        """Writes each key in each round, and then rolls the segment."""
        for n in range(rounds):
            for key in range(key_count):
                self.write(f"key-{key}", f"{n}-" + "x" * 50)
        self.log.roll()

    def crash_and_open(self, *, clean: bool = False, recovery_point: int = 0) -> None:
        """Opens the log as a new process does after a crash, or after a clean stop (`clean`)."""
        self.storage.files.close_all()
        self.storage = Storage(OsDisk(), self.storage.runtime)
        checkpoint = LogCheckpoint(clean, self.log.end if clean else recovery_point, 0)
        self.log = open_log(self.storage, self.folder, "t", 0, self.config, checkpoint)
        assert self.log.failure is None, self.log.failure
        self.log.advance_high_watermark(self.log.end)
        self._create_cleaner()

    def clean(self) -> bool:
        """Cleans the log. Returns False if it needs no cleaning, or if that fails or is stopped."""
        return asyncio.run(self.cleaner.clean_filthiest_log()) is not None

    def records(self, start: int = 0) -> list[Record]:
        found: list[Record] = []
        at = max(start, self.log.start)
        while at < self.log.end:
            data = self.log.read(at, 1 << 20, up_to=self.log.end)
            if not data:
                break
            found += [record for header, record in iter_records(data) if not header.is_control and record.offset >= at]
            at = max(header.next_offset for _, header in iter_batches(data))
        return found

    def table(self) -> dict[bytes | None, bytes]:
        """The last value of each key that was not deleted."""
        found: dict[bytes | None, bytes] = {}
        for record in self.records():
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
        return found

    def files(self) -> list[str]:
        return sorted(path.name for path in Path(self.folder).iterdir())
