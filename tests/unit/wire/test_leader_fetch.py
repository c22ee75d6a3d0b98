"""How a leader reads and answers its followers, against how they ask and hear."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from ottla_broker.wire import leader_fetch as leader
from ottla_broker.wire import replica_fetch as follower
from ottla_broker.wire.codec import read_request_header, read_response
from ottla_broker.wire.message_reader import MalformedMessage
from tests.unit.wire.test_replica_fetch import ids, int32, int64, requests, some


@given(requests)
@some
def test_what_a_follower_asks_is_what_its_leader_reads(sent: follower.Request) -> None:
    frame = follower.write_request(5, "broker-2", sent)[4:]
    found = leader.read_request(frame, read_request_header(frame))
    assert (found.replica, found.replica_epoch, found.max_wait_ms) == (
        sent.replica,
        sent.replica_epoch,
        sent.max_wait_ms,
    )
    assert (found.min_bytes, found.max_bytes) == (sent.min_bytes, sent.max_bytes)
    assert (found.session_id, found.session_epoch) == (sent.session_id, sent.session_epoch)
    assert found.changed == [
        (
            topic.bytes,
            (one.partition, one.leader_epoch, one.offset, one.last_epoch, one.log_start, one.max_bytes),
        )
        for topic, partitions in sent.topics
        for one in partitions
    ]
    assert found.forgotten == [(topic.bytes, index) for topic, indexes in sent.forgotten for index in indexes]


said = st.tuples(
    ids,
    int32,
    st.sampled_from(ErrorCode),
    int64,
    int64,
    st.binary(max_size=60) | st.integers(4000, 9000).map(bytes),
    st.none() | st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 60)),
)


@given(st.lists(said, max_size=6))
@some
def test_what_a_leader_answers_is_what_its_follower_hears(sent: list[Any]) -> None:
    sent.sort(key=lambda one: one[0].int % 3)  # several of one topic, sometimes apart
    answer = leader.Answer()
    for topic, partition, error, watermark, start, records, diverging in sent:
        answer.put(topic.bytes, partition, error, watermark, start, records, diverging)
    whole = bytearray(b"".join(answer.finish(5, 8)))
    assert int.from_bytes(whole[:4]) == len(whole) - 4
    heard = follower.read_response(whole[4:])
    assert (heard.error, heard.session_id) == (ErrorCode.none, 8)
    assert [
        (g.topic, g.partition, g.error, g.high_watermark, g.log_start, bytes(g.records), g.diverging)
        for g in heard.partitions
    ] == sent
    kios: Any = read_response(bytes(whole[4:]), 1, 17)
    assert [p.partition_index for topic in kios.responses for p in topic.partitions] == [one[1] for one in sent]


def test_an_error_of_the_whole_answer() -> None:
    whole = b"".join(leader.Answer().finish(5, 0, ErrorCode.fetch_session_id_not_found))
    heard = follower.read_response(bytearray(whole[4:]))
    assert (heard.error, heard.session_id, heard.partitions) == (ErrorCode.fetch_session_id_not_found, 0, [])


def test_what_ends_early_is_malformed() -> None:
    request = follower.Request(2, 20, 0, 1, 1, topics=[(UUID(int=1), [follower.Wanted(0, 1, 2, 3, 4, 5, UUID(int=9))])])
    whole = follower.write_request(5, "b", request)[4:]
    header = read_request_header(whole)
    for end in range(header.body_offset, len(whole) - 1):
        with pytest.raises(MalformedMessage):
            leader.read_request(whole[:end], header)
