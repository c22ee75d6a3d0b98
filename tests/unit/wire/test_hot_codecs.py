"""The hand-written codecs of Produce and Fetch against kio's, in every version."""

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import read_response, request_class, write_response
from ottla_broker.wire.fetch_request import read_fetch_request
from ottla_broker.wire.fetch_response import FetchResponsePartition, write_fetch_response
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.message_schema import NO_UUID
from ottla_broker.wire.produce import ProduceResponsePartition, read_produce_request, write_produce_response
from ottla_broker.wire.request_header import read_request_header
from tests.unit.wire.frames import encode_request, few_examples
from tests.unit.wire.messages import instances

ids = st.uuids().filter(lambda value: value.int != 0)
int32, int64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (31, 63))
codes = st.just(ErrorCode.none) | st.sampled_from(ErrorCode)  # no error in every other example


def topic_of(item: Any, version: int) -> Any:
    if version >= 13:
        return item.topic_id or NO_UUID
    return item.name if hasattr(item, "name") else item.topic


@pytest.mark.parametrize("version", range(3, 14))
@given(data=st.data())
@few_examples
def test_produce_requests_are_read_as_by_kio(version: int, data: st.DataObject) -> None:
    sent = data.draw(instances(request_class(0, version)))
    frame = encode_request(0, version, sent)
    found = read_produce_request(frame, read_request_header(frame))
    assert (found.transactional_id, found.acks) == (sent.transactional_id, sent.acks)
    assert datetime.timedelta(milliseconds=found.timeout_ms) == sent.timeout
    assert [
        (topic, [(index, None if records is None else bytes(records)) for index, records in partitions])
        for topic, partitions in found.topics
    ] == [(topic_of(topic, version), [(p.index, p.records) for p in topic.partition_data]) for topic in sent.topic_data]


@pytest.mark.parametrize("version", range(3, 14))
@given(data=st.data())
@few_examples
def test_produce_responses_are_written_as_by_kio(version: int, data: st.DataObject) -> None:
    text = st.none() | st.text(max_size=9)
    results = st.builds(
        ProduceResponsePartition,
        int32,
        codes,
        int64,
        st.integers(-1, 1 << 40),
        int64,
        text,
        st.lists(st.tuples(int32, text), max_size=3),
    )
    topics: Any = data.draw(
        st.lists(st.tuples(ids if version >= 13 else st.text(max_size=9), st.lists(results, max_size=3)), max_size=3)
    )
    answer = write_produce_response(version, 5, topics)
    found = read_response(bytes(answer[4:]), 0, version)
    assert write_response(0, version, 5, found) == answer
    assert [topic_of(topic, version) for topic in found.responses] == [topic for topic, _ in topics]
    for topic, (_, sent) in zip(found.responses, topics, strict=True):
        for partition, expected in zip(topic.partition_responses, sent, strict=True):
            assert (partition.index, partition.error_code, partition.base_offset) == (
                expected.partition,
                expected.error,
                expected.base_offset,
            )
            if version >= 5:
                assert partition.log_start_offset == expected.log_start
            if version >= 8:
                assert partition.error_message == expected.message
                found_errors = [(one.batch_index, one.batch_index_error_message) for one in partition.record_errors]
                assert found_errors == expected.record_errors


@pytest.mark.parametrize("version", range(4, 19))
@given(data=st.data())
@few_examples
def test_fetch_requests_are_read_as_by_kio(version: int, data: st.DataObject) -> None:
    sent = data.draw(instances(request_class(1, version)))
    frame = encode_request(1, version, sent)
    found = read_fetch_request(frame, read_request_header(frame))
    assert found.replica == (sent.replica_state.replica_id if version >= 15 else sent.replica_id)
    assert datetime.timedelta(milliseconds=found.max_wait_ms) == sent.max_wait
    assert (found.min_bytes, found.max_bytes, found.isolation) == (sent.min_bytes, sent.max_bytes, sent.isolation_level)
    assert [(p.topic, p.partition, p.offset, p.max_bytes) for p in found.partitions] == [
        (topic_of(topic, version), p.partition, p.fetch_offset, p.partition_max_bytes)
        for topic in sent.topics
        for p in topic.partitions
    ]
    if version >= 9:
        assert [p.leader_epoch for p in found.partitions] == [
            p.current_leader_epoch for t in sent.topics for p in t.partitions
        ]
    if version >= 12:
        assert [p.last_fetched_epoch for p in found.partitions] == [
            p.last_fetched_epoch for t in sent.topics for p in t.partitions
        ]
    if version >= 7:
        assert (found.session_id, found.session_epoch) == (sent.session_id, sent.session_epoch)
        assert found.forgotten == [
            (topic_of(topic, version), p) for topic in sent.forgotten_topics_data for p in topic.partitions
        ]


@pytest.mark.parametrize("version", range(4, 19))
@given(data=st.data())
@few_examples
def test_fetch_responses_are_written_as_by_kio(version: int, data: st.DataObject) -> None:
    aborted = st.none() | st.lists(st.tuples(int64, int64), max_size=3)
    leader = st.none() | st.tuples(st.integers(0, 1 << 30), int32)
    records = st.binary(max_size=100) | st.integers(4000, 9000).map(bytes)
    names = ids if version >= 13 else st.text(max_size=9)
    results = st.builds(FetchResponsePartition, names, int32, codes, int64, int64, int64, records, aborted, leader)
    partitions = data.draw(st.lists(results, max_size=6))
    by_topic = {one.topic: [other for other in partitions if other.topic == one.topic] for one in partitions}
    topics: Any = list(by_topic.items())
    code, session = data.draw(codes), data.draw(int32)
    answer = b"".join(write_fetch_response(version, 5, partitions, error=code, session_id=session))
    assert int.from_bytes(answer[:4]) == len(answer) - 4
    found = read_response(answer[4:], 1, version)
    assert bytes(write_response(1, version, 5, found)) == answer
    if version >= 7:
        assert (found.error_code, found.session_id) == (code, session)
    assert [topic_of(topic, version) for topic in found.responses] == [topic for topic, _ in topics]
    for topic, (_, sent) in zip(found.responses, topics, strict=True):
        for partition, expected in zip(topic.partitions, sent, strict=True):
            assert partition.records == expected.records
            assert (partition.partition_index, partition.error_code) == (expected.partition, expected.error)
            assert (partition.high_watermark, partition.last_stable_offset) == (
                expected.high_watermark,
                expected.last_stable_offset,
            )
            seen = (
                None
                if partition.aborted_transactions is None
                else [(a.producer_id, a.first_offset) for a in partition.aborted_transactions]
            )
            assert seen == expected.aborted


@pytest.mark.parametrize("version", [0, 1, 2])
def test_rule_16_old_produce_requests_can_be_read_and_answered(version: int) -> None:
    """kio has no classes for versions below 3. The test has the bytes of a request with one topic,
    one partition and three bytes of records, and checks the layout of the response.
    """
    body = b"\xff\xff" + (1000).to_bytes(4) + b"\0\0\0\x01\0\x01t" + b"\0\0\0\x01" + b"\0\0\0\x07" + b"\0\0\0\x03abc"
    frame = bytearray(b"\0\0" + version.to_bytes(2) + b"\0\0\0\x05" + b"\0\x02me" + body)
    found = read_produce_request(frame, read_request_header(frame))
    assert (found.acks, found.timeout_ms) == (-1, 1000)
    assert [(topic, [(i, bytes(r or b"")) for i, r in ps]) for topic, ps in found.topics] == [("t", [(7, b"abc")])]
    answer = write_produce_response(version, 5, [("t", [ProduceResponsePartition(7, ErrorCode.unsupported_version)])])
    size = {0: 29, 1: 33, 2: 41}[version]
    assert answer[:8] == size.to_bytes(4) + b"\0\0\0\x05"
    assert len(answer) == size + 4


@pytest.mark.parametrize(("key", "version"), [(0, 3), (0, 9), (0, 13), (1, 4), (1, 12), (1, 18)])
@given(data=st.data())
@few_examples
def test_rule_18_truncated_and_altered_requests_are_malformed_or_read(
    key: int, version: int, data: st.DataObject
) -> None:
    frame = encode_request(key, version, data.draw(instances(request_class(key, version))))
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]
    try:
        header = read_request_header(frame)
        (read_produce_request if header.api_key == ApiKey.PRODUCE else read_fetch_request)(frame, header)
    except MalformedMessage:
        pass
