"""Compression of record batches, as Kafka's clients read and write it, with bounded output.

- gzip: RFC 1952; several members are read as one stream.
- snappy: the Java client frames blocks as snappy-java (xerial) does: 16 bytes of head, then blocks
  of i32 length and raw data. Other clients send one raw block. Both are read; xerial's framing is
  written, because every client reads it.
- lz4: the LZ4 frame format with independent blocks, because Kafka's own reader rejects linked ones.
- zstd: plain frames.

Data that decompresses to more than `limit` bytes is rejected before that much memory is allocated.

cramjam, for all but gzip, takes 1.7 MiB and is imported with the first records that it has to read
or write. A broker that stores batches as its producers compressed them never imports it.
"""

import struct
import zlib
from typing import Final

from ottla_broker.wire.batch import Buffer, Compression
from ottla_broker.wire.errors import ErrorCode, KafkaError

GZIP_DEFAULT_LEVEL: Final = -1  # zlib's own choice, 6
LZ4_DEFAULT_LEVEL: Final = 9  # Kafka's default; it selects the fast compressor
ZSTD_DEFAULT_LEVEL: Final = 3

_LZ4_FAST: Final = 1
_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEAD: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest version that reads it
_XERIAL_BLOCK: Final = 32 * 1024  # bytes before compression; snappy-java's default
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_LENGTH: Final = struct.Struct(">i")
_SMALLEST_GUESS: Final = 4096
_GROWTH: Final = 8


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`level` is Kafka's `compression.<codec>.level`; None is Kafka's default.

    Snappy has no levels.
    """
    match codec:
        case Compression.none:
            return bytes(data)
        case Compression.gzip:
            return zlib.compress(data, GZIP_DEFAULT_LEVEL if level is None else level, wbits=31)
        case Compression.snappy:
            return _compress_xerial(data)
        case Compression.lz4:
            return _compress_lz4(data, level)
        case Compression.zstd:
            import cramjam

            return bytes(cramjam.zstd.compress(data, ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: Compression, data: Buffer, limit: int) -> bytes:
    """Raises KafkaError: CORRUPT_MESSAGE for invalid data, MESSAGE_TOO_LARGE above `limit`
    bytes.
    """
    match codec:
        case Compression.none:
            if len(data) > limit:
                raise _too_large(codec, limit)
            return bytes(data)
        case Compression.gzip:
            return _decompress_gzip(data, limit)
        case Compression.snappy:
            return _decompress_snappy(data, limit)
        case Compression.lz4:
            return _decompress_growing(codec, data, len(data) * 4, limit)
        case Compression.zstd:
            return _decompress_growing(codec, data, _zstd_content_size(data) or len(data) * 6, limit)


def _too_large(codec: Compression, limit: int) -> KafkaError:
    return KafkaError(
        ErrorCode.message_too_large, f"{codec.name} records decompress to more than the allowed {limit} bytes"
    )


def _corrupt(codec: Compression, why: object) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"{codec.name} records do not decompress: {why}")


def _decompress_growing(codec: Compression, data: Buffer, guess: int, limit: int) -> bytes:
    """Decompresses lz4 or zstd into a buffer of fixed size, and into a larger one each time it is
    too small.

    Pages that are not written cost no memory, so a wrong guess costs only time.
    """
    import cramjam

    into = cramjam.lz4.decompress_into if codec is Compression.lz4 else cramjam.zstd.decompress_into
    size = min(limit, max(guess, _SMALLEST_GUESS))
    while True:
        out = bytearray(size)
        try:
            written = into(data, out)
        except cramjam.DecompressionError as error:
            if size < limit:
                size = min(limit, size * _GROWTH)
                continue
            raise (_too_large(codec, limit) if "buffer" in str(error) else _corrupt(codec, error)) from error
        return bytes(memoryview(out)[:written])


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    parts: list[bytes] = []
    left, rest = limit, data
    while rest:
        stream = zlib.decompressobj(wbits=31)
        try:
            part = stream.decompress(rest, left + 1)  # 0 would mean no limit
        except zlib.error as error:
            raise _corrupt(Compression.gzip, error) from error
        if len(part) > left:
            raise _too_large(Compression.gzip, limit)
        if not stream.eof:
            raise _corrupt(Compression.gzip, "cut off")
        parts.append(part)
        left -= len(part)
        rest = stream.unused_data
    if not parts:
        raise _corrupt(Compression.gzip, "empty")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import cramjam

    fast = level is None or level == LZ4_DEFAULT_LEVEL
    frame = cramjam.lz4.Compressor(level=_LZ4_FAST if fast else level, content_checksum=False, block_linked=False)
    frame.compress(bytes(data))  # takes no other buffer
    return bytes(frame.finish())


def _compress_xerial(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEAD]
    for at in range(0, max(1, len(view)), _XERIAL_BLOCK):  # no data is one empty block
        block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _decompress_raw_snappy(view, limit, limit)
    parts: list[bytes] = []
    at, left = 0, limit
    while at < len(view):
        if bytes(view[at : at + 8]) == _XERIAL_MAGIC:  # streams can be concatenated
            at += len(_XERIAL_HEAD)
            continue
        if at + 4 > len(view):
            raise _corrupt(Compression.snappy, "cut off in a block's length")
        (size,) = _LENGTH.unpack_from(view, at)
        at += 4
        if size < 0 or at + size > len(view):
            raise _corrupt(Compression.snappy, f"a block of {size} bytes does not fit {len(view) - at}")
        part = _decompress_raw_snappy(view[at : at + size], left, limit)
        parts.append(part)
        left -= len(part)
        at += size
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_raw_snappy(block: memoryview, left: int, limit: int) -> bytes:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > left:
            raise _too_large(Compression.snappy, limit)
        out = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise _corrupt(Compression.snappy, error) from error
    return bytes(memoryview(out)[:written])


def _zstd_content_size(data: Buffer) -> int:
    """Content size that the first frame declares (RFC 8878, 3.1.1.1), 0 if none.

    Only a hint: it may be wrong.
    """
    if len(data) < 18 or bytes(data[:4]) != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    at = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    match descriptor >> 6:
        case 0:
            return data[at] if single_segment else 0
        case 1:
            return int.from_bytes(data[at : at + 2], "little") + 256
        case 2:
            return int.from_bytes(data[at : at + 4], "little")
        case _:
            return int.from_bytes(data[at : at + 8], "little")
