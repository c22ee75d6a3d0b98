"""Templates of Produce requests read and write what the codec of Produce does."""

import dataclasses
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.produce.v13.request import PartitionProduceData, TopicProduceData
from kio.static.primitive import Records, i32

from ottla_broker.wire.codec import request_class
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.produce import ProduceResponsePartition, Topic, read_produce_request, write_produce_response
from ottla_broker.wire.produce_template import (
    LEARNING_INTERVAL,
    MAX_FRAME_BYTES,
    MAX_SHARED_TEMPLATES,
    MAX_TEMPLATES,
    OLDEST,
    ProduceTemplate,
    ProduceTemplates,
    SharedTemplates,
)
from ottla_broker.wire.request_header import read_request_header
from tests.unit.api.requests import produce_request
from tests.unit.wire.frames import encode_request, few_examples
from tests.unit.wire.messages import instances

VERSIONS = range(OLDEST, 14)
TOPIC_ID = UUID(int=0x1234_5678_9ABC_4EF0_8123_4567_89AB_CDEF)
records = st.binary(min_size=61, max_size=400) | st.binary(min_size=MAX_FRAME_BYTES // 2, max_size=MAX_FRAME_BYTES)


def produce_frame(
    version: int, data: bytes, *, partition: int = 0, topic: str = "a-topic", acks: int = -1, correlation_id: int = 5
) -> bytearray:
    request: Any = produce_request({(topic, partition): data}, acks)
    if version >= 13:
        made = PartitionProduceData(index=i32(partition), records=Records(data))
        topics = (TopicProduceData(topic_id=TOPIC_ID, partition_data=(made,)),)
        common = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
        request = request_class(0, 13)(**common | {"topic_data": topics})
    return bytearray(encode_request(0, version, request, correlation_id))


def template_of(frame: bytearray) -> ProduceTemplate:
    template = SharedTemplates().make(frame, read_request_header(frame))
    assert template is not None
    return template


def read_as_codec(frame: bytearray) -> tuple[str | None, int, int, list[tuple[Topic, list[tuple[int, bytes | None]]]]]:
    request = read_produce_request(frame, read_request_header(frame))
    topics = [
        (topic, [(index, None if data is None else bytes(data)) for index, data in partitions])
        for topic, partitions in request.topics
    ]
    return request.transactional_id, request.acks, request.timeout_ms, topics


def assert_read_as_codec(template: ProduceTemplate, frame: bytearray) -> None:
    found = template.match(frame)
    assert found is not None
    index, start, end = found
    only = [(template.topic, [(index, bytes(frame[start:end]))])]
    assert read_as_codec(frame) == (None, template.acks, template.timeout_ms, only)
    assert template.client_id == read_request_header(frame).client_id


@pytest.mark.parametrize("version", VERSIONS)
@given(first=records, second=records, partition=st.integers(0, 2**31 - 1), acks=st.sampled_from((1, -1)))
@few_examples
def test_requests_that_differ_in_partition_and_records_match(
    version: int, first: bytes, second: bytes, partition: int, acks: int
) -> None:
    learned = produce_frame(version, first[:400], acks=acks)
    frame = produce_frame(version, second, partition=partition, acks=acks, correlation_id=-7)
    template = template_of(learned)
    is_small = len(second) <= MAX_FRAME_BYTES - 100
    if is_small or template.match(frame) is not None:
        assert_read_as_codec(template, frame)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data(), batch=st.binary(min_size=61, max_size=300))
@few_examples
def test_bytes_that_match_are_read_as_by_the_codec(version: int, data: st.DataObject, batch: bytes) -> None:
    frame = produce_frame(version, batch)
    template = template_of(frame)
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=3)):
        frame[at] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(len(frame) // 2, len(frame))) :]
    if template.match(frame) is not None:
        assert_read_as_codec(template, frame)


@pytest.mark.parametrize("version", range(3, 14))
@given(data=st.data())
@few_examples
def test_other_requests_have_no_template_or_are_read_as_by_the_codec(version: int, data: st.DataObject) -> None:
    frame = encode_request(0, version, data.draw(instances(request_class(0, version))))
    template = SharedTemplates().make(frame, read_request_header(frame))
    if template is not None and template.match(frame) is not None:
        assert_read_as_codec(template, frame)


@pytest.mark.parametrize("version", VERSIONS)
@given(partition=st.integers(0, 2**31 - 1), offset=st.integers(0, 2**62), log_start=st.integers(0, 2**62))
@few_examples
def test_responses_are_written_as_by_the_codec(version: int, partition: int, offset: int, log_start: int) -> None:
    frame = produce_frame(version, bytes(100), partition=partition, correlation_id=77)
    template = template_of(frame)
    result = ProduceResponsePartition(partition, ErrorCode.none, offset, log_start=log_start)
    expected = write_produce_response(version, 77, [(template.topic, [result])])
    assert template.response(frame, partition, offset, log_start) == expected


def test_requests_without_acknowledgement_and_large_ones_have_no_template() -> None:
    for frame in (produce_frame(9, bytes(100), acks=0), produce_frame(9, bytes(MAX_FRAME_BYTES))):
        assert SharedTemplates().make(frame, read_request_header(frame)) is None


def test_cut_request_is_malformed() -> None:
    frame = produce_frame(9, bytes(100))
    with pytest.raises(MalformedMessage):
        SharedTemplates().make(frame[:12], read_request_header(frame))


def test_connection_keeps_the_templates_that_match() -> None:
    templates = ProduceTemplates(SharedTemplates())
    frames = [produce_frame(9, bytes(100), topic=f"topic-{number}") for number in range(MAX_TEMPLATES + 1)]
    for frame in frames[:MAX_TEMPLATES]:
        templates.learn(frame, read_request_header(frame))
    assert templates.match(frames[0]) is not None  # so the next one replaces another
    for _ in range(LEARNING_INTERVAL):
        templates.learn(frames[-1], read_request_header(frames[-1]))
        assert templates.match(frames[-1]) is None
    templates.learn(frames[-1], read_request_header(frames[-1]))
    assert [templates.match(frame) is not None for frame in frames] == [True, False, True, True, True]


def test_connections_share_the_templates_of_equal_requests() -> None:
    shared = SharedTemplates()
    connections = [ProduceTemplates(shared) for _ in range(3)]
    frames = [
        produce_frame(9, bytes(100), partition=1, correlation_id=5),
        produce_frame(9, bytes(200), partition=2, correlation_id=6),
        produce_frame(9, bytes(100), topic="other"),
    ]
    found = []
    for templates, frame in zip(connections, frames, strict=True):
        templates.learn(frame, read_request_header(frame))
        match = templates.match(frame)
        assert match is not None
        found.append(match[0])
    assert found[0] is found[1]
    assert found[2] is not found[0]


def test_templates_beyond_the_limit_are_not_shared_for_ever() -> None:
    shared = SharedTemplates()
    frames = [produce_frame(9, bytes(100), topic=f"topic-{number}") for number in range(MAX_SHARED_TEMPLATES + 1)]
    made = [shared.make(frame, read_request_header(frame)) for frame in frames]
    assert shared.make(frames[-1], read_request_header(frames[-1])) is made[-1]
    assert shared.make(frames[0], read_request_header(frames[0])) is not made[0]
