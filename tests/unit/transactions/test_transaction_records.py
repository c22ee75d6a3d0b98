"""Records of `__transaction_state`, compared with bytes that Apache Kafka 4.1 wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.coordination.records import coordinator_partition
from ottla_broker.transactions.transaction_metadata import TransactionMetadata, TransactionState, TxnPartition
from ottla_broker.transactions.transaction_records import (
    decode_transaction,
    decode_transaction_key,
    encode_transaction,
    encode_transaction_key,
)
from ottla_broker.wire.message_reader import MalformedMessage

PARTITIONS = st.frozensets(st.builds(TxnPartition, st.text(max_size=5), st.integers(0, 99)), max_size=4)


def test_key_is_kafkas() -> None:
    assert encode_transaction_key("tx") == bytes.fromhex("0000 0002 7478")
    assert decode_transaction_key(encode_transaction_key("tx")) == "tx"
    assert decode_transaction_key(bytes.fromhex("0001 0002 7478")) is None
    with pytest.raises(MalformedMessage):
        decode_transaction_key(b"\0")


@given(
    st.builds(
        TransactionMetadata,
        st.integers(0, 2**40),
        st.integers(0, 2**15 - 1),
        st.integers(1, 2**31 - 1),
        state=st.sampled_from([TransactionState.ongoing, TransactionState.prepare_commit]),
        partitions=PARTITIONS,
        start_ms=st.integers(-1, 2**40),
        last_update_ms=st.integers(-1, 2**40),
        previous_producer_id=st.integers(-1, 2**40),
        next_producer_id=st.integers(-1, 2**40),
        client_transaction_version=st.integers(0, 2),
    )
)
def test_value_is_read_as_written(metadata: TransactionMetadata) -> None:
    assert decode_transaction(encode_transaction(metadata)) == metadata


def test_value_has_kafkas_bytes_in_both_versions() -> None:
    ongoing = TransactionMetadata(
        1,
        2,
        60_000,
        state=TransactionState.ongoing,
        partitions=frozenset({TxnPartition("t", 0), TxnPartition("t", 3), TxnPartition("s", 1)}),
        start_ms=5,
        last_update_ms=6,
    )
    plain = bytes.fromhex(
        "0000 0000000000000001 0002 0000ea60 01"
        "00000002 0001 73 00000001 00000001 0001 74 00000002 00000000 00000003"
        "0000000000000006 0000000000000005"
    )
    flexible = bytes.fromhex(
        "0001 0000000000000001 0002 0000ea60 01"
        "03 02 73 02 00000001 00 02 74 03 00000000 00000003 00"
        "0000000000000006 0000000000000005 00"
    )
    assert encode_transaction(ongoing, version=0) == plain
    assert encode_transaction(ongoing) == flexible
    assert decode_transaction(plain) == decode_transaction(flexible) == ongoing


def test_unknown_versions_and_states_are_refused() -> None:
    value = bytearray(encode_transaction(TransactionMetadata(1, 2, 3)))
    for position, wrong in ((1, 9), (16, 9)):
        changed = bytearray(value)
        changed[position] = wrong
        with pytest.raises(MalformedMessage):
            decode_transaction(bytes(changed))


def test_partition_of_an_id_is_kafkas() -> None:
    assert coordinator_partition("my-transactional-id", 50) == abs(hash_of("my-transactional-id")) % 50


def hash_of(text: str) -> int:
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
