"""Reader and writer compared with kio's own, for every version of every message."""

import contextlib
import io
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from ottla_broker.wire.api_keys import ApiKey
from ottla_broker.wire.codec import (
    read_request,
    read_response,
    request_class,
    response_class,
    write_request,
    write_response,
)
from ottla_broker.wire.conversion import convert_message
from ottla_broker.wire.message_reader import Cursor, MalformedMessage, message_reader
from ottla_broker.wire.message_schema import FieldSchema, MessageSchema, schema_of
from ottla_broker.wire.message_writer import message_writer
from ottla_broker.wire.registration_message import OttlaBrokerRegistrationRequest
from ottla_broker.wire.request_header import RequestHeader, read_request_header
from tests.unit.wire.messages import every_message, instances

MESSAGES = every_message()
three_examples = settings(
    max_examples=3, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None
)


def versions_by_key() -> list[tuple[int, list[tuple[int, type, type]]]]:
    found: dict[int, list[tuple[int, type, type]]] = {}
    for key, version, request, response in MESSAGES:
        found.setdefault(key, []).append((version, request, response))
    return sorted(found.items())


@pytest.mark.parametrize(
    ("key", "versions"), versions_by_key(), ids=lambda value: str(value) if isinstance(value, int) else ""
)
@given(data=st.data())
@three_examples
def test_bytes_are_those_of_kio(key: int, versions: list[tuple[int, type, type]], data: st.DataObject) -> None:
    for _, request, response in versions:
        for cls in (request, response):
            message = data.draw(instances(cls))
            theirs = io.BytesIO()
            entity_writer(cls)(theirs, message)
            ours = bytearray()
            message_writer(cls)(ours, message)
            assert bytes(ours) == theirs.getvalue()
            cursor = Cursor(bytes(ours))
            found = message_reader(cls)(cursor)
            assert cursor.at == len(ours)
            assert found == entity_reader(cls)(bytes(ours), 0)[0] == message


def test_a_registration_with_a_node_is_read_by_a_version_that_does_not_know_it() -> None:
    kafkas = load_request_schema(ApiKey.BROKER_REGISTRATION, 4)
    plain = schema_of(kafkas).default()
    with_node = replace(convert_message(plain, OttlaBrokerRegistrationRequest), node="n1")
    frame = bytes(write_request(ApiKey.BROKER_REGISTRATION, 4, 1, "", with_node))[4:]
    header = read_request_header(frame)
    assert read_request(frame, header, OttlaBrokerRegistrationRequest) == with_node
    cursor = Cursor(frame, header.body_offset + 1)
    assert message_reader(kafkas)(cursor) == plain
    assert cursor.at == len(frame)
    for version in range(4):  # a controller that serves no version with the field
        frame = bytes(write_request(ApiKey.BROKER_REGISTRATION, version, 1, "", with_node))[4:]
        assert read_request(frame, read_request_header(frame), OttlaBrokerRegistrationRequest).node is None


def message_versions() -> list[tuple[str, list[type]]]:
    """The versions of every request and response, lowest first."""
    found: dict[tuple[int, str], list[type]] = {}
    for key, _, request, response in MESSAGES:
        found.setdefault((key, "request"), []).append(request)
        found.setdefault((key, "response"), []).append(response)
    return [(f"{key}-{kind}", classes) for (key, kind), classes in sorted(found.items())]


def lost_fields(sent: Any, back: Any, via: MessageSchema) -> list[str]:
    """Fields of `sent` that changed in the conversion, although `via` has them too."""
    between = {field.name: field for field in via.all_fields}
    return [
        field.name
        for field in schema_of(sent.__class__).all_fields
        if field.name in between
        and not _is_preserved(field, between[field.name], getattr(sent, field.name), getattr(back, field.name))
    ]


def _is_preserved(field: FieldSchema, between: FieldSchema, sent: Any, back: Any) -> bool:
    """True if the conversion keeps the value, or if the other version's field cannot hold it."""
    if (field.kind, field.array) != (between.kind, between.array):
        return True  # another field by the same name
    if sent is None:
        return back is None or not between.nullable
    if field.entity is None or between.entity is None:
        return bool(sent == back)
    pairs = zip(sent, back, strict=True) if field.array else [(sent, back)]
    return all(lost_fields(one, other, between.entity) == [] for one, other in pairs)


@pytest.mark.parametrize(
    ("name", "classes"), message_versions(), ids=lambda value: value if isinstance(value, str) else ""
)
@given(data=st.data())
@three_examples
def test_conversion_keeps_fields_that_both_versions_have(name: str, classes: list[type], data: st.DataObject) -> None:
    own, other = data.draw(st.sampled_from(classes)), data.draw(st.sampled_from(classes))
    sent = data.draw(instances(own))
    assert lost_fields(sent, convert_message(convert_message(sent, other), own), schema_of(other)) == []


@pytest.mark.parametrize(("key", "version"), [(12, 0), (12, 4), (3, 1), (3, 12), (18, 4), (19, 7)])
@given(data=st.data())
@three_examples
def test_whole_messages_are_read_back(key: int, version: int, data: st.DataObject) -> None:
    request = data.draw(instances(request_class(key, version)))
    frame = bytes(write_request(key, version, 7, "me", request))
    header = read_request_header(frame[4:])
    assert (header.api_key, header.version, header.correlation_id, header.client_id) == (key, version, 7, "me")
    assert read_request(frame[4:], header, type(request)) == request
    response = data.draw(instances(response_class(key, version)))
    frame = bytes(write_response(key, version, 9, response))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert int.from_bytes(frame[4:8]) == 9
    assert read_response(frame[4:], key, version) == response


def test_rule_18_array_lengths_are_checked_against_the_remaining_bytes() -> None:
    """kio's reader would allocate 16 bytes for each of the two billion elements that these lengths
    claim.
    """
    metadata = request_class(3, 12)
    for count in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff" * 20):
        with pytest.raises(MalformedMessage):
            message_reader(metadata)(Cursor(count + bytes(100)))
    for count in (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00"):
        with pytest.raises(MalformedMessage):
            message_reader(request_class(3, 1))(Cursor(count + bytes(100)))


def test_rule_18_number_of_objects_is_bounded() -> None:
    topics = 200_000
    with pytest.raises(MalformedMessage):
        message_reader(request_class(3, 1))(Cursor(topics.to_bytes(4) + b"\x00\x01a" * topics))


@given(data=st.data())
@settings(max_examples=200, deadline=None, database=None)
def test_rule_18_arbitrary_bytes_are_a_message_or_malformed(data: st.DataObject) -> None:
    key, version, request, _ = data.draw(st.sampled_from(MESSAGES))
    body = data.draw(st.binary(max_size=300))
    header = RequestHeader(key, version, 1, None, 0)
    with contextlib.suppress(MalformedMessage):
        read_request(body, header, request)
