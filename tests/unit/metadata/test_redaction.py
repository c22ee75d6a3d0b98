"""Consumers of the metadata log get secrets as asterisks and everything else unchanged."""

from ottla_broker.metadata.records import ConfigRecord, MetadataRecord, decode_record, encode_record
from ottla_broker.metadata.redaction import redact_secrets
from ottla_broker.wire.records import Record, encode_batch, iter_records

PASSWORD = 'p"ss \\ wörd'


def batch(base: int, *records: MetadataRecord) -> bytes:
    return encode_batch([Record(1, None, encode_record(one)) for one in records], base_offset=base)


def test_secrets_become_asterisks_and_other_values_stay() -> None:
    plain = batch(0, ConfigRecord(101, "west", "topics", 'sasl.password","value":"not this'))
    with_secrets = batch(
        1,
        ConfigRecord(101, "west", "sasl.username", "u"),
        ConfigRecord(101, "west", "sasl.password", PASSWORD),
        ConfigRecord(101, "west", "ssl.keystore.key", "-----BEGIN PRIVATE KEY-----\nabc\n"),
        ConfigRecord(101, "west", "role", "Paused"),
    )
    removing = batch(5, ConfigRecord(101, "west", "sasl.password", None))
    data = plain + with_secrets + removing
    shown = redact_secrets(data)
    assert len(shown) == len(data)
    records = [decode_record(record.value or b"") for _, record in iter_records(shown)]  # also verifies the checksums
    values = {one.key: one.value for one in records[:5] if isinstance(one, ConfigRecord)}
    assert values["topics"] == 'sasl.password","value":"not this' and values["sasl.username"] == "u"
    assert set(values["sasl.password"] or "") == set(values["ssl.keystore.key"] or "") == {"*"}
    assert values["role"] == "Paused"
    assert records[5] == ConfigRecord(101, "west", "sasl.password", None)
    assert shown[: len(plain)] == plain and shown[-len(removing) :] == removing
    assert redact_secrets(plain) == plain and redact_secrets(b"") == b""


def test_an_unknown_broker_setting_is_redacted() -> None:
    data = batch(0, ConfigRecord(4, "1", "my.plugin.password", PASSWORD), ConfigRecord(4, "1", "log.retention.ms", "5"))
    secret, known = [decode_record(record.value or b"") for _, record in iter_records(redact_secrets(data))]
    assert isinstance(secret, ConfigRecord) and set(secret.value or "") == {"*"}
    assert known == ConfigRecord(4, "1", "log.retention.ms", "5")
