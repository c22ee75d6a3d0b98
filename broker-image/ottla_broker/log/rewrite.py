"""What a leader does to a batch before it appends it, where a topic's settings demand more than stamping.

All functions take one batch and its header and touch nothing else. A topic with `compression.type=producer` and
`message.timestamp.type=CreateTime`, the defaults, never decompresses a byte.
"""

from dataclasses import replace
from typing import Final

from ottla_broker.log.config import LogConfig
from ottla_broker.wire.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG, BatchHeader, Buffer, Compression, pack_batch
from ottla_broker.wire.compression import compress
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.records import decompress_records, iter_record_spans

# `compression.type`, other than `producer`, as a codec.
_CODECS: Final = {
    "uncompressed": Compression.none,
    "gzip": Compression.gzip,
    "snappy": Compression.snappy,
    "lz4": Compression.lz4,
    "zstd": Compression.zstd,
}


def target_codec(config: LogConfig) -> Compression | None:
    """The codec that the topic wants its batches in; None: whatever the producer chose."""
    return _CODECS.get(config.compression_type)


def level_of(codec: Compression, config: LogConfig) -> int | None:
    """The topic's `compression.<codec>.level`; None for codecs without levels."""
    match codec:
        case Compression.gzip:
            return config.compression_gzip_level
        case Compression.lz4:
            return config.compression_lz4_level
        case Compression.zstd:
            return config.compression_zstd_level
        case _:
            return None


def needs_rewriting(header: BatchHeader, config: LogConfig) -> bool:
    """Whether the topic's settings change this batch's bytes beyond base offset and leader epoch."""
    if config.message_timestamp_type == "LogAppendTime" or header.has_log_append_time:
        return True
    return _wanted_codec(header, config) is not None


def _wanted_codec(header: BatchHeader, config: LogConfig) -> Compression | None:
    """The codec to change to; None to leave it. Control batches stay as their coordinator wrote them."""
    if header.is_control or (codec := target_codec(config)) is None or codec == header.attributes & 7:
        return None
    return codec


def rewritten(data: Buffer, header: BatchHeader, config: LogConfig, *, now_ms: int, at: int = 0) -> Buffer:
    """The batch at `at` as the topic wants it, itself when it is so already: in the topic's codec, and with the time of
    appending where it says LogAppendTime (then the attributes and the largest timestamp change, the records do not:
    readers take the batch's time for each of them). The CRC covers all of that and is computed anew.

    KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE when the records do not decompress.
    """
    if not needs_rewriting(header, config):
        return memoryview(data)[at : at + header.size]
    attributes, max_timestamp = header.attributes, header.max_timestamp
    if config.message_timestamp_type == "LogAppendTime":
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = now_ms
    elif attributes & LOG_APPEND_TIME_FLAG:
        # The kind of timestamp is the topic's to say, not the producer's; the records' own times count again.
        attributes &= ~LOG_APPEND_TIME_FLAG
        max_timestamp = _latest_timestamp(decompress_records(data, header, at), header)
    records: Buffer
    codec = _wanted_codec(header, config)
    if codec is None:
        records = memoryview(data)[at + HEADER_SIZE : at + header.size]
    else:
        records = compress(codec, decompress_records(data, header, at), level_of(codec, config))
        attributes = attributes & ~7 | codec
    return pack_batch(replace(header, attributes=attributes, max_timestamp=max_timestamp), records)


def _latest_timestamp(payload: bytes, header: BatchHeader) -> int:
    return header.base_timestamp + max((span[2] for span in iter_record_spans(payload, header.count)), default=0)


def check_keys(data: Buffer, header: BatchHeader, *, at: int = 0) -> None:
    """For a compacted topic: INVALID_RECORD when a record has no key (there would be nothing to compact it by)."""
    for _, _, _, delta, key, _, _ in iter_record_spans(decompress_records(data, header, at), header.count):
        if key is None:
            raise KafkaError(
                ErrorCode.invalid_record,
                f"record {delta} of the batch has no key; a compacted topic needs one for each record",
            )
