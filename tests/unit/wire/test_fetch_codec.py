"""Fetch requests and responses between brokers: both ends of the codec, and kio's."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from ottla_broker.wire.codec import read_request, read_response, request_class
from ottla_broker.wire.fetch_request import (
    CONSUMER,
    FetchRequest,
    FetchRequestPartition,
    read_fetch_request,
    write_fetch_request,
)
from ottla_broker.wire.fetch_response import FetchResponsePartition, read_fetch_response, write_fetch_response
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.node_endpoints import NodeEndpoint
from ottla_broker.wire.request_header import read_request_header

fifty_examples = settings(max_examples=50, deadline=None, database=None)
int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
ids = st.uuids().filter(lambda value: value.int != 0)
partitions = st.builds(FetchRequestPartition, ids, int32, int64, int32, int32, int32, int64, st.none() | ids)
requests = st.builds(
    FetchRequest,
    st.integers(0, (1 << 31) - 1) | st.just(CONSUMER),
    st.integers(0, 1 << 30),
    int32,
    int32,
    st.integers(0, 1),
    int32,
    int32,
    st.lists(partitions, max_size=6),
    st.lists(st.tuples(ids, int32), max_size=3),
    st.none(),
    int64,
)


@given(requests, st.integers(13, 18))
@fifty_examples
def test_a_broker_reads_what_a_broker_sends(sent: FetchRequest, version: int) -> None:
    sent.partitions = sorted(sent.partitions, key=lambda one: str(one.topic))
    frame = write_fetch_request(version, 5, "broker-2", sent)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header = read_request_header(frame[4:])
    assert (header.api_key, header.version, header.correlation_id, header.client_id) == (1, version, 5, "broker-2")
    if version < 15 or sent.replica == CONSUMER:
        sent.replica_epoch = -1  # it is not on the wire
    if version < 17:
        for partition in sent.partitions:
            partition.directory = None
    found = read_fetch_request(frame[4:], header)
    assert found == sent
    kios: Any = read_request(bytes(frame[4:]), header, request_class(1, version))
    assert kios.__type__ is EntityType.request
    if version >= 15:
        assert kios.replica_state.replica_epoch == sent.replica_epoch
    if version >= 17:
        assert [p.replica_directory_id for t in kios.topics for p in t.partitions] == [
            p.directory for p in sent.partitions
        ]
    assert [(t.topic_id, index) for t in kios.forgotten_topics_data for index in t.partitions] == sent.forgotten


def test_a_request_that_ends_early_is_malformed() -> None:
    partition = FetchRequestPartition(UUID(int=1), 0, 2, 5, 1, 3, 4, UUID(int=9))
    whole = write_fetch_request(17, 5, "b", FetchRequest(2, 0, 1, 1, 0, 0, 0, [partition], [], None, 20))[4:]
    header = read_request_header(whole)
    for end in range(header.body_offset, len(whole) - 1):
        with pytest.raises(MalformedMessage):
            read_fetch_request(whole[:end], header)


pairs = st.none() | st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
results = st.builds(
    FetchResponsePartition,
    ids,
    int32,
    st.sampled_from(ErrorCode),
    int64,
    int64,
    int64,
    st.binary(max_size=60) | st.integers(4000, 9000).map(bytes),
    st.none() | st.lists(st.tuples(int64, int64), max_size=2),
    pairs,
    pairs,
    pairs,
    int32,
)


@given(st.lists(results, max_size=6), st.booleans())
@fifty_examples
def test_a_broker_reads_what_a_broker_answers(sent: list[FetchResponsePartition], addressed: bool) -> None:
    endpoints = [NodeEndpoint(3, "there", 9092, "r1"), NodeEndpoint(4, "", 1)] if addressed else []
    sent.sort(key=lambda one: str(one.topic)[:1])  # several of one topic, sometimes apart
    whole = bytearray(b"".join(write_fetch_response(17, 5, sent, session_id=8, endpoints=endpoints)))
    assert int.from_bytes(whole[:4]) == len(whole) - 4
    found = read_fetch_response(whole[4:])
    assert (found.error, found.session_id) == (ErrorCode.none, 8)
    by_topic = {one.topic: [other for other in sent if other.topic == one.topic] for one in sent}
    assert found.partitions == [one for of_topic in by_topic.values() for one in of_topic]
    kios: Any = read_response(bytes(whole[4:]), 1, 17)
    assert [p.partition_index for topic in kios.responses for p in topic.partitions] == [
        one.partition for one in found.partitions
    ]


def test_an_error_of_the_whole_response_is_read_as_written() -> None:
    whole = b"".join(write_fetch_response(17, 5, (), error=ErrorCode.fetch_session_id_not_found))
    found = read_fetch_response(bytearray(whole[4:]))
    assert (found.error, found.session_id, found.partitions) == (ErrorCode.fetch_session_id_not_found, 0, [])


def test_a_response_that_ends_early_is_malformed() -> None:
    partition = FetchResponsePartition(UUID(int=1), 0, records=bytes(100))
    whole = b"".join(write_fetch_response(17, 5, [partition]))[4:]
    for end in range(4, len(whole) - 2):
        with pytest.raises(MalformedMessage):
            read_fetch_response(bytearray(whole[:end]))
