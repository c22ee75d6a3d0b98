"""Whatever a connection has asked before: its next Fetch is read as if it were the first."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla_broker.wire.codec import read_front, request_class, write_request
from ottla_broker.wire.fetch import FetchRequest, read_fetch
from ottla_broker.wire.reading import Malformed
from ottla_broker.wire.repeated_fetch import RepeatedFetch
from tests.unit.api.requests import fetch_request
from tests.unit.wire.messages import instances

some = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)


def framed(version: int, request: Any, correlation_id: int = 5) -> bytearray:
    return write_request(1, version, correlation_id, "client", request)[4:]


def read(frame: bytearray, how: Any) -> FetchRequest | None:
    try:
        return how(bytearray(frame), read_front(frame))  # type: ignore[no-any-return]
    except Malformed:
        return None


@pytest.mark.parametrize("version", range(4, 19))
@given(data=st.data())
@some
def test_any_requests_one_after_the_other(version: int, data: st.DataObject) -> None:
    connection = RepeatedFetch()
    for _ in range(3):
        frame = framed(version, data.draw(instances(request_class(1, version))))
        assert read(frame, connection.read) == read(frame, read_fetch)


@pytest.mark.parametrize("version", range(4, 13))
@given(data=st.data())
@some
def test_the_same_request_with_bytes_changed_anywhere(version: int, data: st.DataObject) -> None:
    frame = framed(version, fetch_request({("a topic", 3): 77}, session=(9, 4), epoch=2))
    connection = RepeatedFetch()
    connection.read(bytearray(frame), read_front(frame))
    for _ in range(4):
        at = data.draw(st.integers(4, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
        assert read(frame, connection.read) == read(frame, read_fetch)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)), min_size=2, max_size=5))
@some
def test_only_the_offset_and_the_session_go_on(asked: list[tuple[int, int]]) -> None:
    connection = RepeatedFetch()
    for correlation_id, (offset, epoch) in enumerate(asked):
        frame = framed(11, fetch_request({("a", 0): offset}, session=(9, epoch)), correlation_id)
        found = connection.read(frame, read_front(frame))
        assert (found.partitions[0].offset, found.session_id, found.session_epoch) == (offset, 9, epoch)
