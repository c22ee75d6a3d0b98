"""Records of the metadata log as pages show them: decoded, with secrets masked."""

from dataclasses import dataclass

import msgspec

from ottla_broker.console.record_display import escape_unprintable
from ottla_broker.metadata.redaction import redact_secrets
from ottla_broker.wire.batch import iter_batches
from ottla_broker.wire.records import iter_records


@dataclass(frozen=True, slots=True)
class MetadataRow:
    """`kind`: the record's type; `control` for a control record, `unknown` for other data.
    `fields`: JSON. `topic_id`: id of the topic that the record is about, or empty.
    """

    offset: int
    epoch: int
    timestamp_ms: int
    kind: str
    fields: str
    topic_id: str = ""


def decode_rows(data: bytes, first: int, limit: int) -> list[MetadataRow]:
    """At most `limit` records of the batches `data`, from offset `first` on. Raises
    CORRUPT_MESSAGE.
    """
    rows: list[MetadataRow] = []
    for at, batch in iter_batches(data):
        if batch.next_offset <= first:
            continue
        whole = redact_secrets(data[at : at + batch.size])
        for header, record in iter_records(whole):
            if record.offset < first:
                continue
            if len(rows) >= limit:
                return rows
            parts = ("control", "", "") if header.is_control else read_fields(record.value)
            rows.append(MetadataRow(record.offset, header.leader_epoch, record.timestamp_ms, *parts))
    return rows


def read_fields(value: bytes | None) -> tuple[str, str, str]:
    """`kind`, `fields` and `topic_id` of a MetadataRow."""
    try:
        decoded = msgspec.json.decode(value or b"null")
    except msgspec.DecodeError:
        decoded = None
    if not isinstance(decoded, dict):
        return "unknown", "", ""
    kind = str(decoded.pop("type", "unknown"))
    return kind, escape_unprintable(msgspec.json.encode(decoded).decode()), str(decoded.get("topic", ""))
