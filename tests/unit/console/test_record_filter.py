"""Filters of records: keys and CEL expressions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console.record_filter import FilterError, RecordFilter
from ottla_broker.console.record_scanner import Scanner
from ottla_broker.console.search_messages import ScanRecords, StartSearch
from ottla_broker.wire.batch import Compression
from ottla_broker.wire.records import Record, encode_batch

AT_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


def is_selected(expression: str, value: Any = None, **headers: bytes) -> bool:
    """True if the filter selects a record with the key `k` and this value, JSON or bytes."""
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    record = Record(AT_MS, b"k", data, tuple(headers.items()), offset=7)
    return RecordFilter(expression, None).matches(2, record)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("value.amount > 10", {"amount": 11}),
        ("value.amount > 10.5 && value.items.exists(it, it.sku == 'a')", {"amount": 11.0, "items": [{"sku": "a"}]}),
        ("value.contains('err')", b"an error"),
        ("value.matches('^[0-9a-f]+$')", b"c0ffee"),
        ("value == null", None),
        ("key == 'k' && headers['trace'] == 'x' && headers.trace.startsWith('x')", None),
        ("partition == 2 && offset == 7", None),
        ("timestamp >= timestamp('2026-01-01T00:00:00Z')", None),
        ("size(value) == 2", b"\xff\xfe"),
        ("value['with space'] == true", {"with space": True}),
        ("has(value.a) && !has(value.b)", {"a": None}),
    ],
)
def test_expressions_see_keys_values_headers_and_positions(expression: str, value: Any) -> None:
    assert is_selected(expression, value, trace=b"x") is True
    assert is_selected(f"!({expression})", value, trace=b"x") is False


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("value >", "not a CEL expression"),
        ("valeu == 1", "uses 'valeu'; allowed: key, value, headers"),
        ("1" * 4001, "has 4001 characters; allowed: 4000"),
    ],
)
def test_invalid_expression_is_refused_before_anything_is_read(expression: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason):
        RecordFilter(expression, None)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("value.a > 1", {"b": 1}),
        ("value.a > 1", b"text"),
        ("value.a > 1", {"a": "x"}),
        ("1 / 0 == 1", None),
        ("value", b"text"),
        ("key", None),
    ],
)
def test_expression_without_a_boolean_result_for_a_record_is_an_error(expression: str, value: Any) -> None:
    with pytest.raises(FilterError):
        is_selected(expression, value)


def test_key_is_compared_as_a_whole() -> None:
    key_filter = RecordFilter("", b"a")
    assert key_filter.matches(0, Record(0, b"a", None))
    assert not key_filter.matches(0, Record(0, b"ab", None))
    assert not key_filter.matches(0, Record(0, None, None))


def scan(batches: list[bytes], expression: str = "", first: int = 0, end: int = -1, limit: int = 1000) -> Any:
    scanner = Scanner(StartSearch(expression, None, "auto"))
    return scanner.scan(ScanRecords(0, b"".join(batches), first, end, limit))


@given(
    st.lists(st.tuples(st.integers(1, 20), st.sampled_from(list(Compression)), st.integers(0, 3)), max_size=6),
    st.integers(0, 60),
    st.integers(-1, 90),
    st.integers(1, 40),
    st.integers(1, 5),
)
def test_scan_reads_every_record_in_the_range_once(
    shapes: list[tuple[int, Compression, int]], first: int, end: int, limit: int, divisor: int
) -> None:
    batches: list[bytes] = []
    offsets: list[int] = []
    offset = 0
    for count, compression, gap in shapes:
        records = [Record(AT_MS, None, b"%d" % (offset + delta)) for delta in range(count)]
        batches.append(encode_batch(records, base_offset=offset, compression=compression))
        offsets += range(offset, offset + count)
        offset += count + gap
    in_range = [one for one in offsets if one >= first and (end < 0 or one < end)]
    expected = [one for one in in_range if one % divisor == 0]
    response = scan(batches, f"value % {divisor} == 0", first, end, limit)
    assert [one.offset for one in response.found] == expected[:limit]
    assert response.failed == 0
    if len(expected) < limit:
        assert response.scanned == len(in_range)
    else:
        assert response.next_offset == expected[limit - 1] + 1


def test_control_records_are_not_scanned() -> None:
    marker = encode_batch([Record(1, b"\0\0\0\0", b"\0\0\0\0\0\0")], base_offset=0, control=True, transactional=True)
    assert scan([marker, encode_batch([Record(1, None, b"1")], base_offset=1)]).scanned == 1


def test_failures_are_counted_and_the_first_is_reported() -> None:
    records = [Record(1, None, b'{"a": 2}'), Record(1, None, b"{}"), Record(1, None, b"x")]
    response = scan([encode_batch(records, base_offset=5)], "value.a == 2", first=5)
    assert (response.scanned, response.found_count, response.failed) == (3, 1, 2)
    assert response.failure.startswith("offset 6: ")
