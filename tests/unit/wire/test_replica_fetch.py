"""How a follower asks and hears, against the codecs that the leader uses and kio's."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.static.constants import EntityType

from ottla_broker.wire import replica_fetch as follower
from ottla_broker.wire.codec import read_request, read_request_header, request_class
from ottla_broker.wire.fetch import FetchResponsePartition, read_fetch_request, write_fetch_response
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.node_endpoints import NodeEndpoint

some = settings(max_examples=50, deadline=None, database=None)
int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
ids = st.uuids().filter(lambda value: value.int != 0)
wanted = st.builds(follower.Wanted, int32, int32, int64, int32, int64, int32, st.none() | ids)
topics = st.lists(st.tuples(ids, st.lists(wanted, max_size=3)), max_size=3)
requests = st.builds(
    follower.Request,
    int32,
    int64,
    st.integers(0, 1 << 30),
    int32,
    int32,
    int32,
    int32,
    topics,
    st.lists(st.tuples(ids, st.lists(int32, max_size=3)), max_size=3),
)


@given(requests)
@some
def test_what_a_follower_asks_is_what_the_leader_reads(sent: follower.Request) -> None:
    frame = follower.write_request(5, "broker-2", sent)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header = read_request_header(frame[4:])
    assert (header.api_key, header.version, header.correlation_id, header.client_id) == (1, 17, 5, "broker-2")
    found = read_fetch_request(frame[4:], header)
    assert (found.replica, found.replica_epoch) == (sent.replica, sent.replica_epoch)
    assert (found.session_id, found.session_epoch) == (sent.session_id, sent.session_epoch)
    assert [
        (p.topic, p.partition, p.leader_epoch, p.offset, p.last_fetched_epoch, p.log_start, p.max_bytes, p.directory)
        for p in found.partitions
    ] == [
        (topic, p.partition, p.leader_epoch, p.offset, p.last_epoch, p.log_start, p.max_bytes, p.directory)
        for topic, partitions in sent.topics
        for p in partitions
    ]
    assert found.forgotten == [(topic, index) for topic, indexes in sent.forgotten for index in indexes]
    kios: Any = read_request(bytes(frame[4:]), header, request_class(1, 17))
    assert kios.__type__ is EntityType.request
    assert kios.replica_state.replica_epoch == sent.replica_epoch
    assert [p.replica_directory_id for t in kios.topics for p in t.partitions] == [
        p.directory for _, partitions in sent.topics for p in partitions
    ]


pairs = st.none() | st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
fetched = st.builds(
    FetchResponsePartition,
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
)


@given(st.lists(st.tuples(ids, st.lists(fetched, max_size=3)), max_size=3), st.booleans())
@some
def test_what_a_leader_answers_is_what_the_follower_hears(
    sent: list[tuple[UUID, list[FetchResponsePartition]]], addressed: bool
) -> None:
    addresses = [NodeEndpoint(3, "there", 9092, "r1"), NodeEndpoint(4, "", 1)] if addressed else []
    answer = bytearray(
        b"".join(write_fetch_response(17, 5, sent, error=ErrorCode.none, session_id=8, addresses=addresses))
    )
    heard = follower.read_response(answer[4:])
    assert (heard.error, heard.session_id) == (ErrorCode.none, 8)
    assert [
        (g.topic, g.partition, g.error, g.high_watermark, g.log_start, bytes(g.records), g.diverging, g.leader)
        for g in heard.partitions
    ] == [
        (topic, f.partition, f.error, f.high_watermark, f.log_start, bytes(f.records), f.diverging, f.leader)
        for topic, partitions in sent
        for f in partitions
    ]
    assert [g.snapshot for g in heard.partitions] == [f.snapshot for _, partitions in sent for f in partitions]


def test_what_ends_early_is_malformed() -> None:
    whole = b"".join(
        write_fetch_response(17, 5, [(UUID(int=1), [FetchResponsePartition(0, ErrorCode.none, records=bytes(100))])])
    )[4:]
    for end in range(4, len(whole) - 2):
        with pytest.raises(MalformedMessage):
            follower.read_response(bytearray(whole[:end]))
