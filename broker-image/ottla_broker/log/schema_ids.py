"""Checks that the records of a batch carry ids of schemas that the topic's subjects have.

A serializer writes a zero byte and the schema's id in 4 bytes before the data. Only these five
bytes are read, once for each id of a batch.
"""

from struct import Struct
from typing import Final, Protocol

from ottla_broker.log.config import LogConfig
from ottla_broker.wire.batch import Buffer, parse_batch_header
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import decompress_records, iter_record_spans

MAGIC_BYTE: Final = 0
FRAME: Final = Struct(">bi")


class SchemaIds(Protocol):
    """The schema ids that a broker knows from its registry."""

    def is_known(self, subject: str, schema_id: int) -> bool | None:
        """True if a version of the subject has the id. None if this broker does not know yet."""
        ...


def validate_schema_ids(records: Buffer, topic: str, config: LogConfig, ids: SchemaIds | None) -> None:
    """Raises KafkaError: INVALID_RECORD for a key or value that is not null and has no id or an
    unknown one, and if `ids` is None, because this broker has no schema registry;
    NOT_ENOUGH_REPLICAS, so that producers retry, while this broker does not know all schemas; those
    of `decompress_records`.
    """
    if ids is None:
        raise KafkaError(
            ErrorCode.invalid_record,
            f"topic {topic} validates schemas, and this broker has no schema.registry.listener",
        )
    checks_keys, checks_values = config.validates_keys, config.validates_values
    keys, values = set[bytes](), set[bytes]()
    header = parse_batch_header(records)
    spans = iter_record_spans(decompress_records(records, header), header.count)
    for index, (_, _, _, _, key, value, _) in enumerate(spans):
        if checks_keys and key is not None and key[: FRAME.size] not in keys:
            _check(key[: FRAME.size], f"{topic}-key", index, ids)
            keys.add(key[: FRAME.size])
        if checks_values and value is not None and value[: FRAME.size] not in values:
            _check(value[: FRAME.size], f"{topic}-value", index, ids)
            values.add(value[: FRAME.size])


def _check(frame: bytes, subject: str, index: int, ids: SchemaIds) -> None:
    if len(frame) < FRAME.size or frame[0] != MAGIC_BYTE:
        raise KafkaError(ErrorCode.invalid_record, f"record {index} has no schema id, and subject {subject} needs one")
    _, schema_id = FRAME.unpack(frame)
    is_known = ids.is_known(subject, schema_id)
    if is_known is None:
        raise KafkaError(
            ErrorCode.not_enough_replicas,
            f"this broker does not know yet whether subject {subject} has schema id {schema_id}",
        )
    if not is_known:
        raise KafkaError(
            ErrorCode.invalid_record, f"record {index} has schema id {schema_id}, which subject {subject} does not have"
        )
