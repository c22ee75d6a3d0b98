"""Records as lines of JSON, rows of CSV and Parquet files."""

import base64
import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.console import message_query, parquet_export
from ottla_broker.console.message_query import available_formats, check_format
from ottla_broker.console.parquet_export import ParquetExport
from ottla_broker.console.record_export import csv_line, json_line, make_export, quote_cell
from ottla_broker.console.record_fields import COLUMNS
from ottla_broker.console.requests import PageError
from ottla_broker.console.schema_framing import NOT_DECODED, DecodedBytes, DecodedRecord
from ottla_broker.wire.records import Record
from tests.unit.console.record_strategies import RECORDS

DECODED = DecodedRecord(None, DecodedBytes("AVRO", 7, {"a": "é"}))


def read_csv(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))


def read_parquet(data: bytes) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(data)).to_pylist()
    return rows


def field_of(data: bytes | None) -> tuple[str | None, str | None]:
    """The data as text, and in base64: one of them, or neither for None."""
    if data is None:
        return None, None
    return (None, base64.b64encode(data).decode()) if _is_binary(data) else (data.decode(), None)


@given(st.lists(RECORDS, max_size=5))
def test_csv_has_every_record_in_a_row(records: list[Record]) -> None:
    export = make_export("csv")
    for record in records:
        export.add(3, record, NOT_DECODED)
    rows = read_csv(export.take() + export.finish())
    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        assert (row["partition"], row["timestamp"]) == ("3", str(record.timestamp_ms))
        for name, data in (("key", record.key), ("value", record.value)):
            text, in_base64 = field_of(data)
            assert row[name].removeprefix("'") == (text or "").removeprefix("'")
            assert row[f"{name}Base64"].removeprefix("'") == (in_base64 or "")
        assert row["headers"] == json.dumps(
            json.loads(json_line(3, record))["headers"], separators=(",", ":"), ensure_ascii=False
        )


def test_csv_without_records_has_its_header() -> None:
    assert make_export("csv").finish() == b"partition,offset,timestamp,key,keyBase64,value,valueBase64,headers\r\n"


def test_null_is_an_empty_cell_and_an_empty_text_is_in_quotes() -> None:
    assert csv_line(0, Record(5, None, b"", (), offset=7)) == b'0,7,5,,,"",,"[]"\r\n'
    assert csv_line(0, Record(5, b'a"b\r\nc,d', b"\xff", (), offset=7)) == b'0,7,5,"a""b\r\nc,d",,,"/w==","[]"\r\n'


@pytest.mark.parametrize(
    "text", ["=1+1", "+1;2", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "-", "+\u0661"]
)
def test_cells_that_spreadsheets_would_compute_begin_with_an_apostrophe(text: str) -> None:
    assert quote_cell(text) == f'"\'{text}"'


@pytest.mark.parametrize("text", ["-5", "+49.5", "-1e-9", "a=1", " =1", "'=1", ""])
def test_numbers_and_harmless_texts_get_no_apostrophe(text: str) -> None:
    assert quote_cell(text) == f'"{text}"'


def test_what_a_schema_decodes_is_exported_as_its_json() -> None:
    record = Record(5, b"k", b"\0\0\0\0\7x", (), offset=1)
    assert json.loads(json_line(0, record, DECODED)) == {
        "partition": 0, "offset": 1, "timestamp": 5, "key": "k", "value": {"a": "é"}, "valueSchemaId": 7, "headers": [],
    }  # fmt: skip
    assert csv_line(0, record, DECODED) == '0,1,5,"k",,"{""a"":""é""}",,"[]"\r\n'.encode()


@given(st.lists(RECORDS, max_size=5))
def test_parquet_has_every_record(records: list[Record]) -> None:
    export = ParquetExport()
    for offset, record in enumerate(records):
        export.add(offset, record, NOT_DECODED)
    data = export.take() + export.finish()
    assert pyarrow.parquet.read_schema(io.BytesIO(data)).names == list(COLUMNS)
    assert read_parquet(data) == [
        dict(
            zip(
                COLUMNS,
                (
                    partition,
                    record.offset,
                    datetime.fromtimestamp(record.timestamp_ms // 1000, UTC).replace(
                        microsecond=record.timestamp_ms % 1000 * 1000
                    ),
                    *field_of(record.key),
                    *field_of(record.value),
                    json.dumps(json.loads(json_line(0, record))["headers"], separators=(",", ":"), ensure_ascii=False),
                ),
                strict=True,
            )
        )
        for partition, record in enumerate(records)
    ]


def test_parquet_is_written_while_records_are_found() -> None:
    export, parts = ParquetExport(), list[bytes]()
    for first in range(0, 100_000, 500):
        for offset in range(first, first + 500):
            export.add(0, Record(1, None, b"%d" % (offset * 7919), (), offset=offset), NOT_DECODED)
        parts.append(export.take())
    end = export.finish()
    data = b"".join([*parts, end])
    assert len(end) < len(data) / 2
    rows = read_parquet(data)
    assert [one["value"] for one in rows] == [str(offset * 7919) for offset in range(100_000)]
    assert pyarrow.parquet.read_metadata(io.BytesIO(data)).num_row_groups == 100


def test_failure_of_the_library_fails_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    def write_parquet(*_: object, **__: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(parquet_export, "write_parquet", write_parquet)
    with pytest.raises(OSError, match="no space"):
        ParquetExport()


def _exported_data(line: dict[str, object], name: str) -> object:
    """Bytes if the field is in base64, else the JSON value."""
    if f"{name}Base64" in line:
        return base64.b64decode(str(line[f"{name}Base64"]))
    return line[name]


@given(RECORDS)
def test_lines_of_json_have_every_byte(record: Record) -> None:
    text = json_line(3, record)
    assert text.count(b"\n") == 1
    line = json.loads(text)
    assert (line["partition"], line["timestamp"]) == (3, record.timestamp_ms)
    for name, data in (("key", record.key), ("value", record.value)):
        found = _exported_data(line, name)
        if isinstance(found, str):
            assert found.encode() == data
        elif isinstance(found, dict | list):
            assert found == json.loads(data or b"")
        else:
            assert found == data
    assert [_exported_data(one, "value") for one in line["headers"]] == [
        value if value is None or _is_binary(value) else value.decode() for _, value in record.headers
    ] or any(value and value[:1] in (b"{", b"[") for _, value in record.headers)


def _is_binary(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


def test_json_values_of_lines_stay_json_on_one_line() -> None:
    line = json_line(0, Record(1, b"k", b'{\n "a": 1.0}', ()))
    assert json.loads(line)["value"] == {"a": 1.0}
    assert line.count(b"\n") == 1


def test_parquet_is_offered_where_its_library_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_formats() == ("jsonl", "csv", "parquet")
    monkeypatch.setattr(message_query, "find_spec", lambda _: None)
    assert available_formats() == ("jsonl", "csv")
    check_format("csv")
    with pytest.raises(PageError, match=r"ottla\[parquet\]"):
        check_format("parquet")
