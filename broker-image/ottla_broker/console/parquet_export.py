"""Records as a Parquet file, written while they are found.

`write_parquet` of arro3 takes batches from an iterator until it ends. So it runs in a thread, which
waits until the search worker has the records of its next response.
"""

import threading
from collections.abc import Iterator
from io import UnsupportedOperation
from queue import SimpleQueue
from typing import IO, Final, cast

from arro3.core import Array, DataType, Field, RecordBatch, RecordBatchReader, Schema
from arro3.io import write_parquet

from ottla_broker.console.record_fields import COLUMNS, list_cells
from ottla_broker.console.schema_framing import DecodedRecord
from ottla_broker.wire.records import Record

ROWS_PER_GROUP: Final = 1000
"""A row group is in memory until it is complete: the worker has memory for a group whose records
have 250 kB each. Files of small records are a tenth larger than with 5000 rows."""
TYPES: Final = {
    "partition": DataType.int32(),
    "offset": DataType.int64(),
    "timestamp": DataType.timestamp("ms", tz="UTC"),
}
SCHEMA: Final = Schema([Field(name, TYPES.get(name, DataType.string())) for name in COLUMNS])


class WrittenBytes:
    """A file for the library to write to. `take` returns what was written since the last call."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """The library calls it; nothing is buffered elsewhere."""

    def seek(self, offset: int) -> int:
        """The library requires the method and does not call it."""
        raise UnsupportedOperation(f"seek({offset})")

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class ParquetExport:
    """A file with the COLUMNS; see `RecordExport`. Either the library's thread runs or the
    caller's, never both. Methods raise what the library has raised.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[object, ...]] = []
        self._batches: SimpleQueue[RecordBatch | None] = SimpleQueue()
        self._pauses: SimpleQueue[None] = SimpleQueue()
        self._written = WrittenBytes()
        self._failure: BaseException | None = None
        threading.Thread(target=self._write, daemon=True).start()
        self._wait_for_pause()

    def add(self, partition: int, record: Record, decoded: DecodedRecord) -> None:
        self._rows.append((partition, record.offset, record.timestamp_ms, *list_cells(record, decoded)))

    def take(self) -> bytes:
        if self._rows:
            rows, self._rows = self._rows, []
            self._continue_with(make_batch(rows))
        return self._written.take()

    def finish(self) -> bytes:
        ready = self.take()
        self._continue_with(None)
        return ready + self._written.take()

    def _continue_with(self, batch: RecordBatch | None) -> None:
        self._batches.put(batch)
        self._wait_for_pause()

    def _wait_for_pause(self) -> None:
        self._pauses.get()
        if self._failure is not None:
            raise self._failure

    def _write(self) -> None:
        reader = RecordBatchReader.from_batches(SCHEMA, self._wait_for_batches())
        file = cast(IO[bytes], self._written)  # the library calls no other methods
        try:
            write_parquet(reader, file, max_row_group_size=ROWS_PER_GROUP, compression="zstd(1)")
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it
            self._failure = error
        finally:
            self._pauses.put(None)

    def _wait_for_batches(self) -> Iterator[RecordBatch]:
        while True:
            self._pauses.put(None)
            batch = self._batches.get()
            if batch is None:
                return
            yield batch


def make_batch(rows: list[tuple[object, ...]]) -> RecordBatch:
    partitions, offsets, timestamps, *texts = zip(*rows, strict=True)
    arrays = [
        Array(partitions, DataType.int32()),
        Array(offsets, DataType.int64()),
        Array(timestamps, DataType.int64()).cast(TYPES["timestamp"]),
        *(Array(column, DataType.string()) for column in texts),
    ]
    return RecordBatch.from_arrays(arrays, schema=SCHEMA)
