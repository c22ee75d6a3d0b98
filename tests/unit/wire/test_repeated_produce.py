"""Whatever a connection has asked before: its next Produce is read as if it were the first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.wire.codec import read_request_header, request_class
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.produce import read_produce_request
from ottla_broker.wire.repeated_produce import RepeatedProduce
from tests.unit.api.requests import produce_request
from tests.unit.wire.frames import framed, read, some
from tests.unit.wire.messages import instances

VERSIONS = range(3, 14)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@some
def test_any_requests_one_after_the_other(version: int, data: st.DataObject) -> None:
    connection = RepeatedProduce()
    for _ in range(3):
        frame = framed(0, version, data.draw(instances(request_class(0, version))))
        assert read(frame, connection.read) == read(frame, read_produce_request)


@pytest.mark.parametrize("version", VERSIONS)
@given(st.lists(st.binary(max_size=300) | st.none(), min_size=2, max_size=5))
@some
def test_only_the_records_are_others(version: int, sent: list[bytes | None]) -> None:
    connection = RepeatedProduce()
    for correlation_id, records in enumerate(sent):
        frame = framed(0, version, as_sent(version, records), correlation_id)
        found = connection.read(frame, read_request_header(frame))
        assert found == read_produce_request(frame, read_request_header(frame))
        ((_, ((index, view),)),) = found.topics
        assert (index, None if view is None else bytes(view)) == (3, records)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@some
def test_the_same_request_with_bytes_changed_anywhere(version: int, data: st.DataObject) -> None:
    frame = framed(0, version, as_sent(version, b"records" * 30))
    connection = RepeatedProduce()
    connection.read(bytearray(frame), read_request_header(frame))
    for _ in range(4):
        at = data.draw(st.integers(2, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
        del frame[len(frame) - data.draw(st.integers(0, 1)) :]
        assert read(frame, connection.read) == read(frame, read_produce_request)


def as_sent(version: int, records: bytes | None) -> Any:
    """To one partition, as clients send it."""
    return convert_message(produce_request({("a topic", 3): records}), request_class(0, version))
