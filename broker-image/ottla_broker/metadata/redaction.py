"""Redaction of secrets in the metadata log for consumers: decode, mask, encode. Brokers fetch the log unredacted.

Sizes and offsets stay the same, because a snapshot is fetched by position: the mask of a value is as long as the value's
JSON, and all else is encoded as `records` encoded it before.
"""

from typing import Final

import msgspec

from ottla_broker.config import BROKER_SETTINGS, MIRROR_SETTINGS
from ottla_broker.metadata.image import BROKER_RESOURCE
from ottla_broker.metadata.records import ConfigRecord, decode_record, encode_record
from ottla_broker.wire.batch import BatchHeader, iter_batches
from ottla_broker.wire.records import Record, encode_batch, iter_records

MASK: Final = "*"
SENSITIVE_KEYS: Final = frozenset(
    name for settings in (BROKER_SETTINGS, MIRROR_SETTINGS) for name, it in settings.items() if it.is_sensitive
)
_CONFIG_TAG: Final = b"config"  # in the JSON of every ConfigRecord; batches without it are not decoded


def redact_secrets(data: bytes) -> bytes:
    """For whole batches. CORRUPT_MESSAGE, UNSUPPORTED_VERSION."""
    redacted = bytearray()
    for position, header in iter_batches(data):
        batch = data[position : position + header.size]
        has_config = _CONFIG_TAG in batch and not header.is_control
        redacted += _redact_batch(batch, header) if has_config else batch
    return bytes(redacted)


def _redact_batch(batch: bytes, header: BatchHeader) -> bytes:
    original = [record for _, record in iter_records(batch)]
    redacted = [_redact_record(record) for record in original]
    if redacted == original:
        return batch
    return encode_batch(redacted, base_offset=header.base_offset, leader_epoch=header.leader_epoch)


def _redact_record(record: Record) -> Record:
    config = None if record.value is None else decode_record(record.value)
    if not isinstance(config, ConfigRecord) or config.value is None or not _is_sensitive(config):
        return record
    mask = MASK * (len(msgspec.json.encode(config.value)) - 2)  # without the quotes
    masked = ConfigRecord(config.resource_type, config.name, config.key, mask)
    return Record(record.timestamp_ms, record.key, encode_record(masked), record.headers, record.offset)


def _is_sensitive(config: ConfigRecord) -> bool:
    """A broker's setting that only a plugin of Kafka's may know may hold a secret: DescribeConfigs hides its value too."""
    is_unknown = config.resource_type == BROKER_RESOURCE and config.key not in BROKER_SETTINGS
    return is_unknown or config.key in SENSITIVE_KEYS
