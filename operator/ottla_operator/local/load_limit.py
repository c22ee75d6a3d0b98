"""A limit of a load's rate while a pipeline starts, which needs the processors more.

`ottla up` writes the limit to a file that `ottla produce` reads, and deletes the file when the
pipeline has read its first rows.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class LoadLimit:
    """`topics`: those that the pipeline reads as streams. `unlimited_records`: number of their
    records that are written at full speed first, so that the first batch has rows.
    """

    topics: tuple[str, ...]
    unlimited_records: int = 10_000
    records_per_second: float = 1_000.0
    timeout_s: float = 30.0

    def __str__(self) -> str:
        return (
            f"{self.records_per_second:,.0f} records/s after {self.unlimited_records:,} of {', '.join(self.topics)}, "
            f"until a pipeline has read rows, {self.timeout_s:.0f} s at most"
        )

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Self:
        found = json.loads(file.read_text())
        return cls(**{**found, "topics": tuple(found["topics"])})


class LimitedLoad:
    """Applies the limit in a file to a load. Without the file, the load has no limit."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._limit = LoadLimit.read(file) if file.exists() else None
        self._began_s = self._limited_from_s = time.monotonic()
        self._excess = -self._limit.unlimited_records if self._limit is not None else 0

    def pause_s(self, topic: str) -> float:
        """Counts a record. Returns how long to wait before the next one."""
        if self._limit is None or topic not in self._limit.topics:
            return 0.0
        self._excess += 1
        if self._excess <= 0:
            return 0.0
        now = time.monotonic()
        if self._excess == 1:
            self._limited_from_s = now
        if now - self._began_s > self._limit.timeout_s or not self._file.exists():
            self._limit = None
            return 0.0
        return self._limited_from_s + self._excess / self._limit.records_per_second - now
