"""Formats of `ottla produce` and `ottla consume`: lines to records, and records to lines."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.wire.records import Record
from ottla_operator.cli import produce
from ottla_operator.cli.exit_codes import CommandError, run_command
from ottla_operator.cli.record_format import InvalidLine, json_record_reader, record_to_json, value_reader

NOW = 1_700_000_000_000


def test_line_is_the_value() -> None:
    parsed = value_reader("t")(b"hello", NOW)
    assert (parsed.topic, parsed.partition, parsed.record) == ("t", None, Record(NOW, None, b"hello"))


def test_key_is_before_the_separator() -> None:
    assert value_reader("t", key_separator=": ")(b"k: v: w", NOW).record == Record(NOW, b"k", b"v: w")
    with pytest.raises(InvalidLine, match="no '=' between key and value"):
        value_reader("t", key_separator="=")(b"kv", NOW)


def test_key_and_timestamp_are_read_from_json_fields() -> None:
    line = b'{"a": "x", "b": 2, "at": "2013-01-01T00:00:00Z"}'
    parsed = value_reader("t", key_fields=("a", "b"), timestamp_field="at", headers=(("h", "1"),))(line, NOW)
    assert parsed.record == Record(1_356_998_400_000, b"x|2", line, (("h", b"1"),))
    with pytest.raises(InvalidLine, match="no field 'c'; fields: a, b, at"):
        value_reader("t", key_fields=("c",))(line, NOW)


def test_json_line_is_a_record() -> None:
    read = json_record_reader("default")
    parsed = read(
        b'{"topic": "t", "key": "k", "value": {"a": 1}, "partition": 3, "timestamp": 7, "headers": {"h": null}}', NOW
    )
    assert (parsed.topic, parsed.partition, parsed.record) == ("t", 3, Record(7, b"k", b'{"a": 1}', (("h", None),)))
    assert read(b'{"value": "text"}', NOW).record == Record(NOW, None, b"text")
    assert read(b'{"key": "k", "value": null}', NOW).record == Record(NOW, b"k", None)
    assert read(b'{"value": "x"}', NOW).topic == "default"


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{", b'{"headers": 1}', b'{"value": 1}', b'{"topic": "t", "timestamp": "soon"}']
)
def test_invalid_lines_are_rejected(line: bytes) -> None:
    with pytest.raises(InvalidLine):
        json_record_reader(None)(line, NOW)


TEXTS = st.text(max_size=20).map(str.encode)


@given(
    st.none() | TEXTS,
    st.none() | TEXTS,
    st.lists(st.tuples(st.text(max_size=5), st.none() | TEXTS), max_size=3, unique_by=lambda it: it[0]),
)
def test_produce_reads_what_consume_prints(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = Record(NOW, key, value, tuple(headers), offset=5)
    read = json_record_reader(None)(record_to_json("t", 2, record).encode(), 0)
    assert (read.topic, read.partition, read.record.timestamp_ms, read.record.key) == ("t", 2, NOW, key)
    assert read.record.headers == tuple(headers)
    if value is None or value[:1] not in (b"{", b"["):
        assert read.record.value == value


@pytest.mark.parametrize(
    "line",
    [b'{"value": "caf\xe9"}', b'{"key": "\xff"}', b'{"timestamp": 9223372036854775808}', b'{"headers": {"a": "\xe9"}}'],
)
def test_lines_with_invalid_text_or_timestamp_are_rejected(line: bytes) -> None:
    with pytest.raises(InvalidLine):
        json_record_reader("t")(line, NOW)


def test_invalid_timestamp_field_is_reported() -> None:
    with pytest.raises(InvalidLine, match="1e\\+300 is not a timestamp"):
        value_reader("t", timestamp_field="at")(b'{"at": 1e300}', NOW)


def test_folder_as_input_is_an_error(tmp_path: Path) -> None:
    async def read() -> None:
        async for _ in produce._read_lines(str(tmp_path)):
            pass

    with pytest.raises(CommandError, match=f"^{tmp_path}: Is a directory$"):
        asyncio.run(read())


def test_file_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "nowhere" / "notes").write_text("")

    with pytest.raises(CommandError, match=f"^{tmp_path}/nowhere/notes: No such file or directory$"):
        run_command(work())
