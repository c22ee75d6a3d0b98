"""Codecs: Ottla reads what clients compress, and they read what Ottla compresses. Memory stays
within its bound."""

import gzip
import struct
import zlib

import aiokafka.codec
import cramjam
import kafka.codec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.wire.batch import Compression
from ottla_broker.wire.compression import compress, decompress
from ottla_broker.wire.errors import ErrorCode, KafkaError

repeated = st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 20_000)).map(lambda some: some[0] * some[1])
data = st.binary(max_size=300) | repeated
packing = pytest.mark.parametrize("codec", [c for c in Compression if c is not Compression.none], ids=lambda c: c.name)


@packing
@settings(max_examples=40)
@given(plain=data)
def test_compressed_bytes_decompress_within_an_exact_limit(codec: Compression, plain: bytes) -> None:
    assert decompress(codec, compress(codec, plain), len(plain)) == plain


@packing
@settings(max_examples=40)
@given(plain=data)
def test_aiokafka_and_ottla_read_each_others_bytes(codec: Compression, plain: bytes) -> None:
    theirs = getattr(aiokafka.codec, f"{codec.name}_decode")
    assert bytes(theirs(compress(codec, plain))) == plain
    assert decompress(codec, bytes(getattr(aiokafka.codec, f"{codec.name}_encode")(plain)), len(plain)) == plain


@pytest.mark.parametrize("codec", [Compression.gzip, Compression.lz4], ids=lambda c: c.name)
@settings(max_examples=40)
@given(plain=data)
def test_kafka_python_and_ottla_read_each_others_bytes(codec: Compression, plain: bytes) -> None:
    theirs = getattr(kafka.codec, f"{codec.name}_decode")
    assert theirs(compress(codec, plain)) == plain
    assert decompress(codec, getattr(kafka.codec, f"{codec.name}_encode")(plain), len(plain)) == plain


@packing
def test_any_buffer_type_is_accepted(codec: Compression) -> None:
    plain = b"farm " * 100
    for kind in (bytes, bytearray, memoryview):
        packed = compress(codec, kind(plain))
        assert isinstance(packed, bytes)
        unpacked = decompress(codec, kind(packed), 500)
        assert isinstance(unpacked, bytes)
        assert unpacked == plain


@packing
def test_decompression_bomb_is_rejected_before_memory_is_allocated(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 << 20))
    with pytest.raises(KafkaError) as refusal:
        decompress(codec, bomb, 1 << 20)
    assert refusal.value.code is ErrorCode.message_too_large


@packing
@settings(max_examples=60)
@given(plain=data, cut=st.integers(1, 30), junk=st.binary(min_size=1, max_size=50))
def test_invalid_bytes_raise_only_corrupt_message_or_message_too_large(
    codec: Compression, plain: bytes, cut: int, junk: bytes
) -> None:
    packed = compress(codec, plain)
    for broken in (packed[: max(0, len(packed) - cut)], junk, packed[:20] + junk + packed[21:]):
        try:
            decompress(codec, broken, 1 << 20)
        except KafkaError as refusal:
            assert refusal.code in (ErrorCode.corrupt_message, ErrorCode.message_too_large)


@packing
def test_cut_off_stream_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, bytes(range(256)) * 300)
    with pytest.raises(KafkaError) as refusal:
        decompress(codec, packed[:-5], 1 << 20)
    assert refusal.value.code is ErrorCode.corrupt_message


def test_snappy_is_read_raw_framed_and_in_consecutive_frames() -> None:
    plain = b"Zurau " * 20_000
    raw = bytes(cramjam.snappy.compress_raw(plain))
    framed = compress(Compression.snappy, plain)
    assert framed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    assert decompress(Compression.snappy, raw, len(plain)) == plain
    assert decompress(Compression.snappy, framed + framed, 2 * len(plain)) == plain * 2
    assert decompress(Compression.snappy, framed[:16], 0) == b""


def test_snappy_block_with_a_wrong_length_is_rejected() -> None:
    for broken in (
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 1 << 30),
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -5),
    ):
        with pytest.raises(KafkaError):
            decompress(Compression.snappy, broken, 1 << 20)
    huge = b"\xff\xff\xff\xff\x0f" + b"x"  # a raw block with a length of 4 GiB
    with pytest.raises(KafkaError) as refusal:
        decompress(Compression.snappy, huge, 1 << 20)
    assert refusal.value.code is ErrorCode.message_too_large


def test_gzip_members_share_one_limit() -> None:
    both = gzip.compress(b"a" * 600) + gzip.compress(b"b" * 600)
    assert decompress(Compression.gzip, both, 1200) == b"a" * 600 + b"b" * 600
    with pytest.raises(KafkaError):
        decompress(Compression.gzip, both, 1199)


def test_zstd_frame_without_a_content_size_is_read_within_the_limit() -> None:
    streamed = cramjam.zstd.Compressor(3)  # declares no content size, like the Java client
    streamed.compress(b"x" * 5_000_000)
    assert len(decompress(Compression.zstd, bytes(streamed.finish()), 5_000_000)) == 5_000_000


def test_lz4_blocks_are_independent_and_levels_apply() -> None:
    plain = b"".join(b"%d,%d;" % (n, n * n) for n in range(40_000))
    frame = compress(Compression.lz4, plain)
    assert frame[4] & 0x20, "Kafka's reader rejects blocks that depend on each other"
    fast = len(compress(Compression.lz4, plain, 9))  # Kafka's default, which is the fast one
    assert len(compress(Compression.lz4, plain, 12)) < fast
    assert len(compress(Compression.gzip, plain, 9)) < len(compress(Compression.gzip, plain, 1))
    assert len(compress(Compression.zstd, plain, 19)) < len(compress(Compression.zstd, plain, -50))
    assert zlib.decompress(compress(Compression.gzip, plain), 31) == plain
