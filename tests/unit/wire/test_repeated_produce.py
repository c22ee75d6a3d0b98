"""Whatever a connection has asked before: its next Produce is read as if it were the first."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla_broker.wire.codec import read_front, request_class, write_request
from ottla_broker.wire.conversion import convert
from ottla_broker.wire.produce import ProduceRequest, read_produce
from ottla_broker.wire.reading import Malformed
from ottla_broker.wire.repeated_produce import RepeatedProduce
from tests.unit.api.requests import produce_request
from tests.unit.wire.messages import instances

VERSIONS = range(3, 14)
some = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)


def framed(version: int, request: Any, correlation_id: int = 5) -> bytearray:
    return write_request(0, version, correlation_id, "client", request)[4:]


def read(frame: bytearray, how: Any) -> ProduceRequest | None:
    try:
        return how(bytearray(frame), read_front(frame))  # type: ignore[no-any-return]
    except Malformed:
        return None


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@some
def test_any_requests_one_after_the_other(version: int, data: st.DataObject) -> None:
    connection = RepeatedProduce()
    for _ in range(3):
        frame = framed(version, data.draw(instances(request_class(0, version))))
        assert read(frame, connection.read) == read(frame, read_produce)


@pytest.mark.parametrize("version", VERSIONS)
@given(st.lists(st.binary(max_size=300) | st.none(), min_size=2, max_size=5))
@some
def test_only_the_records_are_others(version: int, sent: list[bytes | None]) -> None:
    connection = RepeatedProduce()
    for correlation_id, records in enumerate(sent):
        frame = framed(version, as_sent(version, records), correlation_id)
        found = connection.read(frame, read_front(frame))
        assert found == read_produce(frame, read_front(frame))
        ((_, ((index, view),)),) = found.topics
        assert (index, None if view is None else bytes(view)) == (3, records)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
@some
def test_the_same_request_with_bytes_changed_anywhere(version: int, data: st.DataObject) -> None:
    frame = framed(version, as_sent(version, b"records" * 30))
    connection = RepeatedProduce()
    connection.read(bytearray(frame), read_front(frame))
    for _ in range(4):
        at = data.draw(st.integers(2, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
        del frame[len(frame) - data.draw(st.integers(0, 1)) :]
        assert read(frame, connection.read) == read(frame, read_produce)


def as_sent(version: int, records: bytes | None) -> Any:
    """To one partition, as clients send it."""
    return convert(produce_request({("a topic", 3): records}), request_class(0, version))
