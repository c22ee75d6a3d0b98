"""Frames of a stream of bytes, however it is cut into pieces, and the memory for large ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.wire.framing import SCRATCH_BYTES, SMALL_FRAME_BYTES, FrameReader
from ottla_broker.wire.message_reader import MalformedMessage

LIMIT = 1 << 22


def create_reader(scratch: bytearray | None = None, claims: list[int] | None = None) -> FrameReader:
    def claim(size: int) -> bool:
        if claims is not None:
            claims.append(size)
        return True

    return FrameReader(memoryview(scratch or bytearray(SCRATCH_BYTES)), LIMIT, claim, "socket.request.max.bytes")


def feed(frames: FrameReader, data: bytes, piece: int) -> list[bytearray]:
    """Feeds the stream in pieces of at most `piece` bytes, as a socket fills the buffer. Returns
    the frames.
    """
    found = []
    while data:
        buffer = frames.get_buffer()
        count = min(len(buffer), len(data), piece)
        buffer[:count] = data[:count]
        data = data[count:]
        found += frames.buffer_updated(count)
    return found


def encode_frames(*bodies: bytes | bytearray) -> bytes:
    return b"".join(len(body).to_bytes(4) + body for body in bodies)


sizes = st.integers(0, 40) | st.sampled_from(
    [16_380, 17_000, SMALL_FRAME_BYTES - 1, SMALL_FRAME_BYTES, SMALL_FRAME_BYTES + 1, 300_000]
)


@given(st.lists(sizes, max_size=6), st.sampled_from([1, 3, 1000, 20_000, 1 << 20]))
@settings(max_examples=60, deadline=None, database=None)
def test_frames_are_split_for_any_piece_size(lengths: list[int], piece: int) -> None:
    if piece < 1000:
        lengths = [length % 200 for length in lengths]
    bodies = [bytes([index + 1]) * length for index, length in enumerate(lengths)]
    claims: list[int] = []
    frames = create_reader(claims=claims)
    assert feed(frames, encode_frames(*bodies), piece) == bodies
    assert claims == [length for length in lengths if length > SMALL_FRAME_BYTES]
    assert frames.claimed_bytes == 0


@given(st.data())
@settings(max_examples=40, deadline=None, database=None)
def test_connections_share_one_scratch_buffer(data: st.DataObject) -> None:
    scratch = bytearray(SCRATCH_BYTES)
    streams = [
        encode_frames(*[bytes([who + 65]) * n for n in data.draw(st.lists(st.integers(0, 30_000), max_size=4))])
        for who in range(3)
    ]
    readers = [create_reader(scratch) for _ in streams]
    found: list[list[bytearray]] = [[] for _ in streams]
    left = list(streams)
    while any(left):
        who = data.draw(st.sampled_from([who for who in range(3) if left[who]]))
        count = data.draw(st.sampled_from([5, 5_000, 70_000]))
        found[who] += feed(readers[who], left[who][:count], count)
        left[who] = left[who][count:]
    assert [encode_frames(*bodies) for bodies in found] == streams


@pytest.mark.parametrize("size", [-1, -(1 << 31), LIMIT + 1, (1 << 31) - 1])
def test_rule_18_size_out_of_bounds_is_malformed_before_allocation(size: int) -> None:
    claims: list[int] = []
    with pytest.raises(MalformedMessage, match=r"socket\.request\.max\.bytes"):
        feed(create_reader(claims=claims), size.to_bytes(4, signed=True) + b"rest", 100)
    assert claims == []


def test_rule_18_large_frame_waits_for_memory() -> None:
    allowed = [False, False, True]
    frames = FrameReader(memoryview(bytearray(SCRATCH_BYTES)), LIMIT, lambda size: allowed.pop(0))
    body = bytes(range(256)) * 1000
    sent = encode_frames(b"small", body)
    assert feed(frames, sent[:100], 100) == [b"small"]
    assert frames.is_stalled
    frames.resume()
    assert frames.is_stalled
    frames.resume()
    assert not frames.is_stalled
    assert frames.claimed_bytes == len(body)
    assert feed(frames, sent[100:], 1 << 20) == [body]


def test_a_frame_above_the_limit_is_refused_with_the_name_of_the_limit() -> None:
    frames = create_reader()
    frames.limit_frames(100, "sasl.server.max.receive.size")
    assert feed(frames, encode_frames(bytes(100)), 50) == [bytes(100)]
    with pytest.raises(MalformedMessage, match=r"^a message of 101 bytes; sasl\.server\.max\.receive\.size is 100$"):
        feed(frames, encode_frames(bytes(101)), 50)
