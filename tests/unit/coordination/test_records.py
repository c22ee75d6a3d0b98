"""Formats of the records of groups and offsets, and versions of them that other brokers write."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.coordination.consumer_group_records import (
    CONSUMER_GROUP_RECORDS,
    CurrentAssignmentKey,
    CurrentAssignmentValue,
    TopicPartitions,
)
from ottla_broker.coordination.consumer_member import MemberState
from ottla_broker.coordination.records import (
    GROUP_METADATA,
    OFFSET_COMMIT,
    OFFSET_COMMIT_KEY,
    GroupMetadata,
    GroupMetadataKey,
    MemberMetadata,
    OffsetCommit,
    OffsetCommitKey,
    coordinator_partition,
    decode_key,
    decode_offset_commit,
    decode_value,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
    java_hash,
)
from ottla_broker.wire.message_reader import MalformedMessage

TOPIC_ID = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")


def test_keys_have_kafkas_format() -> None:
    assert encode_offset_commit_key("g", "té", 7).hex() == "0001000167000374c3a900000007"
    assert encode_group_metadata_key("g").hex() == "0002000167"
    assert decode_key(encode_offset_commit_key("g", "té", 7)) == OffsetCommitKey("g", "té", 7)
    assert decode_key(encode_group_metadata_key("g")) == GroupMetadataKey("g")


def test_legacy_key_is_an_offset_commit() -> None:
    assert decode_key(bytes.fromhex("000000016700017400000001")) == OffsetCommitKey("g", "t", 1)


@pytest.mark.parametrize("kind", [3, 8, 9, 11, 16, 23, 99, -1])
def test_keys_of_other_record_types_are_ignored(kind: int) -> None:
    assert decode_key(kind.to_bytes(2, "big", signed=True) + b"\x00\x01g\x00\x00") is None


def test_offset_is_written_in_version_4_with_the_topic_id_as_tagged_field() -> None:
    value = encode_offset_commit_value(OffsetCommit(5, 3, "m", 9, topic_id=TOPIC_ID))
    assert value.hex() == ("0004000000000000000500000003026d0000000000000009010010000102030405060708090a0b0c0d0e0f")
    assert (
        encode_offset_commit_value(OffsetCommit(5, -1, "", 9)).hex()
        == "00040000000000000005ffffffff01000000000000000900"
    )


def test_offset_with_its_own_expiry_is_written_in_version_1() -> None:
    value = encode_offset_commit_value(OffsetCommit(5, -1, "", 9, expire_ms=11))
    assert value.hex() == "0001000000000000000500000000000000000009000000000000000b"
    assert decode_value(OFFSET_COMMIT, value) == OffsetCommit(5, -1, "", 9, expire_ms=11)


@pytest.mark.parametrize(
    ("raw", "commit"),
    [
        ("0000000000000000000500016d0000000000000009", OffsetCommit(5, -1, "m", 9)),
        ("0002000000000000000500016d0000000000000009", OffsetCommit(5, -1, "m", 9)),
        ("000300000000000000050000000300016d0000000000000009", OffsetCommit(5, 3, "m", 9)),
        # a tagged field from the future (tag 5, two bytes)
        ("0004000000000000000500000003026d0000000000000009010502ffff", OffsetCommit(5, 3, "m", 9)),
    ],
)
def test_older_and_newer_offsets_are_decoded(raw: str, commit: OffsetCommit) -> None:
    assert decode_value(OFFSET_COMMIT, bytes.fromhex(raw)) == commit


def test_value_of_an_unknown_version_is_an_error() -> None:
    with pytest.raises(MalformedMessage, match="version 5 of OffsetCommit is not known; 0 to 4 are"):
        decode_value(OFFSET_COMMIT, bytes.fromhex("00050000000000000005"))


def test_group_metadata_is_written_in_version_3() -> None:
    value = encode_group_metadata_value(
        GroupMetadata(
            "consumer", 2, "range", "m", 9, (MemberMetadata("m", None, "c", "/h", 6, 7, b"\x01", b"\x02\x03"),)
        )
    )
    assert value.hex() == (
        "0003"
        "0008" + b"consumer".hex() + "00000002"
        "0005" + b"range".hex() + "00016d"
        "0000000000000009"
        "00000001"
        "00016d"
        "ffff"
        "000163"
        "00022f68"
        "00000006"
        "00000007"
        "00000001"
        "01"
        "00000002"
        "0203"
    )


texts = st.text(st.characters(codec="utf-8"), max_size=20)
members = st.builds(
    MemberMetadata,
    texts,
    st.none() | texts,
    texts,
    texts,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=40),
    st.binary(max_size=40),
)
groups = st.builds(
    GroupMetadata,
    texts,
    st.integers(0, 2**31 - 1),
    st.none() | texts,
    st.none() | texts,
    st.integers(-1, 2**62),
    st.lists(members, max_size=3).map(tuple),
)
commits = st.builds(
    OffsetCommit,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    texts,
    st.integers(0, 2**62),
    expire_ms=st.just(-1),
    topic_id=st.none() | st.uuids().filter(lambda id: id.int != 0),
)


@given(groups, st.sampled_from([3, 4]))
def test_group_metadata_is_decoded_as_encoded(group: GroupMetadata, version: int) -> None:
    assert decode_value(GROUP_METADATA, GROUP_METADATA.write(group, version)) == group


@given(groups)
def test_group_metadata_is_encoded_alike_by_schema_and_by_the_fast_path(group: GroupMetadata) -> None:
    assert encode_group_metadata_value(group) == GROUP_METADATA.write(group, 3)


topics = st.lists(
    st.builds(
        TopicPartitions,
        st.none() | st.uuids().filter(lambda id: id.int != 0),
        st.lists(st.integers(0, 2**31 - 1), max_size=200).map(tuple),
    ),
    max_size=3,
).map(tuple)
epochs = st.integers(-2, 2**31 - 1)


@given(texts, texts, st.builds(CurrentAssignmentValue, epochs, epochs, st.sampled_from(MemberState), topics, topics))
def test_current_assignments_are_decoded_as_encoded(group: str, member: str, value: CurrentAssignmentValue) -> None:
    key, records = CurrentAssignmentKey(group, member), CONSUMER_GROUP_RECORDS
    assert records.decode_key(records.encode_key(key)) == key
    assert records.decode_value(key, records.encode_value(key, value)) == value


@given(commits, st.integers(0, 4))
def test_offsets_are_decoded_alike_by_schema_and_by_the_fast_path(commit: OffsetCommit, version: int) -> None:
    value = OFFSET_COMMIT.write(commit, version)
    assert decode_offset_commit(value) == decode_value(OFFSET_COMMIT, value)
    assert decode_offset_commit(encode_offset_commit_value(commit)) == commit


@given(
    st.builds(OffsetCommitKey, st.text(max_size=200), texts, st.integers(-(2**31), 2**31 - 1)), st.binary(max_size=30)
)
def test_keys_and_mutated_keys_are_decoded_alike_by_schema_and_by_the_fast_path(
    key: OffsetCommitKey, noise: bytes
) -> None:
    raw = encode_offset_commit_key(*key)
    assert decode_key(raw) == key
    for other in (raw[: len(noise)], raw[:2] + noise, raw[:3] + noise):
        try:
            expected = OFFSET_COMMIT_KEY.read(other, 2, 0)
        except MalformedMessage:
            with pytest.raises(MalformedMessage):
                decode_key(other)
        else:
            assert decode_key(other) == expected


@given(commits, st.binary(max_size=40), st.integers(0, 30))
def test_mutated_offsets_are_decoded_alike_by_schema_and_by_the_fast_path(
    commit: OffsetCommit, noise: bytes, at: int
) -> None:
    raw = encode_offset_commit_value(commit)
    for other in (raw[:at] + noise, raw[:at] + noise + raw[at + len(noise) :], raw + noise):
        try:
            expected = decode_value(OFFSET_COMMIT, other)
        except MalformedMessage:
            with pytest.raises(MalformedMessage):
                decode_offset_commit(other)
        else:
            assert decode_offset_commit(other) == expected


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_malformed_and_raise_no_other_error(raw: bytes) -> None:
    for read in (
        decode_key,
        decode_offset_commit,
        lambda raw: decode_value(OFFSET_COMMIT, raw),
        lambda raw: decode_value(GROUP_METADATA, raw),
    ):
        with suppress(MalformedMessage):
            read(raw)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("my-group", -1906497762),
        ("connect-cluster-connect", 757414196),
        ("polygenelubricants", -(2**31)),
        ("😀", 1772899),
    ],
)
def test_hash_is_that_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_partition_of_a_group_uses_the_absolute_value_of_the_hash() -> None:
    assert java_hash("zzzzzz") == -685785664
    assert coordinator_partition("zzzzzz", 50) == 14
    assert coordinator_partition("polygenelubricants", 50) == 0
