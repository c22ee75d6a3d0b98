"""Redaction of secrets in the metadata log for consumers: decode, mask, encode. Brokers fetch the
log unredacted.

Sizes and offsets stay the same, because a snapshot is fetched by position: the mask of a value is
as long as the value's JSON, and all else is encoded as `records` encoded it before.
"""

from typing import Final

import msgspec

from ottla_broker.config import BROKER_SETTINGS, MIRROR_SETTINGS
from ottla_broker.metadata.image import BROKER_RESOURCE
from ottla_broker.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from ottla_broker.security.scram import ScramCredential
from ottla_broker.wire.batch import BatchHeader, iter_batches
from ottla_broker.wire.records import Record, encode_batch, iter_records

MASK: Final = "*"
SENSITIVE_KEYS: Final = frozenset(
    name for settings in (BROKER_SETTINGS, MIRROR_SETTINGS) for name, it in settings.items() if it.is_sensitive
)
_TAGS: Final = (b"config", b"scram")  # in the JSON of records that may hold secrets; other batches are not decoded


def redact_secrets(data: bytes) -> bytes:
    """Masks secrets in whole batches of the metadata log. Raises CORRUPT_MESSAGE,
    UNSUPPORTED_VERSION.
    """
    redacted = bytearray()
    for position, header in iter_batches(data):
        batch = data[position : position + header.size]
        may_hold_secrets = any(tag in batch for tag in _TAGS) and not header.is_control
        redacted += _redact_batch(batch, header) if may_hold_secrets else batch
    return bytes(redacted)


def _redact_batch(batch: bytes, header: BatchHeader) -> bytes:
    original = [record for _, record in iter_records(batch)]
    redacted = [_redact_record(record) for record in original]
    if redacted == original:
        return batch
    return encode_batch(redacted, base_offset=header.base_offset, leader_epoch=header.leader_epoch)


def _redact_record(record: Record) -> Record:
    original = None if record.value is None else decode_record(record.value)
    masked: MetadataRecord
    if isinstance(original, ConfigRecord) and original.value is not None and _is_sensitive(original):
        mask = MASK * (len(msgspec.json.encode(original.value)) - 2)  # without the quotes
        masked = ConfigRecord(original.resource_type, original.name, original.key, mask)
    elif isinstance(original, UserScramCredentialRecord):
        scram = original.credential
        zeroed = ScramCredential(
            scram.salt, bytes(len(scram.stored_key)), bytes(len(scram.server_key)), scram.iterations
        )
        masked = UserScramCredentialRecord(original.name, original.mechanism, zeroed, original.mirror)
    else:
        return record
    return Record(record.timestamp_ms, record.key, encode_record(masked), record.headers, record.offset)


def _is_sensitive(config: ConfigRecord) -> bool:
    """True for sensitive settings, and for a broker's configs with unknown names: they may be the
    secrets of a plugin of Kafka's. DescribeConfigs hides their values, too.
    """
    is_unknown = config.resource_type == BROKER_RESOURCE and config.key not in BROKER_SETTINGS
    return is_unknown or config.key in SENSITIVE_KEYS
