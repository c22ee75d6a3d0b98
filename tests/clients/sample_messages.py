"""Messages that a broker could get wrong, in a form to compare between clients."""

import time
from dataclasses import dataclass

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = int(time.time() * 1000) - 3_600_000  # an hour ago


@dataclass(frozen=True)
class Message:
    """A message to produce and to expect. `timestamp_ms` is milliseconds since the epoch."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


def messages(count: int = 50) -> list[Message]:
    """Messages with null and empty parts, repeated headers, non-ASCII text and a large value.

    Timestamps are one second apart; the last but one is the newest.
    """
    made = [
        Message(b"key-%d" % i, b"value-%d " % i + b"x" * (i % 7) * 100, START_MS + i * 1000, (("number", b"%d" % i),))
        for i in range(count)
    ]
    made[0] = Message(None, b"no key", START_MS)
    made[1] = Message(b"no value", None, START_MS + 1000)
    made[2] = Message(b"", b"", START_MS + 2000, (("empty", b""),))
    made[3] = Message(
        "Käfer".encode(), "größer".encode(), START_MS + 3000, (("same", b"1"), ("same", b"2"), ("ключ", b"\0\xff"))
    )
    made[4] = Message(b"large", bytes(range(256)) * 800, START_MS + 4000)
    made[-1], made[-2] = (
        Message(made[-1].key, made[-1].value, made[-2].timestamp_ms),
        Message(made[-2].key, made[-2].value, made[-1].timestamp_ms),
    )
    return made
