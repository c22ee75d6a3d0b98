"""Validation of the schema ids of a batch's keys and values."""

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.log.schema_ids import validate_schema_ids
from ottla_broker.wire.batch import Compression
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import Record, encode_batch

FRAME = b"\0\0\0\0"
OF_KEYS, OF_VALUES, UNREAD = FRAME + b"\x01", FRAME + b"\x02", FRAME + b"\x03"


class Registry:
    """Knows that schema 1 is of keys and schema 2 of values, and knows nothing yet of schema 3."""

    def __init__(self) -> None:
        self.lookups: list[tuple[str, int]] = []

    def is_known(self, subject: str, schema_id: int) -> bool | None:
        self.lookups.append((subject, schema_id))
        return None if schema_id == 3 else (subject, schema_id) in (("t-key", 1), ("t-value", 2))


def validate(*records: tuple[bytes | None, bytes | None], keys: bool = True, values: bool = True) -> Registry:
    """Validates a batch of records (key, value); `keys`, `values`: what the topic validates."""
    config = LogConfig(confluent_key_schema_validation=keys, redpanda_value_schema_id_validation=values)
    batch = [Record(timestamp_ms=0, key=key, value=value, offset=0) for key, value in records]
    registry = Registry()
    validate_schema_ids(encode_batch(batch, compression=Compression.lz4), "t", config, registry)
    return registry


def test_each_id_of_a_batch_is_looked_up_once_for_keys_and_for_values() -> None:
    record = (OF_KEYS + b"k", OF_VALUES + b"v")
    assert validate(record, record, (None, OF_VALUES), (OF_KEYS, None)).lookups == [("t-key", 1), ("t-value", 2)]
    assert validate((b"k", OF_VALUES), keys=False).lookups == [("t-value", 2)]
    assert validate((OF_KEYS, b"v"), values=False).lookups == [("t-key", 1)]


@pytest.mark.parametrize(
    ("record", "code", "message"),
    [
        ((OF_VALUES, OF_VALUES), ErrorCode.invalid_record, "record 1 has schema id 2, which subject t-key does not"),
        ((OF_KEYS, OF_KEYS), ErrorCode.invalid_record, "record 1 has schema id 1, which subject t-value does not"),
        ((OF_KEYS, FRAME), ErrorCode.invalid_record, "record 1 has no schema id, and subject t-value needs one"),
        ((b"\x01" + OF_KEYS, OF_VALUES), ErrorCode.invalid_record, "record 1 has no schema id, and subject t-key"),
        (
            (UNREAD, OF_VALUES),
            ErrorCode.not_enough_replicas,
            "this broker does not know yet whether subject t-key",
        ),
    ],
)
def test_the_first_record_without_a_known_id_is_named(
    record: tuple[bytes, bytes], code: ErrorCode, message: str
) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        validate((OF_KEYS, OF_VALUES), record)
    assert refused.value.code == code
