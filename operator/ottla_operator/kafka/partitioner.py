"""Which partition a key belongs to: murmur2 over the key, as Java's producer and librdkafka's `murmur2_random` do it, so that a key is in one
partition no matter who writes it."""

from functools import lru_cache
from typing import Final

SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits, with Kafka's seed."""
    size = len(data)
    found = SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        found = found * _M & _MASK ^ word
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15


@lru_cache(maxsize=1 << 16)
def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partitions
