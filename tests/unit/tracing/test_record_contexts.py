"""Traces of records: which are found, and that what is read is bounded."""

import pytest

from ottla_broker.tracing.record_contexts import (
    MAX_BATCH_BYTES,
    MAX_BATCHES,
    MAX_CONTEXTS,
    MAX_RECORDS,
    find_contexts,
)
from ottla_broker.tracing.trace_context import TraceContext
from ottla_broker.wire.batch import Compression
from ottla_broker.wire.records import Record, encode_batch


def context(number: int) -> TraceContext:
    return TraceContext(number.to_bytes(16), number.to_bytes(8), is_sampled=True)


def record(number: int, *, flags: str = "01", value: bytes = b"value") -> Record:
    header = f"00-{number:032x}-{number:016x}-{flags}".encode()
    return Record(0, None, value, (("other", None), ("traceparent", header)))


def batch(*records: Record, compression: Compression = Compression.none) -> memoryview:
    return memoryview(encode_batch(records, compression=compression))


@pytest.mark.parametrize("compression", list(Compression))
def test_sampled_traces_are_found_once_each_and_in_order(compression: Compression) -> None:
    records = [Record(0, b"key", b"value"), record(2), record(1), record(2), record(3, flags="00")]
    assert find_contexts([batch(*records, compression=compression)]) == [context(2), context(1)]


def test_records_without_a_valid_header_have_no_trace() -> None:
    invalid = [
        Record(0, None, b"traceparent"),
        Record(0, None, b"", (("traceparent", None),)),
        Record(0, None, b"", (("traceparent", b"00-1-2-01"),)),
        Record(0, None, b"", (("Traceparent", b"00-1-2-01"),)),
    ]
    assert find_contexts([batch(*invalid), None, memoryview(b""), memoryview(bytes(61))]) == []


def test_only_the_first_records_of_a_batch_are_read() -> None:
    plain = [Record(0, None, b"value")] * (MAX_RECORDS - 1)
    assert find_contexts([batch(*plain, record(1), record(2))]) == [context(1)]


def test_only_the_first_batches_of_a_request_are_read() -> None:
    batches = [batch(record(number)) for number in range(1, MAX_BATCHES + 3)]
    assert find_contexts(batches) == [context(number) for number in range(1, MAX_BATCHES + 1)]


def test_number_of_contexts_is_bounded() -> None:
    assert len(find_contexts([batch(*map(record, range(1, MAX_RECORDS)))])) == MAX_CONTEXTS


@pytest.mark.parametrize("compression", list(Compression))
def test_large_batches_are_not_read(compression: Compression) -> None:
    """Nor are batches that are large only when decompressed."""
    large = record(1, value=bytes(MAX_BATCH_BYTES))
    assert find_contexts([batch(large, compression=compression)]) == []


def test_batch_whose_records_do_not_parse_has_no_trace() -> None:
    whole = bytearray(batch(record(1), record(2)))
    del whole[-3:]
    assert find_contexts([memoryview(whole)]) == []
    broken = bytearray(batch(record(1), compression=Compression.zstd))
    broken[-8:] = bytes(8)
    assert find_contexts([memoryview(broken)]) == []
