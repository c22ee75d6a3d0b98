"""Validation of the single records of a client's batch by the leader (Kafka's LogValidator).

Most batches are not parsed: the header has the largest timestamp, and most topics take records
without a key and of any age. `LogState.validates_records` is True for logs whose batches must be
parsed. A batch whose header shows an invalid timestamp or timestamp type is parsed too, so that the
error names its records.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from ottla_broker.log.config import DEFAULT_TIMESTAMP_AFTER_MAX_MS, MAX_INT64, LogConfig
from ottla_broker.wire.batch import LOG_APPEND_TIME_FLAG, NO_TIMESTAMP, BatchHeader, Buffer
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import decompress_records, iter_record_spans

# A compressed batch of a few kilobytes can hold millions of records; a response must not name all.
MAX_RECORD_ERRORS: Final = 10_000

RecordError = tuple[int, str]
"""The index of a record in its batch, and what is wrong with it."""


class InvalidRecords(KafkaError):
    """Rejects a batch because of single records: the first `MAX_RECORD_ERRORS` of them, by index
    (KIP-467).

    The code is INVALID_TIMESTAMP if one of them has an invalid timestamp, otherwise INVALID_RECORD,
    as in Kafka.
    """

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def must_validate_records(config: LogConfig) -> bool:
    """True if the header of a batch is not enough to decide whether its records are valid for the
    topic."""
    return config.cleanup_compact or (
        config.message_timestamp_type == "CreateTime"
        and (
            config.message_timestamp_before_max_ms != MAX_INT64
            or config.message_timestamp_after_max_ms != DEFAULT_TIMESTAMP_AFTER_MAX_MS
        )
    )


def validate_records(data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Raises InvalidRecords; KafkaError INVALID_RECORD if the records do not parse,
    MESSAGE_TOO_LARGE and UNSUPPORTED_COMPRESSION_TYPE as `decompress_records` does."""
    try:
        record_errors = list(islice(_iter_record_errors(data, header, config, now_ms), MAX_RECORD_ERRORS))
    except KafkaError as error:
        if error.code is ErrorCode.corrupt_message:
            # The CRC is right: the client wrote the batch so, and must not send it again.
            raise KafkaError(ErrorCode.invalid_record, error.message) from error
        raise
    if record_errors:
        has_invalid_timestamp = any(code is ErrorCode.invalid_timestamp for code, _ in record_errors)
        count = f"{len(record_errors)}" if len(record_errors) < MAX_RECORD_ERRORS else f"{MAX_RECORD_ERRORS} or more"
        _, (first, reason) = record_errors[0]
        raise InvalidRecords(
            ErrorCode.invalid_timestamp if has_invalid_timestamp else ErrorCode.invalid_record,
            f"{count} of {header.count} records are invalid, first record {first}: {reason}",
            [error for _, error in record_errors],
        )


def _iter_record_errors(
    data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int
) -> Iterator[tuple[ErrorCode, RecordError]]:
    compacted = config.cleanup_compact
    earliest, latest = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms
    checks_time = config.message_timestamp_type == "CreateTime"
    has_append_time = bool(header.attributes & LOG_APPEND_TIME_FLAG)
    base = header.base_timestamp
    spans = iter_record_spans(decompress_records(data, header), header.count)
    for index, (_, _, delta, _, key, _, _) in enumerate(spans):
        if compacted and key is None:
            yield ErrorCode.invalid_record, (index, "no key; a compacted topic needs one for each record")
        elif has_append_time:
            reason = "timestamp type LogAppendTime; a producer must use CreateTime"
            yield ErrorCode.invalid_timestamp, (index, reason)
        # No bound applies to a record without a timestamp.
        elif checks_time and not earliest <= (timestamp := base + delta) <= latest and timestamp != NO_TIMESTAMP:
            yield ErrorCode.invalid_timestamp, (index, _describe_timestamp(timestamp, config, now_ms))


def _describe_timestamp(timestamp: int, config: LogConfig, now_ms: int) -> str:
    if timestamp > now_ms:
        return (
            f"timestamp {timestamp} is {timestamp - now_ms} ms ahead of the broker; message.timestamp.after.max.ms"
            f" allows {config.message_timestamp_after_max_ms}"
        )
    return (
        f"timestamp {timestamp} is {now_ms - timestamp} ms old; message.timestamp.before.max.ms"
        f" allows {config.message_timestamp_before_max_ms}"
    )
