"""Whatever a connection has asked before: its next Fetch is read as if it were the first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.wire.codec import read_request_header, request_class
from ottla_broker.wire.fetch import read_fetch_request
from ottla_broker.wire.repeated_fetch import RepeatedFetch
from tests.unit.api.requests import fetch_request
from tests.unit.wire.frames import framed, read, some
from tests.unit.wire.messages import instances


@pytest.mark.parametrize("version", range(4, 19))
@given(data=st.data())
@some
def test_any_requests_one_after_the_other(version: int, data: st.DataObject) -> None:
    connection = RepeatedFetch()
    for _ in range(3):
        frame = framed(1, version, data.draw(instances(request_class(1, version))))
        assert read(frame, connection.read) == read(frame, read_fetch_request)


@pytest.mark.parametrize("version", range(4, 13))
@given(data=st.data())
@some
def test_the_same_request_with_bytes_changed_anywhere(version: int, data: st.DataObject) -> None:
    frame = framed(1, version, fetch_request({("a topic", 3): 77}, session=(9, 4), epoch=2))
    connection = RepeatedFetch()
    connection.read(bytearray(frame), read_request_header(frame))
    for _ in range(4):
        at = data.draw(st.integers(4, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
        assert read(frame, connection.read) == read(frame, read_fetch_request)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)), min_size=2, max_size=5))
@some
def test_only_the_offset_and_the_session_go_on(asked: list[tuple[int, int]]) -> None:
    connection = RepeatedFetch()
    for correlation_id, (offset, epoch) in enumerate(asked):
        frame = framed(1, 11, fetch_request({("a", 0): offset}, session=(9, epoch)), correlation_id)
        found = connection.read(frame, read_request_header(frame))
        assert (found.partitions[0].offset, found.session_id, found.session_epoch) == (offset, 9, epoch)
