"""What is secret in the metadata log, hidden from whoever reads it as a consumer. Brokers copy it as it is.

Sizes and offsets stay: every byte of a secret becomes a star, and the checksum of its batch is computed anew. The log's batches are never
compressed, and records are JSON whose members come in the order in which `records.ConfigRecord` has them, so that a secret is found in the bytes.
"""

import re
from typing import Final

from crc32c import crc32c

from ottla_broker.config import BROKER_SETTINGS, MIRROR_SETTINGS
from ottla_broker.wire.batch import ATTRIBUTES_OFFSET, CRC_OFFSET, iter_batches

_SECRET: Final = [name for name, it in {**BROKER_SETTINGS, **MIRROR_SETTINGS}.items() if it.is_sensitive]
_FOUND: Final = re.compile(
    rb'"key":"(?:' + b"|".join(re.escape(name.encode()) for name in _SECRET) + rb')","value":"((?:[^"\\]|\\.)*)"'
)


def redact_secrets(data: bytes) -> bytes:
    """Of whole batches. KafkaError: CORRUPT_MESSAGE."""
    secrets = [found.span(1) for found in _FOUND.finditer(data)]
    if not secrets:
        return data
    changed = bytearray(data)
    for start, end in secrets:
        changed[start:end] = b"*" * (end - start)
    for at, header in iter_batches(data):
        if any(at < start < at + header.size for start, _ in secrets):
            checksum = crc32c(memoryview(changed)[at + ATTRIBUTES_OFFSET : at + header.size])
            changed[at + CRC_OFFSET : at + ATTRIBUTES_OFFSET] = checksum.to_bytes(4)
    return bytes(changed)
